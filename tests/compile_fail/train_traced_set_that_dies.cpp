// SPDX-License-Identifier: BSL-1.0
//
// A data set that is gone when it is read.
// EXPECT_ERROR: gradus: this object keeps a reference to its argument, but a temporary is destroyed
#include "gradus/data/synthetic.hpp"
#include "gradus/train/traced.hpp"

gradus::data::image_dataset images();

#ifdef GRADUS_TEST_GOOD_TWIN
auto traced(gradus::trace::recorder& recorder, const gradus::data::image_dataset& set) {
  return gradus::train::traced_set{recorder, set};
}
#else
auto traced(gradus::trace::recorder& recorder) {
  return gradus::train::traced_set{recorder, images()};
}
#endif
