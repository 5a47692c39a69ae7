// SPDX-License-Identifier: BSL-1.0
//
// The reader of IDX files.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t

#include "gradus/core/error.hpp"
#include "gradus/data/idx.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradus_fuzz::input_source source{data, size};
  try {
    // The limit is what keeps an input of a few bytes from asking for gigabytes.
    static_cast<void>(gradus::data::read_idx(source, {.maximum_bytes = std::uint64_t{1} << 26U}));
  } catch (const gradus::format_error&) {
  }
  gradus_fuzz::input_source again{data, size};
  try {
    static_cast<void>(gradus::data::read_idx_labels(again, {.maximum_bytes = std::uint64_t{1} << 26U}));
  } catch (const gradus::format_error&) {
  }
  return 0;
}
