// SPDX-License-Identifier: BSL-1.0
//
// A loader that nothing can draw batches from.
// EXPECT_ERROR: gradus: the loader is const
#include "gradus/comm/self.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float, gradus::nchw>;
using trainer = gradus::train::trainer<network>;

#ifdef GRADUS_TEST_GOOD_TWIN
using loader = gradus::data::loader<float, gradus::nchw>;
#else
using loader = const gradus::data::loader<float, gradus::nchw>;
#endif

void train(trainer& trains, loader& images) {
  trains.fit(images, {.epochs = 1});
}
