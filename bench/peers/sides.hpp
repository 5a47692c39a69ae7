// SPDX-License-Identifier: BSL-1.0
//
// One training step (forward, loss, backward, SGD with momentum) of one network in gradus and in libtorch.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/unet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "torch_network.hpp"

namespace gradus_peers {

namespace models = gradus::models;
namespace nn = gradus::nn;
using gradus::index_t;

/// Small, so that the first losses can be compared: with a large one rounding grows step by step.
inline constexpr double learning_rate = 0.001;

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

/// The shapes of a network by its name: mnist, resnet50, inception3, mlp or unet.
[[nodiscard]] inline problem problem_of(const std::string& model, index_t batch, int threads, int rounds) {
  problem what{model, batch, threads, rounds, {1, 28, 28}, 10};
  if (model == "resnet50") {
    what.input = {3, 224, 224};
    what.classes = 1000;
  } else if (model == "inception3") {
    what.input = {3, 299, 299};
    what.classes = 1000;
  } else if (model == "mlp") {
    what.input = {784, 1, 1};
  } else if (model == "unet") {
    what.input = {3, 256, 256};
    what.classes = 2;
  }
  return what;
}

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
template <class Element, class Layout>
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
            images_(n, c, h, w) =
                static_cast<Element>(static_cast<float>(2 * stream.uniform(static_cast<std::uint64_t>(i)) - 1));
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

  [[nodiscard]] nn::network<Element, Layout>& net() { return net_; }
  [[nodiscard]] const gradus::image_tensor<Element, Layout>& images() const { return images_; }
  [[nodiscard]] const std::vector<std::int32_t>& labels() const { return labels_; }

 private:
  gradus::cpu device_;
  nn::network<Element, Layout> net_;
  gradus::image_tensor<Element, Layout> images_;
  std::vector<std::int32_t> labels_;
  gradus::parallel::segment_list segments_;
  std::unique_ptr<gradus::optim::sgd::state<float>> state_;
  std::uint64_t steps_ = 0;
};

class torch_side {
 public:
  /// With the weights, images and labels of `like`; without it with some of its own.
  /// @param autocast  forward passes in bfloat16 where PyTorch's autocast does so
  torch_side(const problem& what, double dropout_rate, bool channels_last,
             gradus_side<float, gradus::nchw>* like = nullptr, bool autocast = false)
      : autocast_{autocast}, net_{device_, what.input} {
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

  /// The weights of `like`, of the same network.
  void take_parameters(gradus_side<float, gradus::nchw>& like) { net_.take_parameters(like.net()); }

  double step() {
    optimizer_->zero_grad();
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, autocast_);
    const auto loss = torch::nn::functional::cross_entropy(net_.forward(images_), labels_);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

 private:
  bool autocast_;
  gradus::cpu device_{{.intra_op_threads = 1}};
  torch_network<float> net_;
  torch::Tensor images_;
  torch::Tensor labels_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
};

/// Of a step, over some.
template <class Side>
double seconds_of(Side& side, int steps) {
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    (void)side.step();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / steps;
}

}  // namespace gradus_peers
