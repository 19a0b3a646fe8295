// Functions that Python has traced (torch.compile): lowered and compiled once for each key of their arguments, as an
// operator would be.
#include <ATen/ATen.h>

#include <mutex>
#include <unordered_map>

#include "eager/bounds.h"
#include "eager/kernels.h"
#include "eager/register.h"
#include "exec/run.h"
#include "runtime/device.h"
#include "runtime/errors.h"

namespace tpj::eager {
namespace {

struct Traced {
  Traced(uint64_t n, std::string what, exec::Graph g, exec::Form f)
      : number(n), name(std::move(what)), graph(std::move(g)), form(std::move(f)) {}

  uint64_t number;
  std::string name;
  exec::Graph graph;
  exec::Form form;
  mutable std::mutex mutex;
  mutable std::vector<const exec::Program*> programs;
};

struct Functions {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<const Traced>> by_number;
  int64_t made = 0;
};

Functions& functions() {
  static Functions& f = *new Functions;
  return f;
}

std::shared_ptr<const Traced> find(int64_t number) {
  const std::lock_guard lock(functions().mutex);
  const auto it = functions().by_number.find(number);
  TORCH_CHECK(it != functions().by_number.end(), "traced function ", number, " was given back");
  return it->second;
}

std::unique_ptr<exec::Program> compile(const Traced& f, const exec::Inputs& inputs, const torch::jit::Stack& stack) {
  exec::Lowering lowering(f.name, inputs.device_or_current(), runtime::client().caps().limits());
  const torch::jit::Stack arguments = meta_arguments(lowering, f.form, inputs, stack);
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& v : arguments) tensors.push_back(v.toTensor());
  const torch::jit::Stack results = exec::lower_graph(lowering, f.graph, tensors, &find_form);
  std::unique_ptr<exec::Program> program = lowering.finish(results, arguments, stack);
  program->runs_alone = true;
  const std::lock_guard lock(f.mutex);
  return exec::complete(std::move(program), f.name, f.programs.empty() ? "first call" : "other arguments");
}

std::vector<at::Tensor> run(int64_t number, at::TensorList tensors) {
  const std::shared_ptr<const Traced> f = find(number);
  TORCH_CHECK(tensors.size() == f->form.is_number.size(), f->name, " takes ", f->form.is_number.size(),
              " tensors, but got ", tensors.size());
  torch::jit::Stack stack(tensors.begin(), tensors.end());
  InputsScope inputs;
  exec::Results results;
  try {
    inputs->key.word(f->number);
    add_arguments(*inputs, f->form, stack, {});
    const uint64_t hash = inputs->key.hash();
    const exec::Program* program = programs().find(inputs->key.words(), hash);
    if (program == nullptr) {
      program = programs().insert(inputs->key.words(), hash, compile(*f, *inputs, stack));
      const std::lock_guard lock(f->mutex);
      f->programs.push_back(program);
    } else {
      compile::Stats::get().hits.fetch_add(1, std::memory_order_relaxed);
    }
    exec::run(*program, *inputs, stack.data(), stack.size(), &results);
  } catch (const Error& e) {
    runtime::rethrow(e);
  }
  std::vector<at::Tensor> out;
  for (const c10::IValue& v : results) out.push_back(v.toTensor());
  return out;
}

}  // namespace

int64_t add_traced(std::string name, exec::Graph graph, size_t inputs) {
  const std::lock_guard lock(functions().mutex);
  const int64_t number = ++functions().made;
  exec::Form form;
  form.is_out.resize(inputs);
  form.is_number.resize(inputs);
  form.is_static.resize(inputs);
  form.special.resize(inputs);
  // No address of an operator, which the other keys begin with.
  const uint64_t word = ~static_cast<uint64_t>(number);
  functions().by_number[number] = std::make_shared<Traced>(word, std::move(name), std::move(graph), std::move(form));
  return number;
}

void drop_traced(int64_t number) {
  const std::lock_guard lock(functions().mutex);
  functions().by_number.erase(number);
}

std::vector<std::pair<std::string, std::string>> traced_programs(int64_t number) {
  const std::shared_ptr<const Traced> f = find(number);
  const pjrt::Client& client = runtime::client();
  std::vector<std::pair<std::string, std::string>> out;
  if (!client.caps().serialize || !client.caps().deserialize) return out;
  const std::lock_guard lock(f->mutex);
  for (const exec::Program* p : f->programs)
    if (!p->text.empty()) out.emplace_back(compile::key_of(client, p->request()), p->executable()->serialize());
  return out;
}

void register_traced(torch::Library& lib) {
  lib.def("has_outside(Tensor index, int low, int high, int? also) -> bool");
  lib.impl("has_outside", c10::DispatchKey::CompositeExplicitAutograd, &has_outside);
  lib.def("run_traced(int function, Tensor[] inputs) -> Tensor[]");
  lib.impl("run_traced", c10::DispatchKey::CompositeExplicitAutograd, &run);
  // Who calls it has done what autograd wants.
  lib.impl("run_traced", c10::DispatchKey::Autograd, torch::CppFunction::makeFallthrough());
  lib.impl("run_traced", c10::DispatchKey::ADInplaceOrView, torch::CppFunction::makeFallthrough());
}

}  // namespace tpj::eager
