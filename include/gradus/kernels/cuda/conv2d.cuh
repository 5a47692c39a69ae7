// SPDX-License-Identifier: BSL-1.0
//
// 2-D convolution on CUDA with cuDNN.
#pragma once

#include <algorithm>    // std::max
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::uint32_t
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/conv2d/convolution_plan.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/detail/norm/channel_sums.cuh"
#include "gradus/kernels/cuda/elementwise.cuh"
#include "gradus/kernels/cuda/matmul.cuh"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// Copies images into larger ones with zeros around them, and omits pixels outside them.
template <class Layout, class Element>
__global__ void pad_kernel(device_images<Layout> in, device_images<Layout> out, std::int32_t top, std::int32_t left,
                           const Element* x, Element* y) {
  for_each_in_images(out.examples, out.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = out.position(i);
    const std::uint32_t h = at.h - static_cast<std::uint32_t>(top);  // wraps around above and left of the image
    const std::uint32_t w = at.w - static_cast<std::uint32_t>(left);
    y[n * out.image_size() + i] =
        h < in.height && w < in.width ? x[n * in.image_size() + in.offset(at.c, h, w)] : narrow<Element>(0);
  });
}

/// The gradient of pad_kernel.
template <class Layout, class Element>
__global__ void crop_kernel(device_images<Layout> in, device_images<Layout> out, std::int32_t top, std::int32_t left,
                            const Element* padded, Element* dx, device_epilogue<Element> epilogue) {
  for_each_in_images(in.examples, in.image_size(), [&](index_t n, std::uint32_t i) {
    const image_position at = in.position(i);
    const std::uint32_t h = at.h + static_cast<std::uint32_t>(top);
    const std::uint32_t w = at.w + static_cast<std::uint32_t>(left);
    device_real<Element> gradient = 0;
    if (h < out.height && w < out.width) {
      gradient = widen(padded[n * out.image_size() + out.offset(at.c, h, w)]);
    }
    const index_t offset = n * in.image_size() + i;
    dx[offset] = epilogue.apply(gradient, dx, offset);
  });
}

template <class Element, class Layout>
[[nodiscard]] convolution_call call_of(const conv2d_geometry& geometry, index_t batch, pass which) noexcept {
  return {geometry, batch, which, cudnn_type<Element>, cudnn_format<Layout>()};
}

/// Bytes of the weights, or of their gradients, rounded to a storage element.
template <class Element>
[[nodiscard]] std::size_t stored_weight_bytes(const conv2d_geometry& geometry) {
  return storage_element<Element> ? aligned_bytes(static_cast<std::size_t>(geometry.weights().size()) * sizeof(Element))
                                  : 0;
}

/// The workspace of one call: rounded weights, padded images, and the workspace of the algorithm.
template <class Element, class Layout>
class convolution_run {
 public:
  using parameter_element = parameter_element_t<Element>;
  using scalar = device_real<Element>;

  convolution_run(cuda& device, const conv2d_geometry& geometry, index_t batch, pass which,
                  std::span<std::byte> workspace)
      : device_{device},
        geometry_{geometry},
        stored_{workspace.data()},
        plan_{device.context<convolution_plans>().get(
            device, call_of<Element, Layout>(geometry, batch, which),
            workspace.size() - std::min(workspace.size(), stored_weight_bytes<Element>(geometry)))},
        padded_{workspace.data() + stored_weight_bytes<Element>(geometry)},
        workspace_{padded_ + plan_.padded_bytes()} {
    device.activate();
  }

  [[nodiscard]] cudnnHandle_t handle() const { return device_.context<cudnn>().handle(); }
  [[nodiscard]] convolution_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] void* workspace() const noexcept { return workspace_; }
  [[nodiscard]] Element* padded() const noexcept { return reinterpret_cast<Element*>(padded_); }
  [[nodiscard]] Element* stored() const noexcept { return reinterpret_cast<Element*>(stored_); }

  /// The images for cuDNN, padded if necessary.
  [[nodiscard]] const Element* input(image_view<const Element, Layout, cuda> x) const {
    if (!plan_.padded()) {
      return x.data();
    }
    const auto out = device_images<Layout>::of(plan_.input_extents());
    launch(device_, "conv2d", image_grid(out.examples, out.image_size()), block_threads, &pad_kernel<Layout, Element>,
           device_images<Layout>::of(x.extents()), out, static_cast<std::int32_t>(geometry_.pad_top),
           static_cast<std::int32_t>(geometry_.pad_left), x.data(), padded());
    return padded();
  }

  /// The weights for cuDNN, rounded if necessary.
  [[nodiscard]] const Element* weights(const parameter_element* w) const {
    if constexpr (std::is_same_v<Element, parameter_element>) {
      return w;
    } else {
      convert(device_, geometry_.weights().size(), w, stored());
      return stored();
    }
  }

 private:
  cuda& device_;
  const conv2d_geometry& geometry_;
  std::byte* stored_;
  convolution_plan& plan_;
  std::byte* padded_;
  std::byte* workspace_;
};

/// Computes dx (+)= the gradient of x, and applies the epilogue.
template <class Element, class Layout>
void convolve_backward(cuda& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cuda> dy,
                       image_view<const parameter_element_t<Element>, Layout, cuda> w,
                       image_view<Element, Layout, cuda> dx, const backward_epilogue<Element>& epilogue,
                       std::span<std::byte> workspace) {
  const convolution_run<Element, Layout> run{device, geometry, dy.extent(0), pass::backward_data, workspace};
  using scalar = device_real<Element>;
  const Element* const weights = run.weights(w.data());
  if (!run.plan().padded()) {
    run.plan().template backward_data<scalar>(run.handle(), dy.data(), weights, dx.data(), epilogue.accumulate,
                                              run.workspace());
    apply_epilogue<Element, parameter_element_t<Element>>(device, dx.size(), 1, 1, nullptr, nullptr,
                                                          activation::identity, epilogue.relu_output, dx.data(),
                                                          epilogue.mask);
    return;
  }
  run.plan().template backward_data<scalar>(run.handle(), dy.data(), weights, run.padded(), false, run.workspace());
  const auto in = device_images<Layout>::of(dx.extents());
  launch(device, "conv2d_backward_data", image_grid(in.examples, in.image_size()), block_threads,
         &crop_kernel<Layout, Element>, in, device_images<Layout>::of(run.plan().input_extents()),
         static_cast<std::int32_t>(geometry.pad_top), static_cast<std::int32_t>(geometry.pad_left),
         static_cast<const Element*>(run.padded()), dx.data(), device_epilogue<Element>{epilogue});
}

/// Computes the gradients of the weights. For a storage element, they are rounded to it once.
template <class Element, class Layout>
void convolve_weights(cuda& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cuda> x,
                      image_view<const Element, Layout, cuda> dy,
                      image_view<parameter_element_t<Element>, Layout, cuda> dw, std::span<std::byte> workspace) {
  const convolution_run<Element, Layout> run{device, geometry, x.extent(0), pass::backward_weights, workspace};
  using scalar = device_real<Element>;
  const Element* const input = run.input(x);
  if constexpr (real_element<Element>) {
    run.plan().template backward_weights<scalar>(run.handle(), input, dy.data(), dw.data(), run.workspace());
  } else {
    run.plan().template backward_weights<scalar>(run.handle(), input, dy.data(), run.stored(), run.workspace());
    convert(device, dw.size(), static_cast<const Element*>(run.stored()), dw.data());
  }
}

/// Computes the gradients of the weights and, unless it is null, of the bias.
/// @param in, out  what the geometry calls x and dy; a transposed convolution exchanges them
/// @param dy       the gradient of the output, whose channels the bias has
template <class Element, class Layout>
void convolve_weights_and_bias(cuda& device, std::string_view name, const conv2d_geometry& geometry,
                               image_view<const Element, Layout, cuda> in, image_view<const Element, Layout, cuda> out,
                               image_view<const Element, Layout, cuda> dy,
                               image_view<parameter_element_t<Element>, Layout, cuda> dw,
                               parameter_element_t<Element>* dbias, std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  if (dy.size() == 0) {
    device.fill_zero(dw.data(), static_cast<std::size_t>(dw.size()) * sizeof(real));
    if (dbias != nullptr) {
      device.fill_zero(dbias, static_cast<std::size_t>(dy.extent(axis::c)) * sizeof(real));
    }
    return;
  }
  if (dbias != nullptr) {
    channel_sums(device, name, channel_view::of<Layout>(dy.extents()), on_packets(dy.data()),
                 plain_terms<Element>{dy.data()}, store_sum<real>{dbias}, reinterpret_cast<double*>(workspace.data()));
  }
  convolve_weights(device, geometry, in, out, dw, workspace);
}

}  // namespace detail

/// See has_conv2d_workspace_bytes. Chooses the algorithm for the shape, which may take long (cuda_options::benchmark).
template <network_element Element, layout_policy Layout>
[[nodiscard]] std::size_t conv2d_workspace_bytes(cuda& device, const conv2d_geometry& geometry, index_t batch,
                                                 pass which) {
  if (batch == 0) {
    return 0;
  }
  const detail::convolution_plan& plan = device.context<detail::convolution_plans>().prepare(
      device, detail::call_of<Element, Layout>(geometry, batch, which));
  const std::size_t bytes =
      detail::stored_weight_bytes<Element>(geometry) + plan.padded_bytes() + plan.workspace_bytes();
  if (which != pass::backward_weights) {
    return bytes;
  }
  return std::max(bytes,
                  detail::channel_sums_bytes(detail::channel_view::of<Layout>(geometry.output(batch))));  // for dbias
}

/// Implements has_conv2d_forward on a GPU.
template <network_element Element, layout_policy Layout>
void conv2d_forward(cuda& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cuda> x,
                    image_view<const parameter_element_t<Element>, Layout, cuda> w, image_view<Element, Layout, cuda> y,
                    const forward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  if (y.size() == 0) {
    return;
  }
  const detail::convolution_run<Element, Layout> run{device, geometry, x.extent(0), pass::forward, workspace};
  using scalar = detail::device_real<Element>;
  const Element* const input = run.input(x);
  const Element* const weights = run.weights(w.data());
  if constexpr (real_element<Element>) {  // cuDNN has no float bias for images of 16 bits
    if (epilogue.bias != nullptr &&
        run.plan().template forward_fused<scalar>(run.handle(), input, weights, epilogue.bias, epilogue.residual,
                                                  epilogue.act, y.data(), run.workspace())) {
      return;
    }
  }
  run.plan().template forward<scalar>(run.handle(), input, weights, y.data(), false, run.workspace());
  detail::apply_epilogue<Element, parameter_element_t<Element>>(
      device, y.size(), geometry.out_channels, detail::channel_view::of<Layout>(y.extents()).inner, epilogue.bias,
      epilogue.residual, epilogue.act, nullptr, y.data());
}

/// Implements has_conv2d_backward_data on a GPU.
template <network_element Element, layout_policy Layout>
void conv2d_backward_data(cuda& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cuda> dy,
                          image_view<const parameter_element_t<Element>, Layout, cuda> w,
                          image_view<Element, Layout, cuda> dx, const backward_epilogue<Element>& epilogue,
                          std::span<std::byte> workspace) {
  if (dx.size() == 0) {
    return;
  }
  detail::convolve_backward(device, geometry, dy, w, dx, epilogue, workspace);
}

/// See has_conv2d_backward_weights. For a storage element, the gradients of the weights are rounded to it once.
template <network_element Element, layout_policy Layout>
void conv2d_backward_weights(cuda& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cuda> x,
                             image_view<const Element, Layout, cuda> dy,
                             image_view<parameter_element_t<Element>, Layout, cuda> dw,
                             parameter_element_t<Element>* dbias, std::span<std::byte> workspace) {
  detail::convolve_weights_and_bias(device, "conv2d_backward_weights", geometry, x, dy, dy, dw, dbias, workspace);
}

}  // namespace gradus::kernels
