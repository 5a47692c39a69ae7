// SPDX-License-Identifier: BSL-1.0
//
// The run-time interface of a layer and the arguments of its forward and backward pass.
#pragma once

#include <concepts>     // std::constructible_from, std::derived_from
#include <cstddef>      // std::size_t, std::byte
#include <cstdint>      // std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_abstract_v
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/attribute_visitor.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/instances.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// The position of a training step. It seeds the random numbers of layers such as dropout.
struct step_context {
  bool training = true;             ///< false in network::forward and network::evaluate
  std::uint64_t seed = 0;           ///< compile_options::seed
  std::uint64_t step = 0;           ///< counted from 0 over the whole training
  std::uint64_t first_example = 0;  ///< of this batch, in the order of the epoch over all ranks
  /// True where forward runs a second time in one step: it repeats its output from its state and changes nothing else.
  bool again = false;
  /// True in training for layers with freeze_options::evaluates: normalization uses running statistics and leaves them,
  /// and dropout does nothing; forward keeps what backward needs. Other layers need not read it.
  bool evaluates = false;
  /// False where forward runs on this rank only (network::find_non_finite): no layer exchanges data with other ranks.
  bool communicates = true;
};

/// How the outputs of a layer depend on its first parameter, the weight. Where the output is linear in it, a network
/// that is compiled for inference can multiply the weights by a factor instead of the output.
enum class weight_channels : unsigned char {
  none,              ///< not linear, or unknown
  first,             ///< (O, ...): output channel o has the weights w(o, ...)
  second_of_a_group  ///< (I, O / groups, ...): output channel o of a group has the weights w(i, o, ...) of its inputs
};

/// How often the kernels of a layer read whole values from memory in a training step: memory_traffic counts bytes by
/// it. No plan depends on it. The defaults are those of a layer whose passes read everything once.
struct value_reads {
  unsigned char forward = 1;                  ///< forward reads each input
  unsigned char inputs_for_inputs = 1;        ///< of backward_reads_inputs: for the gradients of the inputs
  unsigned char inputs_for_parameters = 0;    ///< likewise: for those of the parameters, or for sums over the batch
  unsigned char gradient_for_inputs = 1;      ///< backward reads the gradient of the output for those of the inputs
  unsigned char gradient_for_parameters = 0;  ///< likewise for those of the parameters, or for sums over the batch
};

/// Properties of a layer that the execution plan depends on. The defaults hold for every layer and use the most memory.
/// tests/conformance/nn checks that a layer behaves as its traits say.
struct layer_traits {
  bool backward_reads_inputs = true;  ///< backward reads backward_arguments::inputs
  bool backward_reads_output = true;  ///< backward reads backward_arguments::output
  bool aliases_input = false;  ///< the output is the input's memory with another shape; forward and backward do nothing
  bool fuses_activation = false;  ///< set_activation works, for ReLU or for any_activation
  bool fuses_residual = false;    ///< forward adds forward_arguments::residual before the activation
  bool is_sum = false;            ///< the layer only adds two values
  /// Backward applies backward_epilogue::relu_output to the gradients of its inputs. If false, relu_output is always
  /// null.
  bool masks_input_gradients = false;
  /// What the layer fuses and masks may be any kernels::activation, such as ReLU6 and leaky ReLU. If false, it is ReLU:
  /// set_activation gets nothing else but the identity, and backward_epilogue::mask need not be read.
  bool any_activation = false;
  /// Backward writes backward_arguments::residual_gradient. If false, the network writes it.
  bool writes_residual_gradient = false;
  /// Backward leaves out gradients of parameters that are null, as those of frozen layers are. If false, a frozen layer
  /// has memory for them.
  bool skips_parameter_gradients = false;
  bool recomputable = false;  ///< forward is cheap and may run a second time before backward (step_context::again)
  kernels::activation is_activation = kernels::activation::identity;  ///< the layer only applies this activation
  /// In training, forward and backward exchange data with other ranks. They also run for a batch of 0, so that no rank
  /// waits for one without examples, and the network refuses micro-batches, whose number may differ between ranks.
  bool communicates = false;
  // For networks that are compiled for inference:
  bool identity_outside_training = false;  ///< outside training the output is the input
  /// Outside training the output is scale * input + shift with numbers of each channel, which layer_base::write_affine
  /// tells.
  bool affine_outside_training = false;
  /// Output channels are linear in parameter 0, and forward adds parameter 1 to each channel if there is one, also
  /// where parameters() has none. Then an affine layer behind this one can be computed by it.
  weight_channels folds_affine = weight_channels::none;
  value_reads reads = {};  ///< what nn::memory_traffic counts
};

/// Memory of a layer in bytes, besides values and parameters.
struct layer_memory {
  std::size_t state = 0;      ///< kept from forward to backward of a step
  std::size_t workspace = 0;  ///< used during one call; all layers share it
};

/// Pointers to the values and the gradient of one parameter.
template <class Element>
struct parameter_memory {
  Element* value = nullptr;     ///< in the memory order of the layout
  Element* gradient = nullptr;  ///< in the same order; see layer_traits::skips_parameter_gradients
};

/// Numbers that a layer keeps from step to step and does not train, such as a running mean. They are stored with the
/// weights.
struct buffer_description {
  std::string name;                 ///< without the layer's name: "running_mean"
  index_t size = 0;                 ///< elements
  double initial = 0;               ///< the value of every element before training
  std::vector<double> values = {};  ///< the value of each element before training; empty: `initial`
  bool fixed = false;               ///< no step changes the values: training of several ranks does not average them

  /// The value of element i before training. @pre 0 <= i < size
  [[nodiscard]] double initial_value(index_t i) const noexcept {
    return values.empty() ? initial : values[static_cast<std::size_t>(i)];
  }
};

/// Arguments of a forward pass.
template <class Element, class Device>
struct forward_arguments {
  Device& device;                                              ///< runs the pass; holds all memory of the call
  std::span<const image_batch<const Element, Device>> inputs;  ///< in the order of network::add
  image_batch<Element, Device> output;                         ///< to be written
  const Element* residual;  ///< of the output's shape, or null; only if traits().fuses_residual
  std::span<const parameter_memory<parameter_element_t<Element>>> parameters;  ///< in the order of parameters()
  std::span<parameter_element_t<Element>* const> buffers;                      ///< in the order of buffers()
  std::span<std::byte> state;                                                  ///< layer_memory::state bytes
  std::span<std::byte> workspace;  ///< at least layer_memory::workspace bytes
  const step_context& context;     ///< position in training
  /// What layer_passes::prepare has written for this layer; empty where forward reads the parameters.
  std::span<const std::byte> prepared = {};
};

/// Where and how backward writes the gradient of one input: it overwrites all elements, or adds to them where
/// epilogue.accumulate is set.
template <class Element, class Device>
struct input_gradient {
  image_batch<Element, Device> images;           ///< without memory where the gradient is not needed
  kernels::backward_epilogue<Element> epilogue;  ///< overwrite or add; mask by a ReLU or an activation like it

  /// True if the gradient is needed.
  [[nodiscard]] bool needed() const noexcept { return images.data() != nullptr; }
};

/// Arguments of a backward pass.
template <class Element, class Device>
struct backward_arguments {
  Device& device;                                              ///< runs the pass; holds all memory of the call
  std::span<const image_batch<const Element, Device>> inputs;  ///< valid if traits().backward_reads_inputs
  image_batch<const Element, Device> output;                   ///< valid if traits().backward_reads_output
  image_batch<const Element, Device> output_gradient;          ///< with respect to the output before the activation
  std::span<const input_gradient<Element, Device>> input_gradients;  ///< in the order of the inputs
  /// The gradient of the residual: output_gradient, written or added, never masked. Needed only if
  /// traits().writes_residual_gradient.
  input_gradient<Element, Device> residual_gradient;
  std::span<const parameter_memory<parameter_element_t<Element>>> parameters;  ///< gradients are overwritten
  std::span<parameter_element_t<Element>* const> buffers;                      ///< in the order of buffers()
  std::span<std::byte> state;                                                  ///< as forward left it
  std::span<std::byte> workspace;  ///< at least layer_memory::workspace bytes
  const step_context& context;     ///< position in training
};

/// The part of a layer that does not depend on element type, layout and device: its shapes, parameters and traits. It
/// is compiled once for all of them.
class layer_base {
 public:
  layer_base() = default;
  layer_base(const layer_base&) = delete;
  layer_base& operator=(const layer_base&) = delete;
  virtual ~layer_base() = default;

  /// The kind of layer in messages: "conv2d".
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;

  /// Returns the shape of the output and stores what the layer needs of the shapes. The number of inputs is not checked
  /// before.
  /// @throws shape_error, configuration_error; the network adds the layer's name
  virtual value_shape infer(std::span<const value_shape> inputs) = 0;

  /// Tells `visit` the operation that the layer computes outside training, and its options without those that follow
  /// from the shapes of its values and parameters. Options that matter in training only belong to it. A layer that
  /// tells nothing cannot be exported, and its options are not compared between ranks or with those of a checkpoint.
  /// @pre infer was called
  virtual void attributes(attribute_visitor& /*visit*/) const {}

  /// The parameters. @pre infer was called
  [[nodiscard]] virtual std::vector<parameter_description> parameters() const { return {}; }

  /// The buffers, such as running statistics. @pre infer was called
  [[nodiscard]] virtual std::vector<buffer_description> buffers() const { return {}; }

  /// Properties for the execution plan. @pre infer was called
  [[nodiscard]] virtual layer_traits traits() const noexcept { return {}; }

  /// Multiply-adds of one forward pass over one example.
  [[nodiscard]] virtual index_t multiply_adds() const noexcept { return 0; }

  /// Writes the numbers of traits().affine_outside_training, a scale and a shift of each channel, from the values of
  /// each parameter and each buffer.
  virtual void write_affine(std::span<const std::vector<double>> /*parameters*/,
                            std::span<const std::vector<double>> /*buffers*/, std::span<double> /*scale*/,
                            std::span<double> /*shift*/) const {}

  /// Groups of channels, where traits().folds_affine is weight_channels::second_of_a_group.
  [[nodiscard]] virtual index_t weight_groups() const noexcept { return 1; }

  /// Makes forward apply `act` to its output. Called only if traits().fuses_activation; see any_activation.
  virtual void set_activation(kernels::activation /*act*/) {}

  /// What compile_options::convolution_algorithm says, before memory is asked for; a layer may have an option of its
  /// own.
  virtual void set_convolution_algorithm(kernels::convolution_algorithm /*algorithm*/) {}

  /// Tells the layer its name, which no other layer of the network has, before infer. A layer that draws random numbers
  /// names their stream after it: random_stream{context.seed, name}.
  virtual void set_name(std::string_view /*name*/) {}

  /// The name of the stream of the layer's random numbers; empty: it draws none. The network refuses two layers with
  /// one stream, whose numbers would be the same.
  [[nodiscard]] virtual std::string_view random_name() const noexcept { return {}; }
};

/// The passes of a layer for one element type and device.
template <class Element, class Device>
class layer_passes {
  static_assert(explain_network_element<Element>());
  static_assert(explain_device_policy<Device>());

 public:
  /// Arguments of forward.
  using forward_call = forward_arguments<Element, Device>;
  /// Arguments of backward.
  using backward_call = backward_arguments<Element, Device>;

  layer_passes() = default;
  layer_passes(const layer_passes&) = delete;
  layer_passes& operator=(const layer_passes&) = delete;

  /// Memory for batches of up to `batch` examples, in bytes. @pre infer was called
  [[nodiscard]] virtual layer_memory memory(Device& /*device*/, index_t /*batch*/) const { return {}; }

  /// The memory that forward needs outside training. A network that is compiled for inference takes no other. The last
  /// argument is true where forward reads what prepare wrote, if prepared_bytes is not 0.
  [[nodiscard]] virtual layer_memory inference_memory(Device& device, index_t batch, bool /*prepared*/) const {
    return memory(device, batch);
  }
  /// Bytes that prepare writes; 0: forward reads the parameters themselves.
  [[nodiscard]] virtual std::size_t prepared_bytes(Device& /*device*/) const { return 0; }
  /// Writes parameters in the form in which forward reads them (forward_arguments::prepared), once for many passes: to
  /// prepared_bytes() of memory that is aligned to 64 bytes, with a workspace as inference_memory says for one example.
  virtual void prepare(Device& /*device*/, std::span<const parameter_memory<parameter_element_t<Element>>> /*values*/,
                       std::span<std::byte> /*to*/, std::span<std::byte> /*workspace*/) const {}

  /// Writes all of call.output. Allocates nothing.
  virtual void forward(const forward_call& call) = 0;
  /// Overwrites the gradients of the parameters and writes the input gradients that are needed. Allocates nothing.
  virtual void backward(const backward_call& call) = 0;

 protected:
  ~layer_passes() = default;  // layers are owned as layer_base
};

/// A layer of a network: a function of one or more values, with parameters.
///
/// The network calls infer once, then parameters, traits and memory, then forward and backward any number of times with
/// batches of up to the planned size. Forward and backward allocate nothing. To add a layer, derive from this class and
/// write an aggregate of options with a nested `template <class Element, class Layout, class Device> class layer` whose
/// constructor takes the options (see nn/layers/local_response_norm.hpp). A layer that needs no coordinates may derive
/// from layer_passes and layer_base instead, which is compiled once for all layouts (see nn/layers/relu.hpp).
///
/// `Base` implements layer_base and is compiled once for all element types, layouts and devices. A layer may omit it
/// and implement the functions of layer_base itself.
template <class Element, class Layout, class Device, class Base = layer_base>
class layer : public layer_passes<Element, Device>, public Base {
  static_assert(explain_layout_policy<Layout>());
  static_assert(std::derived_from<Base, layer_base>, "gradus: the base of a layer derives from nn::layer_base");

 public:
  using Base::Base;

 protected:
  /// A view of the images of a call, for kernels and expressions: `base::view(call.inputs[0])`.
  template <class Any>
  [[nodiscard]] static image_view<Any, Layout, Device> view(const image_batch<Any, Device>& images) noexcept {
    return {images.device(), images.data(), images.extents()};
  }
};

/// Options with a nested template of their layer.
template <class Description, class Element, class Layout, class Device>
concept has_layer_template = requires {
  typename Description::template layer<Element, Layout, Device>;
};

/// Options of a layer: they have a nested template `layer` whose classes derive from nn::layer, implement its functions
/// and are constructible from the options.
template <class Description, class Element, class Layout, class Device>
concept layer_description =
    has_layer_template<Description, Element, Layout, Device> &&
    std::derived_from<typename Description::template layer<Element, Layout, Device>, layer_base> &&
    std::derived_from<typename Description::template layer<Element, Layout, Device>, layer_passes<Element, Device>> &&
    std::constructible_from < typename Description::template layer<Element, Layout, Device>,
const Description& > ;

/// Reports at compile time why a type is not the options of a layer. Returns true if it compiles.
template <class Description, class Element, class Layout, class Device>
consteval bool explain_layer() {
  static_assert(
      has_layer_template<Description, Element, Layout, Device>,
      "gradus: not a layer: net.add takes a layer's options, as in net.add(\"relu1\", nn::relu{}, x); options of "
      "your own have a nested template <class Element, class Layout, class Device> class layer, which derives from "
      "nn::layer; a loss ends the network by net.loss(nn::softmax_cross_entropy{}, x)");
  if constexpr (has_layer_template<Description, Element, Layout, Device>) {
    using made = typename Description::template layer<Element, Layout, Device>;
    constexpr bool derives =
        std::derived_from<made, layer_base> && std::derived_from<made, layer_passes<Element, Device>>;
    static_assert(derives,
                  "gradus: not a layer: derive the class layer of these options publicly from "
                  "gradus::nn::layer<Element, Layout, Device>");
    static_assert(!derives || !std::is_abstract_v<made>,
                  "gradus: not a layer: it must override kind(), infer(inputs), forward(const forward_call&) and "
                  "backward(const backward_call&): write override after each of them");
    static_assert(!derives || std::is_abstract_v<made> || std::constructible_from<made, const Description&>,
                  "gradus: not a layer: give it a constructor that takes its options: explicit layer(const options&)");
  }
  return true;
}

namespace detail {

/// A layer, as its network owns it and as it calls it.
template <class Element, class Device>
struct made_layer {
  std::unique_ptr<layer_base> owned;
  layer_passes<Element, Device>* passes;
};

/// The layer of a description: a function of its own, so that it can be compiled once.
template <class Description, class Element, class Layout, class Device>
[[nodiscard]] made_layer<Element, Device> make_layer(const Description& description) {
  auto made = std::make_unique<typename Description::template layer<Element, Layout, Device>>(description);
  layer_passes<Element, Device>* const passes = made.get();
  return {std::move(made), passes};
}

/// @throws configuration_error when the number of inputs is not `expected`
GRADUS_COLD inline void require_inputs(std::string_view kind, std::size_t expected, std::size_t actual) {
  if (expected != actual) {
    raise<configuration_error>(kind, {expected, " input value(s)"}, {actual});
  }
}

/// @throws configuration_error when an option is below its minimum
inline void require_at_least(std::string_view kind, std::string_view option, index_t least, index_t actual,
                             std::string_view hint = {}) {
  if (actual < least) {
    raise<configuration_error>(kind, {option, " of at least ", least}, {actual}, hint);
  }
}

/// The most elements of a value of one example, and of a parameter: bytes of many such fit index_t.
inline constexpr index_t most_elements = index_t{1} << 48U;

/// @throws configuration_error when a layer would add more channels than a value has elements
inline void require_few_channels(std::string_view kind, index_t channels) {
  if (channels > most_elements) {
    raise<configuration_error>(kind, {"at most ", most_elements, " more channels"}, {channels});
  }
}

/// @throws shape_error when the input is flattened
inline void require_image(std::string_view kind, const value_shape& input, std::string_view hint) {
  if (input.flattened) {
    raise<shape_error>(kind, "an image", describe(input), hint);
  }
}

}  // namespace detail
}  // namespace gradus::nn

// A layer of the library, by its options, of each element type and layout on the CPU. Does nothing without separate
// compilation.
#ifdef GRADUS_HAS_INSTANCES
#define GRADUS_COMPILED_LAYER(description) GRADUS_EACH_LAYOUT(GRADUS_DETAIL_LAYER, description)
#define GRADUS_DETAIL_LAYER(instance, layout, element, description) \
  instance(::gradus::nn::detail::made_layer<element, ::gradus::cpu> \
               gradus::nn::detail::make_layer<description, element, layout, ::gradus::cpu>(const description&))
#else
#define GRADUS_COMPILED_LAYER(description)
#endif
