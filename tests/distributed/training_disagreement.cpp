// SPDX-License-Identifier: BSL-1.0
//
// Ranks whose networks differ, in layers or in options, get an error that names the rank and the difference, before
// they share memory or send parameters.
#include <string>  // std::string, std::to_string

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  namespace nn = gradus::nn;
  comm::mpi_environment environment{argc, argv};
  return suite::run_conformance(environment, argc, argv, [&](comm::mpi& whole) {
    if (whole.size() == 1) {
      return;  // no other rank to differ from
    }
    gradus::cpu device{{.intra_op_threads = 1}};
    nn::network<float, gradus::nhwc> net{device, {1, 64, 64}};
    const bool last = whole.rank() == whole.size() - 1;
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = last ? 11 : 10}, net.input()));
    net.compile({.max_batch_size = 2, .seed = 1});
    const auto require_named = [&](auto& communicator) {
      const std::string message = suite::message_of<gradus::configuration_error>([&] {
        const gradus::train::trainer trainer{net, gradus::optim::sgd{}, communicator};
      });
      suite::require_contains(message, "trainer: expected the same network on all ranks");
      suite::require_contains(message, " on rank " + std::to_string(whole.size() - 1));
    };
    require_named(whole);
    comm::mpi_shared shared{environment};
    require_named(shared);

    // Options that change neither shapes nor parameters.
    struct options {
      double rate = 0.1;
      double slope = 0.25;
      double alpha = 1;
      nn::padding_mode mode = nn::padding_mode::zeros;
      double momentum = 0.1;
      double smoothing = 0;
    };
    const auto message_with = [&](const options& chosen, auto loss) {
      nn::network<float, gradus::nhwc> made{device, {1, 8, 8}};
      auto x = made.add(
          "conv",
          nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .padding = nn::padding::same(), .padding_mode = chosen.mode},
          made.input());
      x = made.add("norm", nn::batch_norm{.momentum = chosen.momentum}, x);
      x = made.add("leaky", nn::leaky_relu{.negative_slope = chosen.slope}, x);
      x = made.add("elu", nn::elu{.alpha = chosen.alpha}, x);
      x = made.add("drop", nn::dropout{.rate = chosen.rate}, x);
      made.loss(loss, made.add("scores", nn::dense{.out_features = 10}, x));
      made.compile({.max_batch_size = 2, .seed = 1});
      return suite::message_of<gradus::configuration_error>([&] {
        const gradus::train::trainer trainer{made, gradus::optim::sgd{}, whole};
      });
    };
    const auto require_option = [&](const options& own, const std::string& first, const std::string& other) {
      const std::string message =
          message_with(last ? own : options{}, nn::softmax_cross_entropy{.label_smoothing = last ? own.smoothing : 0});
      suite::require_contains(message, "trainer: expected the same options of layers and of the loss on all ranks");
      suite::require_contains(message, first + " on rank");
      suite::require_contains(message, other + " on rank " + std::to_string(whole.size() - 1));
    };
    require_option({.rate = 0.6}, "layer 'drop' (dropout): rate = 0.1", "layer 'drop' (dropout): rate = 0.6");
    require_option({.slope = 0.5}, "layer 'leaky' (leaky_relu): negative_slope = 0.25",
                   "layer 'leaky' (leaky_relu): negative_slope = 0.5");
    require_option({.alpha = 3}, "layer 'elu' (elu): number of the function = 1",
                   "layer 'elu' (elu): number of the function = 3");
    require_option({.mode = nn::padding_mode::circular}, "layer 'conv' (conv2d): padding_mode = zeros",
                   "layer 'conv' (conv2d): padding_mode = circular");
    require_option({.momentum = 0.5}, "layer 'norm' (batch_norm): momentum = 0.1",
                   "layer 'norm' (batch_norm): momentum = 0.5");
    require_option({.smoothing = 0.5}, "loss (softmax_cross_entropy): label_smoothing = 0",
                   "loss (softmax_cross_entropy): label_smoothing = 0.5");
    suite::require_contains(message_with({}, nn::huber{.delta = last ? 2.0 : 1.0}), "loss (huber): numbers of the");
    suite::require_contains(message_with({}, nn::cosine_similarity{.epsilon = last ? 1e-4 : 1e-8}),
                            "loss (cosine_similarity): epsilon = 1e-08 on rank");
    suite::require_contains(message_with({}, nn::binary_cross_entropy_with_logits{.positive_weight = last ? 2.0 : 1.0}),
                            "loss (binary_cross_entropy_with_logits): positive_weight[0] = 1 on rank");
  });
}
