// SPDX-License-Identifier: BSL-1.0
//
// .safetensors files: those that PyTorch wrote (tests/golden/safetensors_files.py), what is written and read back, and
// file systems that fail.
#include "gradus/io/safetensors_file.hpp"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "idx_files.hpp"
#include "source_directory.hpp"

namespace {

using values_file = gradus::io::safetensors_file;

values_file golden_values(bool map = true) {
  return values_file{path_in_tests("golden/safetensors/values.safetensors"), map};
}

/// The numbers first, first + step, ... of a golden tensor.
template <class Element>
void check_golden_numbers(const values_file& file, const std::string& name, double first, double step) {
  const auto numbers = file.read<Element>(name);
  BOOST_REQUIRE(numbers.size() == 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    BOOST_TEST(static_cast<double>(numbers[i]) ==
                   static_cast<double>(gradus::io::detail::rounded_to<Element>(first + step * static_cast<double>(i))),
               name << " " << i);
  }
}

/// The files of the operating system, with failures.
class failing_files final : public gradus::io::file_system {
 public:
  int fails_at = std::numeric_limits<int>::max();  // the number of the call that fails
  int failure = -EIO;
  std::size_t longest_write = std::numeric_limits<std::size_t>::max();
  int interrupts_every = 0;  // 0: never
  int calls = 0;

  int open(const std::string& path, gradus::io::open_mode mode) override {
    return call([&] { return files_.open(path, mode); });
  }
  int close(int file) override {
    const int closed = files_.close(file);
    return call([&] { return closed; });
  }
  std::int64_t write(int file, std::span<const std::byte> bytes, std::uint64_t offset) override {
    return call([&] { return files_.write(file, bytes.first(std::min(bytes.size(), longest_write)), offset); });
  }
  std::int64_t read(int file, std::span<std::byte> bytes, std::uint64_t offset) override {
    return files_.read(file, bytes, offset);
  }
  int resize(int file, std::uint64_t size) override { return files_.resize(file, size); }
  int sync(int file) override {
    return call([&] { return files_.sync(file); });
  }
  int sync_folder(const std::string& path) override {
    return call([&] { return files_.sync_folder(path); });
  }
  int lock(int file) override { return files_.lock(file); }
  int rename(const std::string& from, const std::string& to, bool replace) override {
    return call([&] { return files_.rename(from, to, replace); });
  }
  int remove(const std::string& path) override { return files_.remove(path); }
  int status(int file, gradus::io::file_status& into) override { return files_.status(file, into); }
  int status(const std::string& path, gradus::io::file_status& into) override { return files_.status(path, into); }
  int list(const std::string& folder, std::vector<std::string>& into) override { return files_.list(folder, into); }
  int make_folder(const std::string& path) override { return files_.make_folder(path); }
  std::int64_t free_bytes(const std::string& folder) override { return files_.free_bytes(folder); }

 private:
  template <class Call>
  auto call(const Call& forward) -> decltype(forward()) {
    const int number = calls++;
    if (number == fails_at) {
      return failure;
    }
    if (interrupts_every > 0 && number % interrupts_every == 0) {
      return -EINTR;
    }
    return forward();
  }

  gradus::io::file_system& files_ = gradus::io::operating_system();
};

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator{folder}) {
    names.push_back(each.path().filename().string());
  }
  return names;
}

BOOST_AUTO_TEST_SUITE(safetensors_files)

BOOST_AUTO_TEST_CASE(a_file_from_pytorch_is_read) {
  for (const bool map : {true, false}) {
    const values_file file = golden_values(map);
    check_golden_numbers<std::uint8_t>(file, "u8", 250, 1);
    check_golden_numbers<std::int8_t>(file, "i8", -3, 1);
    check_golden_numbers<std::int16_t>(file, "i16", -30000, 1);
    check_golden_numbers<std::uint16_t>(file, "u16", 65530, 1);
    check_golden_numbers<gradus::float16>(file, "f16", -0.5, 0.25);
    check_golden_numbers<gradus::bfloat16>(file, "bf16", -2.5, 1);
    check_golden_numbers<std::int32_t>(file, "i32", -2000000000, 1);
    check_golden_numbers<std::uint32_t>(file, "u32", 4294967290, 1);
    BOOST_TEST(file.read<std::int64_t>("i64")[5] == -(std::int64_t{1} << 62) + 5);
    BOOST_TEST(file.read<std::uint64_t>("u64")[5] == (std::uint64_t{1} << 63U) + 5);
    BOOST_TEST(file.read<double>("f64")[5] == 5 / 7.0);
    BOOST_TEST(file.read<float>("f32")[5] == static_cast<float>(5 / 3.0));
    BOOST_TEST((file.read<std::uint8_t>("bool") == std::vector<std::uint8_t>{0, 1, 0, 1, 0, 1}));
    std::array<bool, 6> truths{};
    file.read(file.entry("bool"), std::span<bool>{truths});
    BOOST_TEST((truths[1] && !truths[4]));
    BOOST_TEST(file.read<double>("number")[0] == 7.5);
    BOOST_TEST(file.read<float>("none").empty());
    BOOST_TEST(file.read<std::uint8_t>("odd").size() == 7U);
    BOOST_TEST(file.read<float>("n\xc3\xa4me \"x\"")[1] == 2.0F);
    BOOST_TEST(*file.metadata("format") == "pt");
    BOOST_TEST((file.metadata("x") == nullptr));
  }
}

BOOST_AUTO_TEST_CASE(elements_are_converted_to_real_numbers) {
  const values_file file = golden_values();
  check_golden_numbers<float>(file, "f16", -0.5, 0.25);
  check_golden_numbers<double>(file, "bf16", -2.5, 1);
  check_golden_numbers<double>(file, "u32", 4294967290, 1);
  check_golden_numbers<gradus::bfloat16>(file, "f16", -0.5, 0.25);
  check_golden_numbers<gradus::float16>(file, "i8", -3, 1);
  BOOST_TEST(static_cast<float>(file.read<gradus::float16>("f32")[5]) ==
             static_cast<float>(static_cast<gradus::float16>(5 / 3.0F)));
  BOOST_TEST(file.read<float>("bool")[1] == 1.0F);
  BOOST_TEST(file.read<float>("f64")[3] == static_cast<float>(3 / 7.0));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_read_is_refused_with_what_there_is) {
  const values_file file = golden_values();
  const auto message = idx_files::message_of<gradus::format_error>([&] { (void)file.read<float>("weight"); });
  BOOST_TEST(
      message.find("expected a tensor 'weight', got a file of 17 tensors: 'bf16', 'bool', 'f16'") != std::string::npos,
      message);
  BOOST_TEST(message.find("and others") != std::string::npos);
  BOOST_TEST(idx_files::message_of<gradus::format_error>([&] {
               (void)file.read<std::int32_t>("f32");
             }).find("expected elements of the type I32, got F32. Hint: read it as that type") != std::string::npos);
  std::array<float, 5> five{};
  BOOST_TEST(idx_files::message_of<gradus::shape_error>([&] {
               file.read(file.entry("f32"), std::span<float>{five});
             }).find("expected memory for 6 elements [2, 3], got 5") != std::string::npos);
  BOOST_CHECK_THROW(values_file{"/nowhere/x.safetensors"}, gradus::format_error);
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read_back) {
  const idx_files::folder folder;
  const std::string path = (folder.path() / "x.safetensors").string();
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  const std::vector<gradus::bfloat16> halves{gradus::bfloat16{0.5F}, gradus::bfloat16{-2.0F}};
  const std::vector<std::int64_t> counts{-1};
  const std::array<bool, 3> truths{true, false, true};
  const std::vector<double> none;
  gradus::io::safetensors_writer writer;
  writer.add("b.weight", numbers, {3, 2}).add("a", halves, {2, 1, 1}).add("count", counts, {}).add("t", truths, {3});
  writer.add("none", none, {0, 7}).metadata("format", "no").metadata("format", "pt");
  writer.write(path);
  writer.write(path);  // replaces it
  const values_file file{path};
  BOOST_TEST((file.read<float>("b.weight") == numbers));
  BOOST_TEST((file.entry("b.weight").shape == std::vector<gradus::index_t>{3, 2}));
  BOOST_TEST(static_cast<float>(file.read<gradus::bfloat16>("a")[1]) == -2.0F);
  BOOST_TEST((file.read<std::int64_t>("count") == counts));
  BOOST_TEST((file.read<std::uint8_t>("t") == std::vector<std::uint8_t>{1, 0, 1}));
  BOOST_TEST(file.read<double>("none").empty());
  BOOST_TEST(*file.metadata("format") == "pt");
  BOOST_TEST((names_in(folder.path()) == std::vector<std::string>{"x.safetensors"}));
  for (const auto& each : file.tensors()) {
    const auto address = reinterpret_cast<std::uintptr_t>(file.bytes(each).data());
    BOOST_TEST(address % gradus::io::size_of(each.type) == 0U);  // others can use them in place
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_refused) {
  const idx_files::folder folder;
  const std::vector<float> numbers{1, 2, 3};
  gradus::io::safetensors_writer writer;
  BOOST_CHECK_THROW(writer.add("a", numbers, {2}), gradus::shape_error);
  BOOST_CHECK_THROW(writer.add("a", numbers, {3, -1}), gradus::shape_error);
  writer.add("a", numbers, {3});
  BOOST_CHECK_THROW(writer.add("a", numbers, {3}), gradus::configuration_error);
  BOOST_TEST(idx_files::message_of<gradus::format_error>([&] {
               writer.write((folder.path() / "no" / "x.safetensors").string());
             }).find("Hint: check the folder and its permissions") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(short_and_interrupted_writes_are_repeated) {
  const idx_files::folder folder;
  const std::string path = (folder.path() / "x.safetensors").string();
  const std::vector<float> numbers(1000, 0.25F);
  gradus::io::safetensors_writer writer;
  writer.add("a", numbers, {1000});
  for (const std::size_t longest : {std::size_t{1}, std::size_t{7}, std::size_t{4096}}) {
    failing_files files;
    files.longest_write = longest;
    files.interrupts_every = 2;
    writer.write(path, files);
    BOOST_TEST((values_file{path}.read<float>("a") == numbers));
  }
}

BOOST_AUTO_TEST_CASE(a_write_that_fails_leaves_the_old_file_and_nothing_else) {
  const idx_files::folder folder;
  const std::string path = (folder.path() / "x.safetensors").string();
  const std::vector<float> before(100, 1.0F);
  const std::vector<float> after(100, 2.0F);
  gradus::io::safetensors_writer old_writer;
  old_writer.add("a", before, {100});
  gradus::io::safetensors_writer new_writer;
  new_writer.add("a", after, {100});
  int failures = 0;
  for (int k = 0;; ++k) {
    old_writer.write(path);
    failing_files files;
    files.longest_write = 100;
    files.fails_at = k;
    files.failure = -ENOSPC;
    try {
      new_writer.write(path, files);
    } catch (const gradus::format_error& failure) {
      BOOST_TEST(std::string{failure.what()}.find("No space left on device") != std::string::npos);
      ++failures;
    }
    BOOST_TEST(names_in(folder.path()).size() == 1U, k);
    const auto found = values_file{path}.read<float>("a");
    BOOST_TEST((found == before || found == after), k);
    if (files.calls <= k) {
      break;
    }
    BOOST_TEST((found == before || k == files.calls - 1), k);  // the last call syncs the folder
  }
  BOOST_TEST(failures > 8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
