// SPDX-License-Identifier: BSL-1.0
//
// A data set of PNG images, which are decoded, cropped and mirrored when they are read. Needs libpng (component
// gradus::png).
#pragma once

#include <png.h>  // png_read_info

#include <csetjmp>      // setjmp
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <cstdio>       // what png.h declares
#include <cstring>      // std::memcpy, std::strncpy
#include <limits>       // std::numeric_limits
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

namespace detail {

/// One image on its way through libpng. Errors of libpng leave its functions by longjmp, which ends in a function of
/// this class that has no object with a destructor.
class png_reading {
 public:
  explicit png_reading(std::span<const std::uint8_t> file) noexcept : bytes_{file} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &png_reading::fail, &png_reading::ignore);
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
  }
  png_reading(const png_reading&) = delete;
  png_reading& operator=(const png_reading&) = delete;
  ~png_reading() { png_destroy_read_struct(&png_, &info_, nullptr); }

  /// Reads what comes before the pixels. False: error() says why.
  [[nodiscard]] bool read_header() noexcept {
    if (info_ == nullptr) {
      return out_of_memory();
    }
    if (setjmp(png_jmpbuf(png_)) != 0) {
      return false;
    }
    png_set_read_fn(png_, this, &png_reading::read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // decoding_limits bounds their product
    png_set_chunk_cache_max(png_, 64);
    png_set_chunk_malloc_max(png_, 1U << 22U);
    png_read_info(png_, info_);
    width_ = static_cast<index_t>(png_get_image_width(png_, info_));
    height_ = static_cast<index_t>(png_get_image_height(png_, info_));
    packed_ = png_get_rowbytes(png_, info_);
    return true;
  }

  /// Asks for RGB of 8 bits. @pre read_header
  [[nodiscard]] bool convert() noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) {
      return false;
    }
    png_set_scale_16(png_);
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != 3 * static_cast<std::size_t>(width_)) {
      png_error(png_, "an image that is not converted to RGB");
    }
    return true;
  }

  /// Reads all rows, and what comes behind them. @pre convert
  [[nodiscard]] bool read_pixels(std::uint8_t* to) noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) {
      return false;
    }
    for (int pass = 0; pass < passes_; ++pass) {
      for (index_t row = 0; row < height_; ++row) {
        png_read_row(png_, to + 3 * width_ * row, nullptr);
      }
    }
    png_read_end(png_, nullptr);
    return true;
  }

  [[nodiscard]] index_t width() const noexcept { return width_; }
  [[nodiscard]] index_t height() const noexcept { return height_; }
  [[nodiscard]] const char* error() const noexcept { return error_; }
  /// False if the file is too short for its pixels, however they are compressed: deflate makes at most 1032 bytes of
  /// one.
  [[nodiscard]] bool can_be_complete() const noexcept {
    return packed_ / 1032 <= bytes_.size() / static_cast<std::size_t>(height_);
  }

 private:
  [[nodiscard]] bool out_of_memory() noexcept {
    std::strncpy(error_, "no memory for libpng", sizeof(error_) - 1);
    return false;
  }
  static void read(png_structp png, png_bytep to, std::size_t count) {
    auto* const self = static_cast<png_reading*>(png_get_io_ptr(png));
    if (count > self->bytes_.size()) {
      png_error(png, "the file ends early");
    }
    std::memcpy(to, self->bytes_.data(), count);
    self->bytes_ = self->bytes_.subspan(count);
  }
  [[noreturn]] static void fail(png_structp png, png_const_charp message) {
    auto* const self = static_cast<png_reading*>(png_get_error_ptr(png));
    std::strncpy(self->error_, message, sizeof(self->error_) - 1);
    png_longjmp(png, 1);
  }
  static void ignore(png_structp /*png*/, png_const_charp /*message*/) {}

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::span<const std::uint8_t> bytes_;  // that were not read yet
  index_t width_ = 0;
  index_t height_ = 0;
  std::size_t packed_ = 0;  // bytes of a row in the file, before compression
  int passes_ = 1;          // of an interlaced image: 7
  char error_[128] = {};
};

}  // namespace detail

/// Decodes PNG images to RGB, one at a time, in memory that it reuses. Not thread-safe.
class png_decoder {
 public:
  /// Of the data set, in messages.
  static constexpr std::string_view dataset_name = "png_dataset";

  /// @param limits  bound what a file may declare
  explicit png_decoder(const decoding_limits& limits = {}) : limits_{limits} {}

  /// True for bytes that begin as a PNG image does.
  [[nodiscard]] static bool recognizes(std::span<const std::uint8_t> bytes) noexcept {
    return bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0;
  }

  /// Reads the size of an image: (1, 3, height, width).
  /// @param name  the name of the image in messages
  /// @throws format_error if the bytes are not a PNG image or declare too many pixels
  [[nodiscard]] image_extents read_header(std::span<const std::uint8_t> bytes, std::string_view name) const {
    detail::png_reading image{bytes};
    read_header(image, bytes, name);
    return {1, 3, image.height(), image.width()};
  }

  /// Decodes an image to RGB with 8 bits per channel. The result is valid until the next call. Palettes and gray images
  /// become RGB, 16 bits are rounded to 8, interlaced images are put together. Transparency is dropped: a pixel has its
  /// color, however transparent it is. Gamma and color profiles are not read. So does `convert("RGB")` of Pillow.
  /// @throws format_error if the bytes are not a complete PNG image or declare too many pixels
  [[nodiscard]] pixel_image decode(std::span<const std::uint8_t> bytes, std::string_view name,
                                   index_t /*least_width*/ = std::numeric_limits<int>::max(),
                                   index_t /*least_height*/ = std::numeric_limits<int>::max()) {
    detail::png_reading image{bytes};
    read_header(image, bytes, name);
    if (!image.can_be_complete()) {
      gradus::raise<format_error>({"decode '", name, "'"}, "a complete PNG image",
                                  {bytes.size(), " bytes for ", image.width(), " x ", image.height(), " pixels"});
    }
    if (!image.convert() ||
        !image.read_pixels(pixels_.room_for(3 * static_cast<std::size_t>(image.width() * image.height())))) {
      refuse(name, image.error());
    }
    return {.pixels = pixels_.get(), .width = image.width(), .height = image.height(), .channels = 3};
  }

 private:
  void read_header(detail::png_reading& image, std::span<const std::uint8_t> bytes, std::string_view name) const {
    if (bytes.empty()) {
      gradus::raise<format_error>({"decode '", name, "'"}, "a PNG image", "an empty file");
    }
    if (!image.read_header()) {
      refuse(name, image.error());
    }
    if (image.width() > limits_.most_pixels / image.height()) {
      gradus::raise<format_error>({"decode '", name, "'"}, {"an image of at most ", limits_.most_pixels, " pixels"},
                                  {image.width(), " x ", image.height()},
                                  "the file is damaged, or decoding_limits::most_pixels is too small for it");
    }
  }
  [[noreturn]] static void refuse(std::string_view name, const char* why) {
    gradus::raise<format_error>({"decode '", name, "'"}, "a complete PNG image", why);
  }

  decoding_limits limits_;
  detail::pixel_memory pixels_;
};

/// Options of a PNG data set.
using png_options = decoding_options;

/// A data set of PNG images that are decoded when they are read.
///
///   const data::class_folders files{"flowers/train", {.endings = {".png"}}};
///   const data::png_dataset images{files, {.height = 64, .width = 64}};
using png_dataset = decoded_dataset<png_decoder>;
static_assert(dataset<png_dataset, float>);

}  // namespace gradus::data
