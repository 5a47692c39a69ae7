// SPDX-License-Identifier: BSL-1.0
//
// Layers from element-wise functions, which the library differentiates: nn::elementwise([](auto x) { ... }).
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::index_sequence, std::make_index_sequence, std::move
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/formula.hpp"
#include "gradus/kernels/formula.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::nn {

/// A learnable argument of an element-wise function: per_channel(...) or per_layer(...). No weight decay applies to it.
struct elementwise_parameter {
  std::string name;         ///< "slope" in a layer "prelu1" makes the parameter "prelu1.slope"
  initializer initial;      ///< the values before training
  bool per_channel = true;  ///< true: one number for each channel, false: one for the layer
};

/// A learnable argument of an element-wise function with one number for each channel.
[[nodiscard]] inline elementwise_parameter per_channel(std::string name, const initializer& initial) {
  return {std::move(name), initial, true};
}
/// A learnable argument of an element-wise function that is one number.
[[nodiscard]] inline elementwise_parameter per_layer(std::string name, const initializer& initial) {
  return {std::move(name), initial, false};
}

namespace detail {
template <class Formula, int Parameters, class Element, class Layout, class Device>
struct elementwise_layer_of;
}  // namespace detail

/// Options of a layer y = f(x, ...), element by element, as nn::elementwise makes them.
///
///   symbol | meaning                  | shape
///   x, ... | inputs, of one shape     | (N, C, H, W)
///   p, ... | parameters               | (C) or (1)
///   y      | f(x, ..., p, ...)        | (N, C, H, W)
///
/// Gradients for g = dL/dy, with the partial derivatives of f:
///   dL/dx = g df/dx                      (N, C, H, W)   overwritten or accumulated
///   dL/dp = sum over n, h, w of g df/dp  (C)            overwritten; (1): the sum over c too
///
/// One pass over memory computes the output, one all gradients; on a GPU, each parameter adds a pass. Backward reads
/// the inputs, or only the output where the derivatives can be computed from it, as for sigmoid, or neither, as for a
/// sum.
/// @throws shape_error (network::add) when the shapes differ, or for a flattened image if there are parameters per
/// channel
template <class Formula, int Parameters>
struct elementwise_options {
  Formula function;  ///< of the inputs, then the parameters
  std::array<elementwise_parameter, static_cast<std::size_t>(Parameters)>
      parameters;                         ///< in the order of the arguments
  std::string_view kind = "elementwise";  ///< the kind of layer in messages; it must outlive the layer

  /// The layer for one element type and device. Without parameters all layouts share it.
  template <class Element, class Layout, class Device>
  using layer = typename detail::elementwise_layer_of<Formula, Parameters, Element, Layout, Device>::type;
};

namespace detail {

/// For each axis of images: true if it is slower than c in memory.
template <class Layout>
[[nodiscard]] constexpr std::array<bool, 4> slower_than_channels() {
  std::array<bool, 4> result{};
  for (const axis each : Layout::order) {
    if (each == axis::c) {
      break;
    }
    result[static_cast<std::size_t>(each)] = true;
  }
  return result;
}

/// The part of the layer that does not depend on the function, element type, layout and device.
class elementwise_base : public layer_base {
 public:
  elementwise_base(std::string_view kind, std::size_t inputs, std::span<const elementwise_parameter> parameters)
      : kind_{kind}, inputs_{inputs}, described_{parameters.begin(), parameters.end()} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return kind_; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), inputs_, inputs.size());
    for (const value_shape& each : inputs) {
      if (each != inputs[0]) {
        raise<shape_error>(kind(), "values of one shape", {describe(inputs[0]), " and ", describe(each)});
      }
    }
    for (const elementwise_parameter& each : described_) {
      if (each.per_channel && inputs[0].flattened) {
        raise<shape_error>(kind(), "an image, or a vector made by a dense layer", describe(inputs[0]),
                           "add the layer before nn::flatten, or give it a parameter nn::per_layer");
      }
    }
    shape_ = inputs[0];
    return shape_;
  }

  [[nodiscard]] std::vector<parameter_description> parameters() const override {
    std::vector<parameter_description> result;
    for (const elementwise_parameter& each : described_) {
      result.push_back(
          {each.name, {each.per_channel ? shape_.channels : index_t{1}, 1, 1, 1}, 1, each.initial, {}, false});
    }
    return result;
  }

 protected:
  std::string_view kind_;
  std::size_t inputs_;
  std::vector<elementwise_parameter> described_;
  value_shape shape_;
};

template <class Formula, int Parameters, class Element, class Device>
class elementwise_layer : public layer_passes<Element, Device>, public elementwise_base {
  static_assert(kernels::explain_formula<Device, Element>());
  using passes = layer_passes<Element, Device>;
  static constexpr int inputs = Formula::inputs - Parameters;
  using arguments = kernels::formula_arguments<Element, inputs, Parameters>;
  using gradients = kernels::formula_gradients<Element, inputs, Parameters>;

 public:
  explicit elementwise_layer(const elementwise_options<Formula, Parameters>& options,
                             const std::array<bool, 4>& slower = {})
      : elementwise_base{options.kind, static_cast<std::size_t>(inputs), options.parameters},
        function_{options.function},
        slower_{slower} {}

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = Formula::gradient_reads_inputs,
            .backward_reads_output = Formula::gradient_reads_value,
            .recomputable = true};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation("elementwise");
    visit.formula(function_.steps());
  }

  [[nodiscard]] layer_memory memory([[maybe_unused]] Device& device, [[maybe_unused]] index_t batch) const override {
    if constexpr (Parameters == 0) {
      return {};
    } else {
      return {.state = 0, .workspace = formula_workspace_bytes(device, split(shape_.batch(batch)), Parameters)};
    }
  }

  void forward(const typename passes::forward_call& call) override {
    formula_forward(call.device, split(call.output.extents()), function_, arguments_of(call), call.output.data());
  }

  void backward(const typename passes::backward_call& call) override {
    gradients to;
    for (std::size_t k = 0; k < to.inputs.size(); ++k) {
      to.inputs[k] = call.input_gradients[k].images.data();
      to.accumulate[k] = call.input_gradients[k].epilogue.accumulate;
    }
    for (int k = 0; k < Parameters; ++k) {
      const auto p = static_cast<std::size_t>(k);
      to.parameters[p] = call.parameters[p].gradient;
    }
    formula_backward(call.device, split(call.output_gradient.extents()), function_, arguments_of(call),
                     call.output_gradient.data(), call.output.data(), to, call.workspace);
  }

 private:
  template <class Call>
  [[nodiscard]] arguments arguments_of(const Call& call) const {
    arguments from;
    for (std::size_t k = 0; k < from.inputs.size(); ++k) {
      from.inputs[k] = call.inputs[k].data();
    }
    for (int k = 0; k < Parameters; ++k) {
      const auto p = static_cast<std::size_t>(k);
      from.parameters[p] = call.parameters[p].value;
      from.per_channel[p] = this->described_[p].per_channel;
    }
    return from;
  }

  /// The split of a batch around its channels; without parameters, all elements.
  [[nodiscard]] kernels::formula_shape split(const gradus::extents<4>& shape) const {
    if constexpr (Parameters == 0) {
      return {1, 1, shape.size()};
    } else {
      kernels::formula_shape result{1, shape[1], 1};
      for (const int k : {0, 2, 3}) {
        (slower_[static_cast<std::size_t>(k)] ? result.outer : result.inner) *= shape[k];
      }
      return result;
    }
  }

  Formula function_;
  std::array<bool, 4> slower_;  // the axes that are slower than c in memory
};

/// The layer in a layout, for a function with parameters.
template <class Formula, int Parameters, class Element, class Layout, class Device>
class elementwise_layer_in : public elementwise_layer<Formula, Parameters, Element, Device> {
 public:
  explicit elementwise_layer_in(const elementwise_options<Formula, Parameters>& options)
      : elementwise_layer<Formula, Parameters, Element, Device>{options, slower_than_channels<Layout>()} {}
};

template <class Formula, int Parameters, class Element, class Layout, class Device>
struct elementwise_layer_of {
  using type = elementwise_layer_in<Formula, Parameters, Element, Layout, Device>;
};
template <class Formula, class Element, class Layout, class Device>
struct elementwise_layer_of<Formula, 0, Element, Layout, Device> {
  using type = elementwise_layer<Formula, 0, Element, Device>;
};

template <class Function, int Parameters>
consteval bool explain_elementwise_function() {
  static_assert(formula_inputs<Function> > 0,
                "gradus: nn::elementwise takes a function of one to eight arguments of type auto, which is const: "
                "[](auto x) { return x * sigmoid(x); }");
  static_assert(formula_inputs<Function> == 0 || formula_inputs<Function> > Parameters,
                "gradus: the function of nn::elementwise has too few arguments: it takes the inputs, then one argument "
                "for each parameter, [](auto x, auto slope) { return max(x, 0) + slope * min(x, 0); }");
  return formula_inputs<Function> > Parameters;
}

}  // namespace detail

/// A layer that computes a function of its inputs, element by element:
///
///   x = net.add("swish", nn::elementwise([](auto x) { return x * sigmoid(x); }), x);
///   y = net.add("gate", nn::elementwise([](auto a, auto b) { return a * sigmoid(b); }), {a, b});
///
/// The function is called once, with variables in place of tensors, and returns an expression of them. The compiler
/// differentiates it. It may use + - * /, comparisons with && || and !, numbers, and of tensor/functions.hpp: exp, log,
/// sqrt, square, abs, tanh, sigmoid, softplus, erf, relu, min, max, clamp, pow with a number as the exponent, where.
/// Those headers say what the derivatives are at kinks and ties. A captured variable is copied into the layer as a
/// number.
///
/// Functions are found by their argument. Where a program has `using namespace gradus::nn`, which has layers of the
/// names tanh, sigmoid, softplus and relu, it writes gradus::tanh(x).
template <class Function>
[[nodiscard]] auto elementwise(const Function& function) {
  if constexpr (detail::explain_elementwise_function<Function, 0>()) {
    auto compiled = formula_of<formula_inputs<Function>>(function);
    return elementwise_options<decltype(compiled), 0>{compiled, {}};
  }
}

/// A layer that computes a function of its inputs and of parameters. The last arguments of the function are the
/// parameters, in their order:
///
///   x = net.add("prelu", nn::elementwise([](auto x, auto slope) { return max(x, 0) + slope * min(x, 0); },
///                                        {nn::per_channel("slope", nn::constant(0.25))}), x);
template <class Function, std::size_t Parameters>
[[nodiscard]] auto elementwise(const Function& function, const elementwise_parameter (&parameters)[Parameters]) {
  if constexpr (detail::explain_elementwise_function<Function, static_cast<int>(Parameters)>()) {
    auto compiled = formula_of<formula_inputs<Function>>(function);
    return [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      return elementwise_options<decltype(compiled), static_cast<int>(Parameters)>{compiled, {parameters[Index]...}};
    }
    (std::make_index_sequence<Parameters>{});
  }
}

}  // namespace gradus::nn
