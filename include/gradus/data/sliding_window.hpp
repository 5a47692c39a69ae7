// SPDX-License-Identifier: BSL-1.0
//
// The newest examples of a program that makes them while it trains, in the memory of the host.
#pragma once

#include <algorithm>    // std::copy_n, std::max, std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <mutex>        // std::mutex, std::scoped_lock
#include <type_traits>  // std::is_floating_point_v, std::is_same_v

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/in_memory.hpp"

namespace gradus::data {

/// What a sliding_window stores.
struct window_options {
  index_t capacity = 0;       ///< examples; a newer one takes the memory of the oldest
  image_extents input = {};   ///< of one example: (1, c, h, w)
  image_extents target = {};  ///< of its real numbers: (1, c, h, w)
};

/// The newest examples, each an input and a target of real numbers. A program pushes what it computes, and a
/// window_loader draws batches of it. Any thread may push, and any may draw: they take turns.
///
/// Examples have ages: 0 is the newest. The memory is allocated once.
template <class Element = float>
class sliding_window {
  static_assert(std::is_floating_point_v<Element>, "gradus: a sliding_window stores float or double");

 public:
  /// The stored numbers.
  using element_type = Element;

  /// @throws configuration_error if the capacity or an extent is below 1
  explicit sliding_window(const window_options& options, error_location where = error_location::current())
      : options_{options} {
    options_.input.n = options_.target.n = 1;
    if (options.capacity < 1 || options_.input.size() < 1 || options_.target.size() < 1) {
      raise<configuration_error>("sliding_window",
                                 "a capacity of at least 1, and inputs and targets of at least 1 number",
                                 {"a capacity of ", options.capacity, ", inputs of ", to_string(options_.input),
                                  " and targets of ", to_string(options_.target)},
                                 {}, where);
    }
    inputs_ = dynamic_array<Element>(static_cast<std::size_t>(options.capacity * options_.input.size()));
    targets_ = dynamic_array<Element>(static_cast<std::size_t>(options.capacity * options_.target.size()));
  }

  sliding_window(const sliding_window&) = delete;
  sliding_window& operator=(const sliding_window&) = delete;

  /// Adds examples; the last one is the newest. Numbers are copied once, from any layout; adjacent ones as a whole.
  /// @param inputs   tensors, matrices of Eigen, vectors with a number for each example, or a data::example_array with
  /// a
  ///                 pointer, the shape (n, c, h, w) and the distances in elements: see in_memory
  /// @param targets  likewise, of as many examples
  /// @throws shape_error when shapes are not those of the window
  template <class Inputs, class Targets>
  void push(const Inputs& inputs, const Targets& targets, error_location where = error_location::current()) {
    const auto x = examples_of(inputs);
    const auto y = examples_of(targets);
    require(x.shape, options_.input, "inputs", where);
    require(y.shape, options_.target, "targets", where);
    if (x.shape.n != y.shape.n) {
      raise<shape_error>("sliding_window.push", {"a target for each of ", x.shape.n, " examples"},
                         {y.shape.n, " targets"}, {}, where);
    }
    const std::scoped_lock lock{mutex_};
    // Of more examples than there is memory for, the last ones stay.
    for (index_t i = std::max<index_t>(0, x.shape.n - options_.capacity); i < x.shape.n; ++i) {
      const auto slot = static_cast<index_t>((pushed_ + static_cast<std::uint64_t>(i)) %
                                             static_cast<std::uint64_t>(options_.capacity));
      copy(x, i, inputs_.data() + slot * options_.input.size());
      copy(y, i, targets_.data() + slot * options_.target.size());
    }
    pushed_ += static_cast<std::uint64_t>(x.shape.n);
  }

  /// The number of examples that are stored: at most the capacity.
  [[nodiscard]] index_t size() const {
    const std::scoped_lock lock{mutex_};
    return stored();
  }
  /// The number of examples that were ever pushed.
  [[nodiscard]] std::uint64_t pushed() const {
    const std::scoped_lock lock{mutex_};
    return pushed_;
  }
  /// The options, with n = 1 in the extents.
  [[nodiscard]] const window_options& options() const noexcept { return options_; }

  /// Calls draw(view) while no thread pushes. The view has size() and pushed(), and input(age) and target(age), which
  /// are pointers to the numbers of an example, plane after plane, for 0 <= age < size().
  template <class Draw>
  auto with_examples(const Draw& draw) const {
    const std::scoped_lock lock{mutex_};
    return draw(view{*this});
  }

 private:
  /// What with_examples gives.
  class view {
   public:
    explicit view(const sliding_window& of) noexcept : of_{&of} {}
    [[nodiscard]] index_t size() const noexcept { return of_->stored(); }
    [[nodiscard]] std::uint64_t pushed() const noexcept { return of_->pushed_; }
    [[nodiscard]] const Element* input(index_t age) const noexcept {
      return of_->inputs_.data() + of_->slot_of(age) * of_->options_.input.size();
    }
    [[nodiscard]] const Element* target(index_t age) const noexcept {
      return of_->targets_.data() + of_->slot_of(age) * of_->options_.target.size();
    }

   private:
    const sliding_window* of_;
  };

  [[nodiscard]] index_t stored() const noexcept {
    return static_cast<index_t>(std::min(pushed_, static_cast<std::uint64_t>(options_.capacity)));
  }
  [[nodiscard]] index_t slot_of(index_t age) const noexcept {
    return static_cast<index_t>((pushed_ - 1 - static_cast<std::uint64_t>(age)) %
                                static_cast<std::uint64_t>(options_.capacity));
  }

  static void require(const image_extents& given, const image_extents& one, const char* what, error_location where) {
    if (given.n < 0 || given.c != one.c || given.h != one.h || given.w != one.w) {
      raise<shape_error>("sliding_window.push",
                         {what, " of (n, ", one.c, ", ", one.h, ", ", one.w, "), those of the window"},
                         to_string(given), {}, where);
    }
  }

  template <class From>
  static void copy(const example_array<From>& array, index_t i, Element* to) noexcept {
    const image_extents& all = array.shape;
    const From* const first = array.data + i * array.strides[0];
    if constexpr (std::is_same_v<From, Element>) {
      if ((all.w == 1 || array.strides[3] == 1) && (all.h == 1 || array.strides[2] == all.w) &&
          (all.c == 1 || array.strides[1] == all.h * all.w)) {
        std::copy_n(first, all.c * all.h * all.w, to);
        return;
      }
    }
    for (index_t c = 0; c < all.c; ++c) {
      for (index_t h = 0; h < all.h; ++h) {
        const From* const row = first + c * array.strides[1] + h * array.strides[2];
        for (index_t w = 0; w < all.w; ++w) {
          *to++ = static_cast<Element>(row[w * array.strides[3]]);
        }
      }
    }
  }

  window_options options_;
  mutable std::mutex mutex_;  // protects the members below
  std::uint64_t pushed_ = 0;
  dynamic_array<Element> inputs_;   // (capacity, c, h, w)
  dynamic_array<Element> targets_;  // (capacity, c, h, w)
};

}  // namespace gradus::data
