#include "exec/fuse.h"

#include <algorithm>
#include <unordered_map>

#include "hlo/compose.h"
#include "runtime/device.h"

namespace tpj::exec {

void CallGraph::clear() {
  calls.clear();
  words.clear();
  inputs.clear();
  values.clear();
  reads = alone = false;
  for (std::string& s : numbers) s.clear();
}

size_t CallGraph::bytes() const {
  std::vector<bool> replaced(inputs.size());
  for (const Value& v : values)
    if (v.replaces >= 0) replaced[static_cast<size_t>(v.replaces)] = true;
  size_t sum = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!replaced[i] && inputs[i].use_count() == 1) sum += inputs[i]->type()->nbytes;
  return sum;
}

Fused fuse(const CallGraph& graph, const std::function<bool(size_t input)>& is_ours) {
  Fused out;
  hlo::Composer composer;
  for (const runtime::BufferRef& b : graph.inputs) composer.parameter({b->type()->dtype, b->type()->dims});
  std::array<int, CallGraph::kDTypes> arrays{};
  for (size_t d = 0; d < CallGraph::kDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (graph.numbers[d].empty()) continue;
    const auto n = static_cast<int64_t>(graph.count(dtype));
    out.numbers.emplace_back(dtype, BufferType::intern(dtype, {n}));
    arrays[d] = composer.parameter({dtype, {n}});
  }
  std::unordered_map<const Program*, int> functions;
  std::vector<int> names(graph.values.size());
  std::vector<bool> uniform(graph.values.size());  // hlo::Uniform
  for (size_t c = 0; c < graph.calls.size(); ++c) {
    const Program& program = *graph.calls[c].program;
    const auto [at, is_new] = functions.try_emplace(&program);
    if (is_new) at->second = composer.function(program.text);
    std::vector<int> args;
    std::vector<hlo::Type> takes, gives;
    bool all = true;  // operands are uniform
    graph.each_operand(c, [&](const Param& p, const Operand& o) {
      const pjrt::TensorType type = type_of(p);
      takes.push_back({type.dtype, type.dims});
      if (o.from == Operand::From::kInput) {
        args.push_back(static_cast<int>(o.index));
        all &= takes.back().numel() == 1;
      } else if (o.from == Operand::From::kValue) {
        // What Builder::dot_general keeps apart, where it cannot see it.
        const bool apart = program.is_heavy && uniform[o.index] && takes.back().numel() != 1;
        args.push_back(apart ? composer.barrier(names[o.index], takes.back()) : names[o.index]);
        all &= uniform[o.index];
      } else {
        args.push_back(composer.element(arrays[static_cast<size_t>(p.dtype)], takes.back(),
                                        static_cast<int64_t>(graph.count(p.dtype)), static_cast<int64_t>(o.index)));
      }
    });
    for (const BufferType* type : program.outputs) gives.push_back({type->dtype, type->dims});
    const int first = composer.call(at->second, args, takes, gives);
    for (size_t i = 0; i < gives.size(); ++i) {
      const size_t value = graph.calls[c].first_value + i;
      names[value] = first + static_cast<int>(i);
      const auto known = program.uniform[i];
      uniform[value] = known == hlo::Uniform::kYes || (all && known != hlo::Uniform::kNo);
    }
  }
  std::vector<hlo::Type> types;
  std::vector<int> results, aliases(graph.inputs.size(), -1);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!graph.live[v]) continue;
    const CallGraph::Value& value = graph.values[v];
    const auto input = static_cast<size_t>(value.replaces);
    if (value.replaces >= 0 && aliases[input] < 0 && graph.inputs[input]->type() == value.buffer->type() &&
        is_ours(input)) {
      aliases[input] = static_cast<int>(results.size());
      out.taken.push_back(input);
    }
    out.outputs.push_back(v);
    results.push_back(names[v]);
    types.push_back({value.buffer->type()->dtype, value.buffer->type()->dims});
  }
  out.text = composer.print(results, types, aliases);
  return out;
}

bool is_worth_compiling(const CallGraph& graph, bool is_new, const std::unordered_set<const Program*>& soon) {
  if (!is_new) return true;
  // Programs that are not compiled yet are the price of running the calls one by one. Each graph that meets one of them
  // and does without it makes the next one half as willing: it is met often, in graphs that differ.
  double price = 0;
  std::vector<const Program*> programs;
  for (const CallGraph::Call& c : graph.calls) programs.push_back(c.program);
  std::sort(programs.begin(), programs.end());
  programs.erase(std::unique(programs.begin(), programs.end()), programs.end());
  for (const Program* p : programs)
    if (!p->is_compiled() && !soon.contains(p))
      price += 1.0 / (1 << std::min(p->graphs.fetch_add(1, std::memory_order_relaxed), 16));
  return price > 1 + 0.25 * static_cast<double>(programs.size());
}

compile::Request request_of(const CallGraph& graph, const Fused& fused, std::string reason, const std::string& where) {
  compile::Request out;
  out.text = fused.text;
  out.overrides = runtime::config().compile_overrides;
  for (const runtime::BufferRef& b : graph.inputs) out.parameters.push_back({b->type()->dtype, b->type()->dims});
  for (const auto& [dtype, type] : fused.numbers) out.parameters.push_back({dtype, type->dims});
  out.record.what = str("graph of ", graph.calls.size(), " calls, ", graph.calls.front().program->name, " to ",
                        graph.calls.back().program->name);
  out.record.reason = std::move(reason);
  out.record.where = where;
  return out;
}

}  // namespace tpj::exec
