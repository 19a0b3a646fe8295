// A row is one operator: its ATen name, one lowering function, options. The table of rows is all that the project knows
// of operators; registration, in-place, out= and foreach forms, keys, tests and the reference page are derived from it.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lower/call.h"

namespace tpj::lower {

// Returns the fresh results of the schema in order, then the new value of each mutated argument (in schema order, or in
// the order of Options::mutates). A default-constructed Value leaves that argument as it was.
using LowerFn = Values (*)(Call&);

// Arguments of an operator whose values have bounds. A program cannot raise, so eager/bounds looks at them before the
// call: at positions where that costs no wait, at the others always.
enum class Bounds {
  kNone,
  kAlongDim,     // (self, dim, index, ...): places along dim of self
  kClasses,      // (self, target, weight, reduction, ignore_index, ...): channels of self
  kFlat,         // (self, index, ...): places in self, flattened; negative ones count from the end
  kIndices,      // (self, indices[], ...): places in the dimensions of self; negative ones count from the end. (self,
                 // {mask}, values, ...): a row of values for each place, or one for all
  kRows,         // (weight, indices, ...): rows of weight
  kTargets,      // (self, target, ...): classes, the last dimension of self
  kTargetLists,  // the same, and -1, which ends a list
  kUnpooled,     // (self, indices, output_size, ...): places in an output plane
  kMasked,       // (self, mask, source): no more places than source has elements
  kDeviations,   // (mean, std, ...): standard deviations, not negative
};

// A Scalar, float or 0-d host tensor among the arguments of a call; every other argument is not given.
struct GivenNumber {
  bool given = false;
  NumberKind kind = NumberKind::kFloat;
  double value = 0;
};

// A result whose size is data: the row gives it in the greatest size that there can be, and what counts of it comes
// first along one dimension (named by an argument of the operator, which may be None; else dimension 0).
struct Cut {
  size_t result;
  std::string_view dim = {};
  bool transposed = false;  // a matrix that the program gives with its dimensions exchanged
};

struct Row {
  struct Options {
    // Arguments (by schema name) whose numbers are part of the key. All other numbers are inputs of the program.
    std::vector<std::string_view> statics = {};
    // Values of a number for which the program is another one; any other value is an input.
    std::vector<std::pair<std::string_view, std::vector<double>>> special = {};
    // Arguments that the operator writes although its schema does not say so.
    std::vector<std::string_view> mutates = {};
    // Operator (same arguments) whose meta kernel describes the results, where this one has none.
    std::string_view meta = {};
    // False: PyTorch has no meta kernel, or one that fails. The row's values say what the results are, an empty one
    // that there is none, and the row checks its arguments. Only for operators that write nothing.
    bool asks_meta = true;
    // May write to a tensor that overlaps itself (PyTorch allows it for fills and index_put).
    bool may_overlap = false;
    Bounds bounds = Bounds::kNone;
    // Numbers (by position of the argument) that the operator does not take, whatever its program, for a first tensor
    // of this type. The CPU's kernel then words the error.
    bool (*refuses)(std::span<const GivenNumber> args, DType first) = nullptr;
    // The row returns its results and after them how long those listed here are (0-d, I64). The meta kernel is not
    // asked: the row's values say what the results are.
    std::vector<Cut> cuts = {};
    // Not registered with PyTorch: the runtime itself calls it (copies).
    bool internal = false;
  };

  std::string_view name;  // functional schema name with overload, without "aten::": "add.Tensor", "relu"
  LowerFn lower;
  Options options = {};
};

// Every row, ordered by name. A duplicate is an error at load.
std::span<const Row> rows();
// nullptr when there is none.
const Row* find_row(std::string_view name);

// The families; each lives in the source file of its name, alphabetical inside.
std::vector<Row> activation_rows();
std::vector<Row> conv_pool_rows();
std::vector<Row> counted_rows();
std::vector<Row> fft_rows();
std::vector<Row> foreach_optim_rows();
std::vector<Row> index_rows();
std::vector<Row> jacobi_rows();
std::vector<Row> linalg_rows();
std::vector<Row> loss_rows();
std::vector<Row> lu_rows();
std::vector<Row> matmul_rows();
std::vector<Row> norm_loss_rows();
std::vector<Row> pointwise_rows();
std::vector<Row> polynomial_rows();
std::vector<Row> qr_rows();
std::vector<Row> random_rows();
std::vector<Row> recurrent_rows();
std::vector<Row> reduce_rows();
std::vector<Row> sort_scan_rows();
std::vector<Row> special_rows();
std::vector<Row> unary_rows();
std::vector<Row> view_copy_rows();

}  // namespace tpj::lower
