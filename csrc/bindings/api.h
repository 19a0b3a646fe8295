// What module.cpp may ask of the torch half. Two translation units, because Python's headers and the precompiled torch
// header do not go together (facts: it would slow every kernel file).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "pjrt/caps.h"
#include "pjrt/named_value.h"

namespace tpj::bindings {

struct BackendConfig {
  std::string device_name, spec_name, path, missing;
  pjrt::Options create_options, compile_overrides;
  std::vector<std::string> override_operations;
  pjrt::CapOverrides caps;
};
void register_all(const BackendConfig& config);
void set_is_printing(bool (*hook)());

std::vector<std::pair<std::string, int64_t>> integer_stats();
double compile_seconds();
void reset_stats();
std::map<std::string, int64_t> fallback_table();
std::vector<std::pair<std::string, std::string>> row_table();

struct LogEntry {
  std::string what, reason, where;
  double started, seconds;
};
std::vector<LogEntry> compile_entries();

int count_devices();
bool available();
bool initialized();
bool bad_fork();
void initialize();

struct ClientInfo {
  std::string plugin, path, platform, platform_version;
  int api_minor;
  std::vector<std::string> devices;
  std::vector<std::tuple<std::string, std::string, std::string>> caps;
};
ClientInfo client_info();

// What is noted runs now (TORCH_PJRT_EAGER=fused). Not with the interpreter's lock held.
void flush();
std::vector<std::pair<std::string, std::string>> programs_of_traced(int64_t number);
void offer(std::string key, std::string bytes);
void change_forbidden(int delta);
double bench_last(int n);
struct MeterReading {
  int64_t calls = 0, kernel_ns = 0, flush_ns = 0, plugin_ns = 0;
};
void start_meter();
MeterReading stop_meter();

// tracer.cpp: decompositions are traced by torch_pjrt._decompose.
void install_tracer();

// user_line.cpp: compile records name the user's line.
void install_user_line();

}  // namespace tpj::bindings
