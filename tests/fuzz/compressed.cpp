// SPDX-License-Identifier: BSL-1.0
//
// The reader of gzip files, and of IDX files inside of them.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/gzip.hpp"
#include "gradus/data/idx.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const gradus_fuzz::input_file file{data, size};
  try {
    gradus::data::gzip_source source{file.path()};
    std::vector<std::uint8_t> block(size > 0 ? 1 + data[size / 2] * 256U : 1);
    // What inflates without end is for the caller to limit, as read_idx and the report do.
    for (std::size_t came = 0; came < (std::size_t{1} << 18U);) {
      const std::size_t got = source.read(block);
      came += got;
      if (got < block.size()) {
        break;
      }
    }
  } catch (const gradus::format_error&) {
  }
  try {
    gradus::data::gzip_source source{file.path()};
    static_cast<void>(gradus::data::read_idx(source, {.maximum_bytes = std::uint64_t{1} << 18U}));
  } catch (const gradus::format_error&) {
  }
  return 0;
}
