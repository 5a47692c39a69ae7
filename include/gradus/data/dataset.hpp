// SPDX-License-Identifier: BSL-1.0
//
// The concept of a data set, and a data set of images in memory.
#pragma once

#include <concepts>     // std::convertible_to
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t, std::uint64_t
#include <span>         // std::span
#include <type_traits>  // std::is_same_v
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/detail/loader/hash.hpp"

namespace gradus::data {

namespace detail {

template <class Set>
concept has_examples = requires(const Set& set) {
  { set.size() } -> std::convertible_to<index_t>;
  { set.example() } -> std::convertible_to<image_extents>;
  { set.hash() } -> std::convertible_to<std::uint64_t>;
};

template <class Set>
concept has_labels = requires(const Set& set, index_t i) {
  { set.classes() } -> std::convertible_to<int>;
  { set.label(i) } -> std::convertible_to<std::int32_t>;
};

template <class Set>
concept has_label_maps = requires(const Set& set, index_t i, std::int32_t* labels) {
  { set.classes() } -> std::convertible_to<int>;
  { set.label_map() } -> std::convertible_to<image_extents>;
  set.read_labels(i, labels);
};

template <class Set, class Element>
concept has_real_targets = requires(const Set& set, index_t i, Element* planes) {
  { set.target() } -> std::convertible_to<image_extents>;
  set.read_target(i, planes);
};

template <class Set, class Element>
concept has_targets = has_labels<Set> || has_label_maps<Set> || has_real_targets<Set, Element>;

template <class Set, class Element>
concept has_pixels = requires(const Set& set, index_t i, Element* planes) {
  set.read(i, planes);
};

// Of a set whose examples differ from epoch to epoch.

template <class Set, class Element>
concept varies_pixels = requires(const Set& set, index_t i, std::uint64_t epoch, Element* planes) {
  set.read(i, epoch, planes);
};
template <class Set>
concept varies_label_maps = requires(const Set& set, index_t i, std::uint64_t epoch, std::int32_t* labels) {
  set.read_labels(i, epoch, labels);
};
template <class Set, class Element>
concept varies_real_targets = requires(const Set& set, index_t i, std::uint64_t epoch, Element* planes) {
  set.read_target(i, epoch, planes);
};

}  // namespace detail

/// A set of examples, each an image with its target, from which a loader makes batches.
///
/// A type Set models `dataset<Set, Element>` if, for a const object d,
///   1. `d.size()` is the number of examples;
///   2. `d.example()` is the image_extents of every example, with n = 1;
///   3. `d.read(i, planes)` writes the c * h * w elements of example i to `planes`, plane after plane (nchw); it may
///      throw. The loader's thread calls it;
///   4. `d.hash()` is a std::uint64_t of the content, by which ranks check that they have the same set;
///   5. it has targets of one of these kinds:
///      - a class: `d.classes()` is the number of classes, and `d.label(i)` the class of example i, in [0, classes);
///      - a class for each pixel: `d.classes()`, `d.label_map()` is an image_extents with n = c = 1, and
///        `d.read_labels(i, labels)` writes h * w std::int32_t, row after row. With `d.ignored_label()` a pixel may
///        have that number instead of a class;
///      - real numbers: `d.target()` is an image_extents with n = 1, and `d.read_target(i, planes)` writes c * h * w
///        elements, plane after plane.
/// Examples may vary from epoch to epoch, as by random crops: every loader calls `d.read(i, epoch, planes)` if there is
/// such a member (unless loader_options::augment is false), and it depends on its arguments only. A set of label maps
/// then has `d.read_labels(i, epoch, labels)`, and one of real numbers `d.read_target(i, epoch, planes)`, with the
/// variation of the image; a target that does not follow the image ignores the epoch. A set that knows its kind of
/// targets only at run time has the members of several. `label_map()` is then (1, 1, 0, 0) and `classes()` 0 where
/// there are no labels, `target()` is empty where there are no real targets, `ignored_label()` is a std::optional, and
/// a member `weighted()` says whether there are weights. Members for targets that the set does not have are then called
/// with null pointers. With `d.weight(i)`, a finite number of at least 0, an example's loss counts that many times. If
/// there is a member `d.watch_batch()`, the loader's thread calls it before it prepares a batch and destroys the result
/// when the batch is ready.
template <class Set, class Element>
concept dataset = detail::has_examples<Set> && detail::has_targets<Set, Element> && detail::has_pixels<Set, Element>;

namespace detail {

/// Where images differ from epoch to epoch, so do the targets that belong to their pixels.
template <class Set, class Element>
inline constexpr bool varies_label_maps_too =
    !varies_pixels<Set, Element> || has_labels<Set> || !has_label_maps<Set> || varies_label_maps<Set>;
template <class Set, class Element>
inline constexpr bool varies_real_targets_too =
    !varies_pixels<Set, Element> || !has_real_targets<Set, Element> || varies_real_targets<Set, Element>;
/// And the other way around.
template <class Set, class Element>
inline constexpr bool varies_pixels_too =
    varies_pixels<Set, Element> || !(varies_label_maps<Set> || varies_real_targets<Set, Element>);

}  // namespace detail

/// Reports at compile time which requirement of `dataset` the type Set does not meet. Returns true if it compiles.
template <class Set, class Element>
consteval bool explain_dataset() {
  static_assert(detail::has_examples<Set>,
                "gradus: not a data set: it needs size(), example() of type image_extents, and hash() of type "
                "std::uint64_t, all const");
  static_assert(detail::has_targets<Set, Element>,
                "gradus: not a data set: it needs targets: classes() and label(index_t), or classes(), label_map() and "
                "read_labels(index_t, std::int32_t*), or target() and read_target(index_t, Element*), all const");
  static_assert(detail::has_pixels<Set, Element>,
                "gradus: not a data set: it needs read(index_t, Element*) const, which writes one example plane after "
                "plane");
  static_assert(detail::varies_label_maps_too<Set, Element>,
                "gradus: the data set's images vary from epoch to epoch, but its label maps do not: write void "
                "read_labels(index_t i, std::uint64_t epoch, std::int32_t* labels) const with the variation of "
                "read(i, epoch, planes)");
  static_assert(
      detail::varies_real_targets_too<Set, Element>,
      "gradus: the data set's images vary from epoch to epoch, but its targets do not: write void "
      "read_target(index_t i, std::uint64_t epoch, Element* target) const with the variation of read(i, epoch, "
      "planes); for targets that do not follow the image it calls read_target(i, target)");
  static_assert(detail::varies_pixels_too<Set, Element>,
                "gradus: the data set's targets vary from epoch to epoch, but its images do not: write void "
                "read(index_t i, std::uint64_t epoch, Element* planes) const");
  return true;
}

/// The conversion of bytes to numbers: (scale * byte - mean[c]) / deviation[c] in channel c.
struct normalization {
  double scale = 1.0 / 255.0;          ///< factor of the bytes
  std::vector<double> mean = {};       ///< one for each channel; empty: 0
  std::vector<double> deviation = {};  ///< one for each channel, above 0; empty: 1
};

namespace detail {

/// @throws configuration_error unless the normalization is possible for images of `channels` channels
void check_normalization(const normalization& values, index_t channels);

}  // namespace detail

/// Labeled images of unsigned bytes in memory. It is immutable; any number of threads may read it.
class image_dataset {
 public:
  /// @param shape   (n, c, h, w) of all images; only n may be 0
  /// @param pixels  n * c * h * w bytes in the order n, c, h, w
  /// @param labels  n labels in [0, classes)
  /// @throws shape_error if the sizes disagree
  /// @throws format_error if a label is out of range
  /// @throws configuration_error if classes < 1 or the normalization is invalid
  GRADUS_COLD image_dataset(const image_extents& shape, std::vector<std::uint8_t> pixels,
                            std::vector<std::int32_t> labels, int classes, normalization values = {},
                            error_location where = error_location::current()) try
      : shape_{shape},
        pixels_{std::move(pixels)},
        labels_{std::move(labels)},
        classes_{classes},
        normalization_{std::move(values)} {
    check_sizes();
    check_labels();
    make_tables();
    hash_ = hash_content();
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The number of images.
  [[nodiscard]] index_t size() const noexcept { return shape_.n; }
  /// The extents of one image: (1, c, h, w).
  [[nodiscard]] image_extents example() const noexcept { return {1, shape_.c, shape_.h, shape_.w}; }
  /// The extents of all images: (n, c, h, w).
  [[nodiscard]] const image_extents& shape() const noexcept { return shape_; }
  /// The number of classes.
  [[nodiscard]] int classes() const noexcept { return classes_; }
  /// A hash of pixels, labels and normalization.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  /// The conversion of bytes to numbers.
  [[nodiscard]] const normalization& values() const noexcept { return normalization_; }
  /// The n * c * h * w bytes of all images, in the order n, c, h, w.
  [[nodiscard]] std::span<const std::uint8_t> pixels() const noexcept { return pixels_; }
  /// The n labels.
  [[nodiscard]] std::span<const std::int32_t> labels() const noexcept { return labels_; }

  /// The label of image i. @pre 0 <= i < size()
  [[nodiscard]] std::int32_t label(index_t i) const noexcept { return labels_[static_cast<std::size_t>(i)]; }

  /// Writes the normalized example i to `planes`: c * h * w elements in the order c, h, w.
  /// @pre 0 <= i < size()
  template <class Element>
  void read(index_t i, Element* planes) const noexcept {
    const auto plane = static_cast<std::size_t>(shape_.h * shape_.w);
    const auto channels = static_cast<std::size_t>(shape_.c);
    const std::uint8_t* bytes = pixels_.data() + static_cast<std::size_t>(i) * channels * plane;
    for (std::size_t c = 0; c < channels; ++c) {
      const auto* const numbers = table_of<Element>().data() + c * bytes_values;
      for (std::size_t k = 0; k < plane; ++k) {
        planes[k] = static_cast<Element>(numbers[bytes[k]]);
      }
      planes += plane;
      bytes += plane;
    }
  }

  /// The same images with another normalization.
  /// @throws configuration_error if the normalization is invalid
  [[nodiscard]] image_dataset with(normalization values, error_location where = error_location::current()) const& {
    return at_call(where, [&, this] {
      image_dataset copy{*this};
      return std::move(copy).with(std::move(values));
    });
  }
  /// The same, moving the pixels.
  [[nodiscard]] image_dataset with(normalization values, error_location where = error_location::current()) &&;

 private:
  static constexpr std::size_t bytes_values = 256;

  template <class Element>
  [[nodiscard]] const auto& table_of() const noexcept {
    if constexpr (std::is_same_v<Element, float>) {
      return float_tables_;
    } else {
      return double_tables_;
    }
  }

  void check_sizes() const;

  void check_labels() const;

  void make_tables();

  [[nodiscard]] std::uint64_t hash_content() const noexcept;

  image_extents shape_;  // n, c, h, w
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int32_t> labels_;
  int classes_;
  normalization normalization_;
  dynamic_array<float> float_tables_;  // (channels, 256): the normalized number of each byte, per channel
  std::vector<double> double_tables_;
  std::uint64_t hash_ = 0;
};
static_assert(dataset<image_dataset, float>);

}  // namespace gradus::data

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::data::detail {

GRADUS_INLINE void check_normalization(const normalization& values, index_t channels) {
  const auto check = [&](const char* what, const std::vector<double>& each_channel) {
    if (!each_channel.empty() && static_cast<index_t>(each_channel.size()) != channels) {
      raise<configuration_error>("normalization", {"a ", what, " for each of ", channels, " channels, or none"},
                                 {each_channel.size()});
    }
    for (const double value : each_channel) {
      if (!is_finite(value)) {
        raise<configuration_error>("normalization", {"a finite ", what}, {value});
      }
    }
  };
  check("mean", values.mean);
  check("deviation", values.deviation);
  if (!is_finite(values.scale) || values.scale == 0) {
    raise<configuration_error>("normalization", "a scale that is finite and not 0", {values.scale});
  }
  for (const double deviation : values.deviation) {
    if (deviation <= 0) {
      raise<configuration_error>("normalization", "deviations above 0", {deviation},
                                 "use 1 for a channel that is constant");
    }
  }
}

}  // namespace gradus::data::detail

namespace gradus::data {

GRADUS_INLINE image_dataset image_dataset::with(normalization values, error_location where) && {
  return at_call(where, [&, this] {
    normalization_ = std::move(values);
    make_tables();
    hash_ = hash_content();
    return std::move(*this);
  });
}

GRADUS_INLINE void image_dataset::check_sizes() const {
  if (shape_.n < 0 || shape_.c < 1 || shape_.h < 1 || shape_.w < 1) {
    raise<shape_error>("image_dataset", "at least 0 images of at least 1 channel, row and column", to_string(shape_));
  }
  if (static_cast<index_t>(pixels_.size()) != shape_.size()) {
    raise<shape_error>("image_dataset", {shape_.size(), " pixels as in ", to_string(shape_)}, {pixels_.size()});
  }
  if (static_cast<index_t>(labels_.size()) != shape_.n) {
    raise<shape_error>("image_dataset", {shape_.n, " labels, one for each image"}, {labels_.size()});
  }
}

GRADUS_INLINE void image_dataset::check_labels() const {
  if (classes_ < 1) {
    raise<configuration_error>("image_dataset", "classes of at least 1", {classes_});
  }
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i] < 0 || labels_[i] >= classes_) {
      raise<format_error>("image_dataset", {"labels from 0 to ", classes_ - 1},
                          {"label ", labels_[i], " of example ", i}, "check the number of classes");
    }
  }
}

GRADUS_INLINE void image_dataset::make_tables() {
  const auto channels = static_cast<std::size_t>(shape_.c);
  detail::check_normalization(normalization_, shape_.c);
  float_tables_ = dynamic_array<float>(channels * bytes_values);
  double_tables_ = std::vector<double>(channels * bytes_values);
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = normalization_.mean.empty() ? 0.0 : normalization_.mean[c];
    const double deviation = normalization_.deviation.empty() ? 1.0 : normalization_.deviation[c];
    for (std::size_t byte = 0; byte < bytes_values; ++byte) {
      const double value = (normalization_.scale * static_cast<double>(byte) - mean) / deviation;
      double_tables_[c * bytes_values + byte] = value;
      float_tables_[c * bytes_values + byte] = static_cast<float>(value);
    }
  }
}

GRADUS_INLINE std::uint64_t image_dataset::hash_content() const noexcept {
  const auto as_bytes = [](const auto& range) {
    return std::span{reinterpret_cast<const std::uint8_t*>(range.data()), range.size() * sizeof(range[0])};
  };
  std::uint64_t hash = detail::hash_bytes(pixels_, 0);
  hash = detail::hash_bytes(as_bytes(labels_), hash);
  return detail::hash_bytes(as_bytes(double_tables_), hash);
}

}  // namespace gradus::data
#endif
