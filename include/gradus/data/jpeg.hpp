// SPDX-License-Identifier: BSL-1.0
//
// A data set of JPEG photographs, which are decoded, cropped and mirrored when they are read. Needs libjpeg-turbo
// (component gradus::jpeg).
#pragma once

#include <turbojpeg.h>  // tjDecompress2

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <limits>       // std::numeric_limits
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/crop.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/decoded_dataset.hpp"
#include "gradus/data/detail/image/pixel_memory.hpp"

namespace gradus::data {

/// Limits of a JPEG decoder.
using jpeg_limits = decoding_limits;

/// Decodes JPEG images to RGB, one at a time, in memory that it reuses. Not thread-safe.
class jpeg_decoder {
 public:
  /// @throws configuration_error if libjpeg-turbo gives no decoder
  explicit jpeg_decoder(const jpeg_limits& limits = {}) : limits_{limits}, handle_{tjInitDecompress()} {
    if (!handle_) {
      gradus::raise<configuration_error>("jpeg_decoder", "a decoder of libjpeg-turbo", tjGetErrorStr2(nullptr));
    }
  }

  /// True for bytes that begin as a JPEG image does.
  [[nodiscard]] static bool recognizes(std::span<const std::uint8_t> bytes) noexcept {
    return bytes.size() >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8;
  }
  /// Of the data set, in messages.
  static constexpr std::string_view dataset_name = "jpeg_dataset";

  /// Reads the size of an image: (1, 3, height, width).
  /// @param name  the name of the image in messages
  /// @throws format_error if the bytes are not a JPEG image or declare too many pixels
  [[nodiscard]] image_extents read_header(std::span<const std::uint8_t> bytes, std::string_view name) {
    if (bytes.empty()) {
      gradus::raise<format_error>({"decode '", name, "'"}, "a JPEG image", "an empty file");
    }
    int width = 0;
    int height = 0;
    int subsampling = 0;
    if (tjDecompressHeader3(handle_.get(), bytes.data(), bytes.size(), &width, &height, &subsampling, &color_space_) !=
        0) {
      refuse(name);
    }
    if (width < 1 || height < 1) {
      gradus::raise<format_error>({"decode '", name, "'"}, "a complete JPEG image",
                                  "an image that ends before its header");
    }
    if (static_cast<index_t>(width) * height > limits_.most_pixels) {
      gradus::raise<format_error>({"decode '", name, "'"}, {"an image of at most ", limits_.most_pixels, " pixels"},
                                  {width, " x ", height},
                                  "the file is damaged, or jpeg_limits::most_pixels is too small for it");
    }
    return {1, 3, height, width};
  }

  /// Decodes an image to RGB with 8 bits per channel. The decoder may reduce the image to save time: by the largest
  /// factor of libjpeg-turbo that leaves at least `least_width` x `least_height` pixels. The result is valid until the
  /// next call. Gray images become RGB; CMYK is converted as Adobe's programs write it.
  /// @throws format_error if the bytes are not a complete JPEG image or declare too many pixels
  [[nodiscard]] pixel_image decode(std::span<const std::uint8_t> bytes, std::string_view name,
                                   index_t least_width = std::numeric_limits<int>::max(),
                                   index_t least_height = std::numeric_limits<int>::max()) {
    const image_extents size = read_header(bytes, name);
    int width = static_cast<int>(size.w);
    int height = static_cast<int>(size.h);
    for (const int divisor : {2, 4, 8}) {
      const int w = TJSCALED(static_cast<int>(size.w), (tjscalingfactor{1, divisor}));
      const int h = TJSCALED(static_cast<int>(size.h), (tjscalingfactor{1, divisor}));
      if (w >= least_width && h >= least_height) {
        width = w;
        height = h;
      }
    }
    const bool inks = color_space_ == TJCS_CMYK || color_space_ == TJCS_YCCK;
    const std::size_t count = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
    std::uint8_t* const pixels = pixels_.room_for(count * (inks ? 4 : 3));
    if (tjDecompress2(handle_.get(), bytes.data(), bytes.size(), pixels, width, 0, height, inks ? TJPF_CMYK : TJPF_RGB,
                      TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0) {
      refuse(name);
    }
    if (inks) {
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t c = 0; c < 3; ++c) {  // inverted: 255 is no ink
          pixels[3 * i + c] = static_cast<std::uint8_t>(pixels[4 * i + c] * pixels[4 * i + 3] / 255);
        }
      }
    }
    return {.pixels = pixels, .width = width, .height = height, .channels = 3};
  }

 private:
  [[noreturn]] void refuse(std::string_view name) const {
    gradus::raise<format_error>({"decode '", name, "'"}, "a complete JPEG image", tjGetErrorStr2(handle_.get()));
  }

  struct closer {
    void operator()(void* handle) const noexcept { tjDestroy(handle); }
  };
  jpeg_limits limits_;
  std::unique_ptr<void, closer> handle_;
  int color_space_ = 0;
  detail::pixel_memory pixels_;
};

/// Options of a JPEG data set.
using jpeg_options = decoding_options;

/// A data set of JPEG images that are decoded when they are read.
///
///   const data::class_folders files{"imagenet/train"};
///   const data::jpeg_dataset photographs{files, {.height = 224, .width = 224}};
using jpeg_dataset = decoded_dataset<jpeg_decoder>;
static_assert(dataset<jpeg_dataset, float>);

}  // namespace gradus::data
