// SPDX-License-Identifier: BSL-1.0
//
// A device with the overloads of gradus/kernels/device_kernels.hpp and nothing else: networks that compile with it ask
// for no more. It computes with the CPU.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t, std::uint8_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "archetypes.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/kernels/cpu/channel_softmax.hpp"
#include "gradus/kernels/cpu/group_norm.hpp"
#include "gradus/kernels/cpu/resize2d.hpp"
#include "gradus/kernels/cpu/scale_channels.hpp"
#include "gradus/kernels/cpu/strided_copy.hpp"
#include "gradus/kernels/cpu/synchronized_batch_norm.hpp"
#include "gradus/kernels/device_kernels.hpp"

namespace archetypes {

/// Its kernels stand in its own namespace: it needs no base of the library.
class kernel_device : public device {
 public:
  static constexpr std::string_view name = "kernel_archetype";

  /// For the kernels of this file.
  [[nodiscard]] gradus::cpu& host() { return host_; }

 private:
  gradus::cpu host_{{.intra_op_threads = 1}};
};

template <class Element, class Layout>
using view = gradus::image_view<Element, Layout, kernel_device>;

/// The same memory on the CPU.
template <class Element, class Layout>
gradus::image_view<Element, Layout, gradus::cpu> on_host(kernel_device& device, const view<Element, Layout>& from) {
  return {device.host(), from.data(), from.extents()};
}

template <class Element>
using real = gradus::parameter_element_t<Element>;
using workspace_span = std::span<std::byte>;

// ---- elementwise

template <class Element>
void relu_forward(kernel_device& device, gradus::index_t count, const Element* x, Element* y,
                  const gradus::kernels::activation& function) {
  relu_forward(device.host(), count, x, y, function);
}
template <class Element>
void relu_backward(kernel_device& device, gradus::index_t count, const Element* dy, const Element* y, Element* dx,
                   bool accumulate, const gradus::kernels::activation& function) {
  relu_backward(device.host(), count, dy, y, dx, accumulate, function);
}
template <class Element>
void add_forward(kernel_device& device, gradus::index_t count, const Element* a, const Element* b, Element* y,
                 const gradus::kernels::activation& act) {
  add_forward(device.host(), count, a, b, y, act);
}
template <class Element>
void copy_or_add(kernel_device& device, gradus::index_t count, const Element* source, Element* destination,
                 bool accumulate) {
  copy_or_add(device.host(), count, source, destination, accumulate);
}

// ---- conv2d

#if !defined(GRADUS_TEST_NO_CONVOLUTION)
template <class Element, class Layout>
std::size_t conv2d_workspace_bytes(kernel_device& device, const gradus::kernels::conv2d_geometry& geometry,
                                   gradus::index_t batch, gradus::kernels::pass which) {
  return gradus::kernels::conv2d_workspace_bytes<Element, Layout>(device.host(), geometry, batch, which);
}
template <class Element, class Layout>
void conv2d_forward(kernel_device& device, const gradus::kernels::conv2d_geometry& geometry,
                    view<const Element, Layout> x, view<const real<Element>, Layout> w, view<Element, Layout> y,
                    const gradus::kernels::forward_epilogue<Element>& epilogue, workspace_span workspace) {
  conv2d_forward(device.host(), geometry, on_host(device, x), on_host(device, w), on_host(device, y), epilogue,
                 workspace);
}
template <class Element, class Layout>
void conv2d_backward_data(kernel_device& device, const gradus::kernels::conv2d_geometry& geometry,
                          view<const Element, Layout> dy, view<const real<Element>, Layout> w, view<Element, Layout> dx,
                          const gradus::kernels::backward_epilogue<Element>& epilogue, workspace_span workspace) {
  conv2d_backward_data(device.host(), geometry, on_host(device, dy), on_host(device, w), on_host(device, dx), epilogue,
                       workspace);
}
template <class Element, class Layout>
void conv2d_backward_weights(kernel_device& device, const gradus::kernels::conv2d_geometry& geometry,
                             view<const Element, Layout> x, view<const Element, Layout> dy,
                             view<real<Element>, Layout> dw, real<Element>* dbias, workspace_span workspace) {
  conv2d_backward_weights(device.host(), geometry, on_host(device, x), on_host(device, dy), on_host(device, dw), dbias,
                          workspace);
}
#endif

// ---- matmul

template <class Element>
std::size_t matmul_workspace_bytes(kernel_device& device, const gradus::kernels::matmul_shape& shape) {
  return gradus::kernels::matmul_workspace_bytes<Element>(device.host(), shape);
}
template <class In, class Factor, class Out>
void matmul(kernel_device& device, const gradus::kernels::matmul_shape& shape, const In* a, const Factor* b, Out* c,
            const gradus::kernels::matmul_epilogue<Out>& epilogue, workspace_span workspace) {
  matmul(device.host(), shape, a, b, c, epilogue, workspace);
}
template <class Element>
void column_sums(kernel_device& device, gradus::index_t rows, gradus::index_t columns, const Element* a,
                 real<Element>* sums) {
  column_sums(device.host(), rows, columns, a, sums);
}

// ---- pool2d

template <class Element, class Layout>
void max_pool2d_forward(kernel_device& device, const gradus::kernels::pool2d_geometry& geometry,
                        view<const Element, Layout> x, view<Element, Layout> y, std::uint8_t* choice) {
  max_pool2d_forward(device.host(), geometry, on_host(device, x), on_host(device, y), choice);
}
template <class Element, class Layout>
void max_pool2d_backward(kernel_device& device, const gradus::kernels::pool2d_geometry& geometry,
                         view<const Element, Layout> dy, const std::uint8_t* choice, view<Element, Layout> dx,
                         const gradus::kernels::backward_epilogue<Element>& epilogue) {
  max_pool2d_backward(device.host(), geometry, on_host(device, dy), choice, on_host(device, dx), epilogue);
}
template <class Element, class Layout>
void average_pool2d_forward(kernel_device& device, const gradus::kernels::pool2d_geometry& geometry,
                            view<const Element, Layout> x, view<Element, Layout> y, bool count_padding) {
  average_pool2d_forward(device.host(), geometry, on_host(device, x), on_host(device, y), count_padding);
}
template <class Element, class Layout>
void average_pool2d_backward(kernel_device& device, const gradus::kernels::pool2d_geometry& geometry,
                             view<const Element, Layout> dy, view<Element, Layout> dx, bool count_padding,
                             const gradus::kernels::backward_epilogue<Element>& epilogue) {
  average_pool2d_backward(device.host(), geometry, on_host(device, dy), on_host(device, dx), count_padding, epilogue);
}

// ---- batch_norm

template <class Element, class Layout>
std::size_t batch_norm_workspace_bytes(kernel_device& device, const gradus::image_extents& shape) {
  return gradus::kernels::batch_norm_workspace_bytes<Element, Layout>(device.host(), shape);
}
template <class Element, class Layout>
void batch_norm_forward_training(kernel_device& device, view<const Element, Layout> x, view<Element, Layout> y,
                                 const gradus::kernels::batch_norm_affine<real<Element>>& affine, double epsilon,
                                 const gradus::kernels::batch_norm_running<real<Element>>& running,
                                 const gradus::kernels::batch_norm_saved<real<Element>>& saved,
                                 const gradus::kernels::batch_norm_epilogue<Element>& epilogue,
                                 workspace_span workspace) {
  batch_norm_forward_training(device.host(), on_host(device, x), on_host(device, y), affine, epsilon, running, saved,
                              epilogue, workspace);
}
template <class Element, class Layout>
void batch_norm_forward_again(kernel_device& device, view<const Element, Layout> x, view<Element, Layout> y,
                              const gradus::kernels::batch_norm_saved<real<Element>>& saved,
                              const gradus::kernels::batch_norm_epilogue<Element>& epilogue) {
  batch_norm_forward_again(device.host(), on_host(device, x), on_host(device, y), saved, epilogue);
}
template <class Element, class Layout>
void batch_norm_forward_inference(kernel_device& device, view<const Element, Layout> x, view<Element, Layout> y,
                                  const gradus::kernels::batch_norm_affine<real<Element>>& affine, double epsilon,
                                  const gradus::kernels::batch_norm_running<real<Element>>& running,
                                  const gradus::kernels::batch_norm_epilogue<Element>& epilogue,
                                  workspace_span workspace) {
  batch_norm_forward_inference(device.host(), on_host(device, x), on_host(device, y), affine, epsilon, running,
                               epilogue, workspace);
}
template <class Element, class Layout>
void batch_norm_backward(kernel_device& device, view<const Element, Layout> x, view<const Element, Layout> y,
                         view<const Element, Layout> dy, view<Element, Layout> dx,
                         const gradus::kernels::batch_norm_affine<real<Element>>& affine,
                         const gradus::kernels::batch_norm_saved<real<Element>>& saved, gradus::kernels::activation act,
                         const gradus::kernels::batch_norm_gradients<Element>& gradients,
                         const gradus::kernels::backward_epilogue<Element>& epilogue, workspace_span workspace) {
  batch_norm_backward(device.host(), on_host(device, x), on_host(device, y), on_host(device, dy), on_host(device, dx),
                      affine, saved, act, gradients, epilogue, workspace);
}

// ---- synchronized_batch_norm

template <class Element, class Layout>
std::size_t synchronized_batch_norm_workspace_bytes(kernel_device& device, const gradus::image_extents& shape) {
  return gradus::kernels::synchronized_batch_norm_workspace_bytes<Element, Layout>(device.host(), shape);
}
template <class Element, class Layout>
void batch_norm_moments(kernel_device& device, view<const Element, Layout> x, std::span<double> moments,
                        workspace_span workspace) {
  batch_norm_moments(device.host(), on_host(device, x), moments, workspace);
}
template <class Real>
void batch_norm_store_statistics(kernel_device& device, std::span<const double> moments, double count,
                                 const gradus::kernels::batch_norm_affine<Real>& affine, double epsilon,
                                 const gradus::kernels::batch_norm_running<Real>& running,
                                 const gradus::kernels::batch_norm_saved<Real>& saved, workspace_span workspace) {
  batch_norm_store_statistics(device.host(), moments, count, affine, epsilon, running, saved, workspace);
}
template <class Element, class Layout>
void batch_norm_gradient_sums(kernel_device& device, view<const Element, Layout> x, view<const Element, Layout> dy,
                              const gradus::kernels::batch_norm_saved<real<Element>>& saved,
                              const gradus::kernels::batch_norm_gradients<Element>& gradients, std::span<double> sums,
                              workspace_span workspace) {
  batch_norm_gradient_sums(device.host(), on_host(device, x), on_host(device, dy), saved, gradients, sums, workspace);
}
template <class Element, class Layout>
void batch_norm_differentiate(kernel_device& device, view<const Element, Layout> x, view<const Element, Layout> dy,
                              view<Element, Layout> dx, const gradus::kernels::batch_norm_affine<real<Element>>& affine,
                              const gradus::kernels::batch_norm_saved<real<Element>>& saved,
                              std::span<const double> sums, double count,
                              const gradus::kernels::backward_epilogue<Element>& epilogue, workspace_span workspace) {
  batch_norm_differentiate(device.host(), on_host(device, x), on_host(device, dy), on_host(device, dx), affine, saved,
                           sums, count, epilogue, workspace);
}

// ---- group_norm

template <class Element, class Layout>
gradus::kernels::group_norm_memory group_norm_memory_for(kernel_device& device, const gradus::image_extents& shape,
                                                         const gradus::kernels::group_norm_parameters& parameters) {
  return gradus::kernels::group_norm_memory_for<Element, Layout>(device.host(), shape, parameters);
}
template <class Element, class Layout>
void group_norm_forward(kernel_device& device, view<const Element, Layout> x, view<Element, Layout> y,
                        const gradus::kernels::group_norm_parameters& parameters,
                        const gradus::kernels::batch_norm_affine<real<Element>>& affine,
                        const gradus::kernels::batch_norm_epilogue<Element>& epilogue, std::span<std::byte> state,
                        workspace_span workspace) {
  group_norm_forward(device.host(), on_host(device, x), on_host(device, y), parameters, affine, epilogue, state,
                     workspace);
}
template <class Element, class Layout>
void group_norm_backward(kernel_device& device, view<const Element, Layout> x, view<const Element, Layout> dy,
                         view<Element, Layout> dx, const gradus::kernels::group_norm_parameters& parameters,
                         const gradus::kernels::batch_norm_affine<real<Element>>& affine,
                         const gradus::kernels::group_norm_gradients<real<Element>>& gradients,
                         const gradus::kernels::backward_epilogue<Element>& epilogue, std::span<std::byte> state,
                         workspace_span workspace) {
  group_norm_backward(device.host(), on_host(device, x), on_host(device, dy), on_host(device, dx), parameters, affine,
                      gradients, epilogue, state, workspace);
}

// ---- local_response_norm, concat, dropout

template <class Element, class Layout>
void local_response_norm_forward(kernel_device& device, view<const Element, Layout> x, view<Element, Layout> y,
                                 const gradus::kernels::local_response_norm_parameters& parameters) {
  local_response_norm_forward(device.host(), on_host(device, x), on_host(device, y), parameters);
}
template <class Element, class Layout>
void local_response_norm_backward(kernel_device& device, view<const Element, Layout> x, view<const Element, Layout> dy,
                                  view<Element, Layout> dx,
                                  const gradus::kernels::local_response_norm_parameters& parameters,
                                  const gradus::kernels::backward_epilogue<Element>& epilogue) {
  local_response_norm_backward(device.host(), on_host(device, x), on_host(device, dy), on_host(device, dx), parameters,
                               epilogue);
}
template <class Element, class Layout>
void copy_channels(kernel_device& device, view<const Element, Layout> source, gradus::index_t first_source_channel,
                   view<Element, Layout> destination, gradus::index_t first_destination_channel,
                   gradus::index_t channels, bool accumulate) {
  copy_channels(device.host(), on_host(device, source), first_source_channel, on_host(device, destination),
                first_destination_channel, channels, accumulate);
}
#if !defined(GRADUS_TEST_NO_DROPOUT)
template <class Element, class Layout>
void dropout_forward(kernel_device& device, view<const Element, Layout> x, view<Element, Layout> y, double rate,
                     const gradus::random_stream& stream, std::uint64_t step, std::uint64_t first_example,
                     std::uint8_t* mask) {
  dropout_forward(device.host(), on_host(device, x), on_host(device, y), rate, stream, step, first_example, mask);
}
template <class Element>
void dropout_backward(kernel_device& device, gradus::index_t count, const Element* dy, const std::uint8_t* mask,
                      double scale, Element* dx, bool accumulate) {
  dropout_backward(device.host(), count, dy, mask, scale, dx, accumulate);
}
#endif

// ---- softmax

template <class Element>
gradus::kernels::loss_sums softmax_cross_entropy_loss(kernel_device& device, gradus::index_t rows,
                                                      gradus::index_t classes, const Element* logits,
                                                      const std::int32_t* labels, double scale, Element* dlogits) {
  return softmax_cross_entropy_loss(device.host(), rows, classes, logits, labels, scale, dlogits);
}
template <class Element>
void softmax(kernel_device& device, gradus::index_t rows, gradus::index_t classes, const Element* logits,
             Element* probabilities) {
  softmax(device.host(), rows, classes, logits, probabilities);
}

// ---- strided_copy, resize2d, scale_channels, channel_softmax: of the layers in nn/layers/shaping.hpp

template <class Element>
void strided_copy(kernel_device& device, const gradus::kernels::strided_copy_shape& shape, const Element* from,
                  Element* to, bool accumulate) {
  strided_copy(device.host(), shape, from, to, accumulate);
}
template <class Element>
void resize2d_forward(kernel_device& device, const gradus::kernels::resize2d_geometry& geometry, const Element* x,
                      Element* y) {
  resize2d_forward(device.host(), geometry, x, y);
}
template <class Element>
void resize2d_backward(kernel_device& device, const gradus::kernels::resize2d_geometry& geometry, const Element* dy,
                       Element* dx, const gradus::kernels::backward_epilogue<Element>& epilogue) {
  resize2d_backward(device.host(), geometry, dy, dx, epilogue);
}
template <class Element>
void scale_channels_forward(kernel_device& device, const gradus::kernels::scale_channels_shape& shape, const Element* x,
                            const Element* factors, Element* y) {
  scale_channels_forward(device.host(), shape, x, factors, y);
}
template <class Element>
void scale_channels_backward(kernel_device& device, const gradus::kernels::scale_channels_shape& shape,
                             const Element* x, const Element* factors, const Element* dy,
                             const gradus::kernels::scale_channels_gradients<Element>& gradients) {
  scale_channels_backward(device.host(), shape, x, factors, dy, gradients);
}
template <class Element>
void channel_softmax_forward(kernel_device& device, const gradus::kernels::channel_softmax_shape& shape,
                             const Element* x, Element* y) {
  channel_softmax_forward(device.host(), shape, x, y);
}
template <class Element>
void channel_softmax_backward(kernel_device& device, const gradus::kernels::channel_softmax_shape& shape,
                              const Element* y, const Element* dy, Element* dx, bool accumulate) {
  channel_softmax_backward(device.host(), shape, y, dy, dx, accumulate);
}

}  // namespace archetypes
