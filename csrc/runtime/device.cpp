#include "runtime/device.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "runtime/errors.h"

namespace tpj::runtime {
namespace {

struct State {
  PluginConfig config;
  std::mutex mutex;
  std::atomic<const pjrt::Client*> client{nullptr};
  std::shared_ptr<pjrt::Client> owner;
  std::atomic<bool> bad_fork{false};
};

State& state() {
  static State& s = *new State;  // never destroyed, see the header
  return s;
}

thread_local int t_current_device = 0;

void check_fork() {
  TORCH_CHECK(!state().bad_fork,
              "Cannot re-initialize PJRT in forked subprocess. To use PJRT with multiprocessing, you must use the "
              "'spawn' start method");
}

}  // namespace

void configure(PluginConfig config) { state().config = std::move(config); }
const PluginConfig& config() { return state().config; }

const pjrt::Client& client() {
  State& s = state();
  if (s.bad_fork) [[unlikely]]
    check_fork();
  if (const pjrt::Client* c = s.client.load(std::memory_order_acquire)) [[likely]]
    return *c;
  const std::lock_guard lock(s.mutex);
  if (const pjrt::Client* c = s.client.load()) return *c;
  TORCH_CHECK(s.config.missing.empty(), s.config.missing);
  translate([&] {
    s.owner = pjrt::Client::create(pjrt::Plugin::load(s.config.path), s.config.create_options, s.config.caps);
    TPJ_CHECK(s.owner->device_count() > 0, "plugin ", s.config.path, " has no device for this process");
  });
  pthread_atfork(nullptr, nullptr, [] { state().bad_fork = true; });
  s.client.store(s.owner.get(), std::memory_order_release);
  return *s.owner;
}

bool is_initialized() { return state().client.load() != nullptr; }
bool in_bad_fork() { return state().bad_fork; }

int device_count() noexcept {
  try {
    return state().config.missing.empty() ? client().device_count() : 0;
  } catch (...) {
    return 0;
  }
}

bool is_available() noexcept {
  const PluginConfig& c = config();
  return c.missing.empty() && !c.path.empty() && access(c.path.c_str(), R_OK) == 0;
}

int current_device() { return t_current_device; }

void set_current_device(int index) {
  if (index == t_current_device) return;
  const int count = client().device_count();
  TORCH_CHECK(index >= 0 && index < count, "invalid device index ", index, ": ", config().device_name, " has ", count,
              " device(s)");
  t_current_device = index;
}

void unchecked_set_current_device(int index) noexcept { t_current_device = index; }

}  // namespace tpj::runtime
