// SPDX-License-Identifier: BSL-1.0
//
// Steps of a linear regression (y = 3 x + noise, x of 10 x 10 elements, one slope, mean squared error, gradient
// descent) in gradus and in libtorch, interleaved in one process. What is measured is the cost of a step beside its
// arithmetic.
//
//   bench_peers_regression ROUNDS       prints one JSON object
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

constexpr int side = 10;
constexpr float rate = 0.05F;

class gradus_side {
 public:
  gradus_side() {
    const gradus::random_stream random{7};
    for (int i = 0; i < side * side; ++i) {
      x_.data()[i] = 0.02F * static_cast<float>(i) - 1;
      y_.data()[i] = 3 * x_.data()[i] + 0.3F * static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    }
  }

  void step() {
    const auto [gradient] = gradients(mean(square(slope_ * x_ - y_)), slope_);
    slope_ -= rate * gradient;
  }

  [[nodiscard]] double slope() const { return static_cast<double>(slope_.value()); }
  [[nodiscard]] const float* x() const { return x_.data(); }
  [[nodiscard]] const float* y() const { return y_.data(); }

 private:
  gradus::cpu device_{{.intra_op_threads = 2}};
  gradus::tensor<float, 2> x_{device_, {side, side}};
  gradus::tensor<float, 2> y_{device_, {side, side}};
  gradus::tensor<float, 0> slope_{device_, {}};
};

class torch_side {
 public:
  explicit torch_side(const gradus_side& like)
      : x_{torch::from_blob(const_cast<float*>(like.x()), {side, side}).clone()},
        y_{torch::from_blob(const_cast<float*>(like.y()), {side, side}).clone()},
        slope_{torch::zeros({}, torch::requires_grad())} {}

  void step() {
    const auto loss = (slope_ * x_ - y_).square().mean();
    loss.backward();
    const torch::NoGradGuard no_gradients;
    slope_ -= rate * slope_.grad();
    slope_.grad().zero_();
  }

  [[nodiscard]] double slope() const { return slope_.item<double>(); }

 private:
  torch::Tensor x_;
  torch::Tensor y_;
  torch::Tensor slope_;
};

template <class Side>
double seconds_of(Side& side_, int steps) {
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    side_.step();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / steps;
}

using program::median;

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 2 ? std::atoi(argv[1]) : 0;
  if (rounds < 1) {
    std::cerr << "usage: bench_peers_regression ROUNDS\n";
    return 2;
  }
  torch::set_num_threads(2);
  gradus_side ours;
  torch_side theirs{ours};
  for (int step = 0; step < 200; ++step) {
    ours.step();
    theirs.step();
    if (!(std::abs(ours.slope() - theirs.slope()) < 1e-4)) {
      std::cerr << "bench_peers_regression: slopes differ in step " << step << ": gradus " << ours.slope()
                << ", libtorch " << theirs.slope() << '\n';
      return 1;
    }
  }
  constexpr int steps = 2000;
  std::vector<double> our_seconds;
  std::vector<double> their_seconds;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    our_seconds.push_back(seconds_of(ours, steps));
    their_seconds.push_back(seconds_of(theirs, steps));
    ratios.push_back(their_seconds.back() / our_seconds.back());
  }
  const auto microseconds = [](const std::vector<double>& seconds) {
    return nlohmann::json{{"median", 1e6 * median(seconds)},
                          {"best", 1e6 * *std::min_element(seconds.begin(), seconds.end())}};
  };
  std::cout << nlohmann::json{{"model", "linear_regression"},
                              {"step_microseconds",
                               {{"gradus", microseconds(our_seconds)}, {"libtorch", microseconds(their_seconds)}}},
                              {"ratio_median", median(ratios)}}
                   .dump(1)
            << '\n';
  return gradus::close_output("bench_peers_regression", 0);
}
