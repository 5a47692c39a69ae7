// SPDX-License-Identifier: BSL-1.0
//
// The passes of layers that copy each element of their output from one element of their input.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/core/config.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/strided_copy.hpp"
#include "gradus/kernels/strided_copy.hpp"
#include "gradus/nn/detail/shaping/memory_order.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn::detail {

/// A copy of the input, or of a part of it, to the output.
struct strided_move {
  kernels::strided_copy_shape shape;
  index_t from = 0;  ///< offset of the first element in the input, in elements
};

/// Which element of the input goes where. The part of the layers that does not depend on element type and device.
class strided_base : public layer_base {
 public:
  explicit strided_base(const axis_order& order) : order_{order} {}

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false, .backward_reads_output = false, .recomputable = true};
  }

 protected:
  /// The copy for a batch, with the strides of its input and output.
  [[nodiscard]] virtual strided_move move(index_t batch, const axis_strides& from, const axis_strides& to) const = 0;

  [[nodiscard]] strided_move move(const gradus::extents<4>& input, const gradus::extents<4>& output) const {
    return move(input[0], strides_of(order_, input), strides_of(order_, output));
  }

  axis_order order_;
};

/// The passes. Inputs after the first only give their size: their gradients are zero.
template <class Element, class Device, class Base>
class strided_layer : public layer_passes<Element, Device>, public Base {
  static_assert(kernels::explain_strided_copy<Device, Element>());
  using passes = layer_passes<Element, Device>;

 public:
  using Base::Base;

  void forward(const typename passes::forward_call& call) override {
    const strided_move move = this->move(call.inputs[0].extents(), call.output.extents());
    strided_copy(call.device, move.shape, call.inputs[0].data() + move.from, call.output.data(), false);
  }

  void backward(const typename passes::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      const strided_move move = this->move(dx.images.extents(), call.output_gradient.extents());
      if (move.shape.size() != dx.images.size()) {
        write_zeros(call.device, dx);
      }
      strided_copy(call.device, move.shape.inverse(), call.output_gradient.data(), dx.images.data() + move.from,
                   dx.epilogue.accumulate);
    }
    for (std::size_t k = 1; k < call.input_gradients.size(); ++k) {
      write_zeros(call.device, call.input_gradients[k]);
    }
  }
};

}  // namespace gradus::nn::detail
