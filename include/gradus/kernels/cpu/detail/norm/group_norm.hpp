// SPDX-License-Identifier: BSL-1.0
//
// How group normalization divides a batch on the CPU.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cmath>        // std::sqrt
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <type_traits>  // std::integral_constant

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/norm/batch_norm_runs.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
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
  index_t copies = 1;       ///< of the statistics of a set: one for each of its channels
  index_t statistics = 0;   ///< a row of the state
  index_t set = 0;          ///< elements that share a mean
  index_t strips = 1;       ///< of pixels: units of an example; of vectors: strips of channels in sums over examples
  index_t column_runs = 0;  ///< parts of the examples that sums over examples are taken of

  /// The runs of a piece of a unit of planes or rows.
  struct run_range {
    index_t begin;
    index_t end;
    index_t coefficients;  ///< the first of the unit
  };
  [[nodiscard]] run_range runs_of(index_t unit, index_t part) const {
    const bool by_rows = order == norm_order::rows;
    const index_t runs = by_rows ? plane : width;
    const index_t first = unit * runs + part * piece;
    return {first, std::min((unit + 1) * runs, first + piece), by_rows ? unit * channels : 0};
  }

  /// True if coefficients are stored for each channel of each example.
  [[nodiscard]] bool by_channel() const { return order == norm_order::planes || order == norm_order::rows; }

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
      s.piece = ((s.plane + s.strips - 1) / s.strips + 15) / 16 * 16;
      s.units = s.examples * s.strips;
      s.statistics = s.examples * s.plane;
      s.set = s.channels;
    } else if (channels_last) {
      s.order = norm_order::rows;
      s.units = s.examples;
      s.piece = std::max(index_t{1}, piece_elements / std::max(index_t{1}, s.channels));
      s.pieces = (s.plane + s.piece - 1) / s.piece;
    } else {
      s.order = norm_order::planes;
      s.piece = std::clamp(piece_elements / std::max(index_t{1}, s.plane), index_t{1}, std::max(index_t{1}, s.width));
      s.pieces = (s.width + s.piece - 1) / s.piece;
    }
    if (s.by_channel()) {
      s.copies = s.width;
      s.statistics = s.examples * s.channels;
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

  /// Stores the statistics of a set in `copies` columns from `at` on. Returns the inverse deviation.
  double store(index_t at, index_t copies, double exact_mean, double variance, double epsilon) const {
    const double exact_inverse = 1.0 / std::sqrt((variance < 0 ? 0.0 : variance) + epsilon);  // keeps a NaN
    const auto rounded = static_cast<Real>(exact_mean);
    std::fill_n(mean + at, copies, rounded);
    std::fill_n(inverse + at, copies, static_cast<Real>(exact_inverse));
    std::fill_n(rest + at, copies, static_cast<Real>((static_cast<double>(rounded) - exact_mean) * exact_inverse));
    return exact_inverse;
  }

  Real* mean;
  Real* inverse;
  Real* rest;
};

/// The workspace: partial sums, then coefficients of the statistics, as normalized_runs and gradient_runs have them.
template <class Real>
struct group_norm_workspace {
  group_norm_workspace(std::span<std::byte> memory, const group_norm_split& split)
      : sums{reinterpret_cast<double*>(memory.data())},
        parameter_sums{split.order == norm_order::rows ? sums : sums + 2 * unit_sums(split)},
        scale{reinterpret_cast<Real*>(sums + 2 * (unit_sums(split) + parameter_parts(split)))},
        shift{scale + split.statistics},
        factor{shift + split.statistics} {}

  static std::size_t bytes(const group_norm_split& split) {
    return 2 * static_cast<std::size_t>(unit_sums(split) + parameter_parts(split)) * sizeof(double) +
           3 * static_cast<std::size_t>(split.statistics) * sizeof(Real);
  }

  double* sums;            // (units, pieces, 2), for rows (N, pieces, 2, C); pixels have none
  double* parameter_sums;  // rows: sums; planes: (N, 2, C); pixels: (units, 2, C); vectors: (column_runs, 2, C)
  Real* scale;             // for planes and rows
  Real* shift;
  Real* factor;

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
    return 0;
  }
};

/// Two sums for each pixel of a unit.
using pixel_sums = std::array<double, 4096>;

/// For all units: sum(target, unit, piece) for all pieces, then finish(unit), then apply(target, unit, piece) for all
/// pieces. With many units, a thread takes one, or a few small ones, from the first to the last step while the elements
/// are in the cache: divisions and roots of several sets overlap.
template <class Sum, class Finish, class Apply>
void in_three_steps(cpu& device, index_t units, index_t pieces, index_t elements, const Sum& sum, const Finish& finish,
                    const Apply& apply) {
  if (pieces == 1 || units >= 4 * device.threads()) {
    const index_t grain = std::max(index_t{1}, (index_t{1} << 14U) / std::max(index_t{1}, elements));
    device.parallel_for(units, grain, [&](index_t begin, index_t end) {
      on_target([&](auto target) {
        const index_t some = std::max(index_t{1}, 2048 / std::max(index_t{1}, elements));
        for (index_t first = begin; first < end; first += some) {
          const index_t last = std::min(end, first + some);
          for (index_t i = first * pieces; i < last * pieces; ++i) {
            sum(target, i / pieces, i % pieces);
          }
          for (index_t unit = first; unit < last; ++unit) {
            finish(unit);
          }
          for (index_t i = first * pieces; i < last * pieces; ++i) {
            apply(target, i / pieces, i % pieces);
          }
        }
      });
    });
    return;
  }
  const auto for_pieces = [&](const auto& body) {
    device.parallel_for(units * pieces, 1, [&](index_t begin, index_t end) {
      on_target([&](auto target) {
        for (index_t i = begin; i < end; ++i) {
          body(target, i / pieces, i % pieces);
        }
      });
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

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/norm/group_norm_body.hpp"
#include "gradus/simd/for_each_target.hpp"
