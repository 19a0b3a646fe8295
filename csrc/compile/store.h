// Programs on disk, shared by processes: content-addressed files in one folder.
//
// An entry is read only if it is whole: it holds its full key and a checksum of everything. It appears by a rename, so
// that a process that dies while it writes leaves nothing to find. What cannot be read or written is a miss, said once.
// Any thread may call; any number of processes may share a folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tpj::compile {

class Store {
 public:
  // Makes the folder, for its owner alone. `limit`: bytes of all entries; the least recently used ones go first.
  Store(std::filesystem::path folder, int64_t limit);

  // The value, or nothing. A damaged entry is removed.
  std::optional<std::string> get(std::string_view key);
  void put(std::string_view key, std::string_view value);
  // After a value turned out to be of no use.
  void remove(std::string_view key);

  // Empty, or why the folder is not used (any more).
  const char* problem() const { return problem_.load(); }

 private:
  std::filesystem::path path_of(std::string_view key) const;
  void give_up(const char* what, const std::string& why);
  void make_room();

  std::filesystem::path folder_;
  int64_t limit_;
  std::atomic<int64_t> bytes_{-1};  // by this process's knowledge; -1: not counted yet
  std::atomic<const char*> problem_{nullptr};
  std::atomic<bool> read_only_{false};
};

// As zlib's; torch_pjrt/cache.py checks entries with that one.
uint32_t crc32(std::string_view bytes, uint32_t start = 0);

}  // namespace tpj::compile
