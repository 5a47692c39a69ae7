// SPDX-License-Identifier: BSL-1.0
//
// Training steps a second on a GPU: ResNet-50 with a batch of 256 in TF32, bfloat16 and float16 (there with a scaled
// loss), and the MNIST network with a batch of 64. pytorch_step.py does the same in PyTorch. Arguments: a case
// ("resnet50_tf32", "resnet50_bfloat16", "resnet50_float16", "mnist"; all without) and seconds a case. A line of JSON
// for each round of each case.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/kernels/cuda.cuh"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/train/captured_step.cuh"

namespace {

using gradus::index_t;

constexpr int rounds = 3;

using momentum = gradus::optim::sgd;

/// Steps on one batch that stays on the card, so that input costs nothing.
template <class Element, class Build, class Rule = momentum>
void run(std::string_view name, gradus::nn::value_shape image, index_t batch, int classes, double seconds,
         const Build& build, const Rule& rule = momentum{.momentum = 0.9}) {
  gradus::cuda device{{.allow_tf32 = true, .deterministic = false}};  // as PyTorch is asked for
  using network = gradus::nn::network<Element, gradus::nhwc, gradus::cuda>;
  network net{device, image};
  build(net);
  net.compile({.max_batch_size = batch, .seed = 1});
  gradus::train::captured_step step{net, rule};

  const gradus::random_stream stream{1, "images"};
  std::vector<Element> values(static_cast<std::size_t>(image.batch(batch).size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Element>(static_cast<float>(stream.uniform(i) - 0.5));
  }
  std::vector<std::int32_t> classes_of(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < classes_of.size(); ++i) {
    classes_of[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(classes));
  }
  gradus::image_tensor<Element, gradus::nhwc, gradus::cuda> images{device, image.batch(batch)};
  gradus::tensor<std::int32_t, 1, gradus::row_major, gradus::cuda> labels{device, {batch}};
  device.copy_from_host(images.data(), values.data(), values.size() * sizeof(Element));
  device.copy_from_host(labels.data(), classes_of.data(), classes_of.size() * sizeof(std::int32_t));

  std::uint64_t number = 0;
  double loss = 0;
  const auto one = [&] {
    loss = step(images, {labels.data(), classes_of.size()}, 0.01, {.step = number}).loss / static_cast<double>(batch);
    ++number;
  };
  for (int warm_up = 0; warm_up < 5; ++warm_up) {
    one();
  }
  for (int round = 0; round < rounds; ++round) {
    device.synchronize();
    const auto began = std::chrono::steady_clock::now();
    double took = 0;
    int steps = 0;
    for (; took < seconds / rounds; ++steps) {
      one();
      took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    device.synchronize();
    took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::printf(
        "{\"case\": \"%.*s\", \"library\": \"gradus\", \"round\": %d, \"steps_per_second\": %.2f, "
        "\"images_per_second\": %.0f, \"loss\": %.4f}\n",
        static_cast<int>(name.size()), name.data(), round, steps / took, static_cast<double>(batch) * steps / took,
        loss);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (gradus::cuda_device_count() == 0) {
    std::puts("skipped: there is no CUDA device");
    return 77;
  }
  const std::string_view only = count > 1 ? arguments[1] : "";
  const double seconds = count > 2 ? std::atof(arguments[2]) : 12.0;
  const auto wanted = [&](std::string_view name) { return only.empty() || only == name; };
  const auto resnet50 = [](auto& net) { gradus::models::resnet(net, 50); };
  constexpr gradus::nn::value_shape photo{.channels = 3, .height = 224, .width = 224};
  if (wanted("resnet50_tf32")) {
    run<float>("resnet50_tf32", photo, 256, 1000, seconds, resnet50);
  }
  if (wanted("resnet50_bfloat16")) {
    run<gradus::bfloat16>("resnet50_bfloat16", photo, 256, 1000, seconds, resnet50);
  }
  if (wanted("resnet50_float16")) {
    run<gradus::float16>("resnet50_float16", photo, 256, 1000, seconds, resnet50,
                         gradus::optim::update<momentum>{.rule = {.momentum = 0.9}, .loss_scaling = {}});
  }
  if (wanted("mnist")) {
    run<float>("mnist", {.channels = 1, .height = 28, .width = 28}, 64, 10, seconds,
               [](auto& net) { gradus::models::mnist(net); });
  }
}
