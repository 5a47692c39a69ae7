// SPDX-License-Identifier: BSL-1.0
//
// Record files: what goes in comes out, and damage is found and named.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "gradus/data/record_file.hpp"
#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::configuration_error;
using gradus::format_error;
using idx_files::bytes;
using idx_files::message_of;

namespace {

/// A record file of three images, and its bytes to damage.
class three_records {
 public:
  three_records() {
    data::record_writer file{path(), 7};
    file.add(6, "first", bytes{1, 2, 3});
    file.add(0, "second", bytes{});
    file.add(2, "third", bytes{4, 5, 6, 7});
    file.finish();
    std::ifstream in{path(), std::ios::binary};
    content.assign(std::istreambuf_iterator<char>{in}, {});
  }

  [[nodiscard]] std::string path() const { return (std::filesystem::path{folder_.path()} / "images.gradus").string(); }
  void write() const { folder_.write("images.gradus", content); }
  /// Of opening the file with this content.
  [[nodiscard]] std::string message() const {
    write();
    return message_of<format_error>([&] { const data::record_file file{path()}; });
  }

  bytes content;

 private:
  idx_files::folder folder_;
};

constexpr std::size_t records_begin = 8;
constexpr std::size_t index_begin = 8 + 5 + 3 + 6 + 0 + 5 + 4;

}  // namespace

BOOST_AUTO_TEST_SUITE(record_file)

BOOST_AUTO_TEST_CASE(gives_back_what_was_written) {
  const three_records files;
  BOOST_TEST(files.content.size() == index_begin + 3 * 24 + 32);
  const data::record_file file{files.path()};
  BOOST_TEST(file.size() == 3);
  BOOST_TEST(file.classes() == 7);
  BOOST_TEST(file.label(0) == 6);
  BOOST_TEST(file.label(2) == 2);
  BOOST_TEST(file.name(1).ends_with("images.gradus, record 1 (second)"));
  bytes image;
  file.read(2, image);
  BOOST_TEST(image == bytes({4, 5, 6, 7}), boost::test_tools::per_element());
  file.read(1, image);
  BOOST_TEST(image.empty());
  file.read(0, image);
  BOOST_TEST(image == bytes({1, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_damaged_record_is_named_and_spoils_no_other) {
  three_records files;
  files.content[records_begin + 6] ^= 1U;
  files.write();
  const data::record_file file{files.path()};
  bytes image;
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { file.read(0, image); }),
                       {"images.gradus, record 0 (first)'", "expected the checksum ", "the file is damaged"});
  file.read(2, image);
  BOOST_TEST(image.size() == 4U);
}

BOOST_AUTO_TEST_CASE(refuses_records_that_there_are_not) {
  const three_records files;
  const data::record_file file{files.path()};
  bytes image;
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] { file.read(3, image); }),
                       {"expected a record from 0 to 2, got 3"});
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] { file.read(-1, image); }), {"got -1"});
}

BOOST_AUTO_TEST_CASE(refuses_files_that_are_damaged) {
  const three_records whole;
  const auto message = [&](auto damage) {
    three_records files;
    damage(files.content);
    return files.message();
  };
  GRADUS_CHECK_MESSAGE(message([](bytes& all) { all.resize(20); }), {"expected a record file, got 20 bytes"});
  GRADUS_CHECK_MESSAGE(message([](bytes& all) { all[0] = 'x'; }), {"a file with another beginning"});
  GRADUS_CHECK_MESSAGE(message([](bytes& all) { all.pop_back(); }), {"a file without a foot", "ended early"});
  GRADUS_CHECK_MESSAGE(message([](bytes& all) { all[index_begin + 16] ^= 1U; }),
                       {"expected an index with the correct checksum"});
  const std::size_t foot = whole.content.size() - 32;
  GRADUS_CHECK_MESSAGE(message([&](bytes& all) { all[foot + 7] = 0xff; }), {"an index that fills the file"});
  GRADUS_CHECK_MESSAGE(message([&](bytes& all) { all[foot + 15] = 0xff; }), {"an index that fills the file"});
  GRADUS_CHECK_MESSAGE(message([&](bytes& all) { all[foot + 16] = 0; }), {", 0 classes, in a file of "});
}

BOOST_AUTO_TEST_CASE(an_index_with_a_right_checksum_may_still_be_wrong) {
  const auto message = [](std::size_t at, std::uint8_t value) {
    three_records files;
    files.content[index_begin + at] = value;
    const std::size_t foot = files.content.size() - 32;
    const auto crc = data::detail::checksum(0, std::span{files.content}.subspan(index_begin, 3 * 24));
    data::detail::put_number(files.content.data() + foot + 20, crc, 4);
    return files.message();
  };
  GRADUS_CHECK_MESSAGE(message(24, 0xff), {"records before the index", "got record 1 of 6 bytes at 255 with label 0"});
  GRADUS_CHECK_MESSAGE(message(8, 100), {"got record 0 of 105 bytes"});
  GRADUS_CHECK_MESSAGE(message(48 + 15, 0x80), {"got record 2"});
  GRADUS_CHECK_MESSAGE(message(16, 7), {"with labels from 0 to 6", "label 7"});
}

BOOST_AUTO_TEST_CASE(a_writer_refuses_what_a_reader_would) {
  const idx_files::folder folder;
  const std::string path = (std::filesystem::path{folder.path()} / "a").string();
  data::record_writer file{path, 2};
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { file.add(2, "name", {}); }),
                       {"expected labels from 0 to 1, got label 2 of 'name'"});
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { file.add(1, std::string(5000, 'x'), {}); }),
                       {"with a name of at most 4096"});
  file.finish();
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] { file.finish(); }), {"a file that is finished"});
  BOOST_TEST(data::record_file{path}.size() == 0);
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] {
                         data::record_writer{folder.path(), 2};
                       }),
                       {"expected a file that can be written"});
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] {
                         data::record_writer{path, 0};
                       }),
                       {"classes of at least 1"});
}

BOOST_AUTO_TEST_SUITE_END()
