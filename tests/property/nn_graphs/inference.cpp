// SPDX-License-Identifier: BSL-1.0
//
// Random graphs compiled for inference: the scores are those of network::forward, to the bit where nothing is folded,
// and the values take no more memory than the largest set of them that is in use at one time, and 5 %.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gradus/conformance/sanitizers.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/inference_session.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/tensor/tensor.hpp"
#include "instruction_sets.hpp"
#include "reference/check_graphs.hpp"
#include "reference/graph_spec.hpp"
#include "reference/graph_text.hpp"
#include "reference/random_graphs.hpp"

namespace {

using namespace gradus_test;

#if GRADUS_ADDRESS_SANITIZER
constexpr std::uint64_t inference_graphs = 60;
#else
constexpr std::uint64_t inference_graphs = 300;
#endif

/// Gives parameters and running statistics values that are not those before training.
template <class Network>
void draw_parameters(Network& net, std::uint64_t seed) {
  using number = typename Network::parameter_element_type;
  for (const auto& parameter : net.parameters()) {
    const gradus::random_stream stream{seed, parameter.name()};
    std::vector<number> values = parameter.copy_values();
    const bool weight = parameter.description().rank > 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!weight) {
        values[i] = static_cast<number>((parameter.name().ends_with("weight") ? 1 : 0) + 0.3 * stream.normal(i));
      }
    }
    parameter.assign_values(values);
  }
  for (const auto& buffer : net.buffers()) {
    const gradus::random_stream stream{seed, buffer.name};
    for (gradus::index_t i = 0; i < buffer.elements.size(); ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      buffer.elements.data()[i] = static_cast<number>(buffer.name.ends_with("variance") ? 0.3 + 2 * stream.uniform(at)
                                                                                        : 0.5 * stream.normal(at));
    }
  }
}

template <class Element>
std::vector<double> as_double(const Element* data, gradus::index_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(static_cast<gradus::parameter_element_t<Element>>(data[i]));
  }
  return values;
}

double greatest_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

double greatest(const std::vector<double>& values) {
  return greatest_distance(values, std::vector<double>(values.size()));
}

/// The bytes of the values in use at the busiest time, from the layers that run and what they read: without the
/// lifetimes and offsets of the planner.
template <class Network>
std::size_t busiest_bytes(const Network& net, gradus::index_t batch) {
  const nn::execution_plan& plan = net.plan();
  const auto& nodes = net.structure().nodes();
  struct use {
    std::size_t bytes = 0, first = SIZE_MAX, last = 0;
  };
  std::vector<use> slots(plan.slots.size());
  const auto touch = [&](std::size_t value, std::size_t time) {
    use& slot = slots[plan.slot_of_value[value]];
    slot.first = std::min(slot.first, time);
    slot.last = std::max(slot.last, time);
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    use& written = slots[plan.slot_of_value[i + 1]];
    const auto bytes = static_cast<std::size_t>(net.structure().shape(i + 1).batch(batch).size()) *
                       sizeof(typename Network::element_type);
    written.bytes = std::max(written.bytes, (bytes + 63) / 64 * 64);
    if (!plan.nodes[i].forward) {
      continue;
    }
    touch(i + 1, i);
    for (const std::size_t value : nodes[i].inputs) {
      touch(value, i);
    }
    if (plan.nodes[i].residual != nn::execution_plan::none) {
      touch(plan.nodes[i].residual, i);
    }
  }
  touch(net.structure().scores(), nodes.size());
  std::size_t most = 0;
  for (std::size_t time = 0; time <= nodes.size(); ++time) {
    std::size_t live = 0;
    for (std::size_t s = 1; s < slots.size(); ++s) {
      live += slots[s].first <= time && time <= slots[s].last ? slots[s].bytes : 0;
    }
    most = std::max(most, live);
  }
  return most;
}

/// How a graph is run.
struct inference_run {
  int threads = 1;
  int lanes = 1;
  bool prepares = true;
  bool winograd = true;
  gradus::index_t batch = 1;
};

struct inference_counts {
  int folded = 0;          ///< normalizations that another layer computes
  int compared = 0;        ///< graphs whose scores are finite
  int vanished = 0;        ///< dropout layers
  double most_memory = 0;  ///< of the largest live set
};

template <class Element, class Layout>
void check_graph(const graph_spec& spec, const inference_run& run, std::uint64_t seed, double rounding,
                 inference_counts& counts) {
  gradus::cpu device{{.intra_op_threads = run.threads, .inter_op_threads = run.lanes}};
  const auto algorithm = run.winograd ? nn::convolution_algorithm::automatic : nn::convolution_algorithm::direct;
  const gradus::extents<4> shape{run.batch, spec.input.channels, spec.input.height, spec.input.width};
  gradus::tensor<Element, 4, Layout> images{device, shape};
  gradus::tensor<double, 4, Layout> exact_images{device, shape};
  const gradus::random_stream stream{seed, "images"};
  for (gradus::index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<Element>(
        static_cast<gradus::parameter_element_t<Element>>(stream.normal(static_cast<std::uint64_t>(i))));
    exact_images.data()[i] = as_double(images.data() + i, 1)[0];
  }
  nn::network<double, Layout> exact{device, spec.input};
  build(exact, spec);
  exact.compile({.max_batch_size = run.batch, .seed = seed});
  nn::network<Element, Layout> net{device, spec.input};
  build(net, spec);
  net.compile({.max_batch_size = run.batch, .seed = seed, .convolution_algorithm = algorithm});
  draw_parameters(net, seed);
  for (std::size_t k = 0; k < net.parameters().size(); ++k) {
    const auto values = net.parameters()[k].copy_values();
    exact.parameters()[k].assign_values(as_double(values.data(), static_cast<gradus::index_t>(values.size())));
  }
  for (std::size_t k = 0; k < net.buffer_values().size(); ++k) {
    exact.buffer_values()[k] = static_cast<double>(net.buffer_values()[k]);
  }
  const auto truth_view = exact.forward(exact_images.view());
  const std::vector<double> truth = as_double(truth_view.data(), truth_view.size());
  const auto scores = net.forward(images.view());
  const std::vector<double> expected = as_double(scores.data(), scores.size());
  if (!std::all_of(expected.begin(), expected.end(), [](double score) { return std::isfinite(score); })) {
    return;
  }
  ++counts.compared;
  const double allowed = 16 * greatest_distance(expected, truth) + rounding * greatest(truth);
  const std::vector<typename nn::network<Element, Layout>::parameter_element_type> weights{net.values().begin(),
                                                                                           net.values().end()};
  const std::vector<typename nn::network<Element, Layout>::parameter_element_type> statistics{
      net.buffer_values().begin(), net.buffer_values().end()};

  for (const bool folds : {true, false}) {
    const nn::inference_options options{.max_batch_size = run.batch,
                                        .seed = seed + 1,
                                        .fold_batch_norm = folds,
                                        .prepare_weights = run.prepares,
                                        .parallel_branches = run.lanes > 1,
                                        .convolution_algorithm = algorithm};
    net.compile_for_inference(options);
    // Another network gets its weights after it is compiled.
    nn::network<Element, Layout> loaded{device, spec.input};
    build(loaded, spec);
    loaded.compile_for_inference(options);
    std::copy(weights.begin(), weights.end(), loaded.values().begin());
    std::copy(statistics.begin(), statistics.end(), loaded.buffer_values().begin());
    int folded = 0;
    for (const auto& node : net.plan().nodes) {
      folded += node.folded != nn::execution_plan::none ? 1 : 0;
    }
    counts.folded += folded;
    const auto compare = [&](const char* what, const auto& got_view) {
      const std::vector<double> got = as_double(got_view.data(), got_view.size());
      // A plan for inference fuses more sums: in 16 bits they are rounded less often.
      const bool same = folded == 0 && sizeof(Element) >= sizeof(float);
      const double error = greatest_distance(got, same ? expected : truth);
      if (!(error <= (same ? 0.0 : allowed))) {
        BOOST_ERROR("seed " << seed << ": " << what << ", folded " << folded << ": differs by " << error << ", allowed "
                            << (same ? 0.0 : allowed) << " of " << greatest(truth) << '\n'
                            << to_cpp(spec));
      }
    };
    compare("compiled for training before", net.forward(images.view()));
    compare("the second call", net.forward(images.view()));
    compare("weights after compile", loaded.forward(images.view()));
    nn::inference_session session{net};
    compare("session", session.forward(images.view()));
    if (run.lanes == 1) {
      const auto live = static_cast<double>(busiest_bytes(net, run.batch));
      const auto arena = static_cast<double>(net.plan().arena_bytes);
      counts.most_memory = std::max(counts.most_memory, arena / std::max(live, 1.0));
      BOOST_TEST(arena <= 1.05 * live, "seed " << seed << ": " << arena << " bytes for " << live);
    }
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      if (std::holds_alternative<nn::dropout>(spec.layers[i].options)) {
        ++counts.vanished;
        BOOST_TEST(!net.plan().nodes[i].forward);
      }
    }
  }
}

template <class Element>
void check_inference(double rounding) {
  inference_counts counts;
  const std::uint64_t first = gradus_test::number_from_environment("GRADUS_TEST_SEED", 1);
  const std::uint64_t graphs = gradus_test::number_from_environment("GRADUS_TEST_GRAPHS", inference_graphs);
  for (std::uint64_t seed = first; seed < first + graphs; ++seed) {
    gradus_test::draws draw{seed * 2654435761U};
    const graph_spec spec = gradus_test::graph_generator{seed, draw.between(2, 20)}.generate();
    const inference_run run{.threads = static_cast<int>(draw.between(1, 3)),
                            .lanes = draw.chance(20) ? 2 : 1,
                            .prepares = draw.chance(80),
                            .winograd = draw.chance(80),
                            .batch = draw.between(1, 4)};
    draw.chance(50) ? check_graph<Element, gradus::nhwc>(spec, run, seed, rounding, counts)
                    : check_graph<Element, gradus::nchw>(spec, run, seed, rounding, counts);
  }
  BOOST_TEST_MESSAGE(counts.compared << " graphs, " << counts.folded << " folded, " << counts.vanished
                                     << " dropout layers, most memory " << counts.most_memory);
  BOOST_TEST(counts.compared > static_cast<int>(graphs) / 2);
  BOOST_TEST(counts.folded > static_cast<int>(graphs) / 20);
  BOOST_TEST(counts.vanished > 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(random_graphs_for_inference)

BOOST_AUTO_TEST_CASE(of_double) {
  check_inference<double>(1e-9);
}

BOOST_AUTO_TEST_CASE(of_float) {
  check_inference<float>(1e-5);
}

BOOST_AUTO_TEST_CASE(of_bfloat16) {
  check_inference<gradus::bfloat16>(0.03);
}

BOOST_AUTO_TEST_CASE(of_float16) {
  check_inference<gradus::float16>(0.004);
}

BOOST_AUTO_TEST_SUITE_END()
