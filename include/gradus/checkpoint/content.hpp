// SPDX-License-Identifier: BSL-1.0
//
// What a checkpoint holds, as each rank describes it.
#pragma once

#include <cstdint>     // std::int64_t
#include <functional>  // std::less
#include <map>         // std::map
#include <string>      // std::string
#include <vector>      // std::vector

#include "gradus/core/config.hpp"
#include "gradus/io/stored_array.hpp"

namespace gradus::io {

/// A checkpoint, as one rank describes it. All ranks give the same, except for the ranges and the memory of arrays.
struct checkpoint_content {
  std::int64_t step = 0;                  ///< at least 0; it names the file
  std::vector<stored_array> arrays = {};  ///< in the same order on all ranks
  /// Texts for texts. Keys that begin with "gradus." belong to the library.
  std::map<std::string, std::string, std::less<>> metadata = {};
  bool best = false;  ///< the newest file that is the best is kept for longer than the newest
};

}  // namespace gradus::io
