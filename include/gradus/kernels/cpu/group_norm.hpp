// SPDX-License-Identifier: BSL-1.0
//
// Group, layer and instance normalization on the CPU.
#pragma once

#include <algorithm>    // std::fill_n, std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/norm/group_norm.hpp"
#include "gradus/kernels/cpu/detail/norm/group_norm_backward.hpp"
#include "gradus/kernels/group_norm.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// The forward pass over a batch of any layout.
template <class Element>
class group_norm_forward_pass {
  using real = computed<Element>;

 public:
  group_norm_forward_pass(const group_norm_split& split, const Element* x, Element* y,
                          const batch_norm_affine<real>& affine, const batch_norm_epilogue<Element>& epilogue,
                          double epsilon, std::span<std::byte> state, std::span<std::byte> workspace)
      : split_{split},
        x_{x},
        y_{y},
        affine_{affine},
        epilogue_{epilogue},
        epsilon_{epsilon},
        statistics_{state, split},
        sums_{group_norm_workspace<real>{workspace, split}.sums} {}

  void run(cpu& device) const {
    const index_t elements = split_.examples * split_.channels * split_.plane / std::max(index_t{1}, split_.units);
    switch (split_.order) {
      case norm_order::planes:
      case norm_order::vectors:
        in_three_steps(
            device, split_.units, split_.pieces, elements, [&, this](index_t u, index_t p) { sum_of_set(u, p); },
            [&, this](index_t u) { finish_set(u); },
            [&, this](index_t u, index_t p) {
              split_.order == norm_order::planes ? normalize_planes(u, p) : normalize_vector(u, p);
            });
        break;
      case norm_order::rows:
        in_three_steps(
            device, split_.units, split_.pieces, elements, [&, this](index_t u, index_t p) { sum_of_rows(u, p); },
            [&, this](index_t u) { finish_rows(u); }, [&, this](index_t u, index_t p) { normalize_rows(u, p); });
        break;
      case norm_order::pixels:
        in_three_steps(
            device, split_.units, 1, elements, [](index_t, index_t) {}, [&, this](index_t u) { normalize_pixels(u); },
            [](index_t, index_t) {});
        break;
    }
  }

 private:
  [[nodiscard]] const real* gamma(index_t channel) const {
    return affine_.gamma == nullptr ? nullptr : affine_.gamma + channel;
  }
  [[nodiscard]] const real* beta(index_t channel) const {
    return affine_.beta == nullptr ? nullptr : affine_.beta + channel;
  }

  template <bool SetPerLane, bool AffinePerLane>
  void normalize(index_t at, index_t count, index_t statistic, index_t channel) const {
    const group_norm_coefficients<real> coefficients{
        .mean = statistics_.mean + statistic,
        .inverse = statistics_.inverse + statistic,
        .rest = statistics_.rest + statistic,
        .gamma = gamma(channel),
        .beta = beta(channel),
    };
    const held_activation<real> act{epilogue_.act};
    const Element* const residual = epilogue_.residual == nullptr ? nullptr : epilogue_.residual + at;
    if (residual == nullptr && !act.any()) {
      normalize_set_run<SetPerLane, AffinePerLane, true>(count, x_ + at, y_ + at, residual, act, coefficients);
    } else {
      normalize_set_run<SetPerLane, AffinePerLane, false>(count, x_ + at, y_ + at, residual, act, coefficients);
    }
  }

  void sum_of_set(index_t unit, index_t piece) const {
    double* const sums = sums_ + 2 * (unit * split_.pieces + piece);
    sums[0] = sums[1] = 0;
    const index_t first = piece * split_.piece * split_.plane;
    const index_t count = std::min(split_.piece * split_.plane, split_.set - first);
    const Element* const set = x_ + unit * split_.set;
    sum_runs(norm_terms<Element>{set + first}, 1, 0, count, static_cast<real>(*set), sums[0], sums[1]);
  }

  void finish_set(index_t unit) const {
    double sum = 0;
    double squares = 0;
    for (index_t piece = 0; piece < split_.pieces; ++piece) {
      sum += sums_[2 * (unit * split_.pieces + piece)];
      squares += sums_[2 * (unit * split_.pieces + piece) + 1];
    }
    const auto count = static_cast<double>(split_.set);
    const double offset = sum / count;
    statistics_.store(unit, 1, static_cast<double>(static_cast<real>(x_[unit * split_.set])) + offset,
                      squares / count - offset * offset, epsilon_);
  }

  void normalize_planes(index_t unit, index_t piece) const {
    const index_t last = std::min(split_.width, (piece + 1) * split_.piece);
    for (index_t c = piece * split_.piece; c < last; ++c) {
      normalize<false, false>((unit * split_.width + c) * split_.plane, split_.plane, unit,
                              unit % split_.groups * split_.width + c);
    }
  }

  void normalize_vector(index_t unit, index_t piece) const {
    const index_t first = piece * split_.piece;
    normalize<false, true>(unit * split_.width + first, std::min(split_.piece, split_.width - first), unit,
                           unit % split_.groups * split_.width + first);
  }

  void sum_of_rows(index_t unit, index_t piece) const {
    const index_t channels = split_.channels;
    double* const sums = sums_ + 2 * (unit * split_.pieces + piece) * channels;
    std::fill_n(sums, 2 * channels, 0.0);
    const Element* const example = x_ + unit * split_.plane * channels;
    const index_t row = piece * split_.piece;
    sum_rows(norm_terms<Element>{example + row * channels}, std::min(split_.piece, split_.plane - row), channels,
             example, sums, sums + channels);
  }

  /// Adds the channels of a group by their means and squares around them (Chan et al. 1979).
  void finish_rows(index_t unit) const {
    const index_t channels = split_.channels;
    double* const total = sums_ + 2 * unit * split_.pieces * channels;
    for (index_t piece = 1; piece < split_.pieces; ++piece) {
      for (index_t i = 0; i < 2 * channels; ++i) {
        total[i] += total[2 * piece * channels + i];
      }
    }
    const Element* const origin = x_ + unit * split_.plane * channels;
    const auto count = static_cast<double>(split_.plane);
    for (index_t group = 0; group < split_.groups; ++group) {
      const index_t begin = group * split_.width;
      const index_t end = begin + split_.width;
      // Relative to the origin of the group's first channel: where all elements are equal, no digit is lost.
      const auto first = static_cast<double>(static_cast<real>(origin[begin]));
      double mean = 0;
      for (index_t c = begin; c < end; ++c) {
        total[channels + c] -= total[c] * (total[c] / count);
        total[c] = static_cast<double>(static_cast<real>(origin[c])) - first + total[c] / count;
        mean += total[c];
      }
      mean /= static_cast<double>(split_.width);
      double squares = 0;
      for (index_t c = begin; c < end; ++c) {
        squares += total[channels + c] + count * (total[c] - mean) * (total[c] - mean);
      }
      statistics_.store(unit * channels + begin, split_.width, first + mean, squares / static_cast<double>(split_.set),
                        epsilon_);
    }
  }

  void normalize_rows(index_t unit, index_t piece) const {
    const index_t last = std::min(split_.plane, (piece + 1) * split_.piece);
    for (index_t row = piece * split_.piece; row < last; ++row) {
      normalize<true, true>((unit * split_.plane + row) * split_.channels, split_.channels, unit * split_.channels, 0);
    }
  }

  void normalize_pixels(index_t unit) const {
    const index_t example = unit / split_.strips;
    const index_t first = unit % split_.strips * split_.piece;
    const index_t width = std::min(split_.piece, split_.plane - first);
    const Element* const strip = x_ + example * split_.channels * split_.plane + first;
    const index_t plane = split_.plane;
    pixel_sums memory;
    double* const sums = memory.data();
    double* const squares = sums + split_.piece;
    std::fill_n(sums, width, 0.0);
    std::fill_n(squares, width, 0.0);
    sum_columns_of_terms<Element>(
        split_.channels, width, sums, squares, [=]<class Packet>(Packet, index_t c, index_t i) {
          const auto difference = Packet::load(strip + c * plane + i) - Packet::load(strip + i);
          return lane_sums<Packet>{difference, difference * difference};
        });
    const auto count = static_cast<double>(split_.channels);
    for (index_t i = 0; i < width; ++i) {
      const double offset = sums[i] / count;
      statistics_.store(example * plane + first + i, 1, static_cast<double>(static_cast<real>(strip[i])) + offset,
                        squares[i] / count - offset * offset, epsilon_);
    }
    for (index_t c = 0; c < split_.channels; ++c) {
      normalize<true, false>((example * split_.channels + c) * plane + first, width, example * plane + first, c);
    }
  }

  group_norm_split split_;
  const Element* x_;
  Element* y_;
  batch_norm_affine<real> affine_;
  batch_norm_epilogue<Element> epilogue_;
  double epsilon_;
  group_norm_statistics<real> statistics_;
  double* sums_;
};

inline void require_group_norm_memory(std::string_view which, std::size_t wanted, std::size_t given) {
  if (given < wanted) {
    raise<shape_error>("group_norm", {"a ", which, " of ", wanted, " bytes"}, {given},
                       "call group_norm_memory_for with the largest batch");
  }
}

}  // namespace detail

/// See has_group_norm_memory_for.
template <network_element Element, layout_policy Layout>
[[nodiscard]] group_norm_memory group_norm_memory_for(cpu& /*device*/, const image_extents& shape,
                                                      const group_norm_parameters& parameters) {
  using real = detail::computed<Element>;
  const auto split = detail::group_norm_split::of<Layout>(shape, parameters);
  return {.state = detail::group_norm_statistics<real>::bytes(split),
          .workspace = detail::group_norm_workspace<real>::bytes(split)};
}

/// See has_group_norm_forward.
template <network_element Element, layout_policy Layout>
void group_norm_forward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                        image_view<Element, Layout, cpu> y, const group_norm_parameters& parameters,
                        const std::type_identity_t<batch_norm_affine<parameter_element_t<Element>>>& affine,
                        const std::type_identity_t<batch_norm_epilogue<Element>>& epilogue, std::span<std::byte> state,
                        std::span<std::byte> workspace) {
  using real = detail::computed<Element>;
  const auto split = detail::group_norm_split::of<Layout>(y.extents(), parameters);
  if (y.size() == 0) {
    return;
  }
  detail::require_group_norm_memory("state", detail::group_norm_statistics<real>::bytes(split), state.size());
  detail::require_group_norm_memory("workspace", detail::group_norm_workspace<real>::bytes(split), workspace.size());
  detail::group_norm_forward_pass<Element>{split,    x.data(),           y.data(), affine,
                                           epilogue, parameters.epsilon, state,    workspace}
      .run(device);
}

/// See has_group_norm_backward.
template <network_element Element, layout_policy Layout>
void group_norm_backward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                         std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                         image_view<Element, Layout, cpu> dx, const group_norm_parameters& parameters,
                         const std::type_identity_t<batch_norm_affine<parameter_element_t<Element>>>& affine,
                         const std::type_identity_t<group_norm_gradients<parameter_element_t<Element>>>& gradients,
                         const std::type_identity_t<backward_epilogue<Element>>& epilogue, std::span<std::byte> state,
                         std::span<std::byte> workspace) {
  using real = detail::computed<Element>;
  const auto split = detail::group_norm_split::of<Layout>(x.extents(), parameters);
  detail::require_group_norm_memory("state", detail::group_norm_statistics<real>::bytes(split), state.size());
  detail::require_group_norm_memory("workspace", detail::group_norm_workspace<real>::bytes(split), workspace.size());
  detail::group_norm_backward_pass<Element>{split,     x.data(), dy.data(), dx.data(), affine.gamma,
                                            gradients, epilogue, state,     workspace}
      .run(device);
}

}  // namespace gradus::kernels
