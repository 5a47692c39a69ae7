// SPDX-License-Identifier: BSL-1.0
//
// Ranks whose networks differ get an error that names the rank and the difference, before they share memory or send
// parameters.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/nn/layers.hpp"
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
  });
}
