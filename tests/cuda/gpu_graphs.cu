// SPDX-License-Identifier: BSL-1.0
//
// Random graphs of layers on a GPU against the plain reference, and every layer against its contract with the plan.
//
// GRADUS_TEST_GRAPHS and GRADUS_TEST_SEED as in tests/property/nn_graphs.
#include <boost/test/unit_test.hpp>

#include <sstream>
#include <string>

#include "gradus/core/float16.hpp"
#include "gradus/kernels/cuda.cuh"
#include "gradus/kernels/cuda/group_norm.cuh"
#include "gradus/kernels/cuda/shaping.cuh"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/tensor/cuda.cuh"
#include "layer_cases.hpp"
#include "reference/check_graphs.hpp"

namespace {

using namespace gradus_test;

/// How a graph is run.
struct run_spec {
  bool nhwc = false;
  bool recompute = false;
  bool optimized = true;
};

run_spec draw_run(draws& draw) {
  run_spec run;
  run.nhwc = draw.chance(50);
  run.recompute = draw.chance(30);
  run.optimized = draw.chance(80);
  return run;
}

std::string to_string(const run_spec& run) {
  std::ostringstream out;
  out << (run.nhwc ? "nhwc" : "nchw") << (run.recompute ? ", recompute" : "")
      << (run.optimized ? "" : ", plan without optimizations");
  return out.str();
}

template <class Element>
training_outcome run_on_gpu(const graph_spec& spec, const training_spec& training, const run_spec& run) {
  gradus::cuda device;
  nn::compile_options compile;
  compile.recompute = run.recompute;
  if (!run.optimized) {
    compile.optimizations = nn::plan_optimizations::none();
  }
  if (training.micro_batch > 0) {
    compile.micro_batch_size = training.micro_batch;
  }
  return run.nhwc ? train_network<Element, gradus::nhwc>(device, spec, training, compile)
                  : train_network<Element, gradus::nchw>(device, spec, training, compile);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(graphs_on_a_gpu)

BOOST_AUTO_TEST_CASE(random_graphs_of_float) {
  check_random_graphs(
      {.element = "float", .rounded = {.relative = 0x1p-20, .absolute = 0}, .graphs = 40, .most_layers = 12, .runs = 1},
      draw_run, run_on_gpu<float>);
}

BOOST_AUTO_TEST_CASE(random_graphs_of_float16) {
  check_random_graphs({.element = "float16",
                       .rounded = {.relative = 0x1p-11, .absolute = 0x1p-24, .largest = 0x1p13},
                       .graphs = 40,
                       .most_layers = 7,
                       .runs = 1},
                      draw_run, run_on_gpu<gradus::float16>);
}

BOOST_AUTO_TEST_CASE(layers_keep_their_contract) {
  gradus::cuda device;
  check_layer_contracts<float, gradus::nhwc>(device);
  check_layer_contracts<float, gradus::nchw>(device);
}

BOOST_AUTO_TEST_SUITE_END()
