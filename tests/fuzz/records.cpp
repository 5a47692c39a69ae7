// SPDX-License-Identifier: BSL-1.0
//
// The reader of record files: the index, the names and the images.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/record_file.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const gradus_fuzz::input_file file{data, size};
  try {
    const gradus::data::record_file records{file.path()};
    std::vector<std::uint8_t> image;
    for (gradus::index_t i = 0; i < records.size() && i < 100; ++i) {
      static_cast<void>(records.name(i));
      static_cast<void>(records.label(i));
      try {
        records.read(i, image);
      } catch (const gradus::format_error&) {
      }
    }
  } catch (const gradus::format_error&) {
  }
  return 0;
}
