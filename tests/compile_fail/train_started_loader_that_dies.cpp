// SPDX-License-Identifier: BSL-1.0
//
// A training that goes on step by step with a loader that is gone.
// EXPECT_ERROR: gradus: trainer.start: the loader is a temporary that is destroyed at the end of this statement
#include <utility>  // std::move

#include "gradus/data/loader.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/train/stepwise.hpp"

using loader = gradus::data::loader<float, gradus::nchw>;

void begin(gradus::train::trainer<gradus::nn::network<float>>& trainer, loader& images) {
#ifdef GRADUS_TEST_GOOD_TWIN
  trainer.start(images, {});
#else
  trainer.start(std::move(images), {});
#endif
}
