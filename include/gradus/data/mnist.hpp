// SPDX-License-Identifier: BSL-1.0
//
// Reads the uncompressed MNIST files and files in the same format (Fashion-MNIST, KMNIST).
#pragma once

#include <cstddef>           // std::size_t
#include <cstdint>           // std::int32_t
#include <initializer_list>  // std::initializer_list
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/byte_source.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/idx.hpp"

namespace gradus::data {

/// The part of a data set: training images or test images.
enum class split : unsigned char {
  training,  ///< images to train on
  test       ///< images to evaluate on
};

/// Options of the MNIST readers.
struct mnist_options {
  int classes = 10;           ///< number of classes
  normalization values = {};  ///< conversion of bytes; by default to [0, 1]
  idx_options limits = {};    ///< limits of the files
  /// What the names of the files begin with: "emnist-letters-" of emnist-letters-train-images-idx3-ubyte.
  std::string prefix = {};
};

namespace detail {

/// Combines a file of images, (n, h, w) or (n, c, h, w), and a file of n labels.
image_dataset make_mnist(byte_source& images, byte_source& labels, mnist_options options);

/// The path of the first file of the usual names that exists, with one of the endings; of the first name if none does.
/// `what` is "images" or "labels".
std::string mnist_path(const std::string& directory, split part, std::string_view what, const mnist_options& options,
                       std::initializer_list<std::string_view> endings);

}  // namespace detail

/// Reads the uncompressed files (train- or t10k-)images-idx3-ubyte and -labels-idx1-ubyte of a folder, or those of the
/// other usual names: with a point (train-images.idx3-ubyte), with test-, of QMNIST (qmnist-train-labels-idx2-int), or
/// with options.prefix in front. For .gz files include gradus/data/gzip.hpp and call load_mnist.
/// @throws format_error with the name of the file if a file is missing or invalid
/// @throws configuration_error if options are invalid
[[nodiscard]] image_dataset load_mnist_plain(const std::string& directory, split part,
                                             const mnist_options& options = {},
                                             error_location where = error_location::current());

}  // namespace gradus::data

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::data::detail {

GRADUS_INLINE image_dataset make_mnist(byte_source& images, byte_source& labels, mnist_options options) {
  if (options.classes < 1) {
    raise<configuration_error>("load_mnist", "classes of at least 1", {options.classes});
  }
  idx_array pixels = read_idx(images, options.limits);
  const auto& shape = pixels.extents;
  if (shape.size() != 3 && shape.size() != 4) {
    raise<format_error>({"load_mnist '", images.name(), "'"}, "images: 3 axes (n, h, w) or 4 (n, c, h, w)",
                        {shape.size(), shape.size() == 1 ? " axis" : " axes"},
                        shape.size() == 1 ? "this looks like a file of labels" : "");
  }
  idx_labels classes = read_idx_labels(labels, options.limits);
  if (const auto count = static_cast<index_t>(classes.values.size()); count != shape[0]) {
    raise<format_error>({"load_mnist '", labels.name(), "'"},
                        {shape[0], " labels as there are images in '", images.name(), "'"}, {count},
                        "the two files do not belong together");
  }
  for (std::size_t i = 0; i < classes.values.size(); ++i) {
    if (classes.values[i] < 0 || classes.values[i] >= options.classes) {
      raise<format_error>({"load_mnist '", labels.name(), "'"}, {"labels from 0 to ", options.classes - 1},
                          {"label ", classes.values[i], " of example ", i}, "check the number of classes");
    }
  }
  const image_extents all = shape.size() == 3 ? image_extents{shape[0], 1, shape[1], shape[2]}
                                              : image_extents{shape[0], shape[1], shape[2], shape[3]};
  return {all, std::move(pixels.values), std::move(classes.values), options.classes, std::move(options.values)};
}

GRADUS_INLINE std::string mnist_path(const std::string& directory, split part, std::string_view what,
                                     const mnist_options& options, std::initializer_list<std::string_view> endings) {
  const bool images = what == "images";
  std::string first;
  for (const std::string_view prefix : {std::string_view{options.prefix}, std::string_view{"qmnist-"}}) {
    for (const std::string_view begin : {part == split::training ? "train" : "t10k", "test"}) {
      if (part == split::training && begin == "test") {
        continue;
      }
      for (const std::string_view kind : {images ? "idx3-ubyte" : "idx1-ubyte", "idx1-int", "idx2-int"}) {
        for (const std::string_view mark : {"-", "."}) {
          for (const std::string_view ending : endings) {
            std::string path = file_in(directory, gradus::join({prefix, begin, "-", what, mark, kind, ending}));
            if (file_exists(path)) {
              return path;
            }
            if (first.empty()) {
              first = std::move(path);
            }
          }
        }
        if (images) {
          break;
        }
      }
    }
    if (!options.prefix.empty()) {
      break;
    }
  }
  return first;
}

}  // namespace gradus::data::detail

namespace gradus::data {

GRADUS_INLINE image_dataset load_mnist_plain(const std::string& directory, split part, const mnist_options& options,
                                             error_location where) {
  return at_call(where, [&] {
    file_source images{detail::mnist_path(directory, part, "images", options, {""})};
    file_source labels{detail::mnist_path(directory, part, "labels", options, {""})};
    return detail::make_mnist(images, labels, options);
  });
}

}  // namespace gradus::data
#endif
