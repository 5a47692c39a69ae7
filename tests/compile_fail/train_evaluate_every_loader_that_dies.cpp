// SPDX-License-Identifier: BSL-1.0
//
// A loader that is gone when the callback evaluates.
// EXPECT_ERROR: gradus: this object keeps a reference to its argument, but a temporary is destroyed
#include <utility>  // std::move

#include "gradus/data/loader.hpp"
#include "gradus/train/trainer.hpp"

using loader = gradus::data::loader<float, gradus::nchw>;

#ifdef GRADUS_TEST_GOOD_TWIN
auto evaluation(loader& images) {
  return gradus::train::evaluate_every{images};
}
#else
auto evaluation(loader& images) {
  return gradus::train::evaluate_every{std::move(images)};
}
#endif
