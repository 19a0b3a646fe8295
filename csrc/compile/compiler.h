// The one gate to the compiler, and the record of all that passed it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/client.h"

namespace tpj::compile {

// Why a program was compiled.
struct CompileRecord {
  std::string what;    // operator or graph
  std::string reason;  // which part of the key was new
  std::string where;   // the user's line, "file.py:12", when known
  double started = 0;  // seconds since the process began to compile
  double seconds = 0;  // in the plugin's compiler
  bool ok = true;
};

struct Stats {
  std::atomic<int64_t> compiles{0}, hits{0}, decomposed{0};
  std::atomic<int64_t> disk_hits{0};  // programs that were read from disk instead of compiled
  std::atomic<int64_t> compile_nanoseconds{0};
  static Stats& get();
};

// Compiles for one device. `parameters` are the types of the arguments. Throws what the compiler says with the
// operator's name.
std::unique_ptr<pjrt::Executable> compile(const pjrt::Client& client, const pjrt::Options& overrides,
                                          std::string_view text, std::vector<pjrt::TensorType> parameters,
                                          CompileRecord record);

// Newest last; the oldest are dropped beyond 4,096.
std::vector<CompileRecord> compile_log();
void clear_compile_log();

// Tells the user's line; set by the bindings. Takes the interpreter's lock: hold none that others wait for with it.
void set_user_line(std::function<std::string()> hook);
std::string user_line();

// While the count is above zero a compile is an error (torch_pjrt.no_compile()).
extern std::atomic<int> compile_forbidden;

}  // namespace tpj::compile
