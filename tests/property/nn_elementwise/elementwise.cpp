// SPDX-License-Identifier: BSL-1.0
//
// Layers from functions: the contract of layers, gradients against finite differences, element types, errors.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gradus/conformance/layer.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/layers/normalize.hpp"
#include "gradus/nn/network.hpp"
#include "network_checks.hpp"
#include "run_layer.hpp"

namespace nn = gradus::nn;
using gradus::index_t;
using gradus_test::run_layer;

namespace {

const nn::value_shape image{4, 5, 7};

void check(const std::vector<gradus::conformance::result>& results) {
  for (const gradus::conformance::result& each : results) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
}

/// The derivative of a function of one variable against a central difference in double, at points around 0 and where a
/// test says.
template <class Function>
void check_derivative(const char* what, const Function& function, double low = -3, double high = 3) {
  const auto layer = nn::elementwise(function);
  std::vector<double> at;
  for (int k = 0; k < 41; ++k) {
    at.push_back(low + (high - low) * (k + 0.37) / 41.5);
  }
  const std::vector<double> ones(at.size(), 1.0);
  const auto value = [&](double shift) {
    std::vector<double> x = at;
    for (double& each : x) {
      each += shift;
    }
    return run_layer(layer, {x}, ones).output;
  };
  const double step = 1e-5;
  const std::vector<double> above = value(step);
  const std::vector<double> below = value(-step);
  const std::vector<double> got = run_layer(layer, {at}, ones).gradients[0];
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double difference = (above[i] - below[i]) / (2 * step);
    BOOST_TEST(std::abs(got[i] - difference) <= 1e-6 * (1 + std::abs(difference)),
               what << " at " << at[i] << ": " << got[i] << ", finite differences say " << difference);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_elementwise)

BOOST_AUTO_TEST_CASE(layers_keep_their_contract) {
  using gradus::conformance::check_layer;
  check(check_layer("swish", nn::elementwise([](auto x) { return x * sigmoid(x); }), {image}));
  check(check_layer("affine", nn::elementwise([](auto x) { return 3 * x - 2; }), {image}));
  check(check_layer("sigmoid", nn::elementwise([](auto x) { return sigmoid(x); }), {image}));
  check(check_layer("gate", nn::elementwise([](auto a, auto b) { return a * sigmoid(b); }), {image, image}));
  check(check_layer("three", nn::elementwise([](auto a, auto b, auto c) { return a * b + tanh(c) * a; }),
                    {image, image, image}));
  check(check_layer("one of two", nn::elementwise([](auto a, auto b) { return where(b > 0, a, 2 * a); }),
                    {image, image}));
}

BOOST_AUTO_TEST_CASE(layers_with_parameters_keep_their_contract) {
  using gradus::conformance::check_layer;
  const auto slope = [](auto x, auto s) { return max(x, 0) + s * min(x, 0); };
  for (const nn::value_shape& shape : {image, nn::value_shape{19, 1, 1}, nn::value_shape{1, 3, 3},
                                       nn::value_shape{8, 4, 4}, nn::value_shape{3, 9, 11}}) {
    check(check_layer("per channel", nn::elementwise(slope, {nn::per_channel("slope", nn::constant(0.25))}), {shape}));
    check(check_layer("per layer", nn::elementwise(slope, {nn::per_layer("slope", nn::constant(0.25))}), {shape}));
    check(check_layer(
        "affine",
        nn::elementwise(
            [](auto x, auto y, auto a, auto b, auto c) { return exp(0.25 * a * x) * c + b * y; },
            {nn::per_channel("a", nn::ones()), nn::per_channel("b", nn::zeros()), nn::per_layer("c", nn::ones())}),
        {shape, shape}));
  }
}

BOOST_AUTO_TEST_CASE(layers_with_fixed_numbers_keep_their_contract) {
  using gradus::conformance::check_layer;
  const nn::normalize numbers{.mean = {0.5, -1, 2, 0}, .deviation = {0.25, 1, 3, 0.1}};
  check(check_layer("normalize", numbers, {image}));
  check(check_layer("normalize a vector", nn::normalize{.deviation = std::vector<double>(19, 0.3)}, {{19, 1, 1}}));
  check(check_layer("normalize without numbers", nn::normalize{}, {image}));
}

BOOST_AUTO_TEST_CASE(derivatives_agree_with_finite_differences) {
  check_derivative("x", [](auto x) { return x; });
  check_derivative("5 - x", [](auto x) { return 5 - x; });
  check_derivative("-x / 3", [](auto x) { return -x / 3; });
  check_derivative("x x x", [](auto x) { return x * x * x; });
  check_derivative("1 / (1 + x^2)", [](auto x) { return 1 / (1 + square(x)); });
  check_derivative("x / (2 + |x|)", [](auto x) { return x / (2 + abs(x)); });
  check_derivative("exp", [](auto x) { return exp(x); });
  check_derivative("exp(-x^2)", [](auto x) { return exp(-square(x)); });
  check_derivative(
      "log", [](auto x) { return log(x); }, 0.1, 4);
  check_derivative("log(1 + x^2)", [](auto x) { return log(1 + square(x)); });
  check_derivative(
      "sqrt", [](auto x) { return sqrt(x); }, 0.1, 4);
  check_derivative("sqrt(1 + x^2) - 1", [](auto x) { return sqrt(1 + square(x)) - 1; });
  check_derivative("tanh", [](auto x) { return tanh(x); });
  check_derivative("sigmoid", [](auto x) { return sigmoid(x); });
  check_derivative("softplus", [](auto x) { return softplus(x); });
  check_derivative("mish", [](auto x) { return x * tanh(softplus(x)); });
  check_derivative("erf", [](auto x) { return erf(x); });
  check_derivative("gelu", [](auto x) { return 0.5 * x * (1 + erf(x / 1.4142135623730951)); });
  check_derivative("relu", [](auto x) { return relu(x); });
  check_derivative("relu6", [](auto x) { return min(relu(x * 3), 6); });
  check_derivative("clamp", [](auto x) { return clamp(2 * x, -1.5, 3) * x; });
  check_derivative("max(x, x^2)", [](auto x) { return max(x, square(x)); });
  check_derivative("min(x, 1 - x)", [](auto x) { return min(x, 1 - x); });
  check_derivative(
      "pow 2.5", [](auto x) { return pow(x, 2.5); }, 0.1, 3);
  check_derivative("pow 3", [](auto x) { return pow(x, 3); });
  check_derivative(
      "pow -1.5", [](auto x) { return pow(x, -1.5) * x; }, 0.2, 3);
  check_derivative("where", [](auto x) { return where(x > 0.5 || x < -1, square(x), 2 * x); });
  check_derivative("where of where", [](auto x) { return where(x >= 0, where(x <= 1, x * x, 2 * x - 1), -x); });
  check_derivative("where with not", [](auto x) { return where(!(x > 1) && x != 5, exp(x), x); });
  check_derivative("softsign of a sum", [](auto x) {
    const auto s = x + 0.5 * sigmoid(3 * x);
    return s / (1 + abs(s));
  });
  check_derivative("a deep one", [](auto x) {
    const auto a = tanh(x * 0.7 + 0.1);
    const auto b = exp(-abs(a - 0.3));
    return a * b - log(1 + square(a + b)) / (1 + b);
  });
  check_derivative("a variable in many parts", [](auto x) { return (x + 1) * (x - 1) * sigmoid(x) / (x * x + 2) - x; });
}

BOOST_AUTO_TEST_CASE(elements_of_16_bits_are_computed_in_float) {
  const auto compare = []<class Element>(Element, const auto& layer, int inputs) {
    std::vector<std::vector<Element>> stored(static_cast<std::size_t>(inputs));
    std::vector<std::vector<float>> wide(static_cast<std::size_t>(inputs));
    const std::size_t count = 37;
    for (std::size_t k = 0; k < stored.size(); ++k) {
      for (std::size_t i = 0; i < count; ++i) {
        stored[k].push_back(Element{static_cast<float>(static_cast<int>(i * (7 + k)) % 23 - 11) / 4});
        wide[k].push_back(static_cast<float>(stored[k].back()));
      }
    }
    const auto got = run_layer(layer, stored, std::vector<Element>(count, Element{1.5F}));
    auto expected = run_layer(layer, wide, std::vector<float>(count, 1.5F));
    for (std::size_t i = 0; i < count; ++i) {
      BOOST_TEST(static_cast<float>(got.output[i]) == static_cast<float>(Element{expected.output[i]}));
      for (std::size_t k = 0; k < stored.size(); ++k) {
        BOOST_TEST(static_cast<float>(got.gradients[k][i]) == static_cast<float>(Element{expected.gradients[k][i]}));
      }
    }
  };
  const auto swish = nn::elementwise([](auto x) { return x * sigmoid(x); });
  const auto gate = nn::elementwise([](auto a, auto b) { return a * max(b, 0.5); });
  compare(gradus::bfloat16{}, swish, 1);
  compare(gradus::float16{}, swish, 1);
  compare(gradus::bfloat16{}, gate, 2);
  compare(gradus::float16{}, gate, 2);
}

// An element has the same bits at every position and for every number of threads.
BOOST_AUTO_TEST_CASE(elements_do_not_depend_on_their_position) {
  const auto layer = nn::elementwise([](auto x) { return erf(x) + softplus(x) * tanh(x); });
  for (const std::size_t count : {1U, 3U, 4U, 5U, 8U, 31U, 16'385U, 40'003U}) {
    const auto got = run_layer(layer, std::vector<std::vector<float>>{std::vector<float>(count, 0.7F)},
                               std::vector<float>(count, 1.0F));
    bool same = true;
    for (std::size_t i = 1; i < count; ++i) {
      same = same && got.output[i] == got.output[0] && got.gradients[0][i] == got.gradients[0][0];
    }
    BOOST_TEST(same, count);
  }
}

BOOST_AUTO_TEST_CASE(relu_by_elementwise_is_relu) {
  std::vector<float> x;
  for (int i = -20; i <= 20; ++i) {
    x.push_back(static_cast<float>(i) / 7);
  }
  x.push_back(std::numeric_limits<float>::quiet_NaN());
  x.push_back(std::numeric_limits<float>::infinity());
  x.push_back(-std::numeric_limits<float>::infinity());
  const std::vector<float> dy(x.size(), 1.25F);
  const auto expected = run_layer(nn::relu{}, {x}, dy);
  const auto got = run_layer(nn::elementwise([](auto v) { return relu(v); }), {x}, dy);
  for (std::size_t i = 0; i < x.size(); ++i) {
    BOOST_TEST((got.output[i] == expected.output[i] || (std::isnan(got.output[i]) && std::isnan(expected.output[i]))));
    BOOST_TEST(got.gradients[0][i] == expected.gradients[0][i]);
  }
}

// In a network: values that several layers read, so that gradients are added, and outputs that are computed again.
BOOST_AUTO_TEST_CASE(networks_have_the_gradients_of_finite_differences) {
  const auto check_network = []<class Layout>(Layout, bool recompute) {
    gradus::cpu device{{.intra_op_threads = 2}};
    nn::network<double, Layout> net{device, {2, 5, 3}};
    nn::value x = net.add("before", nn::conv2d{.out_channels = 3}, net.input());
    const nn::value swish = net.add("swish", nn::elementwise([](auto v) { return v * sigmoid(v); }), x);
    const nn::value gate = net.add("gate", nn::elementwise([](auto a, auto b) { return a * tanh(b); }), {x, swish});
    x = net.add("joined", nn::elementwise([](auto a, auto b, auto c) { return a + b * c; }), {x, swish, gate});
    x = net.add("relu", nn::relu{}, x);
    x = net.add("curve",
                nn::elementwise([](auto a, auto b, auto p, auto q) { return p * a + q * sigmoid(p * b); },
                                {nn::per_channel("p", nn::normal(0.5)), nn::per_layer("q", nn::constant(0.75))}),
                {x, gate});
    x = net.add("twice", nn::elementwise([](auto a, auto b) { return a * b; }), {x, x});
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
    net.compile({.max_batch_size = 5, .seed = 4, .recompute = recompute});
    const gradus_test::random_batch<double, Layout> batch{device, {4, 2, 5, 3}, 3};
    const auto worst = gradus_test::check_gradients(net, batch);
    BOOST_TEST(worst.relative < 1e-5,
               Layout::name << ": relative difference " << worst.relative << " at " << worst.where);
    return net.train_step(batch.images, batch.labels).loss;
  };
  const double nchw = check_network(gradus::nchw{}, false);
  BOOST_TEST(check_network(gradus::nhwc{}, false) == nchw, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(check_network(gradus::nchw{}, true) == nchw);
}

BOOST_AUTO_TEST_CASE(wrong_inputs_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, image};
  const auto text = [&](const auto& add) -> std::string {
    try {
      add();
    } catch (const gradus::error& failure) {
      return std::string{failure.message()};
    }
    return "nothing was thrown";
  };
  const nn::value narrow = net.add("narrow", nn::conv2d{.out_channels = 2}, net.input());
  const auto gate = nn::elementwise([](auto a, auto b) { return a * sigmoid(b); });
  BOOST_TEST(text([&] { net.add("gate", gate, net.input()); }).find("expected 2 input value(s), got 1") !=
             std::string::npos);
  BOOST_TEST(text([&] {
               net.add("gate", gate, {net.input(), narrow});
             }).find("expected values of one shape, got the image (4, 5, 7) and the image (2, 5, 7)") !=
             std::string::npos);
  const nn::value flat = net.add("flat", nn::flatten{}, net.input());
  BOOST_TEST(text([&] { net.add("prelu", nn::prelu{}, flat); }).find("add the layer before nn::flatten") !=
             std::string::npos);
  BOOST_TEST(text([&] { net.add("prelu", nn::prelu{.per_channel = false}, flat); }) == "nothing was thrown");
}

BOOST_AUTO_TEST_SUITE_END()
