// SPDX-License-Identifier: BSL-1.0
//
// Resized photographs: the bytes of Pillow 13.0 and torchvision 0.29, and what is refused.
#include "gradus/data/resize.hpp"

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/core/error.hpp"
#include "idx_files.hpp"

namespace resize_tests {

namespace data = gradus::data;
using gradus::index_t;
using bytes_of_image = std::vector<std::uint8_t>;

bytes_of_image pattern(index_t width, index_t height) {
  bytes_of_image bytes;
  for (index_t y = 0; y < height; ++y) {
    for (index_t x = 0; x < width; ++x) {
      for (index_t c = 0; c < 3; ++c) {
        bytes.push_back(static_cast<std::uint8_t>((x * 37 + y * 59 + c * 83 + x * y * 7) % 256));
      }
    }
  }
  return bytes;
}

bytes_of_image resized(const data::image_size& from, const data::image_size& to, const data::crop& part) {
  const bytes_of_image bytes = pattern(from.width, from.height);
  return data::resize_antialiased({.pixels = bytes.data(), .width = from.width, .height = from.height}, to, part);
}
bytes_of_image resized(const data::image_size& from, const data::image_size& to) {
  return resized(from, to, {.left = 0, .top = 0, .width = to.width, .height = to.height});
}

/// FNV-1a, so that a whole image is one number.
std::uint64_t hash(const bytes_of_image& bytes) {
  std::uint64_t result = 14695981039346656037U;
  for (const std::uint8_t byte : bytes) {
    result = (result ^ byte) * 1099511628211U;
  }
  return result;
}

/// What torchvision's Resize(shorter) and CenterCrop(side) make of a pattern.
struct prepared {
  data::image_size from;
  index_t shorter;
  data::image_size to;
  index_t side;
  std::uint64_t hash;
};

BOOST_AUTO_TEST_SUITE(resize)

// PIL.Image.resize(size, Image.BILINEAR)
BOOST_AUTO_TEST_CASE(small_images_are_those_of_pillow) {
  BOOST_TEST((resized({9, 7}, {4, 3}) == bytes_of_image{86,  158, 129, 135, 131, 113, 127, 117, 132, 101, 142, 126,
                                                        151, 112, 119, 124, 123, 110, 126, 134, 126, 122, 128, 130,
                                                        110, 111, 103, 143, 107, 145, 144, 140, 136, 136, 119, 111}));
  BOOST_TEST((resized({3, 2}, {5, 4}) == bytes_of_image{0,  83,  166, 15,  98,  181, 37,  120, 203, 59,  142, 225,
                                                        74, 157, 240, 15,  98,  181, 31,  114, 171, 54,  137, 156,
                                                        77, 160, 179, 92,  175, 194, 44,  127, 210, 62,  145, 150,
                                                        87, 170, 61,  112, 195, 86,  129, 212, 103, 59,  142, 225,
                                                        77, 160, 140, 103, 186, 13,  129, 212, 39,  147, 230, 57}));
  BOOST_TEST((resized({7, 9}, {7, 4}) ==
              bytes_of_image{49,  132, 164, 92,  175, 97,  134, 166, 140, 126, 99,  87,  169, 142, 130, 102, 90,
                             122, 145, 133, 164, 162, 83,  97,  163, 140, 129, 114, 122, 130, 102, 104, 81,  153,
                             161, 138, 135, 112, 120, 86,  162, 121, 110, 131, 126, 127, 116, 93,  106, 83,  110,
                             179, 100, 158, 146, 154, 162, 144, 152, 129, 142, 119, 127, 167, 155, 77,  159, 81,
                             164, 86,  169, 156, 173, 161, 134, 165, 138, 170, 142, 174, 162, 83,  166, 140}));
  BOOST_TEST((resized({9, 7}, {9, 7}) == pattern(9, 7)));
}

BOOST_AUTO_TEST_CASE(photographs_are_those_of_torchvision) {
  for (const prepared& each : {prepared{{300, 260}, 256, {295, 256}, 224, 16131074069415750754U},
                               prepared{{101, 180}, 64, {64, 114}, 57, 3699033556333527856U},
                               prepared{{5, 300}, 40, {40, 2400}, 33, 8761555973064689696U},
                               prepared{{40, 31}, 256, {330, 256}, 224, 4281684487251374903U},
                               prepared{{256, 256}, 256, {256, 256}, 224, 5590140635656808421U},
                               prepared{{257, 300}, 256, {256, 298}, 225, 4755005590670600195U}}) {
    BOOST_TEST_CONTEXT(each.from.width << " x " << each.from.height) {
      const data::image_size size = data::with_shorter_side(each.from, each.shorter);
      BOOST_TEST((size == each.to), size.width << " x " << size.height);
      const data::crop middle = data::middle_crop(size, each.side, each.side);
      BOOST_TEST(hash(resized(each.from, size, middle)) == each.hash);
    }
  }
}

// PIL.Image.resize(size, Image.BILINEAR): columns come first where more rows vanish than twice the columns that do.
BOOST_AUTO_TEST_CASE(sizes_with_another_aspect_have_the_bytes_of_pillow) {
  struct changed {
    data::image_size from;
    data::image_size to;
    std::uint64_t hash;
  };
  const std::vector<changed> cases{
      {{25, 51}, {39, 17}, 13701420067548956893U}, {{56, 45}, {46, 16}, 17084230403572578548U},
      {{19, 14}, {33, 7}, 1613732467567519613U},   {{31, 40}, {7, 8}, 4073385938079907812U},
      {{40, 61}, {30, 40}, 12251688463789298432U},
  };
  for (const changed& each : cases) {
    BOOST_TEST(hash(resized(each.from, each.to)) == each.hash, each.from.width << " x " << each.from.height);
  }
}

BOOST_AUTO_TEST_CASE(a_part_has_the_bytes_of_the_whole) {
  for (const data::image_size from :
       {data::image_size{50, 41}, data::image_size{50, 141}}) {  // rows first, and columns
    const bytes_of_image whole = resized(from, {23, 70});
    const data::crop part{.left = 5, .top = 12, .width = 11, .height = 31};
    const bytes_of_image some = resized(from, {23, 70}, part);
    BOOST_TEST(some.size() == 3U * 11 * 31);
    bool same = true;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::size_t row = 12 + i / 33;
      same = same && some[i] == whole[row * 69 + 15 + i % 33];
    }
    BOOST_TEST(same);
  }
}

BOOST_AUTO_TEST_CASE(half_a_pixel_is_rounded_to_the_even_number) {
  BOOST_TEST(
      (data::middle_crop({295, 257}, 224, 224) == data::crop{.left = 36, .top = 16, .width = 224, .height = 224}));
}

BOOST_AUTO_TEST_CASE(refuses_rectangles_that_are_not_inside) {
  for (const data::crop& part : {data::crop{.left = 1, .top = 0, .width = 4, .height = 3},
                                 data::crop{.left = 0, .top = -1, .width = 4, .height = 3},
                                 data::crop{.left = 0, .top = 0, .width = 0, .height = 3},
                                 data::crop{.left = 0, .top = 0, .width = 4, .height = 3, .mirror = true}}) {
    const std::string message = idx_files::message_of<gradus::configuration_error>([&] {
      (void)resized({9, 7}, {4, 3}, part);
    });
    GRADUS_CHECK_MESSAGE(message, {"resize_antialiased: expected an image of at least 1 pixel, and a rectangle inside",
                                   "an image of 9 x 7, resized to 4 x 3"});
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace resize_tests
