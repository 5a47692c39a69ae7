// SPDX-License-Identifier: BSL-1.0
//
// .npy files: those that NumPy wrote (tests/golden/npy.py), those that write_npy writes, and hostile ones.
#include "gradus/data/npy.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "idx_files.hpp"
#include "source_directory.hpp"

namespace {

namespace data = gradus::data;
using gradus::format_error;
using gradus::index_t;

std::string numpy_file(const std::string& name) {
  return path_in_tests("golden/npy/" + name);
}

idx_files::bytes bytes_of(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::string message_of_npy(const std::string& path) {
  return idx_files::message_of<format_error>([&] { const data::npy_array array{path}; });
}

/// A file of version 1.0 with this dictionary and content.
idx_files::bytes npy_bytes(const std::string& dictionary, std::size_t content, std::uint8_t version = 1) {
  idx_files::bytes file{0x93, 'N', 'U', 'M', 'P', 'Y', version, 0, static_cast<std::uint8_t>(dictionary.size()), 0};
  if (version > 1) {
    file.insert(file.end(), {0, 0});
  }
  file.insert(file.end(), dictionary.begin(), dictionary.end());
  file.insert(file.end(), content, std::uint8_t{1});
  return file;
}

std::string message_of_header(const std::string& dictionary, std::size_t content = 24) {
  const idx_files::folder folder;
  return message_of_npy(folder.write("x.npy", npy_bytes(dictionary, content)).string());
}

template <class Element>
std::vector<Element> numbers_of(const data::npy_array& array) {
  std::vector<Element> numbers(static_cast<std::size_t>(array.size()));
  array.read(0, array.size(), numbers.data());
  return numbers;
}

std::vector<double> npy_input(const data::npy& set, index_t i) {
  std::vector<double> planes(static_cast<std::size_t>(set.example().size()));
  set.read(i, planes.data());
  return planes;
}

/// Files of a data set in a folder of their own.
class npy_folder {
 public:
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  template <class Element>
  std::string write(const std::string& name, const std::vector<Element>& numbers,
                    const std::vector<index_t>& extents) const {
    data::write_npy(path(name), numbers, extents);
    return path(name);
  }

 private:
  idx_files::folder folder_;
};

template <class Element>
std::vector<Element> numbers_from_zero(std::size_t count, std::size_t bound = 1U << 20U) {
  std::vector<Element> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<Element>(i % bound);
  }
  return numbers;
}

template <class Batch>
void require_same_batches(const Batch& left, const Batch& right) {
  const auto numbers = [](const auto& view) { return std::vector<float>(view.data(), view.data() + view.size()); };
  BOOST_TEST(numbers(left.images) == numbers(right.images), boost::test_tools::per_element());
  BOOST_TEST(left.labels == right.labels, boost::test_tools::per_element());
  BOOST_TEST((left.targets.extents() == right.targets.extents()));
  if (right.targets.size() > 0) {
    BOOST_TEST(numbers(left.targets) == numbers(right.targets), boost::test_tools::per_element());
  }
}

/// The loaders give the same batches of both sets, in both layouts, whole and in shards.
template <class Set>
void require_same_epochs(const data::npy& files, const Set& memory) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto compare = [](auto& left, auto& right) {
    left.start_epoch(1);
    right.start_epoch(1);
    index_t seen = 0;
    while (const auto* batch = left.next()) {
      require_same_batches(*batch, *right.next());
      seen += batch->images.extent(0);
    }
    BOOST_TEST(seen > 0);
  };
  for (const data::shard part : {data::shard{0, 1}, data::shard{1, 2}}) {
    const data::loader_options options{.global_batch_size = 3, .seed = 7, .shard = part};
    data::loader<float, gradus::nhwc> left{device, files, options};
    data::loader<float, gradus::nhwc> right{device, memory, options};
    compare(left, right);
    data::parallel_loader<float, gradus::nchw> left_parallel{device, files, options, {.threads = 2}};
    data::parallel_loader<float, gradus::nchw> right_parallel{device, memory, options, {.threads = 2}};
    compare(left_parallel, right_parallel);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_npy)

BOOST_AUTO_TEST_CASE(reads_what_numpy_writes) {
  using types = std::vector<std::pair<std::string, bool>>;
  for (const auto& [name, has_sign] : types{{"u1", false},
                                            {"i1", true},
                                            {"i2", true},
                                            {"i4", true},
                                            {"i8", true},
                                            {"u2", false},
                                            {"u4", false},
                                            {"u8", false},
                                            {"f2", false},
                                            {"f4", false},
                                            {"f8", false}}) {
    for (const bool map : {true, false}) {
      const data::npy_array array{numpy_file(name + ".npy"), map};
      BOOST_TEST(array.type_name().substr(1) == name);
      BOOST_TEST(array.has_integers() == (name[0] != 'f'));
      BOOST_TEST(std::vector<index_t>(array.extents().begin(), array.extents().end()) == (std::vector<index_t>{2, 3}),
                 boost::test_tools::per_element());
      const double first = has_sign ? -1 : 0;
      const std::vector<double> expected{first, first + 1, first + 2, first + 3, first + 4, first + 5};
      BOOST_TEST(numbers_of<double>(array) == expected, boost::test_tools::per_element());
    }
  }
  for (const std::string name : {"version2", "version3"}) {
    const data::npy_array array{numpy_file(name + ".npy")};
    BOOST_TEST(array.elements<float>()[5] == 5.0F);
  }
  const data::npy_array number{numpy_file("number.npy")};
  BOOST_TEST(number.extents().empty());
  BOOST_TEST(number.elements<double>()[0] == 7.5);
  const data::npy_array none{numpy_file("none.npy")};
  BOOST_TEST(none.size() == 0);
  const data::npy_array vector{numpy_file("vector.npy")};
  GRADUS_CHECK_MESSAGE(idx_files::message_of<format_error>([&] { (void)vector.elements<double>(); }),
                       {"vector.npy", "expected elements of type '<f8', got '<f4'", "npy.cpp"});
}

BOOST_AUTO_TEST_CASE(any_order_of_axes_and_bytes_is_read) {
  const std::vector<double> expected{0, 1, 2, 3, 4, 5};
  for (const bool map : {true, false}) {
    for (const std::string name : {"fortran", "big_endian", "fortran_big_endian", "big_u2"}) {
      const data::npy_array array{numpy_file(name + ".npy"), map};
      BOOST_TEST_CONTEXT(name) {
        BOOST_TEST(numbers_of<double>(array) == expected, boost::test_tools::per_element());
        BOOST_TEST(array.type_name() == (name == "big_u2" ? "<u2" : "<f4"));
      }
    }
    const data::npy_array axes{numpy_file("fortran_axes.npy"), map};
    BOOST_TEST(axes.elements<std::int32_t>()[7] == 7);
    BOOST_TEST(numbers_of<index_t>(axes) == numbers_from_zero<index_t>(24), boost::test_tools::per_element());
    const data::npy_array truths{numpy_file("truths.npy"), map};
    BOOST_TEST(truths.has_integers());
    BOOST_TEST(numbers_of<int>(truths) == (std::vector<int>{1, 0, 1}), boost::test_tools::per_element());
    BOOST_TEST(truths.elements<bool>()[2]);
  }
  const npy_folder folder;
  const data::npy set{numpy_file("fortran_axes.npy"),
                      folder.write("y.npy", std::vector<std::uint16_t>{0, 3}, {2}),
                      {.classes = 4}};  // labels of any type of integers
  BOOST_TEST(set.classes() == 4);
  BOOST_TEST(npy_input(set, 1)[11] == 23.0);
  const std::string far = folder.write("far.npy", std::vector<std::uint64_t>{1, ~std::uint64_t{0}}, {2});
  GRADUS_CHECK_MESSAGE(idx_files::message_of<format_error>([&] {
                         const data::npy refused{numpy_file("fortran_axes.npy"), far};
                       }),
                       {"expected labels from 0 to", "label 18446744073709551615 of example 1"});
}

BOOST_AUTO_TEST_CASE(arrays_of_an_archive_are_read_by_name) {
  const std::string archive = numpy_file("two.npz");
  for (const bool map : {true, false}) {
    const data::npy_array x{archive + "/x", map};
    BOOST_TEST(numbers_of<int>(x) == (std::vector<int>{0, 1, 2, 3, 4, 5}), boost::test_tools::per_element());
    BOOST_TEST(data::npy_array(archive + "/y", map).has_integers());
  }
  BOOST_TEST((data::npy{archive + "/x", archive + "/y"}.classes()) == 2);
  GRADUS_CHECK_MESSAGE(message_of_npy(archive + "/z"), {"expected an array 'z' in the archive, got 'x', 'y'"});
  GRADUS_CHECK_MESSAGE(message_of_npy(numpy_file("compressed.npz/x")), {"got a compressed one", "np.savez instead"});
  const auto whole = bytes_of(archive);
  const idx_files::folder folder;
  for (std::size_t length = 0; length < whole.size(); ++length) {  // every cut
    folder.write("cut.npz", {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    GRADUS_CHECK_MESSAGE(message_of_npy((folder.path() / "cut.npz/x").string()), {"npy '", "cut.npz/x': expected "});
  }
  auto flipped = whole;
  flipped[30 + 5 + 128 + 3] ^= 1U;  // in the first number of the first array
  folder.write("flipped.npz", flipped);
  GRADUS_CHECK_MESSAGE(
      message_of_npy((folder.path() / "flipped.npz/x").string()),
      {"flipped.npz/x': expected the checksum of the array 'x' in the archive, got other bytes", "copy it again"});
  BOOST_TEST(message_of_npy((folder.path() / "flipped.npz/y").string()) == "no exception");
  for (std::size_t at = 0; at < whole.size(); ++at) {  // no changed byte leads out of the file
    for (const std::uint8_t changed : {std::uint8_t{0xff}, std::uint8_t{0}}) {
      auto damaged = whole;
      damaged[at] = changed;
      folder.write("cut.npz", damaged);
      try {
        const data::npy_array array{(folder.path() / "cut.npz/y").string(), false};
        BOOST_TEST(numbers_of<double>(array).size() < 100U);
      } catch (const format_error&) {
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(refuses_what_it_cannot_read) {
  const std::string numbers = "expected elements of type b1, u1, u2, u4, u8, i1, i2, i4, i8, f2, f4 or f8, got ";
  GRADUS_CHECK_MESSAGE(
      message_of_npy(numpy_file("objects.npy")),
      {numbers + "'|O' (objects of Python)", "x.astype('f4')", "x.astype('i4') where they are classes"});
  GRADUS_CHECK_MESSAGE(message_of_npy(numpy_file("complex.npy")), {numbers + "'<c8' (complex numbers)"});
  GRADUS_CHECK_MESSAGE(message_of_npy(numpy_file("texts.npy")), {numbers + "'<U2' (texts)"});
  GRADUS_CHECK_MESSAGE(message_of_npy(numpy_file("structured.npy")), {"records of several fields", "x['name']"});
  GRADUS_CHECK_MESSAGE(message_of_npy(numpy_file("archive.npz")), {"a .npz or other zip archive", "set.npz/x"});
  GRADUS_CHECK_MESSAGE(message_of_npy(numpy_file("missing.npy")), {"expected a file, got no such file"});
}

BOOST_AUTO_TEST_CASE(refuses_damaged_headers) {
  const idx_files::folder folder;
  const auto whole = bytes_of(numpy_file("f4.npy"));
  for (std::size_t length = 0; length < whole.size(); ++length) {  // every cut
    const auto path = folder.write("cut.npy", {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    GRADUS_CHECK_MESSAGE(message_of_npy(path.string()), {"npy '", "cut.npy': expected "});
    if (length >= 128) {
      GRADUS_CHECK_MESSAGE(message_of_npy(path.string()),
                           {"24 bytes after the header, of elements '<f4' in the shape (2, 3)",
                            "got " + std::to_string(length - 128), "not copied completely"});
    }
  }
  auto longer = whole;
  longer.push_back(0);
  GRADUS_CHECK_MESSAGE(message_of_npy(folder.write("longer.npy", longer).string()), {"expected 24 bytes", "got 25"});
  auto version = whole;
  version[6] = 4;
  GRADUS_CHECK_MESSAGE(message_of_npy(folder.write("version.npy", version).string()),
                       {"version 1.0, 2.0 or 3.0", "got 4.0"});
  GRADUS_CHECK_MESSAGE(message_of_npy(folder.write("other.npy", {'h', 'e', 'l', 'l', 'o', '!', '!'}).string()),
                       {"the first bytes \\x93NUMPY", "np.save(path, x)"});
  auto long_header = npy_bytes("", 0, 2);
  long_header[10] = 1;  // 65536 bytes
  GRADUS_CHECK_MESSAGE(message_of_npy(folder.write("long.npy", long_header).string()),
                       {"a header of at most 65535 bytes, got 65536"});

  const std::string fine = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  BOOST_TEST(message_of_header(fine) == "no exception");
  BOOST_TEST(message_of_header("{\"shape\":(2L,3L),'fortran_order':False,'descr':'<f4'}\n") == "no exception");
  BOOST_TEST(message_of_header("{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }") == "no exception");
  const auto with_shape = [](const std::string& shape) {
    return message_of_header("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }");
  };
  GRADUS_CHECK_MESSAGE(with_shape("(-2, 3)"), {"extents of at least 0, got a negative extent"});
  GRADUS_CHECK_MESSAGE(with_shape("(6)"), {"a comma after the extent, as in (3,)"});
  GRADUS_CHECK_MESSAGE(with_shape("6"), {"a tuple of extents"});
  GRADUS_CHECK_MESSAGE(with_shape("(2, x)"), {"a whole number as an extent, got 'x'"});
  GRADUS_CHECK_MESSAGE(with_shape("(2 3)"), {"got '3'"});
  GRADUS_CHECK_MESSAGE(with_shape("(99999999999999999999, 3)"), {"extents of at most 9223372036854775807"});
  GRADUS_CHECK_MESSAGE(with_shape("(4294967296, 4294967296)"), {"an array that fits the address space"});
  GRADUS_CHECK_MESSAGE(with_shape("(0, 4611686018427387904)"), {"an array that fits the address space"});
  GRADUS_CHECK_MESSAGE(with_shape("(2305843009213693951,)"), {"9223372036854775804 bytes after the header", "got 24"});
  std::string many = "(";
  for (int axis = 0; axis < 65; ++axis) {
    many += "1,";
  }
  many += ")";
  GRADUS_CHECK_MESSAGE(with_shape(many), {"at most 64 axes"});
  GRADUS_CHECK_MESSAGE(message_of_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }"), {"True or False"});
  GRADUS_CHECK_MESSAGE(message_of_header("{'descr': 4, 'fortran_order': False, 'shape': (2, 3), }"),
                       {"a text in quotes"});
  GRADUS_CHECK_MESSAGE(message_of_header("{'descr': '<f4, 'fortran_order"), {"expected"});
  GRADUS_CHECK_MESSAGE(message_of_header("{'fortran_order': False, 'shape': (2, 3), }"), {"without one of them"});
  GRADUS_CHECK_MESSAGE(message_of_header(fine + "1"), {"the end of the dictionary, got more text"});
  GRADUS_CHECK_MESSAGE(message_of_header("{'descr': '<f4', 'descr': '<f4'}"), {"one entry 'descr', got a second one"});
  GRADUS_CHECK_MESSAGE(message_of_header("{'order': 'C'}"), {"got 'order'"});
  GRADUS_CHECK_MESSAGE(message_of_header("[]"), {"expected '{' in the dictionary of the header, got '['"});
  GRADUS_CHECK_MESSAGE(message_of_header(""), {"got the end of the header"});
}

BOOST_AUTO_TEST_CASE(elements_at_odd_addresses_are_read) {
  const idx_files::folder folder;
  const std::string dictionary = "{'descr':'<f8','fortran_order':False,'shape':(1,)}";  // 10 + 50 bytes, not aligned
  auto file = npy_bytes(dictionary, 0);
  for (const std::uint8_t byte : std::array<std::uint8_t, 8>{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}) {
    file.push_back(byte);
  }
  const data::npy_array array{folder.write("x.npy", file).string()};
  BOOST_TEST(numbers_of<double>(array)[0] == 1.5);
  GRADUS_CHECK_MESSAGE(idx_files::message_of<format_error>([&] { (void)array.elements<double>(); }),
                       {"elements at a multiple of 8 bytes, got elements from byte 60 on"});
}

BOOST_AUTO_TEST_CASE(writes_the_bytes_that_numpy_writes) {
  const npy_folder folder;
  const auto require_same = [&](const std::string& written, const std::string& name) {
    BOOST_TEST((bytes_of(written) == bytes_of(numpy_file(name))), name);
  };
  require_same(folder.write("u1", numbers_from_zero<std::uint8_t>(6), {2, 3}), "u1.npy");
  require_same(folder.write("i1", std::vector<std::int8_t>{-1, 0, 1, 2, 3, 4}, {2, 3}), "i1.npy");
  require_same(folder.write("i2", std::vector<std::int16_t>{-1, 0, 1, 2, 3, 4}, {2, 3}), "i2.npy");
  require_same(folder.write("i4", std::vector<std::int32_t>{-1, 0, 1, 2, 3, 4}, {2, 3}), "i4.npy");
  require_same(folder.write("i8", std::vector<std::int64_t>{-1, 0, 1, 2, 3, 4}, {2, 3}), "i8.npy");
  std::vector<gradus::float16> halves;
  for (int i = 0; i < 6; ++i) {
    halves.emplace_back(static_cast<float>(i));
  }
  require_same(folder.write("f2", halves, {2, 3}), "f2.npy");
  require_same(folder.write("f4", numbers_from_zero<float>(6), {2, 3}), "f4.npy");
  require_same(folder.write("f8", numbers_from_zero<double>(6), {2, 3}), "f8.npy");
  const bool truths[] = {true, true, true, true, true, true};
  data::write_npy(folder.path("bool"), truths, {2, 3});
  require_same(folder.path("bool"), "bool.npy");
  require_same(folder.write("vector", numbers_from_zero<float>(5), {5}), "vector.npy");
  require_same(folder.write("none", std::vector<float>{}, {0, 4}), "none.npy");

  gradus::cpu device{{.intra_op_threads = 1}};
  const auto write_tensor = [&](auto array) {
    for (index_t n = 0; n < 2; ++n) {
      for (index_t c = 0; c < 3; ++c) {
        for (index_t h = 0; h < 2; ++h) {
          for (index_t w = 0; w < 2; ++w) {
            array(n, c, h, w) = static_cast<float>(((n * 3 + c) * 2 + h) * 2 + w);
          }
        }
      }
    }
    data::write_npy(folder.path("images"), array);
    require_same(folder.path("images"), "images.npy");
  };
  write_tensor(gradus::image_tensor<float, gradus::nhwc>{device, {2, 3, 2, 2}});
  write_tensor(gradus::image_tensor<float, gradus::nchw>{device, {2, 3, 2, 2}});
  gradus::tensor<double, 0> number{device, {}};
  number.data()[0] = 7.5;
  data::write_npy(folder.path("number"), number);
  require_same(folder.path("number"), "number.npy");

  const auto refused = [&](const std::vector<index_t>& extents) {
    return idx_files::message_of<gradus::shape_error>([&] { folder.write("x", numbers_from_zero<float>(6), extents); });
  };
  GRADUS_CHECK_MESSAGE(refused({2, 2}), {"write_npy '", "expected extents of 6 numbers, got (2, 2)", "npy.cpp"});
  GRADUS_CHECK_MESSAGE(refused({-2, -3}), {"got (-2, -3)"});
  GRADUS_CHECK_MESSAGE(refused({std::int64_t{1} << 62, 8}), {"expected extents of 6 numbers"});
  GRADUS_CHECK_MESSAGE(
      idx_files::message_of<format_error>([] { data::write_npy("/dev/full", numbers_from_zero<float>(6), {6}); }),
      {"expected room for 152 bytes, got No space left on device"});
  GRADUS_CHECK_MESSAGE(idx_files::message_of<format_error>([&] {
                         data::write_npy(folder.path("no/such/folder.npy"), numbers_from_zero<float>(6), {6});
                       }),
                       {"expected a file that can be written, got No such file"});
}

BOOST_AUTO_TEST_CASE(shapes_of_examples) {
  const npy_folder folder;
  const auto y = folder.write("y.npy", numbers_from_zero<float>(2), {2});
  const auto example = [&](const std::string& x, data::npy_options options = {}) {
    return data::npy{x, y, std::move(options)}.example();
  };
  BOOST_TEST((example(folder.write("1", numbers_from_zero<float>(2), {2})) == gradus::image_extents{1, 1, 1, 1}));
  BOOST_TEST((example(folder.write("2", numbers_from_zero<float>(6), {2, 3})) == gradus::image_extents{1, 3, 1, 1}));
  BOOST_TEST(
      (example(folder.write("3", numbers_from_zero<float>(12), {2, 3, 2})) == gradus::image_extents{1, 1, 3, 2}));
  const auto images = numpy_file("images.npy");
  BOOST_TEST((example(images) == gradus::image_extents{1, 3, 2, 2}));
  const auto last = numpy_file("images_last.npy");
  BOOST_TEST((example(last, {.channels_last = true}) == gradus::image_extents{1, 3, 2, 2}));
  const data::npy by_planes{images, y};
  const data::npy by_pixels{last, y, {.channels_last = true}};
  BOOST_TEST(npy_input(by_planes, 1) == (std::vector<double>{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}),
             boost::test_tools::per_element());
  BOOST_TEST(npy_input(by_pixels, 1) == npy_input(by_planes, 1), boost::test_tools::per_element());
  const auto refused = [&](const std::string& x) {
    return idx_files::message_of<format_error>([&] { (void)example(x); });
  };
  GRADUS_CHECK_MESSAGE(refused(numpy_file("number.npy")), {"an array of 1 to 4 axes", "got the shape ()"});
  GRADUS_CHECK_MESSAGE(refused(folder.write("5", numbers_from_zero<float>(2), {2, 1, 1, 1, 1})),
                       {"got the shape (2, 1, 1, 1, 1)"});
  GRADUS_CHECK_MESSAGE(refused(folder.write("0", numbers_from_zero<float>(0), {2, 0})),
                       {"examples of at least one element"});
  GRADUS_CHECK_MESSAGE(
      idx_files::message_of<gradus::shape_error>([&] {
        const data::npy set{folder.write("3x", numbers_from_zero<float>(3), {3}), y};
      }),
      {"y.npy': expected a target for each of the 3 examples of '", "3x', got the shape (2,)", "npy.cpp"});
}

BOOST_AUTO_TEST_CASE(bytes_are_normalized_as_those_in_memory) {
  const npy_folder folder;
  const auto bytes = numbers_from_zero<std::uint8_t>(4 * 2 * 3 * 3);
  const auto x = folder.write("x.npy", bytes, {4, 2, 3, 3});
  const auto y = folder.write("y.npy", numbers_from_zero<std::uint8_t>(4), {4});
  const data::normalization normalize{.mean = {0.25, 0.5}, .deviation = {0.5, 0.125}};
  const data::npy files{x, y, {.normalize = normalize}};
  const data::image_dataset memory{{4, 2, 3, 3}, bytes, {0, 1, 2, 3}, 4, normalize};
  for (index_t i = 0; i < 4; ++i) {
    std::vector<double> expected(18);
    memory.read(i, expected.data());
    BOOST_TEST(npy_input(files, i) == expected, boost::test_tools::per_element());
  }
  require_same_epochs(files, memory);
  BOOST_TEST(files.hash() != (data::npy{x, y}).hash());
  BOOST_TEST(npy_input(data::npy{x, y}, 1)[0] == 18.0);
  GRADUS_CHECK_MESSAGE(idx_files::message_of<gradus::configuration_error>([&] {
                         const data::npy set{x, y, {.normalize{.mean = {1}}}};
                       }),
                       {"a mean for each of 2 channels"});
}

BOOST_AUTO_TEST_CASE(a_large_mean_is_subtracted_before_numbers_are_rounded) {
  const npy_folder folder;
  const auto y = folder.write("y.npy", numbers_from_zero<std::uint8_t>(1), {1});
  const index_t pixels = 700;  // more than are read at a time
  std::vector<double> x(static_cast<std::size_t>(2 * pixels));
  std::vector<std::int64_t> whole(x.size());
  std::vector<double> last(x.size());
  std::vector<float> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i / 700;
    const std::size_t pixel = i % 700;
    whole[i] = (c == 0 ? 1000000000 : 3000000000) + static_cast<std::int64_t>(pixel);
    x[i] = static_cast<double>(whole[i]);
    last[pixel * 2 + c] = x[i];
    expected[i] = static_cast<float>((static_cast<double>(pixel) - 1.5) / (c == 0 ? 1 : 2));
  }
  const data::normalization normalize{.scale = 1, .mean = {1e9 + 1.5, 3e9 + 1.5}, .deviation = {1, 2}};
  const auto read = [&](const std::string& path, bool channels_last) {
    const data::npy set{path, y, {.normalize = normalize, .channels_last = channels_last}};
    std::vector<float> planes(x.size());
    set.read(0, planes.data());
    return planes;
  };
  BOOST_TEST(read(folder.write("f8.npy", x, {1, 2, 7, 100}), false) == expected, boost::test_tools::per_element());
  BOOST_TEST(read(folder.write("i8.npy", whole, {1, 2, 7, 100}), false) == expected, boost::test_tools::per_element());
  BOOST_TEST(read(folder.write("last.npy", last, {1, 7, 100, 2}), true) == expected, boost::test_tools::per_element());
  const data::npy columns{folder.write("columns.npy", std::vector<double>{1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3}, {1, 4}),
                          y,
                          {.normalize = {.scale = 1, .mean = std::vector(4, 1e9 + 1.5)}}};
  std::vector<float> features(4);
  columns.read(0, features.data());
  BOOST_TEST(features == (std::vector<float>{-1.5F, -0.5F, 0.5F, 1.5F}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(loaders_give_what_they_give_of_arrays_in_memory) {
  const npy_folder folder;
  const auto x = numbers_from_zero<float>(7 * 2 * 3 * 2);
  const auto real = numbers_from_zero<double>(7 * 2 * 3 * 1);
  const auto labels = numbers_from_zero<std::int32_t>(7, 5);
  const auto x_file = folder.write("x.npy", x, {7, 2, 3, 2});
  const auto inputs = data::examples_of(std::span{x}, {1, 2, 3, 2});
  const data::npy with_classes{x_file, folder.write("labels.npy", labels, {7})};
  BOOST_TEST(with_classes.classes() == 5);
  BOOST_TEST((with_classes.target() == gradus::image_extents{}));
  require_same_epochs(with_classes, data::in_memory(inputs, data::examples_of(std::span{labels}, {1, 1, 1, 1})));
  const data::npy columns{x_file, folder.write("column.npy", labels, {7, 1}), {.classes = 9}};
  BOOST_TEST(columns.classes() == 9);
  require_same_epochs(columns, data::in_memory(inputs, data::examples_of(std::span{labels}, {1, 1, 1, 1})));
  const data::npy with_numbers{x_file, folder.write("real.npy", real, {7, 2, 3, 1})};
  BOOST_TEST(with_numbers.classes() == 0);
  require_same_epochs(with_numbers, data::in_memory(inputs, data::examples_of(std::span{real}, {1, 2, 3, 1})));
  // Integers as real targets.
  const data::npy ages{x_file, folder.path("labels.npy"), {.targets = data::npy_targets::real}};
  const auto as_numbers = numbers_from_zero<double>(7, 5);
  require_same_epochs(ages, data::in_memory(inputs, data::examples_of(std::span{as_numbers}, {1, 1, 1, 1})));
}

BOOST_AUTO_TEST_CASE(labels_of_pixels) {
  const npy_folder folder;
  const auto x = folder.write("x.npy", numbers_from_zero<float>(3 * 2 * 2), {3, 2, 2});
  std::vector<std::uint8_t> labels{0, 1, 2, 255, 0, 0, 0, 3, 1, 1, 1, 1};
  const auto y = folder.write("y.npy", labels, {3, 2, 2});
  const data::npy set{x, y, {.ignored_label = 255}};
  BOOST_TEST(set.classes() == 4);
  BOOST_TEST((set.label_map() == gradus::image_extents{1, 1, 2, 2}));
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 3, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_TEST(std::vector<std::int32_t>(batch->labels.begin(), batch->labels.end()) ==
                 (std::vector<std::int32_t>{0, 1, 2, 255, 0, 0, 0, 3, 1, 1, 1, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(batch->weights.empty());
  GRADUS_CHECK_MESSAGE(idx_files::message_of<format_error>([&] {
                         const data::npy other{x, y, {.classes = 4}};
                       }),
                       {"y.npy': expected labels from 0 to 3, got label 255 of example 0", "ignored_label", "npy.cpp"});
}

BOOST_AUTO_TEST_CASE(targets_that_are_no_classes_are_refused) {
  const npy_folder folder;
  const auto x = folder.write("x.npy", numbers_from_zero<float>(4), {4});
  const auto refused = [&](const std::string& y, data::npy_options options = {}) {
    return idx_files::message_of<format_error>([&] { const data::npy set{x, y, options}; });
  };
  GRADUS_CHECK_MESSAGE(refused(folder.write("n", std::vector<std::int8_t>{0, 1, -1, 0}, {4})),
                       {"label -1 of example 2"});
  GRADUS_CHECK_MESSAGE(refused(folder.write("l", std::vector<std::int64_t>{0, 1, std::int64_t{1} << 40, 0}, {4})),
                       {"label 1099511627776 of example 2"});
  GRADUS_CHECK_MESSAGE(refused(folder.write("hot", numbers_from_zero<std::int32_t>(12), {4, 3})),
                       {"integers of the shape (4, 3)", "y.argmax(axis=1)", "npy_targets::real"});
  GRADUS_CHECK_MESSAGE(
      refused(folder.write("f", numbers_from_zero<float>(4), {4}), {.targets = data::npy_targets::classes}),
      {"classes, which are integers, got elements of type '<f4'"});
}

BOOST_AUTO_TEST_CASE(weights_of_examples) {
  const npy_folder folder;
  const auto x = folder.write("x.npy", numbers_from_zero<float>(3), {3});
  const auto y = folder.write("y.npy", numbers_from_zero<float>(3), {3});
  const data::npy set{x, y, {.weights = folder.write("w.npy", std::vector<double>{0.5, 2, 1}, {3})}};
  BOOST_TEST(set.weight(1) == 2.0);
  BOOST_TEST(set.hash() != (data::npy{x, y}).hash());
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 3, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_TEST(std::vector<float>(batch->weights.begin(), batch->weights.end()) == (std::vector<float>{0.5F, 2, 1}),
             boost::test_tools::per_element());
  const std::vector<double> bad{1, std::nan(""), 1};
  const data::npy broken{x, y, {.weights = folder.write("bad.npy", bad, {3})}};
  data::loader<float, gradus::nhwc> refusing{device, broken, {.global_batch_size = 3}};
  refusing.start_epoch(0);
  GRADUS_CHECK_MESSAGE(idx_files::message_of<format_error>([&] { (void)refusing.next(); }),
                       {"finite weights of at least 0"});
  GRADUS_CHECK_MESSAGE(
      idx_files::message_of<gradus::shape_error>([&] {
        const data::npy two{x, y, {.weights = folder.write("two.npy", numbers_from_zero<float>(2), {2})}};
      }),
      {"two.npy': expected a weight for each of the 3 examples"});
  GRADUS_CHECK_MESSAGE(
      idx_files::message_of<format_error>([&] {
        const data::npy table{x, y, {.weights = folder.write("table.npy", numbers_from_zero<float>(3), {3, 1})}};
      }),
      {"weights of the shape (N,), got the shape (3, 1)"});
}

BOOST_AUTO_TEST_CASE(hashes_differ_with_the_content) {
  const npy_folder folder;
  const auto y = folder.write("y.npy", numbers_from_zero<float>(1), {1});
  auto numbers = numbers_from_zero<float>((std::size_t{64} << 20U) / 4 + 100);  // more than is hashed as a whole
  const auto hash_of = [&] {
    const auto extent = static_cast<index_t>(numbers.size());
    return data::npy{folder.write("x.npy", numbers, {1, extent}), y}.hash();
  };
  const auto before = hash_of();
  BOOST_TEST(before == hash_of());
  numbers.back() += 1;
  const auto after = hash_of();
  BOOST_TEST(before != after);
  numbers.front() += 1;
  BOOST_TEST(after != hash_of());
}

BOOST_AUTO_TEST_SUITE_END()
