// SPDX-License-Identifier: BSL-1.0
//
// Sums over runs of adjacent elements for normalizations on the CPU.
#pragma once

#include <algorithm>  // std::fill_n, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t

#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/norm/batch_norm_runs.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"

namespace gradus::kernels::detail {

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

/// The functions of batch_norm_body.hpp for the instruction set in use.
template <class Element>
void sum_runs(const norm_terms<Element>& terms, index_t runs, index_t stride, index_t count, computed<Element> mean,
              double& first, double& second) {
  on_target([&](auto target) { sum_runs(target, terms, runs, stride, count, mean, first, second); });
}
template <class Element, class Mean>
void sum_rows(const norm_terms<Element>& terms, index_t rows, index_t channels, const Mean* mean, double* first,
              double* second) {
  on_target([&](auto target) { sum_rows(target, terms, rows, channels, mean, first, second); });
}

}  // namespace gradus::kernels::detail
