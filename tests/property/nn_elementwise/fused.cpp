// SPDX-License-Identifier: BSL-1.0
//
// ReLU6 and leaky ReLU in networks: against PyTorch (tests/golden/activations_fused.txt), fused and by themselves, and
// behind a layer that knows only ReLU.
#include <boost/test/unit_test.hpp>

#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../../support/network_checks.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/network.hpp"
#include "run_layer.hpp"
#include "source_directory.hpp"

namespace {

namespace fused {

namespace nn = gradus::nn;
using gradus::index_t;
using gradus::kernels::activation;
using numbers_by_name = std::map<std::string, std::vector<double>>;

/// Numbers by "case which".
numbers_by_name golden() {
  std::ifstream file{path_in_tests("golden/activations_fused.txt")};
  BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/activations_fused.txt is missing");
  numbers_by_name cases;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words{line};
    std::string name;
    std::string which;
    if (words >> name >> which && name != "#") {
      for (double number = 0; words >> number;) {
        cases[name + " " + which].push_back(number);
      }
    }
  }
  return cases;
}

/// As values() of activations_fused.py.
double value_of(index_t i, index_t first, double divisor) {
  return static_cast<double>((37 * i * i + 101 * i + first) % 257 - 128) / divisor;
}

/// The networks of activations_fused.py; the activation comes after layer `producer`.
template <class Network, class Activation>
void build(Network& net, const std::string& producer, const Activation& act) {
  nn::value x = net.input();
  if (producer == "dense") {
    x = net.add("act", act, net.add("first", nn::dense{.out_features = 7}, x));
  } else {
    x = net.add("first", nn::conv2d{.out_channels = 4}, x);
    const nn::conv2d three{.out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same()};
    if (producer == "norm") {
      x = net.add("norm", nn::batch_norm{}, x);
    } else if (producer == "sum") {
      x = net.add("sum", nn::add{}, {net.add("second", three, x), x});
    }
    x = net.add("act", act, x);
    nn::conv2d last = three;
    last.out_channels = 3;
    x = net.add("last", last, x);
  }
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
}

template <class Layout, class Activation>
void check_case(const numbers_by_name& expected, const std::string& name, const std::string& producer,
                const Activation& act, bool optimized) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<double, Layout> net{device, {.channels = 3, .height = 5, .width = 4}};
  build(net, producer, act);
  nn::compile_options options{.max_batch_size = 2};
  if (!optimized) {
    options.optimizations = nn::plan_optimizations::none();
  }
  net.compile(options);
  bool fuses = false;
  for (const auto& node : net.plan().nodes) {
    fuses = fuses || node.activation != activation::identity;
  }
  BOOST_TEST(fuses == optimized);
  for (const auto& parameter : net.parameters()) {
    auto values = parameter.copy_values();
    index_t first = 0;
    for (const char letter : parameter.name()) {
      first += letter;
    }
    const double divisor = parameter.name().find("norm") != std::string::npos ? 8 : 128;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = value_of(static_cast<index_t>(i), first, divisor) + 1.0 / 512;
    }
    parameter.assign_values(values);
  }
  gradus::image_tensor<double, Layout> x{device, {2, 3, 5, 4}};
  index_t i = 0;
  for (index_t n = 0; n < 2; ++n) {
    for (index_t c = 0; c < 3; ++c) {
      for (index_t h = 0; h < 5; ++h) {
        for (index_t w = 0; w < 4; ++w) {
          x(n, c, h, w) = value_of(i++, 5, 8);
        }
      }
    }
  }
  const std::vector<std::int32_t> labels{2, 0};
  std::feclearexcept(FE_ALL_EXCEPT);
  const double loss = net.train_step(x, labels, {}).loss / 2;
  BOOST_TEST(std::fetestexcept(FE_INVALID) == 0, "a step raises FE_INVALID, which programs trap");
  const auto close = [&](double got, double right, const std::string& what) {
    BOOST_TEST(std::abs(got - right) <= 1e-10 * (1 + std::abs(right)),
               name << " " << what << ": " << got << ", not " << right);
  };
  const std::string of = name + "_" + producer + " ";
  close(loss, expected.at(of + "loss").at(0), producer + " loss");
  for (const auto& parameter : net.parameters()) {
    const std::vector<double>& right = expected.at(of + std::string{parameter.name()});
    const auto got = parameter.copy_gradient();
    BOOST_REQUIRE_EQUAL(got.size(), right.size());
    for (std::size_t e = 0; e < right.size(); ++e) {
      close(got[e], right[e], producer + " " + std::string{parameter.name()});
    }
  }
}

/// y = x / 2, which fuses and masks ReLU and nothing else.
struct halved {
  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const halved& /*options*/) {}
    std::string_view kind() const noexcept override { return "halved"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    nn::layer_traits traits() const noexcept override {
      return {.backward_reads_inputs = false,
              .backward_reads_output = false,
              .fuses_activation = true,
              .masks_input_gradients = true};
    }
    void set_activation(activation act) override {
      BOOST_TEST((act == activation::identity || act == activation::relu));
      relu_ = act == activation::relu;
    }
    void forward(const typename base::forward_call& call) override {
      for (index_t i = 0; i < call.output.size(); ++i) {
        const Element half = call.inputs[0].data()[i] / 2;
        call.output.data()[i] = relu_ && half < 0 ? Element{0} : half;
      }
    }
    void backward(const typename base::backward_call& call) override {
      const auto& dx = call.input_gradients[0];
      for (index_t i = 0; dx.needed() && i < dx.images.size(); ++i) {
        Element& to = dx.images.data()[i];
        to = call.output_gradient.data()[i] / 2 + (dx.epilogue.accumulate ? to : Element{0});
        if (dx.epilogue.relu_output != nullptr && !(dx.epilogue.relu_output[i] > 0)) {
          to = 0;
        }
      }
    }

   private:
    bool relu_ = false;
  };
};

}  // namespace fused

}  // namespace

BOOST_AUTO_TEST_SUITE(fused_activations)

BOOST_AUTO_TEST_CASE(networks_train_as_those_of_pytorch) {
  const auto expected = fused::golden();
  for (const std::string producer : {"conv", "norm", "sum", "dense"}) {
    for (const bool optimized : {true, false}) {
      const gradus::nn::leaky_relu leaky{.negative_slope = 0.125};
      fused::check_case<gradus::nchw>(expected, "relu6", producer, gradus::nn::relu6{}, optimized);
      fused::check_case<gradus::nhwc>(expected, "relu6", producer, gradus::nn::relu6{}, optimized);
      fused::check_case<gradus::nchw>(expected, "leaky_relu", producer, leaky, optimized);
      fused::check_case<gradus::nhwc>(expected, "leaky_relu", producer, leaky, optimized);
    }
  }
}

BOOST_AUTO_TEST_CASE(kinks_infinities_and_nan) {
  using gradus_test::run_layer;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> x{-infinity, -1, 0, 3, 6, 7, infinity, std::nan("")};
  const std::vector<double> dy(x.size(), 2);
  const auto six = run_layer(gradus::nn::relu6{}, {x}, dy);
  const std::vector<double> values{0, 0, 0, 3, 6, 6, 6};
  const std::vector<double> slopes{0, 0, 0, 2, 0, 0, 0, 0};
  const auto leaky = run_layer(gradus::nn::leaky_relu{.negative_slope = 0.25}, {x}, dy);
  const auto falling = run_layer(gradus::nn::leaky_relu{.negative_slope = -0.25}, {x}, dy);
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    BOOST_TEST(six.output[i] == values[i]);
    BOOST_TEST(leaky.output[i] == (x[i] > 0 ? x[i] : 0.25 * x[i]));
    BOOST_TEST(leaky.gradients[0][i] == (x[i] > 0 ? 2 : 0.5));
    BOOST_TEST(falling.output[i] == (x[i] > 0 ? x[i] : -0.25 * x[i]));
    BOOST_TEST(falling.gradients[0][i] == (x[i] > 0 ? 2 : -0.5));
  }
  BOOST_TEST(six.gradients[0] == slopes, boost::test_tools::per_element());
  BOOST_TEST(std::isnan(six.output.back()));
  BOOST_TEST(std::isnan(leaky.output.back()));
}

BOOST_AUTO_TEST_CASE(slopes_that_hide_the_sign_are_not_fused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  for (const double slope : {-0.5, 0.0, 0.5}) {
    gradus::nn::network<double, gradus::nchw> net{device, {2, 4, 4}};
    gradus::nn::value x = net.add("conv", gradus::nn::conv2d{.out_channels = 3}, net.input());
    x = net.add("leaky", gradus::nn::leaky_relu{.negative_slope = slope}, x);
    net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 3}, x));
    net.compile({.max_batch_size = 2});
    BOOST_TEST(net.plan().nodes[1].forward == (slope <= 0));
    const gradus_test::random_batch<double, gradus::nchw> batch{device, {2, 2, 4, 4}, 3};
    const auto worst = gradus_test::check_gradients(net, batch);
    BOOST_TEST(worst.relative < 1e-6, worst.where);
  }
  gradus::nn::network<double, gradus::nchw> net{device, {2, 4, 4}};
  std::string message;
  try {
    net.add("leaky", gradus::nn::leaky_relu{.negative_slope = std::nan("")}, net.input());
  } catch (const gradus::configuration_error& error) {
    message = error.what();
  }
  BOOST_TEST(message.find("expected a finite negative_slope, got nan") != std::string::npos, message);
}

BOOST_AUTO_TEST_CASE(activations_follow_each_other) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto gradients = [&](const gradus::nn::plan_optimizations& optimizations, std::size_t& passes) {
    gradus::nn::network<double, gradus::nhwc> net{device, {2, 4, 4}};
    gradus::nn::value x = net.add("conv", gradus::nn::conv2d{.out_channels = 3}, net.input());
    const gradus::nn::leaky_relu leaky{.negative_slope = 0.5};
    x = net.add("leaky1", leaky, x);
    x = net.add("leaky2", leaky, x);  // a slope of 0.25
    x = net.add("six1", gradus::nn::relu6{}, x);
    x = net.add("six2", gradus::nn::relu6{}, x);  // changes nothing
    x = net.add("relu", gradus::nn::relu{}, x);
    net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 3}, x));
    net.compile({.max_batch_size = 2, .seed = 3, .optimizations = optimizations});
    passes = 0;
    for (const auto& node : net.plan().nodes) {
      passes += node.forward ? 1U : 0U;
    }
    const gradus_test::random_batch<double, gradus::nhwc> batch{device, {2, 2, 4, 4}, 3};
    net.train_step(batch.images, batch.labels, {});
    return std::vector<double>(net.gradients().begin(), net.gradients().end());
  };
  std::size_t fused = 0;
  std::size_t alone = 0;
  const auto got = gradients({}, fused);
  const auto expected = gradients(gradus::nn::plan_optimizations::none(), alone);
  BOOST_TEST(alone == 7U);
  BOOST_TEST(fused < alone);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(std::abs(got[i] - expected[i]) <= 1e-14);
  }
}

BOOST_AUTO_TEST_CASE(a_layer_that_knows_only_relu_fuses_and_masks_only_relu) {
  using gradus::kernels::activation;
  using duty = gradus::nn::execution_plan::duty;
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto check = [&](const auto& options, bool known) {
    gradus::nn::network<double, gradus::nchw> net{device, {2, 4, 4}};
    gradus::nn::value x = net.add("conv", gradus::nn::conv2d{.out_channels = 3}, net.input());
    x = net.add("first", options, x);
    x = net.add("halved", fused::halved{}, x);
    x = net.add("second", options, x);
    net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 3}, x));
    net.compile({.max_batch_size = 2});
    const auto& plan = net.plan();
    BOOST_TEST((plan.nodes[2].activation == activation::identity) == !known);
    BOOST_TEST(plan.nodes[3].forward == !known);  // in place
    BOOST_TEST(plan.slot_of_value[3] == plan.slot_of_value[4]);
    BOOST_TEST((plan.nodes[2].targets[0].mask == (known ? duty::layer : duty::network)));
    const gradus_test::random_batch<double, gradus::nchw> batch{device, {2, 2, 4, 4}, 3};
    const auto worst = gradus_test::check_gradients(net, batch);
    BOOST_TEST(worst.relative < 1e-6, worst.where);
  };
  check(gradus::nn::relu{}, true);
  check(gradus::nn::relu6{}, false);
  check(gradus::nn::leaky_relu{.negative_slope = 0.25}, false);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(results_of_16_bits_are_rounded_once, Element,
                              decltype(std::tuple<gradus::bfloat16, gradus::float16>{})) {
  using gradus::kernels::activation;
  gradus::cpu device{{.intra_op_threads = 1}};
  constexpr std::size_t count = 1003;
  std::vector<Element> a;
  std::vector<Element> b;
  const gradus::random_stream stream{5, "fused"};
  for (std::size_t i = 0; i < count; ++i) {
    a.push_back(static_cast<Element>(static_cast<float>(4 * stream.normal(i))));
    b.push_back(static_cast<Element>(static_cast<float>(stream.normal(count + i))));
  }
  const auto bits = [](Element element) { return element.bits(); };
  for (const activation& act : {activation::leaky_relu(0.3), activation::relu6}) {
    std::vector<Element> y(count);
    add_forward(device, gradus::index_t{count}, a.data(), b.data(), y.data(), act);
    for (std::size_t i = 0; i < count; ++i) {
      const float sum = static_cast<float>(a[i]) + static_cast<float>(b[i]);
      const float low = act.slope == 0 ? 0.0F : static_cast<float>(act.slope) * sum;
      const float right = sum < 0 ? low : act.cap < static_cast<double>(sum) ? static_cast<float>(act.cap) : sum;
      BOOST_TEST(bits(y[i]) == bits(static_cast<Element>(right)));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
