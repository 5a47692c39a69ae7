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
  GRADUS_CHECK_MESSAGE(
      message_of_loading(idx_files::file({3, 2, 2}), idx_files::file({3, 2, 2})),
      {"t10k-labels-idx1-ubyte'", "expected labels: 1 axis", "got 3 axes", "looks like a file of images"});
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
