// SPDX-License-Identifier: BSL-1.0
//
// A loader and a network of different element types.
// EXPECT_ERROR: gradus: the loader gives images of another element type than the network
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
using loader = gradus::data::loader<double, gradus::nchw>;
#endif

double loss(trainer& trained, loader& images) {
  return trained.evaluate(images).loss;
}
