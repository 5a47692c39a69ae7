// SPDX-License-Identifier: BSL-1.0
//
// The loops of batch normalization over runs of adjacent elements, on the CPU.
#pragma once

#include <algorithm>    // std::fill_n, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::bool_constant

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"

namespace gradus::kernels::detail {

/// True if each SIMD lane of a run is a channel (rows), false if all belong to one channel (planes).
template <bool PerLane>
using per_lane = std::bool_constant<PerLane>;

/// The coefficients of the elements i, i + 1, ... of a run.
template <bool PerLane, class Packet, class Value>
GRADUS_ALWAYS_INLINE typename Packet::type coefficient(const Value* values, index_t i) noexcept {
  if constexpr (PerLane) {
    return Packet::load(values + i);
  } else {
    return Packet::broadcast(*values);
  }
}

/// Two sums for every SIMD lane: a few terms in the type of the elements, which are then added to doubles.
template <class Packet>
struct lane_sums {
  typename Packet::type first{};
  typename Packet::type second{};

  GRADUS_ALWAYS_INLINE void add(typename Packet::type a, typename Packet::type b) noexcept {
    first += a;
    second += b;
  }
};
inline constexpr index_t short_sum = 16;  ///< terms that are added before they are widened

/// first += sum of a, second += sum of b, over i in [0, count) of each of `runs` runs; term(packet, run, i) returns
/// (a, b) as a lane_sums.
template <class Element, class Term>
void sum_terms(index_t runs, index_t count, double& first, double& second, const Term& term) noexcept {
  using full = full_packet<Element>;
  constexpr index_t chains = 4;  // independent additions hide their latency
  std::array<lane_sums<full>, chains> parts{};
  std::array<double, static_cast<std::size_t>(full::lanes)> sums{};
  std::array<double, static_cast<std::size_t>(full::lanes)> others{};
  index_t terms = 0;  // largest number of terms in a SIMD lane of parts
  const auto add = [&](std::size_t part, index_t run, index_t i) {
    const auto next = term(full{}, run, i);
    parts[part].add(next.first, next.second);
  };
  const auto widen = [&] {
    for (auto& part : parts) {
      full::add_to(sums.data(), part.first);
      full::add_to(others.data(), part.second);
      part = {};
    }
    terms = 0;
  };
  double a = 0;
  double b = 0;
  for (index_t run = 0; run < runs; ++run) {
    index_t i = 0;
    while (i + chains * full::lanes <= count) {
      const index_t steps = std::min(short_sum - terms, (count - i) / (chains * full::lanes));
      for (const index_t end = i + steps * chains * full::lanes; i < end; i += chains * full::lanes) {
        for (std::size_t j = 0; j < chains; ++j) {
          add(j, run, i + static_cast<index_t>(j) * full::lanes);
        }
      }
      terms += steps;
      if (terms >= short_sum) {
        widen();
      }
    }
    for (std::size_t j = 0; i + full::lanes <= count; i += full::lanes, ++j) {
      add(j, run, i);
    }
    if (++terms >= short_sum) {
      widen();
    }
    for (; i < count; ++i) {
      const auto next = term(packet<Element, 1>{}, run, i);
      a += static_cast<double>(next.first[0]);
      b += static_cast<double>(next.second[0]);
    }
  }
  widen();
  for (std::size_t lane = 0; lane < sums.size(); ++lane) {
    a += sums[lane];
    b += others[lane];
  }
  first += a;
  second += b;
}

/// The same for every channel of rows of adjacent channels: term(packet, row, channel) returns (a, b).
///
/// Reads memory in order, row after row: column by column, consecutive reads would be in distant cache lines.
template <class Element, class Term>
void sum_rows_of_terms(index_t rows, index_t channels, double* first, double* second, const Term& term) noexcept {
  using real = computed<Element>;
  constexpr index_t strip = 2048;  // channels whose short sums stay in the first-level cache
  std::array<real, static_cast<std::size_t>(2 * strip)> sums;  // a vector of first sums, a vector of second sums
  for (index_t left = 0; left < channels; left += strip) {
    const index_t width = std::min(strip, channels - left);
    for (index_t top = 0; top < rows; top += short_sum) {
      std::fill_n(sums.data(), 2 * width, real{});
      for (index_t row = top; row < std::min(rows, top + short_sum); ++row) {
        for_each_packet<Element>(0, width, [&]<class Packet>(Packet, index_t c) {
          using reals = packet<real, static_cast<int>(Packet::lanes)>;
          const auto next = term(Packet{}, row, left + c);
          real* const place = sums.data() + 2 * c;
          reals::store(place, reals::load(place) + next.first);
          reals::store(place + reals::lanes, reals::load(place + reals::lanes) + next.second);
        });
      }
      for_each_packet<real>(0, width, [&]<class Packet>(Packet, index_t c) {
        const real* const place = sums.data() + 2 * c;
        Packet::add_to(first + left + c, Packet::load(place));
        Packet::add_to(second + left + c, Packet::load(place + Packet::lanes));
      });
    }
  }
}

/// first += sum of (x - shift), second += sum of (x - shift)^2, over `runs` runs that begin `stride` elements apart.
template <class Element>
void sum_runs(index_t runs, index_t stride, index_t count, const Element* x, computed<Element> shift, double& first,
              double& second) noexcept {
  sum_terms<Element>(runs, count, first, second, [=]<class Packet>(Packet, index_t run, index_t i) {
    const auto difference = Packet::load(x + run * stride + i) - shift;
    return lane_sums<Packet>{difference, difference * difference};
  });
}

/// The same for rows of adjacent channels: first[c] += sum over rows of (x(row, c) - shift[c]), ...
template <class Element>
void sum_rows(index_t rows, index_t channels, const Element* x, const Element* shift, double* first,
              double* second) noexcept {
  sum_rows_of_terms<Element>(rows, channels, first, second, [=]<class Packet>(Packet, index_t row, index_t c) {
    const auto difference = Packet::load(x + row * channels + c) - Packet::load(shift + c);
    return lane_sums<Packet>{difference, difference * difference};
  });
}

/// With g = dy, times the derivative of the activation whose output is y: first += sum of g, second += sum of g * (x -
/// mean).
template <bool Relu, class Element>
void sum_gradients_runs(index_t runs, index_t stride, index_t count, const Element* x, const Element* y,
                        const Element* dy, computed<Element> mean, double& first, double& second,
                        const held_derivative<computed<Element>> derivative = {}) noexcept {
  sum_terms<Element>(runs, count, first, second, [=]<class Packet>(Packet, index_t run, index_t place) {
    const index_t i = run * stride + place;
    auto gradient = Packet::load(dy + i);
    if constexpr (Relu) {
      gradient = derivative.template times<Packet>(Packet::load(y + i), gradient);
    }
    return lane_sums<Packet>{gradient, gradient * (Packet::load(x + i) - mean)};
  });
}

/// The same for rows of adjacent channels.
template <bool Relu, class Element>
void sum_gradients_rows(index_t rows, index_t channels, const Element* x, const Element* y, const Element* dy,
                        const computed<Element>* mean, double* first, double* second,
                        const held_derivative<computed<Element>> derivative = {}) noexcept {
  sum_rows_of_terms<Element>(rows, channels, first, second, [=]<class Packet>(Packet, index_t row, index_t c) {
    const index_t i = row * channels + c;
    auto gradient = Packet::load(dy + i);
    if constexpr (Relu) {
      gradient = derivative.template times<Packet>(Packet::load(y + i), gradient);
    }
    return lane_sums<Packet>{gradient, gradient * (Packet::load(x + i) - Packet::load(mean + c))};
  });
}

/// y = act((x - mean) * scale + shift + residual); coefficients are (mean, scale, shift), `channels` apart.
template <bool PerLane, bool Residual, bool Activation, class Element>
void normalize_run(index_t count, const Element* x, Element* y, const Element* residual,
                   const held_activation<computed<Element>> act, const computed<Element>* coefficients,
                   index_t channels) noexcept {
  const auto part = [=]<class Packet>(Packet, index_t i) {
    auto value = (Packet::load(x + i) - coefficient<PerLane, Packet>(coefficients, i)) *
                     coefficient<PerLane, Packet>(coefficients + channels, i) +
                 coefficient<PerLane, Packet>(coefficients + 2 * channels, i);
    if constexpr (Residual) {
      value += Packet::load(residual + i);
    }
    if constexpr (Activation) {
      value = act.other ? act.bent(value) : Packet::relu(value);
    }
    Packet::store(y + i, value);
  };
  for_each_packet<Element>(0, count, part);
}

/// The arguments of one run of the second backward pass.
template <class Element>
struct gradients_run {
  const Element* x = nullptr;
  const Element* y = nullptr;  ///< null: no activation
  const Element* dy = nullptr;
  Element* dx = nullptr;                 ///< null: not needed
  Element* dresidual = nullptr;          ///< null: not needed
  const Element* relu_output = nullptr;  ///< of the layer before; null: no mask
  const computed<Element>* mean = nullptr;
  const computed<Element>* coefficients = nullptr;  ///< (scale, mean of g, factor), `channels` apart
  index_t channels = 0;
  held_derivative<computed<Element>> of_y{};            ///< of the activation whose output is y
  held_derivative<computed<Element>> of_relu_output{};  ///< of that whose output is relu_output
  bool accumulate = false;
  bool accumulate_residual = false;
};

/// dx = scale * (g - mean of g) - factor * (x - mean), and the residual's gradient g. With Plain, writes only dx,
/// without an epilogue. Where a channel has one value, g and x equal their means exactly, and dx is 0.
template <bool PerLane, bool Relu, bool Plain, class Element>
void differentiate_run(index_t count, const gradients_run<Element> run) noexcept {
  for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
    auto gradient = Packet::load(run.dy + i);
    if constexpr (Relu) {
      gradient = run.of_y.template times<Packet>(Packet::load(run.y + i), gradient);
    }
    if constexpr (!Plain) {
      if (run.dresidual != nullptr) {
        Packet::store(run.dresidual + i,
                      run.accumulate_residual ? Packet::load(run.dresidual + i) + gradient : gradient);
      }
      if (run.dx == nullptr) {
        return;
      }
    }
    auto value = coefficient<PerLane, Packet>(run.coefficients, i) *
                     (gradient - coefficient<PerLane, Packet>(run.coefficients + run.channels, i)) -
                 coefficient<PerLane, Packet>(run.coefficients + 2 * run.channels, i) *
                     (Packet::load(run.x + i) - coefficient<PerLane, Packet>(run.mean, i));
    if constexpr (!Plain) {
      if (run.accumulate) {
        value += Packet::load(run.dx + i);
      }
      if (run.relu_output != nullptr) {
        value = run.of_relu_output.template times<Packet>(Packet::load(run.relu_output + i), value);
      }
    }
    Packet::store(run.dx + i, value);
  });
}

}  // namespace gradus::kernels::detail
