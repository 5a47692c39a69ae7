// SPDX-License-Identifier: BSL-1.0
//
// Shows scopes and layers of a recorder as NVTX ranges in Nsight Systems. Needs the headers of NVTX 3, which are part
// of the CUDA toolkit (component gradus::nvtx). A range costs a few nanoseconds if no profiler is attached.
#pragma once

#include <nvtx3/nvToolsExt.h>  // nvtxRangePop, nvtxRangePushA

#include "gradus/trace/recorder.hpp"

namespace gradus::trace {

/// Hooks for recorder_options::ranges:
///
/// @code
///   trace::recorder recorder{{.ranges = trace::nvtx_ranges()}};
/// @endcode
[[nodiscard]] inline range_hooks nvtx_ranges() noexcept {
  range_hooks hooks;  // nvcc rejects lambdas in a list of members
  hooks.push = [](const char* title) noexcept { nvtxRangePushA(title); };
  hooks.pop = []() noexcept { nvtxRangePop(); };
  return hooks;
}

}  // namespace gradus::trace
