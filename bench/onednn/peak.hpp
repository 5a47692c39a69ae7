// SPDX-License-Identifier: BSL-1.0
//
// The fused multiply-adds that the cores can do at most, measured.
#pragma once

#include <time.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "gradus/simd/isa.hpp"

namespace bench {

/// Seconds for 12 chains (24 with AVX-512) of `count` dependent multiply-adds of vectors, and the operations of one.
struct chains {
  double seconds;
  double operations;
};

// A chain's operands stay in registers: nothing but the multiply-adds can be the limit.
#define BENCH_PEAK_CHAINS(name, target_text, bytes, chain_count)                                                      \
  __attribute__((target_text)) inline chains name(long count) {                                                       \
    typedef float vector __attribute__((vector_size(bytes)));                                                         \
    vector sums[chain_count];                                                                                         \
    for (vector & sum : sums) {                                                                                       \
      sum = vector{} + 1.0F;                                                                                          \
    }                                                                                                                 \
    vector factor = vector{} + 0.999F;                                                                                \
    vector term = vector{} + 0.001F;                                                                                  \
    asm volatile("" : "+x"(factor), "+x"(term));                                                                      \
    timespec begin{};                                                                                                 \
    timespec end{};                                                                                                   \
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);                                                                   \
    for (long i = 0; i < count; ++i) {                                                                                \
      _Pragma("GCC unroll 24") for (int j = 0; j < chain_count; ++j) {                                                \
        sums[j] = sums[j] * factor + term;                                                                            \
      }                                                                                                               \
    }                                                                                                                 \
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);                                                                     \
    vector all = sums[0];                                                                                             \
    for (int j = 1; j < chain_count; ++j) {                                                                           \
      all += sums[j];                                                                                                 \
    }                                                                                                                 \
    volatile float used = all[0];                                                                                     \
    static_cast<void>(used);                                                                                          \
    return {static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec), \
            2.0 * chain_count * static_cast<double>(bytes / 4) * static_cast<double>(count)};                         \
  }

#if defined(__x86_64__)
BENCH_PEAK_CHAINS(avx2_chains, target("avx2,fma"), 32, 12)
BENCH_PEAK_CHAINS(avx512_chains, target("avx512f"), 64, 24)
BENCH_PEAK_CHAINS(portable_chains, target("sse2"), 16, 12)
#endif
#undef BENCH_PEAK_CHAINS

/// GFLOP/s in float of `threads` threads with the current instruction set, in processor time; the best of several
/// tries, so that other work on the machine does not count.
inline double peak_gflops(int threads) {
  const auto best_of_one = [] {
    double best = 0;
    for (int repeat = 0; repeat < 40; ++repeat) {
      const auto set = gradus::kernels::current_instruction_set();
      const chains result = set >= gradus::kernels::instruction_set::avx512 ? avx512_chains(400000)
                            : set == gradus::kernels::instruction_set::avx2 ? avx2_chains(400000)
                                                                            : portable_chains(400000);
      best = std::max(best, 1e-9 * result.operations / result.seconds);
    }
    return best;
  };
  std::vector<double> results(static_cast<std::size_t>(threads));
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < results.size(); ++i) {
    others.emplace_back([&, i] { results[i] = best_of_one(); });
  }
  results[0] = best_of_one();
  for (std::thread& other : others) {
    other.join();
  }
  double sum = 0;
  for (const double result : results) {
    sum += result;
  }
  return sum;
}

}  // namespace bench
