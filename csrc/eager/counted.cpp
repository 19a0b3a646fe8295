// Operators whose results' sizes are data. One program computes the greatest result that there can be and how much of
// it counts; that number is read, and what counts is a view of the rest: no program depends on it.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>

#include <bit>

#include "eager/kernels.h"

namespace tpj::eager {

int64_t power_of_two(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

namespace {

at::Tensor first_of(const at::Tensor& t, int64_t dim, int64_t count) {
  if (t.size(dim) <= count) return t;
  // The rest stays allocated as long as the result lives: of a large one only little may be left over.
  constexpr size_t kLarge = size_t{1} << 20;
  const int64_t kept = power_of_two(count);
  if (t.nbytes() > kLarge && 2 * kept <= t.size(dim))
    return t.narrow(dim, 0, kept).clone(at::MemoryFormat::Contiguous).narrow(dim, 0, count);
  return t.narrow(dim, 0, count);
}

class CountedKernel final : public c10::OperatorKernel {
 public:
  CountedKernel(const lower::Row& row, const c10::OperatorHandle& op) : kernel_(make_kernel(row, op)) {
    for (const lower::Cut& cut : row.options.cuts)
      cuts_.push_back({cut, cut.dim.empty() ? std::nullopt : op.schema().argumentIndexWithName(cut.dim)});
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const at::AutoDispatchBelowADInplaceOrView below;
    if (is_printing()) return at::native::cpu_fallback(op, stack);
    const size_t first = stack->size() - op.schema().arguments().size();
    std::vector<int64_t> dims;
    for (const auto& [cut, arg] : cuts_) {
      const c10::IValue dim = arg ? (*stack)[first + static_cast<size_t>(*arg)] : c10::IValue();
      dims.push_back(dim.isNone() ? 0 : dim.toInt());
    }
    kernel_->call(op, *stack);
    const int64_t count = stack->back().toTensor().item<int64_t>();
    stack->pop_back();
    for (size_t i = 0; i < cuts_.size(); ++i) {
      const lower::Cut& cut = cuts_[i].first;
      c10::IValue& v = (*stack)[first + cut.result];
      const at::Tensor& t = v.toTensor();
      if (!cut.transposed)
        v = first_of(t, dims[i], count);
      else
        v = count == 0 ? t.as_strided({0, t.size(0)}, {1, 0}) : first_of(t, 1, count).t();
    }
  }

 private:
  std::unique_ptr<OpKernel> kernel_;
  std::vector<std::pair<lower::Cut, std::optional<int>>> cuts_;  // with the argument that names the dimension
};

// An out= form: the functional call, then copies.
class OutKernel final : public c10::OperatorKernel {
 public:
  explicit OutKernel(c10::OperatorHandle functional) : functional_(std::move(functional)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const size_t n_args = op.schema().arguments().size(), n_in = functional_.schema().arguments().size();
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(n_args);
    const torch::jit::Stack outs(first + static_cast<std::ptrdiff_t>(n_in), stack->end());
    torch::jit::Stack results(first, first + static_cast<std::ptrdiff_t>(n_in));
    functional_.callBoxed(&results);
    for (size_t i = 0; i < outs.size(); ++i) {
      const at::Tensor &out = outs[i].toTensor(), &result = results[i].toTensor();
      if (out.scalar_type() != result.scalar_type()) raise_as_cpu(op, *stack, n_args);
      at::native::resize_output(out, result.sizes());
      out.copy_(result);
    }
    torch::jit::drop(*stack, n_args);
    stack->insert(stack->end(), outs.begin(), outs.end());
  }

 private:
  c10::OperatorHandle functional_;
};

}  // namespace

torch::CppFunction counted_function(const lower::Row& row, const c10::OperatorHandle& op) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CountedKernel>(row, op));
}

torch::CppFunction out_function(const c10::OperatorHandle& functional) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<OutKernel>(functional));
}

}  // namespace tpj::eager
