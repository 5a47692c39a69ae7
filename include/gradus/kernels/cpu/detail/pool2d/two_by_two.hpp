// SPDX-License-Identifier: BSL-1.0
//
// 2x2 pooling of planes without overlap: the most frequent pooling, and the one for which transposing pays least.
#pragma once

#include <cstdint>  // std::uint8_t

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/pool2d/runs.hpp"

namespace gradus::kernels::detail {

/// Splits two packets of adjacent elements into a packet of the even and a packet of the odd ones, and joins them.
template <class Packet>
struct pairs {
  using type = typename Packet::type;
  using element = typename Packet::element;

  GRADUS_ALWAYS_INLINE static pairs load(const element* from) noexcept {
    if constexpr (Packet::lanes == 1) {
      return {Packet::load(from), Packet::load(from + 1)};
    } else {
      const type low = Packet::load(from);
      const type high = Packet::load(from + Packet::lanes);
      if constexpr (Packet::lanes == 2) {
        return {GRADUS_SHUFFLE(low, high, 0, 2), GRADUS_SHUFFLE(low, high, 1, 3)};
      } else {
        static_assert(Packet::lanes == 4);
        return {GRADUS_SHUFFLE(low, high, 0, 2, 4, 6), GRADUS_SHUFFLE(low, high, 1, 3, 5, 7)};
      }
    }
  }
  /// Stores gradients, starting at element i of dx.
  GRADUS_ALWAYS_INLINE void store(element* dx, const backward_epilogue<element>& epilogue, index_t i) const noexcept {
    if constexpr (Packet::lanes == 1) {
      store_gradient<Packet>(dx, even, epilogue, i);
      store_gradient<Packet>(dx, odd, epilogue, i + 1);
    } else if constexpr (Packet::lanes == 2) {
      store_gradient<Packet>(dx, GRADUS_SHUFFLE(even, odd, 0, 2), epilogue, i);
      store_gradient<Packet>(dx, GRADUS_SHUFFLE(even, odd, 1, 3), epilogue, i + 2);
    } else {
      static_assert(Packet::lanes == 4);
      store_gradient<Packet>(dx, GRADUS_SHUFFLE(even, odd, 0, 4, 1, 5), epilogue, i);
      store_gradient<Packet>(dx, GRADUS_SHUFFLE(even, odd, 2, 6, 3, 7), epilogue, i + 4);
    }
  }

  type even;
  type odd;
};

/// A plane for 2x2 pooling; its rows are adjacent.
struct two_by_two_plane {
  index_t in_height;
  index_t in_width;
  index_t out_height;
  index_t out_width;
};

/// y = the largest entries, choice = their indices; choice may be null.
template <class Element>
void max_two_by_two(const two_by_two_plane& plane, const Element* x, Element* y, std::uint8_t* choice) noexcept {
  for (index_t p = 0; p < plane.out_height; ++p) {
    const Element* const row = x + 2 * p * plane.in_width;
    for_each_packet<Element>(0, plane.out_width, [&]<class Packet>(Packet, index_t q) {
      const auto top = pairs<Packet>::load(row + 2 * q);
      const auto bottom = pairs<Packet>::load(row + plane.in_width + 2 * q);
      typename Packet::type best = top.even;
      typename Packet::index_vector chosen{};
      const auto take = [&](typename Packet::type value, int entry) {
        chosen = Packet::larger_byte(chosen, (value > best) & Packet::broadcast_index(entry));
        best = Packet::larger(value, best);
      };
      take(top.odd, 1);
      take(bottom.even, 2);
      take(bottom.odd, 3);
      const index_t output = p * plane.out_width + q;
      Packet::store(y + output, best);
      if (choice != nullptr) {
        Packet::store_bytes(choice + output, chosen);
      }
      const typename Packet::type sum = (top.even + top.odd) + (bottom.even + bottom.odd);
      if (Packet::any(sum != sum)) [[unlikely]] {
        for (index_t lane = 0; lane < Packet::lanes; ++lane) {
          max_windows_with_nan(window_run<Element>{.x = row + 2 * (q + lane),
                                                   .rows = 2,
                                                   .columns = 2,
                                                   .row_step = plane.in_width,
                                                   .column_step = 1,
                                                   .output = output + lane,
                                                   .kernel_width = 2},
                               0, 1, y, choice);
        }
      }
    });
  }
}

/// y = the means of the entries.
template <class Element>
void average_two_by_two(const two_by_two_plane& plane, const Element* x, Element* y) noexcept {
  for (index_t p = 0; p < plane.out_height; ++p, x += 2 * plane.in_width, y += plane.out_width) {
    for_each_packet<Element>(0, plane.out_width, [&]<class Packet>(Packet, index_t q) {
      const auto top = pairs<Packet>::load(x + 2 * q);
      const auto bottom = pairs<Packet>::load(x + plane.in_width + 2 * q);
      Packet::store(y + q, ((top.even + bottom.even) + (top.odd + bottom.odd)) * computed<Element>{0.25});
    });
  }
}

/// Computes dx. gradients(packet, i, entry) returns what the outputs from i on contribute to this entry under their
/// kernels.
template <class Element, class Gradients>
void gradients_of_two_by_two(const two_by_two_plane& plane, Element* dx, const backward_epilogue<Element>& epilogue,
                             const Gradients& gradients) noexcept {
  const auto clear = [&](index_t begin, index_t end) {
    for_each_packet<Element>(begin, end, [&]<class Packet>(Packet, index_t i) {
      store_gradient<Packet>(dx, typename Packet::type{}, epilogue, i);
    });
  };
  for (index_t h = 0; h < 2 * plane.out_height; ++h) {
    const index_t row = h * plane.in_width;
    const int entry = static_cast<int>(h % 2 * 2);
    for_each_packet<Element>(0, plane.out_width, [&]<class Packet>(Packet packet, index_t q) {
      const index_t output = h / 2 * plane.out_width + q;
      pairs<Packet>{gradients(packet, output, entry), gradients(packet, output, entry + 1)}.store(dx, epilogue,
                                                                                                  row + 2 * q);
    });
    clear(row + 2 * plane.out_width, row + plane.in_width);
  }
  clear(2 * plane.out_height * plane.in_width, plane.in_height * plane.in_width);
}

template <class Element>
void max_gradients_of_two_by_two(const two_by_two_plane& plane, const Element* dy, const std::uint8_t* choice,
                                 Element* dx, const backward_epilogue<Element>& epilogue) noexcept {
  gradients_of_two_by_two(plane, dx, epilogue, [=]<class Packet>(Packet, index_t i, int entry) {
    return Packet::masked(Packet::load_bytes(choice + i) == Packet::broadcast_index(entry), Packet::load(dy + i));
  });
}

template <class Element>
void average_gradients_of_two_by_two(const two_by_two_plane& plane, const Element* dy, Element* dx,
                                     const backward_epilogue<Element>& epilogue) noexcept {
  gradients_of_two_by_two(plane, dx, epilogue, [=]<class Packet>(Packet, index_t i, int) {
    return Packet::load(dy + i) * computed<Element>{0.25};
  });
}

}  // namespace gradus::kernels::detail
