// Runs a program on the arguments of one call.
#pragma once

#include <ATen/core/stack.h>

#include "exec/inputs.h"
#include "exec/program.h"

namespace tpj::exec {

// `args` are the call's arguments on top of the stack; they are replaced by the returns. Writes go into the cells only
// after the plugin has taken the program, so a refused call changes nothing.
void run(const Program& program, Inputs& inputs, torch::jit::Stack& stack, size_t n_args);

// For benchmarks. 0 starts to record this thread's programs; n > 0 stops, and executes the newest one with its own
// inputs on the bare plugin, n times: the median in microseconds.
double bench_last_program(int n);

}  // namespace tpj::exec
