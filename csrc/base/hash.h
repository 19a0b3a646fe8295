// A 64-bit hash over words, for in-memory tables (always verified by full comparison).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpj {

inline uint64_t mix(uint64_t h, uint64_t word) {
  // One round of multiply-fold (the 128-bit product folded to 64 bits).
  const unsigned __int128 p = static_cast<unsigned __int128>(h ^ word) * 0x9E3779B97F4A7C15ull;
  return static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64);
}

inline uint64_t hash_words(const uint64_t* words, size_t n) {
  uint64_t h = 0x243F6A8885A308D3ull ^ n;
  for (size_t i = 0; i < n; ++i) h = mix(h, words[i]);
  return mix(h, n);
}

}  // namespace tpj
