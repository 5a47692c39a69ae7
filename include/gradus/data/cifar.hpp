// SPDX-License-Identifier: BSL-1.0
//
// Reads CIFAR-10 and CIFAR-100 in their binary format.
#pragma once

#include <cstddef>      // std::ptrdiff_t, std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/byte_source.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/mnist.hpp"

namespace gradus::data {

/// CIFAR-10 or CIFAR-100 (Krizhevsky 2009): images of 3 x 32 x 32 bytes.
enum class cifar_kind : unsigned char {
  cifar10,  ///< 10 classes; a record has one byte of label
  cifar100  ///< 100 classes; a record has two bytes of label, coarse and fine, and the fine one counts
};

namespace detail {

/// Reads the images and labels of several files, one after another.
class cifar_reader {
 public:
  static constexpr std::size_t pixels = 3 * 32 * 32;

  explicit cifar_reader(cifar_kind kind)
      : label_bytes_{kind == cifar_kind::cifar10 ? 1U : 2U}, classes_{kind == cifar_kind::cifar10 ? 10 : 100} {}

  void read(byte_source& source) {
    const std::size_t record_bytes = label_bytes_ + pixels;
    std::uint8_t record[2 + pixels];
    std::size_t examples = 0;
    for (;; ++examples) {
      const std::size_t came = source.read({record, record_bytes});
      if (came == 0) {
        break;
      }
      if (came != record_bytes) {
        gradus::raise<format_error>({"load_cifar '", source.name(), "'"}, {"records of ", record_bytes, " bytes"},
                                    {came, " bytes after ", examples, " records"},
                                    "the file is truncated, or it is CIFAR-100 instead of CIFAR-10 or the reverse");
      }
      const int label = record[label_bytes_ - 1];  // CIFAR-100 has a coarse and a fine label; the fine one is last
      if (label >= classes_) {
        gradus::raise<format_error>({"load_cifar '", source.name(), "'"}, {"labels from 0 to ", classes_ - 1},
                                    {"label ", label, " of record ", examples});
      }
      labels_.push_back(label);
      bytes_.insert(bytes_.end(), record + label_bytes_, record + record_bytes);
    }
    if (examples == 0) {
      gradus::raise<format_error>({"load_cifar '", source.name(), "'"}, "at least one record", "an empty file");
    }
  }

  [[nodiscard]] image_dataset result(normalization values) && {
    const auto count = static_cast<index_t>(labels_.size());
    return {{count, 3, 32, 32}, std::move(bytes_), std::move(labels_), classes_, std::move(values)};
  }

 private:
  std::size_t label_bytes_;
  int classes_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int32_t> labels_;
};

}  // namespace detail

/// Reads data_batch_1.bin to data_batch_5.bin or test_batch.bin (CIFAR-10), or train.bin or test.bin (CIFAR-100, with
/// its 100 fine labels) of a folder. Images are (3, 32, 32), red first. (Krizhevsky: "Learning multiple layers of
/// features from tiny images", 2009; the binary version.)
/// @throws format_error with the name of the file if a file is missing or invalid
/// @throws configuration_error if the normalization is invalid
[[nodiscard]] inline image_dataset load_cifar(const std::string& directory, cifar_kind kind, split part,
                                              normalization values = {},
                                              error_location where = error_location::current()) {
  return at_call(where, [&] {
    detail::cifar_reader reader{kind};
    const auto add = [&](std::string_view name) {
      file_source source{detail::file_in(directory, name)};
      reader.read(source);
    };
    if (kind == cifar_kind::cifar100) {
      add(part == split::training ? "train.bin" : "test.bin");
    } else if (part == split::test) {
      add("test_batch.bin");
    } else {
      for (int i = 1; i <= 5; ++i) {
        add(gradus::join({"data_batch_", i, ".bin"}));
      }
    }
    return std::move(reader).result(std::move(values));
  });
}

}  // namespace gradus::data
