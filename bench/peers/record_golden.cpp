// SPDX-License-Identifier: BSL-1.0
//
// Records what libtorch computes, in double precision, for the networks of tests/support/golden_networks.hpp: the loss
// of each step of plain SGD and the norm of every gradient in the first. Writes the text that tests/golden reads.
//
//   record_golden > tests/golden/networks.txt
#include <torch/torch.h>

#include <cstdio>

#include "../../tests/support/golden_networks.hpp"
#include "../../tests/support/network_checks.hpp"
#include "torch_network.hpp"

int main() {
  std::printf("# libtorch %s, double precision: see bench/peers/record_golden.cpp\n", TORCH_VERSION);
  for (const auto& which : gradus_test::golden_cases()) {
    gradus::cpu device;
    gradus::nn::network<double, gradus::nchw> initial{device, which.input};
    gradus_test::build_golden(initial, which.name);
    initial.compile({.max_batch_size = 1, .seed = gradus_test::golden_seed});
    gradus_peers::torch_network<double> net{device, which.input};
    gradus_test::build_golden(net, which.name);
    net.take_parameters(initial);

    const gradus_test::random_batch<double, gradus::nchw> batch{device, which.input.batch(which.batch),
                                                                gradus_test::golden_classes};
    const auto images =
        torch::from_blob(const_cast<double*>(batch.images.data()),
                         {which.batch, which.input.channels, which.input.height, which.input.width}, torch::kDouble);
    auto labels = torch::zeros({which.batch}, torch::kLong);
    for (gradus::index_t i = 0; i < which.batch; ++i) {
      labels[i] = batch.labels[static_cast<std::size_t>(i)];
    }
    torch::optim::SGD optimizer{net.parameters(), torch::optim::SGDOptions{gradus_test::golden_learning_rate}};
    std::printf("network %s\n", which.name.c_str());
    for (int step = 0; step < gradus_test::golden_steps; ++step) {
      net.share_dropout(gradus_test::golden_seed, static_cast<std::uint64_t>(step));
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(net.forward(images), labels);
      loss.backward();
      std::printf("loss %.15g\n", loss.item<double>());
      if (step == 0) {
        for (const auto& p : initial.parameters()) {
          std::printf("gradient %s %.15g\n", p.name().c_str(), net.parameter(p.name()).grad().norm().item<double>());
        }
      }
      optimizer.step();
    }
    std::fflush(stdout);
  }
}
