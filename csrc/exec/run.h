// Runs a program on the arguments of one call, or notes it (see queue.h).
#pragma once

#include <ATen/core/stack.h>

#include <chrono>

#include "exec/inputs.h"
#include "exec/program.h"

namespace tpj::exec {

using Results = c10::SmallVector<c10::IValue, 2>;
using Held = c10::SmallVector<runtime::BufferRef, 16>;
using Numbers = c10::SmallVector<Number, 16>;

// Are calls noted (TORCH_PJRT_EAGER=fused)? Else they run when they are made.
bool is_fused();

// What Lowering::finish gives, with the compile log's words, and compiled unless the call will be noted.
std::unique_ptr<Program> complete(std::unique_ptr<Program> lowered, std::string what, std::string reason);

// `results`: where the returns go; null when nobody wants them. Writes go into the cells only after the plugin has
// taken the program, so a refused call changes nothing.
void run(const Program& program, Inputs& inputs, const c10::IValue* args, size_t n_args, Results* results);
// The program on these inputs: for each parameter a buffer, or a number. Donates what the program may take, but for the
// indices in `keep`.
void execute(const Program& program, Held& held, const Numbers& numbers, const c10::SmallVectorImpl<int64_t>& keep,
             int device, c10::SmallVectorImpl<PJRT_Buffer*>& outputs);
// The `n_args` arguments on top of the stack make room for the returns.
void replace_arguments(torch::jit::Stack& stack, size_t n_args, Results& results);

// For benchmarks. 0 starts to record this thread's programs; n > 0 stops, and executes the newest one with its own
// inputs on the bare plugin, n times: the mean in microseconds.
double bench_last_program(int n);

// For benchmarks: nanoseconds that this thread's calls spend in our kernels, in running what was noted (which may be
// inside kernels), and in the plugin's execute (which is inside either).
struct Meter {
  int64_t calls = 0, kernel = 0, flush = 0, plugin = 0;
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};
extern constinit thread_local Meter* t_meter;  // null: not measured

}  // namespace tpj::exec
