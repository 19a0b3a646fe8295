// Eager calls whose sizes change from step to step: after a few, Python (torch_pjrt/_changing.py) makes a program for
// all sizes up to a bound, which serves them from then on.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "exec/lowering.h"
#include "exec/run.h"

namespace tpj::eager {

// A call that has no program yet; its arguments are on top of the stack and stay there. True: it was done, and
// `results` has its returns (null: nobody wants them). False: it is to be compiled; `why` then may say why the program
// is for these sizes alone.
bool run_changing(const c10::OperatorHandle& op, const exec::Form& form, const torch::jit::Stack& stack, size_t n_args,
                  exec::Results* results, std::string& why);

// Data came from the host, or went there: what is called next belongs to another step.
void next_step();

void register_changing(torch::Library& lib);

}  // namespace tpj::eager
