// SPDX-License-Identifier: BSL-1.0
//
// Where a parameter lies in the flat buffers of values, gradients and optimizer state.
#pragma once

#include <string>  // std::string

#include "gradus/core/index.hpp"

namespace gradus::optim {

/// One parameter in the flat buffers: `size` elements from `offset` on, in elements.
struct segment {
  std::string name;    ///< the parameter's name, for messages and files
  index_t offset = 0;  ///< of its first element
  index_t size = 0;    ///< its number of elements
  bool decay = true;   ///< weight decay applies: usually not to biases and to normalization

  friend bool operator==(const segment&, const segment&) = default;
};

}  // namespace gradus::optim
