// SPDX-License-Identifier: BSL-1.0
//
// A device whose memory the host may not access, as far as the library knows.
#pragma once

#include "archetypes.hpp"

namespace archetypes {

/// The required members, and memory of its own.
class far_device : public device {
 public:
  static constexpr bool host_accessible = false;
  static constexpr std::string_view name = "far";
};
static_assert(gradus::device_policy<far_device> && !gradus::has_host_memory<far_device>);

}  // namespace archetypes
