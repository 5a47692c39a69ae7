// SPDX-License-Identifier: BSL-1.0
//
// The front of the PNG decoder: sizes, colors, depths, interlaced images and crops. Checksums are corrected in a copy
// of the input: without it, mutations end at the first one.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t, std::uint32_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/crop.hpp"
#include "gradus/data/png.hpp"
#include "input.hpp"

namespace {

void decode(std::span<const std::uint8_t> bytes) {
  static gradus::data::png_decoder decoder{{.most_pixels = gradus::index_t{1} << 18U}};
  try {
    const gradus::data::pixel_image image = decoder.decode(bytes, "input");
    std::vector<float> tables(3 * 256, 0.5F);
    std::vector<float> planes(3 * 7 * 5);
    gradus::data::resample(image, gradus::data::central_crop(image.width, image.height, 5, 7), 7, 5, tables,
                           planes.data());
  } catch (const gradus::format_error&) {
  }
}

/// The input with the checksums that its chunks ought to have.
std::vector<std::uint8_t> with_checksums(std::span<const std::uint8_t> bytes) {
  std::vector<std::uint8_t> result(bytes.begin(), bytes.end());
  for (std::size_t chunk = 8; chunk + 12 <= result.size();) {
    std::size_t length = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      length = length << 8U | result[chunk + k];
    }
    if (length > result.size() - chunk - 12) {
      break;
    }
    std::uint32_t sum = 0xffffffffU;
    for (std::size_t i = chunk + 4; i < chunk + 8 + length; ++i) {
      sum ^= result[i];
      for (int bit = 0; bit < 8; ++bit) {
        sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? 0xedb88320U : 0U);
      }
    }
    for (std::size_t k = 0; k < 4; ++k) {
      result[chunk + 8 + length + k] = static_cast<std::uint8_t>(~sum >> (24 - 8 * k));
    }
    chunk += 12 + length;
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  decode({data, size});
  decode(with_checksums({data, size}));
  return 0;
}
