// SPDX-License-Identifier: BSL-1.0
//
// Generated images that a network can learn to distinguish, for tests, examples and benchmarks without files.
#pragma once

#include <algorithm>  // std::clamp
#include <cmath>      // std::sin
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::uint8_t, std::uint64_t
#include <numbers>    // std::numbers::pi
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/dataset.hpp"

namespace gradus::data {

/// Options of synthetic images.
struct synthetic_options {
  index_t examples = 1024;  ///< number of images
  index_t channels = 1;     ///< channels of an image
  index_t height = 28;      ///< rows
  index_t width = 28;       ///< columns
  int classes = 10;         ///< number of classes
  std::uint64_t seed = 1;   ///< seed of classes and noise
  /// Index of the first example. Sets with the same seed and other indices have the same classes and other noise, so
  /// one can be the test set of the other.
  index_t first = 0;
};

namespace detail {

/// Three waves over the image with random direction and length, between -1 and 1.
std::vector<double> smooth_pattern(const synthetic_options& options, int label);

}  // namespace detail

/// Generates images: example i has label i % classes and is the pattern of its class plus noise of about the same
/// strength. Each example is a function of (seed, first + i) and the shape.
/// @throws configuration_error if options are invalid
[[nodiscard]] image_dataset make_synthetic(const synthetic_options& options = {},
                                           error_location where = error_location::current());

}  // namespace gradus::data

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::data::detail {

GRADUS_INLINE std::vector<double> smooth_pattern(const synthetic_options& options, int label) {
  const random_stream stream{options.seed, gradus::join({"pattern ", label})};
  std::vector<double> pattern;
  pattern.reserve(static_cast<std::size_t>(options.channels * options.height * options.width));
  for (index_t c = 0; c < options.channels; ++c) {
    const auto number = [&](int wave, int k) {
      return stream.uniform(static_cast<std::uint64_t>((c * 3 + wave) * 3 + k));
    };
    for (index_t h = 0; h < options.height; ++h) {
      for (index_t w = 0; w < options.width; ++w) {
        double sum = 0;
        for (int wave = 0; wave < 3; ++wave) {
          const double down = (6 * number(wave, 0) - 3) * static_cast<double>(h) / static_cast<double>(options.height);
          const double right = (6 * number(wave, 1) - 3) * static_cast<double>(w) / static_cast<double>(options.width);
          sum += std::sin(2 * std::numbers::pi * (down + right + number(wave, 2))) / 3;
        }
        pattern.push_back(sum);
      }
    }
  }
  return pattern;
}

}  // namespace gradus::data::detail

namespace gradus::data {

GRADUS_INLINE image_dataset make_synthetic(const synthetic_options& options, error_location where) {
  const auto require = [&](bool holds, const char* name, index_t value, index_t least) {
    if (!holds) {
      raise<configuration_error>("make_synthetic", {name, " of at least ", least}, {value}, {}, where);
    }
  };
  require(options.examples >= 1, "examples", options.examples, 1);
  require(options.channels >= 1, "channels", options.channels, 1);
  require(options.height >= 1, "height", options.height, 1);
  require(options.width >= 1, "width", options.width, 1);
  require(options.classes >= 1, "classes", options.classes, 1);
  require(options.first >= 0, "first", options.first, 0);
  const image_extents shape{options.examples, options.channels, options.height, options.width};
  const auto pixels_of_one = static_cast<std::size_t>(image_extents{1, shape.c, shape.h, shape.w}.size());
  std::vector<std::vector<double>> patterns;
  for (int label = 0; label < options.classes; ++label) {
    patterns.push_back(detail::smooth_pattern(options, label));
  }
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.size()));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(options.examples));
  const random_stream stream{options.seed, "noise"};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto number = static_cast<std::uint64_t>(options.first) + i;
    labels[i] = static_cast<std::int32_t>(number % static_cast<std::uint64_t>(options.classes));
    const auto& pattern = patterns[static_cast<std::size_t>(labels[i])];
    std::uint8_t* image = pixels.data() + i * pixels_of_one;
    const std::uint64_t key = stream.bits(number);
    std::uint64_t noise = 0;
    for (std::size_t k = 0; k < pixels_of_one; ++k) {
      if (k % 8 == 0) {  // eight bytes at a time, because one block of the stream per pixel would be slow
        noise = gradus::detail::mix_bits(key + k);
      }
      const double value = 128 + 64 * pattern[k] + (static_cast<double>(noise & 255U) - 127.5) / 2;
      image[k] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
      noise >>= 8U;
    }
  }
  return {shape, std::move(pixels), std::move(labels), options.classes};
}

}  // namespace gradus::data
#endif
