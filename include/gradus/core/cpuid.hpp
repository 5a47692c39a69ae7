// SPDX-License-Identifier: BSL-1.0
//
// What the instruction cpuid says of an x86 processor, for features that the compilers' builtin functions do not know.
#pragma once

#include "gradus/core/config.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

namespace gradus {

/// A leaf of the instruction cpuid; zeros for a leaf that the processor does not have.
struct cpuid_leaf {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  explicit cpuid_leaf(unsigned leaf, unsigned subleaf = 0) noexcept {
    __get_cpuid_count(leaf, subleaf, &a, &b, &c, &d);
  }
};

/// True if the processor converts float16 by instructions (F16C). A virtual machine may hide them where it shows AVX2.
[[nodiscard]] inline bool has_f16c() noexcept {
  return (cpuid_leaf{1}.c & 1U << 29U) != 0;
}

}  // namespace gradus
#endif
