// SPDX-License-Identifier: BSL-1.0
//
// Crops of photographs, and their conversion to normalized planes.
#pragma once

#include <algorithm>  // std::clamp, std::min
#include <cmath>      // std::exp, std::floor, std::lround, std::log, std::sqrt
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint8_t, std::uint64_t
#include <span>       // std::span

#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"

namespace gradus::data {

/// A rectangle of an image, in pixels, and whether it is mirrored horizontally.
struct crop {
  index_t left = 0;     ///< first column
  index_t top = 0;      ///< first row
  index_t width = 0;    ///< columns
  index_t height = 0;   ///< rows
  bool mirror = false;  ///< swap left and right

  /// True if all members are equal.
  friend constexpr bool operator==(const crop&, const crop&) noexcept = default;
};

/// The random crop for training: 8 % to 100 % of the area with an aspect ratio from 3/4 to 4/3, mirrored with
/// probability 1/2. If ten attempts do not fit into the image, the largest centered square (Szegedy et al.: "Going
/// deeper with convolutions", 2015, section 6, as in PyTorch's RandomResizedCrop). A function of its arguments.
/// @pre width and height at least 1
[[nodiscard]] inline crop random_crop(index_t width, index_t height, const random_stream& stream, std::uint64_t example,
                                      std::uint64_t epoch) noexcept {
  constexpr int attempts = 10;
  std::uint64_t drawn = epoch * (4 * attempts + 1);
  const auto number = [&] { return stream.uniform(example, drawn++); };
  const bool mirror = number() < 0.5;
  const double area = static_cast<double>(width) * static_cast<double>(height);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const double part = area * (0.08 + 0.92 * number());
    const double aspect = std::exp((2 * number() - 1) * std::log(4.0 / 3.0));
    const double down = number();
    const double right = number();
    const index_t w = std::lround(std::sqrt(part * aspect));
    const index_t h = std::lround(std::sqrt(part / aspect));
    if (w >= 1 && h >= 1 && w <= width && h <= height) {
      return {.left = std::min(static_cast<index_t>(right * static_cast<double>(width - w + 1)), width - w),
              .top = std::min(static_cast<index_t>(down * static_cast<double>(height - h + 1)), height - h),
              .width = w,
              .height = h,
              .mirror = mirror};
    }
  }
  const index_t side = std::min(width, height);
  return {.left = (width - side) / 2, .top = (height - side) / 2, .width = side, .height = side, .mirror = mirror};
}

/// The crop for evaluation: the largest centered rectangle with the aspect ratio of the result, reduced to 7/8 in each
/// direction. @pre all at least 1
[[nodiscard]] inline crop central_crop(index_t width, index_t height, index_t result_width,
                                       index_t result_height) noexcept {
  const double scale = 0.875 * std::min(static_cast<double>(width) / static_cast<double>(result_width),
                                        static_cast<double>(height) / static_cast<double>(result_height));
  const auto part = [&](index_t result, index_t whole) {
    return std::clamp<index_t>(std::lround(scale * static_cast<double>(result)), 1, whole);
  };
  const index_t w = part(result_width, width);
  const index_t h = part(result_height, height);
  return {.left = (width - w) / 2, .top = (height - h) / 2, .width = w, .height = h};
}

/// A decoded image: rows from the top, pixels from the left, the channels of a pixel adjacent.
struct pixel_image {
  const std::uint8_t* pixels = nullptr;  ///< height * width * channels bytes
  index_t width = 0;                     ///< columns
  index_t height = 0;                    ///< rows
  index_t channels = 3;                  ///< channels of a pixel
};

/// Writes a rectangle of an image as `channels` planes of height x width numbers, with linear interpolation between the
/// four pixels nearest to each point.
/// @param tables  the number for each byte of a channel: 256 per channel
/// @pre the rectangle is inside the image and has at least 1 pixel
inline void resample(const pixel_image& image, const crop& part, index_t height, index_t width,
                     std::span<const float> tables, float* planes) noexcept {
  struct neighbors {
    index_t first;
    index_t second;
    float weight;  // weight of the second pixel
  };
  const auto between = [](index_t begin, index_t length, index_t count, index_t k) -> neighbors {
    const double at = (static_cast<double>(k) + 0.5) * static_cast<double>(length) / static_cast<double>(count) - 0.5;
    const double inside = std::clamp(at, 0.0, static_cast<double>(length - 1));
    const auto first = static_cast<index_t>(std::floor(inside));
    return {begin + first, begin + std::min(first + 1, length - 1),
            static_cast<float>(inside - static_cast<double>(first))};
  };
  for (index_t h = 0; h < height; ++h) {
    const neighbors row = between(part.top, part.height, height, h);
    const std::uint8_t* const upper = image.pixels + row.first * image.width * image.channels;
    const std::uint8_t* const lower = image.pixels + row.second * image.width * image.channels;
    for (index_t w = 0; w < width; ++w) {
      const neighbors column = between(part.left, part.width, width, part.mirror ? width - 1 - w : w);
      for (index_t c = 0; c < image.channels; ++c) {
        const float* const table = tables.data() + static_cast<std::size_t>(c) * 256;
        const index_t left = column.first * image.channels + c;
        const index_t right = column.second * image.channels + c;
        const float above = table[upper[left]] + column.weight * (table[upper[right]] - table[upper[left]]);
        const float below = table[lower[left]] + column.weight * (table[lower[right]] - table[lower[left]]);
        planes[(c * height + h) * width + w] = above + row.weight * (below - above);
      }
    }
  }
}

}  // namespace gradus::data
