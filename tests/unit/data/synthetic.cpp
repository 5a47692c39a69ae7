// SPDX-License-Identifier: BSL-1.0
//
// Synthetic images: the same for the same seed, and different enough between classes to be learnt.
#include "gradus/data/synthetic.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::configuration_error;
using gradus::index_t;
using idx_files::message_of;

namespace {

std::string message_of_options(const data::synthetic_options& options) {
  return message_of<configuration_error>([&] { (void)data::make_synthetic(options); });
}

/// The share of test images whose nearest class mean of the training images is their own.
double nearest_mean_accuracy(const data::image_dataset& training, const data::image_dataset& test) {
  const auto pixels = static_cast<std::size_t>(training.example().size());
  const auto classes = static_cast<std::size_t>(training.classes());
  std::vector<std::vector<double>> means(classes, std::vector<double>(pixels));
  std::vector<double> image(pixels);
  for (index_t i = 0; i < training.size(); ++i) {
    training.read(i, image.data());
    auto& mean = means[static_cast<std::size_t>(training.label(i))];
    for (std::size_t k = 0; k < pixels; ++k) {
      mean[k] += image[k] * static_cast<double>(classes) / static_cast<double>(training.size());
    }
  }
  index_t right = 0;
  for (index_t i = 0; i < test.size(); ++i) {
    test.read(i, image.data());
    std::vector<double> distances;
    for (const auto& mean : means) {
      double distance = 0;
      for (std::size_t k = 0; k < pixels; ++k) {
        distance += (image[k] - mean[k]) * (image[k] - mean[k]);
      }
      distances.push_back(distance);
    }
    const auto nearest = std::min_element(distances.begin(), distances.end()) - distances.begin();
    right += nearest == test.label(i) ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(test.size());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(synthetic)

BOOST_AUTO_TEST_CASE(images_have_the_shape_and_the_classes_asked_for) {
  const auto images = data::make_synthetic({.examples = 20, .channels = 3, .height = 5, .width = 7, .classes = 6});
  BOOST_TEST(images.shape() == gradus::image_extents(20, 3, 5, 7));
  BOOST_TEST(images.classes() == 6);
  for (index_t i = 0; i < 20; ++i) {
    BOOST_TEST(images.label(i) == i % 6);
  }
}

BOOST_AUTO_TEST_CASE(images_are_a_function_of_the_seed) {
  const data::synthetic_options options{.examples = 20, .height = 5, .width = 7};
  data::synthetic_options other = options;
  other.seed = 2;
  BOOST_TEST(data::make_synthetic(options).hash() == data::make_synthetic(options).hash());
  BOOST_TEST(data::make_synthetic(options).hash() != data::make_synthetic(other).hash());
}

BOOST_AUTO_TEST_CASE(a_set_can_be_made_in_parts) {
  const auto whole = data::make_synthetic({.examples = 20, .height = 5, .width = 7});
  const auto end = data::make_synthetic({.examples = 8, .height = 5, .width = 7, .first = 12});
  BOOST_TEST(std::equal(end.pixels().begin(), end.pixels().end(), whole.pixels().begin() + 12 * 35));
  BOOST_TEST(std::equal(end.labels().begin(), end.labels().end(), whole.labels().begin() + 12));
}

BOOST_AUTO_TEST_CASE(classes_can_be_told_apart_in_images_not_seen_before) {
  const auto training = data::make_synthetic({.examples = 300, .height = 12, .width = 12});
  const auto test = data::make_synthetic({.examples = 100, .height = 12, .width = 12, .first = 300});
  BOOST_TEST(nearest_mean_accuracy(training, test) > 0.95);
  const auto strange = data::make_synthetic({.examples = 100, .height = 12, .width = 12, .seed = 99});
  BOOST_TEST(nearest_mean_accuracy(training, strange) < 0.5);  // other classes: nothing to know
}

BOOST_AUTO_TEST_CASE(says_that_options_make_no_sense) {
  GRADUS_CHECK_MESSAGE(message_of_options({.examples = 0}),
                       {"make_synthetic", "expected examples of at least 1", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_options({.channels = 0}), {"expected channels of at least 1", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_options({.height = -1}), {"expected height of at least 1", "got -1"});
  GRADUS_CHECK_MESSAGE(message_of_options({.width = 0}), {"expected width of at least 1", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_options({.classes = 0}), {"expected classes of at least 1", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_options({.first = -1}), {"expected first of at least 0", "got -1"});
}

BOOST_AUTO_TEST_SUITE_END()
