// SPDX-License-Identifier: BSL-1.0
//
// A data set of arrays that the program has: spans, tensors, or matrices of Eigen.
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <concepts>     // std::convertible_to, std::integral, std::same_as
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t, std::uint64_t
#include <limits>       // std::numeric_limits
#include <optional>     // std::optional
#include <ranges>       // std::ranges::borrowed_range, std::ranges::contiguous_range
#include <span>         // std::span
#include <string>       // std::to_string
#include <type_traits>  // std::is_arithmetic_v, std::is_lvalue_reference_v, std::remove_const_t, std::remove_cvref_t
#include <utility>      // std::in_range

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/detail/loader/hash.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::data {

/// Examples in memory that the program owns, with any distance between elements.
template <class Element>
struct example_array {
  const Element* data = nullptr;        ///< the first element
  image_extents shape = {};             ///< (n, c, h, w) of all examples
  std::array<index_t, 4> strides = {};  ///< elements from one n, c, h, w to the next
};

namespace detail {

/// A matrix, vector or array of Eigen, or a map of one: direct access to rows and columns.
template <class Matrix>
concept eigen_matrix = requires(const Matrix& matrix) {
  { matrix.data() } -> std::convertible_to<const void*>;
  { matrix.rows() } -> std::convertible_to<index_t>;
  { matrix.cols() } -> std::convertible_to<index_t>;
  { matrix.rowStride() } -> std::convertible_to<index_t>;
  { matrix.colStride() } -> std::convertible_to<index_t>;
};

/// An expression of Eigen: numbers that are not in memory.
template <class Expression>
concept eigen_expression = !eigen_matrix<Expression> && requires(const Expression& expression) {
  { expression.rows() } -> std::convertible_to<index_t>;
  { expression.cols() } -> std::convertible_to<index_t>;
  typename Expression::PlainObject;
};

/// A range of numbers that are adjacent in memory: std::vector, std::array, std::span.
template <class Range>
concept range_of_numbers = !eigen_matrix<std::remove_const_t<Range>> && std::ranges::contiguous_range<Range&> &&
                           std::ranges::sized_range<Range&> && std::is_arithmetic_v<std::ranges::range_value_t<Range&>>;

}  // namespace detail

/// The examples of a tensor or view of 1 to 4 axes: (n), (n, c), (n, h, w) with one channel, or (n, c, h, w).
template <class Element, int Rank, class Layout>
[[nodiscard]] example_array<std::remove_const_t<Element>> examples_of(
    const tensor_view<Element, Rank, Layout, cpu>& array) {
  static_assert(Rank >= 1 && Rank <= 4, "gradus: examples are tensors of 1 to 4 axes, the first of which counts them");
  const auto& shape = array.extents();
  const auto strides = dense_strides<Layout, Rank>(shape);
  example_array<std::remove_const_t<Element>> result{.data = array.data(), .shape = {shape[0], 1, 1, 1}};
  result.strides[0] = strides[0];
  if constexpr (Rank == 2) {
    result.shape.c = shape[1];
    result.strides[1] = strides[1];
  } else if constexpr (Rank == 3) {
    result.shape = {shape[0], 1, shape[1], shape[2]};
    result.strides = {strides[0], 0, strides[1], strides[2]};
  } else if constexpr (Rank == 4) {
    result.shape = shape;
    result.strides = strides;
  }
  return result;
}
/// The examples of a tensor.
template <class Element, int Rank, class Layout>
[[nodiscard]] example_array<Element> examples_of(const tensor<Element, Rank, Layout, cpu>& array) {
  return examples_of(array.view());
}
/// The tensor must outlive the data set.
template <class Element, int Rank, class Layout>
example_array<Element> examples_of(const tensor<Element, Rank, Layout, cpu>&& array) = delete;

/// The examples of a matrix of Eigen: one in each row.
template <detail::eigen_matrix Matrix>
[[nodiscard]] auto examples_of(const Matrix& matrix) {
  using element = std::remove_cvref_t<decltype(*matrix.data())>;
  return example_array<element>{
      .data = matrix.data(),
      .shape = {static_cast<index_t>(matrix.rows()), static_cast<index_t>(matrix.cols()), 1, 1},
      .strides = {static_cast<index_t>(matrix.rowStride()), static_cast<index_t>(matrix.colStride()), 0, 0}};
}

/// Examples that are adjacent in memory, each in the order c, h, w.
/// @param example  the extents of one: (1, c, h, w)
/// @throws shape_error when the number of elements is not a multiple of the example's
template <class Element>
[[nodiscard]] example_array<std::remove_const_t<Element>> examples_of(
    std::span<Element> elements, const image_extents& example, error_location where = error_location::current()) {
  const index_t one = example.c * example.h * example.w;
  const auto count = static_cast<index_t>(elements.size());
  if (one < 1 || count % one != 0) {
    raise<shape_error>("examples_of", {"a multiple of the ", one, " elements of an example of ", to_string(example)},
                       {count, " elements"}, {}, where);
  }
  return {.data = elements.data(),
          .shape = {count / one, example.c, example.h, example.w},
          .strides = {one, example.h * example.w, example.w, 1}};
}
/// The same for a vector or an array, which must outlive the data set.
template <detail::range_of_numbers Range>
[[nodiscard]] auto examples_of(Range& elements, const image_extents& example,
                               error_location where = error_location::current()) {
  return examples_of(std::span{elements}, example, where);
}
/// The vector must outlive the data set.
template <detail::range_of_numbers Range>
requires(!std::is_lvalue_reference_v<Range> && !std::ranges::borrowed_range<Range>) void examples_of(
    Range&& elements, const image_extents& example) = delete;  // name it on the line before and pass the name

/// Examples of one number each: in_memory(x, y) with vectors, arrays or spans.
template <detail::range_of_numbers Range>
[[nodiscard]] auto examples_of(Range& elements) {
  return examples_of(std::span{elements}, image_extents{1, 1, 1, 1});
}

/// The same array: in_memory takes any mixture of arrays.
template <class Element>
[[nodiscard]] example_array<Element> examples_of(const example_array<Element>& array) noexcept {
  return array;
}

/// Weights of examples: a range of double or float that outlives the data set, as a span or a vector with a name.
class example_weights {
 public:
  /// All weights are 1.
  example_weights() = default;
  /// The weights of a range.
  template <class Range>
  requires std::convertible_to<Range&, std::span<const double>> || std::convertible_to<Range&, std::span<const float>>
  example_weights(Range&& weights) {
    static_assert(std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>,
                  "gradus: the data set keeps a reference to its weights, but a temporary is destroyed at the end of "
                  "this statement: give it a name on the line before and pass the name");
    if constexpr (std::convertible_to<Range&, std::span<const double>>) {
      doubles_ = weights;
    } else {
      floats_ = weights;
    }
  }

  /// The number of weights.
  [[nodiscard]] std::size_t size() const noexcept { return doubles_.size() + floats_.size(); }
  /// True without weights.
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// The weight of an example; 1 without weights. @pre i < size(), or empty()
  [[nodiscard]] double operator[](std::size_t i) const noexcept {
    return !doubles_.empty() ? doubles_[i] : !floats_.empty() ? static_cast<double>(floats_[i]) : 1.0;
  }

 private:
  std::span<const double> doubles_;
  std::span<const float> floats_;
};

/// Options of a data set in memory.
struct in_memory_options {
  int classes = 0;                                 ///< number of classes; 0: the largest label plus 1
  example_weights weights = {};                    ///< of the examples, finite and at least 0; empty: 1
  std::optional<std::int32_t> ignored_label = {};  ///< a label that is no class, of pixels without one
};

/// A data set of arrays that the program keeps; data::in_memory makes it. Inputs are numbers as they are: normalize
/// them before, or with a layer. It is immutable; any number of threads may read it.
/// @tparam Target  integers: a class for each example, or for each pixel. float or double: real numbers of any (c, h,
/// w)
template <class Input, class Target>
class in_memory_dataset {
  static constexpr bool has_classes = std::integral<Target>;

 public:
  /// As in_memory.
  in_memory_dataset(const example_array<Input>& inputs, const example_array<Target>& targets,
                    const in_memory_options& options, error_location where = error_location::current())
      : inputs_{inputs},
        targets_{targets},
        weights_{options.weights},
        classes_{options.classes},
        ignored_{options.ignored_label} {
    const auto refuse = [&](message_part expected, message_part actual, message_part hint = {}) {
      raise<shape_error>("in_memory", expected, actual, hint, where);
    };
    if (targets_.shape.n != inputs_.shape.n) {
      refuse({"a target for each of ", inputs_.shape.n, " examples"}, {targets_.shape.n, " targets"},
             "the first axis counts examples; of spans, examples_of(span, {1, c, h, w}) says how large one is");
    }
    if (!weights_.empty() && static_cast<index_t>(weights_.size()) != inputs_.shape.n) {
      refuse({"a weight for each of ", inputs_.shape.n, " examples, or none"}, {weights_.size(), " weights"},
             "in_memory_options::weights are of the examples; those of classes are nn::softmax_cross_entropy{"
             ".class_weights = ...}");
    }
    if constexpr (has_classes) {
      if (targets_.shape.c != 1) {
        refuse("a class for each example, (n), or for each pixel, (n, h, w)",
               {"targets of ", to_string(targets_.shape)}, "real targets are float or double");
      }
      std::int32_t largest = -1;
      for (index_t i = 0; i < size(); ++i) {
        for_each(targets_, i, [&, this](Target value) {
          if (!std::in_range<std::int32_t>(value)) {
            refuse("labels of 32 bits", {std::to_string(value), " of example ", i});
          }
          const auto label = static_cast<std::int32_t>(value);
          largest = label == ignored_ ? largest : std::max(largest, label);
        });
      }
      classes_ = classes_ > 0 ? classes_ : std::max(1, largest + 1);
    }
    hash_ = hash_of(inputs_, hash_of(targets_, 0));
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const double weight = weights_[i];
      if (!(weight >= 0) || weight > std::numeric_limits<double>::max()) {
        refuse("weights of examples that are finite and at least 0", {weight, " of example ", i});
      }
      hash_ = detail::hash_bytes({reinterpret_cast<const std::uint8_t*>(&weight), sizeof(weight)}, hash_);
    }
  }

  /// The number of examples.
  [[nodiscard]] index_t size() const noexcept { return inputs_.shape.n; }
  /// The extents of an input: (1, c, h, w).
  [[nodiscard]] image_extents example() const noexcept { return one_of(inputs_.shape); }
  /// A hash of inputs, targets and weights.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  /// A hash of input, target and weight i. @pre 0 <= i < size()
  [[nodiscard]] std::uint64_t hash(index_t i) const noexcept {
    const double weight = weights_[static_cast<std::size_t>(i)];
    return detail::hash_bytes({reinterpret_cast<const std::uint8_t*>(&weight), sizeof(weight)},
                              hash_of(inputs_, i, hash_of(targets_, i, 0)));
  }
  /// Writes input i, plane after plane. @pre 0 <= i < size()
  template <class Element>
  void read(index_t i, Element* planes) const noexcept {
    copy(inputs_, i, planes);
  }

  /// The number of classes.
  [[nodiscard]] int classes() const noexcept requires(has_classes) { return classes_; }
  /// The extents of the labels of an example: (1, 1, 1, 1) for a class, (1, 1, h, w) for a class for each pixel.
  [[nodiscard]] image_extents label_map() const noexcept requires(has_classes) { return one_of(targets_.shape); }
  /// Writes the labels of example i, row after row. @pre 0 <= i < size()
  void read_labels(index_t i, std::int32_t* labels) const noexcept requires(has_classes) { copy(targets_, i, labels); }
  /// The label that is no class, if there is one.
  [[nodiscard]] std::optional<std::int32_t> ignored_label() const noexcept requires(has_classes) { return ignored_; }
  /// The extents of a target: (1, c, h, w).
  [[nodiscard]] image_extents target() const noexcept requires(!has_classes) { return one_of(targets_.shape); }
  /// Writes target i, plane after plane. @pre 0 <= i < size()
  template <class Element>
  requires(!has_classes) void read_target(index_t i, Element* planes) const noexcept { copy(targets_, i, planes); }
  /// True if there are weights.
  [[nodiscard]] bool weighted() const noexcept { return !weights_.empty(); }
  /// The weight of example i; 1 without weights. @pre 0 <= i < size()
  [[nodiscard]] double weight(index_t i) const noexcept { return weights_[static_cast<std::size_t>(i)]; }

 private:
  static image_extents one_of(const image_extents& all) noexcept { return {1, all.c, all.h, all.w}; }

  template <class From, class Body>
  static void for_each(const example_array<From>& array, index_t i, const Body& body) {
    for (index_t c = 0; c < array.shape.c; ++c) {
      for (index_t h = 0; h < array.shape.h; ++h) {
        const From* const row = array.data + i * array.strides[0] + c * array.strides[1] + h * array.strides[2];
        for (index_t w = 0; w < array.shape.w; ++w) {
          body(row[w * array.strides[3]]);
        }
      }
    }
  }
  template <class From, class To>
  static void copy(const example_array<From>& array, index_t i, To* to) noexcept {
    for_each(array, i, [&](const From& value) { *to++ = static_cast<To>(value); });
  }
  // Labels of any integer type are one data set.
  static std::int32_t hashed(const Target& label) noexcept requires(has_classes) {
    return static_cast<std::int32_t>(label);
  }
  template <class From>
  static From hashed(const From& value) noexcept {
    return value;
  }
  template <class From>
  static std::uint64_t hash_of(const example_array<From>& array, std::uint64_t hash) noexcept {
    for (index_t i = 0; i < array.shape.n; ++i) {
      hash = hash_of(array, i, hash);
    }
    return hash;
  }
  template <class From>
  static std::uint64_t hash_of(const example_array<From>& array, index_t i, std::uint64_t hash) noexcept {
    for_each(array, i, [&](const From& number) {
      const auto value = hashed(number);
      hash = detail::hash_bytes({reinterpret_cast<const std::uint8_t*>(&value), sizeof(value)}, hash);
    });
    return hash;
  }

  example_array<Input> inputs_;
  example_array<Target> targets_;
  example_weights weights_;
  int classes_;
  std::optional<std::int32_t> ignored_;
  std::uint64_t hash_ = 0;
};

namespace detail {

template <class Array>
inline constexpr bool is_tensor = false;
template <class Element, int Rank, class Layout, class Device>
inline constexpr bool is_tensor<tensor<Element, Rank, Layout, Device>> = true;

/// Arrays that own their elements: tensors, vectors, and matrices of Eigen. Spans, views and maps do not.
template <class Array>
concept owns_examples = is_tensor<Array> ||(range_of_numbers<Array> && !std::ranges::borrowed_range<Array>) ||
                        (eigen_matrix<Array> &&
                         requires { requires std::same_as<Array, typename Array::PlainObject>; });

/// What in_memory takes.
template <class Array>
concept has_examples_of = requires(Array& array) {
  examples_of(array);
};

/// Says what to write in place of an argument of in_memory. Always true when it compiles.
template <class Argument>
consteval bool explain_examples() {
  using array = std::remove_cvref_t<Argument>;
  static_assert(!eigen_expression<array>,
                "gradus: data::in_memory: this expression of Eigen has no memory: evaluate it first, Eigen::MatrixXf "
                "values = expression; and pass values");
  static_assert(
      !std::ranges::range<array> || has_examples_of<array> || eigen_expression<array>,
      "gradus: data::in_memory: the numbers of a range are adjacent in memory: copy a vector of vectors, or a "
      "std::vector<bool>, to one std::vector<float> v and pass data::examples_of(v, {1, c, h, w})");
  static_assert(has_examples_of<array> || eigen_expression<array> || std::ranges::range<array>,
                "gradus: data::in_memory takes tensors in host memory, matrices of Eigen with an example in each row, "
                "vectors with a number for each example, and data::examples_of(vector, {1, c, h, w})");
  static_assert(
      std::is_lvalue_reference_v<Argument> || !owns_examples<array>,
      "gradus: data::in_memory: the data set keeps a reference to its arrays, but a temporary is destroyed at "
      "the end of this statement: give it a name on the line before and pass the name");
  return has_examples_of<array>;
}

}  // namespace detail

/// A data set of arrays of the program, which must outlive it: tensors, matrices of Eigen with an example in each row,
/// vectors, arrays and spans with a number for each example, or examples_of(vector, {1, c, h, w}).
///
///   const auto set = data::in_memory(x, y);                          // real targets: float or double
///   const auto set = data::in_memory(x, labels, {.classes = 10});    // classes: integers of any size
///   const auto set = data::in_memory(x, examples_of(labels, {1, 1, h, w}));  // of pixels
///
/// @throws shape_error when there is not a target (and a weight) for each input, or a label needs more than 32 bits
template <class Inputs, class Targets>
[[nodiscard]] auto in_memory(Inputs&& inputs, Targets&& targets, const in_memory_options& options = {},
                             error_location where = error_location::current()) {
  if constexpr (detail::explain_examples<Inputs>() && detail::explain_examples<Targets>()) {
    return in_memory_dataset{examples_of(inputs), examples_of(targets), options, where};
  } else {
    return in_memory_dataset<float, std::int32_t>{{}, {}, options, where};
  }
}

}  // namespace gradus::data
