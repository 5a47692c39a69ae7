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
#include "gradus/kernels/cpu/detail/norm/batch_norm_runs.hpp"
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
        affine_{affine},
        epsilon_{epsilon},
        statistics_{state, split},
        work_{workspace, split},
        runs_{.x = x,
              .y = y,
              .residual = epilogue.residual,
              .mean = statistics_.mean,
              .scale = split.by_channel() ? work_.scale : statistics_.inverse,
              .shift = split.by_channel() ? work_.shift : statistics_.rest,
              .act = held_activation<real>{epilogue.act},
              .channels = split.order == norm_order::rows ? split.channels : split.statistics,
              .length = split.order == norm_order::rows ? split.channels : split.plane,
              .per_lane = split.order == norm_order::rows || split.order == norm_order::pixels} {}

  void run(cpu& device) const {
    const index_t elements = split_.examples * split_.channels * split_.plane / std::max(index_t{1}, split_.units);
    const auto in_steps = [&, this](const auto& sum, const auto& finish, const auto& apply) {
      in_three_steps(device, split_.units, split_.pieces, elements, sum, finish, apply);
    };
    const auto sum_of_set = [this](auto target, index_t unit, index_t piece) { this->sum_set(target, unit, piece); };
    const auto finish_set = [this](index_t unit) { finish_set_of(unit); };
    const auto normalize_channels = [this](auto target, index_t unit, index_t piece) {
      const auto of = split_.runs_of(unit, piece);
      normalized_runs<Element> runs = runs_;
      runs.mean += of.coefficients;
      runs.scale += of.coefficients;
      runs.shift += of.coefficients;
      normalize_runs(target, runs, of.begin, of.end);
    };
    switch (split_.order) {
      case norm_order::planes:
        in_steps(sum_of_set, finish_set, normalize_channels);
        break;
      case norm_order::vectors:
        in_steps(sum_of_set, finish_set, [this](auto target, index_t unit, index_t piece) {
          const index_t first = piece * split_.piece;
          normalize_set(target, runs_, affine_, unit * split_.width + first,
                        std::min(split_.piece, split_.width - first), unit,
                        unit % split_.groups * split_.width + first);
        });
        break;
      case norm_order::rows:
        in_steps([this](auto target, index_t unit, index_t piece) { this->sum_rows_of(target, unit, piece); },
                 [this](index_t unit) { finish_rows(unit); }, normalize_channels);
        break;
      case norm_order::pixels:
        in_steps([this](auto target, index_t unit, index_t) { this->normalize_strip(target, unit); }, [](index_t) {},
                 [](auto, index_t, index_t) {});
        break;
    }
  }

 private:
  template <class Target>
  void sum_set(Target target, index_t unit, index_t piece) const {
    double* const sums = work_.sums + 2 * (unit * split_.pieces + piece);
    sums[0] = sums[1] = 0;
    const index_t first = piece * split_.piece * split_.plane;
    const index_t count = std::min(split_.piece * split_.plane, split_.set - first);
    const Element* const set = x_ + unit * split_.set;
    sum_runs(target, norm_terms<Element>{set + first}, 1, 0, count, static_cast<real>(*set), sums[0], sums[1]);
  }

  void finish_set_of(index_t unit) const {
    double sum = 0;
    double squares = 0;
    for (index_t piece = 0; piece < split_.pieces; ++piece) {
      sum += work_.sums[2 * (unit * split_.pieces + piece)];
      squares += work_.sums[2 * (unit * split_.pieces + piece) + 1];
    }
    const auto count = static_cast<double>(split_.set);
    const double offset = sum / count;
    store(unit, static_cast<double>(static_cast<real>(x_[unit * split_.set])) + offset,
          squares / count - offset * offset);
  }

  /// Stores the statistics of a set, and for planes and rows the coefficients of its channels.
  void store(index_t set, double mean, double variance) const {
    const index_t at = set * split_.copies;
    const double inverse = statistics_.store(at, split_.copies, mean, variance, epsilon_);
    if (!split_.by_channel()) {
      return;
    }
    const index_t first = at % split_.channels;
    for (index_t i = 0; i < split_.copies; ++i) {
      const double gamma = affine_.gamma == nullptr ? 1.0 : static_cast<double>(affine_.gamma[first + i]);
      const double beta = affine_.beta == nullptr ? 0.0 : static_cast<double>(affine_.beta[first + i]);
      work_.scale[at + i] = static_cast<real>(gamma * inverse);
      work_.shift[at + i] = static_cast<real>(beta + gamma * static_cast<double>(statistics_.rest[at + i]));
    }
  }

  template <class Target>
  void sum_rows_of(Target target, index_t unit, index_t piece) const {
    const index_t channels = split_.channels;
    double* const sums = work_.sums + 2 * (unit * split_.pieces + piece) * channels;
    std::fill_n(sums, 2 * channels, 0.0);
    const Element* const example = x_ + unit * split_.plane * channels;
    const index_t row = piece * split_.piece;
    sum_rows(target, norm_terms<Element>{example + row * channels}, std::min(split_.piece, split_.plane - row),
             channels, example, sums, sums + channels);
  }

  /// Adds the channels of a group by their means and squares around them (Chan et al. 1979).
  void finish_rows(index_t unit) const {
    const index_t channels = split_.channels;
    double* const total = work_.sums + 2 * unit * split_.pieces * channels;
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
      store(unit * split_.groups + group, first + mean, squares / static_cast<double>(split_.set));
    }
  }

  template <class Target>
  void normalize_strip(Target target, index_t unit) const {
    const index_t example = unit / split_.strips;
    const index_t first = unit % split_.strips * split_.piece;
    const index_t width = std::min(split_.piece, split_.plane - first);
    const index_t origin = example * split_.channels * split_.plane + first;
    const index_t set = example * split_.plane + first;
    pixel_sums sums;
    std::fill_n(sums.data(), split_.piece + width, 0.0);
    double* const squares = sums.data() + split_.piece;
    sum_columns(target, x_ + origin, split_.channels, split_.plane, width, sums.data(), squares);
    const auto count = static_cast<double>(split_.channels);
    for (index_t i = 0; i < width; ++i) {
      const double offset = sums[static_cast<std::size_t>(i)] / count;
      store(set + i, static_cast<double>(static_cast<real>(x_[origin + i])) + offset,
            squares[i] / count - offset * offset);
    }
    normalize_pixels(target, runs_, affine_, origin, split_.channels, width, set);
  }

  group_norm_split split_;
  const Element* x_;
  batch_norm_affine<real> affine_;
  double epsilon_;
  group_norm_statistics<real> statistics_;
  group_norm_workspace<real> work_;
  normalized_runs<Element> runs_;
};

inline void require_group_norm_memory(std::string_view which, std::size_t wanted, std::size_t given) {
  if (given < wanted) {
    raise<shape_error>("group_norm", {"a ", which, " of ", wanted, " bytes"}, {given},
                       "call group_norm_memory_for with the largest batch");
  }
}

}  // namespace detail

/// Implements has_group_norm_memory_for on the CPU.
template <network_element Element, layout_policy Layout>
[[nodiscard]] group_norm_memory group_norm_memory_for(cpu& /*device*/, const image_extents& shape,
                                                      const group_norm_parameters& parameters) {
  using real = detail::computed<Element>;
  const auto split = detail::group_norm_split::of<Layout>(shape, parameters);
  return {.state = detail::group_norm_statistics<real>::bytes(split),
          .workspace = detail::group_norm_workspace<real>::bytes(split)};
}

/// Implements has_group_norm_forward on the CPU.
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

/// Implements has_group_norm_backward on the CPU.
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
