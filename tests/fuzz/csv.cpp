// SPDX-License-Identifier: BSL-1.0
//
// The reader of CSV files.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <cstdlib>  // std::abort
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/csv.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const gradus_fuzz::input_file file{data, size};
  for (const bool header : {true, false}) {
    try {
      const gradus::data::csv set{file.path(), {.header = header}};
      std::vector<double> planes(static_cast<std::size_t>(set.example().size() + set.target().size()));
      set.read(set.size() - 1, planes.data());
      set.read_target(set.size() - 1, planes.data());
      if (set.classes() != 0 && (set.label(0) < 0 || set.label(0) >= set.classes())) {
        std::abort();
      }
    } catch (const gradus::error&) {
    }
  }
  return 0;
}
