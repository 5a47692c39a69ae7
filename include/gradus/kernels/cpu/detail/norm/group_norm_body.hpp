// SPDX-License-Identifier: BSL-1.0
//
// The loops of group normalization that batch normalization does not have, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// y = act(gamma * ((x - mean) * scale + shift) + beta + residual) for `count` elements from `at` on. With PerLane,
/// they belong to sets from `set` on and to one channel; else to one set and to channels from `channel` on.
template <bool PerLane, class Element>
GRADUS_ALWAYS_INLINE void normalize_set_of(const normalized_runs<Element>& given,
                                           const batch_norm_affine<computed<Element>>& of, index_t at, index_t count,
                                           index_t set, index_t channel) noexcept {
  using packets = packet<Element>;
  const normalized_runs<Element> a = given;
  const computed<Element> one = 1;
  const computed<Element> none = 0;
  const run_coefficient<PerLane, Element> mean{a.mean + set};
  const run_coefficient<PerLane, Element> scale{a.scale + set};
  const run_coefficient<PerLane, Element> shift{a.shift + set};
  const run_coefficient<!PerLane, Element> gamma{of.gamma == nullptr ? &one : of.gamma + channel};
  const run_coefficient<!PerLane, Element> beta{of.beta == nullptr ? &none : of.beta + channel};
  const bool scales = PerLane || of.gamma != nullptr;
  const bool shifts = PerLane || of.beta != nullptr;
  const auto compute = [=]<int Block>(packets p, std::integral_constant<int, Block>, index_t offset, auto* value) {
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      const index_t k = offset + j * p.lanes;
      value[j] = (p.load(a.x + at + k) - mean.at(p, k)) * scale.at(p, k) + shift.at(p, k);
    }
    if (scales) {
#pragma GCC unroll 4
      for (int j = 0; j < Block; ++j) {
        value[j] *= gamma.at(p, offset + j * p.lanes);
      }
    }
    if (shifts) {
#pragma GCC unroll 4
      for (int j = 0; j < Block; ++j) {
        value[j] += beta.at(p, offset + j * p.lanes);
      }
    }
  };
  write_normalized(a, at, count, compute);
}

/// A run of one set.
template <class Element>
[[gnu::flatten]] void normalize_set(target /*of*/, const normalized_runs<Element>& a,
                                    const batch_norm_affine<computed<Element>>& of, index_t at, index_t count,
                                    index_t set, index_t channel) noexcept {
  normalize_set_of<false>(a, of, at, count, set, channel);
}

/// Adjacent pixels of all channels; each is a set.
template <class Element>
[[gnu::flatten]] void normalize_pixels(target /*of*/, const normalized_runs<Element>& a,
                                       const batch_norm_affine<computed<Element>>& of, index_t at, index_t channels,
                                       index_t count, index_t set) noexcept {
  for (index_t c = 0; c < channels; ++c) {
    normalize_set_of<true>(a, of, at + c * a.length, count, set, c);
  }
}

/// dx = scale * gamma * g - shift - factor * (x - mean), then added and masked, for elements as normalize_set has them.
template <bool PerLane, class Element>
GRADUS_ALWAYS_INLINE void differentiate_set_of(const gradient_runs<Element>& given, const computed<Element>* gammas,
                                               index_t at, index_t count, index_t set, index_t channel) noexcept {
  using packets = packet<Element>;
  const gradient_runs<Element> a = given;
  const computed<Element> one = 1;
  const run_coefficient<PerLane, Element> mean{a.mean + set};
  const run_coefficient<PerLane, Element> scale{a.scale + set};
  const run_coefficient<PerLane, Element> shift{a.shift + set};
  const run_coefficient<PerLane, Element> factor{a.factor + set};
  const run_coefficient<!PerLane, Element> gamma{gammas == nullptr ? &one : gammas + channel};
  const bool scales = PerLane || gammas != nullptr;
  const auto compute = [=]<int Block>(packets p, std::integral_constant<int, Block>, index_t offset, auto* value) {
    if (scales) {
#pragma GCC unroll 4
      for (int j = 0; j < Block; ++j) {
        value[j] *= gamma.at(p, offset + j * p.lanes);
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      const index_t k = offset + j * p.lanes;
      const auto other = factor.at(p, k) * (p.load(a.x + at + k) - mean.at(p, k));
      value[j] = scale.at(p, k) * value[j] - shift.at(p, k) - other;
    }
  };
  write_gradients(a, at, count, compute);
}

template <class Element>
[[gnu::flatten]] void differentiate_set(target /*of*/, const gradient_runs<Element>& a, const computed<Element>* gamma,
                                        index_t at, index_t count, index_t set, index_t channel) noexcept {
  differentiate_set_of<false>(a, gamma, at, count, set, channel);
}

template <class Element>
[[gnu::flatten]] void differentiate_pixels(target /*of*/, const gradient_runs<Element>& a,
                                           const computed<Element>* gamma, index_t at, index_t channels, index_t count,
                                           index_t set) noexcept {
  for (index_t c = 0; c < channels; ++c) {
    differentiate_set_of<true>(a, gamma, at + c * a.length, count, set, c);
  }
}

/// As differentiate_runs, for sets of channels.
template <class Element>
[[gnu::flatten]] void differentiate_runs_of_sets(target /*of*/, const gradient_runs<Element>& runs, index_t begin,
                                                 index_t end) noexcept {
  runs.per_lane ? differentiate_runs_of<true, true>(runs, begin, end)
                : differentiate_runs_of<false, true>(runs, begin, end);
}

template <bool PerLane, class Element>
GRADUS_ALWAYS_INLINE void sum_set_of(const gradient_runs<Element>& a, const computed<Element>* rests,
                                     const computed<Element>* gamma, index_t at, index_t count, index_t set,
                                     double& first, double& second) noexcept {
  using packets = packet<Element>;
  const Element* const x = a.x + at;
  const Element* const dy = a.dy + at;
  const run_coefficient<PerLane, Element> mean{a.mean + set};
  const run_coefficient<PerLane, Element> inverse{a.scale + set};
  const run_coefficient<PerLane, Element> rest{rests + set};
  sum_terms<Element>(1, count, first, second, [=](packets p, index_t /*run*/, index_t i) {
    auto gradient = p.load(dy + i);
    if (gamma != nullptr) {
      gradient *= p.load(gamma + i);
    }
    return term_pair<Element>{gradient,
                              gradient * ((p.load(x + i) - mean.at(p, i)) * inverse.at(p, i) + rest.at(p, i))};
  });
}

/// Adds the sums of gamma * g and gamma * g * xhat of a run of one set. A null gamma: 1.
template <class Element>
[[gnu::flatten]] void sum_set(target /*of*/, const gradient_runs<Element>& a, const computed<Element>* rest,
                              const computed<Element>* gamma, index_t at, index_t count, index_t set, double& first,
                              double& second) noexcept {
  sum_set_of<false>(a, rest, gamma, at, count, set, first, second);
}

/// Writes the sums of g and g * xhat of adjacent pixels for each channel: (2, channels).
template <class Element>
[[gnu::flatten]] void sum_pixels(target /*of*/, const gradient_runs<Element>& a, const computed<Element>* rest,
                                 index_t at, index_t channels, index_t count, index_t set, double* sums) noexcept {
  for (index_t c = 0; c < channels; ++c) {
    sums[c] = sums[channels + c] = 0;
    sum_set_of<true>(a, rest, static_cast<const computed<Element>*>(nullptr), at + c * a.length, count, set, sums[c],
                     sums[channels + c]);
  }
}

/// first[i] += sum of a, second[i] += sum of b over rows, for columns [0, columns); term(packet, row, i) returns (a,
/// b). short_sum terms of a column are added in registers.
template <class Element, class Term>
GRADUS_ALWAYS_INLINE void sum_columns_of_terms(index_t rows, index_t columns, double* first, double* second,
                                               const Term& term) noexcept {
  for (index_t top = 0; top < rows; top += short_sum) {
    const index_t bottom = std::min(rows, top + short_sum);
    for_each_packet<Element>(0, columns, [&](packet<Element> p, index_t i) {
      term_pair<Element> sum;
      for (index_t row = top; row < bottom; ++row) {
        sum.add(term(p, row, i));
      }
      p.add_to(first + i, sum.first);
      p.add_to(second + i, sum.second);
    });
  }
}

/// The sums of x - s and of (x - s)^2 of each column of rows that are `stride` elements apart, where s is in row 0.
template <class Element>
[[gnu::flatten]] void sum_columns(target /*of*/, const Element* x, index_t rows, index_t stride, index_t columns,
                                  double* first, double* second) noexcept {
  sum_columns_of_terms<Element>(rows, columns, first, second, [=](packet<Element> p, index_t row, index_t i) {
    const auto difference = p.load(x + row * stride + i) - p.load(x + i);
    return term_pair<Element>{difference, difference * difference};
  });
}

/// The sums of gamma * g and gamma * g * xhat of each column of rows that are `stride` elements apart. With a.per_lane,
/// a column is a set and a row has a gamma; else a row belongs to set `set` + row * sets, and gamma is null.
template <class Element>
[[gnu::flatten]] void sum_columns(target /*of*/, const gradient_runs<Element>& given, const computed<Element>* rest,
                                  const computed<Element>* gamma, index_t at, index_t rows, index_t stride,
                                  index_t columns, index_t set, index_t sets, double* first, double* second) noexcept {
  using packets = packet<Element>;
  const gradient_runs<Element> a = given;
  const Element* const x = a.x + at;
  const Element* const dy = a.dy + at;
  if (a.per_lane) {
    sum_columns_of_terms<Element>(rows, columns, first, second, [=](packets p, index_t row, index_t i) {
      auto gradient = p.load(dy + row * stride + i);
      if (gamma != nullptr) {
        gradient *= gamma[row];
      }
      const auto difference = p.load(x + row * stride + i) - p.load(a.mean + set + i);
      return term_pair<Element>{gradient, gradient * (difference * p.load(a.scale + set + i) + p.load(rest + set + i))};
    });
  } else {
    sum_columns_of_terms<Element>(rows, columns, first, second, [=](packets p, index_t row, index_t i) {
      const index_t own = set + row * sets;
      const auto gradient = p.load(dy + row * stride + i);
      return term_pair<Element>{gradient,
                                gradient * ((p.load(x + row * stride + i) - a.mean[own]) * a.scale[own] + rest[own])};
    });
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
