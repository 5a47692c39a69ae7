// SPDX-License-Identifier: BSL-1.0
//
// Folders with JPEG and PNG files.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradus/data/jpeg.hpp"
#include "gradus/data/png.hpp"
#include "idx_files.hpp"

BOOST_AUTO_TEST_SUITE(data_jpeg_png)

BOOST_AUTO_TEST_CASE(each_file_is_decoded_by_how_it_begins) {
  namespace data = gradus::data;
  const idx_files::folder folder;
  std::filesystem::create_directory(folder.path() / "gray");
  const idx_files::bytes pixels(8 * 8 * 3, 100);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  const tjhandle handle = tjInitCompress();
  BOOST_REQUIRE(tjCompress2(handle, pixels.data(), 8, 0, 8, TJPF_RGB, &memory, &size, TJSAMP_444, 95, 0) == 0);
  folder.write("gray/1.png", idx_files::bytes(memory, memory + size));  // its name does not matter
  tjFree(memory);
  tjDestroy(handle);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 8;
  image.height = 8;
  image.format = PNG_FORMAT_RGB;
  BOOST_REQUIRE(png_image_write_to_file(&image, (folder.path() / "gray/2.png").c_str(), 0, pixels.data(), 0, nullptr) !=
                0);
  folder.write("gray/3.jpg", {1, 2, 3});
  const data::class_folders files{folder.path().string(), {.endings = {".jpg", ".png"}}};
  const data::decoded_dataset<data::jpeg_decoder, data::png_decoder> set{
      files, {.height = 4, .width = 4, .values = {.scale = 1}}};
  for (gradus::index_t i = 0; i < 2; ++i) {
    std::vector<float> planes(3 * 16);
    set.read(i, planes.data());
    BOOST_TEST(planes == std::vector<float>(3 * 16, 100.0F), boost::test_tools::tolerance(0.02F));
  }
  std::vector<float> planes(3 * 16);
  BOOST_TEST(idx_files::message_of<gradus::format_error>([&] {
               set.read(2, planes.data());
             }).find("a complete JPEG image") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
