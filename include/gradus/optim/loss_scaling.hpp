// SPDX-License-Identifier: BSL-1.0
//
// Dynamic loss scaling: its options, the update of the scale after a step, and the test for finite gradients on the
// CPU.
#pragma once

#include <array>        // std::array
#include <atomic>       // std::atomic
#include <bit>          // std::bit_cast
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint32_t, std::uint64_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <type_traits>  // std::conditional_t

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"

namespace gradus::optim {

/// Options of a loss scale; see optim::update. The defaults are those of PyTorch's GradScaler, with limits.
struct loss_scaling {
  double initial = 0x1p16;  ///< above 0; powers of two cause no rounding
  /// false: the scale is constant; steps with gradients that are not finite are skipped in both cases
  bool dynamic = true;
  double growth = 2;               ///< above 1: factor of the scale after growth_interval good steps
  double backoff = 0.5;            ///< in (0, 1): factor of the scale after a skipped step
  index_t growth_interval = 2000;  ///< at least 1, in steps
  double smallest = 1;             ///< lower limit of the scale when it is reduced
  double largest = 0x1p24;         ///< upper limit of the scale when it grows
  bool enabled = true;             ///< false: the loss is not scaled, and no step is skipped

  /// True if all members are equal.
  friend bool operator==(const loss_scaling&, const loss_scaling&) noexcept = default;
};

/// @throws configuration_error if a value is invalid
inline void check(const loss_scaling& options) {
  constexpr std::string_view name = "loss_scaling";
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double least = std::numeric_limits<double>::min();
  detail::require_in_range(name, "initial", options.initial, least, infinity, "a finite initial scale above 0",
                           "65536 is the usual value");
  detail::require_in_range(name, "backoff", options.backoff, least, 1.0, "a backoff above 0 and below 1",
                           "0.5 is the usual value");
  detail::require_in_range(name, "smallest", options.smallest, least, infinity, "a finite smallest scale above 0",
                           "1 is the default");
  detail::require_in_range(name, "largest", options.largest, options.smallest, infinity,
                           "a finite largest scale, not below the smallest", "16777216 is the default");
  if (!(options.growth > 1.0) || !(options.growth < infinity)) {
    raise<configuration_error>(name, "a finite growth above 1", {"growth = ", options.growth},
                               "2 is the usual value; .dynamic = false keeps the scale");
  }
  if (options.growth_interval < 1) {
    raise<configuration_error>(name, "a growth_interval of at least 1 step",
                               {"growth_interval = ", options.growth_interval}, "2000 is the usual value");
  }
}

/// Updates the numbers of a scale after a step; numbers[not_finite] is not 0 if the step was skipped. Also compiled for
/// GPUs.
constexpr void next_loss_scale(const loss_scaling& options, double* numbers) noexcept {
  double& scale = numbers[gradus::detail::index_of(loss_scale_number::scale)];
  double& good_steps = numbers[gradus::detail::index_of(loss_scale_number::good_steps)];
  double& not_finite = numbers[gradus::detail::index_of(loss_scale_number::not_finite)];
  if (not_finite != 0.0) {
    numbers[gradus::detail::index_of(loss_scale_number::skipped_steps)] += 1;
    good_steps = 0;
    if (options.dynamic && scale > options.smallest) {
      const double smaller = scale * options.backoff;
      scale = smaller < options.smallest ? options.smallest : smaller;
    }
  } else {
    good_steps += 1;
    if (options.dynamic && good_steps >= static_cast<double>(options.growth_interval)) {
      good_steps = 0;
      if (scale < options.largest) {
        const double larger = scale * options.growth;
        scale = larger > options.largest ? options.largest : larger;
      }
    }
  }
  not_finite = 0;
}

/// The updates among the first `steps` steps: those that were not skipped. Also compiled for GPUs.
constexpr std::uint64_t updates_before(std::uint64_t steps, double skipped_steps) noexcept {
  const auto skipped = static_cast<std::uint64_t>(skipped_steps);
  return steps > skipped ? steps - skipped : 0;
}

namespace detail {

/// True if an element is infinite or NaN. Tests the bits, as is_finite does, for many elements at a time.
template <class Element>
[[nodiscard]] bool any_not_finite(index_t count, const Element* x) noexcept {
  using bits = std::conditional_t<sizeof(Element) == 8, std::uint64_t, std::uint32_t>;
  constexpr bits exponent = sizeof(Element) == 8 ? bits(0x7ff0'0000'0000'0000U) : bits(0x7f80'0000U);
  constexpr index_t streams = 8;
  std::array<bits, streams> largest{};  // exponents
  index_t i = 0;
  for (; i + streams <= count; i += streams) {
    for (index_t stream = 0; stream < streams; ++stream) {
      const bits each = std::bit_cast<bits>(x[i + stream]) & exponent;
      bits& most = largest[static_cast<std::size_t>(stream)];
      most = each > most ? each : most;
    }
  }
  bool any = false;
  for (const bits most : largest) {
    any = any || most == exponent;
  }
  for (; i < count; ++i) {
    any = any || !is_finite(x[i]);
  }
  return any;
}

}  // namespace detail

/// Sets *found to 1 if a gradient of `segments` is infinite or NaN; otherwise leaves it unchanged.
template <class Element>
void note_not_finite(cpu& device, std::span<const segment> segments, const Element* gradients, double* found) {
  std::atomic<bool> any{false};
  detail::for_each_range(device, segments, [&](const segment& /*part*/, index_t offset, index_t count) {
    if (detail::any_not_finite(count, gradients + offset)) {
      any.store(true, std::memory_order_relaxed);
    }
  });
  if (any.load(std::memory_order_relaxed)) {
    *found = 1;
  }
}

}  // namespace gradus::optim
