// SPDX-License-Identifier: BSL-1.0
//
// The reader of .npy files: as an array, and as the inputs and the targets of a data set.
#include <algorithm>  // std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::uint8_t
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/npy.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const gradus_fuzz::input_file file{data, size};
  try {
    const gradus::data::npy_array array{file.path(), size % 2 == 0};
    std::vector<double> numbers(static_cast<std::size_t>(array.size()));
    array.read(0, array.size(), numbers.data());
    const gradus::data::npy set{file.path(), file.path(), {.channels_last = size % 3 == 0}};
    std::vector<float> planes(static_cast<std::size_t>(set.example().size()));
    std::vector<float> target(static_cast<std::size_t>(set.target().size()));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(set.label_map().size()));
    for (gradus::index_t i = 0; i < std::min(set.size(), gradus::index_t{100}); ++i) {
      set.read(i, planes.data());
      set.read_target(i, target.data());
      set.read_labels(i, labels.data());
    }
  } catch (const gradus::format_error&) {
  }
  try {
    const std::string operation = "npz";
    static_cast<void>(gradus::data::detail::npz_member(operation, {data, size}, "x"));
  } catch (const gradus::format_error&) {
  }
  return 0;
}
