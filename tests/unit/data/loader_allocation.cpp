// SPDX-License-Identifier: BSL-1.0
//
// After construction a loader allocates nothing: this program counts the calls of operator new.
#include <boost/test/unit_test.hpp>
#include <memory>

#include "../../support/allocation_count.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/layout/layouts.hpp"

#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
#include "../../support/count_allocations.hpp"

BOOST_AUTO_TEST_SUITE(loader_allocation)

BOOST_AUTO_TEST_CASE(the_counter_counts) {
  const long before = allocations;
  const auto something = std::make_unique<long>(before);
  BOOST_TEST(*something == before);
  BOOST_TEST(allocations > before);
}

BOOST_AUTO_TEST_CASE(epochs_allocate_nothing) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic({.examples = 90, .channels = 3, .height = 5, .width = 5});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 16, .seed = 1}};
  const long before = allocations;
  long batches = 0;
  for (const unsigned epoch : {0U, 1U, 2U, 3U}) {
    loader.start_epoch(epoch);
    while (loader.next() != nullptr) {
      ++batches;
    }
  }
  const long after = allocations;
  BOOST_TEST(batches == 24);
  BOOST_TEST(after - before == 0);
}

BOOST_AUTO_TEST_SUITE_END()

#endif
