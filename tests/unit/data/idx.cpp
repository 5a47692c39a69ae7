// SPDX-License-Identifier: BSL-1.0
//
// The IDX reader on right and on hostile files.
#include "gradus/data/idx.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::format_error;
using idx_files::bytes;
using idx_files::message_of;

namespace {

/// The message of reading a file with this content.
std::string message_of_reading(const bytes& content, const data::idx_options& options = {}) {
  const idx_files::folder folder;
  const auto path = folder.write("some.idx", content);
  return message_of<format_error>([&] { (void)data::read_idx(path, options); });
}

/// A head and then bytes without end; counts what was taken.
class endless_source final : public data::byte_source {
 public:
  explicit endless_source(bytes head) : byte_source{"endless"}, head_{std::move(head)} {}
  std::size_t read(std::span<std::uint8_t> into) override {
    for (std::uint8_t& byte : into) {
      byte = taken_ < head_.size() ? head_[taken_] : std::uint8_t{7};
      ++taken_;
    }
    return into.size();
  }
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }

 private:
  bytes head_;
  std::size_t taken_ = 0;
};

/// A short content; remembers the largest buffer that it was to fill.
class short_source final : public data::byte_source {
 public:
  explicit short_source(bytes content) : byte_source{"short"}, content_{std::move(content)} {}
  std::size_t read(std::span<std::uint8_t> into) override {
    largest_ = std::max(largest_, into.size());
    const std::size_t count = std::min(into.size(), content_.size() - at_);
    std::copy_n(content_.begin() + static_cast<std::ptrdiff_t>(at_), count, into.begin());
    at_ += count;
    return count;
  }
  [[nodiscard]] std::size_t largest() const noexcept { return largest_; }

 private:
  bytes content_;
  std::size_t at_ = 0;
  std::size_t largest_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(idx)

BOOST_AUTO_TEST_CASE(reads_one_to_four_axes) {
  const idx_files::folder folder;
  for (const std::vector<std::uint32_t>& extents :
       {std::vector<std::uint32_t>{5}, {2, 3}, {2, 3, 4}, {3, 1, 2, 2}, {1100, 1000}}) {
    const auto array = data::read_idx(folder.write("right.idx", idx_files::file(extents, 3)));
    BOOST_TEST(array.extents.size() == extents.size());
    BOOST_TEST(std::equal(extents.begin(), extents.end(), array.extents.begin()));
    const bytes expected = idx_files::file(extents, 3);
    const std::size_t head = 4 + 4 * extents.size();
    BOOST_TEST((array.values == bytes(expected.begin() + static_cast<std::ptrdiff_t>(head), expected.end())));
  }
}

BOOST_AUTO_TEST_CASE(says_that_a_file_is_missing) {
  const auto message = message_of<format_error>([] { (void)data::read_idx("/nowhere/images"); });
  GRADUS_CHECK_MESSAGE(message,
                       {"open '/nowhere/images'", "expected a file", "no such file", "Hint: check the folder"});
}

BOOST_AUTO_TEST_CASE(says_that_a_path_is_a_directory_or_a_pipe) {
  const idx_files::folder folder;
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)data::read_idx(folder.path()); }),
                       {"open '" + folder.path().string() + "'", "expected a file", "got a directory"});
  const auto pipe = folder.path() / "pipe";
  BOOST_REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)data::read_idx(pipe); }),
                       {"pipe'", "expected a regular file", "got a device, a pipe"});
}

BOOST_AUTO_TEST_CASE(says_that_a_file_cannot_be_read) {
  const idx_files::folder folder;
  const auto circle = folder.path() / "circle";
  std::filesystem::create_symlink(circle, circle);
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)data::read_idx(circle); }),
                       {"circle'", "expected a file that can be read", "symbolic links"});
  if (geteuid() != 0) {  // nothing is forbidden to root
    const auto secret = folder.write("secret", idx_files::file({1}));
    std::filesystem::permissions(secret, std::filesystem::perms::none);
    GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)data::read_idx(secret); }),
                         {"secret'", "expected a file that can be read", "ermission", "Hint: check the permissions"});
  }
}

BOOST_AUTO_TEST_CASE(says_that_the_header_is_cut) {
  const bytes whole = idx_files::file({2, 3, 4});
  for (const std::size_t length : {0U, 1U, 3U, 4U, 7U, 15U}) {
    GRADUS_CHECK_MESSAGE(message_of_reading(bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))),
                         {"read_idx '", "some.idx'", "expected the header of an IDX file", "ends inside the header",
                          "Hint: the file is not IDX or was not copied"});
  }
}

BOOST_AUTO_TEST_CASE(says_that_the_values_are_cut) {
  bytes content = idx_files::file({2, 3, 4});
  content.pop_back();
  GRADUS_CHECK_MESSAGE(message_of_reading(content), {"some.idx'", "expected 24 bytes of values", "got 23",
                                                     "Hint: the file was not copied completely"});
  content.resize(16);
  GRADUS_CHECK_MESSAGE(message_of_reading(content), {"some.idx'", "expected 24 bytes of values", "got 0"});
}

BOOST_AUTO_TEST_CASE(says_that_bytes_follow) {
  bytes content = idx_files::file({2, 3, 4});
  content.push_back(0);
  GRADUS_CHECK_MESSAGE(message_of_reading(content), {"some.idx'", "expected the end after 24 bytes", "got more bytes",
                                                     "Hint: the header and the content"});
}

BOOST_AUTO_TEST_CASE(says_that_the_magic_is_wrong) {
  bytes content = idx_files::file({2, 3, 4});
  content[1] = 0x42;
  GRADUS_CHECK_MESSAGE(message_of_reading(content), {"some.idx'", "expected the first bytes 0x00 0x00", "got 0x00 0x42",
                                                     "Hint: the file is not IDX"});
  content = idx_files::file({2, 3, 4});
  content[0] = 0x89;
  GRADUS_CHECK_MESSAGE(message_of_reading(content), {"expected the first bytes 0x00 0x00", "got 0x89 0x00"});
  content[0] = 0x1f;
  content[1] = 0x8b;
  GRADUS_CHECK_MESSAGE(message_of_reading(content),
                       {"got 0x1f 0x8b, the first bytes of gzip files", "Hint: ", "gzip.hpp"});
}

BOOST_AUTO_TEST_CASE(says_that_the_type_is_another) {
  bytes content = idx_files::file({2, 3, 4});
  content[2] = 0x0d;
  GRADUS_CHECK_MESSAGE(message_of_reading(content),
                       {"some.idx'", "expected elements of type 0x08 (unsigned byte)", "got type 0x0d (float)"});
  content[2] = 0x77;
  GRADUS_CHECK_MESSAGE(message_of_reading(content), {"got type 0x77"});
}

BOOST_AUTO_TEST_CASE(says_that_the_number_of_axes_is_impossible) {
  GRADUS_CHECK_MESSAGE(message_of_reading(idx_files::header({})), {"some.idx'", "expected 1 to 4 axes", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_reading(idx_files::file({1, 1, 1, 1, 1})), {"expected 1 to 4 axes", "got 5"});
}

BOOST_AUTO_TEST_CASE(says_that_an_extent_is_zero) {
  GRADUS_CHECK_MESSAGE(message_of_reading(idx_files::file({0, 28, 28})),
                       {"some.idx'", "expected extents of at least 1", "got extent 0 of axis 0"});
  GRADUS_CHECK_MESSAGE(message_of_reading(idx_files::file({4, 28, 0})), {"got extent 0 of axis 2"});
}

BOOST_AUTO_TEST_CASE(says_that_the_declared_size_is_absurd) {
  const bytes content = idx_files::header({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff});  // overflows 64 bits
  GRADUS_CHECK_MESSAGE(message_of_reading(content), {"some.idx'", "expected at most 4294967296 bytes of values",
                                                     "got a header that declares more", "Hint: raise"});
  GRADUS_CHECK_MESSAGE(message_of_reading(idx_files::file({5, 5}), {.maximum_bytes = 24}),
                       {"expected at most 24 bytes of values"});
  GRADUS_CHECK_MESSAGE(message_of_reading(idx_files::file({5, 5}), {.maximum_bytes = 25}), {"no exception"});
  GRADUS_CHECK_MESSAGE(message_of_reading(idx_files::file({5}), {.maximum_bytes = 0}), {"at most 0 bytes"});
  const bytes two_to_64 = idx_files::header({65536, 65536, 65536, 65536});
  GRADUS_CHECK_MESSAGE(message_of_reading(two_to_64, {.maximum_bytes = std::numeric_limits<std::uint64_t>::max()}),
                       {"expected at most 18446744073709551615 bytes", "got a header that declares more"});
}

BOOST_AUTO_TEST_CASE(a_short_file_that_declares_gigabytes_allocates_little) {
  bytes content = idx_files::header({2'000'000, 1000});
  content.resize(content.size() + 100);
  short_source source{content};
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)data::read_idx(source); }),
                       {"read_idx 'short'", "expected 2000000000 bytes of values", "got 100"});
  BOOST_TEST(source.largest() <= std::size_t{1} << 20U);
}

BOOST_AUTO_TEST_CASE(no_more_than_declared_and_one_byte_is_taken) {
  const bytes head = idx_files::header({3000, 1000});
  endless_source source{head};
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)data::read_idx(source); }),
                       {"read_idx 'endless'", "expected the end after 3000000 bytes"});
  BOOST_TEST(source.taken() == head.size() + 3'000'000 + 1);
}

BOOST_AUTO_TEST_SUITE_END()
