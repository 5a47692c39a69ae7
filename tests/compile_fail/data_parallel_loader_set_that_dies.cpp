// SPDX-License-Identifier: BSL-1.0
//
// A data set that is gone when the threads read it.
// EXPECT_ERROR: gradus: the data set is a temporary
#include "gradus/data/parallel_loader.hpp"
#include "gradus/data/synthetic.hpp"

using loader = gradus::data::parallel_loader<float, gradus::nchw>;

void load(gradus::cpu& device, const gradus::data::image_dataset& images) {
#ifdef GRADUS_TEST_GOOD_TWIN
  loader batches{device, images, {.global_batch_size = 1}, {.threads = 2}};
#else
  loader batches{device, gradus::data::make_synthetic(), {.global_batch_size = 1}, {.threads = 2}};
#endif
}
