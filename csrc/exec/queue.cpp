#include "exec/queue.h"

#include <ATen/core/TensorBody.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "exec/run_graph.h"
#include "runtime/device.h"
#include "runtime/errors.h"

namespace tpj::exec {
namespace {

using runtime::BufferRef;
using runtime::DeviceBuffer;

constexpr size_t kCalls = 8, kMostCalls = 64;  // of a graph
constexpr size_t kMostNoted = 4096;
constexpr size_t kMostBytes = size_t{1} << 30;
// Compiled graphs that are kept; the one that was not used for longest goes. A program is a few mappings of memory, of
// which Linux allows 65,530. Of graphs that ran call by call only the key is kept; all are forgotten at kMostKnown.
constexpr size_t kMostGraphs = 2048, kMostKnown = 32768;

// This thread runs graphs: it must not ask for promises.
constinit thread_local bool t_running = false;

constinit std::atomic<bool> g_refused{false};  // something, by the capture

struct HashWords {
  size_t operator()(const std::vector<uint64_t>& words) const { return hash_words(words.data(), words.size()); }
};

// A graph that ran before.
struct Known {
  std::shared_ptr<Compiled> compiled;    // null: its calls ran one by one
  std::vector<const Program*> programs;  // of its calls
  bool hopeless = false;                 // it does not compile as one
  uint64_t last_use = 0, runs = 0;

  bool is_settled() const { return compiled != nullptr || hopeless; }
};

class Queue {
 public:
  static Queue& of(int device) {
    std::atomic<Queue*>& slot = all()[static_cast<size_t>(device)];
    Queue* queue = slot.load(std::memory_order_acquire);
    if (queue == nullptr) [[unlikely]] {
      auto made = std::make_unique<Queue>(device);
      if (slot.compare_exchange_strong(queue, made.get())) queue = made.release();
    }
    return *queue;
  }
  // Null where nothing was ever noted.
  static std::array<std::atomic<Queue*>, runtime::Ledger::kMaxDevices>& all() {
    static std::array<std::atomic<Queue*>, runtime::Ledger::kMaxDevices> queues{};
    return queues;
  }
  explicit Queue(int device) : device_(device) {}

  void make_room() {
    {
      const std::lock_guard lock(mutex_);
      if (is_capturing()) return;
      if (noted_ < kMostNoted) {
        if (fresh_bytes_ < kMostBytes) return;
        fresh_bytes_ = bytes();
        if (fresh_bytes_ < kMostBytes) return;
      }
    }
    flush();
  }

  void note(const Program& program, const Held& held, const Numbers& numbers, Held& outputs) {
    const std::lock_guard lock(mutex_);
    const size_t n = graph_.calls.size();
    // Only a capture notes what else would run by itself.
    const bool alone = is_capturing() && (program.runs_alone || !is_fused());
    if (n >= kMostCalls || (n >= kCalls && program.is_heavy) || (n != 0 && !graph_.reads && program.reads) ||
        (n != 0 && (alone || graph_.alone)))
      end_graph();
    graph_.alone = alone;
    noted_ += 1;
    graph_.reads |= program.reads;
    std::vector<uint64_t>& words = graph_.words;
    graph_.calls.push_back({&program, words.size() + 1, graph_.values.size()});
    words.push_back(reinterpret_cast<uintptr_t>(&program));
    const size_t first = graph_.values.size();
    for (size_t i = 0; i < program.params.size(); ++i) {
      const Param& p = program.params[i];
      words.push_back(p.kind == Param::Kind::kCell ? place(held[i]) : place(p, numbers[i]));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = c10::make_intrusive<DeviceBuffer>(program.outputs[i], device_, program.name.c_str());
      outputs[i]->place = {id_, graph_.values.size(), false};
      graph_.values.push_back({outputs[i]});
    }
    // What takes the place of which input: through calls that wrote it before.
    for (size_t i = 0; i < program.params.size(); ++i) {
      const Param& p = program.params[i];
      if (p.kind != Param::Kind::kCell || p.written_by < 0) continue;
      const Operand before(words[graph_.calls.back().operands + i]);
      graph_.values[first + static_cast<size_t>(p.written_by)].replaces = before.from == Operand::From::kInput
                                                                              ? static_cast<int64_t>(before.index)
                                                                              : graph_.values[before.index].replaces;
    }
  }

  bool is_capturing() const { return exec::is_capturing(device_); }

  std::vector<Captured> end_capture() {
    std::vector<Known*> known;
    std::vector<Captured> out;
    const std::string where = compile::user_line();  // not while we hold the lock, see flush_now
    const std::lock_guard lock(mutex_);
    const bool refused = g_refused.exchange(false);
    if (!refused && !look_up(known)) compile_new(known, where, true);
    if (refused) graph_.clear();
    for (size_t i = 0; i < ended_.size() && !refused; ++i)
      out.push_back({std::move(ended_[i]), known[i] == nullptr ? nullptr : known[i]->compiled});
    ended_.clear();
    noted_ = fresh_bytes_ = 0;
    TPJ_CHECK(!refused, "operation failed due to a previous error during capture");
    return out;
  }

  std::exception_ptr flush() {
    if (is_capturing()) [[unlikely]]
      return std::make_exception_ptr(
          Error(ErrorKind::kRuntime, refused_by_capture("to read a value, or to wait for it")));
    if (t_meter) [[unlikely]]
      t_meter->flush -= Meter::now();
    std::exception_ptr error;
    if (std::exchange(t_running, true)) {
      error = std::make_exception_ptr(Error(ErrorKind::kInternal, "a promise of a graph that was to run before"));
    } else {
      try {
        error = flush_now();
      } catch (...) {
        error = std::current_exception();
      }
      t_running = false;
    }
    if (t_meter) [[unlikely]]
      t_meter->flush += Meter::now();
    return error;
  }

 private:
  void end_graph() {
    ended_.push_back(std::move(graph_));
    if (spare_.empty()) {
      graph_ = {};
    } else {
      graph_ = std::move(spare_.back());
      spare_.pop_back();
    }
    id_ += 1;
  }

  // What only the notes keep alive.
  size_t bytes() const {
    size_t sum = graph_.bytes();
    for (const CallGraph& g : ended_) sum += g.bytes();
    return sum;
  }

  uint64_t place(const BufferRef& buffer) {
    if (buffer->place.graph != id_) {
      buffer->place = {id_, graph_.inputs.size(), true};
      graph_.inputs.push_back(buffer);
      fresh_bytes_ += buffer->type()->nbytes;
    }
    return Operand(buffer->place.is_input ? Operand::From::kInput : Operand::From::kValue, buffer->place.index).word();
  }

  uint64_t place(const Param& p, const Number& number) {
    std::string& bytes = graph_.numbers[static_cast<size_t>(p.dtype)];
    const size_t size = size_of(p.dtype), count = p.kind == Param::Kind::kRng ? 2 : 1, index = bytes.size() / size;
    bytes.append(reinterpret_cast<const char*>(number.data()), size * count);
    return Operand(Operand::From::kNumber, index).word();
  }

  // The graph as it is known, by its calls and by which values somebody still holds. Null: it never ran, and is not
  // made.
  Known* find(CallGraph& graph, bool make) {
    std::vector<uint64_t>& words = graph.words;
    const size_t end = words.size();
    uint64_t bits = 0;
    graph.live.resize(graph.values.size());
    for (size_t i = 0; i < graph.values.size(); ++i) {
      const bool live = graph.values[i].buffer.use_count() > 1;
      graph.live[i] = live;
      bits |= uint64_t{live} << (i % 64);
      if (i % 64 == 63) words.push_back(bits), bits = 0;
    }
    words.push_back(bits);
    const auto at = known_.find(words);
    Known* known = at == known_.end() ? nullptr : &at->second;
    if (known == nullptr && make) known = &known_[words];
    words.resize(end);
    return known;
  }

  std::exception_ptr flush_now() {
    std::unique_lock lock(mutex_);
    std::string where;
    std::vector<Known*> known;
    if (!look_up(known)) {
      // Who compiles asks for the user's line, and so for the interpreter's lock, whose holder may wait for ours: not
      // while we hold it.
      lock.unlock();
      where = compile::user_line();
      lock.lock();
      if (!look_up(known)) compile_new(known, where, false);
    }
    std::exception_ptr first;
    for (size_t i = 0; i < ended_.size(); ++i) {
      const std::exception_ptr error = run(ended_[i], known[i]);
      if (error && !first) first = error;
      ended_[i].clear();
      spare_.push_back(std::move(ended_[i]));
    }
    ended_.clear();
    noted_ = 0;
    fresh_bytes_ = 0;
    return first;
  }

  // One call, or state from nothing: nothing is gained by a program of their own.
  static bool is_plain(const CallGraph& graph) { return graph.calls.size() < 2 || !graph.reads; }

  // What is known of the graphs that are to run (null: nothing). True: each is compiled as far as it can be.
  bool look_up(std::vector<Known*>& known) {
    if (!graph_.calls.empty()) end_graph();
    known.clear();
    bool ready = true;
    for (CallGraph& graph : ended_) {
      const bool plain = is_plain(graph);
      known.push_back(plain ? nullptr : find(graph, false));
      if (known.back() != nullptr) known.back()->last_use = id_;
      ready &= plain || (known.back() != nullptr && known.back()->is_settled());
    }
    return ready;
  }

  // Compiles what the graphs need that are to run, all of it together: graphs that are worth it (`force`: all of them),
  // else their calls.
  void compile_new(std::vector<Known*>& known, const std::string& where, bool force) {
    if (known_.size() + ended_.size() > kMostKnown) {
      known_.clear(), compiled_.clear();
      std::fill(known.begin(), known.end(), nullptr);
    }
    if (compile::is_full(compile::kFree)) {
      free_graphs();
      Program::free_oldest();
    }
    const bool donation = runtime::client().caps().limits().donation;
    std::vector<Known*> fresh;
    std::vector<std::shared_ptr<Compiled>> fused;  // of `fresh`
    std::vector<const Program*> alone;
    std::vector<compile::Request> requests;
    std::unordered_set<const Program*> soon;               // those in `alone`
    std::unordered_map<const DeviceBuffer*, size_t> held;  // by graphs that will have run
    for (size_t i = 0; i < ended_.size(); ++i) {
      CallGraph& graph = ended_[i];
      bool one_by_one = is_plain(graph);
      if (!one_by_one) {
        const bool is_new = known[i] == nullptr;
        if (is_new) known[i] = find(graph, true);  // an equal one may have come in between
        Known& k = *known[i];
        k.last_use = id_;
        const bool asked = std::find(fresh.begin(), fresh.end(), &k) != fresh.end();
        if (!k.is_settled() && !asked && (force || is_worth_compiling(graph, is_new, soon))) {
          try {
            auto made = std::make_shared<Compiled>();
            made->fused = fuse(graph, [&](size_t input) {
              const BufferRef& buffer = graph.inputs[input];
              const auto earlier = held.find(buffer.get());
              return donation && buffer.use_count() == 1 + (earlier == held.end() ? 0 : earlier->second);
            });
            k.programs.clear();
            for (const CallGraph::Call& c : graph.calls) k.programs.push_back(c.program);
            requests.push_back(request_of(graph, made->fused, reason(k, fresh), where));
            fresh.push_back(&k);
            fused.push_back(std::move(made));
          } catch (const Error&) {
            k.hopeless = one_by_one = true;
          }
        } else {
          one_by_one = !asked && k.compiled == nullptr;
        }
      }
      if (one_by_one)
        for (const CallGraph::Call& c : graph.calls)
          if (!c.program->is_compiled() && soon.insert(c.program).second) alone.push_back(c.program);
      for (const BufferRef& b : graph.inputs) held[b.get()] += 1;
      for (const CallGraph::Value& v : graph.values) held[v.buffer.get()] += 1;
    }
    for (const Program* p : alone) requests.push_back(p->request());
    std::vector<compile::Compiled> made = compile::compile_all(runtime::client(), std::move(requests));
    for (size_t i = 0; i < made.size(); ++i) {
      if (i >= fresh.size()) {
        if (made[i].executable != nullptr) alone[i - fresh.size()]->set_executable(std::move(made[i].executable));
        continue;  // what did not compile fails again when it is to run
      }
      Known& k = *fresh[i];
      if (made[i].executable != nullptr) {
        fused[i]->executable = std::move(made[i].executable);
        fused[i]->fused.text.clear();
        k.compiled = std::move(fused[i]);
        keep(&k);
      }
      if (made[i].error) k.hopeless = is_final(made[i].error);
    }
  }

  // Is there no use in asking again for what did not compile?
  static bool is_final(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      return e.kind() != ErrorKind::kOutOfMemory && compile::compile_forbidden == 0;
    } catch (const std::exception&) {
      return false;
    }
  }

  std::exception_ptr run(CallGraph& graph, Known* known) {
    if (known == nullptr || known->compiled == nullptr) return run_graph(graph, nullptr, device_);
    compile::Stats::get().hits.fetch_add(known->runs++ == 0 ? 0 : 1, std::memory_order_relaxed);
    return run_graph(graph, known->compiled.get(), device_);
  }

  // Why it is new: where it leaves the graph that is most like it.
  std::string reason(const Known& graph, const std::vector<Known*>& fresh) const {
    const std::vector<const Program*>& mine = graph.programs;
    const Known* nearest = nullptr;
    size_t common = 0;
    for (const std::vector<Known*>* graphs : {&compiled_, &fresh}) {
      for (const Known* other : *graphs) {
        const auto [end, _] = std::mismatch(mine.begin(), mine.end(), other->programs.begin(), other->programs.end());
        const auto n = static_cast<size_t>(end - mine.begin());
        if (n > common) nearest = other, common = n;
      }
    }
    if (nearest == nullptr) return "first graph that begins with this call";
    if (common == mine.size()) return "the calls of an earlier graph, but other results are held, or they go elsewhere";
    const Program& here = *mine[common];
    return str("as an earlier graph up to call ", common + 1, ", which is ", here.name, " (", here.record.reason, ")",
               common < nearest->programs.size() ? str(" where that was ", nearest->programs[common]->name) : "");
  }

  void keep(Known* known) {
    if (compiled_.size() == kMostGraphs) {
      const auto oldest = std::min_element(compiled_.begin(), compiled_.end(),
                                           [](const Known* a, const Known* b) { return a->last_use < b->last_use; });
      (*oldest)->compiled.reset();
      *oldest = compiled_.back();
      compiled_.pop_back();
    }
    compiled_.push_back(known);
  }

  // Of the half of the graphs that did not run for longest, but for those that are to run now.
  void free_graphs() {
    const auto older = [](const Known* a, const Known* b) { return a->last_use < b->last_use; };
    std::sort(compiled_.begin(), compiled_.end(), older);
    const auto half = compiled_.begin() + static_cast<std::ptrdiff_t>(compiled_.size() / 2);
    const auto end = std::find_if(compiled_.begin(), half, [&](const Known* k) { return k->last_use == id_; });
    for (auto at = compiled_.begin(); at != end; ++at) (*at)->compiled.reset();
    compiled_.erase(compiled_.begin(), end);
  }

  std::mutex mutex_;
  const int device_;
  uint64_t id_ = 1;               // of the newest graph
  CallGraph graph_;               // the newest, which grows
  std::vector<CallGraph> ended_;  // those before it
  std::vector<CallGraph> spare_;  // empty ones, for their memory
  size_t noted_ = 0;              // calls in all of them
  size_t fresh_bytes_ = 0;        // of their inputs; less what somebody else held at the last look
  std::unordered_map<std::vector<uint64_t>, Known, HashWords> known_;
  std::vector<Known*> compiled_;
};

void throw_if(const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
}

}  // namespace

void make_room(int device) { Queue::of(device).make_room(); }

std::string refused_by_capture(const std::string& what) {
  g_refused = true;
  return str("operation not permitted when stream is capturing: ", what);
}

std::vector<Captured> end_capture(int device) { return Queue::of(device).end_capture(); }

void note(const Program& program, const Held& held, const Numbers& numbers, int device, Held& outputs) {
  Queue::of(device).note(program, held, numbers, outputs);
}

void flush(int device) {
  if (Queue* queue = Queue::all()[static_cast<size_t>(device)].load(std::memory_order_acquire))
    throw_if(queue->flush());
}

void flush_all() {
  std::exception_ptr first;
  for (const std::atomic<Queue*>& queue : Queue::all())
    if (Queue* q = queue.load(std::memory_order_acquire); q != nullptr && !q->is_capturing())
      if (const std::exception_ptr error = q->flush(); error && !first) first = error;
  throw_if(first);
}

}  // namespace tpj::exec
