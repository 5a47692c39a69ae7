// SPDX-License-Identifier: BSL-1.0
//
// Photographs resized as Pillow and torchvision do before a network sees them.
#pragma once

#include <algorithm>  // std::clamp, std::max, std::min
#include <cmath>      // std::abs, std::ceil, std::nearbyint
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::int64_t, std::uint8_t
#include <span>       // std::span
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/crop.hpp"

namespace gradus::data {

/// Columns and rows of an image: {320, 240}, or {224} for both.
struct image_size {
  index_t width = 0;       ///< columns
  index_t height = width;  ///< rows

  /// True if both members are equal.
  friend constexpr bool operator==(const image_size&, const image_size&) noexcept = default;
};

/// The size of an image whose shorter side has become `shorter`; the longer one is rounded down, as
/// torchvision.transforms.Resize(shorter) does. @pre all at least 1
[[nodiscard]] constexpr image_size with_shorter_side(const image_size& image, index_t shorter) noexcept {
  // In double, as Python divides.
  const auto longer = [&](index_t long_side, index_t short_side) {
    return static_cast<index_t>(static_cast<double>(shorter * long_side) / static_cast<double>(short_side));
  };
  return image.width <= image.height ? image_size{shorter, longer(image.height, image.width)}
                                     : image_size{longer(image.width, image.height), shorter};
}

/// The rectangle of width x height pixels in the middle of an image, as torchvision.transforms.CenterCrop: half a pixel
/// is rounded to the even number. @pre the rectangle is not larger than the image
[[nodiscard]] inline crop middle_crop(const image_size& image, index_t width, index_t height) noexcept {
  const auto begin = [](index_t whole, index_t part) {
    return static_cast<index_t>(std::nearbyint(static_cast<double>(whole - part) / 2));
  };
  return {.left = begin(image.width, width), .top = begin(image.height, height), .width = width, .height = height};
}

namespace detail {

[[nodiscard]] constexpr std::size_t as_offset(index_t i) noexcept {
  return static_cast<std::size_t>(i);
}

/// The weights of the pixels that make each pixel of a row or a column, in fractions of 2^22.
class resize_weights {
 public:
  /// @param first  of the pixels that are made, of `to`
  /// @param count  of the pixels that are made
  resize_weights(index_t from, index_t to, index_t first, index_t count) {
    // A triangle that is as wide as a pixel of the result where that is larger, and two pixels of the image elsewhere.
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double reach = std::max(scale, 1.0);
    std::vector<double> exact(static_cast<std::size_t>(std::ceil(reach)) * 2 + 1);
    for (index_t k = first; k < first + count; ++k) {
      const double center = rounded((static_cast<double>(k) + 0.5) * scale);
      const auto begin = static_cast<index_t>(std::max(center - reach + 0.5, 0.0));
      const index_t end = std::min(static_cast<index_t>(center + reach + 0.5), from);
      double sum = 0;
      for (index_t i = begin; i < end; ++i) {
        const double distance = std::abs(rounded((static_cast<double>(i) - center + 0.5) * (1.0 / reach)));
        exact[as_offset(i - begin)] = std::max(1.0 - distance, 0.0);
        sum += exact[as_offset(i - begin)];
      }
      pixels_.push_back({begin, weights_.size()});
      for (index_t i = 0; i < end - begin; ++i) {
        weights_.push_back(static_cast<std::int32_t>(0.5 + exact[as_offset(i)] / sum * (1 << bits)));
      }
    }
    pixels_.push_back({0, weights_.size()});
  }

  /// The first pixel of the image that pixel k of the result, from 0, is made of.
  [[nodiscard]] index_t begin(index_t k) const noexcept { return pixels_[as_offset(k)].begin; }
  /// The weights of that pixel and the next ones.
  [[nodiscard]] std::span<const std::int32_t> of(index_t k) const noexcept {
    const std::size_t first = pixels_[as_offset(k)].first_weight;
    return {weights_.data() + first, pixels_[as_offset(k) + 1].first_weight - first};
  }

  /// The pixel that is (sum of weights times bytes), at distances of `stride` bytes.
  [[nodiscard]] static std::uint8_t pixel(const std::uint8_t* bytes, std::span<const std::int32_t> weights,
                                          index_t stride) noexcept {
    std::int64_t sum = std::int64_t{1} << (bits - 1);
    for (const std::int32_t weight : weights) {
      sum += std::int64_t{*bytes} * weight;
      bytes += stride;
    }
    return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> bits, 0, 255));
  }

 private:
  static constexpr int bits = 22;

  /// A product that is rounded before it is added to: compilers that fuse both would get other weights than Pillow.
  [[nodiscard]] static double rounded(double product) noexcept {
    const volatile double stored = product;
    return stored;
  }

  struct result_pixel {
    index_t begin;             // in the image
    std::size_t first_weight;  // in weights_
  };
  std::vector<result_pixel> pixels_;  // and where the last one ends
  std::vector<std::int32_t> weights_;
};

/// Bytes of an image, and the extents of the result of a pass.
struct resize_source {
  const std::uint8_t* bytes;
  index_t rows;     // of the result
  index_t columns;  // of the result
  index_t line;     // bytes from a row of the source to the next
};

/// Resizes each row.
/// @param first  the column of the image at which the rows of the source begin
[[nodiscard]] inline std::vector<std::uint8_t> resize_rows(const resize_source& from, const resize_weights& weights,
                                                           index_t first, index_t channels) {
  std::vector<std::uint8_t> result(as_offset(from.rows * from.columns * channels));
  std::uint8_t* to = result.data();
  for (index_t h = 0; h < from.rows; ++h) {
    for (index_t w = 0; w < from.columns; ++w) {
      for (index_t c = 0; c < channels; ++c) {
        *to++ = resize_weights::pixel(from.bytes + h * from.line + (weights.begin(w) - first) * channels + c,
                                      weights.of(w), channels);
      }
    }
  }
  return result;
}

/// Resizes each column of bytes.
/// @param first  the row of the image with which the source begins
[[nodiscard]] inline std::vector<std::uint8_t> resize_columns(const resize_source& from, const resize_weights& weights,
                                                              index_t first) {
  std::vector<std::uint8_t> result(as_offset(from.rows * from.columns));
  std::uint8_t* to = result.data();
  for (index_t h = 0; h < from.rows; ++h) {
    const std::uint8_t* const line = from.bytes + (weights.begin(h) - first) * from.line;
    for (index_t i = 0; i < from.columns; ++i) {
      *to++ = resize_weights::pixel(line + i, weights.of(h), from.line);
    }
  }
  return result;
}

}  // namespace detail

/// A rectangle of an image that is resized to `size`, with linear interpolation, and where it becomes smaller with the
/// mean over the pixels that vanish (antialiasing): along rows, then along columns, each rounded to bytes; columns come
/// first where more rows vanish than twice the columns that do. The bytes are those of Pillow 13's
/// Image.resize(size, Image.BILINEAR), which is torchvision.transforms.Resize of a Pillow image. Pillow 12 always
/// begins with the rows: bytes then differ by one here and there.
///
///   const data::pixel_image image = decoder.decode(bytes, name);
///   const auto size = data::with_shorter_side({image.width, image.height}, 256);
///   const std::vector<std::uint8_t> pixels = data::resize_antialiased(image, size, data::middle_crop(size, 224, 224));
///
/// @param part  of the resized image; what is outside is not computed
/// @return rows from the top, pixels from the left, the channels of a pixel adjacent: part.height * part.width *
/// channels
/// @throws configuration_error if the image is empty, or the rectangle is empty, mirrored or not inside the resized
/// image
[[nodiscard]] inline std::vector<std::uint8_t> resize_antialiased(const pixel_image& image, const image_size& size,
                                                                  const crop& part,
                                                                  error_location where = error_location::current()) {
  const bool inside = part.left >= 0 && part.top >= 0 && part.width >= 1 && part.height >= 1 &&
                      part.left <= size.width - part.width && part.top <= size.height - part.height;
  if (image.width < 1 || image.height < 1 || image.channels < 1 || !inside || part.mirror) {
    raise<configuration_error>("resize_antialiased",
                               "an image of at least 1 pixel, and a rectangle inside the resized image, not mirrored",
                               {"an image of ", image.width, " x ", image.height, ", resized to ", size.width, " x ",
                                size.height, ", and a rectangle of ", part.width, " x ", part.height, " at ", part.left,
                                ", ", part.top, part.mirror ? ", mirrored" : ""},
                               {}, where);
  }
  const detail::resize_weights columns{image.width, size.width, part.left, part.width};
  const detail::resize_weights rows{image.height, size.height, part.top, part.height};
  const index_t channels = image.channels;
  const index_t lost_rows = image.height - size.height;
  if (lost_rows > 0 && lost_rows > 2 * (image.width - size.width)) {
    // What is computed of the image: these columns.
    const index_t first = columns.begin(0);
    const index_t end = columns.begin(part.width - 1) + static_cast<index_t>(columns.of(part.width - 1).size());
    const std::vector<std::uint8_t> low = detail::resize_columns(
        {image.pixels + first * channels, part.height, (end - first) * channels, image.width * channels}, rows, 0);
    return detail::resize_rows({low.data(), part.height, part.width, (end - first) * channels}, columns, first,
                               channels);
  }
  const index_t first = rows.begin(0);
  const index_t end = rows.begin(part.height - 1) + static_cast<index_t>(rows.of(part.height - 1).size());
  const index_t line = image.width * channels;
  const std::vector<std::uint8_t> narrow =
      detail::resize_rows({image.pixels + first * line, end - first, part.width, line}, columns, 0, channels);
  return detail::resize_columns({narrow.data(), part.height, part.width * channels, part.width * channels}, rows,
                                first);
}

}  // namespace gradus::data
