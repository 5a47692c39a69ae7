// SPDX-License-Identifier: BSL-1.0
//
// A metric without one of the required members.
// EXPECT_ERROR(name): not a metric: give it a name
// EXPECT_ERROR(state): not a metric: give it a class state
// EXPECT_ERROR(update): not a metric: give its state void update
// EXPECT_ERROR(sums): not a metric: give its state std::span<double> sums
// EXPECT_ERROR(compute): not a metric: give its state a result
#include "gradus/nn/metric.hpp"

struct metric {
#ifndef GRADUS_TEST_CASE_NAME
  static constexpr std::string_view name = "mine";
#endif
#ifndef GRADUS_TEST_CASE_STATE
  struct state {
    state(const metric&, const gradus::metrics::example_shape&) {}
#ifndef GRADUS_TEST_CASE_UPDATE
    void update(const gradus::metrics::batch&) {}
#endif
#ifndef GRADUS_TEST_CASE_SUMS
    std::span<double> sums() {
      return {};
    }
#endif
#ifndef GRADUS_TEST_CASE_COMPUTE
    double compute() const {
      return 0;
    }
#endif
  };
#endif
};
static_assert(gradus::metrics::explain_metric<metric>());
