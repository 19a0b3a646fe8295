// The key of a call: 64-bit words that say everything the program depends on (operator, dtypes, shapes, view geometry,
// static arguments) and nothing it does not (values). Built without allocation in the usual case.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace tpj::compile {

class KeyBuilder {
 public:
  void clear() { words_.clear(); }  // keeps the memory
  void word(uint64_t w) { words_.push_back(w); }
  void word(int64_t w) { words_.push_back(static_cast<uint64_t>(w)); }
  void word(const void* p) { words_.push_back(reinterpret_cast<uintptr_t>(p)); }
  void real(double d) { words_.push_back(std::bit_cast<uint64_t>(d)); }
  void text(std::string_view s) {
    words_.push_back(s.size());
    for (size_t i = 0; i < s.size(); i += 8) {
      uint64_t w = 0;
      std::memcpy(&w, s.data() + i, std::min<size_t>(8, s.size() - i));
      words_.push_back(w);
    }
  }
  const std::vector<uint64_t>& words() const { return words_; }
  uint64_t hash() const { return hash_words(words_.data(), words_.size()); }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace tpj::compile
