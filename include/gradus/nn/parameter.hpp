// SPDX-License-Identifier: BSL-1.0
//
// A learnable tensor of a network: what a layer asks for and what the network keeps.
// Module: nn. Depends on: tensor.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <string>   // std::string, std::to_string
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/core/error.hpp"          // shape_error
#include "gradus/core/extents.hpp"        // image_extents
#include "gradus/core/index.hpp"          // index_t
#include "gradus/layout/mapping.hpp"      // dense_mapping
#include "gradus/nn/initializer.hpp"      // initializer, fan
#include "gradus/tensor/tensor_view.hpp"  // image_view

namespace gradus::nn {

/// What a layer asks the network for: one learnable tensor.
struct parameter_description {
  std::string name;     ///< inside the layer: "weight", "bias", ...
  image_extents shape;  ///< (o, i, r, s); unused axes are 1
  int rank = 4;         ///< axes that files show: 4 (o, i, r, s), 2 (o, i*r*s), 1 (o)
  initializer initial;  ///< the values before training
  fan sizes;            ///< for the initialiser
  bool decay = true;    ///< whether weight decay applies; not to biases and normalisation (Goyal et al. 2017)
};

/// A learnable tensor of a frozen network and its gradient.
///
/// Memory keeps the layout of the network; copy_to and copy_from use the logical order (o, i, r, s), so that stored
/// weights do not depend on the layout.
template <class Element, class Layout, class Device>
class parameter {
 public:
  parameter(std::string name, parameter_description description, index_t offset,
            image_view<Element, Layout, Device> value, image_view<Element, Layout, Device> gradient)
      : name_{std::move(name)},
        description_{std::move(description)},
        offset_{offset},
        value_{value},
        gradient_{gradient} {}

  /// "layer.name", for example "conv1.weight".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const parameter_description& description() const noexcept { return description_; }
  /// (o, i, r, s)
  [[nodiscard]] const image_extents& shape() const noexcept { return description_.shape; }
  [[nodiscard]] index_t size() const { return description_.shape.size(); }
  /// The position in the network's flat buffers of values and gradients, in elements.
  [[nodiscard]] index_t offset() const noexcept { return offset_; }
  [[nodiscard]] bool decay() const noexcept { return description_.decay; }
  [[nodiscard]] image_view<Element, Layout, Device> value() const noexcept { return value_; }
  [[nodiscard]] image_view<Element, Layout, Device> gradient() const noexcept { return gradient_; }

  /// The values in the order (o, i, r, s), on the host.
  [[nodiscard]] std::vector<Element> copy_values() const { return copy_logical(value_); }
  /// The gradient in the order (o, i, r, s), on the host.
  [[nodiscard]] std::vector<Element> copy_gradient() const { return copy_logical(gradient_); }

  /// Sets the values from the order (o, i, r, s), on the host.
  /// @throws shape_error when the count is not size()
  void assign_values(std::span<const Element> logical) const {
    if (static_cast<index_t>(logical.size()) != size()) {
      throw shape_error{"parameter " + name_, std::to_string(size()) + " values for " + to_string(shape()),
                        std::to_string(logical.size())};
    }
    std::vector<Element> memory(logical.size());
    std::size_t position = 0;
    for_each_offset([&](std::size_t offset) { memory[offset] = logical[position++]; });
    value_.device().copy_from_host(value_.data(), memory.data(), memory.size() * sizeof(Element));
  }

 private:
  template <class Visit>
  void for_each_offset(const Visit& visit) const {
    const image_extents& s = description_.shape;
    const dense_mapping<Layout> offset_of{s};
    for (index_t o = 0; o < s.n; ++o) {
      for (index_t i = 0; i < s.c; ++i) {
        for (index_t r = 0; r < s.h; ++r) {
          for (index_t q = 0; q < s.w; ++q) {
            visit(static_cast<std::size_t>(offset_of(o, i, r, q)));
          }
        }
      }
    }
  }

  [[nodiscard]] std::vector<Element> copy_logical(const image_view<Element, Layout, Device>& view) const {
    std::vector<Element> memory(static_cast<std::size_t>(size()));
    view.device().copy_to_host(memory.data(), view.data(), memory.size() * sizeof(Element));
    std::vector<Element> logical(memory.size());
    std::size_t position = 0;
    for_each_offset([&](std::size_t offset) { logical[position++] = memory[offset]; });
    return logical;
  }

  std::string name_;
  parameter_description description_;
  index_t offset_;
  image_view<Element, Layout, Device> value_;
  image_view<Element, Layout, Device> gradient_;
};

}  // namespace gradus::nn
