// SPDX-License-Identifier: BSL-1.0
//
// The front of the JPEG decoder: sizes, colors, scaled decoding and crops.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/crop.hpp"
#include "gradus/data/jpeg.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static gradus::data::jpeg_decoder decoder{{.most_pixels = gradus::index_t{1} << 18U}};
  const std::span<const std::uint8_t> bytes{data, size};
  for (const gradus::index_t least : {1, 9, 1 << 20}) {
    try {
      const gradus::data::pixel_image image = decoder.decode(bytes, "input", least, least);
      std::vector<float> tables(3 * 256, 0.5F);
      std::vector<float> planes(3 * 7 * 5);
      gradus::data::resample(image, gradus::data::central_crop(image.width, image.height, 5, 7), 7, 5, tables,
                             planes.data());
    } catch (const gradus::format_error&) {
    }
  }
  return 0;
}
