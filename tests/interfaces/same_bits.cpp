// SPDX-License-Identifier: BSL-1.0
//
// The training of case.h, by the library and through the C interface. The weights are compared, and with those of the
// file that the first argument names, which a Fortran program has written.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "case.h"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"
#include "gradus_c.h"

namespace {

namespace nn = gradus::nn;

struct weights {
  std::vector<float> of[4];
};

const char* const names[] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"};

[[nodiscard]] weights by_the_library(const std::vector<float>& inputs, const std::vector<float>& targets) {
  gradus::cpu device;
  nn::network<float, gradus::nhwc> net{device, {.channels = CHANNELS, .height = ROWS, .width = COLUMNS}};
  nn::value x = net.add("conv1",
                        nn::conv2d{.out_channels = 4,
                                   .kernel = 3,
                                   .padding = nn::padding::same(),
                                   .padding_mode = gradus::kernels::padding_mode::circular},
                        net.input());
  x = net.add("tanh1", nn::tanh{}, x);
  x = net.add("dropout1", nn::dropout{.rate = 0.1}, x);
  x = net.add("conv2", nn::conv2d{.out_channels = 1, .kernel = 1}, x);
  net.loss(nn::mean_squared_error{}, x);
  net.compile({.max_batch_size = BATCH, .seed = 3});
  const auto set = gradus::data::in_memory(gradus::data::examples_of(inputs, {1, CHANNELS, ROWS, COLUMNS}),
                                           gradus::data::examples_of(targets, {1, 1, ROWS, COLUMNS}));
  gradus::data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = BATCH, .seed = 5}};
  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}};
  trainer.fit(loader, {.epochs = STEPS * BATCH / SAMPLES, .learning_rate = 0.1});
  weights result;
  for (std::size_t i = 0; i < 4; ++i) {
    result.of[i] = net.find_parameter(names[i]).copy_values();
  }
  return result;
}

void ok(gradus_status status) {
  if (status != GRADUS_OK) {
    std::printf("%s\n", gradus_last_error());
    std::exit(1);
  }
}

[[nodiscard]] weights by_the_c_interface(std::vector<float> inputs, std::vector<float> targets, const weights& sizes) {
  gradus_network* net = nullptr;
  gradus_value x = 0;
  ok(gradus_network_create(nullptr, GRADUS_FLOAT, &net));
  ok(gradus_network_input(net, "state", CHANNELS, ROWS, COLUMNS, &x));
  gradus_conv2d_options conv{};
  conv.out_channels = 4;
  conv.kernel[0] = 3;
  conv.padding = GRADUS_PAD_SAME;
  conv.padding_mode = GRADUS_CIRCULAR;
  ok(gradus_network_conv2d(net, "conv1", x, &conv, &x));
  ok(gradus_network_activation(net, "tanh1", x, GRADUS_TANH, 0, &x));
  ok(gradus_network_dropout(net, "dropout1", x, 0.1, &x));
  conv = {};
  conv.out_channels = 1;
  conv.kernel[0] = 1;
  ok(gradus_network_conv2d(net, "conv2", x, &conv, &x));
  ok(gradus_network_output(net, "rate", x));
  ok(gradus_network_loss(net, "rate", GRADUS_MEAN_SQUARED_ERROR, 0));
  gradus_compile_options compiling{};
  compiling.max_batch_size = BATCH;
  compiling.seed = 3;
  ok(gradus_network_compile(net, &compiling));
  const std::int64_t shape[] = {SAMPLES, CHANNELS, ROWS, COLUMNS};
  const std::int64_t shape_of_targets[] = {SAMPLES, ROWS, COLUMNS};
  gradus_data* data = nullptr;
  ok(gradus_data_create(&data));
  const gradus_array array{inputs.data(), GRADUS_FLOAT, GRADUS_C_ORDER, 4, 0, shape, nullptr};
  const gradus_array array_of_targets{targets.data(), GRADUS_FLOAT, GRADUS_C_ORDER, 3, 0, shape_of_targets, nullptr};
  ok(gradus_data_set(data, "state", &array));
  ok(gradus_data_set(data, "rate", &array_of_targets));
  gradus_trainer_options training{};
  training.learning_rate = 0.1;
  training.momentum = 0.9;
  training.global_batch_size = BATCH;
  training.seed = 5;
  gradus_trainer* trainer = nullptr;
  ok(gradus_trainer_create(net, &training, nullptr, &trainer));
  ok(gradus_trainer_train_steps(trainer, data, 4, nullptr));
  ok(gradus_trainer_train_steps(trainer, data, STEPS - 4, nullptr));
  weights result = sizes;
  for (std::size_t i = 0; i < 4; ++i) {
    ok(gradus_network_get_parameter(net, names[i], result.of[i].data(),
                                    static_cast<std::int64_t>(result.of[i].size())));
  }
  ok(gradus_trainer_free(trainer));
  ok(gradus_data_free(data));
  ok(gradus_network_free(net));
  return result;
}

[[nodiscard]] int differences(const char* what, const weights& a, const weights& b) {
  int count = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    if (a.of[i].size() != b.of[i].size() ||
        std::memcmp(a.of[i].data(), b.of[i].data(), a.of[i].size() * sizeof(float)) != 0) {
      std::printf("%s differs in %s\n", names[i], what);
      ++count;
    }
  }
  return count;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<float> inputs;
  std::vector<float> targets;
  for (int n = 0; n < SAMPLES; ++n) {
    for (int c = 0; c < CHANNELS; ++c) {
      for (int h = 0; h < ROWS; ++h) {
        for (int w = 0; w < COLUMNS; ++w) {
          inputs.push_back(static_cast<float>(input_at(n, c, h, w)));
        }
      }
    }
    for (int h = 0; h < ROWS; ++h) {
      for (int w = 0; w < COLUMNS; ++w) {
        targets.push_back(static_cast<float>(target_at(n, h, w)));
      }
    }
  }
  const weights expected = by_the_library(inputs, targets);
  int failed = differences("C", expected, by_the_c_interface(inputs, targets, expected));
  if (count == 2) {
    const gradus::io::safetensors_file file{arguments[1]};
    weights of_fortran;
    for (std::size_t i = 0; i < 4; ++i) {
      of_fortran.of[i] = file.read<float>(names[i]);
    }
    failed += differences("Fortran", expected, of_fortran);
  }
  std::printf("%d differences in %d programs\n", failed, count);
  return failed == 0 ? 0 : 1;
}
