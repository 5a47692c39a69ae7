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
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/core/output.hpp"
#include "gradus/layout/layouts.hpp"
#include "sides.hpp"

namespace {

using gradus::index_t;
using gradus_peers::gradus_side;
using gradus_peers::problem;
using gradus_peers::seconds_of;
using gradus_peers::torch_side;

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
  gradus_side<float, Layout> side{what, 0.5};
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
  const problem what = gradus_peers::problem_of(argv[1], std::atol(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  torch::set_num_threads(what.threads);
  if (memory) {
    return print_memory(what, argv[5]);
  }

  // The same loss for five steps, without dropout: both sides then compute the same thing. Later losses drift apart by
  // rounding, faster where batch normalization divides by small deviations.
  nlohmann::json losses = nlohmann::json::array();
  {
    gradus_side<float, gradus::nchw> planes{what, 0.0};
    torch_side peer{what, 0.0, false, &planes};
    gradus_side<float, gradus::nhwc> pixels{what, 0.0};
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

  gradus_side<float, gradus::nchw> planes{what, 0.5};
  gradus_side<float, gradus::nhwc> pixels{what, 0.5};
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
