// SPDX-License-Identifier: BSL-1.0
//
// What a thread does with denormal numbers, and how it rounds.
#pragma once

#include <cstdint>  // std::uint32_t, std::uint64_t

#include "gradus/core/config.hpp"

namespace gradus {

namespace detail {

/// The control register of a thread's floating-point unit, and its bits that change the result of a sum or a product.
struct floating_point_register {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
  using word = std::uint32_t;
  static constexpr bool known = true;
  static constexpr word flush = 0x8040;     // MXCSR: FTZ for results, DAZ for operands
  static constexpr word rounding = 0x6000;  // 0: to nearest
  static constexpr word status = 0x3f;      // exceptions that have occurred
  [[nodiscard]] static word read() noexcept {
    word value = 0;
    __asm__ __volatile__("stmxcsr %0" : "=m"(value) : : "memory");
    return value;
  }
  static void write(word value) noexcept {
    __asm__ __volatile__("ldmxcsr %0" : : "m"(value) : "memory");
  }
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
  using word = std::uint64_t;
  static constexpr bool known = true;
  static constexpr word flush = word{1} << 24U;     // FPCR: FZ, for operands and results
  static constexpr word rounding = word{3} << 22U;  // 0: to nearest
  static constexpr word status = 0;                 // FPSR has it
  [[nodiscard]] static word read() noexcept {
    word value = 0;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
  }
  static void write(word value) noexcept {
    __asm__ __volatile__("msr fpcr, %0" : : "r"(value) : "memory");
  }
#else
  using word = std::uint32_t;
  static constexpr bool known = false;
  static constexpr word flush = 0;
  static constexpr word rounding = 0;
  static constexpr word status = 0;
  [[nodiscard]] static word read() noexcept {
    return 0;
  }
  static void write(word /*value*/) noexcept {}
#endif
};

}  // namespace detail

/// Whether the library can make this processor take denormal numbers as 0: x86-64 and AArch64.
inline constexpr bool can_flush_denormals = detail::floating_point_register::known;

/// Whether the calling thread takes denormal numbers as 0, as operands and as results.
[[nodiscard]] inline bool flushes_denormals() noexcept {
  using control = detail::floating_point_register;
  return can_flush_denormals && (control::read() & control::flush) == control::flush;
}

/// From construction to destruction, the calling thread rounds to nearest and keeps denormal numbers, or takes them as
/// 0. Then it does what it did before. Exceptions that have occurred stay noted, and traps stay as they are.
///
/// Denormal numbers are those between 0 and the smallest normal number: 1.2e-38 for float, 2.2e-308 for double. It
/// costs a few cycles where the thread does so already, and some tens otherwise. On processors that can_flush_denormals
/// excludes it does nothing.
class floating_point_scope {
 public:
  /// @param flush_denormals  true: they are 0
  explicit floating_point_scope(bool flush_denormals) noexcept : before_{control::read()} {
    const control::word wanted =
        (before_ & ~(control::flush | control::rounding)) | (flush_denormals ? control::flush : control::word{0});
    changes_ = wanted != before_;
    if (changes_) {
      control::write(wanted);
    }
  }
  floating_point_scope(const floating_point_scope&) = delete;
  floating_point_scope& operator=(const floating_point_scope&) = delete;
  ~floating_point_scope() {
    if (changes_) {
      control::write((before_ & ~control::status) | (control::read() & control::status));
    }
  }

 private:
  using control = detail::floating_point_register;

  control::word before_;
  bool changes_ = false;
};

}  // namespace gradus
