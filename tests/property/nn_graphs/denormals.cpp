// SPDX-License-Identifier: BSL-1.0
//
// Random graphs whose inputs and parameters are denormal numbers in part: kept or flushed, every result has the same
// bits for any number of threads, whatever the calling thread does with denormal numbers and how it rounds outside.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/tensor/tensor.hpp"
#include "reference/graph_spec.hpp"
#include "reference/random_graphs.hpp"

namespace {

using namespace gradus_test;

/// How a graph is trained.
struct denormal_run {
  int threads = 1;
  bool flush = false;
  int outside = 0;  ///< the calling thread: 0 as it is, 1 flushes denormal numbers, 2 rounds up, 3 both
};

/// What the calling thread does outside.
class outside_scope {
 public:
  explicit outside_scope(int outside) : numbers_{outside % 2 == 1} {
    std::fesetround(outside >= 2 ? FE_UPWARD : FE_TONEAREST);
  }
  outside_scope(const outside_scope&) = delete;
  outside_scope& operator=(const outside_scope&) = delete;
  ~outside_scope() { std::fesetround(FE_TONEAREST); }

 private:
  gradus::floating_point_scope numbers_;
};

/// Normal random numbers, a third of them times a power of two that makes them denormal in float.
[[nodiscard]] std::vector<float> partly_denormal(std::uint64_t seed, const std::string& name, index_t count,
                                                 double deviation) {
  const gradus::random_stream stream{seed, name};
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t e = 0; e < numbers.size(); ++e) {
    const bool denormal = stream.below(3, 2 * e + 1) == 0;
    numbers[e] = static_cast<float>(std::ldexp(deviation * stream.normal(e), denormal ? -130 : 0));
  }
  return numbers;
}

/// The numbers of a training: equal if their bits are.
struct denormal_outcome {
  std::vector<std::uint64_t> bits;
  std::size_t denormals = 0;

  void add(gradus::bfloat16 number) { add(static_cast<float>(number)); }
  template <class Number>
  void add(Number number) {
    denormals += std::fpclassify(number) == FP_SUBNORMAL ? 1U : 0U;
    // Not converted: a conversion would do with it what the calling thread does.
    using bits_of = std::conditional_t<sizeof(Number) == 4, std::uint32_t, std::uint64_t>;
    bits.push_back(std::bit_cast<bits_of>(number));
  }
  template <class Numbers>
  void add_all(const Numbers& numbers) {
    for (const auto each : numbers) {
      add(each);
    }
  }
};

/// Two steps of training, then the scores and the loss. Numbers are drawn before the calling thread is set.
template <class Element, class Layout>
[[nodiscard]] denormal_outcome train_on_denormals(const graph_spec& spec, index_t examples, std::uint64_t seed,
                                                  const denormal_run& run) {
  gradus::cpu device{{.intra_op_threads = run.threads, .flush_denormals = run.flush}};
  gradus::nn::network<Element, Layout> net{device, spec.input};
  build(net, spec);
  net.compile({.max_batch_size = examples, .seed = 5});
  for (const auto& parameter : net.parameters()) {
    const index_t fan = parameter.shape().size() / std::max(index_t{1}, parameter.shape().n);
    parameter.assign_values(partly_denormal(seed, parameter.name(), parameter.shape().size(),
                                            fan == 1 ? 1.0 : std::sqrt(2.0 / static_cast<double>(fan))));
  }
  gradus::image_tensor<Element, Layout> images{device, spec.input.batch(examples)};
  const std::vector<float> pixels = partly_denormal(seed, "images", images.size(), 1);
  std::vector<std::int32_t> labels;
  for (index_t n = 0; n < examples; ++n) {
    labels.push_back(static_cast<std::int32_t>(n % net.output_shape().channels));
  }
  for (index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<Element>(pixels[static_cast<std::size_t>(i)]);
  }
  const auto segments = gradus::parallel::segments_of(net.structure());
  gradus::optim::sgd::state<float, gradus::cpu> rule{
      device, {.momentum = 0.9, .weight_decay = 0.01}, static_cast<index_t>(net.trained_values().size())};

  denormal_outcome result;
  const outside_scope outside{run.outside};
  const auto register_before = gradus::detail::floating_point_register::read();
  for (std::uint64_t step = 0; step < 2; ++step) {
    result.add(net.train_step(images, labels, {.step = step}).loss);
    result.add_all(net.gradients());
    rule.update(device, segments, net.values().data(), net.gradients().data(), 0.05, {});
  }
  result.add_all(net.values());
  result.add_all(net.buffer_values());
  const auto scores = net.forward(images);
  for (index_t i = 0; i < scores.size(); ++i) {
    result.add(scores.data()[i]);
  }
  result.add(net.evaluate(images, labels).loss);
  constexpr auto status = gradus::detail::floating_point_register::status;
  BOOST_TEST((gradus::detail::floating_point_register::read() & ~status) == (register_before & ~status),
             "the register of the calling thread is as before");
  return result;
}

/// Counts of what a check has seen.
struct denormal_counts {
  std::size_t denormals = 0;       ///< numbers, where they are kept
  std::size_t flushed_graphs = 0;  ///< with other results where they are flushed
};

/// A graph on 1 to 4 threads, both settings.
template <class Element, class Layout>
void check_bits(const graph_spec& spec, index_t examples, std::uint64_t seed, denormal_counts& counts) {
  denormal_outcome expected[2];
  for (const bool flush : {false, true}) {
    denormal_outcome& one = expected[flush ? 1 : 0];
    one = train_on_denormals<Element, Layout>(spec, examples, seed, {.threads = 1, .flush = flush});
    for (int k = 1; k < 4; ++k) {
      const denormal_run run{.threads = 1 + (k + static_cast<int>(seed % 4)) % 4, .flush = flush, .outside = k};
      const denormal_outcome other = train_on_denormals<Element, Layout>(spec, examples, seed, run);
      BOOST_TEST_REQUIRE((one.bits == other.bits), "seed " << seed << ", " << run.threads << " threads, "
                                                           << (flush ? "flushed" : "kept") << ", outside "
                                                           << run.outside);
    }
  }
  counts.denormals += expected[0].denormals;
  counts.flushed_graphs += expected[0].bits != expected[1].bits ? 1U : 0U;
}

[[nodiscard]] boost::test_tools::assertion_result can_flush_here(boost::unit_test::test_unit_id /*id*/) {
  return gradus::can_flush_denormals;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(denormals, *boost::unit_test::precondition(can_flush_here))

BOOST_AUTO_TEST_CASE(random_graphs_have_the_same_bits_on_any_number_of_threads) {
  constexpr std::uint64_t graphs = 24;
  denormal_counts counts;
  for (std::uint64_t seed = 1; seed <= graphs; ++seed) {
    draws draw{seed * 2654435761U};
    const graph_spec spec = graph_generator{seed, draw.between(2, 8)}.generate();
    if (seed % 3 == 0) {
      check_bits<gradus::bfloat16, gradus::nhwc>(spec, 3, seed, counts);
    } else if (seed % 3 == 1) {
      check_bits<float, gradus::nhwc>(spec, 5, seed, counts);
    } else {
      check_bits<float, gradus::nchw>(spec, 4, seed, counts);
    }
  }
  BOOST_TEST(counts.denormals > 200U);
  BOOST_TEST(counts.flushed_graphs > graphs / 3);
}

// Large enough that every kernel divides its work.
BOOST_AUTO_TEST_CASE(a_convolutional_network_has_the_same_bits_on_any_number_of_threads) {
  graph_spec spec;
  spec.input = {3, 20, 20};
  spec.layers = {{nn::conv2d{.out_channels = 16, .kernel = {3, 3}, .padding = 1}, {0}},
                 {nn::batch_norm{}, {1}},
                 {nn::relu{}, {2}},
                 {nn::max_pool2d{.kernel = {2, 2}, .stride = {2, 2}}, {3}},
                 {nn::conv2d{.out_channels = 24, .kernel = {1, 1}}, {4}},
                 {nn::group_norm{.groups = 4}, {5}},
                 {nn::conv2d{.out_channels = 16, .kernel = {3, 3}, .padding = 1}, {6}},
                 {nn::dense{.out_features = 10}, {7}}};
  denormal_counts counts;
  check_bits<float, gradus::nhwc>(spec, 12, 1, counts);
  check_bits<float, gradus::nchw>(spec, 12, 2, counts);
  BOOST_TEST(counts.denormals > 1000U);
  BOOST_TEST(counts.flushed_graphs == 2U);
}

BOOST_AUTO_TEST_SUITE_END()
