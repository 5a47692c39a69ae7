// SPDX-License-Identifier: BSL-1.0
//
// The autoencoder of dense layers (Hinton, Salakhutdinov 2006).
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/layers/relu.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::models {

/// Options of an autoencoder.
template <class Activation = nn::relu>
struct autoencoder_options {
  std::vector<index_t> hidden = {};  ///< features of the encoder's hidden layers; the decoder has them in reverse
  index_t code = 32;                 ///< features of the code
  Activation activation = {};        ///< the layer after each hidden layer
};

/// The values of an autoencoder.
struct autoencoder_values {
  nn::value code;            ///< (code) features
  nn::value reconstruction;  ///< as many features as the input has elements, without an activation
};

/// Adds an autoencoder to a network. The loss is the caller's, with the inputs as targets:
///
///   const auto [code, y] = models::autoencoder(net, {.hidden = {128}, .code = 32});
///   net.loss(nn::mean_squared_error{}, y);     // or nn::binary_cross_entropy_with_logits{} for pixels in [0, 1]
///
/// The reconstruction of an image is the vector of its elements in the order (c, h, w): its targets have the extents
/// (c * h * w, 1, 1). The layers are "encoder1", "encoder1_activation", ..., "code", "decoder1", ..., "reconstruction".
/// The code has no activation, as in the paper.
/// @throws configuration_error when a number of features is below 1
template <class Network, class Activation = nn::relu>
autoencoder_values autoencoder(Network& net, const autoencoder_options<Activation>& options,
                               error_location where = error_location::current()) {
  autoencoder_values made{net.input(), net.input()};
  at_call(where, [&] {
    const std::size_t hidden = options.hidden.size();
    const auto add = [&](const char* part, std::size_t i, index_t features, nn::value x) {
      const std::string name = gradus::join({part, i + 1});
      x = net.add(name, nn::dense{.out_features = features}, x);
      return net.add(gradus::join({name, "_activation"}), options.activation, x);
    };
    for (std::size_t i = 0; i < hidden; ++i) {
      made.code = add("encoder", i, options.hidden[i], made.code);
    }
    made.code = net.add("code", nn::dense{.out_features = options.code}, made.code);
    made.reconstruction = made.code;
    for (std::size_t i = 0; i < hidden; ++i) {
      made.reconstruction = add("decoder", i, options.hidden[hidden - 1 - i], made.reconstruction);
    }
    made.reconstruction =
        net.add("reconstruction", nn::dense{.out_features = net.input_shape().size()}, made.reconstruction);
  });
  return made;
}

}  // namespace gradus::models
