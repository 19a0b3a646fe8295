#include "exec/capture.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "runtime/device.h"
#include "runtime/generator.h"

namespace tpj::exec {
namespace {

using runtime::BufferRef;
using runtime::Cell;
using runtime::DeviceBuffer;

runtime::Generator& generator(int device) {
  return *static_cast<runtime::Generator*>(runtime::default_generator(device).unsafeGetGeneratorImpl());
}

}  // namespace

Capture::Capture(int device) : device_(device) {
  static constexpr const char* kAnother = "another graph is being captured";
  TORCH_CHECK(!watches_any(), kAnother);
  flush(device);
  const auto [seed, counter] = generator(device).reserve(0);
  random_begin_ = {seed, counter};
  TORCH_CHECK(start(this, device), kAnother);
  is_open_ = true;
}

Capture::~Capture() {
  if (is_open_) {
    restore();
    try {
      end_capture(device_);
    } catch (const std::exception&) {
      // Nobody wants it.
    }
  }
  for (const Place& p : places_) p.cell->release();
}

void Capture::on_touch(Cell& cell, BufferRef& contents) {
  const auto [at, is_new] = touched_.try_emplace(&cell);
  if (!is_new) return;
  at->second.before = contents;
  if (contents)
    contents = at->second.stand_in = c10::make_intrusive<DeviceBuffer>(contents->type(), device_, "capture");
}

void Capture::on_made(Cell& cell) { touched_.try_emplace(&cell); }

void Capture::on_destroyed(Cell& cell) {
  const auto at = touched_.find(&cell);
  if (at == touched_.end()) return;
  if (at->second.stand_in) orphans_.push_back(std::move(at->second));
  touched_.erase(at);
}

void Capture::on_stop() {
  for (auto& [cell, t] : touched_) t.held = cell->try_hold();
}

Capture::Buffers Capture::restore() {
  stop();
  is_open_ = false;
  std::vector<std::pair<Cell*, Touched*>> cells;
  for (auto& [cell, t] : touched_) {
    if (t.held)
      cells.emplace_back(cell, &t);
    else
      orphans_.push_back(t);
  }
  std::sort(cells.begin(), cells.end());
  Buffers contents;
  for (const auto& [cell, t] : cells) {
    const auto lock = cell->lock();
    contents.push_back(cell->locked());
    cell->store_locked(t->before);
    Place place;
    place.cell = cell;
    place.is_written = contents.back() != t->stand_in;
    if (t->stand_in) {
      place.type = t->stand_in->type();
      sources_[t->stand_in.get()] = {.from = Source::From::kCell, .index = places_.size()};
    }
    if (place.is_written || t->stand_in)
      places_.push_back(std::move(place));
    else
      contents.pop_back(), cell->release();
  }
  for (const Touched& t : orphans_)
    if (t.stand_in) sources_[t.stand_in.get()] = {.constant = t.before};
  touched_.clear();  // and with it the references to stand-ins: those that remain tell who reads them
  orphans_.clear();

  runtime::Generator& random = generator(device_);
  const auto [seed, counter] = random.reserve(0);
  if (seed == random_begin_[0] && counter > random_begin_[1]) counters_ = counter - random_begin_[1];
  const std::lock_guard lock(random.mutex_);
  random.set_current_seed(random_begin_[0]);
  random.set_offset(random_begin_[1]);
  return contents;
}

void Capture::end() {
  const Buffers contents = restore();
  make_steps(end_capture(device_), contents);
  sources_.clear();
  mark_last_reads();
}

void Capture::make_steps(std::vector<Captured> graphs, const Buffers& contents) {
  const auto source_of = [&](const BufferRef& b) {
    const auto at = sources_.find(b.get());
    return at == sources_.end() ? Source{.constant = b} : at->second;
  };
  static const std::exception_ptr captured =
      std::make_exception_ptr(Error(ErrorKind::kRuntime, "this value was to be computed by a graph that is captured"));
  for (Captured& c : graphs) {
    Step step;
    for (const BufferRef& b : c.graph.inputs) step.inputs.push_back(source_of(b));
    for (size_t v = 0; v < c.graph.values.size(); ++v) {
      BufferRef& buffer = c.graph.values[v].buffer;
      buffer->break_promise(captured);
      if (buffer.use_count() == 1) continue;
      sources_[buffer.get()] = {.from = Source::From::kValue, .index = n_values_};
      step.outputs.push_back({v, n_values_++, buffer->type()});
    }
    for (size_t i = 0; i < c.graph.calls.size(); ++i)
      c.graph.each_operand(i, [&](const Param& p, const Operand& o) {
        if (p.kind != Param::Kind::kRng) return;
        Number number{};
        const std::string& bytes = c.graph.numbers[static_cast<size_t>(p.dtype)];
        std::memcpy(number.data(), bytes.data() + o.index * size_of(p.dtype), sizeof number);
        if (number[0] == random_begin_[0])  // else the capture set a seed
          step.random.push_back({o.index * size_of(p.dtype), number[1] - random_begin_[1]});
      });
    step.captured = std::move(c);
    steps_.push_back(std::move(step));
  }
  for (size_t i = 0; i < places_.size(); ++i)
    if (places_[i].is_written) places_[i].written = source_of(contents[i]);
  for (Step& s : steps_) {
    s.captured.graph.inputs.clear();
    for (CallGraph::Value& v : s.captured.graph.values) v.buffer.reset();
    if (s.random.empty() && s.captured.compiled)
      s.numbers = upload_numbers(s.captured.graph, s.captured.compiled->fused, device_);
  }
}

void Capture::mark_last_reads() {
  std::unordered_set<size_t> cells, values;
  const auto read = [&](Source& s) {
    if (s.from == Source::From::kCell) s.is_last = cells.insert(s.index).second;
    if (s.from == Source::From::kValue) s.is_last = values.insert(s.index).second;
  };
  for (Place& p : places_)
    if (p.is_written) read(p.written);
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
    for (auto input = step->inputs.rbegin(); input != step->inputs.rend(); ++input) read(*input);
}

BufferRef Capture::take(const Source& source, Buffers& read, Buffers& values) {
  if (source.from == Source::From::kConstant) return source.constant;
  BufferRef& held = (source.from == Source::From::kCell ? read : values)[source.index];
  return source.is_last ? std::move(held) : held;
}

std::exception_ptr Capture::run(Step& step, const Number& random, Buffers& read, Buffers& values) {
  CallGraph& graph = step.captured.graph;
  const Compiled* compiled = step.captured.compiled.get();
  for (const Source& s : step.inputs) graph.inputs.push_back(take(s, read, values));
  for (const Output& o : step.outputs)
    values[o.index] = graph.values[o.value].buffer = c10::make_intrusive<DeviceBuffer>(o.type, device_, "graph");
  for (const Random& r : step.random) {
    const Number number{random[0], random[1] + r.counter};
    std::memcpy(graph.numbers[static_cast<size_t>(DType::U64)].data() + r.at, number.data(), sizeof number);
  }
  const std::exception_ptr error =
      run_graph(graph, compiled, device_, step.random.empty() && compiled != nullptr ? &step.numbers : nullptr);
  graph.inputs.clear();
  for (CallGraph::Value& v : graph.values) v.buffer.reset();
  return error;
}

void Capture::replay() {
  const std::lock_guard one(mutex_);
  TORCH_CHECK(!is_capturing(device_), refused_by_capture("to replay a graph"));
  std::vector<std::unique_lock<std::mutex>> locks;
  Buffers read(places_.size()), values(n_values_);
  for (bool ready = false; !ready;) {
    locks.clear();
    flush(device_);
    for (const Place& p : places_) locks.push_back(p.cell->lock());
    ready = std::none_of(places_.begin(), places_.end(), [](const Place& p) {
      return p.type != nullptr && p.cell->locked() && p.cell->locked()->is_promise();  // of another thread
    });
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& p = places_[i];
    if (p.type == nullptr) continue;
    read[i] = p.cell->locked() ? p.cell->locked() : runtime::uninitialized(p.type, device_);
    read[i]->settle();  // throws what broke it
    TORCH_CHECK(read[i]->type() == p.type,
                "a tensor that the graph reads has another size or layout than when it was captured");
  }
  const auto [seed, counter] = generator(device_).reserve(counters_);
  for (const Place& p : places_)
    if (p.is_written) p.cell->store_locked({});  // its memory may be taken
  std::exception_ptr first;
  for (Step& s : steps_) {
    const std::exception_ptr error = run(s, {seed, counter}, read, values);
    if (error && !first) first = error;
  }
  for (const Place& p : places_)
    if (p.is_written) p.cell->store_locked(take(p.written, read, values));
  if (first) std::rethrow_exception(first);
}

std::string Capture::describe() const {
  std::string out;
  for (const Step& s : steps_) {
    out += str(s.captured.compiled ? "one program:" : "call by call:");
    for (const CallGraph::Call& c : s.captured.graph.calls) out += " " + c.program->name;
    out += str(" (", s.inputs.size(), " inputs, ", s.outputs.size(), " results)\n");
  }
  return out;
}

}  // namespace tpj::exec
