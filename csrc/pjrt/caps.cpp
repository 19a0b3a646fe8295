#include "pjrt/caps.h"

#include <charconv>

namespace tpj::pjrt {
namespace {

// "1.20.0" from the attribute [1, 20, 0]; empty when absent.
std::string version_attribute(const Plugin& plugin, const char* name) {
  const auto it = plugin.attributes().find(name);
  if (it == plugin.attributes().end()) return "";
  const auto* parts = std::get_if<std::vector<int64_t>>(&it->second);
  if (parts == nullptr) return show(it->second);
  std::string out;
  for (const int64_t part : *parts) out += (out.empty() ? "" : ".") + std::to_string(part);
  return out;
}

[[noreturn]] void bad_value(const std::string& name, const std::string& text, const char* wanted) {
  fail(ErrorKind::kValue, "[Client::create] capability ", name, " wants ", wanted, ", got '", text, "'");
}

void parse(const std::string& name, const std::string& text, bool& out) {
  if (text != "true" && text != "false") bad_value(name, text, "true or false");
  out = text == "true";
}

void parse(const std::string& name, const std::string& text, int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) bad_value(name, text, "an integer");
}

void parse(const std::string&, const std::string& text, std::string& out) { out = text; }

// What the plugin lacks cannot be switched on.
void parse_detected(const std::string& name, const std::string& text, bool& out) {
  bool wanted = false;
  parse(name, text, wanted);
  if (wanted && !out)
    fail(ErrorKind::kValue, "[Client::create] capability ", name,
         " cannot be switched on: the plugin does not have it");
  out = wanted;
}

void override_cap(Caps& caps, const std::string& name, const std::string& text) {
#define DETECTED(cap, ...) \
  if (name == #cap) return parse_detected(name, text, caps.cap);
#define VALUE(cap, ...) \
  if (name == #cap) return parse(name, text, caps.cap);
  TPJ_CAPS(DETECTED, DETECTED, VALUE)
#undef DETECTED
#undef VALUE
  fail(ErrorKind::kValue, "[Client::create] no capability is named '", name, "'");
}

std::string text(bool v) { return v ? "true" : "false"; }
std::string text(int64_t v) { return std::to_string(v); }
std::string text(const std::string& v) { return v; }

}  // namespace

Caps detect_caps(const Plugin& plugin, const CapOverrides& overrides) {
  Caps caps;
#define SLOT(name, function, help) caps.name = TPJ_PJRT_HAS(plugin.api(), function);
#define EXTENSION(name, type, help) caps.name = plugin.find_extension(PJRT_Extension_Type_##type) != nullptr;
#define VALUE(name, ...)
  TPJ_CAPS(SLOT, EXTENSION, VALUE)
#undef SLOT
#undef EXTENSION
#undef VALUE
  caps.api_minor = plugin.api_minor();
  caps.stablehlo_version = version_attribute(plugin, "stablehlo_current_version");
  caps.stablehlo_minimum = version_attribute(plugin, "stablehlo_minimum_version");
  for (const auto& [name, value] : overrides) override_cap(caps, name, value);
  return caps;
}

Limits Caps::limits() const {
  Limits out;
#define VALUE(name, ...) out.name = name;
  TPJ_LIMITS(VALUE)
#undef VALUE
  return out;
}

std::vector<CapInfo> list(const Caps& caps) {
  return {
#define DETECTED(name, source, help) {#name, text(caps.name), help},
#define VALUE(name, type, def, help) {#name, text(caps.name), help},
      TPJ_CAPS(DETECTED, DETECTED, VALUE)
#undef DETECTED
#undef VALUE
  };
}

}  // namespace tpj::pjrt
