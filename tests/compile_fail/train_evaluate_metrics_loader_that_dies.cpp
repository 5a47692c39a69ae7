// SPDX-License-Identifier: BSL-1.0
//
// A loader that is gone when the callback evaluates metrics.
// EXPECT_ERROR: gradus: this object keeps a reference to its argument, but a temporary is destroyed
#include <utility>  // std::move

#include "gradus/data/loader.hpp"
#include "gradus/train/metrics.hpp"

using loader = gradus::data::loader<float, gradus::nchw>;
const gradus::metrics::list all{gradus::metrics::accuracy{}};

#ifdef GRADUS_TEST_GOOD_TWIN
auto evaluation(loader& images) {
  return gradus::train::evaluate_metrics{images, all};
}
#else
auto evaluation(loader& images) {
  return gradus::train::evaluate_metrics{std::move(images), all};
}
#endif
