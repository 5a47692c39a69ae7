// SPDX-License-Identifier: BSL-1.0
//
// Short waits for a value that another thread changes.
#pragma once

#include <atomic>  // std::atomic

#include "gradus/core/config.hpp"

namespace gradus {

/// Tells the processor that the thread spins, if it has an instruction for that.
inline void pause_processor() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until arrived(value) is true, and returns this value. Spins for 50 to 100 microseconds. Then it calls
/// sleep(value), which returns when the value has changed.
template <class Value, class Arrived, class Sleep>
Value spin_then_sleep(const std::atomic<Value>& value, const Arrived& arrived, const Sleep& sleep) {
  constexpr int spin_limit = 4000;
  Value seen = value.load(std::memory_order_acquire);
  for (int spins = 0; !arrived(seen); ++spins) {
    if (spins < spin_limit) {
      pause_processor();
    } else {
      sleep(seen);
    }
    seen = value.load(std::memory_order_acquire);
  }
  return seen;
}

/// The same for a value whose writers notify: the thread sleeps until they do.
template <class Value, class Arrived>
Value spin_then_sleep(const std::atomic<Value>& value, const Arrived& arrived) {
  return gradus::spin_then_sleep(value, arrived, [&](Value seen) { value.wait(seen, std::memory_order_acquire); });
}

}  // namespace gradus
