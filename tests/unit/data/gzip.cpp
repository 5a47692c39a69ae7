// SPDX-License-Identifier: BSL-1.0
//
// Compressed files: right ones, damaged ones, and one that inflates to a thousand times its size.
#include "gradus/data/gzip.hpp"

#include <zlib.h>

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <span>
#include <string>

#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::format_error;
using idx_files::bytes;
using idx_files::message_of;

namespace {

bytes compressed(const bytes& content) {
  z_stream stream{};
  BOOST_REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  bytes result(deflateBound(&stream, content.size()) + 64);
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = result.data();
  stream.avail_out = static_cast<uInt>(result.size());
  BOOST_REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

/// The message of reading a file some.gz with these bytes as IDX.
std::string message_of_unpacking(const bytes& content) {
  const idx_files::folder folder;
  const auto path = folder.write("some.gz", content);
  return message_of<format_error>([&] {
    const auto source = data::open_file(path);
    (void)data::read_idx(*source);
  });
}

bytes first(const bytes& content, std::size_t count) {
  return {content.begin(), content.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gzip)

BOOST_AUTO_TEST_CASE(gives_the_content_back_in_pieces_of_any_size) {
  const bytes content = idx_files::file({700, 900}, 5, 251);
  const idx_files::folder folder;
  const auto path = folder.write("right.gz", compressed(content));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{4093}, content.size(), content.size() + 1}) {
    data::gzip_source source{path};
    bytes got(content.size() + piece);
    std::size_t count = 0;
    while (const std::size_t more = source.read(std::span{got}.subspan(count, piece))) {
      count += more;
    }
    got.resize(count);
    BOOST_TEST((got == content));
    BOOST_TEST(source.read(std::span{got}) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(members_follow_one_another) {
  const bytes content = idx_files::file({300});
  bytes both = compressed(first(content, 100));
  for (const std::uint8_t byte : compressed(bytes(content.begin() + 100, content.end()))) {
    both.push_back(byte);
  }
  const idx_files::folder folder;
  const auto source = data::open_file(folder.write("two.gz", both));
  const auto array = data::read_idx(*source);
  BOOST_TEST((array.values == bytes(content.begin() + 8, content.end())));
}

BOOST_AUTO_TEST_CASE(the_ending_of_the_name_decides) {
  const idx_files::folder folder;
  const bytes content = idx_files::file({3});
  BOOST_TEST(data::read_idx(*data::open_file(folder.write("a", content))).values.size() == 3U);
  BOOST_TEST(data::read_idx(*data::open_file(folder.write("a.gz", compressed(content)))).values.size() == 3U);
}

BOOST_AUTO_TEST_CASE(says_that_a_file_is_not_gzip) {
  GRADUS_CHECK_MESSAGE(message_of_unpacking(idx_files::file({3, 2, 2})),
                       {"gzip '", "some.gz'", "expected a gzip file", "does not begin like a gzip file", "Hint: "});
}

BOOST_AUTO_TEST_CASE(says_that_a_file_is_cut) {
  const bytes whole = compressed(idx_files::file({50, 20, 30}, 0, 251));
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{9}, std::size_t{40}, whole.size() - 8, whole.size() - 1}) {
    GRADUS_CHECK_MESSAGE(message_of_unpacking(first(whole, length)),
                         {"gzip '", "some.gz'", "expected complete compressed data", "a file that ends early",
                          "Hint: the file was not copied completely"});
  }
}

BOOST_AUTO_TEST_CASE(says_that_the_checksum_is_wrong) {
  bytes content = compressed(idx_files::file({50, 20, 30}));
  content[content.size() - 8] ^= 1U;  // CRC-32
  GRADUS_CHECK_MESSAGE(message_of_unpacking(content), {"some.gz'", "expected intact compressed data",
                                                       "incorrect data check", "Hint: the file is damaged"});
  content[content.size() - 8] ^= 1U;
  content[content.size() - 1] ^= 1U;  // length
  GRADUS_CHECK_MESSAGE(message_of_unpacking(content),
                       {"some.gz'", "expected intact compressed data", "incorrect length check"});
}

BOOST_AUTO_TEST_CASE(says_that_the_compressed_data_are_damaged) {
  bytes content = compressed(idx_files::file({50, 20, 30}));
  content[10] |= 6U;  // the kind of block that does not exist
  GRADUS_CHECK_MESSAGE(message_of_unpacking(content),
                       {"some.gz'", "expected intact compressed data", "invalid block type"});
}

BOOST_AUTO_TEST_CASE(says_that_bytes_follow_the_compressed_data) {
  bytes content = compressed(idx_files::file({3}));
  content.push_back('x');
  GRADUS_CHECK_MESSAGE(message_of_unpacking(content),
                       {"some.gz'", "expected the end of the file after the compressed data", "got more bytes"});
}

BOOST_AUTO_TEST_CASE(a_zip_bomb_is_not_inflated) {
  bytes content = idx_files::file({10});
  content.resize(std::size_t{64} << 20U);  // declares 10 bytes, holds 64 MiB of zeros
  const bytes bomb = compressed(content);
  BOOST_TEST(bomb.size() < 100'000U);
  GRADUS_CHECK_MESSAGE(message_of_unpacking(bomb),
                       {"some.gz'", "expected the end after 10 bytes of values", "more bytes"});
  // How much is inflated is what is asked for: the reader asks for one byte more than is declared (see idx.cpp).
  const idx_files::folder folder;
  data::gzip_source source{folder.write("bomb.gz", bomb)};
  bytes piece(100);
  BOOST_TEST(source.read(std::span{piece}) == 100U);
}

BOOST_AUTO_TEST_CASE(load_mnist_takes_plain_and_compressed_files) {
  const idx_files::folder folder;
  folder.write("train-images-idx3-ubyte.gz", compressed(idx_files::file({3, 2, 2})));
  folder.write("train-labels-idx1-ubyte", idx_files::file({3}, 4));
  const auto images = data::load_mnist(folder.path(), data::split::training);
  BOOST_TEST(images.shape() == gradus::image_extents(3, 1, 2, 2));
  BOOST_TEST(images.label(1) == 5);
  BOOST_TEST(images.pixels()[11] == 11);
}

BOOST_AUTO_TEST_CASE(load_mnist_says_which_file_is_missing) {
  const idx_files::folder folder;
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)data::load_mnist(folder.path(), data::split::test); }),
                       {"load_mnist", "expected '" + folder.path().string(),
                        "t10k-images-idx3-ubyte' or the same with .gz", "no such file", "Hint: give the folder"});
}

BOOST_AUTO_TEST_SUITE_END()
