// SPDX-License-Identifier: BSL-1.0
//
// What layers and losses tell of their options.
#pragma once

#include <array>        // std::array
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/index.hpp"

namespace gradus {
struct formula_step;
}

namespace gradus::nn {

/// Receives what a layer or a loss computes, as layer_base::attributes and loss_base::attributes describe it:
/// io::save_onnx does, and what compares ranks. Names are those of the options.
class attribute_visitor {
 public:
  /// The operation: "conv2d". Comes first. A layer of a program names its own, "company::rotate": save_onnx writes it
  /// as the operator `rotate` of the domain `company`, whose inputs are the layer's inputs, parameters and buffers.
  virtual void operation(std::string_view name) = 0;
  /// A number, or true or false as 1 and 0.
  virtual void integer(std::string_view name, index_t value) = 0;
  /// Several numbers.
  virtual void integers(std::string_view name, std::span<const index_t> values) = 0;
  /// A real number.
  virtual void real(std::string_view name, double value) = 0;
  /// One of several choices, by its name.
  virtual void text(std::string_view name, std::string_view value) = 0;
  /// The steps of an element-wise function of the inputs, then the parameters (tensor/formula.hpp).
  virtual void formula(std::span<const formula_step> steps) = 0;

  /// integers: {height, width} of a size2d.
  template <class Size>
  void size(std::string_view name, const Size& value) {
    integers(name, std::array<index_t, 2>{value.height, value.width});
  }
  /// text for padding::same(), else integers: {top, left, bottom, right}.
  template <class Padding>
  void padding(std::string_view name, const Padding& value) {
    if (value.rule() == Padding::kind::same) {
      text(name, "same");
    } else {
      integers(name, std::array<index_t, 4>{value.top(), value.left(), value.bottom(), value.right()});
    }
  }

 protected:
  ~attribute_visitor() = default;
};

}  // namespace gradus::nn
