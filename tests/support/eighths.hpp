// SPDX-License-Identifier: BSL-1.0
//
// Numbers for tests of products.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint32_t
#include <random>       // std::minstd_rand
#include <string_view>  // std::string_view
#include <vector>       // std::vector

/// Multiples of 1/8 from -1 to 1, the same for the same name: sums of a few thousand of their products are exact in
/// float, so a wrong term shows and rounding does not.
inline std::vector<double> eighths(std::size_t count, std::string_view name) {
  std::uint32_t seed = 1;
  for (const char letter : name) {
    seed = seed * 31 + static_cast<unsigned char>(letter);
  }
  std::minstd_rand next{seed};
  next.discard(2);  // neighbouring seeds begin alike
  std::vector<double> values(count);
  for (double& value : values) {
    value = (static_cast<double>(next() % 17) - 8.0) / 8.0;
  }
  return values;
}
