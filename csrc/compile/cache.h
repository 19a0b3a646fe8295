// Program cache in memory: key words -> value. Lookups take no lock; an entry is never moved or removed, so that a
// pointer to a value stays good.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "compile/key.h"

namespace tpj::compile {

template <typename T>
class Cache {
 public:
  // nullptr on a miss.
  T* find(const std::vector<uint64_t>& words, uint64_t hash) const {
    for (const Entry* e = bucket(hash).load(std::memory_order_acquire); e; e = e->next)
      if (e->hash == hash && e->words == words) return e->value.get();
    return nullptr;
  }

  // The value now in the cache: `value`, or the one that another thread put there first.
  T* insert(const std::vector<uint64_t>& words, uint64_t hash, std::unique_ptr<T> value) {
    std::atomic<Entry*>& head = bucket(hash);
    auto* entry = new Entry{hash, words, std::move(value), head.load(std::memory_order_acquire)};
    do {
      if (T* first = find(words, hash)) {
        delete entry;
        return first;
      }
    } while (!head.compare_exchange_weak(entry->next, entry, std::memory_order_acq_rel));
    size_.fetch_add(1, std::memory_order_relaxed);
    return entry->value.get();
  }

  size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    uint64_t hash;
    std::vector<uint64_t> words;
    std::unique_ptr<T> value;
    Entry* next;
  };

  static constexpr size_t kBuckets = 1 << 14;
  std::atomic<Entry*>& bucket(uint64_t hash) const { return buckets_[hash % kBuckets]; }

  std::unique_ptr<std::atomic<Entry*>[]> buckets_ = std::make_unique<std::atomic<Entry*>[]>(kBuckets);
  std::atomic<size_t> size_{0};
};

}  // namespace tpj::compile
