// SPDX-License-Identifier: BSL-1.0
//
// Images in memory: normalization, and what the constructor refuses.
#include "gradus/data/dataset.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::configuration_error;
using gradus::format_error;
using gradus::shape_error;
using idx_files::message_of;

namespace {

data::image_dataset two_images(data::normalization values = {}) {
  return {{2, 3, 1, 2}, {0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6}, {1, 0}, 2, std::move(values)};
}

std::string message_of_values(data::normalization values) {
  return message_of<configuration_error>([&] { (void)two_images(values); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(dataset)

BOOST_AUTO_TEST_CASE(bytes_become_numbers_from_0_to_1) {
  const auto images = two_images();
  std::vector<double> planes(6);
  images.read(0, planes.data());
  const std::vector<double> expected{0.0, 0.2, 0.4, 0.6, 0.8, 1.0};
  for (std::size_t i = 0; i < 6; ++i) {
    BOOST_TEST(std::abs(planes[i] - expected[i]) < 1e-15);
  }
  BOOST_TEST(images.example() == gradus::image_extents(1, 3, 1, 2));
  BOOST_TEST(images.label(0) == 1);
}

BOOST_AUTO_TEST_CASE(channels_have_their_own_mean_and_deviation) {
  const auto images = two_images({.scale = 0.5, .mean = {1, 2, 3}, .deviation = {1, 2, 4}});
  std::vector<float> planes(6);
  images.read(1, planes.data());
  const std::vector<float> expected{-0.5F, 0.0F, -0.25F, 0.0F, -0.125F, 0.0F};
  BOOST_TEST(planes == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_hash_knows_the_content) {
  const auto images = two_images();
  BOOST_TEST(images.hash() == two_images().hash());
  BOOST_TEST(images.hash() != two_images({.mean = {0, 0, 0.5}}).hash());
  BOOST_TEST(images.with({.mean = {0, 0, 0.5}}).hash() == two_images({.mean = {0, 0, 0.5}}).hash());
  const data::image_dataset other_pixel{{2, 3, 1, 2}, {0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 7}, {1, 0}, 2};
  BOOST_TEST(images.hash() != other_pixel.hash());
  const data::image_dataset other_label{{2, 3, 1, 2}, {0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6}, {1, 1}, 2};
  BOOST_TEST(images.hash() != other_label.hash());
}

BOOST_AUTO_TEST_CASE(says_that_sizes_disagree) {
  GRADUS_CHECK_MESSAGE(message_of<shape_error>([] {
                         (void)data::image_dataset{{2, 1, 1, 2}, {1, 2, 3}, {0, 0}, 1};
                       }),
                       {"image_dataset", "expected 4 pixels as in (2, 1, 1, 2)", "got 3"});
  GRADUS_CHECK_MESSAGE(message_of<shape_error>([] {
                         (void)data::image_dataset{{2, 1, 1, 1}, {1, 2}, {0}, 1};
                       }),
                       {"image_dataset", "expected 2 labels", "got 1"});
  GRADUS_CHECK_MESSAGE(
      message_of<shape_error>([] {
        (void)data::image_dataset{{0, 1, 0, 1}, {}, {}, 1};
      }),
      {"image_dataset", "expected at least 0 images of at least 1 channel, row and column", "got (0, 1, 0, 1)"});
}

BOOST_AUTO_TEST_CASE(says_that_a_label_is_out_of_range) {
  GRADUS_CHECK_MESSAGE(message_of<format_error>([] {
                         (void)data::image_dataset{{2, 1, 1, 1}, {1, 2}, {0, 3}, 3};
                       }),
                       {"image_dataset", "expected labels from 0 to 2", "got label 3 of example 1", "Hint: "});
  GRADUS_CHECK_MESSAGE(message_of<format_error>([] {
                         (void)data::image_dataset{{2, 1, 1, 1}, {1, 2}, {-1, 0}, 3};
                       }),
                       {"got label -1 of example 0"});
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([] {
                         (void)data::image_dataset{{1, 1, 1, 1}, {1}, {0}, 0};
                       }),
                       {"image_dataset", "expected classes of at least 1", "got 0"});
}

BOOST_AUTO_TEST_CASE(says_that_a_normalization_makes_no_sense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  GRADUS_CHECK_MESSAGE(message_of_values({.mean = {1, 2}}),
                       {"normalization", "expected a mean for each of 3 channels, or none", "got 2"});
  GRADUS_CHECK_MESSAGE(message_of_values({.deviation = {1}}), {"expected a deviation for each of 3 channels", "got 1"});
  GRADUS_CHECK_MESSAGE(message_of_values({.mean = {0, nan, 0}}), {"expected a finite mean", "got nan"});
  GRADUS_CHECK_MESSAGE(message_of_values({.deviation = {1, nan, 1}}), {"expected a finite deviation", "got nan"});
  GRADUS_CHECK_MESSAGE(message_of_values({.deviation = {1, 0, 1}}),
                       {"expected deviations above 0", "got 0", "Hint: use 1 for a channel that is constant"});
  GRADUS_CHECK_MESSAGE(message_of_values({.deviation = {1, -1, 1}}), {"expected deviations above 0", "got -1"});
  GRADUS_CHECK_MESSAGE(message_of_values({.scale = nan}), {"expected a scale that is finite and not 0", "got nan"});
  GRADUS_CHECK_MESSAGE(message_of_values({.scale = 0}), {"expected a scale that is finite and not 0", "got 0"});
}

BOOST_AUTO_TEST_SUITE_END()
