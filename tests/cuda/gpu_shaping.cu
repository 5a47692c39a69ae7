// SPDX-License-Identifier: BSL-1.0
//
// Layers that move, resize and combine images, and softmax, on a GPU: against the CPU in double precision, and their
// contract with the plan.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "gradus/core/float16.hpp"
#include "gradus/kernels/cuda/shaping.cuh"
#include "shaping_outcomes.hpp"

namespace {

template <class Element, class Layout>
void agree(double tolerance) {
  gradus::cuda device;
  const auto expected = gpu_shaping::on_cpu(std::is_same_v<Layout, gradus::nhwc>);
  const auto computed = gpu_shaping::outcomes_of<Element, Layout>(device);
  BOOST_REQUIRE_EQUAL(computed.size(), expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k) {
    BOOST_TEST_CONTEXT(expected[k].name) {
      BOOST_REQUIRE_EQUAL(computed[k].numbers.size(), expected[k].numbers.size());
      double worst = 0;
      for (std::size_t i = 0; i < expected[k].numbers.size(); ++i) {
        const double want = expected[k].numbers[i];
        const double difference = std::abs(computed[k].numbers[i] - want) / (1 + std::abs(want));
        worst = difference <= worst ? worst : difference;  // keeps a NaN
      }
      BOOST_CHECK_LE(worst, tolerance);
    }
  }
}

template <class Element, class Layout>
void keep_contract() {
  gradus::cuda device;
  for (const auto& each : gradus::conformance::check_shaping_layers<Element, Layout>(device)) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(shaping_on_a_gpu)

BOOST_AUTO_TEST_CASE(layers_agree_with_the_cpu) {
  agree<float, gradus::nchw>(1e-5);
  agree<float, gradus::nhwc>(1e-5);
  agree<gradus::float16, gradus::nchw>(2e-2);
  agree<gradus::float16, gradus::nhwc>(2e-2);
}

BOOST_AUTO_TEST_CASE(layers_keep_their_contract) {
  keep_contract<double, gradus::nchw>();  // finite differences too
  keep_contract<double, gradus::nhwc>();
  keep_contract<float, gradus::nhwc>();
}

BOOST_AUTO_TEST_SUITE_END()
