// SPDX-License-Identifier: BSL-1.0
//
// Layers one after another, with generated names.
#pragma once

#include <concepts>     // std::convertible_to, std::derived_from
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn {

namespace detail {

/// The prefix, the kind and the first number from 1 on that make a new name: "conv2d1".
[[nodiscard]] inline std::string unused_name(const graph& net, std::string_view prefix, std::string_view kind) {
  for (int number = 1;; ++number) {
    std::string name = gradus::join({prefix, kind, number});
    bool used = false;
    for (const graph::node& n : net.nodes()) {
      used = used || n.name == name;
    }
    if (!used) {
      return name;
    }
  }
}

}  // namespace detail

/// Adds layers to a network, each of which reads the output of the one before, and is the last output.
///
///   nn::value x = nn::sequential(net, nn::conv2d{.out_channels = 8, .kernel = {3, 3}}, nn::relu{}, nn::flatten{},
///                                nn::dense{.out_features = 10});
///   net.loss(nn::softmax_cross_entropy{}, x);
///
///   nn::sequential(net, layers...)                   // begins with the network's input
///   nn::sequential(net, x, layers...)                // begins with a value
///   nn::sequential(net, "encoder_", x, layers...)    // the names begin with a prefix
///
/// A layer is named by its kind and a number that makes the name new in the network: "conv2d1", "relu1", "conv2d2".
///
/// @throws shape_error, configuration_error with the generated name, when a layer does not fit; the layers before it
/// have been added
template <class Network, class... Steps>
class sequential : public value {
 public:
  /// Adds the layers. It is a class so that it can have the location of its call after any number of layers.
  explicit sequential(Network& net, const Steps&... steps, error_location where = error_location::current())
      : value{net.input()} {
    std::string_view prefix;
    at_call(where, [&, this] { (step(net, prefix, steps), ...); });
  }

 private:
  template <class Step>
  void step(Network& net, std::string_view& prefix, const Step& what) {
    if constexpr (std::derived_from<Step, value>) {
      static_cast<value&>(*this) = what;
    } else if constexpr (std::convertible_to<const Step&, std::string_view>) {
      prefix = what;
    } else {
      append(net, prefix, what);
    }
  }

  using element = typename Network::element_type;
  using layout = typename Network::layout_type;
  using device = typename Network::device_type;

  template <class Description>
  void append(Network& net, std::string_view prefix, const Description& description) {
    static_assert(explain_layer<Description, element, layout, device>());
    if constexpr (layer_description<Description, element, layout, device>) {
      const typename Description::template layer<element, layout, device> probe(description);
      const std::string name = detail::unused_name(net.structure(), prefix, probe.kind());
      static_cast<value&>(*this) = net.add(name, description, static_cast<const value&>(*this));
    }
  }
};

/// The layers are the arguments after the network.
template <class Network, class... Steps>
sequential(Network& net, const Steps&... steps) -> sequential<Network, Steps...>;

}  // namespace gradus::nn
