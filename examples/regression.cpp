// SPDX-License-Identifier: BSL-1.0
//
// Fits a function of ten variables with Adam. Only five of them matter (J. Friedman: "Multivariate adaptive regression
// splines", 1991, section 4.3):
//   y = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + noise of deviation 1
//
//   regression [FILE.npy]      writes the targets and the predictions of the test set: np.load("FILE.npy") is (1000, 2)
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numbers>
#include <span>
#include <vector>

#include "gradus/core/text.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/npy.hpp"
#include "gradus/gradus.hpp"
#include "gradus/models/mlp.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/optim/adam.hpp"

namespace {

namespace nn = gradus::nn;
constexpr gradus::index_t variables = 10;

/// Examples of the function; inputs are in [-1, 1], targets without the noise have a deviation of about 5.
struct examples {
  std::vector<float> x;  // (n, 10)
  std::vector<float> y;  // (n)

  examples(std::size_t count, std::uint64_t seed, double noise) : x(count * variables), y(count) {
    const gradus::random_stream random{seed};
    for (std::size_t i = 0; i < count; ++i) {
      double u[variables];
      for (std::size_t k = 0; k < variables; ++k) {
        u[k] = random.uniform(i * (variables + 1) + k);
        x[i * variables + k] = static_cast<float>(2 * u[k] - 1);
      }
      y[i] = static_cast<float>(10 * std::sin(std::numbers::pi * u[0] * u[1]) + 20 * (u[2] - 0.5) * (u[2] - 0.5) +
                                10 * u[3] + 5 * u[4] + noise * random.normal(i * (variables + 1) + variables));
    }
  }

  [[nodiscard]] auto set() const {
    return gradus::data::in_memory(gradus::data::examples_of(std::span{x}, {1, variables, 1, 1}),
                                   gradus::data::examples_of(std::span{y}, {1, 1, 1, 1}));
  }
};

int run(const char* file) {
  const examples training{4000, 1, 1.0};
  const examples test{1000, 2, 0.0};
  const auto training_set = training.set();
  const auto test_set = test.set();

  gradus::cpu device;
  nn::network<float, gradus::nhwc> net{device, {.channels = variables}};
  const nn::value prediction = gradus::models::mlp(net, {.hidden = {64, 64}, .outputs = 1});
  net.loss(nn::mean_squared_error{}, prediction);
  net.compile({.max_batch_size = 100, .seed = 1});
  std::printf("%s\n", net.summary().c_str());

  gradus::data::loader<float, gradus::nhwc> loader{device, training_set, {.global_batch_size = 100, .seed = 1}};
  gradus::data::loader<float, gradus::nhwc> test_loader{device, test_set, {.global_batch_size = 100, .shuffle = false}};
  gradus::train::trainer trainer{net, gradus::optim::adam{}};
  for (int round = 0; round < 4; ++round) {
    trainer.fit(loader, {.epochs = 15, .learning_rate = round < 3 ? 0.003 : 0.0003});
    std::printf("after %2d epochs: test error %.3f (root of the mean square)\n", 15 * (round + 1),
                std::sqrt(trainer.evaluate(test_loader).loss));
  }

  std::vector<float> pairs;  // (n, 2)
  test_loader.start_epoch(0);
  while (const auto* const batch = test_loader.next()) {
    const auto scores = net.forward(batch->images);
    for (gradus::index_t i = 0; i < scores.extents()[0]; ++i) {
      pairs.push_back(batch->targets(i, 0, 0, 0));
      pairs.push_back(scores(i, 0, 0, 0));
    }
  }
  if (file != nullptr) {
    gradus::data::write_npy(file, pairs, {static_cast<gradus::index_t>(pairs.size() / 2), 2});
    std::printf("targets and predictions: np.load(\"%s\")\n", file);
  }
  return std::sqrt(trainer.evaluate(test_loader).loss) < 1 ? 0 : 1;  // below the noise of the training set
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return gradus::close_output("regression", run(argc > 1 ? argv[1] : nullptr));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "regression: %s\nusage: regression [FILE.npy]\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}
