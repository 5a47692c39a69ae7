// SPDX-License-Identifier: BSL-1.0
//
// Networks of bfloat16 and of float16: float parameters, steps close to those of float, the same bits for any number of
// threads.
#include <gradus/core/bfloat16.hpp>
#include <gradus/core/float16.hpp>
#include <gradus/nn/layers.hpp>
#include <gradus/nn/loss.hpp>
#include <gradus/nn/network.hpp>
#include <gradus/optim/sgd.hpp>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../../support/network_checks.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::bfloat16;
using gradus::float16;

template <class Element, class Layout>
struct network_kind {
  using element = Element;
  using layout = Layout;
};
using kinds = std::tuple<network_kind<bfloat16, gradus::nchw>, network_kind<bfloat16, gradus::nhwc>,
                         network_kind<float16, gradus::nchw>, network_kind<float16, gradus::nhwc>>;
/// How far off results may be, in proportion to bfloat16.
template <class Element>
constexpr double share = std::is_same_v<Element, float16> ? 0.5 : 1.0;

constexpr gradus::index_t batch_size = 12;
const nn::value_shape input_shape{3, 12, 11};

/// Every kind of layer; a residual sum, a fused and a free ReLU.
template <class Network>
void build(Network& net) {
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 12, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("norm1", nn::batch_norm{}, x);
  x = net.add("relu1", nn::relu{}, x);
  x = net.add("pool1", nn::max_pool2d{}, x);
  x = net.add("response", nn::local_response_norm{}, x);
  const nn::value wide =
      net.add("conv2", nn::conv2d{.out_channels = 12, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("sum", nn::add{}, {wide, x});
  x = net.add("relu2", nn::relu{}, x);
  const nn::value branch = net.add("branch", nn::conv2d{.out_channels = 5, .stride = {1, 1}}, x);
  x = net.add("concat", nn::concat{}, {x, branch});
  x = net.add("pad", nn::pad_channels{.before = 1, .after = 2}, x);
  x = net.add("average", nn::average_pool2d{}, x);
  x = net.add("flatten", nn::flatten{}, x);
  x = net.add("hidden", nn::dense{.out_features = 40}, x);
  x = net.add("relu3", nn::relu{}, x);
  x = net.add("dropout", nn::dropout{.rate = 0.2}, x);
  x = net.add("scores", nn::dense{.out_features = 6}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = batch_size, .seed = 4});
}

/// Images that both hold, so that all networks see the same.
template <class Element, class Layout>
gradus_test::random_batch<Element, Layout> make_batch(gradus::cpu& device) {
  const gradus_test::random_batch<float, Layout> wide{device, input_shape.batch(batch_size), 6};
  gradus_test::random_batch<Element, Layout> batch{device, input_shape.batch(batch_size), 6};
  for (gradus::index_t i = 0; i < wide.images.size(); ++i) {
    batch.images.data()[i] = static_cast<Element>(static_cast<float>(float16{bfloat16{wide.images.data()[i]}}));
  }
  return batch;
}

/// |a - b| / |b| in the Euclidean norm.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(apart / (norm + 1e-30));
}

struct outcome {
  std::vector<float> values;
  std::vector<float> gradients;
  std::vector<float> statistics;
  std::vector<double> losses;
};

template <class Element, class Layout>
outcome train(int threads, int steps) {
  gradus::cpu device{{.intra_op_threads = threads}};
  nn::network<Element, Layout> net{device, input_shape};
  build(net);
  const auto batch = make_batch<Element, Layout>(device);
  const gradus::optim::sgd rule{.momentum = 0.9};
  gradus::optim::sgd::state<float> optimizer{device, rule, static_cast<gradus::index_t>(net.values().size())};
  const std::vector<gradus::optim::segment> all{
      {.name = "all", .offset = 0, .size = static_cast<gradus::index_t>(net.values().size())}};
  outcome result;
  for (int step = 0; step < steps; ++step) {
    result.losses.push_back(
        net.train_step(batch.images, batch.labels, {.step = static_cast<std::uint64_t>(step)}).loss /
        static_cast<double>(batch_size));
    optimizer.update(device, all, net.values().data(), net.gradients().data(), 0.02);
  }
  result.values.assign(net.values().begin(), net.values().end());
  result.gradients.assign(net.gradients().begin(), net.gradients().end());
  result.statistics.assign(net.buffer_values().begin(), net.buffer_values().end());
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_sixteen_bits)

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_is_close_to_that_of_float, Kind, kinds) {
  using Element = typename Kind::element;
  using Layout = typename Kind::layout;
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<Element, Layout> narrow{device, input_shape};
  nn::network<float, Layout> wide{device, input_shape};
  static_assert(std::is_same_v<typename nn::network<Element, Layout>::parameter_type,
                               typename nn::network<float, Layout>::parameter_type>);
  build(narrow);
  build(wide);
  BOOST_TEST(narrow.describe() == wide.describe());
  BOOST_TEST((std::vector<float>(narrow.values().begin(), narrow.values().end()) ==
              std::vector<float>(wide.values().begin(), wide.values().end())));
  BOOST_TEST(narrow.plan().arena_bytes < wide.plan().arena_bytes * 6 / 10);

  const auto in_16_bits = make_batch<Element, Layout>(device);
  const auto in_32_bits = make_batch<float, Layout>(device);
  const nn::step_options options{.step = 3, .first_example = 11};
  const auto got = narrow.train_step(in_16_bits.images, in_16_bits.labels, options);
  const auto want = wide.train_step(in_32_bits.images, in_32_bits.labels, options);
  BOOST_TEST(std::abs(got.loss - want.loss) < 0.01 * share<Element> * want.loss);
  BOOST_TEST(got.loss != want.loss);  // it is rounded
  for (std::size_t k = 0; k < wide.parameters().size(); ++k) {
    const auto& parameter = wide.parameters()[k];
    if (parameter.name() == "conv1.bias") {
      continue;  // the normalization behind it takes it away: its gradient is rounding alone
    }
    const double apart = relative_difference(narrow.parameters()[k].copy_gradient(), parameter.copy_gradient());
    BOOST_TEST(apart < 0.15 * share<Element>,
               parameter.name() << " " << apart);  // some maxima are at other positions, some ReLUs closed
  }
  const auto statistics = [](auto& net) {
    return std::vector<float>(net.buffer_values().begin(), net.buffer_values().end());
  };
  BOOST_TEST(relative_difference(statistics(narrow), statistics(wide)) < 0.004 * share<Element>);
  const auto evaluated = narrow.evaluate(in_16_bits.images, in_16_bits.labels);
  BOOST_TEST(std::abs(evaluated.loss - wide.evaluate(in_32_bits.images, in_32_bits.labels).loss) <
             0.02 * share<Element> * evaluated.loss);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(training_learns_with_the_same_bits_for_any_number_of_threads, Kind, kinds) {
  using Element = typename Kind::element;
  using Layout = typename Kind::layout;
  const auto one = train<Element, Layout>(1, 30);
  BOOST_TEST(one.losses.back() < 0.3 * one.losses.front());
  for (const int threads : {2, 3}) {
    const auto other = train<Element, Layout>(threads, 30);
    BOOST_TEST((other.losses == one.losses));
    BOOST_TEST((other.values == one.values));
    BOOST_TEST((other.gradients == one.gradients));
    BOOST_TEST((other.statistics == one.statistics));
  }
}

// Updates far below the precision of 16 bits are not lost: the weights that learn are float.
using elements = std::tuple<bfloat16, float16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(small_updates_add_up, Element, elements) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<Element, gradus::nhwc> net{device, input_shape};
  build(net);
  const std::vector<float> before(net.values().begin(), net.values().end());
  const auto batch = make_batch<Element, gradus::nhwc>(device);
  (void)net.train_step(batch.images, batch.labels);
  for (int step = 0; step < 100; ++step) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      net.values()[i] -= 1e-5F * net.gradients()[i];
    }
  }
  std::vector<float> moved(before.size());
  std::vector<float> wanted(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    moved[i] = before[i] - net.values()[i];
    wanted[i] = 1e-3F * net.gradients()[i];
  }
  BOOST_TEST(relative_difference(moved, wanted) < 0.05);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_not_finite_is_found, Element, elements) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<Element, gradus::nhwc> net{device, input_shape};
  build(net);
  auto batch = make_batch<Element, gradus::nhwc>(device);
  BOOST_TEST(net.find_non_finite(batch.images, {}).where == "");
  batch.images(1, 2, 3, 4) = Element{std::numeric_limits<float>::quiet_NaN()};
  BOOST_TEST(net.find_non_finite(batch.images, {}).where == "the input");
  BOOST_TEST(std::isnan(net.train_step(batch.images, batch.labels).loss));
  net.find_parameter("conv2.weight").assign_values(std::vector<float>(12 * 12 * 9, INFINITY));
  BOOST_TEST(net.find_non_finite(batch.images, {}).where == "parameter conv2.weight");
}

BOOST_AUTO_TEST_SUITE_END()
