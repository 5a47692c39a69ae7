// SPDX-License-Identifier: BSL-1.0
//
// The range of one parameter in the flat buffers of values, gradients and optimizer state.
#pragma once

#include <string>  // std::string

#include "gradus/core/index.hpp"

namespace gradus::optim {

/// The range of one parameter in the flat buffers: `size` elements from `offset` on, in elements.
struct segment {
  std::string name;                 ///< the parameter's name, for messages and files
  index_t offset = 0;               ///< offset of its first element
  index_t size = 0;                 ///< number of elements
  bool decay = true;                ///< apply weight decay; usually false for biases and normalization
  double learning_rate_factor = 1;  ///< its learning rate is this factor times that of the step

  /// True if all members are equal.
  friend bool operator==(const segment&, const segment&) = default;
};

}  // namespace gradus::optim
