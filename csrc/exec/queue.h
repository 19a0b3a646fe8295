// Fused eager: calls are noted, and run together as one program when somebody needs a value.
//
// What is noted is what each call alone would have run: its program, the values it reads (inputs from before, or
// results of calls before it) and numbers. Writes are new values, as everywhere, so that order and aliases need no
// care. The one program is made of the programs of the calls, one function each, and its results are the values that
// something outside still holds.
//
// A long row of calls is several graphs, one after the other: equal layers are equal graphs, which compile once, and
// what differs from step to step compiles alone. A graph ends before a matrix product or a convolution when it has
// kCalls (nothing before a product becomes a part of it, so that little is lost), and after kMostCalls. Calls that read
// nothing at the start of a graph (zeros, random numbers) run by themselves: they make the state of a first step, and
// what reads them is then the same in the second one.
//
// A device's notes run when
//   - the contents of one of its results are asked for, by whatever path (DeviceBuffer::settle),
//   - the device is synchronized, or an event is recorded,
//   - flush() is called: the start and end of an optimizer's step, a change of mode,
//   - kMostNoted calls are noted, or what only the notes keep alive takes kMostBytes.
// None of it depends on time or on how much memory there is: equal runs run equal programs, in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/program.h"
#include "exec/run.h"
#include "exec/run_graph.h"
#include "runtime/cell.h"

namespace tpj::exec {

// Before a call is noted, and while no cell is locked: runs what is noted when it is too much.
void make_room(int device);
// Notes a call. `held` and `numbers` are its inputs, one for each parameter; `outputs` get the promised buffers.
void note(const Program& program, const Held& held, const Numbers& numbers, int device, Held& outputs);
// Runs what is noted for the device; throws what went wrong first.
void flush(int device);
// Of all devices, but for one whose calls are captured.
void flush_all();

// ---- for a capture (see capture.h): what is noted while it watches the device does not run.
struct Captured {
  CallGraph graph;
  std::shared_ptr<const Compiled> compiled;  // null: call by call
};
inline bool is_capturing(int device) { return runtime::CellWatcher::watches(device); }
// PyTorch's text for what a capture cannot do; the capture is of no use then.
std::string refused_by_capture(const std::string& what);
// Throws where something was refused.
std::vector<Captured> end_capture(int device);

}  // namespace tpj::exec
