#include "exec/run_graph.h"

#include <algorithm>
#include <cstring>

#include "exec/run.h"
#include "runtime/errors.h"

namespace tpj::exec {
namespace {

using runtime::BufferRef;

void run_fused(CallGraph& graph, const Compiled& compiled, int device, const std::vector<BufferRef>& numbers) {
  const Fused& fused = compiled.fused;
  std::vector<PJRT_Buffer*> raw, out(fused.outputs.size());
  c10::SmallVector<int64_t, 64> keep;
  for (const BufferRef& b : graph.inputs) raw.push_back(b->raw());
  for (const BufferRef& b : numbers) raw.push_back(b->raw());
  for (const size_t i : fused.taken)
    if (graph.inputs[i].use_count() != 1) keep.push_back(static_cast<int64_t>(i));
  if (t_meter) [[unlikely]]
    t_meter->plugin -= Meter::now();
  compiled.executable->enqueue(raw.data(), raw.size(), out.data(), device, keep.data(), keep.size());
  if (t_meter) [[unlikely]]
    t_meter->plugin += Meter::now();
  for (const size_t i : fused.taken)
    if (std::find(keep.begin(), keep.end(), static_cast<int64_t>(i)) == keep.end()) graph.inputs[i]->mark_donated();
  for (size_t i = 0; i < out.size(); ++i)
    graph.values[fused.outputs[i]].buffer->keep_promise(pjrt::Buffer(compiled.executable->state(), out[i]));
}

// The exception that is being handled, with the operator and the line where it was first called.
std::exception_ptr named(const Program& program) {
  try {
    try {
      throw;
    } catch (const Error& e) {
      const std::string& where = program.record.where;
      const std::string name = str("[", program.name, "] "), what = e.what();
      runtime::rethrow(
          Error(e.kind(), str(what.starts_with(name) ? "" : name, what,
                              where.empty() || what.ends_with(where) ? "" : str(", first called at ", where))));
    }
  } catch (...) {
    return std::current_exception();
  }
}

// Each call as its own program. What fails breaks the promises that depend on it, and nothing else.
std::exception_ptr run_calls(CallGraph& graph, int device) {
  std::exception_ptr first;
  std::vector<size_t> last_input(graph.inputs.size()), last_value(graph.values.size());
  for (size_t c = 0; c < graph.calls.size(); ++c)
    graph.each_operand(c, [&](const Param&, const Operand& o) {
      if (o.from == Operand::From::kInput) last_input[o.index] = c;
      if (o.from == Operand::From::kValue) last_value[o.index] = c;
    });
  for (size_t c = 0; c < graph.calls.size(); ++c) {
    const CallGraph::Call& call = graph.calls[c];
    const Program& program = *call.program;
    Held held;
    Numbers numbers(program.params.size());
    c10::SmallVector<int64_t, 16> keep, taken;
    graph.each_operand(c, [&](const Param& p, const Operand& o) {
      const size_t i = held.size();
      BufferRef buffer;
      if (o.from == Operand::From::kNumber) {
        const size_t size = size_of(p.dtype);
        std::memcpy(numbers[i].data(), graph.numbers[static_cast<size_t>(p.dtype)].data() + o.index * size,
                    p.kind == Param::Kind::kRng ? 2 * size : size);
      } else {
        const bool input = o.from == Operand::From::kInput;
        BufferRef& ours = input ? graph.inputs[o.index] : graph.values[o.index].buffer;
        const bool last = (input ? last_input : last_value)[o.index] == c;
        if (p.written_by >= 0) (last ? taken : keep).push_back(static_cast<int64_t>(i));
        buffer = ours;
      }
      held.push_back(std::move(buffer));
    });
    for (const int64_t i : taken)  // the graph's reference and ours: nobody else, and no other argument
      if (held[static_cast<size_t>(i)].use_count() != 2) keep.push_back(i);
    c10::SmallVector<PJRT_Buffer*, 16> out(program.outputs.size(), nullptr);
    for (size_t i = 0; i < out.size(); ++i)  // of a capture, which only promises what is seen outside
      if (BufferRef& b = graph.values[call.first_value + i].buffer; !b)
        b = c10::make_intrusive<runtime::DeviceBuffer>(program.outputs[i], device, program.name.c_str());
    try {
      for (const BufferRef& b : held)
        if (b) b->settle();  // throws what broke it
      execute(program, held, numbers, keep, device, out);
      for (size_t i = 0; i < out.size(); ++i)
        graph.values[call.first_value + i].buffer->keep_promise(pjrt::Buffer(runtime::client().state(), out[i]));
    } catch (const std::exception&) {
      const std::exception_ptr error = named(program);
      if (!first) first = error;
      for (size_t i = 0; i < out.size(); ++i) graph.values[call.first_value + i].buffer->break_promise(error);
    }
    held.clear();
    // Nothing reads them any more.
    graph.each_operand(c, [&](const Param&, const Operand& o) {
      if (o.from == Operand::From::kInput && last_input[o.index] == c) graph.inputs[o.index].reset();
      if (o.from == Operand::From::kValue && last_value[o.index] == c) graph.values[o.index].buffer.reset();
    });
  }
  return first;
}

}  // namespace

std::vector<BufferRef> upload_numbers(const CallGraph& graph, const Fused& fused, int device) {
  std::vector<BufferRef> out;
  for (const auto& [dtype, type] : fused.numbers)
    out.push_back(runtime::upload(graph.numbers[static_cast<size_t>(dtype)].data(), type, device));
  return out;
}

std::exception_ptr run_graph(CallGraph& graph, const Compiled* compiled, int device,
                             const std::vector<BufferRef>* numbers) {
  if (compiled == nullptr) return run_calls(graph, device);
  try {
    run_fused(graph, *compiled, device, numbers ? *numbers : upload_numbers(graph, compiled->fused, device));
    return nullptr;
  } catch (const std::exception&) {
    return run_calls(graph, device);  // finds out which of them it is
  }
}

}  // namespace tpj::exec
