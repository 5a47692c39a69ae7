// SPDX-License-Identifier: BSL-1.0
//
// How group normalization divides a batch on the CPU, and its loops over runs of adjacent elements.
#pragma once

#include <algorithm>  // std::clamp, std::fill_n, std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::sqrt
#include <cstddef>    // std::byte, std::size_t
#include <span>       // std::span

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/norm/batch_norm.hpp"
#include "gradus/kernels/group_norm.hpp"
#include "gradus/layout/layout_policy.hpp"

namespace gradus::kernels::detail {

/// The order of a batch in memory, as (examples, channels, plane) or (examples, plane, channels).
enum class norm_order {
  planes,   ///< adjacent pixels of a channel; a set is a run of planes
  rows,     ///< adjacent channels of a pixel; a set is a strip of channels of all rows of an example
  pixels,   ///< adjacent pixels of a channel; a set is a pixel of all planes of an example
  vectors,  ///< one pixel an example: a set is a run of channels
};

/// How a batch is divided. Units of work are sets (planes, vectors), examples (rows) or strips of pixels (pixels).
/// Pieces of a unit are summed on their own. They do not depend on the number of threads.
struct group_norm_split {
  norm_order order = norm_order::planes;
  index_t examples = 0;
  index_t channels = 0;
  index_t plane = 1;   ///< pixels of an example
  index_t groups = 1;  ///< of channels
  index_t width = 0;   ///< channels of a group
  index_t units = 0;
  index_t pieces = 1;       ///< of a unit
  index_t piece = 1;        ///< planes, rows or channels of a piece; for pixels: pixels of a unit
  index_t statistics = 0;   ///< a row of the state
  index_t set = 0;          ///< elements that share a mean
  index_t strips = 1;       ///< of pixels: units of an example; of vectors: strips of channels in sums over examples
  index_t column_runs = 0;  ///< parts of the examples that sums over examples are taken of

  /// @param shape  of the batch
  template <layout_policy Layout>
  static group_norm_split of(const image_extents& shape, const group_norm_parameters& parameters) {
    static_assert(Layout::order[0] == axis::n && (Layout::order[1] == axis::c || Layout::order[3] == axis::c),
                  "gradus: group normalization on the CPU needs a layout with channels just after the images or last");
    return divided(shape, parameters, Layout::order[3] == axis::c);
  }

 private:
  static constexpr index_t piece_elements = index_t{1} << 15U;

  static group_norm_split divided(const image_extents& shape, const group_norm_parameters& parameters,
                                  bool channels_last) {
    group_norm_split s;
    s.examples = shape.n;
    s.channels = shape.c;
    s.plane = shape.h * shape.w;
    s.groups = parameters.over == normalized_set::group ? parameters.groups : 1;
    if (parameters.over == normalized_set::image) {
      s.channels *= s.plane;
      s.plane = 1;
    } else if (parameters.over == normalized_set::pixel && channels_last) {
      s.examples *= s.plane;
      s.plane = 1;
    }
    s.width = s.channels / std::max(index_t{1}, s.groups);
    s.set = s.width * s.plane;
    s.statistics = s.units = s.examples * s.groups;
    if (s.plane == 1) {
      s.order = norm_order::vectors;
      s.piece = std::clamp(s.width, index_t{1}, piece_elements);
      s.pieces = (s.width + s.piece - 1) / s.piece;
      s.strips = (s.channels + 2047) / 2048;
      s.column_runs = std::clamp((s.examples + 15) / 16, index_t{1}, std::max(index_t{1}, 64 / s.strips));
    } else if (parameters.over == normalized_set::pixel) {
      s.order = norm_order::pixels;
      s.piece = std::clamp(piece_elements / std::max(index_t{1}, s.channels) / 64 * 64, index_t{64}, index_t{2048});
      s.strips = (s.plane + s.piece - 1) / s.piece;
      s.units = s.examples * s.strips;
      s.statistics = s.examples * s.plane;
      s.set = s.channels;
    } else if (channels_last) {
      s.order = norm_order::rows;
      s.units = s.examples;
      s.piece = std::max(index_t{1}, piece_elements / std::max(index_t{1}, s.channels));
      s.pieces = (s.plane + s.piece - 1) / s.piece;
      s.statistics = s.examples * s.channels;  // a copy for each channel of a group
    } else {
      s.order = norm_order::planes;
      s.piece = std::clamp(piece_elements / std::max(index_t{1}, s.plane), index_t{1}, std::max(index_t{1}, s.width));
      s.pieces = (s.width + s.piece - 1) / s.piece;
    }
    return s;
  }
};

/// The state: rows of means, of inverse deviations, and of what rounding the mean takes from xhat, so that
/// xhat = (x - mean) * inverse + rest.
template <class Real>
struct group_norm_statistics {
  group_norm_statistics(std::span<std::byte> state, const group_norm_split& split)
      : mean{reinterpret_cast<Real*>(state.data())},
        inverse{mean + split.statistics},
        rest{inverse + split.statistics} {}

  static std::size_t bytes(const group_norm_split& split) {
    return 3 * static_cast<std::size_t>(split.statistics) * sizeof(Real);
  }

  /// Stores the statistics of a set in `copies` columns from `at` on.
  void store(index_t at, index_t copies, double exact_mean, double variance, double epsilon) const {
    const double exact_inverse = 1.0 / std::sqrt((variance < 0 ? 0.0 : variance) + epsilon);  // keeps a NaN
    const auto rounded = static_cast<Real>(exact_mean);
    std::fill_n(mean + at, copies, rounded);
    std::fill_n(inverse + at, copies, static_cast<Real>(exact_inverse));
    std::fill_n(rest + at, copies, static_cast<Real>((static_cast<double>(rounded) - exact_mean) * exact_inverse));
  }

  Real* mean;
  Real* inverse;
  Real* rest;
};

/// The workspace: partial sums, then two means of gradients for each statistic.
template <class Real>
struct group_norm_workspace {
  group_norm_workspace(std::span<std::byte> memory, const group_norm_split& split)
      : sums{reinterpret_cast<double*>(memory.data())},
        parameter_sums{sums + 2 * unit_sums(split)},
        first{reinterpret_cast<Real*>(parameter_sums + 2 * parameter_parts(split))},
        second{first + split.statistics} {}

  static std::size_t bytes(const group_norm_split& split) {
    return 2 * static_cast<std::size_t>(unit_sums(split) + parameter_parts(split)) * sizeof(double) +
           2 * static_cast<std::size_t>(split.statistics) * sizeof(Real);
  }

  double* sums;            // (units, pieces, 2), for rows (units, pieces, 2, C); pixels have none
  double* parameter_sums;  // planes: (N, C, 2); pixels: (units, C, 2); vectors: (column_runs, 2, C)
  Real* first;             // mean of gamma * g
  Real* second;            // mean of gamma * g * xhat

 private:
  static index_t unit_sums(const group_norm_split& split) {
    if (split.order == norm_order::pixels) {
      return 0;
    }
    return split.units * split.pieces * (split.order == norm_order::rows ? split.channels : 1);
  }
  static index_t parameter_parts(const group_norm_split& split) {
    switch (split.order) {
      case norm_order::planes:
        return split.examples * split.channels;
      case norm_order::pixels:
        return split.units * split.channels;
      case norm_order::vectors:
        return split.column_runs * split.channels;
      case norm_order::rows:
        break;
    }
    return 0;  // the sums have them
  }
};

/// As sum_rows_of_terms, for a few columns of long rows: 16 terms of a column are added in registers.
template <class Element, class Term>
void sum_columns_of_terms(index_t rows, index_t columns, double* first, double* second, const Term& term) noexcept {
  for (index_t top = 0; top < rows; top += short_sum) {
    const index_t bottom = std::min(rows, top + short_sum);
    for_each_packet<Element>(0, columns, [&]<class Packet>(Packet, index_t i) {
      using reals = packet<computed<Element>, static_cast<int>(Packet::lanes)>;
      lane_sums<Packet> sums;
      for (index_t row = top; row < bottom; ++row) {
        const auto next = term(Packet{}, row, i);
        sums.add(next.first, next.second);
      }
      reals::add_to(first + i, sums.first);
      reals::add_to(second + i, sums.second);
    });
  }
}

/// Two sums for each pixel of a unit.
using pixel_sums = std::array<double, 4096>;

/// For all units: sum(unit, piece) for all pieces, then finish(unit), then apply(unit, piece) for all pieces. With many
/// units, a thread takes one from the first to the last step while its elements are in the cache.
template <class Sum, class Finish, class Apply>
void in_three_steps(cpu& device, index_t units, index_t pieces, index_t elements, const Sum& sum, const Finish& finish,
                    const Apply& apply) {
  if (pieces == 1 || units >= 4 * device.threads()) {
    const index_t grain = std::max(index_t{1}, (index_t{1} << 14U) / std::max(index_t{1}, elements));
    device.parallel_for(units, grain, [&](index_t begin, index_t end) {
      for (index_t unit = begin; unit < end; ++unit) {
        for (index_t piece = 0; piece < pieces; ++piece) {
          sum(unit, piece);
        }
        finish(unit);
        for (index_t piece = 0; piece < pieces; ++piece) {
          apply(unit, piece);
        }
      }
    });
    return;
  }
  const auto for_pieces = [&](const auto& body) {
    device.parallel_for(units * pieces, 1, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        body(i / pieces, i % pieces);
      }
    });
  };
  for_pieces(sum);
  device.parallel_for(units, 1, [&](index_t begin, index_t end) {
    for (index_t unit = begin; unit < end; ++unit) {
      finish(unit);
    }
  });
  for_pieces(apply);
}

/// The coefficients of a run: each points to one value, or to one for each element.
template <class Real>
struct group_norm_coefficients {
  const Real* mean = nullptr;
  const Real* inverse = nullptr;
  const Real* rest = nullptr;
  const Real* gamma = nullptr;   ///< null: 1
  const Real* beta = nullptr;    ///< null: 0
  const Real* first = nullptr;   ///< mean of gamma * g
  const Real* second = nullptr;  ///< mean of gamma * g * xhat
};

/// Coefficients of a run: one for each element, or one number for all. The number is copied, because the compiler must
/// assume that a store changes what a pointer points to.
template <bool PerLane, class Real>
class held_coefficient {
 public:
  explicit held_coefficient(const Real* from) noexcept
      : from_{from}, value_{PerLane || from == nullptr ? Real{} : *from} {}

  template <class Packet>
  [[nodiscard]] GRADUS_ALWAYS_INLINE typename Packet::type get(index_t i) const noexcept {
    if constexpr (PerLane) {
      return Packet::load(from_ + i);
    } else {
      return Packet::broadcast(value_);
    }
  }

 private:
  const Real* from_;
  Real value_;
};

/// xhat = (x - mean) * inverse + rest
template <bool PerLane, class Real>
class held_statistics {
 public:
  explicit held_statistics(const group_norm_coefficients<Real>& at) noexcept
      : mean_{at.mean}, inverse_{at.inverse}, rest_{at.rest} {}

  template <class Packet>
  [[nodiscard]] GRADUS_ALWAYS_INLINE typename Packet::type inverse(index_t i) const noexcept {
    return inverse_.template get<Packet>(i);
  }
  template <class Packet>
  [[nodiscard]] GRADUS_ALWAYS_INLINE typename Packet::type normalized(typename Packet::type x,
                                                                      index_t i) const noexcept {
    return (x - mean_.template get<Packet>(i)) * inverse<Packet>(i) + rest_.template get<Packet>(i);
  }

 private:
  held_coefficient<PerLane, Real> mean_;
  held_coefficient<PerLane, Real> inverse_;
  held_coefficient<PerLane, Real> rest_;
};

/// y = act(gamma * xhat + beta + residual). With Plain, without residual and activation.
template <bool SetPerLane, bool AffinePerLane, bool Plain, class Element>
void normalize_set_run(index_t count, const Element* x, Element* y, const Element* residual,
                       const held_activation<computed<Element>> act,
                       const group_norm_coefficients<computed<Element>>& at) noexcept {
  using real = computed<Element>;
  const held_statistics<SetPerLane, real> set{at};
  const held_coefficient<AffinePerLane, real> gamma{at.gamma};
  const held_coefficient<AffinePerLane, real> beta{at.beta};
  const bool scales = at.gamma != nullptr;
  const bool shifts = at.beta != nullptr;
  for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
    auto value = set.template normalized<Packet>(Packet::load(x + i), i);
    if (scales) {
      value *= gamma.template get<Packet>(i);
    }
    if (shifts) {
      value += beta.template get<Packet>(i);
    }
    if constexpr (!Plain) {
      if (residual != nullptr) {
        value += Packet::load(residual + i);
      }
      value = act.template of<Packet>(value);
    }
    Packet::store(y + i, value);
  });
}

/// dx = inverse * (gamma * g - first - xhat * second), then added and masked as the epilogue says. With Plain, without
/// an epilogue. Where a set has one element, gamma * g equals its mean exactly, and dx is 0.
template <bool SetPerLane, bool AffinePerLane, bool Plain, class Element>
void differentiate_set_run(index_t count, const Element* x, const Element* dy, Element* dx, const Element* relu_output,
                           const held_derivative<computed<Element>> derivative, bool accumulate,
                           const group_norm_coefficients<computed<Element>>& at) noexcept {
  using real = computed<Element>;
  const held_statistics<SetPerLane, real> set{at};
  const held_coefficient<SetPerLane, real> first{at.first};
  const held_coefficient<SetPerLane, real> second{at.second};
  const held_coefficient<AffinePerLane, real> gamma{at.gamma};
  const bool scales = at.gamma != nullptr;
  for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
    auto gradient = Packet::load(dy + i);
    if (scales) {
      gradient *= gamma.template get<Packet>(i);
    }
    auto value = set.template inverse<Packet>(i) *
                 (gradient - first.template get<Packet>(i) -
                  set.template normalized<Packet>(Packet::load(x + i), i) * second.template get<Packet>(i));
    if constexpr (!Plain) {
      if (accumulate) {
        value += Packet::load(dx + i);
      }
      if (relu_output != nullptr) {
        value = derivative.template times<Packet>(Packet::load(relu_output + i), value);
      }
    }
    Packet::store(dx + i, value);
  });
}

}  // namespace gradus::kernels::detail
