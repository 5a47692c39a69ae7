// SPDX-License-Identifier: BSL-1.0
//
// CIFAR in its binary form: what is read, and what is refused.
#include "gradus/data/cifar.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::format_error;
using idx_files::bytes;
using idx_files::message_of;

namespace {

/// Records with these labels in front; pixel k of record i is i + k.
bytes records(const std::vector<std::vector<int>>& labels) {
  bytes result;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (const int label : labels[i]) {
      result.push_back(static_cast<std::uint8_t>(label));
    }
    for (std::size_t k = 0; k < 3072; ++k) {
      result.push_back(static_cast<std::uint8_t>(i + k));
    }
  }
  return result;
}

std::string message_of_test_batch(const bytes& content) {
  const idx_files::folder folder;
  folder.write("test_batch.bin", content);
  return message_of<format_error>(
      [&] { (void)data::load_cifar(folder.path(), data::cifar_kind::cifar10, data::split::test); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cifar)

BOOST_AUTO_TEST_CASE(reads_the_files_of_both_sets) {
  const idx_files::folder folder;
  for (int i = 1; i <= 5; ++i) {
    folder.write("data_batch_" + std::to_string(i) + ".bin", records({{i}, {i + 1}}));
  }
  folder.write("test.bin", records({{3, 99}}));
  const auto ten = data::load_cifar(folder.path(), data::cifar_kind::cifar10, data::split::training);
  BOOST_TEST(ten.shape() == gradus::image_extents(10, 3, 32, 32));
  BOOST_TEST(ten.classes() == 10);
  BOOST_TEST(ten.label(3) == 3);  // the second of the second file
  BOOST_TEST(ten.pixels()[3 * 3072] == 1);
  const auto hundred = data::load_cifar(folder.path(), data::cifar_kind::cifar100, data::split::test);
  BOOST_TEST(hundred.classes() == 100);
  BOOST_TEST(hundred.label(0) == 99);  // the fine label
  BOOST_TEST(hundred.pixels()[1] == 1);
}

BOOST_AUTO_TEST_CASE(says_what_is_wrong_with_a_file) {
  bytes cut = records({{1}, {2}});
  cut.pop_back();
  GRADUS_CHECK_MESSAGE(message_of_test_batch(cut), {"test_batch.bin'", "expected records of 3073 bytes",
                                                    "got 3072 bytes after 1 records", "is truncated"});
  GRADUS_CHECK_MESSAGE(message_of_test_batch(records({{1}, {10}})),
                       {"expected labels from 0 to 9, got label 10 of record 1"});
  GRADUS_CHECK_MESSAGE(message_of_test_batch({}), {"expected at least one record, got an empty file"});
  const idx_files::folder empty;
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] {
                         (void)data::load_cifar(empty.path(), data::cifar_kind::cifar10, data::split::training);
                       }),
                       {"data_batch_1.bin'", "no such file"});
}

BOOST_AUTO_TEST_SUITE_END()
