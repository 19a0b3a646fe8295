// The precompiled header of the torch half: what nearly every file there includes. Each torch header costs 10 s or more
// per file without it. Keep Python's headers out: they make every file slower to build.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
