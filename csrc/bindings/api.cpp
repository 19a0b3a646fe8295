#include "bindings/api.h"

#include "compile/compiler.h"
#include "eager/op_kernel.h"
#include "eager/register.h"
#include "exec/queue.h"
#include "exec/run.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/guard.h"

namespace tpj::bindings {

void register_all(const BackendConfig& c) {
  runtime::PluginConfig config;
  config.device_name = c.device_name;
  config.spec_name = c.spec_name;
  config.path = c.path;
  config.missing = c.missing;
  config.create_options = c.create_options;
  config.compile_overrides = c.compile_overrides;
  config.override_operations = c.override_operations;
  config.caps = c.caps;
  runtime::configure(std::move(config));
  runtime::register_device();
  eager::register_operators();
}

std::vector<std::pair<std::string, int64_t>> integer_stats() {
  runtime::Ledger::Account all;
  for (int d = 0; runtime::is_initialized() && d < runtime::device_count(); ++d) {
    const auto a = runtime::Ledger::get().account(d);
    all.current += a.current;
    all.peak += a.peak;
    all.count += a.count;
  }
  int64_t fallback_calls = 0;
  for (const auto& [name, n] : eager::fallbacks()) fallback_calls += n;
  return {
      {"compiles", compile::Stats::get().compiles},
      {"disk_hits", compile::Stats::get().disk_hits},
      {"hits", compile::Stats::get().hits},
      {"decomposed", compile::Stats::get().decomposed},
      {"programs", static_cast<int64_t>(eager::programs().size())},
      {"fallbacks", fallback_calls},
      {"live_bytes", all.current},
      {"peak_bytes", all.peak},
      {"live_buffers", all.count},
  };
}

double compile_seconds() { return 1e-9 * static_cast<double>(compile::Stats::get().compile_nanoseconds); }

void reset_stats() {
  compile::Stats::get().compiles = 0;
  compile::Stats::get().disk_hits = 0;
  compile::Stats::get().hits = 0;
  compile::Stats::get().decomposed = 0;
  compile::Stats::get().compile_nanoseconds = 0;
  compile::clear_compile_log();
  eager::reset_fallbacks();
}

std::map<std::string, int64_t> fallback_table() { return eager::fallbacks(); }
std::vector<std::pair<std::string, std::string>> row_table() { return eager::registered_rows(); }

void set_is_printing(bool (*hook)()) { eager::set_is_printing(hook); }

std::vector<LogEntry> compile_entries() {
  std::vector<LogEntry> out;
  for (const compile::CompileRecord& r : compile::compile_log())
    out.push_back({r.what, r.reason, r.where, r.started, r.seconds});
  return out;
}

int count_devices() { return runtime::device_count(); }
bool available() { return runtime::is_available(); }
bool initialized() { return runtime::is_initialized(); }
bool bad_fork() { return runtime::in_bad_fork(); }
void initialize() { runtime::client(); }

ClientInfo client_info() {
  const pjrt::Client& c = runtime::client();
  ClientInfo info;
  info.plugin = c.plugin().name();
  info.path = c.plugin().path();
  info.api_minor = c.plugin().api_minor();
  info.platform = c.platform_name();
  info.platform_version = c.platform_version();
  for (int i = 0; i < c.device_count(); ++i) info.devices.push_back(c.device_kind(i));
  for (const pjrt::CapInfo& cap : pjrt::list(c.caps())) info.caps.emplace_back(cap.name, cap.value, cap.help);
  return info;
}

void flush() {
  runtime::translate([] { exec::flush_all(); });
}
std::vector<std::pair<std::string, std::string>> programs_of_traced(int64_t number) {
  return eager::traced_programs(number);
}
void offer(std::string key, std::string bytes) { compile::offer_program(std::move(key), std::move(bytes)); }
void change_forbidden(int delta) { compile::compile_forbidden += delta; }
double bench_last(int n) {
  return runtime::translate([&] { return exec::bench_last_program(n); });
}

void start_meter() {
  thread_local exec::Meter meter;
  meter = {};
  exec::t_meter = &meter;
}

MeterReading stop_meter() {
  MeterReading r;
  if (const exec::Meter* m = std::exchange(exec::t_meter, nullptr)) r = {m->calls, m->kernel, m->flush, m->plugin};
  return r;
}

}  // namespace tpj::bindings
