// SPDX-License-Identifier: BSL-1.0
//
// A layer and a loss that are expressions: the compiler differentiates them, and each runs in one pass over memory. A
// tenth of the targets is wrong. A loss that grows like the error, not like its square, gives them less weight.
//
//   loss_and_layer_by_expression [FILE.npy]
//
// np.load("FILE.npy") is (2000, 4): inputs, targets, what is learned by the squared error, and by the other loss.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "gradus/data/in_memory.hpp"
#include "gradus/data/npy.hpp"
#include "gradus/gradus.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/sequential.hpp"
#include "gradus/optim/adam.hpp"

namespace {

namespace data = gradus::data;
namespace nn = gradus::nn;

/// x * sigmoid(beta * x) with a learnable beta for each channel (P. Ramachandran, B. Zoph, Q. Le: "Searching for
/// activation functions", 2017).
auto swish() {
  return nn::elementwise([](auto x, auto beta) { return x * gradus::sigmoid(beta * x); },
                         {nn::per_channel("beta", nn::constant(1))});
}

/// About error^2 / 2 for small errors and |error| for large ones.
auto robust_loss() {
  return nn::loss_of([](auto scores, auto targets) { return mean(sqrt(1 + square(scores - targets)) - 1); });
}

struct outcome {
  double error = 0;  // root of the mean square, on targets that are right
  std::vector<float> x;
  std::vector<float> y;
  std::vector<float> learned;  // from y
};

/// What a network learns with `loss`.
template <class Loss>
outcome train_with(const char* name, const Loss& loss) {
  outcome result;
  auto& [error, x, y, learned] = result;
  std::vector<float> right;
  const gradus::random_stream random{7};
  for (unsigned i = 0; i < 2000; ++i) {
    x.push_back(static_cast<float>(2 * random.uniform(3 * i) - 1));
    right.push_back(std::sin(4 * x.back()));
    y.push_back(right.back() + (random.uniform(3 * i + 1) < 0.1 ? 10.0F : 0.0F));
  }
  const auto examples = [](const std::vector<float>& numbers) {
    return data::examples_of(std::span{numbers}, {1, 1, 1, 1});
  };
  const auto training_set = data::in_memory(examples(x), examples(y));

  gradus::cpu device;
  nn::network<float, gradus::nhwc> net{device, {.channels = 1}};
  net.loss(loss, nn::sequential(net, nn::dense{.out_features = 32}, swish(), nn::dense{.out_features = 32}, swish(),
                                nn::dense{.out_features = 1}));
  net.compile({.max_batch_size = 50, .seed = 1});
  data::loader<float, gradus::nhwc> loader{device, training_set, {.global_batch_size = 50, .seed = 1}};
  gradus::train::trainer trainer{net, gradus::optim::adam{}};
  trainer.fit(loader, {.epochs = 30, .learning_rate = 0.003});

  const auto test_set = data::in_memory(examples(x), examples(right));
  data::loader<float, gradus::nhwc> test_loader{device, test_set, {.global_batch_size = 50, .shuffle = false}};
  double sum = 0;
  test_loader.start_epoch(0);
  while (const auto* const batch = test_loader.next()) {
    const auto scores = net.forward(batch->images);
    for (gradus::index_t i = 0; i < scores.extents()[0]; ++i) {
      learned.push_back(scores(i, 0, 0, 0));
      const double difference = scores(i, 0, 0, 0) - batch->targets(i, 0, 0, 0);
      sum += difference * difference;
    }
  }
  error = std::sqrt(sum / static_cast<double>(x.size()));
  const auto& beta = net.find_parameter("elementwise1.beta");
  std::printf("%-20s error %.3f, beta of the first channel %.2f\n", name, error,
              static_cast<double>(beta.value().data()[0]));
  return result;
}

void write(const char* file, const outcome& of_squares, const outcome& robust) {
  std::vector<float> rows;
  for (std::size_t i = 0; i < robust.x.size(); ++i) {
    rows.insert(rows.end(), {robust.x[i], robust.y[i], of_squares.learned[i], robust.learned[i]});
  }
  data::write_npy(file, rows, {static_cast<gradus::index_t>(robust.x.size()), 4});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const outcome of_squares = train_with("mean_squared_error", nn::mean_squared_error{});
    const outcome robust = train_with("robust_loss", robust_loss());
    if (argc > 1) {
      write(argv[1], of_squares, robust);
    }
    return gradus::close_output("loss_and_layer_by_expression", robust.error < 0.5 * of_squares.error ? 0 : 1);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "loss_and_layer_by_expression: %s\n", failure.what());
    return 1;
  }
}
