#include "compile/compiler.h"

#include <chrono>
#include <deque>
#include <mutex>

#include "base/errors.h"

namespace tpj::compile {
namespace {

constexpr size_t kLogLimit = 4096;

struct Log {
  std::mutex mutex;
  std::deque<CompileRecord> records;
  std::function<std::string()> user_line;
};

Log& log() {
  static Log& l = *new Log;
  return l;
}

void add(CompileRecord record) {
  const std::lock_guard lock(log().mutex);
  if (log().records.size() == kLogLimit) log().records.pop_front();
  log().records.push_back(std::move(record));
}

}  // namespace

std::atomic<int> compile_forbidden{0};

Stats& Stats::get() {
  static Stats& s = *new Stats;
  return s;
}

std::unique_ptr<pjrt::Executable> compile(const pjrt::Client& client, const pjrt::Options& overrides,
                                          std::string_view text, std::vector<pjrt::TensorType> parameters,
                                          CompileRecord record) {
  record.where = user_line();
  TPJ_CHECK(compile_forbidden == 0, "[", record.what, "] would compile inside torch_pjrt.no_compile(): ", record.reason,
            record.where.empty() ? "" : ", at ", record.where);
  pjrt::CompileOptions options;
  options.portable = client.device_count() > 1;  // bound to the only device, an execution costs 0.2 us less
  options.env_overrides = overrides;
  const auto start = std::chrono::steady_clock::now();
  const auto finish = [&](bool ok) {
    const auto spent = std::chrono::steady_clock::now() - start;
    record.seconds = std::chrono::duration<double>(spent).count();
    record.ok = ok;
    Stats::get().compiles += 1;
    Stats::get().compile_nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    add(record);
  };
  try {
    auto executable = client.compile(text, options, std::move(parameters));
    finish(true);
    return executable;
  } catch (const Error& e) {
    finish(false);
    throw Error(e.kind(), str("[", record.what, "] ", e.what()));
  }
}

std::vector<CompileRecord> compile_log() {
  const std::lock_guard lock(log().mutex);
  return {log().records.begin(), log().records.end()};
}

void clear_compile_log() {
  const std::lock_guard lock(log().mutex);
  log().records.clear();
}

void set_user_line(std::function<std::string()> hook) { log().user_line = std::move(hook); }
std::string user_line() { return log().user_line ? log().user_line() : std::string(); }

}  // namespace tpj::compile
