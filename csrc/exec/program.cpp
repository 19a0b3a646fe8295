#include "exec/program.h"

#include <algorithm>

#include "runtime/device.h"

namespace tpj::exec {

pjrt::TensorType type_of(const Param& p) {
  if (p.kind == Param::Kind::kCell) return {p.type->dtype, p.type->dims};
  return {p.dtype, p.kind == Param::Kind::kRng ? std::vector<int64_t>{2} : std::vector<int64_t>()};
}

compile::Request Program::request() const {
  const runtime::PluginConfig& c = runtime::config();
  const bool overridden = c.override_operations.empty() ||
                          std::any_of(c.override_operations.begin(), c.override_operations.end(), [&](const auto& op) {
                            return text.find("\"stablehlo." + op + "\"") != std::string::npos;
                          });
  compile::Request out{text, {}, overridden ? c.compile_overrides : pjrt::Options(), record};
  for (const Param& p : params) out.parameters.push_back(type_of(p));
  return out;
}

namespace {

// Programs that have an executable.
struct Loaded {
  std::mutex mutex;
  std::vector<const Program*> programs;

  static Loaded& get() {
    static Loaded& h = *new Loaded;
    return h;
  }
};

}  // namespace

void Program::keep(std::unique_ptr<pjrt::Executable> executable) const {
  owned_ = std::move(executable);
  compiled_.store(owned_.get());
  const std::lock_guard lock(Loaded::get().mutex);
  Loaded::get().programs.push_back(this);
}

void Program::set_executable(std::unique_ptr<pjrt::Executable> executable) const {
  const std::lock_guard lock(mutex_);
  if (!owned_) keep(std::move(executable));
}

const pjrt::Executable& Program::compiled() const {
  if (!is_compiled() && compile::is_full(compile::kFree)) free_oldest();
  const std::lock_guard lock(mutex_);
  if (!owned_) keep(compile::compile(runtime::client(), request()));
  return *owned_;
}

Program::Executable::Executable(const Program& program) : program_(program) {
  // The order matters to try_free: first counted, then read.
  program.users_.fetch_add(1);
  executable_ = program.compiled_.load();
  program.last_use_.store(compile::Stats::get().compiles.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (executable_ != nullptr) [[likely]]
    return;
  try {
    executable_ = &program.compiled();
  } catch (...) {
    program.users_.fetch_sub(1);
    throw;
  }
}

bool Program::try_free() const {
  // Who compiles holds the mutex, and may wait for the interpreter's lock: we do not wait for it.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  const pjrt::Executable* const executable = compiled_.exchange(nullptr);
  if (users_.load() != 0) {
    compiled_.store(executable);
    return false;
  }
  owned_.reset();
  return true;
}

void Program::free_oldest() {
  const std::lock_guard lock(Loaded::get().mutex);
  std::vector<const Program*>& all = Loaded::get().programs;
  std::vector<std::pair<int64_t, const Program*>> by_age;
  for (const Program* p : all) by_age.emplace_back(p->last_use_.load(std::memory_order_relaxed), p);
  std::sort(by_age.begin(), by_age.end());
  all.clear();
  for (size_t i = 0; i < by_age.size(); ++i)
    if (i > by_age.size() / 2 || !by_age[i].second->try_free()) all.push_back(by_age[i].second);
}

}  // namespace tpj::exec
