#include "exec/graph.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>

namespace tpj::exec {
namespace {

using Environment = std::vector<torch::jit::Stack>;  // the results of each value

at::Tensor lookup(const Ref& ref, const Environment& env) {
  const torch::jit::Stack& results = env[static_cast<size_t>(ref.value)];
  const c10::IValue& v = results[results.size() > 1 ? static_cast<size_t>(std::max(ref.item, 0)) : 0];
  if (v.isTensorList()) return v.toTensorList().get(static_cast<size_t>(ref.item));
  return v.isNone() ? at::Tensor() : v.toTensor();
}

c10::IValue to_ivalue(const Plain& plain, const c10::TypePtr& type, const Environment& env);

c10::IValue to_list(const PlainList& items, const c10::TypePtr& element, const Environment& env) {
  switch (element->kind()) {
    case c10::TypeKind::TensorType: {
      c10::List<at::Tensor> list;
      for (const Plain& p : items) list.push_back(to_ivalue(p, element, env).toTensor());
      return list;
    }
    case c10::TypeKind::OptionalType: {
      c10::List<std::optional<at::Tensor>> list;
      for (const Plain& p : items) {
        const c10::IValue v = to_ivalue(p, element, env);
        list.push_back(v.isNone() ? std::nullopt : std::optional<at::Tensor>(v.toTensor()));
      }
      return list;
    }
    case c10::TypeKind::FloatType: {
      c10::List<double> list;
      for (const Plain& p : items) list.push_back(to_ivalue(p, element, env).toDouble());
      return list;
    }
    case c10::TypeKind::BoolType: {
      c10::List<bool> list;
      for (const Plain& p : items) list.push_back(to_ivalue(p, element, env).toBool());
      return list;
    }
    case c10::TypeKind::NumberType: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const Plain& p : items) list.push_back(to_ivalue(p, element, env));
      return list;
    }
    default: {
      c10::List<int64_t> list;
      for (const Plain& p : items) list.push_back(to_ivalue(p, element, env).toInt());
      return list;
    }
  }
}

c10::IValue to_ivalue(const Plain& plain, const c10::TypePtr& type, const Environment& env) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (std::holds_alternative<std::monostate>(plain.v) &&
        optional->getElementType()->kind() != c10::TypeKind::DeviceObjType)
      return {};
    return to_ivalue(plain, optional->getElementType(), env);
  }
  if (type->kind() == c10::TypeKind::DeviceObjType) return c10::Device(c10::kMeta);
  if (const auto list = type->cast<c10::ListType>()) {
    if (const auto* items = std::get_if<PlainList>(&plain.v)) return to_list(*items, list->getElementType(), env);
    return to_list({plain}, list->getElementType(), env);  // int[1] given as an int
  }
  if (const auto* ref = std::get_if<Ref>(&plain.v)) return lookup(*ref, env);
  if (type->kind() == c10::TypeKind::TensorType && !std::holds_alternative<std::monostate>(plain.v)) {
    // A number where the schema has a tensor, as Python allows: x * 2.
    at::Tensor t = c10::scalar_to_tensor(to_ivalue(plain, c10::NumberType::get(), env).toScalar());
    t.unsafeGetTensorImpl()->set_wrapped_number(true);
    return t;
  }
  if (const auto* b = std::get_if<bool>(&plain.v)) return *b;
  if (const auto* i = std::get_if<int64_t>(&plain.v))
    return type->kind() == c10::TypeKind::FloatType ? c10::IValue(static_cast<double>(*i)) : c10::IValue(*i);
  if (const auto* d = std::get_if<double>(&plain.v)) return *d;
  if (const auto* z = std::get_if<std::complex<double>>(&plain.v)) return c10::complex<double>(z->real(), z->imag());
  if (const auto* s = std::get_if<std::string>(&plain.v)) return *s;
  return {};
}

c10::OperatorHandle find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                        dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

bool is_one_of(const std::string& op, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& v : stack) out.push_back(v.toTensor());
  return out;
}

torch::jit::Stack lower_regions(Lowering& lowering, const Node& node, const Environment& env, FindForm find_form) {
  std::vector<at::Tensor> operands;
  for (const Plain& p : node.args) operands.push_back(lookup(std::get<Ref>(p.v), env));
  const auto part = [&](size_t which) {
    return [&lowering, &node, find_form, which](const std::vector<at::Tensor>& inputs) {
      return tensors_of(lower_graph(lowering, node.graphs[which], inputs, find_form));
    };
  };
  std::vector<at::Tensor> results;
  if (node.op == "while_loop") {
    results = lowering.loop(operands, part(0), part(1));
  } else {
    TPJ_ASSERT(node.op == "cond", node.op);
    const at::Tensor condition = operands.front();
    operands.erase(operands.begin());
    results = lowering.branch(condition, operands, part(0), part(1));
  }
  return {results.begin(), results.end()};
}

}  // namespace

torch::jit::Stack lower_graph(Lowering& lowering, const Graph& graph, const std::vector<at::Tensor>& inputs,
                              FindForm find_form) {
  Environment env;
  for (const at::Tensor& t : inputs) env.push_back({t});
  for (const Node& node : graph.nodes) {
    if (!node.graphs.empty()) {
      if (node.line >= 0) lowering.locate(node.op, node.file, node.line);
      env.push_back(lower_regions(lowering, node, env, find_form));
      continue;
    }
    const c10::OperatorHandle op = find_operator(node.op);
    const auto& args = op.schema().arguments();
    TPJ_CHECK(node.args.size() == args.size(), node.op, " takes ", args.size(), " arguments, the graph has ",
              node.args.size());
    torch::jit::Stack stack;
    for (size_t i = 0; i < args.size(); ++i) stack.push_back(to_ivalue(node.args[i], args[i].type(), env));
    if (node.line >= 0) lowering.locate(node.op, node.file, node.line);
    if (const Form* form = find_form(node.op)) {
      lowering.call(op, *form, stack, /*numbers_are_inputs=*/false);
    } else {
      const torch::jit::Stack before = stack;
      {
        const at::AutoDispatchBelowADInplaceOrView below;
        op.callBoxed(stack);
      }
      if (is_one_of(node.op, {"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::lift_fresh_copy"})) {
        lowering.copy(stack[0].toTensor(), before[0].toTensor());
      } else if (node.op == "aten::copy_") {
        if (!before[0].toTensor().is_meta()) fail(ErrorKind::kNotImplemented, "a number on the CPU is written");
        lowering.copy(before[0].toTensor(), before[1].toTensor());
      } else if (is_one_of(node.op, {"aten::empty.memory_format", "aten::empty_like", "aten::empty_strided",
                                     "aten::new_empty", "aten::new_empty_strided"})) {
        lowering.add_empty(stack[0].toTensor());
      } else {
        const bool views =
            !op.schema().is_mutable() &&
            std::all_of(stack.begin(), stack.end(), [&](const c10::IValue& v) { return lowering.knows(v); });
        if (!views) fail(ErrorKind::kNotImplemented, node.op, " has no row");
      }
    }
    env.push_back(std::move(stack));
  }
  torch::jit::Stack outputs;
  for (const Plain& p : graph.outputs) {
    const auto* ref = std::get_if<Ref>(&p.v);
    outputs.push_back(ref ? lookup(*ref, env) : at::Tensor());
  }
  return outputs;
}

}  // namespace tpj::exec
