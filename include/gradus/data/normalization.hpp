// SPDX-License-Identifier: BSL-1.0
//
// The mean and the deviation of a data set.
#pragma once

#include <cmath>        // std::sqrt
#include <concepts>     // std::convertible_to
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <type_traits>  // std::conditional_t
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/dataset.hpp"

namespace gradus::data {

namespace detail {

template <class Set>
concept has_normalization = requires(const Set& set) {
  { set.values() } -> std::convertible_to<const normalization&>;
};

/// The numbers of one channel that were seen: their mean, and the sum of the squares of their differences to it.
struct channel_moments {
  double count = 0;
  double mean = 0;
  double squares = 0;

  /// Adds those of other numbers (Chan, Golub, LeVeque 1979).
  void add(const channel_moments& other) noexcept {
    const double all = count + other.count;
    const double difference = other.mean - mean;
    mean += difference * (other.count / all);
    squares += other.squares + difference * difference * (count * other.count / all);
    count = all;
  }
};

/// The moments of one channel of an example, in two passes.
template <class Element>
[[nodiscard]] channel_moments moments_of(std::span<const Element> numbers) noexcept {
  channel_moments result{.count = static_cast<double>(numbers.size()), .mean = 0, .squares = 0};
  for (const Element each : numbers) {
    result.mean += static_cast<double>(each) / result.count;
  }
  double rest = 0;
  for (const Element each : numbers) {
    const double difference = static_cast<double>(each) - result.mean;
    rest += difference;
    result.squares += difference * difference;
  }
  result.squares -= rest * rest / result.count;
  result.mean += rest / result.count;
  return result;
}

/// @throws configuration_error for a set without examples, or one with a mean or deviation of its own
inline void require_plain_numbers(index_t size, const normalization* own) {
  if (size < 1) {
    raise<configuration_error>("normalization_of", "a data set with examples", "none");
  }
  if (own != nullptr && !(own->mean.empty() && own->deviation.empty())) {
    raise<configuration_error>("normalization_of", "a data set whose numbers are not normalized yet",
                               "one with a mean or deviation of its own",
                               "make it without: {.scale = 1.0 / 255.0} for bytes, {.scale = 1} for numbers");
  }
}

/// The result of normalization_of.
[[nodiscard]] inline normalization normalization_from(std::span<const channel_moments> channels, double scale) {
  normalization result{.scale = scale};
  for (const channel_moments& each : channels) {
    const double variance = each.squares > 0 ? each.squares / each.count : 0.0;
    result.mean.push_back(each.mean);
    result.deviation.push_back(variance > 0 ? std::sqrt(variance) : 1.0);
  }
  return result;
}

/// @throws format_error for moments that are not finite
inline void require_finite_moments(const channel_moments& of, index_t example, std::size_t channel) {
  if (!is_finite(of.mean) || !is_finite(of.squares)) {
    raise<format_error>("normalization_of", "finite numbers, whose squares are finite too",
                        {"others in channel ", channel, " of example ", example});
  }
}

}  // namespace detail

/// The mean and deviation of each channel over all examples, rows and columns of a data set, as read(i, planes) gives
/// them: without the variations of an epoch. The deviation is the root of the mean squared difference to the mean,
/// divided by the number of values (numpy.std). It is 1 for a channel that is constant. `scale` is that of the set,
/// 1 for a set without `values()`.
///
/// The result is for the options of such a set, and for a layer of the network behind it:
///
/// @code
///   const data::normalization numbers = data::normalization_of(training);
///   const auto normalized = training.with(numbers);                                             // or
///   x = net.add("normalize", nn::normalize{.mean = numbers.mean, .deviation = numbers.deviation}, x);
/// @endcode
///
/// Sums are in double precision and stay accurate for any mean. Examples are read once, on this thread, in their order;
/// another order changes only the last digits.
/// @throws configuration_error for a set without examples, or one with a mean or deviation of its own (its `values()`)
/// @throws format_error for a number that is not finite, and what the set throws
template <class Dataset>
[[nodiscard]] normalization normalization_of(const Dataset& set, error_location where = error_location::current()) {
  return at_call(where, [&] {
    using element = std::conditional_t<detail::has_pixels<Dataset, double>, double, float>;
    const normalization* own = nullptr;
    if constexpr (detail::has_normalization<Dataset>) {
      own = &set.values();
    }
    const auto size = static_cast<index_t>(set.size());
    detail::require_plain_numbers(size, own);
    const image_extents shape = set.example();
    const auto plane = static_cast<std::size_t>(shape.h * shape.w);
    std::vector<element> planes(static_cast<std::size_t>(shape.c) * plane);
    std::vector<detail::channel_moments> channels(static_cast<std::size_t>(shape.c));
    for (index_t i = 0; i < size; ++i) {
      set.read(i, planes.data());
      for (std::size_t c = 0; c < channels.size(); ++c) {
        channels[c].add(detail::moments_of(std::span<const element>{planes.data() + c * plane, plane}));
        detail::require_finite_moments(channels[c], i, c);
      }
    }
    return detail::normalization_from(channels, own != nullptr ? own->scale : 1.0);
  });
}

}  // namespace gradus::data
