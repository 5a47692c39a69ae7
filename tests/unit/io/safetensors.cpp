// SPDX-License-Identifier: BSL-1.0
//
// Headers of .safetensors files: what the reference implementation accepts and refuses
// (tests/golden/safetensors_files.py), what is written, and hostile headers.
#include "gradus/io/safetensors.hpp"
#include "source_directory.hpp"

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace io = gradus::io;
using gradus::index_t;

using file_bytes = std::vector<std::uint8_t>;

/// A file with this header and `size` bytes behind it.
file_bytes safetensors_bytes(std::string_view header, std::size_t size) {
  file_bytes file;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<std::uint8_t>(std::uint64_t{header.size()} >> shift));
  }
  file.insert(file.end(), header.begin(), header.end());
  file.resize(file.size() + size);
  return file;
}

io::safetensors_header header_of(const file_bytes& file) {
  return io::read_safetensors_header("read", file, file.size());
}

/// The message without its location; empty if the header is accepted.
std::string message_of_safetensors(const file_bytes& file) {
  try {
    (void)header_of(file);
    return {};
  } catch (const gradus::format_error& failure) {
    return std::string{failure.message()};
  }
}

/// The text of a golden header: %25 stands for the byte 0x25.
std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      result += static_cast<char>(std::stoi(std::string{text.substr(i + 1, 2)}, nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

file_bytes golden_safetensors() {
  std::ifstream in{path_in_tests("golden/safetensors/values.safetensors"), std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

BOOST_AUTO_TEST_SUITE(safetensors_headers)

BOOST_AUTO_TEST_CASE(the_reader_accepts_what_the_reference_accepts) {
  std::ifstream in{path_in_tests("golden/safetensors/headers.txt")};
  std::string line;
  std::map<std::string, int> counts;
  while (std::getline(in, line)) {
    if (line.starts_with('#')) {
      continue;
    }
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', first + 1);
    const std::string verdict = line.substr(0, first);
    const std::size_t size = std::stoul(line.substr(first + 1, second - first - 1));
    const std::string message =
        message_of_safetensors(safetensors_bytes(unescaped(std::string_view{line}.substr(second + 1)), size));
    BOOST_TEST(message.empty() == (verdict == "accept"), line << ": " << message);
    ++counts[verdict];
  }
  BOOST_TEST(counts["accept"] > 70);
  BOOST_TEST(counts["refuse"] > 150);
  BOOST_TEST(counts["stricter"] > 9);
}

BOOST_AUTO_TEST_CASE(the_header_of_a_file_from_pytorch_is_read) {
  const file_bytes file = golden_safetensors();
  const io::safetensors_header header = header_of(file);
  BOOST_TEST(header.tensors.size() == 17U);
  BOOST_TEST(header.file_size() == file.size());
  BOOST_TEST(header.metadata.at("text") == "a \"b\"\n\xe2\x82\xac");
  for (const auto& [name, type] : std::map<std::string, io::element_type>{{"bool", io::element_type::boolean},
                                                                          {"u8", io::element_type::u8},
                                                                          {"i8", io::element_type::i8},
                                                                          {"i16", io::element_type::i16},
                                                                          {"u16", io::element_type::u16},
                                                                          {"f16", io::element_type::f16},
                                                                          {"bf16", io::element_type::bf16},
                                                                          {"i32", io::element_type::i32},
                                                                          {"u32", io::element_type::u32},
                                                                          {"f32", io::element_type::f32},
                                                                          {"f64", io::element_type::f64},
                                                                          {"i64", io::element_type::i64},
                                                                          {"u64", io::element_type::u64}}) {
    const io::safetensors_entry* const entry = header.find(name);
    BOOST_REQUIRE(entry != nullptr);
    BOOST_TEST((entry->type == type), name);
    BOOST_TEST((entry->shape == std::vector<index_t>{2, 3}));
    BOOST_TEST(entry->end - entry->begin == 6 * io::size_of(type));
  }
  BOOST_TEST(header.find("number")->shape.empty());
  BOOST_TEST((header.find("none")->shape == std::vector<index_t>{0, 4}));
  BOOST_TEST((header.find("n\xc3\xa4me \"x\"") != nullptr));
  BOOST_TEST((header.find("x") == nullptr));
}

BOOST_AUTO_TEST_CASE(a_file_cut_at_any_byte_is_refused) {
  const file_bytes whole = golden_safetensors();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    BOOST_TEST(!message_of_safetensors({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}).empty());
  }
  file_bytes longer = whole;
  longer.push_back(0);
  BOOST_TEST(message_of_safetensors(longer).find("has more behind its end") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_header_that_is_too_long_is_refused_before_it_is_read) {
  file_bytes file = safetensors_bytes("{}", 0);
  file[4] = 1;  // 2^32 + 2 bytes
  BOOST_TEST(message_of_safetensors(file) ==
             "read: expected a header of at most 100000000 bytes, got 4294967298 bytes. Hint: it is not a "
             ".safetensors file.");
  file[4] = 0;
  file[0] = 3;
  BOOST_TEST(message_of_safetensors(file) ==
             "read: expected a header of 3 bytes, got a file of 10 bytes. Hint: the file was not copied completely.");
}

BOOST_AUTO_TEST_CASE(messages_name_the_tensor_and_what_to_do) {
  const auto message = [](std::string_view header, std::size_t size) {
    return message_of_safetensors(safetensors_bytes(header, size));
  };
  BOOST_TEST(message(R"({"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2) ==
             "read: expected elements of BOOL, U8, I8, I16, U16, F16, BF16, I32, U32, F32, F64, I64 or U64, got "
             "'F8_E4M3' for the tensor 'w'. Hint: convert the tensor in Python: x.to(torch.float16).");
  BOOST_TEST(message(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20) ==
             "read: expected the bytes of F32 [2, 3] for 'w', got 20 bytes.");
  BOOST_TEST(message(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8) ==
             "read: expected tensors without gaps: 'w' from byte 0, got bytes 4 to 8.");
  BOOST_TEST(message(R"({"w":{"dtype":"F32","shape":[1]}})", 0) ==
             "read: expected one \"dtype\", one \"shape\" and one \"data_offsets\" for each tensor, got one is missing "
             "for 'w'.");
  BOOST_TEST(message(R"({"w" 1})", 0) == "read: expected ':', got '1' at position 5 of the header.");
}

BOOST_AUTO_TEST_CASE(tensors_are_ordered_by_size_and_name_without_gaps) {
  const io::safetensors_header header =
      io::lay_out_safetensors({{.name = "b", .type = io::element_type::f32, .shape = {3}},
                               {.name = "flags", .type = io::element_type::u8, .shape = {5}},
                               {.name = "a", .type = io::element_type::f32, .shape = {}},
                               {.name = "half", .type = io::element_type::bf16, .shape = {3, 1}},
                               {.name = "count", .type = io::element_type::i64, .shape = {1}},
                               {.name = "none", .type = io::element_type::f32, .shape = {4, 0}}},
                              {{"k", "a \"b\"\\\n\x01"}, {"empty", ""}});
  std::string order;
  std::uint64_t next = 0;
  for (const io::safetensors_entry& each : header.tensors) {
    order += each.name + ' ';
    BOOST_TEST(each.begin == next);
    BOOST_TEST(each.begin % io::size_of(each.type) == 0U);
    next = each.end;
  }
  BOOST_TEST(order == "count a b none half flags ");
  BOOST_TEST(header.buffer_size() == 8U + 4 + 12 + 6 + 5);
  BOOST_TEST(header.buffer_begin % 64 == 0U);

  const std::string head = io::safetensors_head(header);
  BOOST_TEST(head.size() == header.buffer_begin);
  file_bytes file{head.begin(), head.end()};
  file.resize(static_cast<std::size_t>(header.file_size()));
  const io::safetensors_header again = header_of(file);
  BOOST_TEST((again.metadata == header.metadata));
  BOOST_TEST(again.buffer_begin == header.buffer_begin);
  BOOST_REQUIRE(again.tensors.size() == header.tensors.size());
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    BOOST_TEST(again.tensors[i].name == header.tensors[i].name);
    BOOST_TEST((again.tensors[i].type == header.tensors[i].type));
    BOOST_TEST((again.tensors[i].shape == header.tensors[i].shape));
    BOOST_TEST(again.tensors[i].end == header.tensors[i].end);
  }
}

BOOST_AUTO_TEST_CASE(metadata_of_the_same_length_may_change) {
  io::safetensors_header header = io::lay_out_safetensors({{.name = "w", .shape = {1}}}, {{"checksum", "00000000"}});
  const std::string before = io::safetensors_head(header);
  header.metadata["checksum"] = "12345678";
  const std::string after = io::safetensors_head(header);
  BOOST_TEST(before.size() == after.size());
  BOOST_TEST(before != after);
  header.metadata["checksum"] = std::string(100, '1');
  BOOST_CHECK_THROW((void)io::safetensors_head(header), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(every_number_of_characters_ends_at_a_multiple_of_64) {
  for (std::size_t length = 0; length < 130; ++length) {
    const io::safetensors_header header = io::lay_out_safetensors({{.name = std::string(length, 'x'), .shape = {2}}});
    const std::string head = io::safetensors_head(header);
    BOOST_TEST(head.size() % 64 == 0U);
    file_bytes file{head.begin(), head.end()};
    file.resize(head.size() + 8);
    BOOST_TEST(header_of(file).tensors.front().name.size() == length);
  }
  BOOST_TEST(io::safetensors_head(io::lay_out_safetensors({})).size() == 64U);
}

BOOST_AUTO_TEST_CASE(what_a_file_cannot_have_is_refused) {
  const auto refused = [](std::vector<io::safetensors_entry> tensors,
                          std::map<std::string, std::string, std::less<>> metadata = {}) {
    BOOST_CHECK_THROW((void)io::lay_out_safetensors(std::move(tensors), std::move(metadata)),
                      gradus::configuration_error);
  };
  refused({{.name = "w", .shape = {1}}, {.name = "w", .shape = {2}}});
  refused({{.name = "__metadata__", .shape = {1}}});
  refused({{.name = "\xff", .shape = {1}}});
  refused({{.name = "w", .shape = {1}}}, {{"k", "\xc0\x80"}});
  refused({{.name = "w", .shape = {-1}}});
  refused({{.name = "w", .shape = {index_t{1} << 62, 4}}});
  refused({{.name = "w", .shape = {(index_t{1} << 60)}}, {.name = "v", .shape = {(index_t{1} << 60)}}});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
