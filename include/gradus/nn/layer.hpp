// SPDX-License-Identifier: BSL-1.0
//
// The run-time interface of a layer, and what the network hands it when it runs.
#pragma once

#include <concepts>     // std::derived_from
#include <cstddef>      // std::size_t, std::byte
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// What a training step knows about itself; it keys the random numbers of layers such as dropout.
struct step_context {
  bool training = true;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;           ///< counted from 0 over the whole training
  std::uint64_t first_example = 0;  ///< of this batch, in the order of the epoch over all ranks
  bool again =
      false;  ///< forward ran in this step: it makes the same output from what it keeps, and changes nothing else
};

/// What the plan needs to know about a layer. The defaults are the safe answers. What a layer says of its backward pass
/// here and how it then behaves is held together by tests/conformance/nn.
struct layer_traits {
  bool backward_reads_inputs = true;
  bool backward_reads_output = true;
  bool aliases_input = false;     ///< the output is the input's memory, read differently; nothing runs
  bool fuses_activation = false;  ///< set_activation works
  bool fuses_residual = false;    ///< forward adds forward_arguments::residual before the activation
  bool is_sum = false;            ///< the layer is nothing but the sum of two values
  /// Backward applies backward_epilogue::relu_output to the gradients of its inputs; without it, it is never given.
  bool masks_input_gradients = false;
  /// Backward writes backward_arguments::residual_gradient; without it, the network does, and it is never wanted.
  bool writes_residual_gradient = false;
  bool recomputable = false;  ///< forward is cheap, and may run a second time before backward (step_context::again)
  kernels::activation is_activation = kernels::activation::identity;  ///< the layer is nothing but this activation
};

/// Memory of a layer beside values and parameters, in bytes.
struct layer_memory {
  std::size_t state = 0;      ///< kept from forward to backward of a step
  std::size_t workspace = 0;  ///< for the duration of one call, shared by all layers
};

/// Where the values and the gradient of one parameter lie.
template <class Element>
struct parameter_memory {
  Element* value = nullptr;
  Element* gradient = nullptr;
};

/// What a layer keeps from step to step beside parameters: running statistics.
struct buffer_description {
  std::string name;    ///< inside the layer: "running_mean"
  index_t size = 0;    ///< elements
  double initial = 0;  ///< of every element
};

template <class Element, class Layout, class Device>
struct forward_arguments {
  Device& device;
  std::span<const image_view<const Element, Layout, Device>> inputs;
  image_view<Element, Layout, Device> output;
  const Element* residual;  ///< of the shape of the output, or null; only if traits().fuses_residual
  std::span<const parameter_memory<parameter_element_t<Element>>> parameters;
  std::span<parameter_element_t<Element>* const> buffers;
  std::span<std::byte> state;
  std::span<std::byte> workspace;
  const step_context& context;
};

/// One gradient that a backward pass writes: all of its elements, or adds to them (epilogue.accumulate); without a
/// view, nobody wants it.
template <class Element, class Layout, class Device>
struct input_gradient {
  image_view<Element, Layout, Device> view;
  kernels::backward_epilogue<Element> epilogue;

  [[nodiscard]] bool wanted() const noexcept { return view.data() != nullptr; }
};

template <class Element, class Layout, class Device>
struct backward_arguments {
  Device& device;
  std::span<const image_view<const Element, Layout, Device>> inputs;  ///< valid if traits().backward_reads_inputs
  image_view<const Element, Layout, Device> output;                   ///< valid if traits().backward_reads_output
  image_view<const Element, Layout, Device> output_gradient;          ///< of what forward wrote before its activation
  std::span<const input_gradient<Element, Layout, Device>> input_gradients;
  /// output_gradient, or that added; wanted only if traits().writes_residual_gradient. Never masked.
  input_gradient<Element, Layout, Device> residual_gradient;
  std::span<const parameter_memory<parameter_element_t<Element>>> parameters;  ///< gradients are overwritten
  std::span<parameter_element_t<Element>* const> buffers;
  std::span<std::byte> state;
  std::span<std::byte> workspace;
  const step_context& context;
};

/// What of a layer depends on neither element type, layout nor device: its shapes, its parameters, and what the plan
/// needs to know. It is compiled once for all of them.
class layer_base {
 public:
  layer_base() = default;
  layer_base(const layer_base&) = delete;
  layer_base& operator=(const layer_base&) = delete;
  virtual ~layer_base() = default;

  /// The name of the kind of layer in messages: "conv2d".
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;

  /// The shape of the output; the layer remembers what it needs of the shapes.
  /// @throws shape_error, configuration_error; the network adds the layer's name
  virtual value_shape infer(std::span<const value_shape> inputs) = 0;

  /// The parameters, after infer.
  [[nodiscard]] virtual std::vector<parameter_description> parameters() const { return {}; }

  /// What it keeps from step to step beside parameters, after infer.
  [[nodiscard]] virtual std::vector<buffer_description> buffers() const { return {}; }

  [[nodiscard]] virtual layer_traits traits() const noexcept { return {}; }

  /// Multiply-adds of one forward pass over one example.
  [[nodiscard]] virtual index_t multiply_adds() const noexcept { return 0; }

  /// Makes forward apply an activation to its output. Called only if traits().fuses_activation.
  virtual void set_activation(kernels::activation /*act*/) {}

  /// What compile_options::convolution_algorithm says, before memory is asked for; a layer may have an option of its
  /// own.
  virtual void set_convolution_algorithm(kernels::convolution_algorithm /*algorithm*/) {}
};

/// What a layer computes, on one element type, layout and device.
template <class Element, class Layout, class Device>
class layer_passes {
  static_assert(explain_network_element<Element>());
  static_assert(explain_layout_policy<Layout>());
  static_assert(explain_device_policy<Device>());

 public:
  using view = image_view<Element, Layout, Device>;
  using const_view = image_view<const Element, Layout, Device>;
  using forward_call = forward_arguments<Element, Layout, Device>;
  using backward_call = backward_arguments<Element, Layout, Device>;

  layer_passes() = default;
  layer_passes(const layer_passes&) = delete;
  layer_passes& operator=(const layer_passes&) = delete;

  /// Memory for batches up to `batch`, after infer.
  [[nodiscard]] virtual layer_memory memory(Device& /*device*/, index_t /*batch*/) const { return {}; }

  virtual void forward(const forward_call& call) = 0;
  virtual void backward(const backward_call& call) = 0;

 protected:
  ~layer_passes() = default;  // layers are owned as layer_base
};

/// A layer of a network: a function of one or more values, with parameters.
///
/// The network calls infer once, then asks for parameters, traits and memory, and then calls forward and backward any
/// number of times with batches up to the planned one. Forward and backward allocate nothing. To add a layer, derive
/// from this class and write an aggregate of options with a nested `template <class Element, class Layout, class
/// Device> class layer` that is constructed from it (see nn/layers/relu.hpp).
///
/// `Base` implements layer_base, so that it is compiled once for all element types, layouts and devices. A layer may
/// also leave it out and implement the functions of layer_base itself.
template <class Element, class Layout, class Device, class Base = layer_base>
class layer : public layer_passes<Element, Layout, Device>, public Base {
  static_assert(std::derived_from<Base, layer_base>, "gradus: the base of a layer derives from nn::layer_base");

 public:
  using Base::Base;
};

namespace detail {

/// @throws configuration_error when a layer that takes `expected` values is given another number
GRADUS_COLD inline void require_inputs(std::string_view kind, std::size_t expected, std::size_t actual) {
  if (expected != actual) {
    raise<configuration_error>(kind, {expected, " input value(s)"}, {actual});
  }
}

/// @throws configuration_error when an option is below its least value
GRADUS_COLD inline void require_at_least(std::string_view kind, std::string_view option, index_t least,
                                         index_t actual) {
  if (actual < least) {
    raise<configuration_error>(kind, {option, " of at least ", least}, {actual});
  }
}

/// @throws shape_error when a layer of images is given a flattened one
GRADUS_COLD inline void require_image(std::string_view kind, const value_shape& input, std::string_view hint) {
  if (input.flattened) {
    raise<shape_error>(kind, "an image", describe(input), hint);
  }
}

}  // namespace detail
}  // namespace gradus::nn
