// One loop from the table of rows to kernels: functional, in-place and out= overloads of each row.
#include <algorithm>
#include <map>

#include "eager/kernels.h"
#include "eager/op_kernel.h"
#include "eager/register.h"

namespace tpj::eager {
namespace {

using c10::FunctionSchema;
using c10::OperatorHandle;

std::map<std::string, std::string>& registered() {
  static auto& m = *new std::map<std::string, std::string>;
  return m;
}

std::map<std::string, exec::Form>& forms() {
  static auto& m = *new std::map<std::string, exec::Form>;
  return m;
}

bool is_written(const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); }

bool takes_number(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return takes_number(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>()) return list->getElementType()->kind() == c10::TypeKind::NumberType;
  return type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
}

exec::Form make_form(const lower::Row& row, const FunctionSchema& schema) {
  exec::Form form;
  form.row = &row;
  const auto& args = schema.arguments();
  for (size_t i = 0; i < args.size(); ++i) {
    const auto named = [&](const auto& list) {
      return std::find(list.begin(), list.end(), args[i].name()) != list.end();
    };
    if (is_written(args[i]) || named(row.options.mutates)) form.mutated.push_back(static_cast<int>(i));
    form.is_out.push_back(is_written(args[i]) && args[i].kwarg_only());
    form.is_number.push_back(takes_number(args[i].type()));
    form.is_static.push_back(named(row.options.statics));
    form.special.emplace_back();
    for (const auto& [name, values] : row.options.special)
      if (name == args[i].name()) form.special.back() = values;
  }
  if (!row.options.meta.empty()) {
    const std::string name(row.options.meta);
    const size_t dot = name.find('.');
    form.meta = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("aten::" + name.substr(0, dot)).c_str(), dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
    if (form.meta->schema().arguments().size() != args.size()) form.meta.reset();  // an out= form asks its own
  }
  return form;
}

// Same arguments in the same order, leaving out those that the variant writes: an out= form of the functional overload.
bool is_out_form(const FunctionSchema& functional, const FunctionSchema& variant) {
  const auto& f = functional.arguments();
  const auto& v = variant.arguments();
  size_t written = 0;
  for (const c10::Argument& a : v) written += is_written(a);
  if (written == 0 || v.size() != f.size() + written) return false;
  for (size_t i = 0; i < f.size(); ++i)
    if (f[i].name() != v[i].name() || *f[i].type() != *v[i].type() || is_written(v[i])) return false;
  return true;
}

// polygamma_ has its arguments in another order than polygamma.
bool same_order(const FunctionSchema& functional, const FunctionSchema& in_place) {
  const auto& f = functional.arguments();
  const auto& v = in_place.arguments();
  return std::equal(f.begin(), f.end(), v.begin(), v.end(),
                    [](const c10::Argument& a, const c10::Argument& b) { return a.name() == b.name(); });
}

// Arguments that may be CPU tensors: the indices of indexing operators, as on every PyTorch device.
std::vector<int> host_args(const FunctionSchema& schema) {
  std::vector<int> out;
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].name() == "indices" && schema.name().find("index") != std::string::npos)
      out.push_back(static_cast<int>(i));
  return out;
}

}  // namespace

std::unique_ptr<OpKernel> make_kernel(const lower::Row& row, const OperatorHandle& op) {
  return std::make_unique<OpKernel>(op, make_form(row, op.schema()), host_args(op.schema()));
}

namespace {

template <typename Return, typename... Args>
torch::CppFunction unboxed(std::shared_ptr<OpKernel> kernel, const OperatorHandle& op) {
  return torch::CppFunction([kernel, op](Args... args) -> Return { return kernel->call_unboxed<Return>(op, args...); });
}

// The commonest signatures have unboxed kernels, for speed; all others are boxed.
torch::CppFunction make_function(const lower::Row& row, const OperatorHandle& op) {
  using In = const at::Tensor&;
  using Number = const c10::Scalar&;
  using Make = torch::CppFunction (*)(std::shared_ptr<OpKernel>, const OperatorHandle&);
  static const std::map<std::string, Make>& makers = *new std::map<std::string, Make>{
      {"T:T", unboxed<at::Tensor, In>},
      {"TT:T", unboxed<at::Tensor, In, In>},
      {"TTT:T", unboxed<at::Tensor, In, In, In>},
      {"TN:T", unboxed<at::Tensor, In, Number>},
      {"TNN:T", unboxed<at::Tensor, In, Number, Number>},
      {"TTN:T", unboxed<at::Tensor, In, In, Number>},
      {"TTNN:T", unboxed<at::Tensor, In, In, Number, Number>},
      {"TTTN:T", unboxed<at::Tensor, In, In, In, Number>},
      {"TTTNN:T", unboxed<at::Tensor, In, In, In, Number, Number>},
      {"W:W", unboxed<at::Tensor&, at::Tensor&>},
      {"WT:W", unboxed<at::Tensor&, at::Tensor&, In>},
      {"WTT:W", unboxed<at::Tensor&, at::Tensor&, In, In>},
      {"WN:W", unboxed<at::Tensor&, at::Tensor&, Number>},
      {"WTN:W", unboxed<at::Tensor&, at::Tensor&, In, Number>},
      {"WTTN:W", unboxed<at::Tensor&, at::Tensor&, In, In, Number>},
  };
  std::string signature;
  const auto letter = [](const c10::Argument& a) {
    if (a.type()->kind() == c10::TypeKind::TensorType) return is_written(a) ? 'W' : 'T';
    return a.type()->kind() == c10::TypeKind::NumberType ? 'N' : '?';
  };
  for (const c10::Argument& a : op.schema().arguments()) signature += letter(a);
  signature += ':';
  for (const c10::Argument& a : op.schema().returns()) signature += letter(a);
  const auto found = makers.find(signature);
  // Arguments that are uploaded are replaced on the stack: it must own them.
  if (found == makers.end() || !host_args(op.schema()).empty())
    return torch::CppFunction::makeFromBoxedFunctor(make_kernel(row, op));
  return found->second(make_kernel(row, op), op);
}

}  // namespace

void register_rows(torch::Library& lib) {
  auto& dispatcher = c10::Dispatcher::singleton();
  // Overloads by operator, for the search of out= forms.
  std::map<std::string, std::vector<OperatorHandle>> overloads;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames())
    if (name.name.starts_with("aten::"))
      if (const auto op = dispatcher.findSchema(name)) overloads[name.name].push_back(*op);

  const auto add = [&](const lower::Row& row, const OperatorHandle& op) {
    const std::string name = c10::toString(op.operator_name());
    const bool counted = !row.options.cuts.empty();
    if (!counted) forms()[name] = make_form(row, op.schema());  // no graph can hold it
    TORCH_CHECK(registered().emplace(name, row.name).second, "two rows serve ", name, ": ", registered()[name], " and ",
                row.name);
    // storage_ops.cpp: an output may have any sizes, and arange's depend on its numbers.
    if (row.name == "arange.start_out" || row.name == "linspace.out" || row.name == "logspace.out") return;
    lib.impl(name.c_str(), counted ? counted_function(row, op) : make_function(row, op));
  };
  for (const lower::Row& row : lower::rows()) {
    if (row.options.internal) continue;
    const std::string full(row.name);
    const size_t dot = full.find('.');
    const std::string base = "aten::" + full.substr(0, dot),
                      overload = dot == std::string::npos ? "" : full.substr(dot + 1);
    const auto op = dispatcher.findSchema({base, overload});
    TORCH_CHECK(op.has_value(), "row ", full, " names no operator of this PyTorch");
    add(row, *op);
    const FunctionSchema& schema = op->schema();
    // Where the row says what the results are, PyTorch's own out= forms resize and copy.
    if (std::any_of(schema.arguments().begin(), schema.arguments().end(), is_written) || !row.options.mutates.empty())
      continue;
    if (const auto in_place = dispatcher.findSchema({base + "_", overload});
        in_place && same_order(schema, in_place->schema()) &&
        !lower::find_row(full.substr(0, dot) + "_" + full.substr(std::min(dot, full.size()))))
      add(row, *in_place);
    for (const OperatorHandle& other : overloads[base]) {
      const std::string name = c10::toString(other.operator_name());
      if (!is_out_form(schema, other.schema()) || lower::find_row(name.substr(6))) continue;
      if (row.options.cuts.empty() && row.options.asks_meta)
        add(row, other);
      else
        lib.impl(name.c_str(), out_function(*op));
    }
  }
}

const exec::Form* find_form(const std::string& overload) {
  const auto it = forms().find(overload);
  return it == forms().end() ? nullptr : &it->second;
}

exec::Form form_without_row(const FunctionSchema& schema) {
  static const lower::Row& none = *new lower::Row{};
  exec::Form form = make_form(none, schema);
  form.is_static.assign(form.is_static.size(), true);
  return form;
}

std::vector<std::pair<std::string, std::string>> registered_rows() {
  return {registered().begin(), registered().end()};
}

}  // namespace tpj::eager
