#include "compile/compiler.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/errors.h"
#include "base/flags.h"
#include "compile/store.h"

namespace tpj::compile {
namespace {

constexpr size_t kLogLimit = 4096;
constexpr size_t kMostThreads = 8;

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

// Into the folder of the flag DUMP: what, where and the text of a program.
void dump(const CompileRecord& record, std::string_view text) {
  static std::atomic<int> count{0};
  std::string what = record.what;
  for (char& c : what)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_') c = '-';
  const std::filesystem::path path =
      std::filesystem::path(flags().DUMP) / str(getpid(), "-", count.fetch_add(1), "-", what.substr(0, 100), ".mlir");
  std::ofstream file(path);
  file << "// " << record.what << "\n// " << record.where << "\n" << text;
  if (!file) fail(ErrorKind::kRuntime, "TORCH_PJRT_DUMP: cannot write ", path.string());
}

// A line on a terminal while a program compiles, once compiling has taken 2 s; nothing stays of it.
class Progress {
 public:
  explicit Progress(const CompileRecord& record) {
    const int64_t spent = Stats::get().compile_nanoseconds, n = Stats::get().compiles;
    shown_ = spent > 2'000'000'000 && isatty(STDERR_FILENO) != 0;
    if (shown_)
      std::fputs(str("\r\033[Ktorch_pjrt: ", n, " programs compiled in ", spent / 1'000'000'000, " s, now ",
                     record.what.substr(0, 60))
                     .c_str(),
                 stderr);
  }
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  bool shown_;
};

// ---- programs on disk

// The folder's store; null when it is switched off.
Store* store() {
  static Store* const s = []() -> Store* {
    std::filesystem::path folder = flags().CACHE;
    if (folder == "off") return nullptr;
    if (folder == "on") {
      const char* cache = std::getenv("XDG_CACHE_HOME");
      const char* home = std::getenv("HOME");
      if (cache != nullptr && *cache == '/')
        folder = cache;
      else if (home != nullptr && *home == '/')
        folder = std::filesystem::path(home) / ".cache";
      else
        return nullptr;
      folder /= "torch_pjrt";
    }
    return new Store(folder, flags().CACHE_BYTES);
  }();
  return s;
}

// The library's size, and what stands at its ends: copies of it are equal, whatever their path and date.
std::string fingerprint_of(const std::string& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  std::string part(1 << 20, '\0');
  uint32_t checksum = 0;
  for (const int64_t at : {int64_t{0}, std::max<int64_t>(0, size - static_cast<int64_t>(part.size()))}) {
    file.clear();
    file.seekg(at);
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    checksum = crc32(std::string_view(part).substr(0, static_cast<size_t>(file.gcount())), checksum);
  }
  return str(std::filesystem::path(path).filename().string(), " ", size, " ", checksum);
}

// What the host's processor can do: programs for hosts use all of it.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string out;
  for (std::string line; std::getline(file, line) && !line.empty();)
    if (line.starts_with("model name") || line.starts_with("flags") || line.starts_with("Features")) out += line + "\n";
  return out;
}

// All that makes a compiled program of the same text another one.
const std::string& identity_of(const pjrt::Client& client) {
  static std::mutex mutex;
  static auto& known = *new std::map<const pjrt::Client*, std::string>;
  const std::lock_guard lock(mutex);
  std::string& identity = known[&client];
  if (identity.empty())
    identity =
        str("torch_pjrt ", TPJ_VERSION, "\n", fingerprint_of(client.plugin().path()), "\n", client.platform_name(), " ",
            client.platform_version(), "\n", client.device_count(), " ", client.device_kind(0), "\n", processor());
  return identity;
}

pjrt::CompileOptions options_of(const pjrt::Client& client, const Request& request) {
  pjrt::CompileOptions options;
  options.portable = client.device_count() > 1;  // bound to the only device, an execution costs 0.2 us less
  options.env_overrides = request.overrides;
  return options;
}

// Programs that somebody brought along.
struct Offers {
  std::mutex mutex;
  std::unordered_map<std::string, std::string> programs;
  std::atomic<bool> any{false};

  static Offers& get() {
    static Offers& o = *new Offers;
    return o;
  }
  std::optional<std::string> find(const std::string& key) {
    const std::lock_guard lock(mutex);
    const auto at = programs.find(key);
    return at == programs.end() ? std::nullopt : std::optional(at->second);
  }
};

// From a package or disk, or by the compiler; the record then tells when that began.
std::unique_ptr<pjrt::Executable> compile_one(const pjrt::Client& client, Request& request) {
  CompileRecord& record = request.record;
  if (is_full(kFail))
    fail(ErrorKind::kOutOfMemory, "the process has as many memory mappings as the system allows (sysctl ",
         "vm.max_map_count): no room for another program. torch_pjrt.compile_log() shows what was compiled");
  if (!flags().DUMP.empty()) dump(record, request.text);
  const pjrt::CompileOptions options = options_of(client, request);
  const bool serializes = client.caps().serialize && client.caps().deserialize;
  Store* const disk = serializes ? store() : nullptr;
  std::string key;
  if (disk != nullptr || (serializes && Offers::get().any)) {
    key = key_of(client, request);
    const auto read = [&](const std::optional<std::string>& bytes) -> std::unique_ptr<pjrt::Executable> {
      if (!bytes) return nullptr;
      try {
        auto executable = client.deserialize(*bytes, options, request.parameters);
        Stats::get().disk_hits += 1;
        return executable;
      } catch (const Error&) {
        return nullptr;  // damaged
      }
    };
    if (auto executable = read(Offers::get().find(key))) return executable;
    if (disk != nullptr) {
      const std::optional<std::string> bytes = disk->get(key);
      if (auto executable = read(bytes)) return executable;
      if (bytes) disk->remove(key);
    }
  }
  TPJ_CHECK(compile_forbidden == 0, "[", record.what, "] would compile inside torch_pjrt.no_compile(): ", record.reason,
            record.where.empty() ? "" : ", at ", record.where);
  const auto start = std::chrono::steady_clock::now();
  static const auto first_start = start;
  record.started = std::max(0.0, std::chrono::duration<double>(start - first_start).count());
  const Progress progress(record);
  const auto finish = [&](bool ok) {
    const auto spent = std::chrono::steady_clock::now() - start;
    record.seconds = std::chrono::duration<double>(spent).count();
    record.ok = ok;
    Stats::get().compiles += 1;
    Stats::get().compile_nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  };
  try {
    auto executable = client.compile(request.text, options, std::move(request.parameters));
    finish(true);
    if (disk != nullptr) {
      try {
        disk->put(key, executable->serialize());
      } catch (const Error&) {
        // A program that cannot be serialized is compiled again by the next process.
      }
    }
    return executable;
  } catch (const Error& e) {
    finish(false);
    throw Error(e.kind(), str("[", record.what, "] ", e.what(), record.where.empty() ? "" : ", at ", record.where));
  }
}

}  // namespace

std::atomic<int> compile_forbidden{0};

Stats& Stats::get() {
  static Stats& s = *new Stats;
  return s;
}

std::vector<Compiled> compile_all(const pjrt::Client& client, std::vector<Request> requests) {
  std::vector<Compiled> made(requests.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) {
      try {
        made[i].executable = compile_one(client, requests[i]);
      } catch (...) {
        made[i].error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const size_t threads = std::min<size_t>({requests.size(), std::thread::hardware_concurrency(), kMostThreads});
    try {
      while (helpers.size() + 1 < threads) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // The system has no more threads for us: those that there are do it.
    }
    work();
  }
  for (Request& r : requests)
    if (r.record.started >= 0) add(std::move(r.record));
  return made;
}

bool is_full(int percent) {
  constexpr int64_t kOfOne = 256;       // of a graph of 64 calls
  static std::atomic<int64_t> room{0};  // programs to compile before the next look
  if (room.fetch_sub(1) > 1) return false;
  int64_t limit = 0, maps = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> limit)) limit = std::numeric_limits<int64_t>::max();
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) maps += 1;
  room = (limit / 100 * kFree - maps) / kOfOne;
  return maps > limit / 100 * percent;
}

std::unique_ptr<pjrt::Executable> compile(const pjrt::Client& client, Request request) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  Compiled made = std::move(compile_all(client, std::move(one)).front());
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.executable);
}

std::string key_of(const pjrt::Client& client, const Request& request) {
  return str(identity_of(client), "\n", options_of(client, request).serialize(), "\n", request.text);
}

void offer_program(std::string key, std::string bytes) {
  Offers& o = Offers::get();
  const std::lock_guard lock(o.mutex);
  o.programs.insert_or_assign(std::move(key), std::move(bytes));
  o.any = true;
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
