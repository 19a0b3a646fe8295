#include "eager/op_kernel.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/IndexingUtils.h>
#include <c10/core/AutogradState.h>

#include <mutex>
#include <sstream>
#include <unordered_map>

#include "base/flags.h"
#include "compile/compiler.h"
#include "eager/bounds.h"
#include "eager/changing.h"
#include "eager/kernels.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/scalar_type.h"

namespace tpj::eager {
namespace {

// Tags of key words; exec::Inputs::add_tensor uses 1.
enum Tag : uint64_t {
  kNone = 2,
  kHostScalar,
  kNumberInput,
  kKnownNumber,
  kInt,
  kBool,
  kString,
  kList,
  kOther,
  kUndefined
};

[[noreturn]] void mixed_devices(const exec::Inputs& inputs, const at::Tensor& t) {
  const int index = inputs.device_or_current();
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              runtime::config().device_name, ":", index, " and ", t.device(), "!");
  std::abort();  // not reached
}

class KeyMaker {
 public:
  KeyMaker(exec::Inputs& inputs, const exec::Form& form, const std::vector<int>& host_args)
      : in_(inputs), form_(form), host_args_(host_args) {}

  void add(c10::IValue& v, size_t arg) {
    if (v.isTensor()) {
      const at::Tensor& t = v.toTensor();
      if (!t.defined()) return in_.key.word(uint64_t{kUndefined});
      if (t.is_privateuseone()) [[likely]] {
        in_.add_tensor(*t.unsafeGetTensorImpl(), !form_.is_out[arg]);
        return;
      }
      host_tensor(v, arg);
    } else if (v.isNone()) {
      in_.key.word(uint64_t{kNone});
    } else if (form_.is_number[arg] && exec::is_number(v)) {
      number(v, arg);
    } else if (v.isInt()) {
      in_.key.word(uint64_t{kInt});
      in_.key.word(v.toInt());
    } else if (v.isBool()) {
      in_.key.word(uint64_t{kBool} | uint64_t{v.toBool()} << 8);
    } else if (v.isDouble()) {
      in_.key.word(uint64_t{kKnownNumber});
      in_.key.real(v.toDouble());
    } else if (v.isIntList()) {
      const auto list = v.toIntList();
      in_.key.word(uint64_t{kList} | static_cast<uint64_t>(list.size()) << 8);
      for (const int64_t x : list) in_.key.word(x);
    } else if (v.isTensorList()) {
      tensor_list(v, arg);
    } else if (v.isString()) {
      in_.key.word(uint64_t{kString});
      in_.key.text(v.toStringRef());
    } else if (v.isList()) {
      auto list = v.toList();
      in_.key.word(uint64_t{kList} | static_cast<uint64_t>(list.size()) << 8);
      for (size_t i = 0; i < list.size(); ++i) {
        c10::IValue item = list.get(i);
        const bool was_host = item.isTensor() && item.toTensor().defined() && item.toTensor().is_cpu();
        add(item, arg);
        if (was_host) list.set(i, item);  // uploaded
      }
    } else {
      in_.key.word(uint64_t{kOther});  // generators, devices, layouts: nothing that a program depends on
    }
  }

 private:
  void number(const c10::IValue& v, size_t arg) {
    if (exec::is_known(form_, arg, v)) {
      in_.key.word(uint64_t{kKnownNumber} | static_cast<uint64_t>(v.isInt()) << 8 |
                   static_cast<uint64_t>(v.isBool()) << 9);
      if (v.isInt()) return in_.key.word(v.toInt());
      if (v.isComplexDouble()) {
        in_.key.real(v.toComplexDouble().real());
        return in_.key.real(v.toComplexDouble().imag());
      }
      return in_.key.real(v.toScalar().to<double>());
    }
    const uint64_t kind = v.isBool() ? 0 : v.isInt() || v.isUnsigned() ? 1 : v.isDouble() ? 2 : 3;
    in_.key.word(uint64_t{kNumberInput} | kind << 8);
  }

  void tensor_list(c10::IValue& v, size_t arg) {
    auto list = v.toTensorList();
    in_.key.word(uint64_t{kList} | static_cast<uint64_t>(list.size()) << 8);
    for (size_t i = 0; i < list.size(); ++i) {
      const at::Tensor t = list.get(i);
      if (!t.defined()) {
        in_.key.word(uint64_t{kUndefined});
        continue;
      }
      if (t.is_privateuseone())
        in_.add_tensor(*t.unsafeGetTensorImpl(), !form_.is_out[arg]);
      else if (form_.row->name.starts_with("_foreach_"))  // as the calls one by one would
        host_number(t, arg);
      else
        mixed_devices(in_, t);
    }
  }

  void host_tensor(c10::IValue& v, size_t arg) {
    const at::Tensor& t = v.toTensor();
    const bool uploads = std::find(host_args_.begin(), host_args_.end(), static_cast<int>(arg)) != host_args_.end();
    if (uploads && t.is_cpu()) {
      v = t.to(c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(in_.device_or_current())));
      in_.add_tensor(*v.toTensor().unsafeGetTensorImpl(), true);
      return;
    }
    host_number(t, arg);
  }

  // A 0-d CPU tensor is taken for a number, unless it is written.
  void host_number(const at::Tensor& t, size_t arg) {
    const bool written =
        std::find(form_.mutated.begin(), form_.mutated.end(), static_cast<int>(arg)) != form_.mutated.end();
    if (!t.is_cpu() || t.dim() != 0 || written) mixed_devices(in_, t);
    in_.key.word(uint64_t{kHostScalar} | static_cast<uint64_t>(t.scalar_type()) << 8 |
                 static_cast<uint64_t>(t.unsafeGetTensorImpl()->is_wrapped_number()) << 16);
  }

  exec::Inputs& in_;
  const exec::Form& form_;
  const std::vector<int>& host_args_;
};

// "self f32[4, 4], other f32[4, 4] strides [1, 4]": what the key holds, for the compile log.
std::vector<std::string> describe(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::vector<std::string> out;
  const auto& args = op.schema().arguments();
  const size_t first = stack.size() - args.size();
  for (size_t i = 0; i < args.size(); ++i) {
    std::ostringstream s;
    s << args[i].name() << " ";
    const c10::IValue& v = stack[first + i];
    if (v.isTensor() && v.toTensor().defined()) {
      const at::Tensor& t = v.toTensor();
      s << t.scalar_type() << t.sizes();
      if (!t.is_contiguous()) s << " strides " << t.strides();
      if (t.storage_offset()) s << " offset " << t.storage_offset();
    } else if (v.isTensorList()) {
      s << "list of " << v.toTensorList().size();
      for (const at::Tensor& t : v.toTensorVector()) s << " " << t.scalar_type() << t.sizes();
    } else if (exec::is_number(v) || v.isIntList() || v.isString()) {
      s << v;
    }
    out.push_back(s.str());
  }
  return out;
}

}  // namespace

compile::Cache<exec::Program>& programs() {
  static auto& cache = *new compile::Cache<exec::Program>;
  return cache;
}

namespace {

// Inputs that no call on this thread uses now: a list through `next`.
constinit thread_local exec::Inputs* t_spare = nullptr;

struct ThreadUse {
  // Backward runs on the thread that asks for it, as on the CPU: all that it does is dispatch, and to wake autograd's
  // worker of a device and to wait for it costs more than a small model's backward.
  ThreadUse() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
  ~ThreadUse() {
    while (exec::Inputs* inputs = t_spare) t_spare = inputs->next, delete inputs;
  }
};

exec::Inputs* new_inputs() {
  thread_local ThreadUse use;
  (void)&use;
  return new exec::Inputs;
}

}  // namespace

InputsScope::InputsScope() : inputs_(t_spare) {
  if (inputs_ == nullptr) [[unlikely]]
    inputs_ = new_inputs();
  else
    t_spare = inputs_->next;
  inputs_->clear();
  if (exec::t_meter) [[unlikely]]
    exec::t_meter->calls += 1, exec::t_meter->kernel -= exec::Meter::now();
}

InputsScope::~InputsScope() {
  if (exec::t_meter) [[unlikely]]
    exec::t_meter->kernel += exec::Meter::now();
  inputs_->next = t_spare;
  t_spare = inputs_;
}

void add_arguments(exec::Inputs& inputs, const exec::Form& form, torch::jit::Stack& stack,
                   const std::vector<int>& host_args) {
  const size_t n = form.is_number.size(), first = stack.size() - n;
  KeyMaker maker(inputs, form, host_args);
  for (size_t i = 0; i < n; ++i) maker.add(stack[first + i], i);
}

torch::jit::Stack meta_arguments(exec::Lowering& lowering, const exec::Form& form, const exec::Inputs& inputs,
                                 const torch::jit::Stack& stack) {
  const size_t n_args = form.is_number.size();
  const size_t first = stack.size() - n_args;
  // A cell that was never written takes the dtype of the first tensor that shows it.
  std::vector<c10::ScalarType> dtypes(inputs.cells.size(), c10::ScalarType::Byte);
  std::vector<bool> seen(inputs.cells.size(), false);
  const auto cell_index = [&](const at::Tensor& t) {
    const runtime::Cell* cell = runtime::Cell::of(*t.unsafeGetTensorImpl());
    return static_cast<size_t>(std::find(inputs.cells.begin(), inputs.cells.end(), cell) - inputs.cells.begin());
  };
  const auto visit = [&](const at::Tensor& t) {
    if (!t.defined() || !t.is_privateuseone()) return;
    const size_t i = cell_index(t);
    if (!seen[i]) seen[i] = true, dtypes[i] = t.scalar_type();
  };
  const auto each = [](const c10::IValue& v, const auto& f) {
    if (v.isTensor())
      f(v.toTensor());
    else if (v.isList())
      for (const c10::IValue& item : v.toListRef())
        if (item.isTensor()) f(item.toTensor());
  };
  for (size_t i = first; i < stack.size(); ++i) each(stack[i], visit);
  for (size_t i = 0; i < inputs.cells.size(); ++i)
    lowering.add_cell(inputs.types[i], inputs.cells[i]->nbytes(), dtypes[i]);

  const auto to_meta = [&](const at::Tensor& t, exec::ArgPath path) -> at::Tensor {
    if (!t.defined()) return t;
    if (t.is_privateuseone())
      return lowering.tensor(static_cast<int>(cell_index(t)), *t.unsafeGetTensorImpl(), path,
                             !form.is_out[static_cast<size_t>(path.arg)]);
    return lowering.number(t, path);
  };
  torch::jit::Stack out;
  for (size_t i = 0; i < n_args; ++i) {
    const c10::IValue& v = stack[first + i];
    const int arg = static_cast<int>(i);
    if (v.isTensor()) {
      out.push_back(to_meta(v.toTensor(), {arg, -1}));
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(to_meta(t, {arg, static_cast<int>(list.size())}));
      out.push_back(list);
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
        list.push_back(t && t->defined() ? std::optional<at::Tensor>(to_meta(*t, {arg, static_cast<int>(list.size())}))
                                         : std::nullopt);
      out.push_back(list);
    } else if (v.isGenerator()) {
      out.push_back(c10::IValue());
    } else if (v.isDevice()) {
      out.push_back(c10::Device(c10::kMeta));
    } else {
      out.push_back(v);
    }
  }
  return out;
}

std::string miss_reason(const void* op, const exec::Inputs&, const c10::OperatorHandle& handle,
                        const torch::jit::Stack& stack) {
  static std::mutex& mutex = *new std::mutex;
  static auto& last = *new std::unordered_map<const void*, std::vector<std::string>>;
  std::vector<std::string> now = describe(handle, stack);
  const std::lock_guard lock(mutex);
  std::vector<std::string>& before = last[op];
  std::string reason = before.empty() ? "first call" : "";
  for (size_t i = 0; i < before.size() && i < now.size(); ++i)
    if (before[i] != now[i])
      reason += str(reason.empty() ? "" : "; ", now[i], " (was ", before[i].substr(before[i].find(' ') + 1), ")");
  if (reason.empty()) reason = "same arguments, but how their storages hold or share them differs";
  before = std::move(now);
  return reason;
}

OpKernel::OpKernel(const c10::OperatorHandle& op, exec::Form form, std::vector<int> host_args)
    : form_(std::move(form)),
      host_args_(std::move(host_args)),
      name_(c10::toString(op.operator_name())),
      n_args_(op.schema().arguments().size()),
      check_errors_(op.schema().argumentIndexWithName("check_errors").value_or(-1)) {}

namespace {

// PyTorch's kernels refuse to write where the result would depend on the order of writing; its meta kernels do not
// look.
void check_overlap(const exec::Form& form, const torch::jit::Stack& stack, size_t n_args) {
  const size_t first = stack.size() - n_args;
  for (int m : form.mutated) {
    const c10::IValue& v = stack[first + static_cast<size_t>(m)];
    if (!v.isTensor() || !v.toTensor().defined()) continue;
    if (!form.row->options.may_overlap) at::assert_no_internal_overlap(v.toTensor());
    for (size_t i = first; i < stack.size(); ++i)
      if (i != first + static_cast<size_t>(m) && stack[i].isTensor() && stack[i].toTensor().defined())
        at::assert_no_partial_overlap(v.toTensor(), stack[i].toTensor());
  }
}

}  // namespace

namespace {

// CPU stand-ins for an argument: same geometry. Contents only of what is taken for a number, which may not fit.
c10::IValue host_argument(const c10::IValue& v) {
  const auto stand_in = [](const at::Tensor& t) {
    if (!t.defined() || !t.is_privateuseone()) return t;
    if (t.dim() == 0) return t.cpu();
    return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU)).zero_();
  };
  if (v.isTensor()) return stand_in(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorVector()) list.push_back(stand_in(t));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& t : v.toOptionalTensorVector())
      list.push_back(t ? std::optional<at::Tensor>(stand_in(*t)) : std::nullopt);
    return list;
  }
  if (v.isGenerator()) return at::detail::createCPUGenerator();
  if (v.isDevice() && v.toDevice().is_privateuseone()) return at::Device(at::kCPU);  // of what makes a tensor
  return v;
}

// Positions may be out of range: the same call on the CPU, with the real values, raises if they are.
void raise_as_cpu_with_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t n_args) {
  torch::jit::Stack args;
  for (size_t i = stack.size() - n_args; i < stack.size(); ++i) {
    const c10::IValue& v = stack[i];
    if (v.isTensor() && v.toTensor().defined()) {
      args.push_back(v.toTensor().cpu().clone());
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& t : v.toOptionalTensorVector())
        list.push_back(t && t->defined() ? std::optional<at::Tensor>(t->cpu()) : t);
      args.push_back(list);
    } else {
      args.push_back(v);
    }
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(args);
}

}  // namespace

void raise_as_cpu(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t n_args, int64_t largest) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  torch::jit::Stack args;
  for (size_t i = stack.size() - n_args; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined() && stack[i].toTensor().numel() > largest) return;
    args.push_back(host_argument(stack[i]));
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(args);
}

namespace {

// Does the row refuse the numbers among these arguments?
bool refused(const lower::Row& row, std::span<const c10::IValue> args) {
  c10::SmallVector<lower::GivenNumber, 6> numbers(args.size());
  std::optional<DType> first;
  for (size_t i = 0; i < args.size(); ++i) {
    c10::Scalar number;
    if (args[i].isTensor() && args[i].toTensor().defined()) {
      const at::Tensor& t = args[i].toTensor();
      if (t.is_privateuseone() && !first) first = runtime::find_dtype(t.scalar_type());
      if (!t.is_cpu() || t.dim() != 0) continue;
      number = exec::read_scalar(t);
    } else if (exec::is_number(args[i])) {
      number = args[i].toScalar();
    } else {
      continue;
    }
    if (!number.isComplex()) numbers[i] = {true, exec::kind_of(c10::IValue(number)), number.to<double>()};
  }
  return first && row.options.refuses(numbers, *first);
}

// PyTorch's meta kernels let more dtypes of out= pass than its kernels do: some cast. Where such a tensor has not the
// dtype of the result, the CPU's kernel says whether that is a mistake; if not, these are the results' dtypes.
std::vector<c10::ScalarType> cast_results(const c10::OperatorHandle& op, const exec::Form& form,
                                          const torch::jit::Stack& meta_arguments, const torch::jit::Stack& stack) {
  if (std::find(form.is_out.begin(), form.is_out.end(), true) == form.is_out.end() || form.meta) return {};
  const std::string row(form.row->name);
  const size_t dot = std::min(row.find('.'), row.size());
  const auto functional = c10::Dispatcher::singleton().findSchema(
      {"aten::" + row.substr(0, dot), dot < row.size() ? row.substr(dot + 1) : ""});
  torch::jit::Stack results;
  std::vector<c10::ScalarType> given;
  for (size_t i = 0; i < meta_arguments.size(); ++i) {
    if (!form.is_out[i])
      results.push_back(meta_arguments[i]);
    else if (meta_arguments[i].isTensor())
      given.push_back(meta_arguments[i].toTensor().scalar_type());
  }
  if (!functional || functional->schema().arguments().size() != results.size()) return {};
  // A reduction computes in the dtype of its output where none is given.
  if (const auto at = functional->schema().argumentIndexWithName("dtype");
      at && results[static_cast<size_t>(*at)].isNone() && !given.empty())
    results[static_cast<size_t>(*at)] = static_cast<int64_t>(given[0]);
  const at::AutoDispatchBelowADInplaceOrView below;
  try {
    functional->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &results);
  } catch (const c10::NotImplementedError&) {
    return {};  // only the out= form has a meta kernel
  }
  std::vector<c10::ScalarType> dtypes = given;
  for (size_t k = 0; k < std::min(given.size(), results.size()); ++k)
    if (results[k].isTensor() && results[k].toTensor().defined()) dtypes[k] = results[k].toTensor().scalar_type();
  if (dtypes == given) return {};
  raise_as_cpu(op, stack, form.is_out.size());
  return dtypes;
}

}  // namespace

std::unique_ptr<exec::Program> OpKernel::compile(const c10::OperatorHandle& op, const exec::Inputs& inputs,
                                                 const torch::jit::Stack& stack, const std::string& why) {
  exec::Lowering lowering(name_, inputs.device_or_current(), runtime::client().caps().limits());
  const torch::jit::Stack arguments = meta_arguments(lowering, form_, inputs, stack);
  const std::vector<c10::ScalarType> dtypes = cast_results(op, form_, arguments, stack);
  torch::jit::Stack returns = arguments;
  lowering.call(op, form_, returns, true, dtypes);
  const torch::jit::Stack originals(stack.end() - static_cast<std::ptrdiff_t>(n_args_), stack.end());
  return exec::complete(lowering.finish(returns, arguments, originals), name_,
                        miss_reason(this, inputs, op, stack) + why);
}

const exec::Program* OpKernel::program(const c10::OperatorHandle& op, exec::Inputs& inputs, torch::jit::Stack& stack,
                                       exec::Results* results) {
  inputs.key.word(this);
  add_arguments(inputs, form_, stack, host_args_);
  uint64_t hash = inputs.key.hash();
  if (const exec::Program* p = programs().find(inputs.key.words(), hash)) [[likely]] {
    compile::Stats::get().hits.fetch_add(1, std::memory_order_relaxed);
    return p;
  }
  std::unique_ptr<exec::Program> made;
  try {
    check_overlap(form_, stack, n_args_);
    if (is_printing()) {
      torch::jit::Stack printed(stack.end() - static_cast<std::ptrdiff_t>(n_args_), stack.end());
      at::native::cpu_fallback(op, &printed);
      if (results != nullptr)
        for (const c10::IValue& v : printed) results->push_back(v.toTensor());
      return nullptr;
    }
    std::string why;
    if (check_errors_ < 0 && run_changing(op, form_, stack, n_args_, results, why)) return nullptr;
    if (!why.empty()) {  // buffers may have grown
      inputs.clear();
      inputs.key.word(this);
      add_arguments(inputs, form_, stack, host_args_);
      hash = inputs.key.hash();
    }
    made = compile(op, inputs, stack, why);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kNotImplemented) throw;  // the device lacks what the CPU has
    raise_as_cpu(op, stack, n_args_);
    throw;
  } catch (const std::exception&) {
    raise_as_cpu(op, stack, n_args_);
    throw;
  }
  return programs().insert(inputs.key.words(), hash, std::move(made));
}

// Boolean masks among the indices become positions, as on every device: their number is data, so it is read. A single
// mask to write through stays: the row takes it as it is.
void OpKernel::expand_masks(torch::jit::Stack& stack) const {
  const size_t first = stack.size() - n_args_;
  for (int arg : host_args_) {
    c10::IValue& v = stack[first + static_cast<size_t>(arg)];
    const c10::List<std::optional<at::Tensor>> indices = v.toOptionalTensorList();
    size_t masks = 0, given = 0;
    for (const std::optional<at::Tensor> t : indices) {
      if (!t || !t->defined()) continue;
      given += 1;
      masks += t->scalar_type() == at::kBool || t->scalar_type() == at::kByte;
    }
    if (masks == 0 || (given == 1 && n_args_ > 2)) continue;  // index_put has values after the indices
    c10::List<std::optional<at::Tensor>> expanded;
    for (const at::Tensor& t : at::native::expandTensors(stack[first].toTensor(), indices, /*ensure_same_device=*/true))
      expanded.push_back(t.defined() ? std::optional<at::Tensor>(t) : std::nullopt);
    v = expanded;
  }
}

void OpKernel::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  InputsScope inputs;
  exec::Results results;
  run(op, *inputs, stack, &results);
  exec::replace_arguments(stack, n_args_, results);
}

void OpKernel::run(const c10::OperatorHandle& op, exec::Inputs& inputs, torch::jit::Stack& stack,
                   exec::Results* results) {
  if (!host_args_.empty()) [[unlikely]]
    expand_masks(stack);
  if (form_.row->options.bounds != lower::Bounds::kNone &&
      out_of_bounds(form_.row->options.bounds, {stack.data() + (stack.size() - n_args_), n_args_})) [[unlikely]]
    raise_as_cpu_with_values(op, stack, n_args_);
  if (form_.row->options.refuses != nullptr && refused(*form_.row, {stack.data() + (stack.size() - n_args_), n_args_}))
      [[unlikely]]
    raise_as_cpu(op, stack, n_args_, std::numeric_limits<int64_t>::max());
  try {
    const exec::Program* p = program(op, inputs, stack, results);
    if (p == nullptr) return;
    exec::run(*p, inputs, stack.data() + (stack.size() - n_args_), n_args_, results);
    if (check_errors_ >= 0) [[unlikely]] {
      const bool wanted = stack[stack.size() - n_args_ + static_cast<size_t>(check_errors_)].toBool();
      if (wanted && (*results)[results->size() - 1].toTensor().any().item<bool>())
        raise_as_cpu_with_values(op, stack, n_args_);
    }
  } catch (const Error& e) {
    runtime::rethrow(e);
  }
}

}  // namespace tpj::eager
