// SPDX-License-Identifier: BSL-1.0
//
// Threads that compute as those of a training do, and count how much.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace driver {

/// They compute from construction to destruction, on data of the first-level cache, without any wait.
class computing_threads {
 public:
  explicit computing_threads(int count) : counts_(static_cast<std::size_t>(count)) {
    for (auto& each : counts_) {
      threads_.emplace_back([&each, this] { compute(each.value); });
    }
  }
  ~computing_threads() {
    ends_.store(true, std::memory_order_relaxed);
    for (std::thread& each : threads_) {
      each.join();
    }
  }
  computing_threads(const computing_threads&) = delete;
  computing_threads& operator=(const computing_threads&) = delete;

  /// Rounds of all threads until now.
  [[nodiscard]] std::uint64_t rounds() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& each : counts_) {
      sum += each.value.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  struct alignas(64) counter {
    std::atomic<std::uint64_t> value{0};
  };

  void compute(std::atomic<std::uint64_t>& count) const noexcept {
    std::array<float, 1024> values{};
    while (!ends_.load(std::memory_order_relaxed)) {
      for (float& each : values) {
        each = each * 0.999F + 1.0F;
      }
      asm volatile("" : : "r"(values.data()) : "memory");  // the values are used
      count.fetch_add(1, std::memory_order_relaxed);
    }
  }

  std::vector<counter> counts_;
  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

/// Rounds a second of something that counts, while `work` runs.
template <class Work>
double rounds_a_second(const computing_threads& of, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t before = of.rounds();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(of.rounds() - before) / took.count();
}

}  // namespace driver
