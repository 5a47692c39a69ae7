// SPDX-License-Identifier: BSL-1.0
//
// Detects that a program, or a part of it, was compiled without optimization.
#pragma once

#include <atomic>  // std::atomic

#include "gradus/core/config.hpp"

namespace gradus {

/// True if a source file that includes this header was compiled without optimization.
inline std::atomic<bool> compiled_unoptimized{false};

#if defined(__GNUC__) && !defined(__OPTIMIZE__) && !defined(__CUDACC__)  // nvcc's host code only launches kernels
// An object of the source file: what is inline must be the same in files that are optimized and in those that are not.
[[maybe_unused]] static const bool this_file_is_unoptimized = (compiled_unoptimized = true);
#endif

/// Returns a note for the user at the first call in a program that was compiled without optimization, otherwise null.
[[nodiscard]] inline const char* note_of_unoptimized() noexcept {
  return compiled_unoptimized.exchange(false)
             ? "compiled without optimization, at least in part: a training step then takes 10 to 25 times as long; "
               "compile with -O2 or configure with -DCMAKE_BUILD_TYPE=Release"
             : nullptr;
}

}  // namespace gradus
