// SPDX-License-Identifier: BSL-1.0
//
// The instructions of AMX and their emulation, bit by bit, on a processor that has them.

#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "emulated_amx.hpp"
#include "gradus/simd/isa.hpp"

using gradus::index_t;

BOOST_AUTO_TEST_SUITE(instructions_of_amx)

namespace {

using lines_of_words = std::array<std::uint32_t, 256>;

/// What the registers 0 and 1 hold after two products of 16 lines, `depth` pairs deep.
template <class Registers>
std::array<lines_of_words, 2> sums_of(const lines_of_words& a, const lines_of_words& b, const lines_of_words& sums,
                                      index_t depth) {
  std::array<lines_of_words, 2> results;
  Registers::configure(depth);
  Registers::template load<0>(sums.data(), 64);
  Registers::template zero<1>();
  Registers::template load<4>(a.data(), 64);
  Registers::template load<6>(b.data(), 64);
  Registers::template multiply<0, 4, 6>();
  Registers::template multiply<1, 4, 6>();
  Registers::template multiply<1, 4, 6>();
  Registers::template store<0>(results[0].data(), 64);
  Registers::template store<1>(results[1].data(), 64);
  Registers::release();
  return results;
}

bool same(std::uint32_t x, std::uint32_t y) {
  return x == y || (std::isnan(std::bit_cast<float>(x)) && std::isnan(std::bit_cast<float>(y)));
}

}  // namespace

// All bit patterns; then numbers around 1, whose sums round; then numbers whose products are about the smallest normal.
BOOST_AUTO_TEST_CASE(instruction_and_emulation_agree_bit_by_bit) {
#if defined(__x86_64__)
  namespace detail = gradus::kernels::detail;
  if (!gradus::kernels::is_available(gradus::kernels::instruction_set::amx_bf16)) {
    BOOST_TEST_MESSAGE("no AMX: not compared");
    return;
  }
  std::mt19937 random{1};
  const auto half = [&](int kind) -> std::uint32_t {
    const auto bits = static_cast<std::uint32_t>(random());
    const std::uint32_t exponent = kind == 1 ? 120 + bits / 256 % 16 : 54 + bits / 256 % 20;
    return kind == 0 ? bits >> 16U : (bits & 0x807FU) | exponent << 7U;
  };
  int faults = 0;
  for (int i = 0; i < 3000 && faults < 5; ++i) {
    const int kind = i % 3;
    lines_of_words a{};
    lines_of_words b{};
    lines_of_words sums{};
    for (std::size_t j = 0; j < a.size(); ++j) {
      a[j] = half(kind) | half(kind) << 16U;
      b[j] = half(kind) | half(kind) << 16U;
      sums[j] = kind == 2 ? static_cast<std::uint32_t>(random()) & 0x80FFFFFFU
                          : half(kind) << 16U | static_cast<std::uint32_t>(random()) % 65536;
    }
    const index_t depth = 1 + i / 3 % 16;
    const auto expected = sums_of<detail::emulated_amx::registers>(a, b, sums, depth);
    const auto found = sums_of<detail::amx_bf16::registers>(a, b, sums, depth);
    for (std::size_t j = 0; j < 2 * a.size(); ++j) {
      const std::uint32_t x = expected[j / 256][j % 256];
      const std::uint32_t y = found[j / 256][j % 256];
      if (!same(x, y)) {
        BOOST_TEST(x == y, "case " << i << ", depth " << depth << ", sum " << j << ": " << std::bit_cast<float>(x)
                                   << " and " << std::bit_cast<float>(y));
        ++faults;
        break;
      }
    }
  }
#endif
}

BOOST_AUTO_TEST_SUITE_END()
