// SPDX-License-Identifier: BSL-1.0
//
// The images that gradus_bench trains on: files, or noise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../program/output_file.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "settings.hpp"
#include "zoo.hpp"

namespace driver {

/// A data set without its type.
class input_set {
 public:
  input_set() = default;
  input_set(const input_set&) = delete;
  input_set& operator=(const input_set&) = delete;
  virtual ~input_set() = default;

  [[nodiscard]] virtual index_t size() const = 0;
  [[nodiscard]] virtual gradus::image_extents example() const = 0;
  [[nodiscard]] virtual int classes() const = 0;
  [[nodiscard]] virtual std::uint64_t hash() const = 0;
  /// The extents of the labels of an example: one label, or one for each pixel.
  [[nodiscard]] virtual gradus::image_extents label_map() const { return {1, 1, 1, 1}; }
  /// Writes the labels of an example, row after row.
  virtual void read_labels(index_t i, std::int32_t* labels) const = 0;
  /// In the form that the example has in this epoch.
  virtual void read(index_t i, std::uint64_t epoch, float* planes) const = 0;
  /// "imagenet (synthetic)"
  [[nodiscard]] virtual std::string name() const = 0;
  /// A message for each image that was skipped.
  [[nodiscard]] virtual std::vector<std::string> problems() const = 0;
};

/// Opens --data-dir, or makes noise of the model's shape. Of sets with two parts, --eval takes the test images.
/// @param examples  of the noise
/// @throws gradus::error when the files are not what they should be, or do not fit the model
[[nodiscard]] std::unique_ptr<input_set> open_input(const settings& chosen, const model_properties& model,
                                                    index_t examples);

/// A file to write, opened before the work; nothing for an empty path.
/// @param option  as the command line calls it
/// @throws std::invalid_argument when it cannot be written, or is part of the input
[[nodiscard]] program::output_file open_output(const char* option, const std::string& path, const settings& chosen);

/// Packs the images of --data-dir into the record file --output. Returns their number.
index_t pack_images(const settings& chosen);

}  // namespace driver
