// SPDX-License-Identifier: BSL-1.0
//
// The loss in training, step by step, of ranks that exchange less than an all-reduce does: gradients in 16 and 8 bits,
// averages of weights, and an outer optimizer (DiLoCo).
//
//   bench_loss_curves_slow_wire STRATEGY SEED STEPS [EVERY [DATA_FOLDER]]
//
// STRATEGY is all_reduce, bfloat16, int8, averaging or diloco; the last two exchange every EVERY steps. Four thread
// ranks train a small convolutional network on Fashion-MNIST, 16 images each. Prints a line of JSON: the mean loss of
// each step's 64 images before the step, the accuracy on the images for tests, and the bytes that a rank sends in a
// step on average. `scripts/bench --only slow_wire` runs all of them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/gzip.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/mnist.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus::index_t;

constexpr int ranks = 4;
constexpr index_t global_batch = 64;

struct run_options {
  std::string strategy;
  std::uint64_t seed = 1;
  index_t steps = 100;
  int every = 20;
  std::string folder = "/usr/share/datasets/fashion-mnist";
};

struct outcome {
  std::vector<double> losses;  // of this rank's images
  double accuracy = 0;
  double parameters = 0;
};

/// The first examples of a set: an epoch of them has as many steps as were asked for.
class first_images {
 public:
  first_images(const data::image_dataset& set, index_t examples) : set_{set}, examples_{examples} {}

  [[nodiscard]] index_t size() const { return examples_; }
  [[nodiscard]] gradus::image_extents example() const { return set_.example(); }
  [[nodiscard]] int classes() const { return set_.classes(); }
  [[nodiscard]] std::int32_t label(index_t i) const { return set_.label(i); }
  [[nodiscard]] std::uint64_t hash() const { return set_.hash() + static_cast<std::uint64_t>(examples_); }
  template <class Element>
  void read(index_t i, Element* planes) const {
    set_.read(i, planes);
  }

 private:
  const data::image_dataset& set_;
  index_t examples_;
};

struct recorder {
  outcome* seen;
  void on_step(const gradus::train::step_report& step) const { seen->losses.push_back(step.local_loss); }
};

template <class Network>
void build(Network& net) {
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 16, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
  x = net.add("relu1", nn::relu{}, x);
  x = net.add("pool1", nn::max_pool2d{}, x);
  x = net.add("conv2", nn::conv2d{.out_channels = 32, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
  x = net.add("relu2", nn::relu{}, x);
  x = net.add("pool2", nn::max_pool2d{}, x);
  x = net.add("flatten", nn::flatten{}, x);
  x = net.add("hidden", nn::dense{.out_features = 256}, x);
  x = net.add("relu3", nn::relu{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 10}, x));
}

template <class Strategy>
outcome train(comm::threads& world, const run_options& chosen, const first_images& images,
              const data::image_dataset& unseen, const Strategy& strategy) {
  using gradus::nhwc;
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, nhwc> net{device, {.channels = 1, .height = 28, .width = 28}};
  build(net);
  net.compile({.max_batch_size = 256, .seed = chosen.seed});
  const data::shard own{.rank = world.rank(), .ranks = world.size()};
  data::loader<float, nhwc> batches{
      device, images, {.global_batch_size = global_batch, .seed = chosen.seed, .shard = own}};
  data::loader<float, nhwc> examination{device, unseen, {.global_batch_size = 256, .shuffle = false, .shard = own}};
  gradus::train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world, strategy};
  outcome result;
  trainer.fit(batches, {.epochs = 1, .learning_rate = 0.02}, recorder{&result});
  result.accuracy = trainer.evaluate(examination).accuracy;
  result.parameters = static_cast<double>(net.gradients().size());
  return result;
}

int run(const run_options& chosen) {
  const data::image_dataset all = data::load_mnist(chosen.folder, data::split::training);
  if (chosen.steps > all.size() / global_batch) {
    throw std::invalid_argument{"expected at most " + std::to_string(all.size() / global_batch) + " steps, got " +
                                std::to_string(chosen.steps)};
  }
  const first_images images{all, chosen.steps * global_batch};
  const data::image_dataset unseen = data::load_mnist(chosen.folder, data::split::test);
  double bytes_of_parameter = 4;
  const auto on_ranks = [&](const auto& strategy) {
    return comm::run_ranks(ranks, [&](comm::threads& world) { return train(world, chosen, images, unseen, strategy); });
  };
  std::vector<outcome> found;
  if (chosen.strategy == "all_reduce") {
    found = on_ranks(parallel::all_reduce{});
  } else if (chosen.strategy == "bfloat16") {
    bytes_of_parameter = 2;
    found = on_ranks(parallel::compressed_all_reduce<>{});
  } else if (chosen.strategy == "int8") {
    bytes_of_parameter = static_cast<double>(parallel::int8_blocks::bytes(1024)) / 1024;
    found = on_ranks(parallel::compressed_all_reduce<parallel::int8_blocks>{});
  } else if (chosen.strategy == "averaging" || chosen.strategy == "diloco") {
    bytes_of_parameter = 4.0 / chosen.every;
    parallel::model_averaging options{.every_steps = chosen.every};
    if (chosen.strategy == "diloco") {
      options.outer = optim::sgd{.momentum = 0.9, .nesterov = true};
    }
    found = on_ranks(options);
  } else {
    throw std::invalid_argument{"expected the strategy all_reduce, bfloat16, int8, averaging or diloco, got '" +
                                chosen.strategy + "'"};
  }
  const bool exchanges_rarely = chosen.strategy == "averaging" || chosen.strategy == "diloco";
  std::printf("{\"strategy\": \"%s\", \"every\": %d, \"seed\": %llu, \"ranks\": %d, \"global_batch_size\": %td, ",
              chosen.strategy.c_str(), exchanges_rarely ? chosen.every : 1,
              static_cast<unsigned long long>(chosen.seed), ranks, global_batch);
  std::printf("\"accuracy\": %.4f, \"bytes_of_step\": %.0f, \"losses\": [", found[0].accuracy,
              2.0 * (ranks - 1) / ranks * bytes_of_parameter * found[0].parameters);
  for (std::size_t i = 0; i < found[0].losses.size(); ++i) {
    double mean = 0;
    for (const outcome& each : found) {
      mean += each.losses[i] / ranks;
    }
    std::printf("%s%.5f", i == 0 ? "" : ", ", mean);
  }
  std::printf("]}\n");
  return gradus::close_output("bench_loss_curves_slow_wire", 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s all_reduce|bfloat16|int8|averaging|diloco SEED STEPS [EVERY [DATA_FOLDER]]\n",
                 argv[0]);
    return 2;
  }
  try {
    run_options chosen{.strategy = argv[1], .seed = std::strtoull(argv[2], nullptr, 10), .steps = std::atol(argv[3])};
    if (argc > 4) {
      chosen.every = std::atoi(argv[4]);
    }
    if (argc > 5) {
      chosen.folder = argv[5];
    }
    if (chosen.steps < 1 || chosen.every < 1) {
      throw std::invalid_argument{"expected at least 1 step, and 1 step between exchanges"};
    }
    return run(chosen);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "bench_loss_curves_slow_wire: %s\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}
