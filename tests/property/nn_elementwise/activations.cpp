// SPDX-License-Identifier: BSL-1.0
//
// Activation functions against PyTorch's definitions of values and derivatives, in double.
#include <boost/test/unit_test.hpp>

#include <cfenv>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gradus/conformance/layer.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "run_layer.hpp"

namespace nn = gradus::nn;
using gradus_test::run_layer;

namespace {

struct expected {
  double value;
  double derivative;
};

constexpr double inf = std::numeric_limits<double>::infinity();

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Compares a layer with a definition in float and double, at kinks, far from 0 and in between.
template <class Options, class Definition>
void check(const char* what, const Options& options, const Definition& definition) {
  const auto compare = [&]<class Element>(Element, double tolerance) {
    std::vector<Element> x;
    for (const double each : {-1000.0, -87.0, -30.0, -10.0, -5.5, -3.0, -2.5, -1.0, -0.3, -1e-3, -1e-9, 0.0,  1e-9,
                              1e-3,    0.4,   1.0,   2.0,   3.0,  3.5,  6.0,  12.0, 19.0, 20.5,  50.0,  90.0, 1000.0}) {
      x.push_back(static_cast<Element>(each));
    }
    std::feclearexcept(FE_ALL_EXCEPT);
    const auto got =
        run_layer(options, std::vector<std::vector<Element>>{x}, std::vector<Element>(x.size(), Element{2}));
    BOOST_TEST(std::fetestexcept(FE_INVALID) == 0, what << " raises FE_INVALID, which programs trap");
    for (std::size_t i = 0; i < x.size(); ++i) {
      const expected right = definition(static_cast<double>(x[i]));
      BOOST_TEST(std::abs(static_cast<double>(got.output[i]) - right.value) <= tolerance * (1 + std::abs(right.value)),
                 what << "(" << x[i] << ") is " << got.output[i] << " instead of " << right.value);
      BOOST_TEST(std::abs(static_cast<double>(got.gradients[0][i]) - 2 * right.derivative) <=
                     4 * tolerance * (1 + std::abs(right.derivative)),
                 what << "'(" << x[i] << ") is " << got.gradients[0][i] / 2 << " instead of " << right.derivative);
    }
  };
  compare(double{}, 4e-15);
  compare(float{}, 1e-6);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(activations)

BOOST_AUTO_TEST_CASE(values_and_derivatives_are_those_of_pytorch) {
  check("leaky_relu", nn::leaky_relu{.negative_slope = 0.125}, [](double x) {
    return x > 0 ? expected{x, 1} : expected{0.125 * x, 0.125};
  });
  check("relu6", nn::relu6{}, [](double x) { return expected{x < 0 ? 0 : x > 6 ? 6 : x, x > 0 && x < 6 ? 1.0 : 0.0}; });
  check("elu", nn::elu{.alpha = 1.5}, [](double x) {
    return x > 0 ? expected{x, 1} : expected{1.5 * std::expm1(x), 1.5 * std::exp(x)};
  });
  check("gelu", nn::gelu{}, [](double x) {
    const double normal = 0.5 * std::erfc(-x / std::sqrt(2.0));
    return expected{x * normal, normal + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0))};
  });
  check("gelu_tanh", nn::gelu_tanh{}, [](double x) {
    const double factor = std::sqrt(2 / std::acos(-1.0));
    const double t = std::tanh(factor * (x + 0.044715 * x * x * x));
    return expected{0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * factor * (1 + 3 * 0.044715 * x * x)};
  });
  check("silu", nn::silu{}, [](double x) {
    const double s = logistic(x);
    return expected{x * s, s * (1 + x * (1 - s))};
  });
  check("tanh", nn::tanh{}, [](double x) { return expected{std::tanh(x), 1 - std::tanh(x) * std::tanh(x)}; });
  check("sigmoid", nn::sigmoid{}, [](double x) { return expected{logistic(x), logistic(x) * (1 - logistic(x))}; });
  check("softplus", nn::softplus{}, [](double x) {
    return x > 20 ? expected{x, 1} : expected{std::log1p(std::exp(x)), logistic(x)};
  });
  check("softplus", nn::softplus{.beta = 3, .threshold = 8}, [](double x) {
    return 3 * x > 8 ? expected{x, 1} : expected{std::log1p(std::exp(3 * x)) / 3, logistic(3 * x)};
  });
  check("hard_swish", nn::hard_swish{}, [](double x) {
    return x < -3 ? expected{0, 0} : x > 3 ? expected{x, 1} : expected{x * (x + 3) / 6, x / 3 + 0.5};
  });
}

BOOST_AUTO_TEST_CASE(prelu_is_that_of_pytorch) {
  const std::vector<double> x{-2, -0.5, 0, 0.5, 2};
  const std::vector<double> dy{1, 2, 3, 4, 5};
  const std::vector<double> weight{0.25, -0.5, 0.75, 1.5, 2};
  const auto got = run_layer(nn::prelu{}, {x}, dy, {weight});
  const auto one = run_layer(nn::prelu{.per_channel = false}, {x}, dy, {{0.25}});
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    BOOST_TEST(got.output[i] == (x[i] > 0 ? x[i] : weight[i] * x[i]));
    BOOST_TEST(got.gradients[0][i] == (x[i] > 0 ? dy[i] : weight[i] * dy[i]));
    BOOST_TEST(got.parameters[0][i] == (x[i] > 0 ? 0 : x[i] * dy[i]));
    BOOST_TEST(one.output[i] == (x[i] > 0 ? x[i] : 0.25 * x[i]));
    sum += x[i] > 0 ? 0 : x[i] * dy[i];
  }
  BOOST_TEST(one.parameters[0][0] == sum);
}

BOOST_AUTO_TEST_CASE(infinities_stay_where_they_are) {
  const auto at = [](const auto& options, double x) { return run_layer(options, {{x}}, std::vector<double>{1.0}); };
  BOOST_TEST(at(nn::elu{}, inf).output[0] == inf);
  BOOST_TEST(at(nn::elu{}, -inf).output[0] == -1);
  BOOST_TEST(at(nn::elu{}, 800).gradients[0][0] == 1);
  BOOST_TEST(at(nn::softplus{}, inf).output[0] == inf);
  BOOST_TEST(at(nn::softplus{}, -inf).output[0] == 0);
  BOOST_TEST(at(nn::leaky_relu{}, -inf).output[0] == -inf);
  BOOST_TEST(std::isnan(at(nn::gelu{}, std::nan("")).output[0]));
}

BOOST_AUTO_TEST_CASE(elu_keeps_the_digits_of_small_numbers) {
  for (const double x : {-1e-20, -1e-8, -1e-3, -0.25, -0.999, -1.0, -1.001, -3.0}) {
    const auto got = run_layer(nn::elu{.alpha = 0.5}, {{x}}, std::vector<double>{1.0});
    BOOST_TEST(std::abs(got.output[0] / (0.5 * std::expm1(x)) - 1) < 1e-14, x << ": " << got.output[0]);
    BOOST_TEST(std::abs(got.gradients[0][0] / (0.5 * std::exp(x)) - 1) < 1e-14, x << ": " << got.gradients[0][0]);
  }
}

BOOST_AUTO_TEST_CASE(layers_keep_their_contract) {
  const auto require = [](const std::vector<gradus::conformance::result>& results) {
    for (const gradus::conformance::result& each : results) {
      BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
    }
  };
  using gradus::conformance::check_layer;
  const std::vector<nn::value_shape> image{{4, 5, 7}};
  require(check_layer("elu", nn::elu{}, image));
  require(check_layer("gelu", nn::gelu{}, image));
  require(check_layer("leaky_relu", nn::leaky_relu{}, image));
  require(check_layer("relu6", nn::relu6{}, image));
  require(check_layer("gelu_tanh", nn::gelu_tanh{}, image));
  require(check_layer("silu", nn::silu{}, image));
  require(check_layer("sigmoid", nn::sigmoid{}, image));
  require(check_layer("hard_swish", nn::hard_swish{}, image));
  require(check_layer("softplus", nn::softplus{}, image));
  require(check_layer("tanh", nn::tanh{}, image));
  require(check_layer("prelu", nn::prelu{}, image));
  require(check_layer("prelu of a layer", nn::prelu{.per_channel = false}, image));
}

BOOST_AUTO_TEST_CASE(messages_name_the_activation) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const nn::silu::layer<float, gradus::nchw, gradus::cpu> layer{nn::silu{}};
  BOOST_TEST(layer.kind() == "silu");
}

BOOST_AUTO_TEST_SUITE_END()
