// SPDX-License-Identifier: BSL-1.0
//
// A traced data set gives what the data set gives: labels, labels of pixels, real targets and weights.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/train/traced.hpp"

namespace {

namespace data = gradus::data;

/// The first batches of two loaders are equal.
template <class Set>
void require_same_batches(const Set& set) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::trace::recorder recorder;
  const gradus::train::traced_set seen{recorder, set};
  const data::loader_options options{.global_batch_size = 3, .shuffle = false};
  data::loader<double, gradus::nhwc> plain{device, set, options};
  data::loader<double, gradus::nhwc> traced{device, seen, options};
  plain.start_epoch(0);
  traced.start_epoch(0);
  const auto* const expected = plain.next();
  const auto* const actual = traced.next();
  const auto numbers = [](const auto& range) { return std::vector<double>(range.data(), range.data() + range.size()); };
  BOOST_TEST(numbers(actual->images) == numbers(expected->images), boost::test_tools::per_element());
  BOOST_TEST(numbers(actual->labels) == numbers(expected->labels), boost::test_tools::per_element());
  BOOST_TEST(numbers(actual->targets) == numbers(expected->targets), boost::test_tools::per_element());
  BOOST_TEST(numbers(actual->weights) == numbers(expected->weights), boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train_traced_set)

BOOST_AUTO_TEST_CASE(targets_of_all_kinds) {
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<std::int32_t> labels{2, 0, 1};
  const std::vector<std::int32_t> pixels{0, 1, 2, 255, 4, 0, 0, 4, 3, 2, 1, 0};
  const std::vector<double> weights{0.5, 2, 0};
  const auto images = data::examples_of(std::span{x}, {1, 1, 2, 2});
  require_same_batches(data::in_memory(images, data::examples_of(std::span{labels}, {1, 1, 1, 1})));
  require_same_batches(
      data::in_memory(images, data::examples_of(std::span{pixels}, {1, 1, 2, 2}), {.ignored_label = 255}));
  require_same_batches(data::in_memory(images, images, {.weights = weights}));
}

BOOST_AUTO_TEST_SUITE_END()
