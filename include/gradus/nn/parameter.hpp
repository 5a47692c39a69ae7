// SPDX-License-Identifier: BSL-1.0
//
// A learnable tensor of a network: its description and the object that a network returns.
#pragma once

#include <array>     // std::array
#include <cstddef>   // std::size_t
#include <iterator>  // std::make_move_iterator
#include <span>      // std::span
#include <string>    // std::string
#include <vector>    // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// One learnable tensor of a layer, as the layer describes it.
struct parameter_description {
  /// "weight", "bias", ... in the layer; the network prepends the layer's name: "conv1.weight".
  std::string name;
  image_extents shape;              ///< (o, i, r, s); unused axes are 1
  int rank = 4;                     ///< number of axes in files: 4 (o, i, r, s), 2 (o, i*r*s), 1 (o)
  initializer initial;              ///< the values before training
  fan sizes;                        ///< for the initializer
  bool decay = true;                ///< weight decay applies; false for biases and normalization (Goyal et al. 2017)
  double learning_rate_factor = 1;  ///< its learning rate is this factor times that of the schedule
  index_t offset = 0;  ///< in the network's flat buffers of values and gradients, in elements; set by compile
};

/// The parameters of a layer with a linear map: a weight and, unless `bias` is null, a bias.
/// @param shape  (o, i, r, s) of the weight; the bias has o elements
[[nodiscard]] std::vector<parameter_description> weight_and_bias(const image_extents& shape, int rank, const fan& sizes,
                                                                 const initializer& weight, const initializer* bias);

namespace detail {

/// Copies a dense tensor of four axes from one memory order to another; the strides are in elements.
template <class Element>
void copy_reordered(const extents<4>& shape, const Element* from, const std::array<index_t, 4>& from_strides,
                    Element* to, const std::array<index_t, 4>& to_strides) {
  for (index_t o = 0; o < shape[0]; ++o) {
    for (index_t i = 0; i < shape[1]; ++i) {
      for (index_t r = 0; r < shape[2]; ++r) {
        const Element* source = from + o * from_strides[0] + i * from_strides[1] + r * from_strides[2];
        Element* target = to + o * to_strides[0] + i * to_strides[1] + r * to_strides[2];
        for (index_t q = 0; q < shape[3]; ++q, source += from_strides[3], target += to_strides[3]) {
          *target = *source;
        }
      }
    }
  }
}

/// Copies the elements of a parameter to the host, in the order (o, i, r, s).
template <class Element, class Device>
std::vector<Element> copy_logical(Device& device, const Element* data, const parameter_description& described,
                                  const std::array<index_t, 4>& strides) {
  std::vector<Element> memory(static_cast<std::size_t>(described.shape.size()));
  device.copy_to_host(memory.data(), data, memory.size() * sizeof(Element));
  std::vector<Element> logical(memory.size());
  copy_reordered(described.shape, memory.data(), strides, logical.data(), dense_strides<row_major, 4>(described.shape));
  return logical;
}

/// Sets the elements of a parameter from host values in the order (o, i, r, s).
template <class Element, class Device>
void assign_logical(Device& device, Element* data, const parameter_description& described,
                    const std::array<index_t, 4>& strides, const Element* logical) {
  dynamic_array<Element> memory(static_cast<std::size_t>(described.shape.size()));
  copy_reordered(described.shape, logical, dense_strides<row_major, 4>(described.shape), memory.data(), strides);
  device.copy_from_host(data, memory.data(), memory.size() * sizeof(Element));
}

/// @throws shape_error when the number of values is not the parameter's size
inline void require_values(const parameter_description& described, std::size_t count) {
  if (static_cast<index_t>(count) != described.shape.size()) {
    raise<shape_error>({"parameter ", described.name},
                       {described.shape.size(), " values for ", to_string(described.shape)}, {count});
  }
}

/// @throws configuration_error unless the parameter is trained
inline void require_trained(const parameter_description& described, bool trained, error_location where) {
  if (!trained) {
    raise<configuration_error>({"parameter ", described.name}, "a layer that is trained", "a frozen one",
                               "ask parameter.trained() before", where);
  }
}

}  // namespace detail

/// A learnable tensor of a compiled network and its gradient. Valid as long as the network.
///
/// The memory has the layout of the network. copy_values, copy_gradient and assign_values use the logical order
/// (o, i, r, s), so that stored weights do not depend on the layout.
template <class Element, class Layout, class Device>
class parameter {
 public:
  /// Refers to `described`, which must outlive the parameter.
  parameter(const parameter_description& described, image_view<Element, Layout, Device> value,
            image_view<Element, Layout, Device> gradient)
      : description_{&described}, value_{value}, gradient_{gradient} {}

  /// "layer.name", for example "conv1.weight".
  [[nodiscard]] const std::string& name() const noexcept { return description_->name; }
  /// The layer's description of this parameter.
  [[nodiscard]] const parameter_description& description() const noexcept { return *description_; }
  /// The shape (o, i, r, s).
  [[nodiscard]] const image_extents& shape() const noexcept { return description_->shape; }
  /// The number of elements.
  [[nodiscard]] index_t size() const { return description_->shape.size(); }
  /// The offset in the network's flat buffers of values and gradients, in elements.
  [[nodiscard]] index_t offset() const noexcept { return description_->offset; }
  /// True if weight decay applies.
  [[nodiscard]] bool decay() const noexcept { return description_->decay; }
  /// The values, (o, i, r, s), on the device.
  [[nodiscard]] image_view<Element, Layout, Device> value() const noexcept { return value_; }
  /// False for the parameters of frozen layers, which have no gradient.
  [[nodiscard]] bool trained() const noexcept { return gradient_.data() != nullptr; }
  /// The gradient, (o, i, r, s), on the device; without memory in a frozen layer.
  [[nodiscard]] image_view<Element, Layout, Device> gradient() const noexcept { return gradient_; }

  /// A host copy of the values in the order (o, i, r, s).
  [[nodiscard]] std::vector<Element> copy_values() const {
    return detail::copy_logical<Element>(value_.device(), value_.data(), *description_, strides());
  }
  /// A host copy of the gradient in the order (o, i, r, s).
  /// @throws configuration_error when the layer is frozen
  [[nodiscard]] std::vector<Element> copy_gradient(error_location where = error_location::current()) const {
    detail::require_trained(*description_, trained(), where);
    return detail::copy_logical<Element>(gradient_.device(), gradient_.data(), *description_, strides());
  }

  /// Sets the values from host values in the order (o, i, r, s).
  /// @throws shape_error when logical.size() is not size()
  void assign_values(std::span<const Element> logical) const {
    detail::require_values(*description_, logical.size());
    detail::assign_logical<Element>(value_.device(), value_.data(), *description_, strides(), logical.data());
  }

 private:
  [[nodiscard]] std::array<index_t, 4> strides() const noexcept {
    return dense_strides<Layout, 4>(description_->shape);
  }

  const parameter_description* description_;
  image_view<Element, Layout, Device> value_;
  image_view<Element, Layout, Device> gradient_;
};

/// The parameters [first, first + count) of a network.
struct parameter_range {
  std::size_t first = 0;  ///< an index in network::parameters()
  std::size_t count = 0;  ///< the number of parameters
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE std::vector<parameter_description> weight_and_bias(const image_extents& shape, int rank, const fan& sizes,
                                                                 const initializer& weight, const initializer* bias) {
  parameter_description both[] = {
      {"weight", shape, rank, weight, sizes, true},
      {"bias", {shape.n, 1, 1, 1}, 1, bias == nullptr ? weight : *bias, sizes, false},
  };
  return {std::make_move_iterator(both), std::make_move_iterator(both + (bias == nullptr ? 1 : 2))};
}

}  // namespace gradus::nn
#endif
