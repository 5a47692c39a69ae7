// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints without a name, which the training that start begins would have to keep.
// EXPECT_ERROR: gradus: the training outlives the call of start, and this callback cannot be moved into it
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/stepwise.hpp"
#include "gradus/train/trainer.hpp"

using trainer = gradus::train::trainer<gradus::nn::network<float, gradus::nchw>>;
using loader = gradus::data::loader<float, gradus::nchw>;

void train(trainer& trains, loader& images) {
#ifdef GRADUS_TEST_GOOD_TWIN
  gradus::train::checkpoints saved{"folder"};
  trains.start(images, {.learning_rate = 0.01}, gradus::train::progress{}, saved);
#else
  trains.start(images, {.learning_rate = 0.01}, gradus::train::progress{}, gradus::train::checkpoints{"folder"});
#endif
}
