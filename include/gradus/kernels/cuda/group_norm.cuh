// SPDX-License-Identifier: BSL-1.0
//
// Group, layer and instance normalization on CUDA. Sums are in double precision and in a fixed order.
#pragma once

#include <algorithm>    // std::clamp, std::max
#include <cmath>        // ::sqrt
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint32_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/detail/norm/channel_sums.cuh"
#include "gradus/kernels/group_norm.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// Where the sets of a batch are: example n has `per_example` sets. Element e of a set is in row e / row, at column
/// e % row.
struct norm_sets {
  index_t examples = 0;
  std::uint32_t image = 0;        // elements of an example
  std::uint32_t channels = 0;     // that gamma and beta have an element for
  std::uint32_t inner = 1;        // adjacent elements of a channel
  std::uint32_t per_example = 1;  // sets
  std::uint32_t row = 1;          // adjacent elements of a set
  std::uint32_t row_stride = 0;   // from a row to the next
  std::uint32_t count = 0;        // elements of a set
  bool strided = false;           // neighboring sets begin at neighboring elements

  template <class Layout>
  static norm_sets of(const image_extents& shape, const group_norm_parameters& parameters) {
    static_assert(Layout::order[0] == axis::n && (Layout::order[1] == axis::c || Layout::order[3] == axis::c),
                  "gradus: group normalization on CUDA needs a layout with channels just after the images or last");
    const bool channels_last = Layout::order[3] == axis::c;
    const image_extents one{1, shape.c, shape.h, shape.w};
    if (one.size() >= std::numeric_limits<std::int32_t>::max()) {
      gradus::raise<shape_error>("group_norm on cuda", "images of less than 2147483647 elements", to_string(shape));
    }
    const auto plane = static_cast<std::uint32_t>(shape.h * shape.w);
    norm_sets s;
    s.examples = shape.n;
    s.image = static_cast<std::uint32_t>(one.size());
    s.channels = parameters.over == normalized_set::image ? s.image : static_cast<std::uint32_t>(shape.c);
    s.inner = channels_last || parameters.over == normalized_set::image ? 1 : plane;
    const auto groups =
        parameters.over == normalized_set::group ? static_cast<std::uint32_t>(parameters.groups) : std::uint32_t{1};
    if (parameters.over != normalized_set::pixel) {
      s.per_example = groups;
      s.count = s.image / groups;
      const bool columns = channels_last && groups > 1;
      s.row = columns ? s.channels / groups : s.count;
      s.row_stride = columns ? s.channels : 0;
    } else {
      s.per_example = plane;
      s.count = s.channels;
      s.row = channels_last ? s.channels : 1;
      s.row_stride = channels_last ? 0 : plane;
      s.strided = !channels_last && plane > 1;
    }
    return s;
  }

  [[nodiscard]] index_t sets() const noexcept { return examples * per_example; }
  /// Blocks that share the elements of a set, which only the shape decides.
  [[nodiscard]] index_t slices() const noexcept {
    const index_t wanted = std::max<index_t>(1, 1024 / std::max<index_t>(1, sets()));
    return strided ? 1 : std::clamp<index_t>(count / 4096, 1, wanted);
  }

  /// The set of an element of an example, counted in the example.
  __device__ std::uint32_t set_of(std::uint32_t inside) const {
    if (row_stride == 0) {
      return inside / row;
    }
    return inside % row_stride / row;
  }
  /// The offset of element e of a set.
  __device__ index_t at(index_t set, std::uint32_t e) const {
    const index_t n = set / per_example;
    const auto k = static_cast<std::uint32_t>(set % per_example);
    const std::uint32_t begin = row_stride == 0 ? k * count : k * row;
    return n * image + begin + (row_stride == 0 ? e : e / row * row_stride + e % row);
  }
  __device__ std::uint32_t channel(std::uint32_t inside) const { return inside / inner % channels; }
};

/// The state, as on the CPU: means, inverse deviations, and what rounding the mean takes from xhat.
template <class Parameter>
struct set_statistics {
  Parameter* mean;
  Parameter* inverse;
  Parameter* rest;

  set_statistics(std::span<std::byte> state, const norm_sets& sets)
      : mean{reinterpret_cast<Parameter*>(state.data())}, inverse{mean + sets.sets()}, rest{inverse + sets.sets()} {}

  __device__ Parameter normalized(Parameter x, index_t set) const { return (x - mean[set]) * inverse[set] + rest[set]; }
};

/// Terms of the moments of a set, around its first element.
template <class Element>
struct set_moments {
  const Element* x;
  norm_sets sets;

  __device__ void add(index_t set, index_t at, double& a, double& b) const {
    const double difference = static_cast<double>(widen(x[at])) - static_cast<double>(widen(x[sets.at(set, 0)]));
    a += difference;
    b += difference * difference;
  }
};

template <class Element, class Parameter>
struct finish_set_moments {
  const Element* x;
  norm_sets sets;
  set_statistics<Parameter> statistics;
  double epsilon;

  __device__ void operator()(index_t set, double sum, double squares) const {
    const double offset = sum / sets.count;
    const double mean = static_cast<double>(widen(x[sets.at(set, 0)])) + offset;
    const double centered = squares / sets.count - offset * offset;
    const double inverse = 1.0 / ::sqrt((centered < 0 ? 0.0 : centered) + epsilon);  // keeps a NaN
    const auto rounded = static_cast<Parameter>(mean);
    statistics.mean[set] = rounded;
    statistics.inverse[set] = static_cast<Parameter>(inverse);
    statistics.rest[set] = static_cast<Parameter>((static_cast<double>(rounded) - mean) * inverse);
  }
};

/// Terms of the means of gamma * g and gamma * g * xhat.
template <class Element, class Parameter>
struct set_gradients {
  const Element* x;
  const Element* dy;
  const Parameter* gamma;  // null: 1
  norm_sets sets;
  set_statistics<Parameter> statistics;

  __device__ void add(index_t set, index_t at, double& a, double& b) const {
    Parameter gradient = widen(dy[at]);
    if (gamma != nullptr) {
      gradient *= gamma[sets.channel(static_cast<std::uint32_t>(at % sets.image))];
    }
    a += static_cast<double>(gradient);
    b += static_cast<double>(gradient) * static_cast<double>(statistics.normalized(widen(x[at]), set));
  }
};

template <class Parameter>
struct finish_set_gradients {
  norm_sets sets;
  Parameter* first;
  Parameter* second;

  __device__ void operator()(index_t set, double sum, double product) const {
    first[set] = static_cast<Parameter>(sum / sets.count);
    second[set] = static_cast<Parameter>(product / sets.count);
  }
};

inline constexpr int set_threads = 256;

/// Both sums of a slice of a set: `across` threads of a block share it. Blocks are along x over sets, along y over
/// slices.
template <class Terms>
__global__ void set_sums_kernel(norm_sets sets, Terms terms, unsigned across, std::uint32_t slice, double* partial) {
  __shared__ double shared[2][set_threads];
  const unsigned lane = threadIdx.x % across;
  const unsigned per_block = set_threads / across;
  const index_t all = sets.examples * sets.per_example;
  const index_t set = static_cast<index_t>(blockIdx.x) * per_block + threadIdx.x / across;
  double a = 0;
  double b = 0;
  const std::uint32_t begin = blockIdx.y * slice;
  const std::uint32_t end = begin + slice < sets.count ? begin + slice : sets.count;
  if (set < all) {
    for (std::uint32_t e = begin + lane; e < end; e += across) {
      terms.add(set, sets.at(set, e), a, b);
    }
  }
  shared[0][threadIdx.x] = a;
  shared[1][threadIdx.x] = b;
  __syncthreads();
  for (unsigned half = across / 2; half > 0; half /= 2) {
    if (lane < half) {
      shared[0][threadIdx.x] += shared[0][threadIdx.x + half];
      shared[1][threadIdx.x] += shared[1][threadIdx.x + half];
    }
    __syncthreads();
  }
  if (lane == 0 && set < all) {
    partial[(blockIdx.y * all + set) * 2] = shared[0][threadIdx.x];
    partial[(blockIdx.y * all + set) * 2 + 1] = shared[1][threadIdx.x];
  }
}

/// Calls finish(set, a, b) with both sums of every set.
template <class Finish>
__global__ void finish_sets_kernel(index_t sets, index_t slices, const double* partial, Finish finish) {
  for (index_t set = thread_index(); set < sets; set += thread_count()) {
    double a = 0;
    double b = 0;
    for (index_t slice = 0; slice < slices; ++slice) {
      a += partial[(slice * sets + set) * 2];
      b += partial[(slice * sets + set) * 2 + 1];
    }
    finish(set, a, b);
  }
}

template <class Terms, class Finish>
void set_sums(cuda& device, std::string_view name, const norm_sets& sets, const Terms& terms, const Finish& finish,
              double* partial) {
  // Where neighboring sets are adjacent, a thread has a set, and neighbors load neighboring elements.
  unsigned across = 1;
  while (!sets.strided && across < set_threads && across < sets.count) {
    across *= 2;
  }
  const index_t slices = sets.slices();
  const auto slice = static_cast<std::uint32_t>((sets.count + slices - 1) / slices);
  const index_t per_block = set_threads / static_cast<index_t>(across);
  const dim3 blocks{static_cast<unsigned>((sets.sets() + per_block - 1) / per_block), static_cast<unsigned>(slices), 1};
  launch(device, name, blocks, dim3{set_threads, 1, 1}, &set_sums_kernel<Terms>, sets, terms, across, slice, partial);
  launch(device, name, blocks_for(sets.sets()), block_threads, &finish_sets_kernel<Finish>, sets.sets(), slices,
         static_cast<const double*>(partial), finish);
}

/// The arguments of the passes over all elements.
template <class Element, class Parameter>
struct set_pass {
  norm_sets sets;
  set_statistics<Parameter> statistics;
  const Element* x;
  const Parameter* gamma = nullptr;
  const Parameter* beta = nullptr;
  const Element* residual = nullptr;
  device_activation<Parameter> act = {};
  Element* y = nullptr;
  const Element* dy = nullptr;
  const Parameter* first = nullptr;
  const Parameter* second = nullptr;
  device_epilogue<Element> epilogue = {};
  Element* dx = nullptr;
};

/// y = act(gamma * xhat + beta + residual)
template <class Element, class Parameter>
__global__ void normalize_sets_kernel(set_pass<Element, Parameter> pass) {
  for_each_in_images(pass.sets.examples, pass.sets.image, [&](index_t n, std::uint32_t i) {
    const index_t at = n * pass.sets.image + i;
    const index_t set = n * pass.sets.per_example + pass.sets.set_of(i);
    const std::uint32_t channel = pass.sets.channel(i);
    Parameter value = pass.statistics.normalized(widen(pass.x[at]), set);
    if (pass.gamma != nullptr) {
      value *= pass.gamma[channel];
    }
    if (pass.beta != nullptr) {
      value += pass.beta[channel];
    }
    if (pass.residual != nullptr) {
      value += widen(pass.residual[at]);
    }
    pass.y[at] = narrow<Element>(pass.act(value));
  });
}

/// dx = inverse * (gamma * g - first - xhat * second)
template <class Element, class Parameter>
__global__ void differentiate_sets_kernel(set_pass<Element, Parameter> pass) {
  for_each_in_images(pass.sets.examples, pass.sets.image, [&](index_t n, std::uint32_t i) {
    const index_t at = n * pass.sets.image + i;
    const index_t set = n * pass.sets.per_example + pass.sets.set_of(i);
    Parameter gradient = widen(pass.dy[at]);
    if (pass.gamma != nullptr) {
      gradient *= pass.gamma[pass.sets.channel(i)];
    }
    const Parameter xhat = pass.statistics.normalized(widen(pass.x[at]), set);
    const Parameter value = pass.statistics.inverse[set] * (gradient - pass.first[set] - xhat * pass.second[set]);
    pass.dx[at] = pass.epilogue.apply(value, pass.dx, at);
  });
}

/// Terms of the gradients of gamma and beta.
template <class Element, class Parameter>
struct affine_terms {
  const Element* x;
  const Element* dy;
  norm_sets sets;
  set_statistics<Parameter> statistics;

  template <int Width, bool Across>
  __device__ void add(index_t offset, index_t /*channel*/, double (&a)[Width], double (&b)[Width]) const {
    const auto values = load_packet<Width>(x + offset);
    const auto gradients = load_packet<Width>(dy + offset);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const index_t n = (offset + k) / sets.image;
      const auto inside = static_cast<std::uint32_t>((offset + k) % sets.image);
      const index_t set = n * sets.per_example + sets.set_of(inside);
      const auto gradient = static_cast<double>(widen(gradients.values[k]));
      a[k] += gradient;
      b[k] += gradient * static_cast<double>(statistics.normalized(widen(values.values[k]), set));
    }
  }
};

template <class Parameter>
struct store_affine {
  group_norm_gradients<Parameter> gradients;

  __device__ void operator()(index_t channel, double sum, double product) const {
    if (gradients.gamma != nullptr) {
      gradients.gamma[channel] = static_cast<Parameter>(product);
    }
    if (gradients.beta != nullptr) {
      gradients.beta[channel] = static_cast<Parameter>(sum);
    }
  }
};

/// The batch as channel_sums takes it: for normalized_set::image, every element of an image is a channel.
template <class Layout>
[[nodiscard]] channel_view affine_view(const image_extents& shape, const group_norm_parameters& parameters) {
  return parameters.over == normalized_set::image ? channel_view{shape.n, shape.c * shape.h * shape.w, 1}
                                                  : channel_view::of<Layout>(shape);
}

/// Bytes of partial sums of sets.
[[nodiscard]] inline std::size_t set_sums_bytes(const norm_sets& sets) {
  // Fewer sets may have more slices: at most 1024 sums in all, or one for each set.
  return static_cast<std::size_t>(2 * std::max<index_t>(1024, sets.sets())) * sizeof(double);
}

}  // namespace detail

/// Implements has_group_norm_memory_for on a GPU.
template <network_element Element, layout_policy Layout>
[[nodiscard]] group_norm_memory group_norm_memory_for(cuda& /*device*/, const image_extents& shape,
                                                      const group_norm_parameters& parameters) {
  using real = parameter_element_t<Element>;
  const auto sets = detail::norm_sets::of<Layout>(shape, parameters);
  const auto rows = static_cast<std::size_t>(sets.sets()) * sizeof(real);
  return {.state = 3 * rows,
          .workspace = detail::set_sums_bytes(sets) +
                       detail::channel_sums_bytes(detail::affine_view<Layout>(shape, parameters)) + 2 * rows};
}

/// Implements has_group_norm_forward on a GPU.
template <network_element Element, layout_policy Layout>
void group_norm_forward(cuda& device, image_view<const Element, Layout, cuda> x, image_view<Element, Layout, cuda> y,
                        const group_norm_parameters& parameters,
                        const batch_norm_affine<parameter_element_t<Element>>& affine,
                        const batch_norm_epilogue<Element>& epilogue, std::span<std::byte> state,
                        std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  if (x.size() == 0) {
    return;
  }
  const auto sets = detail::norm_sets::of<Layout>(x.extents(), parameters);
  const detail::set_statistics<real> statistics{state, sets};
  detail::set_sums(device, "group_norm_forward", sets, detail::set_moments<Element>{x.data(), sets},
                   detail::finish_set_moments<Element, real>{x.data(), sets, statistics, parameters.epsilon},
                   reinterpret_cast<double*>(workspace.data()));
  detail::set_pass<Element, real> pass{sets, statistics, x.data()};
  pass.gamma = affine.gamma;
  pass.beta = affine.beta;
  pass.residual = epilogue.residual;
  pass.act = detail::device_activation<real>{epilogue.act};
  pass.y = y.data();
  launch(device, "group_norm_forward", detail::image_grid(sets.examples, sets.image), detail::block_threads,
         &detail::normalize_sets_kernel<Element, real>, pass);
}

/// Implements has_group_norm_backward on a GPU.
template <network_element Element, layout_policy Layout>
void group_norm_backward(cuda& device, image_view<const Element, Layout, cuda> x,
                         image_view<const Element, Layout, cuda> dy, image_view<Element, Layout, cuda> dx,
                         const group_norm_parameters& parameters,
                         const batch_norm_affine<parameter_element_t<Element>>& affine,
                         const group_norm_gradients<parameter_element_t<Element>>& gradients,
                         const backward_epilogue<Element>& epilogue, std::span<std::byte> state,
                         std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  const auto sets = detail::norm_sets::of<Layout>(x.extents(), parameters);
  if (x.size() == 0) {
    const auto bytes = static_cast<std::size_t>(sets.channels) * sizeof(real);
    if (gradients.gamma != nullptr) {
      device.fill_zero(gradients.gamma, bytes);
    }
    if (gradients.beta != nullptr) {
      device.fill_zero(gradients.beta, bytes);
    }
    return;
  }
  const detail::set_statistics<real> statistics{state, sets};
  const auto view = detail::affine_view<Layout>(x.extents(), parameters);
  std::byte* const channel_memory = workspace.data() + detail::set_sums_bytes(sets);
  if (gradients.gamma != nullptr || gradients.beta != nullptr) {
    detail::channel_sums(device, "group_norm_backward", view, detail::on_packets(x.data(), dy.data()),
                         detail::affine_terms<Element, real>{x.data(), dy.data(), sets, statistics},
                         detail::store_affine<real>{gradients}, reinterpret_cast<double*>(channel_memory));
  }
  if (dx.data() == nullptr) {
    return;
  }
  auto* const first = reinterpret_cast<real*>(channel_memory + detail::channel_sums_bytes(view));
  real* const second = first + sets.sets();
  detail::set_sums(device, "group_norm_backward", sets,
                   detail::set_gradients<Element, real>{x.data(), dy.data(), affine.gamma, sets, statistics},
                   detail::finish_set_gradients<real>{sets, first, second},
                   reinterpret_cast<double*>(workspace.data()));
  detail::set_pass<Element, real> pass{sets, statistics, x.data()};
  pass.gamma = affine.gamma;
  pass.dy = dy.data();
  pass.first = first;
  pass.second = second;
  pass.epilogue = detail::device_epilogue<Element>{epilogue};
  pass.dx = dx.data();
  launch(device, "group_norm_backward", detail::image_grid(sets.examples, sets.image), detail::block_threads,
         &detail::differentiate_sets_kernel<Element, real>, pass);
}

}  // namespace gradus::kernels
