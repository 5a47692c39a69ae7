// SPDX-License-Identifier: BSL-1.0
//
// The loss in training, step by step, of a network with values in float, bfloat16 or float16: with one seed, all three
// begin with the same parameters and get the same batches.
//
//   bench_loss_curves_precisions NETWORK PRECISION SEED STEPS [DATA_FOLDER]
//
// NETWORK is mnist, resnet20 or unet, PRECISION fp32, bf16 or fp16. Prints a line of JSON: the loss of each step, the
// accuracy on examples that were not trained on, and the seconds of the training. `scripts/bench --only loss_curves`
// runs all of them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/gzip.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/mnist.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/unet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace data = gradus::data;
namespace models = gradus::models;
namespace nn = gradus::nn;
using gradus::index_t;

struct run_options {
  std::string network;
  std::string precision;
  std::uint64_t seed = 1;
  index_t steps = 100;
  std::string folder = "/usr/share/datasets/fashion-mnist";
};

/// The first examples of a set, with zeros around the images.
class first_images {
 public:
  first_images(const data::image_dataset& set, index_t examples, index_t border)
      : set_{set}, examples_{std::min(examples, set.size())}, border_{border} {}

  [[nodiscard]] index_t size() const { return examples_; }
  [[nodiscard]] gradus::image_extents example() const {
    const gradus::image_extents inner = set_.example();
    return {1, inner.c, inner.h + 2 * border_, inner.w + 2 * border_};
  }
  [[nodiscard]] int classes() const { return set_.classes(); }
  [[nodiscard]] std::int32_t label(index_t i) const { return set_.label(i); }
  [[nodiscard]] std::uint64_t hash() const { return set_.hash() + static_cast<std::uint64_t>(examples_); }
  template <class Element>
  void read(index_t i, Element* planes) const {
    const gradus::image_extents inner = set_.example();
    const gradus::image_extents outer = example();
    std::vector<Element> image(static_cast<std::size_t>(inner.size()));
    set_.read(i, image.data());
    std::fill_n(planes, outer.size(), Element{});
    for (index_t row = 0; row < inner.c * inner.h; ++row) {
      std::copy_n(image.data() + row * inner.w, inner.w,
                  planes + (row / inner.h * outer.h + border_ + row % inner.h) * outer.w + border_);
    }
  }

 private:
  const data::image_dataset& set_;
  index_t examples_;
  index_t border_;
};

constexpr int side = 48;  // pixels of a field

/// Noise with two discs (class 1) and two rings (class 2): the fields of examples/segmentation.cpp.
class fields {
 public:
  fields(index_t examples, std::uint64_t seed) : examples_{examples}, seed_{seed} {}

  [[nodiscard]] index_t size() const { return examples_; }
  [[nodiscard]] gradus::image_extents example() const { return {1, 1, side, side}; }
  [[nodiscard]] gradus::image_extents label_map() const { return {1, 1, side, side}; }
  [[nodiscard]] int classes() const { return 3; }
  [[nodiscard]] std::uint64_t hash() const { return seed_ + static_cast<std::uint64_t>(examples_); }
  template <class Element>
  void read(index_t i, Element* pixels) const {
    const gradus::random_stream noise{seed_, gradus::join({"noise ", i})};
    for_each_pixel(i, [&](int pixel, std::int32_t label) {
      const double value = (label == 0 ? 0.0 : 1.0) + 0.7 * noise.normal(static_cast<std::uint64_t>(pixel));
      pixels[pixel] = static_cast<Element>(value);
    });
  }
  void read_labels(index_t i, std::int32_t* labels) const {
    for_each_pixel(i, [&](int pixel, std::int32_t label) { labels[pixel] = label; });
  }

 private:
  template <class Body>
  void for_each_pixel(index_t i, const Body& body) const {
    const gradus::random_stream random{seed_, gradus::join({"shapes ", i})};
    struct {
      double radius, x, y;
    } shapes[4];
    for (std::uint64_t k = 0; k < 4; ++k) {
      shapes[k] = {5 + 5 * random.uniform(3 * k), side * random.uniform(3 * k + 1), side * random.uniform(3 * k + 2)};
    }
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        std::int32_t label = 0;
        for (int k = 0; k < 4; ++k) {
          const double distance = std::hypot(x - shapes[k].x, y - shapes[k].y);
          if (distance <= shapes[k].radius && (k < 2 || distance >= 0.6 * shapes[k].radius)) {
            label = k < 2 ? 1 : 2;
          }
        }
        body(y * side + x, label);
      }
    }
  }

  index_t examples_;
  std::uint64_t seed_;
};

struct recorder {
  std::vector<double>* losses;
  void on_step(const gradus::train::step_report& step) const { losses->push_back(step.local_loss); }
};

/// Trains for one epoch and prints what happened.
template <class Element, class Set, class Build, class Rule>
void train(const run_options& chosen, index_t batch, const Set& training, const Set& test, const Build& build,
           const Rule& rule, double learning_rate) {
  using gradus::nhwc;
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::comm::self alone;
  const gradus::image_extents shape = training.example();
  nn::network<Element, nhwc> net{device, {.channels = shape.c, .height = shape.h, .width = shape.w}};
  build(net);
  net.compile({.max_batch_size = batch, .seed = chosen.seed});
  data::loader<Element, nhwc> batches{device, training, {.global_batch_size = batch, .seed = chosen.seed}};
  data::loader<Element, nhwc> examination{device, test, {.global_batch_size = batch, .shuffle = false}};
  const gradus::optim::update<Rule> around{.rule = rule, .loss_scaling = {.enabled = chosen.precision == "fp16"}};
  gradus::train::trainer trainer{net, around, alone};
  std::vector<double> losses;
  const auto began = std::chrono::steady_clock::now();
  trainer.fit(batches, {.epochs = 1, .learning_rate = learning_rate}, recorder{&losses});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const double accuracy = trainer.evaluate(examination).accuracy;
  std::printf("{\"network\": \"%s\", \"precision\": \"%s\", \"seed\": %llu, \"batch_size\": %td, ",
              chosen.network.c_str(), chosen.precision.c_str(), static_cast<unsigned long long>(chosen.seed), batch);
  std::printf("\"accuracy\": %.4f, \"seconds\": %.1f, \"losses\": [", accuracy, seconds);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    std::printf("%s%.5f", i == 0 ? "" : ", ", losses[i]);
  }
  std::printf("]}\n");
}

template <class Element>
void run_with(const run_options& chosen) {
  constexpr index_t batch = 64;
  constexpr index_t of_test = 2000;
  if (chosen.network == "unet") {
    constexpr index_t fields_of_batch = 16;
    const fields training{chosen.steps * fields_of_batch, 1};
    const fields test{of_test / 10, 2};
    train<Element>(
        chosen, fields_of_batch, training, test,
        [](auto& net) {
          net.loss(nn::softmax_cross_entropy{}, models::unet(net, {.out_channels = 3, .base_channels = 8, .depth = 3}));
        },
        gradus::optim::adam{}, 0.003);
    return;
  }
  const data::image_dataset all = data::load_mnist(chosen.folder, data::split::training);
  const data::image_dataset unseen = data::load_mnist(chosen.folder, data::split::test);
  const bool residual = chosen.network == "resnet20";
  const first_images training{all, chosen.steps * batch, residual ? 2 : 0};
  const first_images test{unseen, of_test, residual ? 2 : 0};
  if (residual) {
    train<Element>(
        chosen, batch, training, test, [](auto& net) { models::cifar_resnet(net, 20, {.classes = 10}); },
        gradus::optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, 0.05);
  } else {
    train<Element>(
        chosen, batch, training, test, [](auto& net) { models::mnist(net); }, gradus::optim::sgd{.momentum = 0.9},
        0.05);
  }
}

int run(const run_options& chosen) {
  if (chosen.network != "mnist" && chosen.network != "resnet20" && chosen.network != "unet") {
    throw std::invalid_argument{"expected the network mnist, resnet20 or unet, got '" + chosen.network + "'"};
  }
  if (chosen.steps < 1) {
    throw std::invalid_argument{"expected at least 1 step, got " + std::to_string(chosen.steps)};
  }
  if (chosen.precision == "fp32") {
    run_with<float>(chosen);
  } else if (chosen.precision == "bf16") {
    run_with<gradus::bfloat16>(chosen);
  } else if (chosen.precision == "fp16") {
    run_with<gradus::float16>(chosen);
  } else {
    throw std::invalid_argument{"expected the precision fp32, bf16 or fp16, got '" + chosen.precision + "'"};
  }
  return gradus::close_output("bench_loss_curves_precisions", 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s mnist|resnet20|unet fp32|bf16|fp16 SEED STEPS [DATA_FOLDER]\n", argv[0]);
    return 2;
  }
  try {
    run_options chosen{argv[1], argv[2], std::strtoull(argv[3], nullptr, 10), std::atol(argv[4])};
    if (argc > 5) {
      chosen.folder = argv[5];
    }
    return run(chosen);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "bench_loss_curves_precisions: %s\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}
