// SPDX-License-Identifier: BSL-1.0
//
// What overlapping transfers with computation has gained, and could.
#include "overlap.hpp"

#include <algorithm>
#include <cstdio>

#include "gradus/core/format.hpp"
#include "gradus/parallel/transfer_order/simulated_step.hpp"

namespace driver {

std::string overlap_text(const gradus::trace::breakdown& measured, int ranks) {
  namespace parallel = gradus::parallel;
  const double computation = measured.forward + measured.backward + measured.update;
  if (ranks < 2 || measured.communicate <= 0 || computation <= 0) {
    return {};
  }
  const parallel::step_bounds limits{.lower = std::max(computation, measured.communicate),
                                     .upper = computation + measured.communicate};
  const double step = computation + measured.exchange + measured.wait;
  char text[256];
  gradus::format_text(
      text, sizeof(text),
      "overlap: E %.2f; a step computes %.2f ms, transfers %.2f ms and takes %.2f ms; at least %.2f ms, so "
      "perfect overlap would make it %.2f times as fast (S %.2f)\n",
      parallel::overlap_efficiency(limits, step), computation, measured.communicate, step, limits.lower,
      step / limits.lower, parallel::possible_speed_up(limits));
  return text;
}

}  // namespace driver
