// SPDX-License-Identifier: BSL-1.0
//
// A callback in the place of the options.
// EXPECT_ERROR: gradus: the second argument of fit is its options
#include "gradus/comm/self.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float, gradus::nchw>;
using trainer = gradus::train::trainer<network>;

void train(trainer& trains, gradus::data::loader<float, gradus::nchw>& images) {
#ifdef GRADUS_TEST_GOOD_TWIN
  trains.fit(images, {.epochs = 1}, gradus::train::progress{});
#else
  trains.fit(images, gradus::train::progress{});
#endif
}
