// SPDX-License-Identifier: BSL-1.0
//
// A data set of encoded images, which are decoded, cropped and mirrored when they are read.
#pragma once

#include <algorithm>    // std::clamp, std::find
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t, std::uint64_t
#include <memory>       // std::unique_ptr
#include <mutex>        // std::mutex, std::lock_guard
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <tuple>        // std::apply, std::get, std::tuple
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/data/crop.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/encoded_images.hpp"

namespace gradus::data {

/// What to do with an image that cannot be decoded.
enum class corrupt_image : unsigned char {
  fail,  ///< end the epoch with an error that names the image
  skip   ///< use the next image of its class instead; problems() lists it
};

/// Limits of a decoder of images.
struct decoding_limits {
  index_t most_pixels = index_t{1} << 27;  ///< limit for the pixels of an image: a small file can declare 65535 x 65535
};

/// Options of a data set of encoded images.
struct decoding_options {
  index_t height = 224;  ///< rows of an example
  index_t width = 224;   ///< columns of an example
  /// (byte / 255 - mean) / deviation; by default with ImageNet's mean and deviation of red, green and blue.
  normalization values{.scale = 1.0 / 255.0, .mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}};
  std::uint64_t seed = 0;                       ///< of the random crops
  corrupt_image corrupt = corrupt_image::fail;  ///< what to do with images that cannot be decoded
  decoding_limits limits = {};                  ///< limits of the decoder
};

/// Encoded images that are decoded when they are read. Models `augmenting_dataset`: read(i, planes) writes the center
/// crop of an image; read(i, epoch, planes) writes a random crop, mirrored or not, that is a function of (seed, epoch,
/// i). Any number of threads may read it; use a parallel_loader.
///
/// jpeg_dataset (gradus/data/jpeg.hpp) and png_dataset (gradus/data/png.hpp) have one decoder. With several, each image
/// is decoded by the first that recognizes how it begins:
///
///   const data::class_folders files{"flowers/train", {.endings = {".jpg", ".jpeg", ".png"}}};
///   const data::decoded_dataset<data::jpeg_decoder, data::png_decoder> images{files, {.height = 224, .width = 224}};
///
/// A decoder is constructible from decoding_limits. It has `recognizes(bytes)`, `read_header(bytes, name)`, which
/// returns the extents, and `decode(bytes, name, least_width, least_height)`, which returns a pixel_image of three
/// channels, and may reduce it to that size; both throw format_error. Its `dataset_name` is for messages.
template <class First, class... Others>
class decoded_dataset {
 public:
  /// @param images  must outlive the data set
  /// @throws configuration_error if options are invalid
  explicit decoded_dataset(borrowed<const encoded_images> images, decoding_options options = {},
                           error_location where = error_location::current()) try
      : images_{&images.get()}, options_{std::move(options)}, stream_{options_.seed, "crop"} {
    if (options_.height < 1 || options_.width < 1 || options_.limits.most_pixels < 1) {
      gradus::raise<configuration_error>(First::dataset_name, "height, width and most_pixels of at least 1",
                                         {options_.height, ", ", options_.width, " and ", options_.limits.most_pixels});
    }
    // image_dataset checks the normalization and computes the tables.
    const image_dataset table{{256, 3, 1, 1}, every_byte(), std::vector<std::int32_t>(256), 1, options_.values};
    tables_.resize(3 * 256);
    for (index_t byte = 0; byte < 256; ++byte) {
      float numbers[3];
      table.read(byte, numbers);
      for (std::size_t c = 0; c < 3; ++c) {
        tables_[c * 256 + static_cast<std::size_t>(byte)] = numbers[c];
      }
    }
    hash_ = gradus::detail::mix_bits(images_->hash() ^ table.hash() ^ gradus::detail::mix_bits(options_.seed));
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The number of images.
  [[nodiscard]] index_t size() const { return images_->size(); }
  /// The extents of an example: (1, 3, height, width).
  [[nodiscard]] image_extents example() const noexcept { return {1, 3, options_.height, options_.width}; }
  /// The number of classes.
  [[nodiscard]] int classes() const { return images_->classes(); }
  /// The label of image i. @pre 0 <= i < size()
  [[nodiscard]] std::int32_t label(index_t i) const { return images_->label(i); }
  /// The conversion of bytes to numbers.
  [[nodiscard]] const normalization& values() const noexcept { return options_.values; }
  /// A hash of the images, the normalization and the seed.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  /// Writes the center crop of image i. @pre 0 <= i < size()
  /// @throws format_error if it, or every image of its class, cannot be decoded
  template <class Element>
  void read(index_t i, Element* planes) const {
    read_as(i, nullptr, planes);
  }
  /// Writes a random crop of image i. @throws as the other read
  template <class Element>
  void read(index_t i, std::uint64_t epoch, Element* planes) const {
    read_as(i, &epoch, planes);
  }

  /// A message for each image that was skipped so far, in the order in which they were read.
  [[nodiscard]] std::vector<std::string> problems() const {
    const std::lock_guard lock{mutex_};
    return problems_;
  }

 private:
  /// The state of a thread that decodes.
  struct worker {
    std::tuple<First, Others...> decoders;
    std::vector<std::uint8_t> bytes;
    std::vector<float> planes;
  };

  static std::vector<std::uint8_t> every_byte() {
    std::vector<std::uint8_t> bytes(std::size_t{3} * 256);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(i / 3);
    }
    return bytes;
  }

  template <class Element>
  void read_as(index_t i, const std::uint64_t* epoch, Element* planes) const {
    const std::unique_ptr<worker, returns_worker> own{take_worker(), returns_worker{this}};
    own->planes.resize(tables_.size() / 256 * static_cast<std::size_t>(options_.height * options_.width));
    decode_or_skip(i, epoch, *own);
    for (std::size_t k = 0; k < own->planes.size(); ++k) {
      planes[k] = static_cast<Element>(own->planes[k]);
    }
  }

  void decode_or_skip(index_t i, const std::uint64_t* epoch, worker& own) const {
    for (index_t chosen = i;;) {
      try {
        decode(chosen, epoch, own);
        return;
      } catch (const format_error& failure) {
        if (options_.corrupt == corrupt_image::fail) {
          throw;
        }
        report(std::string{failure.message()});
      }
      do {
        chosen = (chosen + 1) % size();
      } while (label(chosen) != label(i));
      if (chosen == i) {
        gradus::raise<format_error>({"read '", images_->name(i), "'"},
                                    {"an image of class ", label(i), " that can be decoded"}, "none");
      }
    }
  }

  void decode(index_t i, const std::uint64_t* epoch, worker& own) const {
    images_->read(i, own.bytes);
    const auto recognized = [&, this](auto& decoder) {
      return decoder.recognizes(own.bytes) && (this->decode_by(decoder, i, epoch, own), true);
    };
    if (!std::apply([&](auto&... each) { return (recognized(each) || ...); }, own.decoders)) {
      decode_by(std::get<0>(own.decoders), i, epoch, own);  // says what is expected
    }
  }

  template <class Decoder>
  void decode_by(Decoder& decoder, index_t i, const std::uint64_t* epoch, worker& own) const {
    const std::string name = images_->name(i);
    const image_extents whole = decoder.read_header(own.bytes, name);
    crop part = epoch != nullptr ? random_crop(whole.w, whole.h, stream_, static_cast<std::uint64_t>(i), *epoch)
                                 : central_crop(whole.w, whole.h, options_.width, options_.height);
    // Decode only as much detail as the crop needs.
    const pixel_image image = decoder.decode(own.bytes, name, (whole.w * options_.width + part.width - 1) / part.width,
                                             (whole.h * options_.height + part.height - 1) / part.height);
    const auto scaled = [](index_t length, index_t now, index_t before) {
      return static_cast<index_t>(static_cast<double>(length) * static_cast<double>(now) / static_cast<double>(before));
    };
    part.left = scaled(part.left, image.width, whole.w);
    part.top = scaled(part.top, image.height, whole.h);
    part.width = std::clamp(scaled(part.width, image.width, whole.w), index_t{1}, image.width - part.left);
    part.height = std::clamp(scaled(part.height, image.height, whole.h), index_t{1}, image.height - part.top);
    resample(image, part, options_.height, options_.width, tables_, own.planes.data());
  }

  void report(std::string problem) const {
    const std::lock_guard lock{mutex_};
    if (std::find(problems_.begin(), problems_.end(), problem) == problems_.end()) {
      problems_.push_back(std::move(problem));
    }
  }

  struct returns_worker {
    const decoded_dataset* set;
    void operator()(worker* used) const {
      std::unique_ptr<worker> back{used};
      const std::lock_guard lock{set->mutex_};
      set->idle_.push_back(std::move(back));
    }
  };
  [[nodiscard]] worker* take_worker() const {
    {
      const std::lock_guard lock{mutex_};
      if (!idle_.empty()) {
        worker* const used = idle_.back().release();
        idle_.pop_back();
        return used;
      }
    }
    return new worker{.decoders{First{options_.limits}, Others{options_.limits}...}, .bytes = {}, .planes = {}};
  }

  const encoded_images* images_;
  decoding_options options_;
  random_stream stream_;
  std::vector<float> tables_;  // (3, 256): the normalized number of each byte, per channel
  std::uint64_t hash_ = 0;
  mutable std::mutex mutex_;  // protects the members below
  mutable std::vector<std::unique_ptr<worker>> idle_;
  mutable std::vector<std::string> problems_;
};
}  // namespace gradus::data
