// SPDX-License-Identifier: BSL-1.0
//
// The loops of batch normalisation over runs of adjacent elements, on the CPU.
// Module: kernels. Depends on: core.
#pragma once

#include <algorithm>    // std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::bool_constant

#include "gradus/core/index.hpp"                      // index_t
#include "gradus/kernels/cpu/elementwise_packet.hpp"  // packet

namespace gradus::kernels::detail {

/// Whether each lane of a run is a channel of its own (rows), or all lanes are of one channel (planes).
template <bool PerLane>
using per_lane = std::bool_constant<PerLane>;

/// The coefficient of lanes i, i + 1, ... of a run.
template <bool PerLane, class Packet, class Element>
GRADUS_ALWAYS_INLINE typename Packet::type coefficient(const Element* values, index_t i) noexcept {
  if constexpr (PerLane) {
    return Packet::load(values + i);
  } else {
    return Packet::broadcast(*values);
  }
}

/// first += sum of (x - shift), second += sum of (x - shift)^2
template <class Element>
void sum_run(index_t count, const Element* x, double shift, double& first, double& second) noexcept {
  constexpr int lanes = packet_bytes / 8;
  using narrow = packet<Element, lanes>;
  using wide = packet<double, lanes>;
  constexpr index_t chains = 4;  // independent additions hide their latency
  std::array<typename wide::type, chains> sums{};
  std::array<typename wide::type, chains> squares{};
  index_t i = 0;
  for (; i + chains * lanes <= count; i += chains * lanes) {
    for (index_t j = 0; j < chains; ++j) {
      const auto difference = narrow::widen(narrow::load(x + i + j * lanes)) - shift;
      sums[static_cast<std::size_t>(j)] += difference;
      squares[static_cast<std::size_t>(j)] += difference * difference;
    }
  }
  double sum = 0;
  double square = 0;
  for (; i < count; ++i) {
    const double difference = static_cast<double>(x[i]) - shift;
    sum += difference;
    square += difference * difference;
  }
  for (std::size_t j = 0; j < chains; ++j) {
    for (int lane = 0; lane < lanes; ++lane) {
      sum += sums[j][lane];
      square += squares[j][lane];
    }
  }
  first += sum;
  second += square;
}

/// The same for rows of adjacent channels: first[c] += sum over rows of (x(row, c) - shift[c]), ...
template <class Element>
void sum_rows(index_t rows, index_t channels, const Element* x, const Element* shift, double* first,
              double* second) noexcept {
  constexpr int lanes = packet_bytes / 8;
  using narrow = packet<Element, lanes>;
  using wide = packet<double, lanes>;
  constexpr index_t block = 4;  // packets of channels whose sums stay in registers
  // Few rows at a time, so that the next block of channels finds them in the cache.
  const index_t depth = std::max(index_t{8}, 4096 / std::max(index_t{1}, channels));
  for (index_t top = 0; top < rows; top += depth) {
    const index_t bottom = std::min(rows, top + depth);
    index_t c = 0;
    for (; c + block * lanes <= channels; c += block * lanes) {
      std::array<typename wide::type, block> sums{};
      std::array<typename wide::type, block> squares{};
      std::array<typename wide::type, block> shifts{};
      for (index_t j = 0; j < block; ++j) {
        shifts[static_cast<std::size_t>(j)] = narrow::widen(narrow::load(shift + c + j * lanes));
      }
      for (index_t row = top; row < bottom; ++row) {
        for (index_t j = 0; j < block; ++j) {
          const auto k = static_cast<std::size_t>(j);
          const auto difference = narrow::widen(narrow::load(x + row * channels + c + j * lanes)) - shifts[k];
          sums[k] += difference;
          squares[k] += difference * difference;
        }
      }
      for (index_t j = 0; j < block; ++j) {
        const auto k = static_cast<std::size_t>(j);
        wide::store(first + c + j * lanes, wide::load(first + c + j * lanes) + sums[k]);
        wide::store(second + c + j * lanes, wide::load(second + c + j * lanes) + squares[k]);
      }
    }
    for (; c < channels; ++c) {
      double sum = 0;
      double square = 0;
      for (index_t row = top; row < bottom; ++row) {
        const double difference = static_cast<double>(x[row * channels + c]) - static_cast<double>(shift[c]);
        sum += difference;
        square += difference * difference;
      }
      first[c] += sum;
      second[c] += square;
    }
  }
}

/// g = dy, or 0 where y is not above 0; first += sum of g, second += sum of g * (x - mean)
template <bool Relu, class Element>
void sum_slopes_run(index_t count, const Element* x, const Element* y, const Element* dy, double mean, double& first,
                    double& second) noexcept {
  constexpr int lanes = packet_bytes / 8;
  using narrow = packet<Element, lanes>;
  using wide = packet<double, lanes>;
  constexpr index_t chains = 4;
  std::array<typename wide::type, chains> sums{};
  std::array<typename wide::type, chains> products{};
  index_t i = 0;
  for (; i + chains * lanes <= count; i += chains * lanes) {
    for (index_t j = 0; j < chains; ++j) {
      const index_t at = i + j * lanes;
      auto slope = narrow::widen(narrow::load(dy + at));
      if constexpr (Relu) {
        slope = narrow::widen(narrow::load(y + at)) > 0.0 ? slope : typename wide::type{};
      }
      sums[static_cast<std::size_t>(j)] += slope;
      products[static_cast<std::size_t>(j)] += slope * (narrow::widen(narrow::load(x + at)) - mean);
    }
  }
  double sum = 0;
  double product = 0;
  for (; i < count; ++i) {
    const double slope = !Relu || y[i] > 0 ? static_cast<double>(dy[i]) : 0.0;
    sum += slope;
    product += slope * (static_cast<double>(x[i]) - mean);
  }
  for (std::size_t j = 0; j < chains; ++j) {
    for (int lane = 0; lane < lanes; ++lane) {
      sum += sums[j][lane];
      product += products[j][lane];
    }
  }
  first += sum;
  second += product;
}

/// The same for rows of adjacent channels.
template <bool Relu, class Element>
void sum_slopes_rows(index_t rows, index_t channels, const Element* x, const Element* y, const Element* dy,
                     const Element* mean, double* first, double* second) noexcept {
  constexpr int lanes = packet_bytes / 8;
  using narrow = packet<Element, lanes>;
  using wide = packet<double, lanes>;
  constexpr index_t block = 4;
  const index_t depth = std::max(index_t{8}, 2048 / std::max(index_t{1}, channels));
  for (index_t top = 0; top < rows; top += depth) {
    const index_t bottom = std::min(rows, top + depth);
    index_t c = 0;
    for (; c + block * lanes <= channels; c += block * lanes) {
      std::array<typename wide::type, block> sums{};
      std::array<typename wide::type, block> products{};
      std::array<typename wide::type, block> means{};
      for (index_t j = 0; j < block; ++j) {
        means[static_cast<std::size_t>(j)] = narrow::widen(narrow::load(mean + c + j * lanes));
      }
      for (index_t row = top; row < bottom; ++row) {
        for (index_t j = 0; j < block; ++j) {
          const auto k = static_cast<std::size_t>(j);
          const index_t at = row * channels + c + j * lanes;
          auto slope = narrow::widen(narrow::load(dy + at));
          if constexpr (Relu) {
            slope = narrow::widen(narrow::load(y + at)) > 0.0 ? slope : typename wide::type{};
          }
          sums[k] += slope;
          products[k] += slope * (narrow::widen(narrow::load(x + at)) - means[k]);
        }
      }
      for (index_t j = 0; j < block; ++j) {
        const auto k = static_cast<std::size_t>(j);
        wide::store(first + c + j * lanes, wide::load(first + c + j * lanes) + sums[k]);
        wide::store(second + c + j * lanes, wide::load(second + c + j * lanes) + products[k]);
      }
    }
    for (; c < channels; ++c) {
      double sum = 0;
      double product = 0;
      for (index_t row = top; row < bottom; ++row) {
        const index_t at = row * channels + c;
        const double slope = !Relu || y[at] > 0 ? static_cast<double>(dy[at]) : 0.0;
        sum += slope;
        product += slope * (static_cast<double>(x[at]) - static_cast<double>(mean[c]));
      }
      first[c] += sum;
      second[c] += product;
    }
  }
}

/// y = act((x - mean) * scale + shift + residual); coefficients are (mean, scale, shift), `channels` apart.
template <bool PerLane, bool Residual, bool Relu, class Element>
void normalise_run(index_t count, const Element* x, Element* y, const Element* residual, const Element* coefficients,
                   index_t channels) noexcept {
  const auto part = [=]<class Packet>(Packet, index_t i) {
    auto value = (Packet::load(x + i) - coefficient<PerLane, Packet>(coefficients, i)) *
                     coefficient<PerLane, Packet>(coefficients + channels, i) +
                 coefficient<PerLane, Packet>(coefficients + 2 * channels, i);
    if constexpr (Residual) {
      value += Packet::load(residual + i);
    }
    if constexpr (Relu) {
      value = Packet::relu(value);
    }
    Packet::store(y + i, value);
  };
  for_each_packet<Element>(0, count, part);
}

/// One run of the second backward pass.
template <class Element>
struct slopes_run {
  const Element* x = nullptr;
  const Element* y = nullptr;  ///< null: no ReLU
  const Element* dy = nullptr;
  Element* dx = nullptr;                 ///< null: not wanted
  Element* dresidual = nullptr;          ///< null: not wanted
  const Element* relu_output = nullptr;  ///< of the layer before; null: none
  const Element* mean = nullptr;
  const Element* coefficients = nullptr;  ///< (scale, offset, factor), `channels` apart
  index_t channels = 0;
  bool accumulate = false;
  bool accumulate_residual = false;
};

/// dx = scale * g - offset - factor * (x - mean), and the residual's gradient g.
template <bool PerLane, class Element>
void differentiate_run(index_t count, const slopes_run<Element>& run) noexcept {
  const auto part = [&run]<class Packet>(Packet, index_t i) {
    auto slope = Packet::load(run.dy + i);
    if (run.y != nullptr) {
      slope = Packet::where_positive(Packet::load(run.y + i), slope);
    }
    if (run.dresidual != nullptr) {
      Packet::store(run.dresidual + i, run.accumulate_residual ? Packet::load(run.dresidual + i) + slope : slope);
    }
    if (run.dx == nullptr) {
      return;
    }
    auto value = coefficient<PerLane, Packet>(run.coefficients, i) * slope -
                 coefficient<PerLane, Packet>(run.coefficients + run.channels, i) -
                 coefficient<PerLane, Packet>(run.coefficients + 2 * run.channels, i) *
                     (Packet::load(run.x + i) - coefficient<PerLane, Packet>(run.mean, i));
    if (run.accumulate) {
      value += Packet::load(run.dx + i);
    }
    if (run.relu_output != nullptr) {
      value = Packet::where_positive(Packet::load(run.relu_output + i), value);
    }
    Packet::store(run.dx + i, value);
  };
  for_each_packet<Element>(0, count, part);
}

}  // namespace gradus::kernels::detail
