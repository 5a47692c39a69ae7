// SPDX-License-Identifier: BSL-1.0
//
// What a checkpoint holds, as each rank describes it.
#pragma once

#include <cstddef>     // std::byte
#include <cstdint>     // std::int64_t, std::uint64_t
#include <functional>  // std::less
#include <map>         // std::map
#include <span>        // std::span
#include <string>      // std::string
#include <vector>      // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/io/safetensors.hpp"

namespace gradus::io {

/// Bytes of a tensor that this rank has.
struct checkpoint_part {
  std::uint64_t begin = 0;  ///< offset of the first byte in the tensor, whose elements are in row-major order
  std::span<const std::byte> bytes = {};  ///< in host memory
};

/// A tensor of a checkpoint. Name, type, shape and `replicated` are the same on all ranks.
struct checkpoint_tensor {
  std::string name = {};                  ///< UTF-8, unique in the checkpoint: "conv1.weight"
  element_type type = element_type::f32;  ///< of the elements
  std::vector<index_t> shape = {};        ///< extents; none for a single number
  /// What this rank has. The parts of all ranks cover each byte once; or, of a replicated tensor, one part with all of
  /// its bytes on each rank.
  std::vector<checkpoint_part> parts = {};
  bool replicated = false;  ///< all ranks have the same bytes
};

/// A checkpoint, as one rank describes it. All ranks give the same, except for the parts.
struct checkpoint_content {
  std::int64_t step = 0;                        ///< at least 0; it names the file
  std::vector<checkpoint_tensor> tensors = {};  ///< in the same order on all ranks
  /// Texts for texts. Keys that begin with "gradus." belong to the library.
  std::map<std::string, std::string, std::less<>> metadata = {};
  bool best = false;  ///< the newest file that is the best is kept for longer than the newest
};

}  // namespace gradus::io
