#include "pjrt/compile_options.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "base/errors.h"

namespace tpj::pjrt {
namespace {

// Just enough of the protobuf wire format: varints, 64-bit values and length-delimited fields.
class Message {
 public:
  void integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void boolean(int field, bool value) { integer(field, value ? 1 : 0); }
  void float64(int field, double value) {
    tag(field, 1);
    auto bits = std::bit_cast<uint64_t>(value);
    for (int i = 0; i < 8; ++i, bits >>= 8) bytes_.push_back(static_cast<char>(bits & 0xff));
  }
  void text(int field, const std::string& value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  void integers(int field, const std::vector<int64_t>& values) {
    Message packed;
    for (const int64_t v : values) packed.varint(static_cast<uint64_t>(v));
    message(field, packed);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void tag(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// OptionOverrideProto
Message encode(const Option& value) {
  Message m;
  if (const auto* s = std::get_if<std::string>(&value)) m.text(1, *s);
  if (const auto* b = std::get_if<bool>(&value)) m.boolean(2, *b);
  if (const auto* i = std::get_if<int64_t>(&value)) m.integer(3, *i);
  if (const auto* d = std::get_if<double>(&value)) m.float64(4, *d);
  return m;
}

// DeviceAssignmentProto: one list of replica devices per partition.
Message encode_assignment(const CompileOptions& o) {
  Message m;
  m.integer(1, o.num_replicas);
  m.integer(2, o.num_partitions);
  for (int p = 0; p < o.num_partitions; ++p) {
    std::vector<int64_t> replicas;
    for (int r = 0; r < o.num_replicas; ++r)
      replicas.push_back(o.device_assignment[static_cast<size_t>(r) * o.num_partitions + p]);
    Message computation;
    computation.integers(1, replicas);
    m.message(3, computation);
  }
  return m;
}

// ExecutableBuildOptionsProto
Message encode_build_options(const CompileOptions& o) {
  Message m;
  m.integer(1, -1);  // device_ordinal: unset, which is not the protobuf default
  m.integer(4, o.num_replicas);
  m.integer(5, o.num_partitions);
  if (o.spmd) m.boolean(6, true);
  if (!o.device_assignment.empty()) m.message(9, encode_assignment(o));
  if (o.shardy) m.boolean(19, true);
  return m;
}

[[noreturn]] void refuse(const std::string& what) { fail(ErrorKind::kValue, "[CompileOptions] ", what); }

}  // namespace

void CompileOptions::validate() const {
  if (num_replicas < 1) refuse(str("num_replicas must be at least 1, got ", num_replicas));
  if (num_partitions < 1) refuse(str("num_partitions must be at least 1, got ", num_partitions));
  if (int64_t{num_replicas} * num_partitions > std::numeric_limits<int>::max())
    refuse(str(num_replicas, " replicas of ", num_partitions, " partitions are more devices than can be counted"));
  if (num_partitions > 1 && !spmd) refuse(str("num_partitions = ", num_partitions, " needs spmd = true"));
  if (!device_assignment.empty()) {
    if (device_assignment.size() != static_cast<size_t>(num_devices()))
      refuse(str("device_assignment has ", device_assignment.size(), " ids for ", num_replicas, " replicas x ",
                 num_partitions, " partitions"));
    std::vector<int64_t> ids = device_assignment;
    std::sort(ids.begin(), ids.end());
    if (ids.front() < 0) refuse(str("negative device id ", ids.front(), " in device_assignment"));
    if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end())
      refuse(str("device id ", *twice, " appears twice in device_assignment"));
  }
  std::map<std::string, int> seen;
  for (const auto& [name, value] : env_overrides) {
    if (name.empty()) refuse("an env override has no name");
    if (std::holds_alternative<std::vector<int64_t>>(value)) refuse(str("env override ", name, " cannot be a list"));
    if (seen[name]++ != 0) refuse(str("env override ", name, " is given twice"));
  }
}

std::string CompileOptions::serialize() const {
  validate();
  Message m;
  m.message(3, encode_build_options(*this));
  if (is_portable()) m.boolean(4, true);
  // A map has no order of its own: sorted, so that equal options are equal bytes.
  const std::map<std::string, Option> sorted(env_overrides.begin(), env_overrides.end());
  for (const auto& [name, value] : sorted) {
    Message entry;
    entry.text(1, name);
    entry.message(2, encode(value));
    m.message(7, entry);
  }
  return m.take();
}

}  // namespace tpj::pjrt
