// SPDX-License-Identifier: BSL-1.0
//
// The smallest program that uses gradus.
#include <gradus/core/extents.hpp>
#include <gradus/core/version.hpp>
#include <iostream>

int main() {
  const gradus::image_extents batch{32, 1, 28, 28};
  std::cout << "gradus " << gradus::version << ": a batch " << batch << " has " << batch.size() << " elements\n";
  return batch.size() == 25088 ? 0 : 1;
}
