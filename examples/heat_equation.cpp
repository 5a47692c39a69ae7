// SPDX-License-Identifier: BSL-1.0
//
// A network that takes the place of a simulation: it learns the next state of the heat equation on a periodic square
// from this state. Two ranks train it. Then it is applied again and again, and compared with the simulation.
//
//   heat_equation [PICTURE.svg [EPOCHS]]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "field_pictures.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace nn = gradus::nn;

constexpr int ranks = 2;
constexpr int side = 32;  // points of the grid
constexpr int points = side * side;
constexpr int steps = 8;  // of each simulation

/// du/dt = k (d2u/dx2 + d2u/dy2) on a periodic square: four explicit steps with k dt / dx^2 = 0.2.
std::vector<float> next_state(std::vector<float> u) {
  for (int small = 0; small < 4; ++small) {
    std::vector<float> next(u.size());
    const auto at = [&](int y, int x) {
      return u[static_cast<std::size_t>((y & (side - 1)) * side + (x & (side - 1)))];
    };
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const float laplacian = at(y - 1, x) + at(y + 1, x) + at(y, x - 1) + at(y, x + 1) - 4 * at(y, x);
        next[static_cast<std::size_t>(y * side + x)] = at(y, x) + 0.2F * laplacian;
      }
    }
    u = std::move(next);
  }
  return u;
}

/// Four warm squares somewhere.
std::vector<float> first_state(std::uint64_t simulation) {
  const gradus::random_stream random{simulation, "squares"};
  std::vector<float> u(points, 0.0F);
  for (std::uint64_t square = 0; square < 4; ++square) {
    const auto top = static_cast<int>(random.below(side, 4 * square));
    const auto left = static_cast<int>(random.below(side, 4 * square + 1));
    const auto extent = 4 + static_cast<int>(random.below(8, 4 * square + 2));
    const auto heat = static_cast<float>(0.4 + 0.6 * random.uniform(4 * square + 3));
    for (int y = top; y < top + extent; ++y) {
      for (int x = left; x < left + extent; ++x) {
        u[static_cast<std::size_t>((y % side) * side + x % side)] = heat;
      }
    }
  }
  return u;
}

/// The states of simulations, and their next states.
struct simulations {
  explicit simulations(int count) {
    for (int i = 0; i < count; ++i) {
      std::vector<float> u = first_state(static_cast<std::uint64_t>(i));
      for (int step = 0; step < steps; ++step) {
        states.insert(states.end(), u.begin(), u.end());
        u = next_state(std::move(u));
        next.insert(next.end(), u.begin(), u.end());
      }
    }
  }
  std::vector<float> states;
  std::vector<float> next;
};

/// The next state is this one and a correction. Circular padding: the square is periodic.
void build(nn::network<float>& net) {
  const auto convolution = [](gradus::index_t channels, gradus::index_t kernel) {
    return nn::conv2d{.out_channels = channels,
                      .kernel = {kernel, kernel},
                      .padding = nn::padding::same(),
                      .padding_mode = nn::padding_mode::circular};
  };
  nn::value x = net.add("conv1", convolution(16, 5), net.input());
  x = net.add("gelu1", nn::gelu{}, x);
  x = net.add("conv2", convolution(16, 3), x);
  x = net.add("gelu2", nn::gelu{}, x);
  x = net.add("correction", convolution(1, 3), x);
  net.loss(nn::mean_squared_error{}, net.add("next", nn::add{}, {net.input(), x}));
  net.compile({.max_batch_size = 32, .seed = 1});
}

/// What rank 0 has found: the errors of the prediction, relative to the change since the first state, and the picture.
struct outcome {
  double one_step = 0;
  double all_steps = 0;
  std::vector<std::vector<field_picture>> picture;
};

double relative_error(std::span<const float> predicted, std::span<const float> truth, std::span<const float> first) {
  double error = 0;
  double change = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    error += std::pow(static_cast<double>(predicted[i] - truth[i]), 2);
    change += std::pow(static_cast<double>(first[i] - truth[i]), 2);
  }
  return std::sqrt(error / change);
}

/// Applies the network to its own predictions.
outcome predict(nn::network<float>& net, gradus::cpu& device) {
  const std::vector<float> first = first_state(1'000'000);  // no simulation of the training
  std::vector<float> truth = first;
  gradus::image_tensor<float, gradus::nchw> state{device, {1, 1, side, side}};
  std::copy(first.begin(), first.end(), state.data());
  outcome result;
  for (int step = 1; step <= steps; ++step) {
    truth = next_state(std::move(truth));
    const auto next = net.forward(state);
    std::copy(next.data(), next.data() + points, state.data());
    const std::vector<float> predicted(state.data(), state.data() + points);
    (step == 1 ? result.one_step : result.all_steps) = relative_error(predicted, truth, first);
    if (step == 1 || step == steps) {
      const std::string when = ", step " + std::to_string(step);
      result.picture.push_back({{"first state", side, side, first},
                                {"prediction" + when, side, side, predicted},
                                {"simulation" + when, side, side, truth}});
    }
  }
  return result;
}

/// What each rank does; rank 0 leaves the result.
void train(gradus::comm::threads& world, int epochs, outcome& result) {
  const simulations known{96};
  const auto set = gradus::data::in_memory(gradus::data::examples_of(std::span{known.states}, {1, 1, side, side}),
                                           gradus::data::examples_of(std::span{known.next}, {1, 1, side, side}));
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float> net{device, {.channels = 1, .height = side, .width = side}};
  build(net);
  gradus::data::loader<float, gradus::nchw> loader{device, set, {.global_batch_size = 32, .seed = 3}};
  gradus::train::trainer trainer{net, gradus::optim::adam{}, world};
  trainer.fit(loader,
              {.epochs = epochs,
               .learning_rate = gradus::optim::cosine{.initial = 0.005, .epochs = static_cast<double>(epochs)}});
  if (world.rank() == 0) {
    result = predict(net, device);
  }
}

int run(const std::string& picture, int epochs) {
  outcome result;
  gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) { train(world, epochs, result); });
  std::printf("relative error after 1 step: %.4f, after %d steps: %.4f\n", result.one_step, steps, result.all_steps);
  if (!picture.empty()) {
    write_pictures(picture, result.picture);
    std::printf("picture: %s\n", picture.c_str());
  }
  return gradus::close_output("heat_equation", result.all_steps < 0.2 ? 0 : 1);
}

}  // namespace

int main(int arguments, char** argument) {
  try {
    return run(arguments > 1 ? argument[1] : "", arguments > 2 ? std::atoi(argument[2]) : 12);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "heat_equation: %s\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}
