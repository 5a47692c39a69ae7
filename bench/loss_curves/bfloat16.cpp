// SPDX-License-Identifier: BSL-1.0
//
// The loss of the MNIST network in training, step by step, with float and with bfloat16 images and activations: from
// the same parameters, over the same batches, with the same dropout.
//
//   bench_loss_curves_bfloat16 OUTPUT.csv [DATA_FOLDER [EPOCHS [WINDOW]]]
//
// writes rows of step, loss_fp32, loss_bf16, each the mean over WINDOW steps (1) that end with that step, and the
// accuracies on the test set in lines that begin with #.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/output.hpp"
#include "gradus/data/gzip.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/mnist.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

namespace {

constexpr gradus::index_t batch_size = 64;
constexpr std::uint64_t seed = 1;
constexpr double learning_rate = 0.05;

struct curve {
  std::vector<double> losses;  ///< of the steps
  double accuracy = 0;         ///< on the test set
  double seconds = 0;
  double megabytes = 0;  ///< of the network
};

struct recorder {
  std::vector<double>* losses;
  void on_step(const gradus::train::step_report& step) const { losses->push_back(step.local_loss); }
};

template <class Element>
curve train(const std::string& folder, int epochs) {
  using gradus::nhwc;
  namespace data = gradus::data;
  gradus::cpu device;
  gradus::comm::self alone;
  const data::image_dataset training = data::load_mnist(folder, data::split::training);
  const data::image_dataset test = data::load_mnist(folder, data::split::test);
  gradus::nn::network<Element, nhwc> net{
      device, {.channels = training.example().c, .height = training.example().h, .width = training.example().w}};
  gradus::models::mnist(net);
  net.compile({.max_batch_size = batch_size, .seed = seed});
  data::loader<Element, nhwc> batches{device, training, {.global_batch_size = batch_size, .seed = seed}};
  data::loader<Element, nhwc> examination{device, test, {.global_batch_size = batch_size, .seed = seed}};
  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, alone};
  curve result;
  result.megabytes = static_cast<double>(net.memory_bytes()) * 1e-6;
  const auto began = std::chrono::steady_clock::now();
  trainer.fit(batches, {.epochs = epochs, .learning_rate = learning_rate}, recorder{&result.losses});
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  result.accuracy = trainer.evaluate(examination).accuracy;
  return result;
}

double mean(const std::vector<double>& values, std::size_t end, std::size_t count) {
  double sum = 0;
  for (std::size_t i = end - count; i < end; ++i) {
    sum += values[i];
  }
  return sum / static_cast<double>(count);
}

bool write(const char* path, const curve& wide, const curve& narrow, std::size_t window) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) {
    return false;
  }
  std::fprintf(file, "# MNIST network, nhwc, batch %d, SGD %g with momentum 0.9, seed %d; means over %zu steps\n",
               static_cast<int>(batch_size), learning_rate, static_cast<int>(seed), window);
  std::fprintf(file, "# test accuracy: fp32 %.4f, bf16 %.4f\n", wide.accuracy, narrow.accuracy);
  std::fprintf(file, "step,loss_fp32,loss_bf16\n");
  for (std::size_t end = window; end <= wide.losses.size(); end += window) {
    std::fprintf(file, "%zu,%.5f,%.5f\n", end, mean(wide.losses, end, window), mean(narrow.losses, end, window));
  }
  return std::fclose(file) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s OUTPUT.csv [DATA_FOLDER [EPOCHS [WINDOW]]]\n", argv[0]);
    return 2;
  }
  try {
    const std::string folder = argc > 2 ? argv[2] : "/usr/share/datasets/fashion-mnist";
    const int epochs = argc > 3 ? std::atoi(argv[3]) : 1;
    const int window = argc > 4 ? std::atoi(argv[4]) : 1;
    if (epochs < 1 || window < 1) {
      std::fprintf(stderr, "epochs and window are at least 1\n");
      return 2;
    }
    const curve wide = train<float>(folder, epochs);
    const curve narrow = train<gradus::bfloat16>(folder, epochs);
    std::printf("fp32: accuracy %.4f, %.1f s, %.1f MB\n", wide.accuracy, wide.seconds, wide.megabytes);
    std::printf("bf16: accuracy %.4f, %.1f s, %.1f MB\n", narrow.accuracy, narrow.seconds, narrow.megabytes);
    if (!write(argv[1], wide, narrow, static_cast<std::size_t>(window))) {
      std::fprintf(stderr, "%s cannot be written\n", argv[1]);
      return 1;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return gradus::close_output("bench_loss_curves_bfloat16", 0);
}
