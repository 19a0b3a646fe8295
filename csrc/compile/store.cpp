#include "compile/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "base/hash.h"

namespace tpj::compile {
namespace {

namespace fs = std::filesystem;

// Before the key and the value; all numbers little-endian, as on every host there is.
struct Header {
  char magic[8];
  uint64_t key_size, value_size;
  uint32_t checksum;  // of key and value
  uint32_t reserved;
};
constexpr char kMagic[8] = {'T', 'P', 'J', 'P', 'R', 'O', 'G', '1'};
constexpr const char* kSuffix = ".program";

// A file name's worth of hash: the key itself is compared.
uint64_t hash_of(std::string_view bytes, uint64_t seed) {
  uint64_t h = seed ^ bytes.size();
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    h = mix(h, word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  return mix(mix(h, rest), seed);
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

  bool write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  std::optional<std::string> read(size_t size) const {
    std::string out(size, '\0');
    for (size_t done = 0; done < size;) {
      const ssize_t n = ::read(fd_, out.data() + done, size - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return std::nullopt;
      done += static_cast<size_t>(n);
    }
    return out;
  }

 private:
  int fd_;
};

// The value of an entry that is whole and has this key.
std::optional<std::string> parse(std::string_view bytes, std::string_view key) {
  Header h;
  if (bytes.size() < sizeof(h)) return std::nullopt;
  std::memcpy(&h, bytes.data(), sizeof(h));
  bytes.remove_prefix(sizeof(h));
  if (std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0) return std::nullopt;
  if (h.key_size != key.size() || h.value_size != bytes.size() - std::min<uint64_t>(bytes.size(), h.key_size))
    return std::nullopt;
  if (crc32(bytes) != h.checksum || bytes.substr(0, key.size()) != key) return std::nullopt;
  return std::string(bytes.substr(key.size()));
}

}  // namespace

uint32_t crc32(std::string_view bytes, uint32_t start) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~start;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

Store::Store(fs::path folder, int64_t limit) : folder_(std::move(folder)), limit_(limit) {
  std::error_code error;
  fs::create_directories(folder_.parent_path(), error);
  struct stat info{};
  if ((::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) || ::stat(folder_.c_str(), &info) != 0)
    give_up("cannot be used", std::strerror(errno));
  else if (!S_ISDIR(info.st_mode))
    give_up("is no folder", "");
  else if (info.st_uid != ::geteuid())  // whoever can write here can make us run their code
    give_up("belongs to another user", "");
  else if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    give_up("can be written by others (chmod go-w)", "");
}

void Store::give_up(const char* what, const std::string& why) {
  const char* none = nullptr;
  if (!problem_.compare_exchange_strong(none, what)) return;
  std::fprintf(stderr, "torch_pjrt: the program cache %s %s%s%s: programs are kept in memory only\n", folder_.c_str(),
               what, why.empty() ? "" : ": ", why.c_str());
}

fs::path Store::path_of(std::string_view key) const {
  char name[33];
  std::snprintf(name, sizeof(name), "%016llx%016llx",
                static_cast<unsigned long long>(hash_of(key, 0x243F6A8885A308D3ull)),
                static_cast<unsigned long long>(hash_of(key, 0x13198A2E03707344ull)));
  return folder_ / (std::string(name) + kSuffix);
}

std::optional<std::string> Store::get(std::string_view key) {
  if (problem_ != nullptr) return std::nullopt;
  const fs::path path = path_of(key);
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0 || info.st_uid != ::geteuid()) return std::nullopt;
  const std::optional<std::string> bytes = file.read(static_cast<size_t>(info.st_size));
  std::optional<std::string> value = bytes ? parse(*bytes, key) : std::nullopt;
  if (!value)
    ::unlink(path.c_str());
  else if (!read_only_)
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used just now
  return value;
}

void Store::put(std::string_view key, std::string_view value) {
  if (problem_ != nullptr || read_only_) return;
  static std::atomic<uint64_t> count{0};
  const fs::path path = path_of(key), temporary = folder_ / str(".", ::getpid(), "-", count.fetch_add(1), ".tmp");
  std::string bytes(sizeof(Header), '\0');
  bytes.append(key).append(value);
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  h.key_size = key.size(), h.value_size = value.size();
  h.checksum = crc32(std::string_view(bytes).substr(sizeof(h)));
  std::memcpy(bytes.data(), &h, sizeof(h));
  bool written = false;
  int error = 0;
  {
    const File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    written = file && file.write(bytes);
    error = errno;
  }
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = false, error = errno;
  if (!written) {
    ::unlink(temporary.c_str());
    // What is there may still be read.
    if (!read_only_.exchange(true))
      std::fprintf(stderr,
                   "torch_pjrt: cannot write to the program cache %s: %s: new programs are kept in memory only\n",
                   folder_.c_str(), std::strerror(error));
    return;
  }
  if (bytes_ < 0 || (bytes_ += static_cast<int64_t>(bytes.size())) > limit_) make_room();
}

void Store::remove(std::string_view key) { ::unlink(path_of(key).c_str()); }

void Store::make_room() {
  struct Entry {
    fs::path path;
    int64_t size;
    fs::file_time_type used;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, error)) {
    std::error_code gone;
    const fs::path& path = file.path();
    const auto used = file.last_write_time(gone);
    if (gone) continue;
    if (path.extension() == ".tmp") {  // of a process that died
      if (now - used > std::chrono::hours(1)) fs::remove(path, gone);
      continue;
    }
    if (path.extension() != kSuffix) continue;
    const auto size = static_cast<int64_t>(file.file_size(gone));
    if (gone) continue;
    entries.push_back({path, size, used});
    total += size;
  }
  if (total > limit_) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (const Entry& entry : entries) {
      if (total <= limit_ / 10 * 9) break;
      std::error_code gone;
      fs::remove(entry.path, gone);
      total -= entry.size;
    }
  }
  bytes_ = total;
}

}  // namespace tpj::compile
