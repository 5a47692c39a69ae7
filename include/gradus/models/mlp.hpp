// SPDX-License-Identifier: BSL-1.0
//
// The multilayer perceptron: dense layers with an activation between them.
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/layers/dropout.hpp"
#include "gradus/nn/layers/relu.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::models {

/// Options of a multilayer perceptron.
template <class Activation = nn::relu>
struct mlp_options {
  std::vector<index_t> hidden = {};  ///< features of each hidden layer, from the input on
  index_t outputs = 1;               ///< features of the last layer, which has no activation
  Activation activation = {};        ///< the layer after each hidden layer: nn::relu{}, nn::tanh{}, ...
  double dropout_rate = 0;           ///< of the hidden features; 0: no dropout
};

/// Adds a multilayer perceptron to a network and returns its outputs; the loss is the caller's. An image counts as the
/// vector of its elements. The layers are "hidden1", "hidden1_activation", ..., "output".
///
///   const nn::value y = models::mlp(net, {.hidden = {64, 64}, .outputs = 1});
///   net.loss(nn::mean_squared_error{}, y);
///
/// With I inputs, layers of H1, ..., Hn features and O outputs it has (I + 1) H1 + (H1 + 1) H2 + ... + (Hn + 1) O
/// parameters.
/// @throws configuration_error when a number of features is below 1
template <class Network, class Activation = nn::relu>
nn::value mlp(Network& net, const mlp_options<Activation>& options, error_location where = error_location::current()) {
  nn::value x = net.input();
  at_call(where, [&] {
    for (std::size_t i = 0; i < options.hidden.size(); ++i) {
      const std::string name = gradus::join({"hidden", i + 1});
      x = net.add(name, nn::dense{.out_features = options.hidden[i]}, x);
      x = net.add(gradus::join({name, "_activation"}), options.activation, x);
      if (options.dropout_rate > 0) {
        const std::string dropout = gradus::join({name, "_dropout"});
        x = net.add(dropout, nn::dropout{.rate = options.dropout_rate, .name = dropout}, x);
      }
    }
    x = net.add("output", nn::dense{.out_features = options.outputs}, x);
  });
  return x;
}

}  // namespace gradus::models
