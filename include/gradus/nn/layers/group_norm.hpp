// SPDX-License-Identifier: BSL-1.0
//
// The layers group_norm and instance_norm: normalization by statistics of each example.
#pragma once

#include <algorithm>    // std::min
#include <cstddef>      // std::byte, std::size_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/kernels/cpu/group_norm.hpp"
#include "gradus/kernels/group_norm.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

namespace detail {

/// What group_norm, instance_norm and layer_norm are made of.
struct set_norm_options {
  std::string_view kind;
  kernels::normalized_set over = kernels::normalized_set::group;
  index_t groups = 1;  ///< 0: as many as channels
  double epsilon = 1e-5;
  bool scale = true;
  bool shift = true;
  initializer scale_initializer = ones();
  initializer shift_initializer = zeros();
};

/// The groups of nn::group_norm{.groups = 0}, which is refused.
inline constexpr index_t no_groups = std::numeric_limits<index_t>::min();

/// The part of the layers that does not depend on element type, layout and device.
class set_norm_base : public layer_base {
 public:
  explicit set_norm_base(const set_norm_options& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return options_.kind; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    if (!(options_.epsilon > 0) || !is_finite(options_.epsilon)) {
      raise<configuration_error>(kind(), "an epsilon above 0", {options_.epsilon});
    }
    if (inputs[0].flattened) {
      raise<shape_error>(kind(), "an image, or a vector made by a dense layer", describe(inputs[0]),
                         "normalize before nn::flatten");
    }
    shape_ = inputs[0];
    parameters_ = {.over = options_.over,
                   .groups = options_.groups == 0 ? shape_.channels : options_.groups,
                   .epsilon = options_.epsilon};
    require_at_least(kind(), "groups", 1, parameters_.groups == no_groups ? 0 : parameters_.groups,
                     "nn::instance_norm has one channel in each group");
    if (shape_.channels % parameters_.groups != 0) {
      constexpr index_t most = 4096;  // the input of a network has any number of channels
      std::string divisors;
      for (index_t groups = 1; groups <= std::min(shape_.channels, most); ++groups) {
        if (shape_.channels % groups == 0) {
          append_text(divisors, {divisors.empty() ? "" : ", ", groups});
        }
      }
      divisors += shape_.channels > most ? ", ..." : "";
      raise<shape_error>(kind(), {"groups that divide ", shape_.channels, " channels"}, {parameters_.groups},
                         {"write nn::group_norm{.groups = ...} with one of ", divisors,
                          "; without .groups it has 32, as in its paper"});
    }
    return shape_;
  }

  [[nodiscard]] std::vector<parameter_description> parameters() const override {
    const bool whole = options_.over == kernels::normalized_set::image;
    const image_extents shape = whole ? shape_.batch(1) : image_extents{shape_.channels, 1, 1, 1};
    std::vector<parameter_description> result;
    if (options_.scale) {
      result.push_back({"weight", shape, whole ? 4 : 1, options_.scale_initializer, {}, false});
    }
    if (options_.shift) {
      result.push_back({"bias", shape, whole ? 4 : 1, options_.shift_initializer, {}, false});
    }
    return result;
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_output = false,
            .fuses_activation = true,
            .fuses_residual = true,
            .masks_input_gradients = true,
            .any_activation = true,
            .skips_parameter_gradients = true,
            .recomputable = true,
            .reads = {.forward = 2,
                      .inputs_for_inputs = 1,
                      .inputs_for_parameters = 1,
                      .gradient_for_inputs = 1,
                      .gradient_for_parameters = 1}};
  }

  void set_activation(kernels::activation act) override { activation_ = act; }

  void attributes(attribute_visitor& visit) const override {
    const bool groups = options_.over == kernels::normalized_set::group;
    visit.operation(groups ? "group_norm" : "layer_norm");
    if (groups) {
      visit.integer("groups", parameters_.groups);
    } else {
      visit.text("axes", options_.over == kernels::normalized_set::pixel ? "channels" : "image");
    }
    visit.real("epsilon", options_.epsilon);
  }

 protected:
  /// @throws shape_error where a single value is normalized, to 0 whatever it is: as PyTorch for one pixel of
  ///         instance_norm, and for one value in all groups of a batch of group_norm
  void require_statistics(index_t examples) const {
    if (options_.over != kernels::normalized_set::group || shape_.height * shape_.width != 1 ||
        shape_.channels != parameters_.groups) {
      return;
    }
    if (options_.groups == 0) {
      raise<shape_error>(kind(), "images of more than 1 pixel in training", describe(shape_),
                         "normalize before the pooling, or use nn::batch_norm or nn::layer_norm");
    }
    if (examples == 1) {
      raise<shape_error>(kind(), "more than 1 value per group in training", "1 (one example of 1 x 1 pixels)",
                         {"write fewer than ", parameters_.groups, " groups"});
    }
  }

  set_norm_options options_;
  value_shape shape_;
  kernels::group_norm_parameters parameters_;
  kernels::activation activation_ = kernels::activation::identity;
};

/// The layer of options with a member `normalization()` that returns set_norm_options.
template <class Element, class Layout, class Device>
class set_norm_layer final : public nn::layer<Element, Layout, Device, set_norm_base> {
  static_assert(kernels::explain_group_norm<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, set_norm_base>;
  using parameter_element = parameter_element_t<Element>;

 public:
  template <class Options>
  explicit set_norm_layer(const Options& options) : base{options.normalization()} {}

  [[nodiscard]] layer_memory memory(Device& device, index_t batch) const override {
    const kernels::group_norm_memory wanted = bytes(device, batch);
    // A pass outside training has no state: it keeps the statistics behind its workspace.
    return {.state = wanted.state, .workspace = aligned(wanted.workspace) + wanted.state};
  }

  [[nodiscard]] layer_memory inference_memory(Device& device, index_t batch, bool /*prepared*/) const override {
    return {.state = 0, .workspace = memory(device, batch).workspace};
  }

  void forward(const typename base::forward_call& call) override {
    if (call.context.training && !call.context.evaluates) {
      this->require_statistics(call.output.extents()[0]);
    }
    std::span<std::byte> state = call.state;
    if (!call.context.training) {
      const kernels::group_norm_memory wanted = bytes(call.device, call.output.extents()[0]);
      state = call.workspace.subspan(aligned(wanted.workspace), wanted.state);
    }
    group_norm_forward(call.device, base::view(call.inputs[0]), base::view(call.output), this->parameters_,
                       affine(call.parameters),
                       kernels::batch_norm_epilogue<Element>{.residual = call.residual, .act = this->activation_},
                       state, call.workspace);
  }

  void backward(const typename base::backward_call& call) override {
    kernels::group_norm_gradients<parameter_element> gradients;
    gradients.gamma = this->options_.scale ? call.parameters[0].gradient : nullptr;
    gradients.beta = this->options_.shift ? call.parameters[this->options_.scale ? 1 : 0].gradient : nullptr;
    const auto& dx = call.input_gradients[0];
    group_norm_backward(call.device, base::view(call.inputs[0]), base::view(call.output_gradient),
                        base::view(dx.images), this->parameters_, affine(call.parameters), gradients, dx.epilogue,
                        call.state, call.workspace);
  }

 private:
  [[nodiscard]] static constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

  [[nodiscard]] kernels::group_norm_memory bytes(Device& device, index_t batch) const {
    return group_norm_memory_for<Element, Layout>(device, this->shape_.batch(batch), this->parameters_);
  }

  [[nodiscard]] kernels::batch_norm_affine<parameter_element> affine(
      std::span<const parameter_memory<parameter_element>> parameters) const {
    return {.gamma = this->options_.scale ? parameters[0].value : nullptr,
            .beta = this->options_.shift ? parameters[this->options_.scale ? 1 : 0].value : nullptr};
  }
};

}  // namespace detail

/// Options of group normalization (Wu, He 2018): normalizes groups of channels of each example. PyTorch: GroupNorm.
///
///   y = gamma * x^ + beta,   x^ = (x - mean) / sqrt(variance + epsilon)
///
///   symbol         | meaning                          | shape
///   x              | input                            | (N, C, H, W)
///   gamma, beta    | parameters "weight" and "bias"   | (C)
///   mean, variance | of C / groups channels, h and w  | (N, groups)
///   y              | output                           | (N, C, H, W)
///
/// Gradients for g = dL/dy, with means over the elements that share a mean:
///   dL/dx     = (gamma * g - mean(gamma * g) - x^ * mean(gamma * g * x^)) / sqrt(variance + epsilon)   (N, C, H, W)
///   dL/dgamma = sum of g * x^   (C)   overwritten
///   dL/dbeta  = sum of g        (C)   overwritten
///
/// An example's output does not depend on the batch, in training and outside: for small batches, and for any number of
/// ranks. On a GPU, include gradus/kernels/cuda/group_norm.cuh.
/// @throws configuration_error (network::add) when groups is below 1 or epsilon is not above 0
/// @throws shape_error (network::add) when groups does not divide the channels, or for a flattened image; (training)
///         for one example of one pixel with as many groups as channels, as in PyTorch
struct group_norm {
  index_t groups = 32;                      ///< of neighboring channels
  double epsilon = 1e-5;                    ///< added to the variance
  bool scale = true;                        ///< learn gamma
  bool shift = true;                        ///< learn beta
  initializer scale_initializer = ones();   ///< of gamma
  initializer shift_initializer = zeros();  ///< of beta

  /// The description of the layer.
  [[nodiscard]] detail::set_norm_options normalization() const {
    return {.kind = "group_norm",
            .over = kernels::normalized_set::group,
            .groups = groups == 0 ? detail::no_groups : groups,
            .epsilon = epsilon,
            .scale = scale,
            .shift = shift,
            .scale_initializer = scale_initializer,
            .shift_initializer = shift_initializer};
  }
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::set_norm_layer<Element, Layout, Device>;
};

/// Options of instance normalization (Ulyanov et al. 2016): normalizes each channel of each example over h and w. It is
/// group_norm with one channel in each group. PyTorch: InstanceNorm2d, whose options `affine` is `scale` and `shift`
/// here; it has no running statistics.
/// @throws configuration_error (network::add) when epsilon is not above 0
/// @throws shape_error (network::add) for a flattened image, or (training) for images of one pixel
struct instance_norm {
  double epsilon = 1e-5;                    ///< added to the variance
  bool scale = false;                       ///< learn gamma, shape (C)
  bool shift = false;                       ///< learn beta, shape (C)
  initializer scale_initializer = ones();   ///< of gamma
  initializer shift_initializer = zeros();  ///< of beta

  /// The description of the layer.
  [[nodiscard]] detail::set_norm_options normalization() const {
    return {.kind = "instance_norm",
            .over = kernels::normalized_set::group,
            .groups = 0,
            .epsilon = epsilon,
            .scale = scale,
            .shift = shift,
            .scale_initializer = scale_initializer,
            .shift_initializer = shift_initializer};
  }
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::set_norm_layer<Element, Layout, Device>;
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::group_norm)
GRADUS_COMPILED_LAYER(::gradus::nn::instance_norm)
