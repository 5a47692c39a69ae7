// SPDX-License-Identifier: BSL-1.0
//
// The MNIST files, uncompressed: what is read, and what does not belong together.
#include "gradus/data/mnist.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::configuration_error;
using gradus::format_error;
using idx_files::bytes;
using idx_files::message_of;

namespace {

/// The message of loading test images and labels with this content.
template <class Error = format_error>
std::string message_of_loading(const bytes& images, const bytes& labels, const data::mnist_options& options = {}) {
  const idx_files::folder folder;
  folder.write("t10k-images-idx3-ubyte", images);
  folder.write("t10k-labels-idx1-ubyte", labels);
  return message_of<Error>([&] { (void)data::load_mnist_plain(folder.path(), data::split::test, options); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mnist)

BOOST_AUTO_TEST_CASE(both_parts_are_read_from_their_files) {
  const idx_files::folder folder;
  folder.write("train-images-idx3-ubyte", idx_files::file({3, 2, 4}, 10));
  folder.write("train-labels-idx1-ubyte", idx_files::file({3}, 7));
  folder.write("t10k-images-idx3-ubyte", idx_files::file({2, 3, 2, 4}, 20));  // with channels
  folder.write("t10k-labels-idx1-ubyte", idx_files::file({2}, 1));
  const auto training = data::load_mnist_plain(folder.path(), data::split::training);
  BOOST_TEST(training.shape() == gradus::image_extents(3, 1, 2, 4));
  BOOST_TEST(training.classes() == 10);
  BOOST_TEST(training.pixels()[0] == 10);
  BOOST_TEST(training.pixels()[23] == 33);
  BOOST_TEST(training.label(2) == 9);
  std::vector<float> planes(8);
  training.read(1, planes.data());
  BOOST_TEST(planes[0] == 18.0F / 255.0F);
  const auto test = data::load_mnist_plain(folder.path(), data::split::test);
  BOOST_TEST(test.shape() == gradus::image_extents(2, 3, 2, 4));
  BOOST_TEST(test.label(0) == 1);
  BOOST_TEST(test.hash() != training.hash());
}

BOOST_AUTO_TEST_CASE(says_which_file_is_missing) {
  const idx_files::folder folder;
  folder.write("t10k-images-idx3-ubyte", idx_files::file({2, 2, 2}));
  GRADUS_CHECK_MESSAGE(
      message_of<format_error>([&] { (void)data::load_mnist_plain(folder.path(), data::split::test); }),
      {"open '" + folder.path().string(), "t10k-labels-idx1-ubyte'", "expected a file", "no such file"});
}

BOOST_AUTO_TEST_CASE(says_that_the_counts_differ) {
  GRADUS_CHECK_MESSAGE(message_of_loading(idx_files::file({3, 2, 2}), idx_files::file({4})),
                       {"load_mnist '", "t10k-labels-idx1-ubyte'", "expected 3 labels as there are images in '",
                        "t10k-images-idx3-ubyte'", "got 4", "Hint: the two files do not belong together"});
}

BOOST_AUTO_TEST_CASE(says_that_the_files_are_exchanged) {
  GRADUS_CHECK_MESSAGE(
      message_of_loading(idx_files::file({3}), idx_files::file({3, 2, 2})),
      {"t10k-images-idx3-ubyte'", "expected images: 3 axes", "got 1 axis", "looks like a file of labels"});
  GRADUS_CHECK_MESSAGE(message_of_loading(idx_files::file({3, 2, 2}), idx_files::file({3, 2, 2})),
                       {"t10k-labels-idx1-ubyte'", "expected labels: 1 axis, or 2 with the class in front",
                        "got 3 axes", "looks like a file of images"});
}

BOOST_AUTO_TEST_CASE(other_usual_names_are_found) {
  const bytes images = idx_files::file({3, 2, 2});
  bytes labels{0, 0, 0x0c, 2, 0, 0, 0, 3, 0, 0, 0, 2};  // QMNIST: (3, 2) integers of 32 bits
  for (const std::uint8_t label : bytes{4, 9, 0}) {
    labels.insert(labels.end(), {0, 0, 0, label, 0, 0, 1, 77});
  }
  bytes words{0, 0, 0x0b, 1, 0, 0, 0, 3, 0, 4, 0, 9, 0, 0};
  bytes negative = words;
  negative[8] = 0xff;
  negative[9] = 0xff;
  const auto classes_of = [](const idx_files::folder& folder, data::split part, data::mnist_options options = {}) {
    const auto set = data::load_mnist_plain(folder.path().string(), part, options);
    return std::vector<std::int32_t>{set.label(0), set.label(1), set.label(2)};
  };
  const std::vector<std::int32_t> expected{4, 9, 0};
  const idx_files::folder qmnist;
  qmnist.write("qmnist-train-images-idx3-ubyte", images);
  qmnist.write("qmnist-train-labels-idx2-int", labels);
  BOOST_TEST(classes_of(qmnist, data::split::training) == expected, boost::test_tools::per_element());
  const idx_files::folder points;
  points.write("train-images.idx3-ubyte", images);
  points.write("train-labels.idx1-int", words);
  points.write("test-images-idx3-ubyte", images);
  points.write("test-labels-idx1-ubyte", negative);
  BOOST_TEST(classes_of(points, data::split::training) == expected, boost::test_tools::per_element());
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)classes_of(points, data::split::test); }),
                       {"test-labels-idx1-ubyte'", "expected labels from 0 to 9, got label -1 of example 0"});
  const idx_files::folder letters;
  letters.write("emnist-letters-test-images-idx3-ubyte", images);
  letters.write("emnist-letters-test-labels-idx1-ubyte", words);
  BOOST_TEST(classes_of(letters, data::split::test, {.prefix = "emnist-letters-"}) == expected,
             boost::test_tools::per_element());
  words[2] = 0x0d;
  letters.write("emnist-letters-test-labels-idx1-ubyte", words);
  GRADUS_CHECK_MESSAGE(
      message_of<format_error>([&] { (void)classes_of(letters, data::split::test, {.prefix = "emnist-letters-"}); }),
      {"expected labels that are integers", "got type 0x0d (float)"});
}

BOOST_AUTO_TEST_CASE(says_that_a_label_is_out_of_range) {
  GRADUS_CHECK_MESSAGE(message_of_loading(idx_files::file({3, 2, 2}), idx_files::file({3}, 8)),
                       {"t10k-labels-idx1-ubyte'", "expected labels from 0 to 9", "got label 10 of example 2",
                        "Hint: check the number of classes"});
  GRADUS_CHECK_MESSAGE(message_of_loading(idx_files::file({3, 2, 2}), idx_files::file({3}, 8), {.classes = 11}),
                       {"no exception"});
}

BOOST_AUTO_TEST_CASE(says_that_options_make_no_sense) {
  const bytes images = idx_files::file({3, 2, 2});
  const bytes labels = idx_files::file({3});
  GRADUS_CHECK_MESSAGE(message_of_loading<configuration_error>(images, labels, {.classes = 0}),
                       {"load_mnist", "expected classes of at least 1", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_loading<configuration_error>(images, labels, {.values = {.deviation = {0.0}}}),
                       {"normalization", "expected deviations above 0", "got 0"});
}

BOOST_AUTO_TEST_SUITE_END()
