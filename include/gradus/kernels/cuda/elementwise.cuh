// SPDX-License-Identifier: BSL-1.0
//
// Element-wise kernels on CUDA: one launch each, 16 bytes for each instruction.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uintptr_t
#include <string_view>  // std::string_view
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/elementwise.hpp"

namespace gradus::kernels {

namespace detail {

/// out[i] = function(inputs[i]...), computed in device_real<E>.
template <class Element, class Function, class... Input>
__global__ void map_kernel(index_t count, bool packets, Function function, Element* out, const Input*... inputs) {
  constexpr int width = packet_width<Element>;
  index_t done = 0;
  if (packets) {
    done = count / width * width;
    for (index_t i = thread_index() * width; i < done; i += thread_count() * width) {
      device_packet<Element, width> result;
      [&](auto... loaded) {
#pragma unroll
        for (int k = 0; k < width; ++k) {
          result.values[k] = narrow<Element>(function(widen(loaded.values[k])...));
        }
      }(load_packet<width>(inputs + i)...);
      store_packet<width>(out + i, result);
    }
  }
  for (index_t i = done + thread_index(); i < count; i += thread_count()) {
    out[i] = narrow<Element>(function(widen(inputs[i])...));
  }
}

template <class Element, class Function, class... Input>
void map(cuda& device, std::string_view name, index_t count, const Function& function, Element* out,
         const Input*... inputs) {
  if (count == 0) {
    return;
  }
  const bool packets = on_packets(out, inputs...);
  launch(device, name, blocks_for(packets ? (count + packet_width<Element> - 1) / packet_width<Element> : count),
         block_threads, &map_kernel<Element, Function, Input...>, count, packets, function, out, inputs...);
}

struct identity_value {
  template <class Value>
  __device__ Value operator()(Value x) const {
    return x;
  }
};
struct sum_of_values {
  template <class Value>
  __device__ Value operator()(Value a, Value b) const {
    return a + b;
  }
};
template <class Real>
struct activated_sum {
  device_activation<Real> act;
  __device__ Real operator()(Real a, Real b) const { return act(a + b); }
};
/// dy times the derivative of the function whose output is y.
template <class Real>
struct masked_value {
  device_derivative<Real> derivative;
  __device__ Real operator()(Real dy, Real y) const { return derivative.times(y, dy); }
};
template <class Real>
struct masked_sum {
  device_derivative<Real> derivative;
  __device__ Real operator()(Real dx, Real dy, Real y) const { return dx + derivative.times(y, dy); }
};

template <class To, class From>
__global__ void convert_kernel(index_t count, const From* from, To* to) {
  for (index_t i = thread_index(); i < count; i += thread_count()) {
    to[i] = narrow<To>(static_cast<device_real<To>>(widen(from[i])));
  }
}

/// Converts elements of one type to another.
template <class To, class From>
void convert(cuda& device, index_t count, const From* from, To* to) {
  if (count > 0) {
    launch(device, "convert", blocks_for(count), block_threads, &convert_kernel<To, From>, count, from, to);
  }
}

}  // namespace detail

/// Implements has_relu_forward on a GPU.
template <network_element Element>
void relu_forward(cuda& device, index_t count, const Element* x, Element* y,
                  const activation& function = activation::relu) {
  detail::map(device, "relu_forward", count, detail::device_activation<detail::device_real<Element>>{function}, y, x);
}

/// Implements has_relu_backward on a GPU.
template <network_element Element>
void relu_backward(cuda& device, index_t count, const Element* dy, const Element* y, Element* dx, bool accumulate,
                   const activation& function = activation::relu) {
  using real = detail::device_real<Element>;
  const detail::device_derivative<real> derivative{function};
  if (accumulate) {
    detail::map(device, "relu_backward", count, detail::masked_sum<real>{derivative}, dx,
                static_cast<const Element*>(dx), dy, y);
  } else {
    detail::map(device, "relu_backward", count, detail::masked_value<real>{derivative}, dx, dy, y);
  }
}

/// Implements has_add_forward on a GPU.
template <network_element Element>
void add_forward(cuda& device, index_t count, const Element* a, const Element* b, Element* y, const activation& act) {
  using real = detail::device_real<Element>;
  const detail::device_activation<real> function{act};
  detail::map(device, "add_forward", count, detail::activated_sum<real>{function}, y, a, b);
}

/// Implements has_copy_or_add on a GPU.
template <network_element Element>
void copy_or_add(cuda& device, index_t count, const Element* source, Element* destination, bool accumulate) {
  if (accumulate) {
    detail::map(device, "copy_or_add", count, detail::sum_of_values{}, destination,
                static_cast<const Element*>(destination), source);
  } else {
    device.copy(destination, source, static_cast<std::size_t>(count) * sizeof(Element));
  }
}

}  // namespace gradus::kernels
