// The one printer: operations in generic form inside a func.func, which no plugin's pretty-printer version can disturb.
#include "hlo/builder.h"

namespace tpj::hlo {
namespace {

class Printer {
 public:
  std::string take() { return std::move(out_); }

  void text(std::string_view s) { out_ += s; }

  void name(int id) { out_ += "%" + std::to_string(id); }

  void op(const Op& op, int depth) {
    indent(depth);
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (i) out_ += ", ";
      // Results of one operation are bound one by one: `%5, %6 = ...` in generic form.
      name(op.first_result + static_cast<int>(i));
    }
    if (!op.results.empty()) out_ += " = ";
    out_ += "\"" + op.name + "\"(";
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (i) out_ += ", ";
      name(op.operands[i]);
    }
    out_ += ")";
    if (!op.regions.empty()) {
      out_ += " (";
      for (size_t i = 0; i < op.regions.size(); ++i) {
        if (i) out_ += ", ";
        region(op.regions[i], depth);
      }
      out_ += ")";
    }
    if (!op.attrs.empty()) out_ += " {" + op.attrs + "}";
    out_ += " : ";
    types(op.operand_types);
    out_ += " -> ";
    types(op.results);
    if (!op.location.empty()) out_ += " loc(" + op.location + ")";
    out_ += "\n";
  }

 private:
  void indent(int depth) { out_.append(static_cast<size_t>(2 * depth), ' '); }

  void types(const std::vector<Type>& types) {
    out_ += "(";
    for (size_t i = 0; i < types.size(); ++i) out_ += (i ? ", " : "") + types[i].str();
    out_ += ")";
  }

  void region(const Region& r, int depth) {
    out_ += "{\n";
    if (!r.args.empty()) {
      indent(depth);
      out_ += "^bb0(";
      for (size_t i = 0; i < r.args.size(); ++i) {
        if (i) out_ += ", ";
        name(r.args[i].id);
        out_ += ": " + r.args[i].type.str();
      }
      out_ += "):\n";
    }
    for (const Op& o : r.ops) op(o, depth + 1);
    Op ret;
    ret.name = "stablehlo.return";
    for (const Value& v : r.results) {
      ret.operands.push_back(v.id);
      ret.operand_types.push_back(v.type);
    }
    op(ret, depth + 1);
    indent(depth);
    out_ += "}";
  }

  std::string out_;
};

}  // namespace

std::string Builder::print(const Values& parameters, const Values& results, const std::vector<int>& aliases) const {
  TPJ_ASSERT(open_.size() == 1, "a region is still open");
  Printer p;
  p.text("module @m {\n  func.func @main(");
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i) p.text(", ");
    p.name(parameters[i].id);
    p.text(": " + parameters[i].type.str());
    if (i < aliases.size() && aliases[i] >= 0) p.text(str(" {tf.aliasing_output = ", aliases[i], " : i32}"));
  }
  p.text(") -> (");
  for (size_t i = 0; i < results.size(); ++i) p.text((i ? ", " : "") + results[i].type.str());
  p.text(") {\n");
  for (const Op& op : main_.ops) p.op(op, 2);
  Op ret;
  ret.name = "func.return";
  for (const Value& v : results) {
    ret.operands.push_back(v.id);
    ret.operand_types.push_back(v.type);
  }
  p.op(ret, 2);
  p.text("  }\n}\n");
  return p.take();
}

}  // namespace tpj::hlo
