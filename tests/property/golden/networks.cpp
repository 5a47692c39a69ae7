// SPDX-License-Identifier: BSL-1.0
//
// Whole networks of the zoo against what libtorch computes for them (tests/golden/networks.txt): losses over three
// steps and the norm of every parameter's gradient, in double precision and both layouts.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include "../../support/golden_networks.hpp"
#include "../../support/network_checks.hpp"
#include "gradus/conformance/sanitizers.hpp"
#include "source_directory.hpp"

namespace {

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

struct recorded {
  std::vector<double> losses;
  std::map<std::string, double> gradients;
};

std::map<std::string, recorded> read_golden() {
  std::ifstream file{path_in_tests("golden/networks.txt")};
  BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/networks.txt is missing");
  std::map<std::string, recorded> result;
  std::string line;
  std::string network;
  while (std::getline(file, line)) {
    std::istringstream words{line};
    std::string kind;
    std::string name;
    double number = 0;
    words >> kind;
    if (kind == "network") {
      words >> network;
    } else if (kind == "loss") {
      words >> number;
      result[network].losses.push_back(number);
    } else if (kind == "gradient") {
      words >> name >> number;
      result[network].gradients[name] = number;
    }
  }
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(golden_networks)

BOOST_AUTO_TEST_CASE_TEMPLATE(losses_and_gradients_are_those_of_libtorch, Layout, layouts) {
  const auto golden = read_golden();
  int number = 0;  // of large networks
  for (const auto& which : gradus_test::golden_cases()) {
#if GRADUS_ADDRESS_SANITIZER
    if (which.input.height > 32) {
      continue;  // the same code as in the small ones, at the speed of a sanitizer
    }
#endif
    // Each layout takes one step of every other large network: the layers' tests cover both layouts of everything, and
    // the small networks more steps.
    const bool large = which.input.height > 32;
    number += large ? 1 : 0;
    if (large && std::is_same_v<Layout, gradus::nhwc> == (number % 2 == 0)) {
      continue;
    }
    BOOST_TEST_CONTEXT(which.name << " " << Layout::name) {
      BOOST_REQUIRE(golden.count(which.name) == 1U);
      const recorded& want = golden.at(which.name);
      gradus::cpu device;
      gradus::nn::network<double, Layout> net{device, which.input};
      gradus_test::build_golden(net, which.name);
      net.compile({.max_batch_size = which.batch, .seed = gradus_test::golden_seed});
      const gradus_test::random_batch<double, Layout> batch{device, which.input.batch(which.batch),
                                                            gradus_test::golden_classes};
      BOOST_REQUIRE(want.losses.size() == static_cast<std::size_t>(gradus_test::golden_steps));
      const std::size_t steps = large ? 1 : want.losses.size();
      for (std::size_t step = 0; step < steps; ++step) {
        const double loss =
            net.train_step(batch.images, batch.labels, {.step = step}).loss / static_cast<double>(which.batch);
        const double tolerance = step == 0 ? 1e-10 : 1e-5;  // a step divides by small deviations and amplifies rounding
        BOOST_TEST(std::abs(loss - want.losses[step]) <= tolerance * std::abs(want.losses[step]),
                   "step " << step << ": " << loss << " instead of " << want.losses[step]);
        if (step == 0) {
          BOOST_TEST(net.parameters().size() == want.gradients.size());
          for (const auto& p : net.parameters()) {
            double square = 0;
            for (const double g : p.copy_gradient()) {
              square += g * g;
            }
            const double norm = want.gradients.at(p.name());
            // The bias before a normalization has no gradient but rounding.
            BOOST_TEST(std::abs(std::sqrt(square) - norm) <= 1e-7 * norm + 1e-10,
                       p.name() << ": " << std::sqrt(square) << " instead of " << norm);
          }
        }
        for (std::size_t i = 0; i < net.values().size(); ++i) {
          net.values()[i] -= gradus_test::golden_learning_rate * net.gradients()[i];
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
