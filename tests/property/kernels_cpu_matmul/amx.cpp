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
#include <tuple>
#include <type_traits>

#include "emulated_amx.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/simd/isa.hpp"

using gradus::bfloat16;
using gradus::float16;
using gradus::index_t;

BOOST_AUTO_TEST_SUITE(instructions_of_amx)

namespace {

using lines_of_words = std::array<std::uint32_t, 256>;

/// What the registers 0 and 1 hold after two products of 16 lines, `depth` pairs deep.
template <class Stored, class Registers>
std::array<lines_of_words, 2> sums_of(const lines_of_words& a, const lines_of_words& b, const lines_of_words& sums,
                                      index_t depth) {
  std::array<lines_of_words, 2> results;
  Registers::configure(depth);
  Registers::template load<0>(sums.data(), 64);
  Registers::template zero<1>();
  Registers::template load<4>(a.data(), 64);
  Registers::template load<6>(b.data(), 64);
  Registers::template multiply<Stored, 0, 4, 6>();
  Registers::template multiply<Stored, 1, 4, 6>();
  Registers::template multiply<Stored, 1, 4, 6>();
  Registers::template store<0>(results[0].data(), 64);
  Registers::template store<1>(results[1].data(), 64);
  Registers::release();
  return results;
}

bool same(std::uint32_t x, std::uint32_t y) {
  return x == y || (std::isnan(std::bit_cast<float>(x)) && std::isnan(std::bit_cast<float>(y)));
}

/// What a register of sums holds after one product of these pairs, one pair deep, is added to `sum`.
template <class Stored>
float sum_of(std::array<Stored, 2> a, std::array<Stored, 2> b, float sum) {
  lines_of_words all_a{};
  lines_of_words all_b{};
  lines_of_words sums{};
  all_a[0] = std::bit_cast<std::uint32_t>(a);
  all_b[0] = std::bit_cast<std::uint32_t>(b);
  sums[0] = std::bit_cast<std::uint32_t>(sum);
  return std::bit_cast<float>(
      sums_of<Stored, gradus::kernels::detail::emulated_amx::registers>(all_a, all_b, sums, 1)[0][0]);
}

}  // namespace

// As Intel's manual describes tdpbf16ps and tdpfp16ps: the second takes subnormal numbers of float16 as they are.
BOOST_AUTO_TEST_CASE(emulation_treats_subnormal_numbers_as_the_instructions) {
  constexpr float least = 0x1p-126F;
  const std::array<float16, 2> tiny{float16{0x1p-24F}, float16{0x1.8p-24F}};
  const std::array<float16, 2> ones{float16{1.0F}, float16{1.0F}};
  BOOST_TEST(sum_of(tiny, ones, 0.0F) == 0x1p-24F + 0x1p-23F);
  BOOST_TEST(sum_of(tiny, tiny, 0.0F) == 0x1p-48F + 0x1p-46F);
  BOOST_TEST(sum_of(std::array<float16, 2>{}, ones, least) == least);
  BOOST_TEST(sum_of(std::array<float16, 2>{}, ones, least / 2) == 0.0F);
  const std::array<bfloat16, 2> small{bfloat16{least / 2}, bfloat16{0x1p-100F}};
  const std::array<bfloat16, 2> large{bfloat16{0x1p100F}, bfloat16{0x1p-30F}};
  BOOST_TEST(sum_of(small, large, 0.0F) == 0.0F);
}

// All bit patterns; then numbers around 1, whose sums round; then small numbers: products of bfloat16 about the
// smallest normal float, subnormal float16.
using stored_elements = std::tuple<bfloat16, float16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(instruction_and_emulation_agree_bit_by_bit, Stored, stored_elements) {
#if defined(__x86_64__)
  namespace detail = gradus::kernels::detail;
  if (!gradus::kernels::is_available(detail::amx_of<Stored>)) {
    BOOST_TEST_MESSAGE("no " << gradus::kernels::name_of(detail::amx_of<Stored>) << ": not compared");
    return;
  }
  constexpr bool brain = std::is_same_v<Stored, bfloat16>;
  std::mt19937 random{1};
  const auto half = [&](int kind) -> std::uint32_t {
    const auto bits = static_cast<std::uint32_t>(random());
    if (kind == 0) {
      return bits >> 16U;
    }
    const std::uint32_t exponent =
        brain ? kind == 1 ? 120 + bits / 256 % 16 : 54 + bits / 256 % 20 : (kind == 1 ? 10 : 0) + bits / 256 / 256 % 8;
    return brain ? (bits & 0x807FU) | exponent << 7U : (bits & 0x83FFU) | exponent << 10U;
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
    const auto expected = sums_of<Stored, detail::emulated_amx::registers>(a, b, sums, depth);
    const auto found = sums_of<Stored, detail::amx::registers>(a, b, sums, depth);
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
