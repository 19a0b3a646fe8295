#include "base/flags.h"

#include <cstdlib>

#include "base/errors.h"

namespace tpj {
namespace {

void parse(const char* name, const std::string& text, std::string& out) {
  const bool known = name != std::string("EAGER") || text == "strict" || text == "fused" || text == "debug";
  const bool fallback = name != std::string("FALLBACK") || text == "warn" || text == "silent" || text == "error";
  if (!known) fail(ErrorKind::kValue, "TORCH_PJRT_EAGER must be strict, fused or debug, got '", text, "'");
  if (!fallback) fail(ErrorKind::kValue, "TORCH_PJRT_FALLBACK must be warn, silent or error, got '", text, "'");
  const bool sizes = name != std::string("SIZES") || text == "bounded" || text == "exact";
  if (!sizes) fail(ErrorKind::kValue, "TORCH_PJRT_SIZES must be bounded or exact, got '", text, "'");
  out = text;
}

void parse(const char* name, const std::string& text, int64_t& out) {
  char* end = nullptr;
  const long long v = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || v < 1)
    fail(ErrorKind::kValue, "TORCH_PJRT_", name, " must be a positive integer, got '", text, "'");
  out = v;
}

std::string show(const std::string& v) { return v; }
std::string show(int64_t v) { return std::to_string(v); }

Flags& mutable_flags() {
  static Flags f = [] {
    Flags init;
#define X(name, type, def, help) \
  if (const char* env = std::getenv("TORCH_PJRT_" #name); env && *env) parse(#name, env, init.name);
    TPJ_FLAGS(X)
#undef X
    return init;
  }();
  return f;
}

}  // namespace

const Flags& flags() {
  static const Flags& f = mutable_flags();
  return f;
}

void set_flag(const std::string& name, const std::string& value) {
#define X(flag, type, def, help) \
  if (name == #flag) return parse(#flag, value, mutable_flags().flag);
  TPJ_FLAGS(X)
#undef X
  fail(ErrorKind::kValue, "no flag named '", name, "'");
}

std::vector<FlagInfo> list_flags() {
  return {
#define X(name, type, def, help) {"TORCH_PJRT_" #name, show(flags().name), help},
      TPJ_FLAGS(X)
#undef X
  };
}

}  // namespace tpj
