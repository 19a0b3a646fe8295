// A step that is captured once and replayed (torch.accelerator.Graph): its calls run again on what its tensors hold
// then, without Python, dispatcher or noting.
//
// From begin to end calls of the device, of whatever thread, are noted and do not run. A storage that is touched for
// the first time gets a stand-in for its contents, so that what is read from it is known by the storage, and nothing of
// before can be taken for a constant. At the end every storage has its contents of before again; what somebody still
// holds of the capture's results has none until the first replay.
//
// A replay reads the storages when it begins, and writes those that the capture wrote. Memory of what it overwrites is
// taken for the results. Numbers are those of the capture; random numbers go on where the device's generator stands.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "exec/queue.h"
#include "runtime/cell.h"

namespace tpj::exec {

class Capture final : public runtime::CellWatcher {
 public:
  // Begins.
  explicit Capture(int device);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Compiles what was noted. Throws when something asked for what a capture cannot give: it is of no use then.
  void end();
  void replay();
  // A line for each program that a replay runs.
  std::string describe() const;

 private:
  struct Touched {
    runtime::BufferRef before, stand_in;
    bool held = false;
  };
  // Where a buffer comes from when the steps run.
  struct Source {
    enum class From : uint8_t { kCell, kValue, kConstant };
    From from = From::kConstant;
    size_t index = 0;      // of places_, or of the values of all steps
    bool is_last = false;  // nothing later reads it
    runtime::BufferRef constant = {};
  };
  struct Output {
    size_t value;  // in the graph
    size_t index;  // among the values of all steps
    const runtime::BufferType* type;
  };
  struct Random {
    size_t at;         // byte in the graph's numbers of type U64
    uint64_t counter;  // after the first one of the capture
  };
  struct Step {
    Captured captured;  // its graph holds no buffers between replays
    std::vector<Source> inputs;
    std::vector<Output> outputs;  // what somebody holds at its end: what the compiled graph gives
    std::vector<Random> random;
    std::vector<runtime::BufferRef> numbers;  // on the device already: they never change
  };
  struct Place {
    runtime::Cell* cell = nullptr;              // held
    const runtime::BufferType* type = nullptr;  // of what is read; null: nothing is
    bool is_written = false;
    Source written;
  };
  using Buffers = std::vector<runtime::BufferRef>;

  void on_touch(runtime::Cell& cell, runtime::BufferRef& contents) override;
  void on_made(runtime::Cell& cell) override;
  void on_destroyed(runtime::Cell& cell) override;
  void on_stop() override;

  // Every cell that was touched has its contents of before again; those of the capture, in the order of places_.
  Buffers restore();
  void make_steps(std::vector<Captured> graphs, const Buffers& contents);
  void mark_last_reads();
  static runtime::BufferRef take(const Source& source, Buffers& read, Buffers& values);
  std::exception_ptr run(Step& step, const Number& random, Buffers& read, Buffers& values);

  const int device_;
  bool is_open_ = false;
  Number random_begin_{};  // seed and counter of the device's generator
  uint64_t counters_ = 0;  // that a replay takes
  std::unordered_map<runtime::Cell*, Touched> touched_;
  std::vector<Touched> orphans_;                                      // of cells that are no more
  std::unordered_map<const runtime::DeviceBuffer*, Source> sources_;  // until the steps are made
  std::vector<Place> places_;                                         // in the order of the cells' addresses
  std::vector<Step> steps_;
  size_t n_values_ = 0;
  std::mutex mutex_;  // one replay at a time
};

}  // namespace tpj::exec
