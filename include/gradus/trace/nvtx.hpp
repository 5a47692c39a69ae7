// SPDX-License-Identifier: BSL-1.0
//
// Scopes and layers of a recorder as ranges of NVTX, which Nsight Systems shows. Needs the headers of NVTX 3, which
// come with the CUDA toolkit (component gradus::nvtx); without a profiler that listens a range costs a few nanoseconds.
#pragma once

#include <nvtx3/nvToolsExt.h>  // nvtxRangePop, nvtxRangePushA

#include "gradus/trace/recorder.hpp"

namespace gradus::trace {

/// For recorder_options::ranges:
///
/// @code
///   trace::recorder recorder{{.ranges = trace::nvtx_ranges()}};
/// @endcode
[[nodiscard]] inline range_hooks nvtx_ranges() noexcept {
  return {.push = [](const char* title) noexcept { nvtxRangePushA(title); }, .pop = []() noexcept { nvtxRangePop(); }};
}

}  // namespace gradus::trace
