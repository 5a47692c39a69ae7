// SPDX-License-Identifier: BSL-1.0
//
// Arrays of the caller, in any order of axes, as examples of (channels, rows, columns).
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t, std::uint64_t
#include <cstring>      // std::memcpy
#include <limits>       // std::numeric_limits
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "calls.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/value.hpp"
#include "gradus_c.h"

namespace gradus_c {

using gradus::index_t;

inline constexpr int most_axes = 15;

/// An array whose axes are in the order of C: the first varies slowest by name.
struct described_array {
  void* data = nullptr;
  int element = GRADUS_FLOAT;
  int rank = 0;
  bool fortran = false;  // how the caller names the axes, for messages
  std::array<index_t, most_axes> shape{};
  std::array<index_t, most_axes> strides{};  // in elements
};

/// Examples in memory: n of (c, h, w), with their distances in elements.
struct examples {
  void* data = nullptr;
  int element = GRADUS_FLOAT;
  index_t count = 0;
  gradus::nn::value_shape shape;
  std::array<index_t, 4> strides{};  // n, c, h, w
};

[[nodiscard]] inline std::size_t bytes_of(int element) noexcept {
  return element == GRADUS_FLOAT || element == GRADUS_INT32 ? 4 : 8;
}

/// "(2, 3)", as the caller names the axes.
[[nodiscard]] inline std::string text_of(const described_array& array) {
  std::string text = "(";
  for (int i = 0; i < array.rank; ++i) {
    const int axis = array.fortran ? array.rank - 1 - i : i;
    gradus::append_text(text, {i == 0 ? "" : ", ", array.shape[static_cast<std::size_t>(axis)]});
  }
  return text + (array.fortran ? ") in Fortran order" : ")");
}

/// Checks what an array says of itself. @throws failure
[[nodiscard]] inline described_array describe(std::string_view name, const gradus_array* given) {
  require_pointer(name, given);
  if (given->element < GRADUS_FLOAT || given->element > GRADUS_INT64) {
    refuse({"element = GRADUS_FLOAT, GRADUS_DOUBLE, GRADUS_INT32 or GRADUS_INT64 of the array '", name, "'"},
           {given->element});
  }
  if (given->order != GRADUS_C_ORDER && given->order != GRADUS_FORTRAN_ORDER) {
    refuse({"order = GRADUS_C_ORDER or GRADUS_FORTRAN_ORDER of the array '", name, "'"}, {given->order});
  }
  if (given->rank < 1 || given->rank > most_axes || given->reserved != 0) {
    throw failure{GRADUS_SHAPE_ERROR,
                  {"rank from 1 to ", most_axes, " and reserved = 0 of the array '", name, "'"},
                  {"rank = ", given->rank, " and reserved = ", given->reserved}};
  }
  require_pointer("shape of an array", given->shape);
  described_array array{
      .data = given->data, .element = given->element, .rank = given->rank, .fortran = given->order != GRADUS_C_ORDER};
  index_t size = 1;
  for (int i = 0; i < array.rank; ++i) {
    const int from = array.fortran ? array.rank - 1 - i : i;
    const auto axis = static_cast<std::size_t>(i);
    array.shape[axis] = given->shape[from];
    if (array.shape[axis] < 0 || (size > 0 && array.shape[axis] > std::numeric_limits<index_t>::max() / 8 / size)) {
      throw failure{GRADUS_SHAPE_ERROR,
                    {"extents of at least 0, and fewer than 2^60 elements, of the array '", name, "'"},
                    {"the extent ", array.shape[axis], " of axis ", from}};
    }
    size *= array.shape[axis];
    if (given->strides != nullptr) {
      array.strides[axis] = given->strides[from];
      if (array.strides[axis] == 0 && array.shape[axis] > 1) {
        throw failure{GRADUS_SHAPE_ERROR,
                      {"strides that are not 0 of axes of more than one element of the array '", name, "'"},
                      {"stride 0 of axis ", from},
                      "strides are distances in elements; a null pointer stands for a contiguous array"};
      }
    }
  }
  if (given->strides == nullptr) {
    index_t step = 1;
    for (int i = array.rank; i-- > 0;) {
      array.strides[static_cast<std::size_t>(i)] = step;
      step *= array.shape[static_cast<std::size_t>(i)];
    }
  }
  if (size > 0 && array.data == nullptr) {
    refuse({"data of the array '", name, "'"}, "null");
  }
  return array;
}

/// Axes that an example may have, and which strides of (c, h, w) they stand for.
struct example_axes {
  int count = 0;
  std::array<index_t, 3> extents{};
  std::array<int, 3> axis{};  // 0: c, 1: h, 2: w
};

/// The forms of an example, the one with most axes first. It allocates nothing.
struct example_forms {
  std::array<example_axes, 6> all{};
  std::size_t count = 0;

  explicit example_forms(const gradus::nn::value_shape& of) noexcept {
    const index_t c = of.channels;
    const index_t h = of.height;
    const index_t w = of.width;
    add(true, {.count = 3, .extents = {c, h, w}, .axis = {0, 1, 2}});
    add(c == 1, {.count = 2, .extents = {h, w}, .axis = {1, 2}});
    add(w == 1, {.count = 2, .extents = {c, h}, .axis = {0, 1}});
    add(h == 1 && w == 1, {.count = 1, .extents = {c}, .axis = {0}});
    add(c == 1 && w == 1, {.count = 1, .extents = {h}, .axis = {1}});
    add(c == 1 && h == 1 && w == 1, {});
  }

  [[nodiscard]] const example_axes* begin() const noexcept { return all.data(); }
  [[nodiscard]] const example_axes* end() const noexcept { return all.data() + count; }

 private:
  void add(bool possible, const example_axes& form) noexcept {
    if (possible) {
      all[count++] = form;
    }
  }
};

/// Whether the axes [0, count) are one evenly spaced axis, and its stride.
[[nodiscard]] inline bool merge(const described_array& array, int count, index_t& size, index_t& stride) noexcept {
  size = 1;
  stride = 1;
  index_t inner = -1;  // the last axis of more than one element so far
  for (int i = count; i-- > 0;) {
    const auto axis = static_cast<std::size_t>(i);
    if (array.shape[axis] == 1) {
      continue;
    }
    if (inner < 0) {
      stride = array.strides[axis];
    } else if (array.strides[axis] != stride * size && size > 0) {
      return false;
    }
    inner = static_cast<index_t>(i);
    size *= array.shape[axis];
  }
  return true;
}

/// The examples of an array. @throws failure if it has no examples of this shape
[[nodiscard]] inline examples examples_of(std::string_view name, const described_array& array,
                                          const gradus::nn::value_shape& shape) {
  examples result{.data = array.data, .element = array.element, .shape = shape};
  const auto last = [&](int from_end) { return static_cast<std::size_t>(array.rank - from_end); };
  bool uneven = false;
  for (const example_axes& form : example_forms{shape}) {
    bool fits = form.count <= array.rank;
    for (int k = 0; fits && k < form.count; ++k) {
      fits = array.shape[last(form.count - k)] == form.extents[static_cast<std::size_t>(k)];
    }
    if (!fits) {
      continue;
    }
    if (!merge(array, array.rank - form.count, result.count, result.strides[0])) {
      uneven = true;
      continue;
    }
    for (int k = 0; k < form.count; ++k) {
      const auto at = static_cast<std::size_t>(k);
      result.strides[static_cast<std::size_t>(form.axis[at] + 1)] = array.strides[last(form.count - k)];
    }
    return result;
  }
  if (array.shape[last(1)] == shape.size()) {  // one axis for all elements of an example
    if (merge(array, array.rank - 1, result.count, result.strides[0])) {
      const index_t step = array.strides[last(1)];
      result.strides = {result.strides[0], step * shape.height * shape.width, step * shape.width, step};
      return result;
    }
    uneven = true;
  }
  if (uneven) {
    throw failure{GRADUS_SHAPE_ERROR,
                  {"samples of the array '", name, "' that are evenly spaced"},
                  {"several axes of samples with other distances, of ", text_of(array)},
                  "copy the samples to a contiguous array, or hand over one axis of them at a time"};
  }
  const auto expected = array.fortran
                            ? gradus::join({"(", shape.width, ", ", shape.height, ", ", shape.channels, ", samples)"})
                            : gradus::join({"(samples, ", shape.channels, ", ", shape.height, ", ", shape.width, ")"});
  throw failure{GRADUS_SHAPE_ERROR,
                {"an array '", name, "' of the shape ", expected, ", in which axes of one element may be left out"},
                {text_of(array)},
                "the shape of an array in GRADUS_FORTRAN_ORDER is (columns, rows, channels, samples)"};
}

/// Calls body with a pointer to the type of the elements.
template <class Body>
decltype(auto) with_elements(int element, void* data, const Body& body) {
  switch (element) {
    case GRADUS_FLOAT:
      return body(static_cast<float*>(data));
    case GRADUS_DOUBLE:
      return body(static_cast<double*>(data));
    case GRADUS_INT32:
      return body(static_cast<std::int32_t*>(data));
    default:
      return body(static_cast<std::int64_t*>(data));
  }
}

/// The strides of a batch whose memory is (n, h, w, c), which is that of the networks here.
[[nodiscard]] inline std::array<index_t, 4> strides_of_batch(const gradus::nn::value_shape& shape) noexcept {
  return {shape.channels * shape.height * shape.width, 1, shape.width * shape.channels, shape.channels};
}

/// Copies an example between two memories, converting its elements.
template <class From, class To>
void copy_example(const gradus::nn::value_shape& shape, const From* from, const std::array<index_t, 4>& from_strides,
                  To* to, const std::array<index_t, 4>& to_strides) noexcept {
  for (index_t h = 0; h < shape.height; ++h) {
    for (index_t c = 0; c < shape.channels; ++c) {
      const From* source = from + h * from_strides[2] + c * from_strides[1];
      To* target = to + h * to_strides[2] + c * to_strides[1];
      for (index_t w = 0; w < shape.width; ++w) {
        target[w * to_strides[3]] = static_cast<To>(source[w * from_strides[3]]);
      }
    }
  }
}

/// Reads example i into the dense memory (h, w, c) of a batch.
template <class To>
void read_example(const examples& from, index_t i, To* to) {
  with_elements(from.element, from.data, [&](const auto* elements) {
    copy_example(from.shape, elements + i * from.strides[0], from.strides, to, strides_of_batch(from.shape));
  });
}

/// Writes example i from the dense memory (h, w, c) of a batch.
template <class From>
void write_example(const examples& to, index_t i, const From* from) {
  with_elements(to.element, to.data, [&](auto* elements) {
    copy_example(to.shape, from, strides_of_batch(to.shape), elements + i * to.strides[0], to.strides);
  });
}

/// A hash of up to 64 examples, evenly spread, by which ranks see whether they have the same at a cost that does not
/// grow with the data: FNV-1a (Fowler, Noll, Vo) of words.
[[nodiscard]] inline std::uint64_t hash_of(const examples& all, std::uint64_t hash) {
  with_elements(all.element, all.data, [&](const auto* elements) {
    const index_t distance = std::max(all.count / 64, index_t{1});
    for (index_t i = 0; i < all.count; i += distance) {
      for (index_t c = 0; c < all.shape.channels; ++c) {
        for (index_t h = 0; h < all.shape.height; ++h) {
          const auto* row = elements + i * all.strides[0] + c * all.strides[1] + h * all.strides[2];
          for (index_t w = 0; w < all.shape.width; ++w) {
            std::uint64_t word = 0;
            std::memcpy(&word, row + w * all.strides[3], sizeof(*row));
            hash = (hash ^ word) * 0x100000001b3U;
          }
        }
      }
    }
  });
  return hash;
}

}  // namespace gradus_c
