// SPDX-License-Identifier: BSL-1.0
//
// Reads the uncompressed MNIST files and files in the same format (Fashion-MNIST, KMNIST).
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
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
};

namespace detail {

/// Combines a file of images, (n, h, w) or (n, c, h, w), and a file of n labels.
inline image_dataset make_mnist(byte_source& images, byte_source& labels, mnist_options options) {
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
  const idx_array bytes = read_idx(labels, options.limits);
  if (bytes.extents.size() != 1) {
    raise<format_error>({"load_mnist '", labels.name(), "'"}, "labels: 1 axis", {bytes.extents.size(), " axes"},
                        "this looks like a file of images");
  }
  if (bytes.extents[0] != shape[0]) {
    raise<format_error>({"load_mnist '", labels.name(), "'"},
                        {shape[0], " labels as there are images in '", images.name(), "'"}, {bytes.extents[0]},
                        "the two files do not belong together");
  }
  for (std::size_t i = 0; i < bytes.values.size(); ++i) {
    if (bytes.values[i] >= options.classes) {
      raise<format_error>({"load_mnist '", labels.name(), "'"}, {"labels from 0 to ", options.classes - 1},
                          {"label ", bytes.values[i], " of example ", i}, "check the number of classes");
    }
  }
  const image_extents all = shape.size() == 3 ? image_extents{shape[0], 1, shape[1], shape[2]}
                                              : image_extents{shape[0], shape[1], shape[2], shape[3]};
  return {all, std::move(pixels.values), std::vector<std::int32_t>(bytes.values.begin(), bytes.values.end()),
          options.classes, std::move(options.values)};
}

/// The names of the two files of a part, without a suffix for compression.
struct mnist_names {
  std::string_view images;
  std::string_view labels;
};
constexpr mnist_names names_of(split part) noexcept {
  return part == split::training ? mnist_names{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}
                                 : mnist_names{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

}  // namespace detail

/// Reads the uncompressed files (train- or t10k-)images-idx3-ubyte and -labels-idx1-ubyte of a folder. For .gz files
/// include gradus/data/gzip.hpp and call load_mnist.
/// @throws format_error with the name of the file if a file is missing or invalid
/// @throws configuration_error if options are invalid
[[nodiscard]] inline image_dataset load_mnist_plain(const std::string& directory, split part,
                                                    const mnist_options& options = {},
                                                    error_location where = error_location::current()) {
  return at_call(where, [&] {
    const auto names = detail::names_of(part);
    file_source images{detail::file_in(directory, names.images)};
    file_source labels{detail::file_in(directory, names.labels)};
    return detail::make_mnist(images, labels, options);
  });
}

}  // namespace gradus::data
