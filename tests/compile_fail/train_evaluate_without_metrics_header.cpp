// SPDX-License-Identifier: BSL-1.0
//
// A trainer evaluates a metric without the header that does so.
// EXPECT_ERROR: gradus: the second argument of evaluate is a metric or a metrics::list of them: include
// gradus/train/metrics.hpp
#include "gradus/data/loader.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
#include "gradus/train/metrics.hpp"
#endif

double evaluate(gradus::nn::network<float>& net, gradus::data::loader<float, gradus::nchw>& loader) {
  gradus::train::trainer trainer{net, gradus::optim::sgd{}};
  return std::get<1>(trainer.evaluate(loader, gradus::metrics::accuracy{}));
}
