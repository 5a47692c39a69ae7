// SPDX-License-Identifier: BSL-1.0
//
// The memory of a decoder's pixels.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <memory>   // std::make_unique_for_overwrite, std::unique_ptr

#include "gradus/core/config.hpp"

namespace gradus::data::detail {

/// The memory of the pixels of one image at a time. It is not written in advance: of the pixels that a damaged file
/// declares, only those that it has take pages of memory.
class pixel_memory {
 public:
  /// Memory for a number of bytes. What the call before returned is no longer valid.
  [[nodiscard]] std::uint8_t* room_for(std::size_t bytes) {
    if (capacity_ < bytes) {
      capacity_ = 0;
      pixels_.reset();
      pixels_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
      capacity_ = bytes;
    }
    return pixels_.get();
  }
  /// What the last call returned.
  [[nodiscard]] std::uint8_t* get() const noexcept { return pixels_.get(); }

 private:
  std::unique_ptr<std::uint8_t[]> pixels_;
  std::size_t capacity_ = 0;  // of pixels_, in bytes
};

}  // namespace gradus::data::detail
