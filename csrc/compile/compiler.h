// The one gate to the compiler, and the record of all that passed it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt/client.h"

namespace tpj::compile {

// Why a program was compiled.
struct CompileRecord {
  std::string what;     // operator or graph
  std::string reason;   // which part of the key was new
  std::string where;    // the user's line, "file.py:12", when known
  double started = -1;  // seconds since the process began to compile; below 0: not compiled
  double seconds = 0;   // in the plugin's compiler
  bool ok = true;
};

struct Stats {
  std::atomic<int64_t> compiles{0}, hits{0}, decomposed{0};
  std::atomic<int64_t> disk_hits{0};  // programs that were read from disk instead of compiled
  std::atomic<int64_t> compile_nanoseconds{0};
  static Stats& get();
};

struct Request {
  std::string_view text;
  std::vector<pjrt::TensorType> parameters;
  pjrt::Options overrides;
  CompileRecord record;
};

// Has the process more than so many percent of the memory mappings that Linux allows? A plugin that compiles to host
// code makes some for each kernel of a program (XLA's CPU plugins: 3), and crashes when it gets none.
bool is_full(int percent);
constexpr int kFree = 90;  // who holds programs frees some
constexpr int kFail = 95;  // no program is compiled

// Compiles for one device. Throws what the compiler says, with the operator's name.
std::unique_ptr<pjrt::Executable> compile(const pjrt::Client& client, Request request);

struct Compiled {
  std::unique_ptr<pjrt::Executable> executable;
  std::exception_ptr error;  // where there is no executable
};

// The same for several programs, on as many threads as there are processors (at most 8). Nothing but time depends on
// how many: the log has the programs in the order of the requests.
std::vector<Compiled> compile_all(const pjrt::Client& client, std::vector<Request> requests);

// ---- programs that travel: with a package, or PyTorch's cache artifacts
// What a compiled program is kept by, on disk and elsewhere: all that makes it another one.
std::string key_of(const pjrt::Client& client, const Request& request);
// As if it were on disk.
void offer_program(std::string key, std::string bytes);

// Newest last; the oldest are dropped beyond 4,096.
std::vector<CompileRecord> compile_log();
void clear_compile_log();

// Tells the user's line; set by the bindings. Takes the interpreter's lock: hold none that others wait for with it.
void set_user_line(std::function<std::string()> hook);
std::string user_line();

// While the count is above zero a compile is an error (torch_pjrt.no_compile()).
extern std::atomic<int> compile_forbidden;

}  // namespace tpj::compile
