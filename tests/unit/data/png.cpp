// SPDX-License-Identifier: BSL-1.0
//
// PNG images: what becomes of depths, palettes and transparency, folders of them, and what is refused. The images are
// encoded here.
#include "gradus/data/png.hpp"

#include <boost/test/unit_test.hpp>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "idx_files.hpp"

namespace {

namespace png_data = gradus::data;
using idx_files::bytes;

/// How a test's image is stored.
struct png_kind {
  int color = PNG_COLOR_TYPE_RGB;
  int depth = 8;
  bool interlaced = false;
  bool transparent_palette = false;
};

/// One image, written by libpng. Sample `channel` of pixel (x, y) is (40 y + 20 x + 70 channel) mod 256, or as much of
/// it as the depth has; alpha is 0 to 255. Palettes have the color (i, 2 i mod 256, 255 - i).
class png_writing {
 public:
  png_writing(int width, int height, const png_kind& kind) : kind_{kind}, width_{width}, height_{height} {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    info_ = png_create_info_struct(png_);
    channels_ = kind.color == PNG_COLOR_TYPE_RGB          ? 3
                : kind.color == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                : kind.color == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                          : 1;
  }
  png_writing(const png_writing&) = delete;
  png_writing& operator=(const png_writing&) = delete;
  ~png_writing() { png_destroy_write_struct(&png_, &info_); }

  [[nodiscard]] static int sample(int x, int y, int channel, int depth) {
    const int byte = (40 * y + 20 * x + 70 * channel) % 256;
    return depth == 16 ? byte * 257 : depth < 8 ? byte >> (8 - depth) : byte;
  }

  [[nodiscard]] bytes result() {
    png_set_write_fn(
        png_, &content_,
        [](png_structp png, png_bytep data, std::size_t size) {
          auto* const to = static_cast<bytes*>(png_get_io_ptr(png));
          to->insert(to->end(), data, data + size);
        },
        nullptr);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(width_), static_cast<png_uint_32>(height_), kind_.depth,
                 kind_.color, kind_.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    std::vector<png_color> palette;
    for (int i = 0; i < (1 << kind_.depth) && kind_.color == PNG_COLOR_TYPE_PALETTE; ++i) {
      palette.push_back({static_cast<png_byte>(i), static_cast<png_byte>(2 * i % 256), static_cast<png_byte>(255 - i)});
    }
    bytes alpha{0, 128};
    if (!palette.empty()) {
      png_set_PLTE(png_, info_, palette.data(), static_cast<int>(palette.size()));
      if (kind_.transparent_palette) {
        png_set_tRNS(png_, info_, alpha.data(), 2, nullptr);
      }
    }
    const auto row_bytes = static_cast<std::size_t>((width_ * channels_ * kind_.depth + 7) / 8);
    std::vector<bytes> rows;
    std::vector<png_bytep> pointers;
    for (int y = 0; y < height_; ++y) {
      rows.emplace_back(row_bytes);
      int bit = 0;
      for (int x = 0; x < width_; ++x) {
        for (int c = 0; c < channels_; ++c, bit += kind_.depth) {
          const int value = sample(x, y, c, kind_.depth);
          auto* const to = &rows.back()[static_cast<std::size_t>(bit / 8)];
          if (kind_.depth == 16) {
            to[0] = static_cast<std::uint8_t>(value / 256);
            to[1] = static_cast<std::uint8_t>(value % 256);
          } else {
            *to = static_cast<std::uint8_t>(*to | value << (8 - kind_.depth - bit % 8));
          }
        }
      }
    }
    for (bytes& row : rows) {
      pointers.push_back(row.data());
    }
    png_set_rows(png_, info_, pointers.data());
    png_write_png(png_, info_, PNG_TRANSFORM_IDENTITY, nullptr);
    return content_;
  }

 private:
  png_kind kind_;
  int width_;
  int height_;
  int channels_ = 1;
  bytes content_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

[[nodiscard]] bytes png_of(int width, int height, const png_kind& kind = {}) {
  return png_writing{width, height, kind}.result();
}

/// The RGB bytes that a decoder has to give.
[[nodiscard]] bytes expected_rgb(int width, int height, const png_kind& kind) {
  bytes all;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const bool colors = kind.color == PNG_COLOR_TYPE_RGB || kind.color == PNG_COLOR_TYPE_RGB_ALPHA;
        const int value = png_writing::sample(x, y, colors ? c : 0, kind.depth);
        int byte = kind.depth == 16 ? value / 257 : value;
        if (kind.color == PNG_COLOR_TYPE_PALETTE) {
          byte = c == 0 ? value : c == 1 ? 2 * value % 256 : 255 - value;
        } else if (kind.depth < 8) {
          byte = value * 255 / ((1 << kind.depth) - 1);
        }
        all.push_back(static_cast<std::uint8_t>(byte));
      }
    }
  }
  return all;
}

[[nodiscard]] std::string png_refusal(const bytes& content, const png_data::decoding_limits& limits = {}) {
  png_data::png_decoder decoder{limits};
  try {
    (void)decoder.decode(content, "cat/1.png");
  } catch (const gradus::format_error& failure) {
    return failure.what();
  }
  return {};
}

/// The image with other extents in its header, and the checksum that belongs to it.
[[nodiscard]] bytes claiming_extents(bytes image, std::uint32_t width, std::uint32_t height) {
  for (std::size_t k = 0; k < 4; ++k) {
    image[16 + k] = static_cast<std::uint8_t>(width >> (24 - 8 * k));
    image[20 + k] = static_cast<std::uint8_t>(height >> (24 - 8 * k));
  }
  std::uint32_t crc = 0xffffffffU;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= image[i];
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
    }
  }
  for (std::size_t k = 0; k < 4; ++k) {
    image[29 + k] = static_cast<std::uint8_t>(~crc >> (24 - 8 * k));
  }
  return image;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_png)

BOOST_AUTO_TEST_CASE(every_kind_of_image_becomes_rgb) {
  std::vector<png_kind> kinds;
  for (const int depth : {1, 2, 4, 8, 16}) {
    kinds.push_back({.color = PNG_COLOR_TYPE_GRAY, .depth = depth});
    if (depth <= 8) {
      kinds.push_back({.color = PNG_COLOR_TYPE_PALETTE, .depth = depth});
      kinds.push_back({.color = PNG_COLOR_TYPE_PALETTE, .depth = depth, .transparent_palette = true});
    }
    if (depth >= 8) {
      kinds.push_back({.color = PNG_COLOR_TYPE_RGB, .depth = depth});
      kinds.push_back({.color = PNG_COLOR_TYPE_RGB_ALPHA, .depth = depth});
      kinds.push_back({.color = PNG_COLOR_TYPE_GRAY_ALPHA, .depth = depth});
    }
  }
  png_data::png_decoder decoder;
  for (png_kind kind : kinds) {
    for (const bool interlaced : {false, true}) {
      kind.interlaced = interlaced;
      for (const auto& [width, height] : {std::pair{1, 1}, std::pair{9, 5}, std::pair{3, 17}}) {
        BOOST_TEST_CONTEXT("color " << kind.color << ", depth " << kind.depth << ", interlaced " << interlaced << ", "
                                    << width << " x " << height) {
          const bytes content = png_of(width, height, kind);
          BOOST_TEST(png_data::png_decoder::recognizes(content));
          BOOST_TEST((decoder.read_header(content, "x") == gradus::image_extents{1, 3, height, width}));
          const png_data::pixel_image image = decoder.decode(content, "x");
          const bytes pixels(image.pixels, image.pixels + 3 * image.width * image.height);
          BOOST_TEST(pixels == expected_rgb(width, height, kind), boost::test_tools::per_element());
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(damaged_images_are_refused) {
  const bytes whole = png_of(9, 5);
  BOOST_TEST(png_refusal(whole) == "");
  BOOST_TEST(png_refusal({}).find("'cat/1.png'") != std::string::npos);
  BOOST_TEST(png_refusal({}).find("an empty file") != std::string::npos);
  BOOST_TEST(png_refusal(bytes(100, 7)).find("a complete PNG image") != std::string::npos);
  for (const bool interlaced : {false, true}) {
    const bytes each = png_of(9, 5, {.color = PNG_COLOR_TYPE_PALETTE, .depth = 4, .interlaced = interlaced});
    for (std::size_t size = 1; size < each.size(); ++size) {
      BOOST_TEST(png_refusal(bytes(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(size))).find("decode '") !=
                     std::string::npos,
                 size << " of " << each.size() << " bytes are no image");
    }
  }
  for (std::size_t i = 8; i < whole.size(); ++i) {  // the signature and chunks that are checked
    bytes damaged = whole;
    damaged[i] = static_cast<std::uint8_t>(damaged[i] ^ 0x10U);
    BOOST_TEST(png_refusal(damaged) != "", "byte " << i << " was changed");
  }
}

BOOST_AUTO_TEST_CASE(extents_have_limits_before_memory_is_taken) {
  const bytes whole = png_of(9, 5);
  BOOST_TEST(png_refusal(claiming_extents(whole, 9, 5)) == "");
  BOOST_TEST(png_refusal(claiming_extents(whole, 0, 5)) != "");
  BOOST_TEST(png_refusal(claiming_extents(whole, 0x7fffffffU, 0x7fffffffU)).find("an image of at most 134217728") !=
             std::string::npos);
  BOOST_TEST(png_refusal(claiming_extents(whole, 10000, 10000)).find(" bytes for 10000 x 10000 pixels") !=
             std::string::npos);
  BOOST_TEST(png_refusal(whole, {.most_pixels = 44}).find("an image of at most 44 pixels, got 9 x 5") !=
             std::string::npos);
  BOOST_TEST(png_refusal(claiming_extents(whole, 9, 6)) != "");  // a row is missing
}

BOOST_AUTO_TEST_CASE(folders_of_classes) {
  const idx_files::folder folder;
  for (const char* name : {"cat", "dog"}) {
    std::filesystem::create_directory(folder.path() / name);
    folder.write(std::string{name} + "/1.png", png_of(9, 5));
    folder.write(std::string{name} + "/2.PNG", bytes(30, 1));
  }
  BOOST_TEST(idx_files::message_of<gradus::format_error>([&] {
               (void)png_data::class_folders{folder.path().string()};
             }).find("{.endings = {\".png\"}}") != std::string::npos);
  const png_data::class_folders files{folder.path().string(), {.endings = {".png"}}};
  BOOST_TEST(files.size() == 4);
  const png_data::png_dataset set{
      files, {.height = 4, .width = 4, .values = {.scale = 1}, .corrupt = png_data::corrupt_image::skip}};
  std::vector<float> one(3 * 16);
  std::vector<float> two(3 * 16);
  set.read(0, one.data());
  set.read(1, two.data());  // the first one in its place
  BOOST_TEST((one == two));
  BOOST_TEST(set.problems().size() == 1U);
  BOOST_TEST(set.label(3) == 1);
  BOOST_TEST(idx_files::message_of<gradus::configuration_error>([&] {
               png_data::png_dataset{files, {.height = 0}};
             }).find("png_dataset") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
