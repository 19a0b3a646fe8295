// Registers every kernel with PyTorch's dispatcher. Once per process, after runtime::register_device.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tpj::eager {

void register_operators();

// Overloads that run through a row, with the row's name: for the reference page and tests.
std::vector<std::pair<std::string, std::string>> registered_rows();

// ---- CPU fallback: counted per operator since the start or the last reset.
std::map<std::string, int64_t> fallbacks();
void reset_fallbacks();

}  // namespace tpj::eager
