// SPDX-License-Identifier: BSL-1.0
//
// The transforms of Winograd's convolution, compiled once for every instruction set.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"
#include "gradus/simd/isa.hpp"

namespace gradus::kernels::detail {

/// F(4, Taps) along one axis with the points 0, +-points and infinity (Toom-Cook): 4 results from 3 + Taps products.
/// The points are exact in float and chosen for small errors (as in Barabasz et al. 2020): with 3 taps, the customary
/// points 1 and 2 have twice the error.
template <int Taps>
struct winograd_axis {
  static constexpr int results = 4;
  static constexpr int positions = results + Taps - 1;
  static constexpr std::size_t pairs = (positions - 2) / 2;
  using per_pair = std::array<double, pairs>;

  static constexpr per_pair points = [] {
    if constexpr (Taps == 3) {
      return per_pair{0.625, 1.5};
    } else if constexpr (Taps == 5) {
      return per_pair{0.5, 1.0, 2.0};
    } else {
      static_assert(Taps == 7);
      return per_pair{0.375, 0.75, 1.25, 2.5};
    }
  }();
  /// powers[k][i]: points[k] to the power of i.
  static constexpr auto powers = [] {
    std::array<std::array<double, 8>, pairs> all_powers{};
    for (std::size_t k = 0; k < pairs; ++k) {
      all_powers[k][0] = 1.0;
      for (std::size_t i = 1; i < 8; ++i) {
        all_powers[k][i] = all_powers[k][i - 1] * points[k];
      }
    }
    return all_powers;
  }();

  /// Coefficients of the product of (x^2 - p^2) over all points p except number `but`, lowest power first.
  template <std::size_t Count>
  static constexpr std::array<double, Count> product_without(std::size_t but) {
    std::array<double, Count> product{1.0};
    for (std::size_t k = 0; k < pairs; ++k) {
      for (std::size_t i = Count; k != but && i-- > 0;) {
        product[i] = (i > 0 ? product[i - 1] : 0.0) - powers[k][2] * product[i];
      }
    }
    return product;
  }
  static constexpr std::array<double, pairs + 1> all = product_without<pairs + 1>(pairs);
  static constexpr std::array<per_pair, pairs> others = [] {
    std::array<per_pair, pairs> products{};
    for (std::size_t k = 0; k < pairs; ++k) {
      products[k] = product_without<pairs>(k);
    }
    return products;
  }();

  // Factors of the weights at each point.
  static constexpr double of_zero = 1 / all[0];
  static constexpr per_pair of_pair = [] {
    per_pair factors{};
    for (std::size_t k = 0; k < pairs; ++k) {
      double divisor = 2 * powers[k][2];
      for (std::size_t j = 0; j < pairs; ++j) {
        divisor *= j == k ? 1.0 : powers[k][2] - powers[j][2];
      }
      factors[k] = 1 / divisor;
    }
    return factors;
  }();
};

/// Transforms squares or lines of numbers, one for every k < count (a multiple of a vector's SIMD lanes):
///
///   position p of square k:  from[p][from_offset + k]  ->  to[p][to_offset + k]
///
/// Positions are numbered row by row.
template <class Element>
using winograd_transform = void (*)(const Element* const* from, index_t from_offset, Element* const* to,
                                    index_t to_offset, index_t count);

/// The transforms around the products of Winograd (Lavin & Gray 2015). For a tile d of the input and weights g, the
/// results are A^T ((B^T d B) * (G g G^T)) A, where * is element by element. For the gradient y of the results, the
/// gradient of the weights is G^T ((B^T d B) * (A y A^T)) G. Lines have only the left factors.
template <class Element>
struct winograd_transforms {
  winograd_transform<Element> input;        ///< d to B^T d B
  winograd_transform<Element> weights;      ///< g to G g G^T
  winograd_transform<Element> sums;         ///< m to A^T m A
  winograd_transform<Element> gradient;     ///< y to A y A^T
  winograd_transform<Element> weight_sums;  ///< m to G^T m G
};

/// The transforms for each kernel size.
template <class Element>
struct winograd_table {
  winograd_transforms<Element> square_3;
  winograd_transforms<Element> square_5;
  winograd_transforms<Element> line_3;
  winograd_transforms<Element> line_7;
};

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/simd/winograd_body.hpp"
#define GRADUS_TARGET_FUSES
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels::detail {

/// The transforms of an instruction set.
template <class Element>
[[nodiscard]] const winograd_table<Element>& winograd_transforms_for([[maybe_unused]] instruction_set which) {
#if defined(GRADUS_X86_KERNELS)
  if (which >= instruction_set::avx512) {
    return avx512::winograd_transforms_of<Element>;
  }
  if (which == instruction_set::avx2) {
    return avx2::winograd_transforms_of<Element>;
  }
#endif
  return portable::winograd_transforms_of<Element>;
}

}  // namespace gradus::kernels::detail
