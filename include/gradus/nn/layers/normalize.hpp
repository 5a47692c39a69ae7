// SPDX-License-Identifier: BSL-1.0
//
// The layer normalize: a mean and a deviation of each channel, which are given and not trained.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/formula.hpp"
#include "gradus/kernels/formula.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::nn {

/// Options of a normalization with fixed numbers, such as those of a data set (data::normalization_of):
///
///   y = (x - mean) / deviation
///
///   symbol          | meaning                                 | shape
///   x               | input                                   | (N, C, H, W)
///   mean, deviation | buffers "mean" and "deviation", of C    | (C)
///   y               | output                                  | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/dx = g / deviation   (N, C, H, W)   overwritten or accumulated
///
/// Training leaves the numbers as they are. They are stored with the network's weights and in checkpoints. Loading
/// replaces those of the options, as for a registered buffer of PyTorch: a program that only loads weights needs none.
/// Images of 16 bits have numbers of float.
/// @throws configuration_error (network::add) unless there are as many numbers as channels, or none, all are finite
/// and deviations are above 0
/// @throws shape_error (network::add) for a flattened image
struct normalize {
  std::vector<double> mean = {};       ///< one for each channel; empty: 0 until weights are loaded
  std::vector<double> deviation = {};  ///< one for each channel, above 0; empty: 1 until weights are loaded

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class normalize_base : public layer_base {
 public:
  explicit normalize_base(const normalize& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "normalize"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_image(kind(), inputs[0], "normalize before nn::flatten");
    shape_ = inputs[0];
    check("mean", options_.mean);
    check("deviation", options_.deviation);
    for (const double each : options_.deviation) {
      if (!(each > 0)) {
        raise<configuration_error>(kind(), "deviations above 0", {each}, "use 1 for a channel that is constant");
      }
    }
    return shape_;
  }

  void attributes(attribute_visitor& visit) const override { visit.operation(kind()); }

  [[nodiscard]] std::vector<buffer_description> buffers() const override {
    return {{.name = "mean", .size = shape_.channels, .initial = 0, .values = options_.mean, .fixed = true},
            {.name = "deviation", .size = shape_.channels, .initial = 1, .values = options_.deviation, .fixed = true}};
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .recomputable = true,
            .affine_outside_training = true};
  }

  void write_affine(std::span<const std::vector<double>> /*parameters*/, std::span<const std::vector<double>> buffers,
                    std::span<double> scale, std::span<double> shift) const override {
    for (std::size_t c = 0; c < scale.size(); ++c) {
      scale[c] = 1 / buffers[1][c];
      shift[c] = -buffers[0][c] / buffers[1][c];
    }
  }

 protected:
  normalize options_;
  value_shape shape_;

 private:
  void check(std::string_view what, const std::vector<double>& numbers) const {
    if (!numbers.empty() && static_cast<index_t>(numbers.size()) != shape_.channels) {
      raise<configuration_error>(kind(), {"a ", what, " for each of ", shape_.channels, " channels, or none"},
                                 {numbers.size()});
    }
    for (const double each : numbers) {
      if (!is_finite(each)) {
        raise<configuration_error>(kind(), {"a finite ", what}, {each});
      }
    }
  }
};

}  // namespace detail

template <class Element, class Layout, class Device>
class normalize::layer final : public nn::layer<Element, Layout, Device, detail::normalize_base> {
  static_assert(kernels::explain_formula<Device, Element>());
  using base = nn::layer<Element, Layout, Device, detail::normalize_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    formula_forward(call.device, split(call.output.extents()),
                    formula_of<3>([](auto x, auto center, auto spread) { return (x - center) / spread; }),
                    kernels::formula_arguments<Element, 1, 2>{.inputs = {call.inputs[0].data()},
                                                              .parameters = {call.buffers[0], call.buffers[1]},
                                                              .per_channel = {true, true}},
                    call.output.data());
  }

  void backward(const typename base::backward_call& call) override {
    const auto& dx = call.input_gradients[0];
    if (!dx.needed()) {
      return;
    }
    const kernels::formula_shape shape = split(call.output_gradient.extents());
    if (dx.epilogue.accumulate) {
      formula_forward(
          call.device, shape, formula_of<3>([](auto g, auto sum, auto spread) { return sum + g / spread; }),
          kernels::formula_arguments<Element, 2, 1>{.inputs = {call.output_gradient.data(), dx.images.data()},
                                                    .parameters = {call.buffers[1]},
                                                    .per_channel = {true}},
          dx.images.data());
    } else {
      formula_forward(
          call.device, shape, formula_of<2>([](auto g, auto spread) { return g / spread; }),
          kernels::formula_arguments<Element, 1, 1>{
              .inputs = {call.output_gradient.data()}, .parameters = {call.buffers[1]}, .per_channel = {true}},
          dx.images.data());
    }
  }

 private:
  /// The split of a batch around its channels.
  [[nodiscard]] static kernels::formula_shape split(const gradus::extents<4>& shape) {
    constexpr std::array<bool, 4> slower = detail::slower_than_channels<Layout>();
    kernels::formula_shape result{1, shape[1], 1};
    for (const int k : {0, 2, 3}) {
      (slower[static_cast<std::size_t>(k)] ? result.outer : result.inner) *= shape[k];
    }
    return result;
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::normalize)
