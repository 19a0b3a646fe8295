// Operators without a row that PyTorch can decompose into operators with rows: traced once for each key, then one
// cached program.
#include <ATen/ATen.h>
#include <ATen/native/CPUFallback.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "compile/compiler.h"
#include "eager/changing.h"
#include "eager/kernels.h"
#include "eager/register.h"
#include "exec/run.h"
#include "runtime/device.h"

namespace tpj::eager {
namespace {

struct State {
  Tracer tracer;
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<const exec::Form>> forms;  // by schema address
  std::unordered_set<uint64_t> hopeless;                                     // hashes of keys that do not decompose
};

State& state() {
  static State& s = *new State;
  return s;
}

exec::Plain describe(const c10::IValue& v) {
  const auto tensor = [](const at::Tensor& t) -> exec::Plain {
    if (!t.defined()) return {};
    return {exec::TensorDescription{static_cast<int64_t>(t.scalar_type()), t.sizes().vec(), t.strides().vec()}};
  };
  if (v.isTensor()) return tensor(v.toTensor());
  if (v.isBool()) return {v.toBool()};
  if (v.isInt()) return {v.toInt()};
  if (v.isDouble()) return {v.toDouble()};
  if (v.isComplexDouble()) return {std::complex<double>(v.toComplexDouble().real(), v.toComplexDouble().imag())};
  if (v.isString()) return {v.toStringRef()};
  if (v.isList()) {
    exec::PlainList items;
    for (const c10::IValue& item : v.toListRef()) items.push_back(describe(item));
    return {std::move(items)};
  }
  return {};
}

void collect(const c10::IValue& v, std::vector<at::Tensor>& out) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) out.push_back(v.toTensor());
  } else if (v.isList()) {
    for (const c10::IValue& item : v.toListRef()) collect(item, out);
  }
}

std::unique_ptr<exec::Program> compile(const c10::OperatorHandle& op, const exec::Form& form,
                                       const exec::Inputs& inputs, const torch::jit::Stack& originals) {
  const std::string name = c10::toString(op.operator_name());
  exec::PlainList described;
  for (const c10::IValue& v : originals) described.push_back(describe(v));
  const std::optional<exec::Graph> graph = state().tracer(name, described);
  if (!graph) return nullptr;

  exec::Lowering lowering(name, inputs.device_or_current(), runtime::client().caps().limits());
  const torch::jit::Stack arguments = meta_arguments(lowering, form, inputs, originals);
  std::vector<at::Tensor> tensors;
  // The traced operator is the functional one: it does not take what out= gives.
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!form.is_out[i]) collect(arguments[i], tensors);
  torch::jit::Stack results = exec::lower_graph(lowering, *graph, tensors, &find_form);
  torch::jit::Stack returns;
  if (form.mutated.empty()) {
    returns = std::move(results);
    // A list of tensors is one return.
    if (op.schema().returns().size() == 1 && op.schema().returns()[0].type()->kind() == c10::TypeKind::ListType) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& v : returns) list.push_back(v.toTensor());
      returns = {list};
    }
  } else {
    TPJ_CHECK(results.size() == form.mutated.size(), name, ": ", results.size(), " results for ", form.mutated.size(),
              " outputs");
    for (size_t i = 0; i < results.size(); ++i) {
      const at::Tensor& to = arguments[static_cast<size_t>(form.mutated[i])].toTensor();
      TPJ_CHECK(
          !form.is_out[static_cast<size_t>(form.mutated[i])] || to.scalar_type() == results[i].toTensor().scalar_type(),
          name, ": out= of another dtype");  // which not every kernel takes
      if (to.sizes() != results[i].toTensor().sizes()) to.resize_(results[i].toTensor().sizes());
      lowering.copy(to, results[i].toTensor());
      if (i < op.schema().returns().size()) returns.push_back(to);
    }
  }
  return exec::complete(lowering.finish(returns, arguments, originals), name,
                        miss_reason(&op.schema(), inputs, op, originals));
}

}  // namespace

namespace {

// Null without a tracer.
const exec::Form* form_of(const c10::FunctionSchema& schema) {
  const std::lock_guard lock(state().mutex);
  if (!state().tracer) return nullptr;
  auto& form = state().forms[&schema];
  if (!form) form = std::make_unique<const exec::Form>(form_without_row(schema));
  return form.get();
}

}  // namespace

void set_tracer(Tracer tracer) { state().tracer = std::move(tracer); }

bool run_decomposed(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const void* id = &op.schema();
  const size_t n_args = op.schema().arguments().size();
  const exec::Form* form = form_of(op.schema());
  if (form == nullptr) return false;
  InputsScope scope;
  exec::Inputs& inputs = *scope;
  inputs.key.word(id);
  add_arguments(inputs, *form, stack, {});
  uint64_t hash = inputs.key.hash();
  const exec::Program* program = programs().find(inputs.key.words(), hash);
  if (program == nullptr) {
    {
      const std::lock_guard lock(state().mutex);
      if (state().hopeless.contains(hash)) return false;
    }
    if (is_printing()) {
      at::native::cpu_fallback(op, &stack);
      return true;
    }
    exec::Results results;
    std::string why;
    if (run_changing(op, *form, stack, n_args, &results, why)) {
      exec::replace_arguments(stack, n_args, results);
      return true;
    }
    if (!why.empty()) {  // buffers may have grown
      inputs.clear();
      inputs.key.word(id);
      add_arguments(inputs, *form, stack, {});
      hash = inputs.key.hash();
    }
    const torch::jit::Stack originals(stack.end() - static_cast<std::ptrdiff_t>(n_args), stack.end());
    std::unique_ptr<exec::Program> made;
    try {
      made = compile(op, *form, inputs, originals);
    } catch (const std::exception&) {
      // A decomposition that does not fit (no row for a step, an error in PyTorch's code): the CPU's kernel decides.
    }
    if (!made) {
      const std::lock_guard lock(state().mutex);
      state().hopeless.insert(hash);
      return false;
    }
    program = programs().insert(inputs.key.words(), hash, std::move(made));
  } else {
    compile::Stats::get().hits.fetch_add(1, std::memory_order_relaxed);
  }
  compile::Stats::get().decomposed.fetch_add(1, std::memory_order_relaxed);
  exec::Results results;
  exec::run(*program, inputs, stack.data() + (stack.size() - n_args), n_args, &results);
  exec::replace_arguments(stack, n_args, results);
  return true;
}

}  // namespace tpj::eager
