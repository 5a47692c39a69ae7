// SPDX-License-Identifier: BSL-1.0
//
// What the scores of a batch are compared with: classes, real numbers, and weights of the examples.
#pragma once

#include <concepts>     // std::convertible_to
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// The targets of a batch of n examples, in the memory of the device. A loss says which of them it reads
/// (loss_base::targets).
/// @tparam Element  of the network. Real targets and weights are of parameter_element_t<Element>: float for networks of
///                  16 bits.
template <class Element, class Device>
struct targets {
  /// Type of real targets and of weights.
  using number = parameter_element_t<Element>;

  /// No targets.
  targets() = default;
  /// Classes: one for each example, or one for each pixel in the order (n, h, w).
  template <std::convertible_to<std::span<const std::int32_t>> Labels>
  targets(const Labels& classes) : labels{classes} {}
  /// Real numbers of shape (n, c, h, w).
  template <class Layout>
  targets(const image_view<const number, Layout, Device>& numbers) noexcept : values{numbers} {}
  /// Real numbers of shape (n, c, h, w).
  template <class Layout>
  targets(const image_view<number, Layout, Device>& numbers) noexcept : values{numbers} {}

  std::span<const std::int32_t> labels = {};      ///< n classes, or n * h * w
  image_batch<const number, Device> values = {};  ///< (n, c, h, w) in the layout of the network, or without memory
  std::span<const number> weights = {};           ///< n factors of the examples' losses; empty: 1
};

/// Which targets a loss reads.
struct target_description {
  index_t labels = 0;       ///< classes for each example
  value_shape values = {};  ///< shape of the real numbers of an example; channels = 0: none
  index_t classes = 0;      ///< labels are in [0, classes); 0: the loss does not say

  /// Equal members.
  friend constexpr bool operator==(const target_description&, const target_description&) noexcept = default;
};

/// The targets of an example in messages: "a class", "a class for each of 4096 pixels" or "real numbers of (1, 64,
/// 64)".
[[nodiscard]] std::string describe(const target_description& of);

/// The targets of the examples [first, first + count) of a batch. @pre the batch has them
template <class Element, class Device>
[[nodiscard]] targets<Element, Device> part_of_targets(const targets<Element, Device>& batch,
                                                       const target_description& of_example, index_t first,
                                                       index_t count) noexcept {
  targets<Element, Device> part;
  if (!batch.labels.empty()) {
    part.labels = batch.labels.subspan(static_cast<std::size_t>(first * of_example.labels),
                                       static_cast<std::size_t>(count * of_example.labels));
  }
  if (of_example.values.channels > 0) {
    part.values = {batch.values.device(), batch.values.data() + first * of_example.values.batch(1).size(),
                   of_example.values.batch(count)};
  }
  if (!batch.weights.empty()) {
    part.weights = batch.weights.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
  return part;
}

namespace detail {

/// The sizes of a batch's targets.
struct target_sizes {
  index_t labels = 0;
  image_extents values;
  index_t weights = 0;
};

/// @throws shape_error when a batch of n examples has other targets than the loss reads
void require_targets(std::string_view operation, const target_description& needed, index_t examples,
                     const target_sizes& given);

}  // namespace detail
}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE std::string describe(const target_description& of) {
  if (of.values.channels > 0) {
    return gradus::join({"real numbers of (", of.values.channels, ", ", of.values.height, ", ", of.values.width, ")"});
  }
  if (of.labels > 1) {
    return gradus::join({"a class for each of ", of.labels, " pixels"});
  }
  return of.labels == 1 ? "a class" : "nothing";
}

}  // namespace gradus::nn

namespace gradus::nn::detail {

GRADUS_INLINE void require_targets(std::string_view operation, const target_description& needed, index_t examples,
                                   const target_sizes& given) {
  if (given.labels != examples * needed.labels) {
    constexpr std::string_view hint =
        "the loss of the network says in targets() which it reads: unless it overrides them, a class for each example";
    if (needed.labels == 0) {
      raise<shape_error>(operation, {"real targets of ", to_string(needed.values.batch(examples)), " and no labels"},
                         {given.labels, " labels"}, hint);
    }
    if (needed.labels > 1) {
      raise<shape_error>(operation,
                         {examples * needed.labels, " labels, ", describe(needed), " of ", examples, " images"},
                         {given.labels, " labels"}, hint);
    }
    raise<shape_error>(operation, {"a label for each of ", examples, " images"}, {given.labels, " labels"});
  }
  const image_extents values = needed.values.channels > 0 ? needed.values.batch(examples) : image_extents{};
  if (examples > 0 && given.values != values) {
    raise<shape_error>(operation, {"real targets of ", to_string(values), ": ", describe(needed), " for each image"},
                       to_string(given.values), "the loss of the network says which targets it reads");
  }
  if (given.weights != 0 && given.weights != examples) {
    raise<shape_error>(operation, {"no weights, or one for each of ", examples, " images"}, {given.weights});
  }
}

}  // namespace gradus::nn::detail
#endif
