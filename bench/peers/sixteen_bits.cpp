// SPDX-License-Identifier: BSL-1.0
//
// Whole training steps in float and in bfloat16, in gradus and in PyTorch, interleaved in one process, on the same
// weights and the same batch. Images are channels last; PyTorch's bfloat16 is that of autocast. The losses of the first
// steps must agree before anything is timed.
//
//   bench_peers_sixteen_bits MODEL BATCH THREADS ROUNDS      MODEL: mnist, resnet50, inception3, mlp, unet
//
// Prints the images a second of the four sides as one JSON object. Run it with GLIBC_TUNABLES in the environment for
// PyTorch with its memory on huge pages.
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../onednn/race.hpp"
#include "../program/statistics.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/output.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/simd/isa.hpp"
#include "sides.hpp"

namespace {

using gradus_peers::gradus_side;
using gradus_peers::problem;
using gradus_peers::torch_side;
using program::median;

/// Seconds of a step: with one thread those of the processor, so that other work on the machine counts less.
template <class Side>
double seconds_of(Side& side, int steps, int threads) {
  const double began = bench::now(threads == 1);
  for (int i = 0; i < steps; ++i) {
    (void)side.step();
  }
  return (bench::now(threads == 1) - began) / steps;
}

/// The first losses of a few images without dropout, of PyTorch in float, and of the other three.
/// @return false if one is not what it should be: in float up to rounding, in bfloat16 up to its 8 bits
bool losses_agree(problem what, nlohmann::json& losses) {
  what.batch = std::min<gradus::index_t>(what.batch, 4);
  gradus_side<float, gradus::nchw> planes{what, 0.0};
  torch_side peer{what, 0.0, true, &planes};
  torch_side peer_narrow{what, 0.0, true, &planes, true};
  gradus_side<float, gradus::nhwc> wide{what, 0.0};
  gradus_side<gradus::bfloat16, gradus::nhwc> narrow{what, 0.0};
  for (int step = 0; step < 2; ++step) {
    const double expected = peer.step();
    const std::vector<double> found{wide.step(), narrow.step(), peer_narrow.step()};
    losses.push_back({{"libtorch_fp32", expected},
                      {"gradus_fp32", found[0]},
                      {"gradus_bf16", found[1]},
                      {"libtorch_bf16", found[2]}});
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double tolerance = i == 0 && step == 0 ? 1e-4 : 5e-2;
      if (!(std::abs(found[i] - expected) < tolerance * std::abs(expected))) {
        std::fprintf(stderr, "bench_peers_sixteen_bits: step %d: losses differ: %s\n", step,
                     losses.back().dump().c_str());
        return false;
      }
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: bench_peers_sixteen_bits mnist|resnet50|inception3|mlp|unet BATCH THREADS ROUNDS\n";
    return 2;
  }
  const problem what = gradus_peers::problem_of(argv[1], std::atol(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  torch::set_num_threads(what.threads);
  nlohmann::json losses = nlohmann::json::array();
  if (!losses_agree(what, losses)) {
    return 1;
  }
  gradus_side<float, gradus::nchw> like{gradus_peers::problem_of(what.model, 1, 1, 0), 0.5};
  gradus_side<float, gradus::nhwc> wide{what, 0.5};
  gradus_side<gradus::bfloat16, gradus::nhwc> narrow{what, 0.5};
  torch_side peer_wide{what, 0.5, true};
  torch_side peer_narrow{what, 0.5, true, nullptr, true};
  peer_wide.take_parameters(like);
  peer_narrow.take_parameters(like);
  std::vector<std::vector<double>> seconds(4);
  std::vector<int> steps(4);
  const auto in_turn = [&](const auto& run) {
    run(0, wide);
    run(1, peer_wide);
    run(2, narrow);
    run(3, peer_narrow);
  };
  in_turn([&](std::size_t i, auto& side) {
    (void)side.step();
    steps[i] = std::max(1, static_cast<int>(0.3 / seconds_of(side, 1, what.threads)));
  });
  for (int round = 0; round < what.rounds; ++round) {
    in_turn([&](std::size_t i, auto& side) { seconds[i].push_back(seconds_of(side, steps[i], what.threads)); });
  }
  const auto rate = [&](std::size_t i) {
    return nlohmann::json{
        {"median", static_cast<double>(what.batch) / median(seconds[i])},
        {"best", static_cast<double>(what.batch) / *std::min_element(seconds[i].begin(), seconds[i].end())}};
  };
  std::cout << nlohmann::json{{"model", what.model},
                              {"batch_size", what.batch},
                              {"threads", what.threads},
                              {"rounds", what.rounds},
                              {"libtorch_version", TORCH_VERSION},
                              {"instruction_set", std::string{name_of(gradus::kernels::current_instruction_set())}},
                              {"images_per_second",
                               {{"gradus_fp32", rate(0)},
                                {"libtorch_fp32", rate(1)},
                                {"gradus_bf16", rate(2)},
                                {"libtorch_bf16", rate(3)}}},
                              {"losses", losses}}
                   .dump(1)
            << '\n';
  return gradus::close_output("bench_peers_sixteen_bits", 0);
}
