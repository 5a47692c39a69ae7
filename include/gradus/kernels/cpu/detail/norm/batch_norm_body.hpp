// SPDX-License-Identifier: BSL-1.0
//
// The loops of batch normalization over runs of adjacent elements, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// Two terms or sums for every SIMD lane.
template <class Element>
struct term_pair {
  typename packet<Element>::type first{};
  typename packet<Element>::type second{};

  GRADUS_ALWAYS_INLINE void add(const term_pair& other) noexcept {
    first += other.first;
    second += other.second;
  }
};

/// first += sum of a, second += sum of b, over i in [0, count) of each of `runs` runs; term(packet, run, i) returns
/// (a, b). Element i of a run adds to sum i % `block` in the type of the elements; after short_sum terms, these are
/// added in double precision. Smaller vectors read a block in parts: all instruction sets have the same bits.
template <class Element, class Term>
GRADUS_ALWAYS_INLINE void sum_terms(index_t runs, index_t count, double& first, double& second,
                                    const Term& term) noexcept {
  using packets = packet<Element>;
  using real = typename packets::real;
  constexpr index_t lanes = packets::lanes;
  constexpr index_t chains = 4;  // independent additions hide their latency
  constexpr index_t line = 64 / static_cast<index_t>(sizeof(real));
  constexpr index_t block = chains * line;
  alignas(64) real sums[2][std::size_t{block}];
  alignas(64) double totals[2][std::size_t{line}] = {};
  index_t run = 0;
  index_t begin = 0;
  while (run < runs) {
    index_t next_run = run;
    index_t next = begin;
    for (index_t part = 0; part < block; part += chains * lanes) {
      term_pair<Element> parts[chains]{};
      next_run = run;
      next = begin;
      for (index_t step = 0; step < short_sum && next_run < runs; ++step) {
        const index_t i = next + part;
        if (i + chains * lanes <= count) {
#pragma GCC unroll 4
          for (index_t j = 0; j < chains; ++j) {
            parts[j].add(term(packets{}, next_run, i + j * lanes));
          }
        } else {
#pragma GCC unroll 4
          for (index_t j = 0; j < chains; ++j) {
            if (i + j * lanes >= count) {
              break;
            }
            const packets p{std::min(lanes, count - i - j * lanes)};
            const term_pair<Element> last = term(p, next_run, i + j * lanes);
            parts[j].add({p.only(last.first), p.only(last.second)});
          }
        }
        next += block;
        if (next >= count) {
          next = 0;
          ++next_run;
        }
      }
#pragma GCC unroll 4
      for (index_t j = 0; j < chains; ++j) {
        packet<real>{}.store(sums[0] + part + j * lanes, parts[j].first);
        packet<real>{}.store(sums[1] + part + j * lanes, parts[j].second);
      }
    }
    run = next_run;
    begin = next;
    for (index_t k = 0; k < 2 * line; k += lanes) {
      constexpr packet<real> p{};
      const index_t which = k / line;
      const real* const of = sums[which] + k % line;
      p.add_to(totals[which] + k % line,
               (p.load(of) + p.load(of + 2 * line)) + (p.load(of + line) + p.load(of + 3 * line)));
    }
  }
  const auto total_of = [](const double* from) {
    row_block<double> all;
    for (int k = 0; k < all.vectors; ++k) {
      constexpr packet<double> p{};
      all.value[k] = p.load(from + k * p.lanes);
      if (line > 8) {
        all.value[k] += p.load(from + 8 + k * p.lanes);
      }
    }
    return all.reduced([](const auto& a, const auto& b) { return a + b; });
  };
  first += total_of(totals[0]);
  second += total_of(totals[1]);
}

/// The same for every channel of rows of adjacent channels: term(packet, element, channel) returns (a, b) of elements
/// row * channels + channel. Short rows are joined: term then has channels above `channels`, for rows after the first.
///
/// Reads memory in order, a few rows at a time: column by column, consecutive reads would be in distant cache lines.
template <class Element, class Term>
GRADUS_ALWAYS_INLINE void sum_rows_of_terms(index_t all_rows, index_t channels, double* first, double* second,
                                            const Term& term) noexcept {
  using packets = packet<Element>;
  constexpr index_t few = 4;
  constexpr index_t strip = 2048;  // channels whose short sums stay in the first-level cache
  alignas(GRADUS_TARGET_BYTES) typename packets::real sums[2][strip];
  double joined[2][joined_channels];
  const index_t joins = std::clamp(joined_channels / channels, index_t{1}, std::max(index_t{1}, all_rows));
  const index_t width = joins * channels;
  double* const to[] = {joins > 1 ? joined[0] : first, joins > 1 ? joined[1] : second};
  std::fill_n(joined[0], joins > 1 ? width : 0, 0.0);
  std::fill_n(joined[1], joins > 1 ? width : 0, 0.0);
  const auto add_rows = [&](index_t begin, index_t rows, index_t columns) {
    for (index_t left = 0; left < columns; left += strip) {
      for (index_t top = 0; top < rows; top += short_sum) {
        const index_t bottom = std::min(rows, top + short_sum);
        for (index_t row = top; row < bottom; row += few) {
          const index_t end = std::min(bottom, row + few);
          for_each_packet<Element>(0, std::min(strip, columns - left), [&](packets p, index_t c) {
            constexpr packets whole{};
            term_pair<Element> sum;
            if (row != top) {
              sum = {whole.load(sums[0] + c), whole.load(sums[1] + c)};
            }
            for (index_t r = row; r < end; ++r) {
              sum.add(term(p, begin + r * columns + left + c, left + c));
            }
            if (end < bottom) {
              whole.store(sums[0] + c, sum.first);
              whole.store(sums[1] + c, sum.second);
            } else {
              p.add_to(to[0] + left + c, sum.first);
              p.add_to(to[1] + left + c, sum.second);
            }
          });
        }
      }
    }
  };
  const index_t wide = all_rows / joins;
  for (index_t begin = 0; begin < all_rows * channels; begin = std::max(wide * width, begin + width)) {
    const bool whole = begin < wide * width;  // then the rows that are left
    add_rows(begin, whole ? wide : 1, whole ? width : all_rows * channels - begin);
  }
  for (index_t i = 0; joins > 1 && i < width; ++i) {
    first[i % channels] += joined[0][i];
    second[i % channels] += joined[1][i];
  }
}

/// Adds the terms of runs of one channel, as norm_terms describes them.
template <class Element>
[[gnu::flatten]] void sum_runs(target /*of*/, const norm_terms<Element>& given, index_t runs, index_t stride,
                               index_t count, computed<Element> mean, double& first, double& second) noexcept {
  using packets = packet<Element>;
  const norm_terms<Element> a = given;
  const auto middle = packets::broadcast(mean);
  if (a.dy == nullptr) {
    sum_terms<Element>(runs, count, first, second, [=](packets p, index_t run, index_t i) {
      const auto difference = p.load(a.x + run * stride + i) - middle;
      return term_pair<Element>{difference, difference * difference};
    });
  } else {
    sum_terms<Element>(runs, count, first, second, [=](packets p, index_t run, index_t offset) {
      const index_t i = run * stride + offset;
      auto gradient = p.load(a.dy + i);
      if (a.y != nullptr) {
        gradient = p.times(a.derivative, p.load(a.y + i), gradient);
      }
      return term_pair<Element>{gradient, gradient * (p.load(a.x + i) - middle)};
    });
  }
}

/// Adds the terms of rows of adjacent channels, as norm_terms describes them.
template <class Element, class Mean>
[[gnu::flatten]] void sum_rows(target /*of*/, const norm_terms<Element>& given, index_t rows, index_t channels,
                               const Mean* mean, double* first, double* second) noexcept {
  using packets = packet<Element>;
  const norm_terms<Element> a = given;
  Mean copies[joined_channels];
  for (index_t c = 0; c + channels <= joined_channels; c += channels) {
    std::copy_n(mean, channels, copies + c);
  }
  const Mean* const middle = channels <= joined_channels ? copies : mean;
  if (a.dy == nullptr) {
    sum_rows_of_terms<Element>(rows, channels, first, second, [=](packets p, index_t i, index_t c) {
      const auto difference = p.load(a.x + i) - p.load(middle + c);
      return term_pair<Element>{difference, difference * difference};
    });
  } else {
    sum_rows_of_terms<Element>(rows, channels, first, second, [=](packets p, index_t i, index_t c) {
      auto gradient = p.load(a.dy + i);
      if (a.y != nullptr) {
        gradient = p.times(a.derivative, p.load(a.y + i), gradient);
      }
      return term_pair<Element>{gradient, gradient * (p.load(a.x + i) - p.load(middle + c))};
    });
  }
}

/// Coefficients of the elements of a run: one for each of them, or the same for all.
template <bool PerLane, class Element>
struct run_coefficient {
  using packets = packet<Element>;
  const typename packets::real* values;
  typename packets::type same;

  GRADUS_ALWAYS_INLINE explicit run_coefficient(const typename packets::real* of) noexcept
      : values{of}, same{packets::broadcast(PerLane ? 0 : *of)} {}
  GRADUS_ALWAYS_INLINE typename packets::type at(packets p, index_t i) const noexcept {
    return PerLane ? p.load(values + i) : same;
  }
};

/// Calls body(first element, elements, coefficients) for runs in [begin, end), where the coefficients of a run are
/// Count arrays. Short rows are joined, with a copy of the coefficients for each.
template <bool PerLane, std::size_t Count, class Real, class Body>
GRADUS_ALWAYS_INLINE void for_each_long_run(index_t begin, index_t end, index_t length, index_t channels,
                                            const Real* const (&coefficients)[Count], const Body& body) noexcept {
  const Real* own[Count];
  if constexpr (PerLane) {
    Real copies[Count][joined_channels];
    const index_t rows = std::max(index_t{1}, joined_channels / channels);
    for (std::size_t k = 0; k < Count; ++k) {
      own[k] = coefficients[k];
      for (index_t row = 0; rows > 1 && row < rows; ++row) {
        own[k] = copies[k];
        std::copy_n(coefficients[k], channels, copies[k] + row * channels);
      }
    }
    for (index_t run = begin; run < end; run += rows) {
      body(run * length, std::min(rows, end - run) * length, own);
    }
  } else {
    for (index_t run = begin; run < end; ++run) {
      for (std::size_t k = 0; k < Count; ++k) {
        own[k] = coefficients[k] + run % channels;
      }
      body(run * length, length, own);
    }
  }
}

/// y = act(value + residual) for `length` elements from `first` on; fill(packet, number of packets, k, values) computes
/// the values from element first + k on.
template <class Element, class Fill>
GRADUS_ALWAYS_INLINE void write_normalized(const normalized_runs<Element>& a, index_t first, index_t length,
                                           const Fill& fill) noexcept {
  const auto write = [=]<int Block>(packet<Element> p, std::integral_constant<int, Block> some, index_t k) {
    constexpr index_t lanes = packet<Element>::lanes;
    typename packet<Element>::type value[std::size_t{Block}];
    const index_t i = first + k;
    fill(p, some, k, value);
    if (a.residual != nullptr) {
#pragma GCC unroll 4
      for (int j = 0; j < Block; ++j) {
        value[j] += p.load(a.residual + i + j * lanes);
      }
    }
    if (a.act.any()) {
#pragma GCC unroll 4
      for (int j = 0; j < Block; ++j) {
        value[j] = p.activated(a.act, value[j]);
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      p.store(a.y + i + j * lanes, value[j]);
    }
  };
  for_each_block<Element>(length, write);
}

template <bool PerLane, class Element>
GRADUS_ALWAYS_INLINE void normalize_runs_of(const normalized_runs<Element>& given, index_t begin,
                                            index_t end) noexcept {
  using packets = packet<Element>;
  const normalized_runs<Element> a = given;
  const computed<Element>* const all[] = {a.mean, a.scale, a.shift};
  for_each_long_run<PerLane>(
      begin, end, a.length, a.channels, all, [=](index_t first, index_t length, const computed<Element>* const* own) {
        const Element* const x = a.x + first;
        const run_coefficient<PerLane, Element> mean{own[0]};
        const run_coefficient<PerLane, Element> scale{own[1]};
        const run_coefficient<PerLane, Element> shift{own[2]};
        const auto compute = [=]<int Block>(packets p, std::integral_constant<int, Block>, index_t at, auto* value) {
#pragma GCC unroll 4
          for (int j = 0; j < Block; ++j) {
            const index_t k = at + j * p.lanes;
            value[j] = (p.load(x + k) - mean.at(p, k)) * scale.at(p, k) + shift.at(p, k);
          }
        };
        write_normalized(a, first, length, compute);
      });
}

/// Normalizes runs [begin, end) of normalized_runs.
template <class Element>
[[gnu::flatten]] void normalize_runs(target /*of*/, const normalized_runs<Element>& runs, index_t begin,
                                     index_t end) noexcept {
  runs.per_lane ? normalize_runs_of<true>(runs, begin, end) : normalize_runs_of<false>(runs, begin, end);
}

/// dx and the gradient of the residual for `length` elements from `first` on; change(packet, number of packets, k,
/// values) makes gradients of x from gradients of the residual, from element first + k on.
template <class Element, class Change>
GRADUS_ALWAYS_INLINE void write_gradients(const gradient_runs<Element>& a, index_t first, index_t length,
                                          const Change& change) noexcept {
  for_each_block<Element>(
      length, [=]<int Block>(packet<Element> p, std::integral_constant<int, Block> some, index_t k) {
        constexpr index_t lanes = packet<Element>::lanes;
        typename packet<Element>::type gradient[std::size_t{Block}];
        const index_t i = first + k;
#pragma GCC unroll 4
        for (int j = 0; j < Block; ++j) {
          gradient[j] = p.load(a.dy + i + j * lanes);
        }
        if (a.y != nullptr) {
#pragma GCC unroll 4
          for (int j = 0; j < Block; ++j) {
            gradient[j] = p.times(a.of_y, p.load(a.y + i + j * lanes), gradient[j]);
          }
        }
        if (a.dresidual != nullptr) {
#pragma GCC unroll 4
          for (int j = 0; j < Block; ++j) {
            Element* const to = a.dresidual + i + j * lanes;
            p.store(to, a.accumulate_residual ? p.load(to) + gradient[j] : gradient[j]);
          }
          if (a.dx == nullptr) {
            return;
          }
        }
        change(p, some, k, gradient);
        if (a.accumulate) {
#pragma GCC unroll 4
          for (int j = 0; j < Block; ++j) {
            gradient[j] += p.load(a.dx + i + j * lanes);
          }
        }
        if (a.relu_output != nullptr) {
#pragma GCC unroll 4
          for (int j = 0; j < Block; ++j) {
            gradient[j] = p.times(a.of_relu_output, p.load(a.relu_output + i + j * lanes), gradient[j]);
          }
        }
#pragma GCC unroll 4
        for (int j = 0; j < Block; ++j) {
          p.store(a.dx + i + j * lanes, gradient[j]);
        }
      });
}

template <bool PerLane, bool Sets, class Element>
GRADUS_ALWAYS_INLINE void differentiate_runs_of(const gradient_runs<Element>& given, index_t begin,
                                                index_t end) noexcept {
  using packets = packet<Element>;
  const gradient_runs<Element> a = given;
  const computed<Element>* const all[] = {a.mean, a.scale, a.shift, a.factor};
  for_each_long_run<PerLane>(
      begin, end, a.length, a.channels, all, [=](index_t first, index_t length, const computed<Element>* const* own) {
        const run_coefficient<PerLane, Element> mean{own[0]};
        const run_coefficient<PerLane, Element> scale{own[1]};
        const run_coefficient<PerLane, Element> shift{own[2]};
        const run_coefficient<PerLane, Element> factor{own[3]};
        const auto compute = [=]<int Block>(packets p, std::integral_constant<int, Block>, index_t at, auto* value) {
#pragma GCC unroll 4
          for (int j = 0; j < Block; ++j) {
            const index_t k = at + j * p.lanes;
            const auto other = factor.at(p, k) * (p.load(a.x + first + k) - mean.at(p, k));
            value[j] = Sets ? scale.at(p, k) * value[j] - shift.at(p, k) - other
                            : scale.at(p, k) * (value[j] - shift.at(p, k)) - other;
          }
        };
        write_gradients(a, first, length, compute);
      });
}

/// Differentiates runs [begin, end) of gradient_runs.
template <class Element>
[[gnu::flatten]] void differentiate_runs(target /*of*/, const gradient_runs<Element>& runs, index_t begin,
                                         index_t end) noexcept {
  runs.per_lane ? differentiate_runs_of<true, false>(runs, begin, end)
                : differentiate_runs_of<false, false>(runs, begin, end);
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
