// SPDX-License-Identifier: BSL-1.0
//
// Copies that go past the caches.
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <vector>

#include "gradus/core/streamed_copy.hpp"

namespace {

/// Whether a copy of `size` bytes between these offsets has all bytes and leaves those around it as they are.
bool copies(std::size_t from_offset, std::size_t to_offset, std::size_t size) {
  constexpr std::byte untouched{0xA5};
  std::vector<std::byte> from(from_offset + size);
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<std::byte>(i * 2654435761U >> 11U);
  }
  std::vector<std::byte> to(to_offset + size + 64, untouched);
  gradus::streamed_copy(to.data() + to_offset, from.data() + from_offset, size);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool inside = i >= to_offset && i < to_offset + size;
    if (to[i] != (inside ? from[from_offset + i - to_offset] : untouched)) {
      return false;
    }
  }
  return true;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(streamed_copy)

BOOST_AUTO_TEST_CASE(every_size_and_alignment_is_copied) {
  constexpr std::size_t large = std::size_t{1} << 20U;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, large - 1, large,
                                 large + 1, large + 63, large + 64, 2 * large + 17}) {
    for (const std::size_t from : {0U, 1U, 8U}) {
      for (const std::size_t to : {0U, 3U, 16U, 63U}) {
        BOOST_TEST(copies(from, to, size), "offsets " << from << " and " << to << ", " << size << " bytes");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_copied_from_nowhere) {
  gradus::streamed_copy(nullptr, nullptr, 0);
}

BOOST_AUTO_TEST_SUITE_END()
