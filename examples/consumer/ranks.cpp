// SPDX-License-Identifier: BSL-1.0
//
// A small training on the ranks that mpiexec starts: each has its share of every batch.
#include <gradus/comm/mpi.hpp>
#include <gradus/data/synthetic.hpp>
#include <gradus/gradus.hpp>
#include <iostream>

int main(int argc, char** argv) {
  gradus::comm::mpi_environment environment{argc, argv};
  return environment.run([](gradus::comm::mpi& world) {
    gradus::cpu device;
    const auto images = gradus::data::make_synthetic({.examples = 64, .height = 4, .width = 4});
    gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 16}};

    gradus::nn::network<float, gradus::nhwc> net{device, {1, 4, 4}};
    net.loss(gradus::nn::softmax_cross_entropy{},
             net.add("scores", gradus::nn::dense{.out_features = 10}, net.input()));
    net.compile({.max_batch_size = 16, .seed = 1});
    gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world};
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.1});
    const auto report = trainer.evaluate(loader);
    if (world.rank() == 0) {
      std::cout << "ranks: " << world.size() << ", loss: " << report.loss << '\n';
    }
    return report.loss > 0 && std::cout.flush() ? 0 : 1;
  });
}
