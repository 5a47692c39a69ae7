// SPDX-License-Identifier: BSL-1.0
//
// A data set of NumPy's .npy files: inputs, targets and weights.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t, std::uint64_t
#include <limits>       // std::numeric_limits
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/detail/loader/hash.hpp"
#include "gradus/data/npy_array.hpp"

namespace gradus::data {

/// The meaning of the file of targets.
enum class npy_targets : unsigned char {
  automatic,  ///< integers are classes, floating-point numbers are real targets
  classes,    ///< a class for each example or pixel
  real        ///< numbers, also where the file has integers
};

/// Options of a data set of .npy files.
struct npy_options {
  npy_targets targets = npy_targets::automatic;    ///< meaning of the targets
  int classes = 0;                                 ///< number of classes; 0: the largest label plus 1
  std::optional<std::int32_t> ignored_label = {};  ///< labels with this number are ignored (the loss has to, too)
  std::string weights = {};                        ///< path of a file of shape (N,): weights of examples; empty: none
  normalization normalize{.scale = 1};             ///< inputs become (scale * x - mean[c]) / deviation[c] in channel c
  bool channels_last = false;                      ///< inputs and real targets of 4 axes are stored as (N, H, W, C)
  bool memory_map = true;                          ///< false: reads the files into memory (mapped_file)
};

namespace detail {

/// Examples in a .npy file.
struct npy_examples {
  npy_array array;
  image_extents one = {};    // (1, c, h, w)
  index_t pixel_stride = 1;  // elements from one pixel of a channel to the next

  npy_examples(const std::string& path, const npy_options& options) : array{path, options.memory_map} {
    const std::span<const index_t> all = array.extents();
    if (all.empty() || all.size() > 4) {
      raise<format_error>({"npy '", path, "'"}, "an array of 1 to 4 axes: (N), (N, F), (N, H, W) or (N, C, H, W)",
                          {"the shape ", npy_shape(all)}, "the first axis counts the examples");
    }
    for (std::size_t axis = 1; axis < all.size(); ++axis) {
      if (all[axis] == 0) {
        raise<format_error>({"npy '", path, "'"}, "examples of at least one element", {"the shape ", npy_shape(all)});
      }
    }
    one = {1, 1, 1, 1};
    if (all.size() == 2) {
      one.c = all[1];
    } else if (all.size() == 3) {
      one = {1, 1, all[1], all[2]};
    } else if (all.size() == 4) {
      one = options.channels_last ? image_extents{1, all[3], all[1], all[2]} : image_extents{1, all[1], all[2], all[3]};
    }
    if (options.channels_last && all.size() == 4) {
      pixel_stride = one.c;
    }
  }

  [[nodiscard]] index_t count() const noexcept { return array.extents().front(); }

  /// Writes example i plane after plane.
  template <class Element>
  void read(index_t i, Element* planes) const noexcept {
    const index_t pixels = one.h * one.w;
    if (pixel_stride == 1) {  // the planes are adjacent
      array.read(i * one.c * pixels, one.c * pixels, planes);
      return;
    }
    for (index_t c = 0; c < one.c; ++c) {
      array.read(i * one.c * pixels + c, pixels, pixel_stride, planes + c * pixels);
    }
  }
  /// Writes `count` elements of example i, from element `first` of its planes on.
  void read(index_t i, index_t first, index_t count, double* to) const noexcept {
    const index_t pixels = one.h * one.w;
    if (pixel_stride == 1) {
      array.read(i * one.c * pixels + first, count, to);
      return;
    }
    for (const index_t end = first + count; first < end;) {
      const index_t c = first / pixels;
      const index_t part = std::min(end, (c + 1) * pixels) - first;
      array.read((i * pixels + first - c * pixels) * one.c + c, part, pixel_stride, to);
      to += part;
      first += part;
    }
  }

  /// True if elements of the type Element do not hold all numbers of the file's type.
  template <class Element>
  [[nodiscard]] bool rounded_to() const noexcept {
    return with_npy_type(array.type(), [](auto element) {
      return std::numeric_limits<decltype(element)>::digits > std::numeric_limits<Element>::digits;
    });
  }
};

/// A hash of an array: of its shape, its type, and all of its bytes or, in a large file, of evenly spread pages.
[[nodiscard]] inline std::uint64_t hash_of_npy(const npy_array& array, std::uint64_t hash) {
  constexpr std::size_t page = 4096;
  constexpr std::size_t pages = 16384;  // 64 MiB
  const std::span<const std::uint8_t> bytes = array.bytes();
  hash = (hash << 8U | hash >> 56U) ^ static_cast<std::uint64_t>(array.type());
  for (const index_t extent : array.extents()) {
    hash = (hash ^ static_cast<std::uint64_t>(extent)) * 0x9e3779b97f4a7c15ULL;
  }
  if (bytes.size() <= page * pages) {
    return hash_bytes(bytes, hash);
  }
  for (std::size_t k = 0; k < pages; ++k) {
    const std::size_t last = bytes.size() - page;
    hash = hash_bytes(bytes.subspan(last / (pages - 1) * k, page), hash);
  }
  return hash_bytes(bytes.last(page), hash);
}

}  // namespace detail

/// A data set of .npy files of NumPy (npy_array), which are mapped into memory. The files must not change meanwhile.
///
///   np.save("x.npy", x)                       # Python
///   np.save("y.npy", y)
///
///   const data::npy set{"x.npy", "y.npy"};    // C++
///
///   file    | elements                 | shape
///   inputs  | integers, floating point | (N, C, H, W), (N, H, W): one channel, (N, F): F channels, (N): one channel
///   classes | integers                 | (N), (N, 1); for each pixel (N, H, W), (N, 1, H, W)
///   real    | floating point           | as the inputs
///   weights | integers, floating point | (N)
///
/// Inputs are numbers as they are, if npy_options::normalize does not change them: bytes from 0 to 255 stay so. It is
/// immutable; any number of threads may read it. In a file of more than 64 MiB the hash is that of 16,384 evenly spread
/// pages, so that no rank has to read all of a large file before it begins.
class npy {
 public:
  /// @param inputs   path of the inputs
  /// @param targets  path of the targets
  /// @throws format_error if a file cannot be read, is not .npy, has a shape or a type that does not fit, or a label is
  /// negative or not below options.classes
  /// @throws shape_error when there is not a target (and a weight) for each input
  /// @throws configuration_error if the normalization is invalid
  npy(const std::string& inputs, const std::string& targets, npy_options options = {},
      error_location where = error_location::current()) try
      : options_{std::move(options)},
        inputs_{inputs, options_},
        targets_{targets, options_},
        labels_{options_.targets == npy_targets::classes ||
                (options_.targets == npy_targets::automatic && targets_.array.has_integers())} {
    detail::check_normalization(options_.normalize, inputs_.one.c);
    normalizes_ =
        options_.normalize.scale != 1 || !options_.normalize.mean.empty() || !options_.normalize.deviation.empty();
    require_count(targets_.array, "a target");
    if (labels_) {
      check_labels();
    }
    hash_ = detail::hash_of_npy(targets_.array, detail::hash_of_npy(inputs_.array, hash_of_options()));
    if (!options_.weights.empty()) {
      weights_.emplace(options_.weights, options_.memory_map);
      if (weights_->extents().size() != 1) {
        raise<format_error>({"npy '", options_.weights, "'"}, "weights of the shape (N,)",
                            {"the shape ", detail::npy_shape(weights_->extents())});
      }
      require_count(*weights_, "a weight");
      hash_ = detail::hash_of_npy(*weights_, hash_);
    }
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The number of examples.
  [[nodiscard]] index_t size() const noexcept { return inputs_.count(); }
  /// The extents of an input: (1, c, h, w).
  [[nodiscard]] image_extents example() const noexcept { return inputs_.one; }
  /// The normalization of the inputs.
  [[nodiscard]] const normalization& values() const noexcept { return options_.normalize; }
  /// A hash of the files and of the options that change what is read.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  /// Writes input i, plane after plane. @pre 0 <= i < size()
  template <class Element>
  void read(index_t i, Element* planes) const noexcept {
    const index_t elements = inputs_.one.size();
    if (!normalizes_) {
      inputs_.read(i, planes);
    } else if (!inputs_.rounded_to<Element>()) {
      inputs_.read(i, planes);
      normalize(planes, 0, elements, planes);
    } else {  // the mean is subtracted before the digits behind it are lost
      constexpr index_t piece = 512;
      double numbers[piece];
      for (index_t first = 0; first < elements; first += piece) {
        const index_t count = std::min(piece, elements - first);
        inputs_.read(i, first, count, numbers);
        normalize(numbers, first, count, planes + first);
      }
    }
  }

  /// The number of classes; 0 where the targets are real.
  [[nodiscard]] int classes() const noexcept { return labels_ ? options_.classes : 0; }
  /// The extents of the labels of an example: (1, 1, 1, 1) for a class, (1, 1, h, w) for a class for each pixel, or
  /// (1, 1, 0, 0) where the targets are real.
  [[nodiscard]] image_extents label_map() const noexcept {
    return labels_ ? image_extents{1, 1, targets_.one.h, targets_.one.w} : image_extents{1, 1, 0, 0};
  }
  /// Writes the labels of example i, row after row. @pre 0 <= i < size()
  void read_labels(index_t i, std::int32_t* labels) const noexcept {
    if (labels_) {
      targets_.read(i, labels);
    }
  }
  /// The label that is no class, if there is one.
  [[nodiscard]] std::optional<std::int32_t> ignored_label() const noexcept { return options_.ignored_label; }

  /// The extents of a real target: (1, c, h, w), or empty where the targets are classes.
  [[nodiscard]] image_extents target() const noexcept { return labels_ ? image_extents{} : targets_.one; }
  /// Writes target i, plane after plane. @pre 0 <= i < size()
  template <class Element>
  void read_target(index_t i, Element* planes) const noexcept {
    if (!labels_) {
      targets_.read(i, planes);
    }
  }

  /// True if there is a file of weights.
  [[nodiscard]] bool weighted() const noexcept { return weights_.has_value(); }
  /// The weight of example i; 1 without a file of weights. @pre 0 <= i < size()
  [[nodiscard]] double weight(index_t i) const noexcept {
    double value = 1;
    if (weights_) {
      weights_->read(i, 1, &value);
    }
    return value;
  }

 private:
  void require_count(const npy_array& array, std::string_view what) const {
    if (array.extents().front() != size()) {
      raise<shape_error>({"npy '", array.path(), "'"},
                         {what, " for each of the ", size(), " examples of '", inputs_.array.path(), "'"},
                         {"the shape ", detail::npy_shape(array.extents())});
    }
  }

  [[nodiscard]] std::uint64_t hash_of_options() const noexcept {
    std::uint64_t hash = (labels_ ? 1U : 2U) + (options_.channels_last ? 4U : 0U);
    const auto add = [&](std::span<const double> numbers) {
      hash = detail::hash_bytes({reinterpret_cast<const std::uint8_t*>(numbers.data()), numbers.size_bytes()}, hash);
    };
    add({&options_.normalize.scale, 1});
    add(options_.normalize.mean);
    add(options_.normalize.deviation);
    return hash;
  }

  /// Checks every label and finds out the number of classes.
  void check_labels() {
    const npy_array& array = targets_.array;
    const auto refuse = [&](message_part expected, message_part actual, message_part hint) {
      raise<format_error>({"npy '", array.path(), "'"}, expected, actual, hint);
    };
    if (!array.has_integers()) {
      refuse("classes, which are integers", {"elements of type '", array.type_name(), "'"},
             "save them with np.save(path, y.astype('i4'))");
    }
    if (targets_.one.c != 1) {
      refuse("one class for each example (N,) or pixel (N, H, W)",
             {"integers of the shape ", detail::npy_shape(array.extents())},
             "turn one-hot rows into classes with y.argmax(axis=1); for integers that are real targets set "
             "npy_options::targets to npy_targets::real");
    }
    const std::int64_t limit =
        options_.classes > 0 ? options_.classes : std::int64_t{std::numeric_limits<std::int32_t>::max()};
    constexpr index_t piece = 4096;
    std::int64_t labels[piece];
    std::int64_t largest = -1;
    for (index_t first = 0; first < array.size(); first += piece) {
      const index_t count = std::min(piece, array.size() - first);
      array.read(first, count, labels);
      for (index_t k = 0; k < count; ++k) {
        const std::int64_t label = labels[k];
        if (options_.ignored_label && label == *options_.ignored_label) {
          continue;
        }
        if (label < 0 || label >= limit) {
          const bool unsigned_label = array.type() == npy_type::uint64;
          refuse({"labels from 0 to ", limit - 1},
                 {"label ", unsigned_label ? std::to_string(static_cast<std::uint64_t>(label)) : std::to_string(label),
                  " of example ", (first + k) / (targets_.one.h * targets_.one.w)},
                 "check npy_options::classes and npy_options::ignored_label");
        }
        largest = std::max(largest, label);
      }
    }
    if (options_.classes <= 0) {
      options_.classes = static_cast<int>(std::max(largest + 1, std::int64_t{1}));
    }
  }

  /// Normalizes `count` elements, from element `first` of an example's planes on.
  template <class From, class Element>
  void normalize(const From* from, index_t first, index_t count, Element* to) const noexcept {
    const normalization& values = options_.normalize;
    const index_t pixels = inputs_.one.h * inputs_.one.w;
    index_t k = 0;
    for (index_t c = first / pixels; k < count; ++c) {
      const double mean = values.mean.empty() ? 0.0 : values.mean[static_cast<std::size_t>(c)];
      const double deviation = values.deviation.empty() ? 1.0 : values.deviation[static_cast<std::size_t>(c)];
      for (const index_t end = std::min(count, (c + 1) * pixels - first); k < end; ++k) {
        to[k] = static_cast<Element>((values.scale * static_cast<double>(from[k]) - mean) / deviation);
      }
    }
  }

  npy_options options_;
  detail::npy_examples inputs_;
  detail::npy_examples targets_;
  std::optional<npy_array> weights_;
  bool labels_;  // the targets are classes
  bool normalizes_ = false;
  std::uint64_t hash_ = 0;
};
static_assert(dataset<npy, float>);

}  // namespace gradus::data
