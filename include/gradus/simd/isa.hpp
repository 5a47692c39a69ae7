// SPDX-License-Identifier: BSL-1.0
//
// The instruction set of the CPU kernels: detected at run time, or chosen.
#pragma once

#include <atomic>       // std::atomic
#include <cstdlib>      // std::getenv
#include <string>       // std::string
#include <string_view>  // std::string_view

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "gradus/core/config.hpp"
#include "gradus/core/cpuid.hpp"
#include "gradus/core/error.hpp"

namespace gradus::kernels {

/// Instruction sets of the kernels. A program contains the code for all of them, whatever its compiler options, unless
/// GRADUS_PORTABLE_KERNELS is defined.
enum class instruction_set : unsigned char {
  portable,     ///< vectors of 16 bytes with the instructions that the compiler may use anyway: SSE2, NEON, ...
  avx2,         ///< vectors of 32 bytes, fused multiply-add (AVX2, FMA, F16C: x86-64-v3)
  avx512,       ///< vectors of 64 bytes (AVX-512 F, BW, DQ and VL: x86-64-v4)
  avx512_bf16,  ///< avx512 and products of pairs of bfloat16 (AVX512-BF16), which treat subnormal numbers as 0
  amx_bf16,     ///< avx512_bf16 and products of whole tiles of pairs (AMX-BF16), which treat subnormal numbers as 0
  amx_fp16,     ///< amx_bf16 and products of tiles of pairs of float16 (AMX-FP16), whose subnormal sums are 0
};

/// The name of an instruction set: "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16" or "amx_fp16".
[[nodiscard]] constexpr std::string_view name_of(instruction_set which) noexcept {
  switch (which) {
    case instruction_set::avx2:
      return "avx2";
    case instruction_set::avx512:
      return "avx512";
    case instruction_set::avx512_bf16:
      return "avx512_bf16";
    case instruction_set::amx_bf16:
      return "amx_bf16";
    case instruction_set::amx_fp16:
      return "amx_fp16";
    default:
      return "portable";
  }
}

namespace detail {

/// Asks the operating system for the registers of tiles, which a process has only on request (Linux 5.16). False: this
/// processor or this system does not have them.
[[nodiscard]] inline bool obtain_tile_registers() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned tiles_of_bf16 = 1U << 22U | 1U << 24U;  // AMX-BF16 and AMX-TILE
  constexpr unsigned osxsave = 1U << 27U;
  if ((cpuid_leaf{1}.c & osxsave) == 0 || (cpuid_leaf{7}.d & tiles_of_bf16) != tiles_of_bf16) {
    return false;
  }
  unsigned enabled = 0;
  __asm__("xgetbv" : "=a"(enabled) : "c"(0) : "edx");
  constexpr unsigned tile_state = 3U << 17U;  // configuration and data
  constexpr long request_permission = 0x1023;
  constexpr long tile_data = 18;
  return (enabled & tile_state) == tile_state && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

/// As obtain_tile_registers, which is asked once in a process.
[[nodiscard]] inline bool has_tile_registers() noexcept {
  static const bool obtained = obtain_tile_registers();
  return obtained;
}

}  // namespace detail

/// True if this processor and its operating system can run the instructions.
[[nodiscard]] inline bool is_available(instruction_set which) noexcept {
#if defined(GRADUS_X86_KERNELS)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
  switch (which) {
    case instruction_set::avx2:
      return avx2;
    case instruction_set::avx512:
      return avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    case instruction_set::avx512_bf16:
      return is_available(instruction_set::avx512) && __builtin_cpu_supports("avx512bf16") != 0;
    case instruction_set::amx_bf16:
      return is_available(instruction_set::avx512_bf16) && detail::has_tile_registers();
    case instruction_set::amx_fp16:
      return is_available(instruction_set::amx_bf16) && (cpuid_leaf{7, 1}.a & 1U << 21U) != 0;
    default:
      return true;
  }
#else
  return which == instruction_set::portable;
#endif
}

namespace detail {

inline constexpr instruction_set all_instruction_sets[] = {instruction_set::portable, instruction_set::avx2,
                                                           instruction_set::avx512,   instruction_set::avx512_bf16,
                                                           instruction_set::amx_bf16, instruction_set::amx_fp16};

/// The instruction set with this name.
/// @throws configuration_error when `name` is not an instruction set, or this processor does not have it
[[nodiscard]] inline instruction_set instruction_set_named(std::string_view name, std::string_view asked_by) {
  for (const instruction_set which : all_instruction_sets) {
    if (name == name_of(which)) {
      if (!is_available(which)) {
        raise<configuration_error>(asked_by, "an instruction set of this processor", std::string{name},
                                   "omit it to use the best instruction set of the processor");
      }
      return which;
    }
  }
  raise<configuration_error>(asked_by, "portable, avx2, avx512, avx512_bf16, amx_bf16 or amx_fp16", {"'", name, "'"});
}

/// True if products of pairs of bfloat16 are as fast as this processor's other products. Intel's processors with AMX,
/// those that have AVX512-FP16, take vdpbf16ps once in two cycles and fused multiply-adds of floats twice in one: there
/// float is twice as fast, unless the system gives the registers of AMX.
[[nodiscard]] inline bool has_fast_pairs() noexcept {
#if defined(__x86_64__)
  constexpr unsigned avx512_fp16 = 1U << 23U;
  return cpuid_leaf{0}.b != signature_INTEL_ebx || (cpuid_leaf{7}.d & avx512_fp16) == 0;
#else
  return false;
#endif
}

/// The default: GRADUS_INSTRUCTION_SET, or the fastest that the processor has.
[[nodiscard]] inline instruction_set default_instruction_set() {
  if (const char* const name = std::getenv("GRADUS_INSTRUCTION_SET"); name != nullptr && *name != '\0') {
    return instruction_set_named(name, "environment variable GRADUS_INSTRUCTION_SET");
  }
  instruction_set best = instruction_set::portable;
  for (const instruction_set which : all_instruction_sets) {
    const bool slow = which == instruction_set::avx512_bf16 && !has_fast_pairs();
    best = is_available(which) && !slow ? which : best;
  }
  return best;
}

[[nodiscard]] inline std::atomic<instruction_set>& chosen_instruction_set() {
  static std::atomic<instruction_set> chosen{default_instruction_set()};
  return chosen;
}

}  // namespace detail

/// The instruction set in use: that of the last `set_instruction_set`, else that of the environment variable
/// GRADUS_INSTRUCTION_SET (portable, avx2, avx512, avx512_bf16, amx_bf16, amx_fp16), else the fastest that the
/// processor has.
/// @throws configuration_error when the variable is not an instruction set, or the processor does not have it
[[nodiscard]] inline instruction_set current_instruction_set() {
  return detail::chosen_instruction_set().load(std::memory_order_relaxed);
}

/// Sets the instruction set for the whole process. Results of different instruction sets differ by rounding.
/// @throws configuration_error when the processor does not have it
inline void set_instruction_set(instruction_set which) {
  detail::chosen_instruction_set().store(detail::instruction_set_named(name_of(which), "kernels.set_instruction_set"),
                                         std::memory_order_relaxed);
}

}  // namespace gradus::kernels
