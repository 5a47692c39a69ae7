// SPDX-License-Identifier: BSL-1.0
//
// JPEG photographs: folders of them, what becomes of them, and what is refused. The images are encoded here.
#include "gradus/data/jpeg.hpp"

#ifdef __linux__
#include <unistd.h>
#endif

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gradus/data/crop.hpp"
#include "idx_files.hpp"

namespace data = gradus::data;
using gradus::configuration_error;
using gradus::format_error;
using gradus::index_t;
using idx_files::bytes;
using idx_files::message_of;

namespace {

/// A JPEG image: red rises from left to right from 0 to 255, green is 100, blue falls from top to bottom.
bytes photograph(int width, int height, int format = TJPF_RGB, int sampling = TJSAMP_444) {
  bytes pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int colors[4] = {255 * x / std::max(width - 1, 1), 100, 255 - 255 * y / std::max(height - 1, 1), 255};
      for (int c = 0; c < (format == TJPF_GRAY ? 1 : format == TJPF_CMYK ? 4 : 3); ++c) {
        pixels.push_back(static_cast<std::uint8_t>(colors[c]));
      }
    }
  }
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  const tjhandle handle = tjInitCompress();
  BOOST_REQUIRE(tjCompress2(handle, pixels.data(), width, 0, height, format, &memory, &size, sampling, 95, 0) == 0);
  bytes result(memory, memory + size);
  tjFree(memory);
  tjDestroy(handle);
  return result;
}

/// The image with another width and height in its frame header.
bytes claiming(bytes image, int length) {
  for (std::size_t i = 0; i + 9 < image.size(); ++i) {
    if (image[i] == 0xff && image[i + 1] == 0xc0) {
      image[i + 5] = image[i + 7] = static_cast<std::uint8_t>(length / 256);
      image[i + 6] = image[i + 8] = static_cast<std::uint8_t>(length % 256);
      break;
    }
  }
  return image;
}

std::string message_of_decoding(const bytes& content, const data::jpeg_limits& limits = {}) {
  data::jpeg_decoder decoder{limits};
  return message_of<format_error>([&] { (void)decoder.decode(content, "cat/1.jpg"); });
}

/// Two classes of two images.
struct two_classes {
  two_classes() {
    for (const char* name : {"cat", "dog"}) {
      std::filesystem::create_directory(folder.path() / name);
      folder.write(std::string{name} + "/1.jpg", photograph(40, 30));
      folder.write(std::string{name} + "/2.JPEG", photograph(30, 40));
      folder.write(std::string{name} + "/notes.txt", {1});
    }
    std::filesystem::create_directory(folder.path() / ".ipynb_checkpoints");
    folder.write(".ipynb_checkpoints/1-checkpoint.jpg", photograph(40, 30));
    folder.write("cat/._1.jpg", {1});
  }
  idx_files::folder folder;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(jpeg)

BOOST_AUTO_TEST_CASE(decodes_colors_grays_and_inks) {
  data::jpeg_decoder decoder;
  for (const auto& [content, tolerance] : {std::pair{photograph(64, 48), 6},
                                           {photograph(64, 48, TJPF_CMYK), 6},
                                           {photograph(64, 48, TJPF_RGB, TJSAMP_420), 12}}) {
    const data::pixel_image image = decoder.decode(content, "a");
    BOOST_REQUIRE(image.width == 64);
    BOOST_REQUIRE(image.height == 48);
    const std::uint8_t* const pixel = image.pixels + (10 * 64 + 32) * 3;
    BOOST_TEST(std::abs(pixel[0] - 255 * 32 / 63) <= tolerance);
    BOOST_TEST(std::abs(pixel[1] - 100) <= tolerance);
    BOOST_TEST(std::abs(pixel[2] - (255 - 255 * 10 / 47)) <= tolerance);
  }
  const data::pixel_image gray = decoder.decode(photograph(64, 48, TJPF_GRAY, TJSAMP_GRAY), "a");
  BOOST_TEST(gray.pixels[3 * 63] == gray.pixels[3 * 63 + 2]);
  BOOST_TEST(gray.pixels[3 * 63] > 245);
}

BOOST_AUTO_TEST_CASE(leaves_out_detail_that_is_not_requested) {
  data::jpeg_decoder decoder;
  const bytes content = photograph(100, 60);
  BOOST_TEST(decoder.decode(content, "a", 25, 15).width == 25);
  BOOST_TEST(decoder.decode(content, "a", 26, 15).width == 50);
  BOOST_TEST(decoder.decode(content, "a", 20, 31).height == 60);
}

BOOST_AUTO_TEST_CASE(refuses_what_is_no_whole_image) {
  const bytes whole = photograph(64, 48);
  GRADUS_CHECK_MESSAGE(message_of_decoding({}), {"decode 'cat/1.jpg': expected a JPEG image, got an empty file"});
  bytes cut = whole;
  cut.resize(cut.size() / 2);
  GRADUS_CHECK_MESSAGE(message_of_decoding(cut), {"decode 'cat/1.jpg': expected a complete JPEG image, got "});
  cut.resize(30);
  GRADUS_CHECK_MESSAGE(message_of_decoding(cut), {"decode 'cat/1.jpg': expected a complete JPEG image, got "});
  bytes other = whole;
  other[0] = 'x';
  GRADUS_CHECK_MESSAGE(message_of_decoding(other), {"expected a complete JPEG image, got Not a JPEG file"});
  GRADUS_CHECK_MESSAGE(message_of_decoding(whole, {.most_pixels = 3071}),
                       {"expected an image of at most 3071 pixels, got 64 x 48"});
  GRADUS_CHECK_MESSAGE(message_of_decoding(claiming(whole, 65500)), {"pixels, got 65500 x 65500"});
}

#ifdef __linux__
// A file of a few kilobytes that claims 190 MB: the rows that it does not have take no memory.
BOOST_AUTO_TEST_CASE(only_the_pixels_that_are_there_take_memory) {
  const auto resident_mebibytes = [] {
    std::ifstream statm{"/proc/self/statm"};
    std::size_t all = 0;
    std::size_t resident = 0;
    statm >> all >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) >> 20U;
  };
  const bytes content = claiming(photograph(64, 48), 8000);
  data::jpeg_decoder decoder;
  const std::size_t before = resident_mebibytes();
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)decoder.decode(content, "a"); }),
                       {"expected a complete JPEG image"});
  BOOST_TEST(resident_mebibytes() < before + 64);
}
#endif

BOOST_AUTO_TEST_CASE(class_folders_are_numbered_by_name) {
  const two_classes files;
  const data::class_folders set{files.folder.path().string()};
  BOOST_TEST(set.size() == 4);
  BOOST_TEST(set.classes() == 2);  // not the hidden folder
  BOOST_TEST(set.class_names() == (std::vector<std::string>{"cat", "dog"}), boost::test_tools::per_element());
  BOOST_TEST(set.label(1) == 0);
  BOOST_TEST(set.label(2) == 1);
  BOOST_TEST(set.name(3).ends_with("dog/2.JPEG"));
  BOOST_TEST(set.hash() == data::class_folders{files.folder.path().string()}.hash());
  files.folder.write("dog/3.jpg", photograph(8, 8));
  BOOST_TEST(set.hash() != data::class_folders{files.folder.path().string()}.hash());
  const std::uint64_t four = data::class_folders{files.folder.path().string()}.hash();
  files.folder.write("dog/3.jpg", photograph(8, 9));  // another size, in bytes too
  BOOST_TEST(four != data::class_folders{files.folder.path().string()}.hash());
  std::filesystem::create_directory(files.folder.path() / "dog" / "4.jpg");  // a folder is no image
  BOOST_TEST(data::class_folders{files.folder.path().string()}.size() == 5);
  std::filesystem::create_directory(files.folder.path() / "dog" / "a.jpg");
  files.folder.write("dog/a.jpg/1.jpg", photograph(8, 8));
  BOOST_TEST(data::class_folders{files.folder.path().string()}.size() == 5);
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { data::class_folders{files.folder.path().string() + "/cat"}; }),
                       {"expected a folder for each class with files that end in .jpeg or .jpg, got 0 folders"});
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { data::class_folders{"/nonexistent"}; }),
                       {"class_folders '/nonexistent'", "expected a folder that can be read"});
}

BOOST_AUTO_TEST_CASE(a_class_without_images_keeps_its_label_or_is_refused) {
  const two_classes files;
  const std::string folder = files.folder.path().string();
  std::filesystem::create_directory(files.folder.path() / "ant");
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { data::class_folders{folder}; }),
                       {"expected files that end in .jpeg or .jpg in the folder of each class, got none in 'ant'",
                        "{.classes = train.class_names()}"});
  const data::class_folders set{folder, {.classes = {"ant", "bee", "dog", "cat"}}};
  BOOST_TEST(set.classes() == 4);
  BOOST_TEST(set.size() == 4);
  BOOST_TEST(set.label(0) == 2);
  BOOST_TEST(set.name(0).ends_with("dog/1.jpg"));
  BOOST_TEST(set.label(3) == 3);
  BOOST_TEST(set.class_names()[1] == "bee");
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] {
                         data::class_folders{folder, {.classes = {"ant", "cat"}}};
                       }),
                       {"expected folders of the 2 classes that are given, got 'dog', which is none of them"});
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] {
                         data::class_folders{folder, {.classes = {"ant", "cat", "dog", "cat"}}};
                       }),
                       {"expected classes with different names, got 'cat' twice"});
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] {
                         data::class_folders{folder, {.endings = {".png"}, .classes = {"ant", "cat", "dog"}}};
                       }),
                       {"expected a folder for each class with files that end in .png, got 3 folders without any"});
}

BOOST_AUTO_TEST_CASE(the_middle_is_for_evaluation_and_random_crops_are_for_training) {
  const two_classes files;
  const data::class_folders folders{files.folder.path().string()};
  const data::jpeg_dataset set{folders, {.height = 8, .width = 8, .values = {.scale = 1.0}, .seed = 3}};
  std::vector<float> middle(3 * 64);
  set.read(0, middle.data());
  BOOST_TEST(middle[0] < middle[7]);           // red rises
  BOOST_TEST(middle[128] > middle[128 + 56]);  // blue falls
  BOOST_TEST(std::abs(middle[64] - 100) < 6);  // green
  BOOST_TEST(middle[0] > 40);                  // not the edge: 7/8 of 30 of 40 pixels
  BOOST_TEST(middle[7] < 215);
  std::vector<float> first(3 * 64);
  std::vector<float> again(3 * 64);
  set.read(0, 5, first.data());
  set.read(0, 5, again.data());
  BOOST_TEST(first == again, boost::test_tools::per_element());
  int mirrored = 0;
  std::set<float> corners;
  for (std::uint64_t epoch = 0; epoch < 32; ++epoch) {
    set.read(0, epoch, again.data());
    mirrored += again[0] > again[7] ? 1 : 0;
    corners.insert(again[0]);
  }
  BOOST_TEST(mirrored >= 8);
  BOOST_TEST(mirrored <= 24);
  BOOST_TEST(corners.size() > 20U);
  BOOST_TEST(set.hash() != (data::jpeg_dataset{folders, {.height = 8, .width = 8, .seed = 4}}.hash()));
}

BOOST_AUTO_TEST_CASE(a_corrupt_image_fails_or_is_skipped_by_name) {
  const two_classes files;
  bytes cut = photograph(40, 30);
  cut.resize(cut.size() - 200);
  files.folder.write("cat/1.jpg", cut);
  const data::class_folders folders{files.folder.path().string()};
  std::vector<float> planes(3 * 64);
  const data::jpeg_dataset strict{folders, {.height = 8, .width = 8}};
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { strict.read(0, planes.data()); }),
                       {"cat/1.jpg'", "expected a complete JPEG image"});
  const data::jpeg_dataset patient{folders, {.height = 8, .width = 8, .corrupt = data::corrupt_image::skip}};
  std::vector<float> other(3 * 64);
  patient.read(0, planes.data());
  patient.read(0, planes.data());
  patient.read(1, other.data());
  BOOST_TEST(planes == other, boost::test_tools::per_element());
  BOOST_REQUIRE(patient.problems().size() == 1U);  // once, however often it is read
  GRADUS_CHECK_MESSAGE(patient.problems()[0], {"cat/1.jpg'", "expected a complete JPEG image"});
  files.folder.write("cat/2.JPEG", {});
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { patient.read(0, planes.data()); }),
                       {"expected an image of class 0 that can be decoded, got none"});
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] {
                         data::jpeg_dataset{folders, {.height = 0}};
                       }),
                       {"height, width and most_pixels of at least 1, got 0"});
}

BOOST_AUTO_TEST_CASE(crops_lie_inside_and_have_the_shape_of_the_paper) {
  const gradus::random_stream stream{1, "crop"};
  double least = 1;
  double most = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const data::crop part = data::random_crop(400, 300, stream, i, i % 7);
    BOOST_REQUIRE(part.left >= 0);
    BOOST_REQUIRE(part.top >= 0);
    BOOST_REQUIRE(part.left + part.width <= 400);
    BOOST_REQUIRE(part.top + part.height <= 300);
    const double aspect = static_cast<double>(part.width) / static_cast<double>(part.height);
    BOOST_REQUIRE(aspect > 0.73);
    BOOST_REQUIRE(aspect < 1.37);
    const double area = static_cast<double>(part.width * part.height) / 120000.0;
    least = std::min(least, area);
    most = std::max(most, area);
  }
  BOOST_TEST(least > 0.079);
  BOOST_TEST(least < 0.1);
  BOOST_TEST(most > 0.9);
  BOOST_TEST((data::random_crop(1, 1, stream, 0, 0).width) == 1);
  const data::crop thin = data::random_crop(1000, 2, stream, 0, 0);  // no attempt fits
  BOOST_TEST(thin.width == 2);
  BOOST_TEST(thin.height == 2);
  BOOST_TEST(
      (data::central_crop(400, 300, 224, 224) == data::crop{.left = 68, .top = 18, .width = 263, .height = 263}));
}

BOOST_AUTO_TEST_SUITE_END()
