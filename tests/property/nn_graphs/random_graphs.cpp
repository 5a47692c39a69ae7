// SPDX-License-Identifier: BSL-1.0
//
// Random graphs of layers against the plain reference: every loss, score, gradient, running statistic and parameter of
// several steps, however the plan runs the graph.
//
// GRADUS_TEST_GRAPHS and GRADUS_TEST_SEED set how many graphs are drawn and the first one's seed: a failure prints the
// seed of its graph, and the graph in its smallest form that still fails as C++.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/conformance/sanitizers.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/device/cpu.hpp"
#include "instruction_sets.hpp"
#include "reference/check_graphs.hpp"

namespace {

using namespace gradus_test;

#if GRADUS_ADDRESS_SANITIZER
constexpr std::uint64_t graphs_by_default = 40;
#else
constexpr std::uint64_t graphs_by_default = 250;
#endif

/// How a graph is run.
struct run_spec {
  bool nhwc = false;
  int threads = 1;
  int lanes = 1;
  bool recompute = false;
  bool winograd = true;
  gradus::nn::plan_optimizations optimizations{};
  gradus::kernels::instruction_set instructions{};
};

[[nodiscard]] std::vector<gradus::kernels::instruction_set> available_sets() {
  std::vector<gradus::kernels::instruction_set> sets;
  for_each_instruction_set([&](gradus::kernels::instruction_set which) { sets.push_back(which); });
  return sets;
}

[[nodiscard]] run_spec draw_run(draws& draw) {
  static const std::vector<gradus::kernels::instruction_set> sets = available_sets();
  run_spec run;
  run.nhwc = draw.chance(50);
  run.threads = static_cast<int>(draw.between(1, 3));
  run.lanes = draw.chance(30) ? static_cast<int>(draw.between(2, 3)) : 1;
  run.recompute = draw.chance(30);
  run.instructions =
      sets[static_cast<std::size_t>(draw.chance(40) ? static_cast<index_t>(sets.size()) - 1
                                                    : draw.between(0, static_cast<index_t>(sets.size()) - 1))];
  run.winograd = !draw.chance(20);
  if (draw.chance(20)) {
    run.optimizations = {.fuse_activations = draw.chance(50),
                         .relu_in_place = draw.chance(50),
                         .fuse_sums = draw.chance(50),
                         .share_gradients = draw.chance(50),
                         .reuse_memory = draw.chance(50)};
  }
  return run;
}

[[nodiscard]] std::string to_string(const run_spec& run) {
  std::ostringstream out;
  out << (run.nhwc ? "nhwc" : "nchw") << ", " << run.threads << " threads, " << run.lanes << " lanes"
      << (run.recompute ? ", recompute" : "") << (run.winograd ? "" : ", no Winograd")
      << (run.optimizations.fuse_activations ? "" : ", no fused activations")
      << (run.optimizations.relu_in_place ? "" : ", no ReLU in place")
      << (run.optimizations.fuse_sums ? "" : ", no fused sums")
      << (run.optimizations.share_gradients ? "" : ", no shared gradients")
      << (run.optimizations.reuse_memory ? "" : ", no memory used again") << ", "
      << gradus::kernels::name_of(run.instructions);
  return out.str();
}

template <class Element>
[[nodiscard]] training_outcome run_on_cpu(const graph_spec& spec, const training_spec& training, const run_spec& run) {
  const gradus::kernels::instruction_set before = gradus::kernels::current_instruction_set();
  gradus::kernels::set_instruction_set(run.instructions);
  gradus::cpu device{{.intra_op_threads = run.threads, .inter_op_threads = run.lanes}};
  gradus::nn::compile_options compile{.recompute = run.recompute,
                                      .parallel_branches = run.lanes > 1,
                                      .optimizations = run.optimizations,
                                      .convolution_algorithm = run.winograd
                                                                   ? gradus::nn::convolution_algorithm::automatic
                                                                   : gradus::nn::convolution_algorithm::direct};
  if (training.micro_batch > 0) {
    compile.micro_batch_size = training.micro_batch;
  }
  training_outcome outcome = run.nhwc ? train_network<Element, gradus::nhwc>(device, spec, training, compile)
                                      : train_network<Element, gradus::nchw>(device, spec, training, compile);
  gradus::kernels::set_instruction_set(before);
  return outcome;
}

template <class Element>
void check(const char* element, const rounding& rounded, index_t most_layers) {
  check_random_graphs({.element = element, .rounded = rounded, .graphs = graphs_by_default, .most_layers = most_layers},
                      draw_run, run_on_cpu<Element>);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(random_graphs)

BOOST_AUTO_TEST_CASE(of_double) {
  check<double>("double", {.relative = 0x1p-50}, 16);
}

BOOST_AUTO_TEST_CASE(of_float) {
  check<float>("float", {.relative = 0x1p-20}, 16);
}

// Rounding to 8 and 11 bits decides a ReLU in most larger graphs.
BOOST_AUTO_TEST_CASE(of_bfloat16) {
  check<gradus::bfloat16>("bfloat16", {.relative = 0x1p-8}, 7);
}

BOOST_AUTO_TEST_CASE(of_float16) {
  check<gradus::float16>("float16", {.relative = 0x1p-11, .absolute = 0x1p-24, .largest = 0x1p13}, 7);
}

BOOST_AUTO_TEST_SUITE_END()
