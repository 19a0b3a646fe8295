#include "exec/lowering.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <set>

#include "exec/inputs.h"
#include "lower/common.h"
#include "runtime/allocator.h"
#include "runtime/scalar_type.h"

namespace tpj::exec {
namespace {

using runtime::to_dtype;
using runtime::to_scalar_type;

View view_of(const at::Tensor& t) {
  return {to_dtype(t.scalar_type()), t.sizes().vec(), t.strides().vec(), t.storage_offset()};
}

// Numbers are passed in a type that the host can write.
DType host_type(DType t) { return opmath(t); }

std::complex<double> value_of(const c10::IValue& v) {
  if (v.isComplexDouble()) return {v.toComplexDouble().real(), v.toComplexDouble().imag()};
  return v.toScalar().to<double>();
}

Value constant_number(Builder& b, const c10::IValue& v, DType t) {
  const Type type{t, {}};
  if (is_complex(t)) return b.complex_constant(type, value_of(v).real(), value_of(v).imag());
  if (v.isInt()) return b.constant(type, v.toInt());
  if (v.isBool()) return b.constant(type, static_cast<int64_t>(v.toBool()));
  return b.constant(type, value_of(v).real());
}

// PyTorch's promotion over the tensor arguments (not lists of indices or masks: those do not take part where they
// occur).
DType common_dtype(const torch::jit::Stack& stack) {
  at::native::ResultTypeState state{};
  bool any = false;
  for (const c10::IValue& v : stack)
    if (v.isTensor() && v.toTensor().defined())
      state = at::native::update_result_type_state(v.toTensor(), state), any = true;
  return any ? to_dtype(at::native::result_type(state)) : DType::F32;
}

// Every tensor in a value, in order; undefined ones included.
void flatten(const c10::IValue& v, std::vector<at::Tensor>& out) {
  if (v.isTensor()) {
    out.push_back(v.toTensor());
  } else if (v.isTensorList()) {
    for (const at::Tensor& t : v.toTensorVector()) out.push_back(t);
  } else if (v.isList()) {
    for (const c10::IValue& item : v.toListRef())
      if (item.isTensor()) out.push_back(item.toTensor());
  }
}

}  // namespace

lower::NumberKind kind_of(const c10::IValue& v) {
  if (v.isBool()) return lower::NumberKind::kBool;
  if (v.isInt() || v.isUnsigned()) return lower::NumberKind::kInt;
  return v.isComplexDouble() ? lower::NumberKind::kComplex : lower::NumberKind::kFloat;
}

bool is_known(const Form& form, size_t arg, const c10::IValue& value) {
  if (form.is_static[arg]) return true;
  if (form.special[arg].empty() || value.isComplexDouble()) return false;
  const double v = value_of(value).real();
  return std::find(form.special[arg].begin(), form.special[arg].end(), v) != form.special[arg].end();
}

int Lowering::add_cell(const BufferType* type, size_t nbytes, c10::ScalarType fallback_dtype) {
  SymbolicCell cell;
  cell.type = type;
  cell.nbytes = nbytes;
  cell.fallback_dtype = fallback_dtype;
  cell.is_input = true;
  // The meta storage that stands for it.
  keep_alive_.push_back(
      at::empty({static_cast<int64_t>(nbytes)}, at::TensorOptions().dtype(at::kByte).device(at::kMeta)));
  by_storage_[keep_alive_.back().storage().unsafeGetStorageImpl()] = static_cast<int>(cells_.size());
  cells_.push_back(cell);
  return static_cast<int>(cells_.size()) - 1;
}

at::Tensor Lowering::tensor(int cell, const c10::TensorImpl& like, ArgPath path, bool may_move) {
  const auto at_cell =
      std::find_if(by_storage_.begin(), by_storage_.end(), [&](const auto& e) { return e.second == cell; });
  TPJ_ASSERT(at_cell != by_storage_.end());
  c10::Storage storage(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(
      const_cast<c10::StorageImpl*>(at_cell->first)));
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                          c10::DispatchKeySet(c10::DispatchKey::Meta), like.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_wrapped_number()) t.unsafeGetTensorImpl()->set_wrapped_number(true);
  // PyTorch leaves these bits to the kernels of matrix products and the like; elsewhere they are resolved before.
  if (like.is_conj() || like.is_neg()) {
    lazy_[t.unsafeGetTensorImpl()] = {like.is_conj(), like.is_neg()};
    keep_alive_.push_back(t);
  }
  const Offset offset = may_move ? Inputs::offset_of(like, cells_[static_cast<size_t>(cell)].type) : Offset{};
  if (offset.unit != 0) {
    moving_[t.unsafeGetTensorImpl()] = {path, offset};
    keep_alive_.push_back(t);
  }
  return t;
}

at::Tensor Lowering::number(const at::Tensor& cpu, ArgPath path) {
  // Meta kernels take CPU 0-d tensors beside meta tensors, as all kernels do: the argument stands for itself.
  scalar_tensors_[cpu.storage().unsafeGetStorageImpl()] = {path, cpu.scalar_type()};
  keep_alive_.push_back(cpu);
  return cpu;
}

Lowering::SymbolicCell& Lowering::cell_of(const at::Tensor& meta) {
  const c10::StorageImpl* storage = meta.storage().unsafeGetStorageImpl();
  const auto it = by_storage_.find(storage);
  if (it != by_storage_.end()) {
    SymbolicCell& cell = cells_[static_cast<size_t>(it->second)];
    cell.nbytes = storage->nbytes();  // a resize may have changed it
    return cell;
  }
  SymbolicCell cell;
  cell.nbytes = storage->nbytes();
  cell.fallback_dtype = meta.scalar_type();
  keep_alive_.push_back(meta);
  by_storage_[storage] = static_cast<int>(cells_.size());
  cells_.push_back(cell);
  return cells_.back();
}

// The cell's dense content. What was never written reads as zeros of the fallback type.
Value Lowering::base_value(SymbolicCell& cell) {
  if (cell.current) return cell.current;
  const DType dtype = cell.type ? cell.type->dtype : to_dtype(cell.fallback_dtype);
  const Dims dims = cell.type ? cell.type->dims : Dims{static_cast<int64_t>(cell.nbytes / size_of(dtype))};
  if (!cell.is_input) return b_.constant(Type{dtype, dims}, 0);
  if (!cell.parameter) {
    cell.parameter = b_.parameter({dtype, dims});
    cell.type = BufferType::intern(dtype, dims);
  }
  return cell.parameter;
}

Value Lowering::resolved(const at::Tensor& meta, const Value& value) {
  const auto it = lazy_.find(meta.unsafeGetTensorImpl());
  if (it == lazy_.end()) return value;
  Value v = it->second.neg ? b_.neg(value) : value;
  return it->second.conj ? b_.complex(b_.real(v), b_.neg(b_.imag(v))) : v;
}

Value Lowering::read(const at::Tensor& meta) {
  const View view = view_of(meta);
  if (meta.numel() == 0) return b_.constant(view.type(), 0);
  if (const auto it = scalar_tensors_.find(meta.storage().unsafeGetStorageImpl()); it != scalar_tensors_.end())
    return b_.reshape(number_parameter(it->second.first, view.dtype), view.sizes);
  if (meta.is_cpu()) return b_.reshape(constant_number(b_, meta.item(), view.dtype), view.sizes);  // of a traced graph
  SymbolicCell& cell = cell_of(meta);
  const auto [offset, number] = offset_of(meta);
  return resolved(meta, read_view(b_, base_value(cell), view, offset, number));
}

std::pair<Offset, Value> Lowering::offset_of(const at::Tensor& meta) {
  const auto it = moving_.find(meta.unsafeGetTensorImpl());
  if (it == moving_.end()) return {};
  auto& param = offset_params_[it->second.first];
  if (!param.second) param = {it->second.second, b_.parameter({DType::I64, {}})};
  return param;
}

// A view with stride 0 shows an element several times. Of the repetitions that the operator changed the last counts, as
// if they were written one after the other. Shrinks `view` to one repetition.
Value Lowering::merge_repetitions(const at::Tensor& meta, Value value, View& view) {
  constexpr int64_t kMost = 64;
  Value before = read(meta);
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (view.strides[i] != 0 || view.sizes[i] <= 1) continue;
    TORCH_CHECK_NOT_IMPLEMENTED(view.sizes[i] <= kMost, name_, ": writing to a tensor that repeats its elements ",
                                view.sizes[i], " times");
    const Value old = b_.slice_dim(before, dim, 0, 1);
    Value merged = old;
    for (int64_t k = 0; k < view.sizes[i]; ++k) {
      const Value now = b_.slice_dim(value, dim, k, k + 1);
      merged = b_.select(b_.compare(hlo::Cmp::EQ, now, old), merged, now);
    }
    value = merged;
    before = old;
    view.sizes[i] = 1;
  }
  return value;
}

void Lowering::write(const at::Tensor& meta, const Value& value) {
  if (meta.numel() == 0) return;
  SymbolicCell& cell = cell_of(meta);
  View view = view_of(meta);
  TPJ_ASSERT(value.dims() == view.sizes, name_, ": result ", value.type.str(), " where ", view.type().str(),
             " was expected");
  Value cast = resolved(meta, lower::cast(b_, value, view.dtype));
  if (std::any_of(view.strides.begin(), view.strides.end(), [](int64_t s) { return s == 0; }))
    cast = merge_repetitions(meta, cast, view);
  const auto count = static_cast<int64_t>(cell.nbytes / size_of(view.dtype));
  if (covers(view, count)) {
    Value dense = to_storage_order(b_, view, cast);
    // Keep the cell's natural dimensions where they fit, so that loops see one type.
    const DType old = cell.type ? cell.type->dtype : view.dtype;
    if (cell.type && old == view.dtype && hlo::numel(cell.type->dims) == count)
      dense = b_.reshape(dense, cell.type->dims);
    cell.current = dense;
  } else {
    const auto [offset, number] = offset_of(meta);
    cell.current = write_view(b_, base_value(cell), view, cast, offset, number);
  }
  cell.written = true;
}

Value Lowering::number_parameter(ArgPath path, DType dtype) {
  const DType host = fitting(b_.limits(), host_type(dtype));
  Value& p = number_params_[{path, host}];
  if (!p) p = b_.parameter({host, {}});
  return b_.convert(p, dtype);
}

lower::Arg Lowering::make_number(const c10::IValue& value, const Form& form, size_t arg, int item,
                                 bool numbers_are_inputs) {
  lower::Arg a;
  a.kind = lower::Arg::Kind::kNumber;
  a.number_kind = kind_of(value);
  if (is_known(form, arg, value) || !numbers_are_inputs) {
    if (is_known(form, arg, value)) {
      a.known = value_of(value);
      if (value.isInt()) a.known_int = value.toInt();
    }
    a.number = [this, value](DType t) { return constant_number(b_, value, t); };
  } else {
    a.number = [this, path = ArgPath{static_cast<int>(arg), item}](DType t) { return number_parameter(path, t); };
  }
  return a;
}

lower::Arg Lowering::make_arg(const c10::IValue& v, const Form& form, size_t arg, int item, bool numbers_are_inputs) {
  using Kind = lower::Arg::Kind;
  lower::Arg a;
  if (v.isNone()) return a;
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) return a;
    a.kind = Kind::kTensor;
    a.type = {to_dtype(t.scalar_type()), t.sizes().vec()};
    a.read = [this, t] { return read(t); };
    a.contiguous = t.is_contiguous();
    return a;
  }
  if (form.is_number[arg] && is_number(v)) return make_number(v, form, arg, item, numbers_are_inputs);
  if (v.isInt()) {
    a.kind = Kind::kInt;
    a.integer = v.toInt();
  } else if (v.isBool()) {
    a.kind = Kind::kInt;
    a.integer = v.toBool();
  } else if (v.isDouble()) {
    return make_number(v, form, arg, item, numbers_are_inputs);
  } else if (v.isString()) {
    a.kind = Kind::kString;
    a.text = v.toStringRef();
  } else if (v.isIntList()) {
    a.kind = Kind::kInts;
    a.ints = v.toIntVector();
  } else if (v.isBoolList()) {
    a.kind = Kind::kInts;
    for (bool x : v.toBoolList()) a.ints.push_back(x);
  } else if (v.isTensorList()) {
    a.kind = Kind::kTensors;
    for (const at::Tensor& t : v.toTensorVector()) a.items.push_back(make_arg(t, form, arg, -1, numbers_are_inputs));
  } else if (v.isList()) {
    const auto items = v.toListRef();
    const bool numbers = !items.empty() && is_number(items[0]);
    a.kind = numbers || (items.empty() && form.is_number[arg]) ? Kind::kNumbers : Kind::kTensors;
    for (size_t k = 0; k < items.size(); ++k)
      a.items.push_back(numbers ? make_number(items[k], form, arg, static_cast<int>(k), numbers_are_inputs)
                                : make_arg(items[k], form, arg, static_cast<int>(k), numbers_are_inputs));
  } else {
    a.kind = Kind::kOther;
  }
  return a;
}

namespace {

// A list of arguments with some of its items.
c10::IValue some_of(const c10::IValue& list, const std::vector<size_t>& which) {
  c10::impl::GenericList items(list.toList().elementType());
  for (size_t k : which) items.push_back(list.toListRef()[k]);
  return items;
}

// The arguments of a _foreach_ call, with those items of its lists that differ in sizes, strides or dtypes: the meta
// kernels go through the lists item by item, some of them in Python.
void drop_repeated_items(torch::jit::Stack& stack) {
  std::set<size_t> counts;
  for (const c10::IValue& v : stack)
    if (v.isList()) counts.insert(v.toListRef().size());
  if (counts.size() != 1) return;  // an error of the call
  std::set<std::vector<int64_t>> found;
  std::vector<size_t> first;
  for (size_t k = 0; k < *counts.begin(); ++k) {
    std::vector<int64_t> looks;
    for (const c10::IValue& v : stack) {
      if (!v.isList()) continue;
      const c10::IValue& item = v.toListRef()[k];
      if (!item.isTensor()) {
        looks.push_back(item.isInt() ? 0 : item.isBool() ? 1 : item.isDouble() ? 2 : 3);
        continue;
      }
      const at::Tensor& t = item.toTensor();
      looks.insert(looks.end(), {static_cast<int64_t>(t.scalar_type()), t.dim()});
      looks.insert(looks.end(), t.sizes().begin(), t.sizes().end());
      looks.insert(looks.end(), t.strides().begin(), t.strides().end());
    }
    if (found.insert(std::move(looks)).second) first.push_back(k);
  }
  for (c10::IValue& v : stack)
    if (v.isList()) v = some_of(v, first);
}

// PyTorch's own meta kernel on the arguments' stand-ins; leaves the returns on the stack.
void call_meta(const c10::OperatorHandle& op, const Form& form, torch::jit::Stack& stack) {
  const auto& returns = op.schema().returns();
  const torch::jit::Stack arguments = stack;
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::OperatorHandle& meta = form.meta ? *form.meta : op;
  const bool only_writes = std::all_of(returns.begin(), returns.end(), [](const auto& r) { return r.alias_info(); });
  // Some of those of losses' derivatives divide by the number of elements, which may be 0: a mean is shown as a sum.
  const std::optional<int> reduction = op.schema().argumentIndexWithName("reduction");
  if (reduction && op.schema().name().ends_with("_backward")) {
    c10::IValue& how = stack[static_cast<size_t>(*reduction)];
    if (how.toInt() == 1) how = 2;
  }
  if (returns.empty() && op.schema().name().starts_with("aten::_foreach_")) drop_repeated_items(stack);
  try {
    meta.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {
    if (!only_writes) throw;
    // In-place without a meta kernel: the results are the arguments.
    stack.clear();
    for (size_t i = 0; i < returns.size(); ++i) stack.push_back(arguments[static_cast<size_t>(form.mutated[i])]);
  }
}

}  // namespace

void Lowering::call(const c10::OperatorHandle& op, const Form& form, torch::jit::Stack& stack, bool numbers_are_inputs,
                    const std::vector<c10::ScalarType>& dtypes) {
  const auto& schema = op.schema();
  const torch::jit::Stack arguments = stack;
  // 1. Sizes, dtypes and argument errors. Some meta kernels resize what is written in place, also as out=.
  std::vector<at::Tensor> in_place;
  std::vector<Dims> sizes;
  for (int m : form.mutated) {
    const c10::IValue& written = arguments[static_cast<size_t>(m)];
    const auto is_written = [&](const c10::IValue& v) {
      return &v != &written && v.isTensor() && v.toTensor().defined() && written.isTensor() &&
             v.toTensor().is_alias_of(written.toTensor()) && v.toTensor().sizes() == written.toTensor().sizes();
    };
    if (!form.is_out[static_cast<size_t>(m)] || std::any_of(arguments.begin(), arguments.end(), is_written))
      flatten(written, in_place);
  }
  for (const at::Tensor& t : in_place) sizes.push_back(t.defined() ? t.sizes().vec() : Dims());
  const bool asks_meta = form.row->options.asks_meta && form.row->options.cuts.empty();
  if (asks_meta) call_meta(op, form, stack);
  for (size_t i = 0; i < in_place.size(); ++i)
    TORCH_CHECK(!in_place[i].defined() || in_place[i].sizes() == sizes[i], "output with shape ",
                at::IntArrayRef(sizes[i]), " doesn't match the broadcast shape ", in_place[i].sizes());
  if (!form.row->options.cuts.empty()) check_dtype(b_.limits(), DType::I64);  // of the counts
  // 2. The types of the results: fresh returns first, then what is written.
  std::vector<at::Tensor> results;
  for (size_t i = 0; asks_meta && i < schema.returns().size(); ++i)
    if (schema.returns()[i].alias_info() == nullptr) flatten(stack[i], results);
  for (int m : form.mutated) {
    const c10::IValue& written = arguments[static_cast<size_t>(m)];
    if (written.isNone())
      results.emplace_back();  // keeps the place of an optional argument that is not there
    else
      flatten(written, results);
  }
  std::vector<Type> types;
  std::vector<at::Tensor> tensors = results;
  for (const c10::IValue& v : arguments) flatten(v, tensors);
  for (const at::Tensor& t : tensors)
    if (t.defined() && t.is_meta()) check_dtype(b_.limits(), to_dtype(t.scalar_type()));
  for (const at::Tensor& t : results)
    types.push_back(t.defined() ? Type{to_dtype(t.scalar_type()), t.sizes().vec()} : Type{DType::Bool, {0}});
  for (size_t i = 0; i < std::min(dtypes.size(), types.size()); ++i) types[i].dtype = to_dtype(dtypes[i]);
  // 3. The row.
  std::vector<lower::Arg> args;
  for (size_t i = 0; i < arguments.size(); ++i) args.push_back(make_arg(arguments[i], form, i, -1, numbers_are_inputs));
  lower::Call c(b_, name_, std::move(args), types, common_dtype(arguments));
  c.set_rng([this](uint64_t n) {
    // One state for the program; calls take consecutive ranges of the counter.
    if (!rng_) rng_ = b_.parameter({DType::U64, {2}});
    const Value step = b_.dense({DType::U64, {2}}, {0, static_cast<int64_t>(counters_)});
    const Value state = counters_ == 0 ? rng_ : b_.add(rng_, step);
    counters_ += n;
    return state;
  });
  const hlo::Values values = form.row->lower(c);
  if (!asks_meta) {
    stack.clear();
    for (const Value& v : values) {
      results.push_back(v ? at::empty(v.dims(), at::TensorOptions(to_scalar_type(v.dtype())).device(at::kMeta))
                          : at::Tensor());
      stack.emplace_back(results.back());
    }
  }
  TPJ_ASSERT(values.size() <= results.size(), name_, ": the row returns ", values.size(), " values for ",
             results.size(), " results");
  // 4. Their values.
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] && results[i].defined())
      write(results[i], i < dtypes.size() ? lower::cast(b_, values[i], types[i].dtype) : values[i]);
}

bool Lowering::knows(const c10::IValue& value) const {
  std::vector<at::Tensor> tensors;
  flatten(value, tensors);
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) {
    return !t.defined() || t.numel() == 0 || by_storage_.contains(t.storage().unsafeGetStorageImpl());
  });
}

hlo::Values Lowering::read_all(const std::vector<at::Tensor>& metas) {
  hlo::Values values;
  for (const at::Tensor& t : metas) values.push_back(read(t));
  return values;
}

std::vector<at::Tensor> Lowering::made(const std::vector<at::Tensor>& like, const hlo::Values& values) {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < values.size(); ++i) {
    out.push_back(at::empty(like[i].sizes(), like[i].options().device(c10::kMeta)));
    add_empty(out.back());
    write(out.back(), values[i]);
  }
  return out;
}

std::vector<at::Tensor> Lowering::branch(const at::Tensor& condition, const std::vector<at::Tensor>& operands,
                                         const Part& when_true, const Part& when_false) {
  // The operands' values are there before either part, whichever needs them.
  const hlo::Values values = read_all(operands);
  std::vector<at::Tensor> like;
  const auto part = [&](const Part& f) {
    return [&] {
      like = f(made(operands, values));
      return read_all(like);
    };
  };
  const Value chosen = b_.convert(b_.reshape(read(condition), {}), DType::Bool);
  const hlo::Values results = b_.if_(chosen, part(when_true), part(when_false));
  return made(like, results);
}

std::vector<at::Tensor> Lowering::loop(const std::vector<at::Tensor>& operands, const Part& condition,
                                       const Part& body) {
  const auto part = [&](const Part& f, const hlo::Values& values) {
    const uint64_t before = counters_;
    const std::vector<at::Tensor> results = f(made(operands, values));
    if (counters_ != before) fail(ErrorKind::kNotImplemented, "random numbers in a loop");
    return read_all(results);
  };
  size_t carried = 0;
  hlo::Values end = b_.while_(
      read_all(operands),
      [&](const hlo::Values& values) {
        return hlo::Values{b_.convert(b_.reshape(part(condition, values)[0], {}), DType::Bool)};
      },
      [&](const hlo::Values& values) {
        hlo::Values results = part(body, values);
        carried = results.size();
        for (size_t i = carried; i < values.size(); ++i) results.push_back(values[i]);
        return results;
      });
  end.resize(carried);
  return made(operands, end);
}

int Lowering::output_of(int cell) {
  for (size_t i = 0; i < output_cells_.size(); ++i)
    if (output_cells_[i] == cell) return static_cast<int>(i);
  SymbolicCell& c = cells_[static_cast<size_t>(cell)];
  output_cells_.push_back(cell);
  outputs_.push_back(base_value(c));
  return static_cast<int>(outputs_.size()) - 1;
}

namespace {

TensorSpec spec_of(const at::Tensor& t) {
  TensorSpec s;
  s.sizes.assign(t.sizes().begin(), t.sizes().end());
  s.strides.assign(t.strides().begin(), t.strides().end());
  s.offset = t.storage_offset();
  s.storage_nbytes = t.storage().nbytes();
  s.dtype = t.scalar_type();
  return s;
}

}  // namespace

Result Lowering::make_result(const c10::IValue& value, const torch::jit::Stack& arguments) {
  Result r{};
  if (value.isTensorList() || value.isList()) {
    r.kind = Result::Kind::kList;
    for (const c10::IValue& item : value.toListRef()) r.items.push_back(make_result(item, arguments));
    return r;
  }
  TPJ_ASSERT(value.isTensor() || value.isNone(), name_, ": returns a value that is no tensor");
  if (value.isNone() || !value.toTensor().defined()) {
    r.kind = Result::Kind::kUndefined;
    return r;
  }
  const at::Tensor& t = value.toTensor();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].isTensor() && arguments[i].toTensor().is_same(t)) {
      r.kind = Result::Kind::kArgument;
      r.path = {static_cast<int>(i), -1};
      return r;
    }
  r.kind = Result::Kind::kFresh;
  r.spec = spec_of(t);
  if (t.numel() == 0) return r;
  SymbolicCell& cell = cell_of(t);
  TPJ_ASSERT(!cell.is_input, name_, ": returns a view of an argument");
  r.output = output_of(static_cast<int>(&cell - cells_.data()));
  return r;
}

std::unique_ptr<Program> Lowering::finish(const torch::jit::Stack& returns, const torch::jit::Stack& arguments,
                                          const torch::jit::Stack& originals) {
  auto program = std::make_unique<Program>();
  program->name = name_;
  for (const c10::IValue& v : returns) program->results.push_back(make_result(v, arguments));
  // out= tensors that changed their geometry.
  const auto check_resized = [&](const at::Tensor& meta, const at::Tensor& original, ArgPath path) {
    if (!meta.defined() || !original.defined() || !meta.is_meta() || original.is_cpu()) return;
    if (meta.sizes() == original.sizes() && meta.strides() == original.strides()) return;
    program->resizes.push_back({path, spec_of(meta)});
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor()) {
      check_resized(arguments[i].toTensor(), originals[i].toTensor(), {static_cast<int>(i), -1});
    } else if (arguments[i].isTensorList()) {
      const auto meta = arguments[i].toTensorVector();
      const auto original = originals[i].toTensorVector();
      for (size_t k = 0; k < meta.size(); ++k)
        check_resized(meta[k], original[k], {static_cast<int>(i), static_cast<int>(k)});
    }
  }
  for (size_t i = 0; i < cells_.size(); ++i)
    if (cells_[i].is_input && cells_[i].written)
      program->writes.push_back({static_cast<int>(i), output_of(static_cast<int>(i))});
  for (const Value& v : outputs_) {
    program->outputs.push_back(BufferType::intern(v.dtype(), v.dims()));
    if (device_ >= 0) runtime::check_size(device_, program->outputs.back()->nbytes);
  }
  if (outputs_.empty()) return program;

  // Parameters that are read, and which output may take their memory.
  hlo::Values params;
  std::vector<int> aliases;
  const auto add = [&](const Value& v, Param p) {
    if (!v || !b_.is_used(v, outputs_)) return;
    int alias = -1;
    if (p.kind == Param::Kind::kCell)
      for (const Write& w : program->writes) {
        if (w.cell != p.cell) continue;
        p.cell_is_written = true;
        if (b_.limits().donation && program->outputs[static_cast<size_t>(w.output)] == p.type) alias = w.output;
      }
    p.written_by = alias;
    params.push_back(v);
    aliases.push_back(alias);
    program->params.push_back(p);
  };
  for (size_t i = 0; i < cells_.size(); ++i) {
    Param p;
    p.kind = Param::Kind::kCell;
    p.cell = static_cast<int>(i);
    p.type = cells_[i].type;
    add(cells_[i].parameter, p);
  }
  for (const auto& [path, moving] : offset_params_) {
    Param p;
    p.kind = Param::Kind::kOffset;
    p.dtype = moving.second.dtype();
    p.path = path;
    p.offset = moving.first;
    add(moving.second, p);
  }
  for (const auto& [id, v] : number_params_) {
    Param p;
    p.kind = Param::Kind::kNumber;
    p.path = id.first;
    p.dtype = id.second;
    add(v, p);
  }
  {
    Param p;
    p.kind = Param::Kind::kRng;
    p.dtype = DType::U64;
    p.counters = counters_;
    add(rng_, p);
  }
  // Who computes in double precision wants equal calls to give equal bits, whatever stands around them.
  const auto is_double = [](DType d) { return d == DType::F64 || d == DType::C128; };
  program->runs_alone =
      std::any_of(cells_.begin(), cells_.end(),
                  [&](const SymbolicCell& c) { return c.type && is_double(c.type->dtype); }) ||
      std::any_of(outputs_.begin(), outputs_.end(), [&](const Value& v) { return is_double(v.dtype()); });
  program->text = b_.print(params, outputs_, aliases);
  for (const Value& v : outputs_) program->uniform.push_back(b_.uniform(v));
  program->reads = std::any_of(program->params.begin(), program->params.end(),
                               [](const Param& p) { return p.kind == Param::Kind::kCell; });
  for (const char* op : {"\"stablehlo.dot_general\"", "\"stablehlo.convolution\""})
    program->is_heavy |= program->text.find(op) != std::string::npos;
  return program;
}

}  // namespace tpj::exec
