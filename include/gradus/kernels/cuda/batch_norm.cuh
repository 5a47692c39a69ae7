// SPDX-License-Identifier: BSL-1.0
//
// Batch normalization on CUDA with our own kernels. They fuse the activation, the residual and the mask of a gradient
// for every element type and layout, and define the running variance and the sums as on the CPU.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::uint32_t
#include <span>     // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/batch_norm.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/detail/norm/channel_sums.cuh"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// The first value of a channel. Differences to it stay accurate where the mean is far from 0, and are 0 where all
/// values are equal.
template <class Element>
struct channel_origin {
  const Element* x;
  index_t inner;  // pixels of a plane, or 1 if channels are adjacent

  __device__ double operator()(index_t channel) const { return static_cast<double>(widen(x[channel * inner])); }
};

/// Sums of x minus the channel's origin, and of the squares of that.
template <class Element>
struct moment_terms {
  const Element* x;
  channel_origin<Element> origin;

  template <int Width, bool Across>
  __device__ void add(index_t offset, index_t channel, double (&a)[Width], double (&b)[Width]) const {
    const auto loaded = load_packet<Width>(x + offset);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const double value = static_cast<double>(widen(loaded.values[k])) - origin(Across ? channel + k : channel);
      a[k] += value;
      b[k] += value * value;
    }
  }
};

/// Computes the statistics of a batch and the coefficients that follow from them.
template <class Element, class Parameter>
struct finish_moments {
  channel_origin<Element> origin;
  double count;
  double epsilon;
  batch_norm_affine<Parameter> affine;
  batch_norm_running<Parameter> running;
  batch_norm_saved<Parameter> saved;
  Parameter* coefficients;  // (3, C): mean, scale, shift
  index_t channels;

  __device__ void operator()(index_t c, double sum, double squares) const {
    const double offset = sum / count;
    const double mean = origin(c) + offset;
    const double centered = squares / count - offset * offset;
    const double variance = centered < 0 ? 0.0 : centered;  // keeps a NaN
    const double inverse = 1.0 / ::sqrt(variance + epsilon);
    const auto stored_mean = static_cast<Parameter>(mean);
    const double scale = inverse * (affine.gamma == nullptr ? 1.0 : static_cast<double>(affine.gamma[c]));
    const double beta = affine.beta == nullptr ? 0.0 : static_cast<double>(affine.beta[c]);
    coefficients[c] = stored_mean;
    coefficients[channels + c] = static_cast<Parameter>(scale);
    coefficients[2 * channels + c] = static_cast<Parameter>(beta + (static_cast<double>(stored_mean) - mean) * scale);
    if (saved.mean != nullptr) {
      saved.mean[c] = stored_mean;
    }
    if (saved.inverse_deviation != nullptr) {
      saved.inverse_deviation[c] = static_cast<Parameter>(inverse);
    }
    const double keep = 1.0 - running.momentum;
    if (running.mean != nullptr) {
      running.mean[c] = static_cast<Parameter>(keep * static_cast<double>(running.mean[c]) + running.momentum * mean);
    }
    if (running.variance != nullptr) {
      const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
      running.variance[c] =
          static_cast<Parameter>(keep * static_cast<double>(running.variance[c]) + running.momentum * unbiased);
    }
  }
};

template <class Parameter>
__global__ void running_coefficients_kernel(index_t channels, batch_norm_running<Parameter> running,
                                            batch_norm_affine<Parameter> affine, double epsilon,
                                            Parameter* coefficients) {
  for (index_t c = thread_index(); c < channels; c += thread_count()) {
    const double inverse = 1.0 / ::sqrt(static_cast<double>(running.variance[c]) + epsilon);
    coefficients[c] = running.mean[c];
    coefficients[channels + c] =
        static_cast<Parameter>(inverse * (affine.gamma == nullptr ? 1.0 : static_cast<double>(affine.gamma[c])));
    coefficients[2 * channels + c] = affine.beta == nullptr ? Parameter{0} : affine.beta[c];
  }
}

/// Calls body(offset of Width elements, channel of the first, true if each element has its own channel).
template <int Width, class Body>
__device__ inline void for_each_with_channel(index_t examples, std::uint32_t image, std::uint32_t channels,
                                             std::uint32_t inner, const Body& body) {
  for_each_in_images(examples, image / Width, [&](index_t n, std::uint32_t packet) {
    const std::uint32_t i = packet * Width;
    body(n * image + i, inner == 1 ? i % channels : i / inner % channels);
  });
}

/// y = act((x - mean) * scale + shift + residual)
template <int Width, class Element, class Parameter>
__global__ void normalize_kernel(index_t examples, std::uint32_t image, std::uint32_t channels, std::uint32_t inner,
                                 const Element* x, const Parameter* coefficients, const Element* residual,
                                 device_activation<Parameter> act, Element* y) {
  for_each_with_channel<Width>(examples, image, channels, inner, [&](index_t at, std::uint32_t channel) {
    const auto in = load_packet<Width>(x + at);
    device_packet<Element, Width> added{};
    if (residual != nullptr) {
      added = load_packet<Width>(residual + at);
    }
    device_packet<Element, Width> result;
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const std::uint32_t c = inner == 1 ? channel + k : channel;
      Parameter value =
          (widen(in.values[k]) - coefficients[c]) * coefficients[channels + c] + coefficients[2 * channels + c];
      if (residual != nullptr) {
        value += widen(added.values[k]);
      }
      result.values[k] = narrow<Element>(act(value));
    }
    store_packet<Width>(y + at, result);
  });
}

/// Sums of g and of g * (x - mean), where g is dy times the derivative of the activation whose output is y.
template <class Element, class Parameter>
struct gradient_terms {
  const Element* x;
  const Element* y;  // null: no activation
  const Element* dy;
  const Parameter* mean;
  device_derivative<Parameter> derivative = {};

  template <int Width, bool Across>
  __device__ void add(index_t offset, index_t channel, double (&a)[Width], double (&b)[Width]) const {
    const auto values = load_packet<Width>(x + offset);
    const auto gradients = load_packet<Width>(dy + offset);
    device_packet<Element, Width> outputs{};
    if (y != nullptr) {
      outputs = load_packet<Width>(y + offset);
    }
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      double g = static_cast<double>(widen(gradients.values[k]));
      if (y != nullptr) {
        g = derivative.times(widen(outputs.values[k]), g);
      }
      a[k] += g;
      b[k] += g * (static_cast<double>(widen(values.values[k])) -
                   static_cast<double>(mean[Across ? channel + k : channel]));
    }
  }
};

template <class Parameter>
struct finish_gradients {
  double count;
  const Parameter* gamma;
  const Parameter* mean;
  const Parameter* inverse_deviation;
  Parameter* dgamma;
  Parameter* dbeta;
  Parameter* coefficients;  // (4, C): mean, and a, b, c of dx = a * (g - c) - b * (x - mean)
  index_t channels;

  __device__ void operator()(index_t channel, double sum, double product) const {
    const auto inverse = static_cast<double>(inverse_deviation[channel]);
    const double scale = inverse * (gamma == nullptr ? 1.0 : static_cast<double>(gamma[channel]));
    if (dgamma != nullptr) {
      dgamma[channel] = static_cast<Parameter>(product * inverse);
    }
    if (dbeta != nullptr) {
      dbeta[channel] = static_cast<Parameter>(sum);
    }
    coefficients[channel] = mean[channel];
    coefficients[channels + channel] = static_cast<Parameter>(scale);
    coefficients[2 * channels + channel] = static_cast<Parameter>(scale * inverse * inverse * product / count);
    coefficients[3 * channels + channel] = static_cast<Parameter>(sum / count);
  }
};

template <class Element, class Parameter>
struct normalized_gradient {
  const Element* x;
  const Element* y;  // null: no activation
  const Element* dy;
  Element* dx;                 // null: not needed
  const Element* relu_output;  // null: no mask
  Element* residual_gradient;  // null: not needed
  const Parameter* coefficients;
  bool accumulate;
  bool accumulate_residual;
  device_derivative<Parameter> of_y = {};            // of the activation whose output is y
  device_derivative<Parameter> of_relu_output = {};  // of that whose output is relu_output
};

template <int Width, class Element, class Parameter>
__global__ void normalize_backward_kernel(index_t examples, std::uint32_t image, std::uint32_t channels,
                                          std::uint32_t inner, normalized_gradient<Element, Parameter> call) {
  for_each_with_channel<Width>(examples, image, channels, inner, [&](index_t at, std::uint32_t channel) {
    const auto values = load_packet<Width>(call.x + at);
    const auto gradients = load_packet<Width>(call.dy + at);
    const auto load_if = [at](bool wanted, const Element* from) {
      return wanted ? load_packet<Width>(from + at) : device_packet<Element, Width>{};
    };
    const auto outputs = load_if(call.y != nullptr, call.y);
    const auto old = load_if(call.dx != nullptr && call.accumulate, call.dx);
    const auto mask = load_if(call.dx != nullptr && call.relu_output != nullptr, call.relu_output);
    auto residual = load_if(call.residual_gradient != nullptr && call.accumulate_residual, call.residual_gradient);
    device_packet<Element, Width> result;
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const std::uint32_t c = inner == 1 ? channel + k : channel;
      Parameter g = widen(gradients.values[k]);
      if (call.y != nullptr) {
        g = call.of_y.times(widen(outputs.values[k]), g);
      }
      residual.values[k] = narrow<Element>(call.accumulate_residual ? widen(residual.values[k]) + g : g);
      Parameter d = call.coefficients[channels + c] * (g - call.coefficients[3 * channels + c]) -
                    call.coefficients[2 * channels + c] * (widen(values.values[k]) - call.coefficients[c]);
      if (call.accumulate) {
        d += widen(old.values[k]);
      }
      if (call.relu_output != nullptr) {
        d = call.of_relu_output.times(widen(mask.values[k]), d);
      }
      result.values[k] = narrow<Element>(d);
    }
    if (call.residual_gradient != nullptr) {
      store_packet<Width>(call.residual_gradient + at, residual);
    }
    if (call.dx != nullptr) {
      store_packet<Width>(call.dx + at, result);
    }
  });
}

/// True if packets of 16 bytes divide runs evenly: of one channel, or of the channels of one pixel.
template <class Element>
[[nodiscard]] bool channels_in_packets(const channel_view& view) noexcept {
  return (view.inner == 1 ? view.channels : view.inner) % packet_width<Element> == 0;
}

template <class Element, class Parameter, class Layout>
void normalize(cuda& device, image_view<const Element, Layout, cuda> x, image_view<Element, Layout, cuda> y,
               const Parameter* coefficients, const batch_norm_epilogue<Element>& epilogue) {
  const auto images = device_images<Layout>::of(x.extents());
  const auto view = channel_view::of<Layout>(x.extents());
  const auto run = [&]<int Width>() {
    launch(device, "batch_norm_forward", image_grid(images.examples, images.image_size() / Width), block_threads,
           &normalize_kernel<Width, Element, Parameter>, images.examples, images.image_size(), images.channels,
           static_cast<std::uint32_t>(view.inner), x.data(), coefficients, epilogue.residual,
           device_activation<Parameter>{epilogue.act}, y.data());
  };
  if (channels_in_packets<Element>(view) && on_packets(x.data(), y.data(), epilogue.residual)) {
    run.template operator()<packet_width<Element>>();
  } else {
    run.template operator()<1>();
  }
}

/// dx and the gradient of the residual.
template <class Element, class Parameter, class Layout>
void differentiate(cuda& device, const channel_view& view, const normalized_gradient<Element, Parameter>& call,
                   const image_extents& shape) {
  const auto images = device_images<Layout>::of(shape);
  const auto run = [&]<int Width>() {
    launch(device, "batch_norm_backward", image_grid(images.examples, images.image_size() / Width), block_threads,
           &normalize_backward_kernel<Width, Element, Parameter>, images.examples, images.image_size(), images.channels,
           static_cast<std::uint32_t>(view.inner), call);
  };
  if (channels_in_packets<Element>(view) &&
      on_packets(call.x, call.y, call.dy, call.dx, call.relu_output, call.residual_gradient)) {
    run.template operator()<packet_width<Element>>();
  } else {
    run.template operator()<1>();
  }
}

/// Bytes of the partial sums and the coefficients.
template <class Parameter>
[[nodiscard]] std::size_t batch_norm_bytes(const channel_view& view) noexcept {
  return channel_sums_bytes(view) + static_cast<std::size_t>(4 * view.channels) * sizeof(Parameter);
}

/// The address of the coefficients in the workspace.
template <class Parameter>
[[nodiscard]] Parameter* coefficients_in(std::span<std::byte> workspace, const channel_view& view) noexcept {
  return reinterpret_cast<Parameter*>(workspace.data() + channel_sums_bytes(view));
}

}  // namespace detail

/// Implements has_batch_norm_workspace_bytes on a GPU.
template <network_element Element, layout_policy Layout>
[[nodiscard]] std::size_t batch_norm_workspace_bytes(cuda& /*device*/, const image_extents& shape) {
  // A smaller batch may have fewer slices, but never more.
  return detail::batch_norm_bytes<parameter_element_t<Element>>(detail::channel_view::of<Layout>(shape));
}

/// Implements has_batch_norm_forward_training on a GPU.
template <network_element Element, layout_policy Layout>
void batch_norm_forward_training(cuda& device, image_view<const Element, Layout, cuda> x,
                                 image_view<Element, Layout, cuda> y,
                                 const batch_norm_affine<parameter_element_t<Element>>& affine, double epsilon,
                                 const batch_norm_running<parameter_element_t<Element>>& running,
                                 const batch_norm_saved<parameter_element_t<Element>>& saved,
                                 const batch_norm_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  if (x.size() == 0) {
    return;
  }
  const auto view = detail::channel_view::of<Layout>(x.extents());
  const detail::channel_origin<Element> origin{x.data(), view.inner};
  real* const coefficients =
      saved.coefficients != nullptr ? saved.coefficients : detail::coefficients_in<real>(workspace, view);
  detail::channel_sums(device, "batch_norm_forward_training", view, detail::on_packets(x.data()),
                       detail::moment_terms<Element>{x.data(), origin},
                       detail::finish_moments<Element, real>{origin, static_cast<double>(view.count()), epsilon, affine,
                                                             running, saved, coefficients, view.channels},
                       reinterpret_cast<double*>(workspace.data()));
  detail::normalize<Element, real>(device, x, y, coefficients, epilogue);
}

/// Implements has_batch_norm_forward_again on a GPU.
template <network_element Element, layout_policy Layout>
void batch_norm_forward_again(cuda& device, image_view<const Element, Layout, cuda> x,
                              image_view<Element, Layout, cuda> y,
                              const batch_norm_saved<parameter_element_t<Element>>& saved,
                              const batch_norm_epilogue<Element>& epilogue) {
  if (x.size() != 0) {
    detail::normalize<Element, parameter_element_t<Element>>(device, x, y, saved.coefficients, epilogue);
  }
}

/// Implements has_batch_norm_forward_inference on a GPU.
template <network_element Element, layout_policy Layout>
void batch_norm_forward_inference(cuda& device, image_view<const Element, Layout, cuda> x,
                                  image_view<Element, Layout, cuda> y,
                                  const batch_norm_affine<parameter_element_t<Element>>& affine, double epsilon,
                                  const batch_norm_running<parameter_element_t<Element>>& running,
                                  const batch_norm_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  if (x.size() == 0) {
    return;
  }
  const auto view = detail::channel_view::of<Layout>(x.extents());
  real* const coefficients = detail::coefficients_in<real>(workspace, view);
  launch(device, "batch_norm_forward_inference", detail::blocks_for(view.channels), detail::block_threads,
         &detail::running_coefficients_kernel<real>, view.channels, running, affine, epsilon, coefficients);
  detail::normalize<Element, real>(device, x, y, coefficients, epilogue);
}

/// Implements has_batch_norm_backward on a GPU.
template <network_element Element, layout_policy Layout>
void batch_norm_backward(cuda& device, image_view<const Element, Layout, cuda> x,
                         image_view<const Element, Layout, cuda> y, image_view<const Element, Layout, cuda> dy,
                         image_view<Element, Layout, cuda> dx,
                         const batch_norm_affine<parameter_element_t<Element>>& affine,
                         const batch_norm_saved<parameter_element_t<Element>>& saved, activation act,
                         const batch_norm_gradients<Element>& gradients, const backward_epilogue<Element>& epilogue,
                         std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  const auto view = detail::channel_view::of<Layout>(dy.extents());
  if (dy.size() == 0) {
    const auto bytes = static_cast<std::size_t>(view.channels) * sizeof(real);
    if (gradients.gamma != nullptr) {
      device.fill_zero(gradients.gamma, bytes);
    }
    if (gradients.beta != nullptr) {
      device.fill_zero(gradients.beta, bytes);
    }
    return;
  }
  const Element* const output = act == activation::identity ? nullptr : y.data();
  const detail::device_derivative<real> derivative{act};
  real* const coefficients = detail::coefficients_in<real>(workspace, view);
  detail::channel_sums(device, "batch_norm_backward", view, detail::on_packets(x.data(), dy.data(), output),
                       detail::gradient_terms<Element, real>{x.data(), output, dy.data(), saved.mean, derivative},
                       detail::finish_gradients<real>{static_cast<double>(view.count()), affine.gamma, saved.mean,
                                                      saved.inverse_deviation, gradients.gamma, gradients.beta,
                                                      coefficients, view.channels},
                       reinterpret_cast<double*>(workspace.data()));
  if (dx.data() == nullptr && gradients.residual == nullptr) {
    return;
  }
  const detail::normalized_gradient<Element, real> call{
      .x = x.data(),
      .y = output,
      .dy = dy.data(),
      .dx = dx.data(),
      .relu_output = epilogue.relu_output,
      .residual_gradient = gradients.residual,
      .coefficients = coefficients,
      .accumulate = epilogue.accumulate,
      .accumulate_residual = gradients.accumulate_residual,
      .of_y = derivative,
      .of_relu_output = detail::device_derivative<real>{epilogue.mask}};
  detail::differentiate<Element, real, Layout>(device, view, call, dy.extents());
}

}  // namespace gradus::kernels
