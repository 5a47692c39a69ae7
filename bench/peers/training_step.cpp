// SPDX-License-Identifier: BSL-1.0
//
// Whole training steps (forward, loss, backward, SGD with momentum) in gradus and in libtorch, interleaved in one
// process, on the same weights and the same batch. The losses of the first steps must agree before anything is timed.
//
//   bench_peers MODEL BATCH THREADS ROUNDS           MODEL: mnist, resnet50, inception3, mlp, unet
//   bench_peers MODEL BATCH THREADS memory SIDE      SIDE: gradus_nchw, gradus_nhwc, libtorch_nchw, libtorch_nhwc
//
// The first form prints the images a second of both sides, the second the peak memory that one side adds to the process
// in three steps. Both print one JSON object. Run it with GLIBC_TUNABLES and ATen's settings in the environment for the
// tuned libtorch.
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/random.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/unet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "torch_network.hpp"

namespace {

namespace models = gradus::models;
namespace nn = gradus::nn;
using gradus::index_t;

/// Small, so that the first losses can be compared: with a large one rounding grows step by step.
constexpr double learning_rate = 0.001;

struct problem {
  std::string model;
  index_t batch = 64;
  int threads = 2;
  int rounds = 10;
  nn::value_shape input;
  std::int32_t classes = 10;

  /// Labels of one example: one for each pixel of a segmentation.
  [[nodiscard]] index_t labels() const { return model == "unet" ? input.height * input.width : 1; }
};

template <class Network>
void build(Network& net, const problem& what, double dropout_rate) {
  if (what.model == "mnist") {
    models::mnist(net, {.dropout_rate = dropout_rate});
  } else if (what.model == "resnet50") {
    models::resnet(net, 50, {.classes = what.classes});
  } else if (what.model == "inception3") {
    models::inception3(net, what.classes);
  } else if (what.model == "unet") {
    net.loss(nn::softmax_cross_entropy{}, models::unet(net, {.out_channels = what.classes}));
  } else {
    nn::value x = net.add("hidden", nn::dense{.out_features = 100}, net.input());
    x = net.add("relu", nn::relu{}, x);
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 10}, x));
  }
}

/// One side of the comparison: step() does one training step and returns the mean loss.
template <class Layout>
class gradus_side {
 public:
  gradus_side(const problem& what, double dropout_rate)
      : device_{{.intra_op_threads = what.threads}},
        net_{device_, what.input},
        images_{device_, what.input.batch(what.batch)} {
    build(net_, what, dropout_rate);
    net_.compile({.max_batch_size = what.batch, .seed = 1});
    state_ = std::make_unique<gradus::optim::sgd::state<float>>(
        device_, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 0.0}, static_cast<index_t>(net_.values().size()));
    segments_ = gradus::parallel::segments_of(net_.structure());
    const gradus::random_stream stream{3, "images"};
    for (index_t n = 0; n < what.batch; ++n) {
      for (index_t c = 0; c < what.input.channels; ++c) {
        for (index_t h = 0; h < what.input.height; ++h) {
          for (index_t w = 0; w < what.input.width; ++w) {
            const index_t i = ((n * what.input.channels + c) * what.input.height + h) * what.input.width + w;
            images_(n, c, h, w) = static_cast<float>(2 * stream.uniform(static_cast<std::uint64_t>(i)) - 1);
          }
        }
      }
    }
    for (index_t i = 0; i < what.batch * what.labels(); ++i) {
      labels_.push_back(static_cast<std::int32_t>(
          stream.below(static_cast<std::uint64_t>(what.classes), static_cast<std::uint64_t>(1'000'000'000 + i))));
    }
  }

  double step() {
    const auto sums = net_.train_step(images_, labels_, {.step = steps_++});
    state_->update(device_, {segments_.data(), segments_.size()}, net_.values().data(), net_.gradients().data(),
                   learning_rate);
    return sums.loss / static_cast<double>(images_.extent(0));
  }

  [[nodiscard]] nn::network<float, Layout>& net() { return net_; }
  [[nodiscard]] const gradus::image_tensor<float, Layout>& images() const { return images_; }
  [[nodiscard]] const std::vector<std::int32_t>& labels() const { return labels_; }

 private:
  gradus::cpu device_;
  nn::network<float, Layout> net_;
  gradus::image_tensor<float, Layout> images_;
  std::vector<std::int32_t> labels_;
  gradus::parallel::segment_list segments_;
  std::unique_ptr<gradus::optim::sgd::state<float>> state_;
  std::uint64_t steps_ = 0;
};

class torch_side {
 public:
  /// With the weights, images and labels of `like`; without it with some of its own.
  torch_side(const problem& what, double dropout_rate, bool channels_last, gradus_side<gradus::nchw>* like = nullptr)
      : net_{device_, what.input} {
    build(net_, what, dropout_rate);
    labels_ = torch::zeros({what.batch * what.labels()}, torch::kLong);
    images_ = torch::rand({what.batch, what.input.channels, what.input.height, what.input.width});
    if (like != nullptr) {
      net_.take_parameters(like->net());
      images_.copy_(torch::from_blob(const_cast<float*>(like->images().data()), images_.sizes()));
      const std::vector<std::int32_t>& labels = like->labels();
      std::copy(labels.begin(), labels.end(), labels_.data_ptr<std::int64_t>());
    }
    if (what.labels() > 1) {
      labels_ = labels_.view({what.batch, what.input.height, what.input.width});
    }
    if (channels_last) {
      net_.use_channels_last();
      images_ = images_.contiguous(at::MemoryFormat::ChannelsLast);
    }
    optimizer_ =
        std::make_unique<torch::optim::SGD>(net_.parameters(), torch::optim::SGDOptions{learning_rate}.momentum(0.9));
  }

  double step() {
    optimizer_->zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(net_.forward(images_), labels_);
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

 private:
  gradus::cpu device_{{.intra_op_threads = 1}};
  gradus_peers::torch_network<float> net_;
  torch::Tensor images_;
  torch::Tensor labels_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
};

template <class Side>
double seconds_of(Side& side, int steps) {
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    (void)side.step();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / steps;
}

using program::median;

/// The bytes of /proc/self/status in a field such as VmHWM, the peak of resident memory; 0 where there is no such file.
double status_bytes(const std::string& field) {
  std::ifstream status{"/proc/self/status"};
  std::string name;
  double kilobytes = 0;
  while (status >> name) {
    if (name == field + ":") {
      status >> kilobytes;
      break;
    }
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 1024 * kilobytes;
}

template <class Layout>
void run_gradus(const problem& what) {
  gradus_side<Layout> side{what, 0.5};
  (void)seconds_of(side, 3);
}

void run_libtorch(const problem& what, bool channels_last) {
  torch_side side{what, 0.5, channels_last};
  (void)seconds_of(side, 3);
}

int print_memory(const problem& what, const std::string& side) {
  const double before = status_bytes("VmRSS");
  if (side == "gradus_nchw") {
    run_gradus<gradus::nchw>(what);
  } else if (side == "gradus_nhwc") {
    run_gradus<gradus::nhwc>(what);
  } else if (side == "libtorch_nchw" || side == "libtorch_nhwc") {
    run_libtorch(what, side == "libtorch_nhwc");
  } else {
    std::cerr << "bench_peers: '" << side << "' is no side\n";
    return 2;
  }
  std::cout << nlohmann::json{{"model", what.model},
                              {"batch_size", what.batch},
                              {"threads", what.threads},
                              {"side", side},
                              {"peak_memory_bytes", status_bytes("VmHWM") - before}}
                   .dump(1)
            << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool memory = argc == 6 && std::string{argv[4]} == "memory";
  if (argc != 5 && !memory) {
    std::cerr << "usage: bench_peers mnist|resnet50|inception3|mlp|unet BATCH THREADS ROUNDS | memory SIDE\n";
    return 2;
  }
  problem what{argv[1], std::atol(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), {1, 28, 28}, 10};
  if (what.model == "resnet50") {
    what.input = {3, 224, 224};
    what.classes = 1000;
  } else if (what.model == "inception3") {
    what.input = {3, 299, 299};
    what.classes = 1000;
  } else if (what.model == "mlp") {
    what.input = {784, 1, 1};
  } else if (what.model == "unet") {
    what.input = {3, 256, 256};
    what.classes = 2;
  }
  torch::set_num_threads(what.threads);
  if (memory) {
    return print_memory(what, argv[5]);
  }

  // The same loss for five steps, without dropout: both sides then compute the same thing. Later losses drift apart by
  // rounding, faster where batch normalization divides by small deviations.
  nlohmann::json losses = nlohmann::json::array();
  {
    gradus_side<gradus::nchw> planes{what, 0.0};
    torch_side peer{what, 0.0, false, &planes};
    gradus_side<gradus::nhwc> pixels{what, 0.0};
    for (int step = 0; step < 5; ++step) {
      const double a = planes.step();
      const double b = pixels.step();
      const double t = peer.step();
      losses.push_back({a, b, t});
      const double tolerance = step == 0 ? 1e-4 : 2e-2;
      if (!(std::abs(a - t) < tolerance * std::abs(t)) || !(std::abs(b - t) < tolerance * std::abs(t))) {
        std::fprintf(stderr, "bench_peers: step %d: losses differ: nchw %.7g, nhwc %.7g, libtorch %.7g\n", step, a, b,
                     t);
        return 1;
      }
    }
  }

  gradus_side<gradus::nchw> planes{what, 0.5};
  gradus_side<gradus::nhwc> pixels{what, 0.5};
  torch_side peer_planes{what, 0.5, false, &planes};
  torch_side peer_pixels{what, 0.5, true, &planes};
  (void)seconds_of(peer_planes, 2);
  (void)seconds_of(peer_pixels, 2);
  (void)seconds_of(planes, 2);
  const double once = seconds_of(pixels, 2);
  const int steps = std::max(1, static_cast<int>(0.3 / once));
  std::vector<std::vector<double>> seconds(4);
  for (int round = 0; round < what.rounds; ++round) {
    seconds[0].push_back(seconds_of(planes, steps));
    seconds[1].push_back(seconds_of(peer_planes, steps));
    seconds[2].push_back(seconds_of(pixels, steps));
    seconds[3].push_back(seconds_of(peer_pixels, steps));
  }
  // The better layout of each side, by its median; then the ratio round by round.
  const std::size_t ours = median(seconds[0]) < median(seconds[2]) ? 0 : 2;
  const std::size_t theirs = median(seconds[1]) < median(seconds[3]) ? 1 : 3;
  std::vector<double> ratios;
  for (std::size_t r = 0; r < seconds[0].size(); ++r) {
    ratios.push_back(seconds[theirs][r] / seconds[ours][r]);
  }
  const auto rate = [&](const std::vector<double>& s) {
    return nlohmann::json{{"median", static_cast<double>(what.batch) / median(s)},
                          {"best", static_cast<double>(what.batch) / *std::min_element(s.begin(), s.end())}};
  };
  const double flops = 6.0 * static_cast<double>(planes.net().multiply_adds() * what.batch);
  std::cout << nlohmann::json{{"model", what.model},
                              {"batch_size", what.batch},
                              {"threads", what.threads},
                              {"libtorch_version", TORCH_VERSION},
                              {"instruction_set", std::getenv("GRADUS_INSTRUCTION_SET") != nullptr
                                                      ? std::getenv("GRADUS_INSTRUCTION_SET")
                                                      : "automatic"},
                              {"images_per_second",
                               {{"gradus_nchw", rate(seconds[0])},
                                {"gradus_nhwc", rate(seconds[2])},
                                {"libtorch_nchw", rate(seconds[1])},
                                {"libtorch_nhwc", rate(seconds[3])}}},
                              {"ratio_median", median(ratios)},
                              {"gradus_gflops_best",
                               flops / *std::min_element(seconds[ours].begin(), seconds[ours].end()) * 1e-9},
                              {"losses", losses}}
                   .dump(1)
            << '\n';
  return gradus::close_output("bench_peers", 0);
}
