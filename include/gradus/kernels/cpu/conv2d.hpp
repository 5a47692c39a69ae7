// SPDX-License-Identifier: BSL-1.0
//
// 2-D convolution on the CPU. It builds no patch matrix, and both layouts have their own loops.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/dilated.hpp"
#include "gradus/kernels/cpu/detail/conv2d/phases.hpp"
#include "gradus/kernels/cpu/detail/conv2d/pixels.hpp"
#include "gradus/kernels/cpu/detail/conv2d/planes.hpp"
#include "gradus/kernels/cpu/detail/conv2d/small_groups.hpp"
#include "gradus/kernels/cpu/detail/conv2d/small_groups_weights.hpp"
#include "gradus/kernels/cpu/detail/conv2d/weights.hpp"
#include "gradus/kernels/cpu/detail/conv2d/winograd.hpp"
#include "gradus/kernels/cpu/detail/conv2d/winograd_tiles.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/simd/isa.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// Chooses the loops of an nchw convolution. True: tiles along rows of pixels, which lose time on rows that are not a
/// multiple of a tile. False: x and y transposed, which loses time if there are few terms.
template <class Element>
[[nodiscard]] bool runs_in_place(const plane_correlations<Element>& planes,
                                 const tile_kernels<computed<Element>>& kernels, const conv2d_geometry& g, pass which) {
  const auto taps = static_cast<double>(g.kernel_height * g.kernel_width);
  const auto in = static_cast<double>(g.in_channels / g.groups);
  const auto out = static_cast<double>(g.out_channels / g.groups);
  const auto strides = static_cast<double>(g.stride_height * g.stride_width);
  const bool forward = which == pass::forward;
  // Estimated cycles for one pixel of the result.
  const double multiply = taps * in * out / static_cast<double>(kernels.width) / (forward ? 1 : strides);
  const double transposed =
      forward ? 0.5 * in * strides + 1.2 * out : 0.5 * out / strides + (strides > 1 ? 2.4 : 1.2) * in;
  const double strip =
      planes.direct() ? 0.0 : 0.4 * static_cast<double>(planes.copies()) * (forward ? in * strides : out / strides);
  // Rows of pixels that are not aligned to cache lines cost more loads. Rows that do not fit the second-level cache
  // cost far more.
  const bool aligned = taps * strides == 1 && g.in_height * g.in_width % 16 == 0;
  const double loads = (aligned ? 0.03 : 0.15) + (taps * (forward ? in : out) > 600 ? 1.0 : 0.0);
  const double in_place = (planes.waste() - 1 + loads) * multiply + strip + (strides > 1 && !forward ? 2.4 * in : 0.0);
  return in_place < transposed;
}

/// True if the convolution runs by Winograd. Only tiles of single terms: transformed numbers need the precision of
/// float.
template <class Element>
[[nodiscard]] bool takes_winograd(const tile_kernels<computed<Element>>& kernels, const conv2d_geometry& g) {
  return std::is_same_v<computed<Element>, float> && kernels.group == 1 &&
         g.algorithm == convolution_algorithm::automatic && gains_by_winograd(g);
}

// The workspace is aligned to 64 bytes; all other arrays need only the alignment of their elements. Nothing outside the
// arrays is read. Results are not read before they are written, except dx if it is accumulated. Inputs that no result
// depends on may be NaN (x between strides that are longer than the kernel; dy in backward_data if all its terms are
// padding). Winograd is the exception: it spreads values that are not finite over a tile.

/// Calls use(correlations) with the loops for the layout and the shape. The loops and their shapes:
///
///   winograd_correlations      gains_by_winograd(): no strides, one group, channels that fill vectors; products in
///   float of
///                              single terms; not with convolution_algorithm::direct
///   plane_correlations         nchw, single terms, and every run as long as a tile: waste() is finite
///   small_group_correlations   has_small_groups(): as many results as terms, several taps, few channels in a group
///   pixel_correlations         any shape
///
/// Each class says why it computes its shapes correctly and reads inside its arrays;
/// tests/property/kernels_cpu_conv sweeps all of them. None of them has dilation: correlate() divides the images of a
/// dilated convolution into parts without dilation.
template <class Layout, class Element, class Use>
GRADUS_COLD auto with_correlations(const cpu& device, const tile_kernels<computed<Element>>& kernels,
                                   const conv2d_geometry& g, pass which, index_t batch, const Use& use) {
  const index_t threads = device.threads();
  if constexpr (std::is_same_v<computed<Element>, float>) {
    if (takes_winograd<Element>(kernels, g)) {
      return use(winograd_correlations<Element>{kernels, g, channel_order_of<Layout>, which, threads, batch});
    }
  }
  const bool small_groups = has_small_groups(kernels, g);
  if constexpr (std::is_same_v<Layout, nchw>) {
    const plane_correlations<Element> planes{kernels, g, which, threads, batch};
    // Rows that fill tiles save more than transposing them costs, except with one term in a group.
    const bool transposed = small_groups && (g.in_channels == g.groups || planes.waste() > 1.2);
    if (!transposed && kernels.group == 1 && runs_in_place(planes, kernels, g, which)) {
      return use(planes);
    }
  }
  if (small_groups) {
    return use(small_group_correlations<Element>{kernels, g, channel_order_of<Layout>, which, threads, batch});
  }
  return use(pixel_correlations<Element>{kernels, g, channel_order_of<Layout>, which, threads, batch});
}

/// True if the gradients of the weights gain by tiles of pairs, for which both factors are transposed into pairs of
/// pixels. Few channels fill few rows of a tile. Without tiles of lines, the products of pairs are twice as fast as
/// those of floats: fewer products by Winograd are as fast, and copying a channel must pay for itself.
template <class Element>
[[nodiscard]] bool gains_by_pairs(const tile_kernels<computed<Element>>& kernels, const conv2d_geometry& g) noexcept {
  if (kernels.group == 1 || g.in_channels / g.groups <= 8) {
    return false;
  }
  return kernels.place_rows != nullptr || !(g.algorithm == convolution_algorithm::automatic && gains_by_winograd(g));
}

/// The kernels for the gradients of the weights.
template <class Element>
[[nodiscard]] const tile_kernels<computed<Element>>& weight_kernels_for(instruction_set which,
                                                                        const conv2d_geometry& g) {
  const auto& of_storage = storage_kernels_for<Element>(which);
  return gains_by_pairs<Element>(of_storage, g) ? of_storage : single_term_kernels_for<Element>(which);
}

/// Calls use(gradients) with the loops for the gradients of the weights: for small groups, and for any shape.
/// winograd_weight_sums takes the shapes of winograd_correlations.
template <class Layout, class Element, class Use>
GRADUS_COLD auto with_weight_gradients(const cpu& device, instruction_set which, const conv2d_geometry& g,
                                       index_t batch, const Use& use) {
  const index_t threads = device.threads();
  const auto& kernels = weight_kernels_for<Element>(which, g);
  if (has_small_groups(kernels, g)) {
    return use(small_group_weight_gradients<Element>{kernels, g, channel_order_of<Layout>, batch, threads});
  }
  return use(weight_gradients<Element>{kernels, g, channel_order_of<Layout>, batch, threads,
                                       takes_winograd<Element>(kernels, g)});
}

/// A result without its element type, for erased_convolution.
template <class Element>
[[nodiscard]] erased_output erased_result(const tile_output<Element>& output) noexcept {
  return {.c = output.c,
          .residual = output.residual,
          .mask = output.mask,
          .bias = output.bias,
          .accumulate = output.accumulate,
          .act = output.act.original(),
          .derivative = output.derivative.original()};
}

template <class Layout, class Element>
[[nodiscard]] const erased_convolution& erased_convolution_of() noexcept;

/// Runs a pass that consists of correlations.
template <class Layout, class Element>
void correlate(cpu& device, const conv2d_geometry& g, pass which, index_t batch, const Element* x,
               const computed<Element>* w, const tile_output<Element>& output, std::span<std::byte> workspace) {
  if (const dilated_passes* const dilated = passes_of(g); dilated != nullptr) {
    dilated->correlate(erased_convolution_of<Layout, Element>(), device, g, which, batch, x, w, erased_result(output),
                       workspace);
    return;
  }
  with_correlations<Layout, Element>(
      device, current_storage_kernels<Element>(), g, which, batch,
      [&](const correlations<Element>& all) { all.run(device, x, w, output, workspace.data()); });
}

/// The weights of a forward pass, packed by correlations::prepare, as a network for inference keeps them.
template <class Element>
struct prepared_weights {
  static constexpr std::size_t header_bytes = 64;  // keeps the packed weights aligned

  /// The kernels of other instructions have other tiles.
  [[nodiscard]] static instruction_set& packed_for(std::byte* prepared) noexcept {
    return *reinterpret_cast<instruction_set*>(prepared);
  }
  [[nodiscard]] static computed<Element>* packed(std::byte* prepared) noexcept {
    return reinterpret_cast<computed<Element>*>(prepared + header_bytes);
  }
};

/// @throws configuration_error when the weights were packed for other instructions
inline void require_instructions(instruction_set packed_for, instruction_set current) {
  if (packed_for != current) {
    raise<configuration_error>(
        "conv2d", {"the instructions that the weights are prepared for (", name_of(packed_for), ")"},
        std::string{name_of(current)}, "call network.update_weights() after kernels::set_instruction_set");
  }
}

/// Computes the gradients of the weights and, unless it is null, of the bias.
template <class Layout, class Element>
void differentiate_weights(cpu& device, const conv2d_geometry& g, index_t batch, const Element* x, const Element* dy,
                           computed<Element>* dw, computed<Element>* dbias, std::span<std::byte> workspace) {
  if (const dilated_passes* const dilated = passes_of(g); dilated != nullptr) {
    dilated->differentiate_weights(erased_convolution_of<Layout, Element>(), device, g, batch, x, dy, dw, dbias,
                                   workspace);
    return;
  }
  with_weight_gradients<Layout, Element>(device, current_instruction_set(), g, batch, [&](const auto& gradients) {
    gradients.run(device, x, dy, dw, dbias, workspace.data());
  });
}

/// Layouts for which this header has convolutions.
template <class Layout>
concept convolution_layout = std::is_same_v<Layout, nhwc> || std::is_same_v<Layout, nchw>;

}  // namespace detail

/// Implements has_conv2d_workspace_bytes on the CPU.
template <network_element Element, detail::convolution_layout Layout>
[[nodiscard]] std::size_t conv2d_workspace_bytes(cpu& device, const conv2d_geometry& geometry, index_t batch,
                                                 pass which) {
  using real = parameter_element_t<Element>;
  if (const detail::dilated_passes* const dilated = detail::passes_of(geometry); dilated != nullptr) {
    return dilated->workspace_bytes(detail::erased_convolution_of<Layout, Element>(), device, geometry, batch, which);
  }
  return detail::largest_workspace<Element>([&](const detail::tile_kernels<real>& kernels) {
    if (which == pass::backward_weights) {
      return detail::with_weight_gradients<Layout, Element>(
          device, kernels.set, geometry, batch, [](const auto& gradients) { return gradients.workspace_bytes(); });
    }
    return detail::with_correlations<Layout, Element>(
        device, kernels, geometry, which, batch,
        [](const detail::correlations<Element>& correlations) { return correlations.workspace_bytes(); });
  });
}

namespace detail {

/// Restores the element type of a result.
template <class Element>
[[nodiscard]] tile_output<Element> typed(const erased_output& output) noexcept {
  return {.c = static_cast<Element*>(output.c),
          .residual = static_cast<const Element*>(output.residual),
          .mask = static_cast<const Element*>(output.mask),
          .bias = static_cast<const computed<Element>*>(output.bias),
          .accumulate = output.accumulate,
          .act = held_activation<computed<Element>>{output.act},
          .derivative = held_derivative<computed<Element>>{output.derivative}};
}

/// Stores zeros, with their epilogue, in a row of an image: a member of erased_convolution.
template <class Element>
void store_zeros(const conv2d_geometry& g, bool channels_last, index_t image, index_t row,
                 const erased_output& output) {
  const correlation all{.results = g.in_channels,
                        .destination_height = g.in_height,
                        .destination_width = g.in_width,
                        .rows = g.in_height,
                        .columns = g.in_width};
  store_nothing(current_storage_kernels<Element>(), all, channels_last ? channel_order::last : channel_order::first, 0,
                {.image = image, .images = 1, .row = row, .rows = 1}, typed<Element>(output));
}

/// Copies runs times a derivative: a member of erased_convolution.
template <class Element>
void copy_masked(index_t count, index_t run, index_t step, const void* from, const void* mask,
                 const activation& derivative, void* to) {
  using real = computed<Element>;
  const held_derivative<real> held{derivative};
  const auto* const source = static_cast<const Element*>(from);
  const auto* const masks = static_cast<const Element*>(mask);
  auto* const target = static_cast<Element*>(to);
  for (index_t j = 0; j < count; ++j) {
    for (index_t i = 0; i < run; ++i) {
      const auto value = static_cast<real>(source[j * run + i]);
      target[j * step + i] = static_cast<Element>(held.with_parameters(static_cast<real>(masks[j * step + i]), value));
    }
  }
}

/// The convolutions of an element type and layout, without their types.
template <class Layout, class Element>
[[nodiscard]] const erased_convolution& erased_convolution_of() noexcept {
  using real = computed<Element>;
  constexpr bool channels_last = channel_order_of<Layout> == channel_order::last;
  static constexpr erased_convolution all{
      .element_bytes = sizeof(Element),
      .parameter_bytes = sizeof(real),
      .channels_last = channels_last,
      .workspace_bytes = &conv2d_workspace_bytes<Element, Layout>,
      .correlate =
          [](cpu& device, const conv2d_geometry& g, pass which, index_t batch, const void* x, const void* w,
             const erased_output& output, std::span<std::byte> workspace) {
            correlate<Layout, Element>(device, g, which, batch, static_cast<const Element*>(x),
                                       static_cast<const real*>(w), typed<Element>(output), workspace);
          },
      .differentiate_weights =
          [](cpu& device, const conv2d_geometry& g, index_t batch, const void* x, const void* dy, void* dw, void* dbias,
             std::span<std::byte> workspace) {
            differentiate_weights<Layout, Element>(device, g, batch, static_cast<const Element*>(x),
                                                   static_cast<const Element*>(dy), static_cast<real*>(dw),
                                                   static_cast<real*>(dbias), workspace);
          },
      .store_zeros = &store_zeros<Element>,
      .copy_masked = &copy_masked<Element>};
  return all;
}

}  // namespace detail

/// Implements has_conv2d_forward on the CPU.
template <network_element Element, detail::convolution_layout Layout>
void conv2d_forward(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                    image_view<const parameter_element_t<Element>, Layout, cpu> w, image_view<Element, Layout, cpu> y,
                    const forward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  detail::correlate<Layout>(device, geometry, pass::forward, x.extent(axis::n), x.data(), w.data(),
                            detail::output_of(y.data(), epilogue), workspace);
}

/// See has_prepared_conv2d. Dilated convolutions pack the weights of their parts in each call.
template <network_element Element, detail::convolution_layout Layout>
[[nodiscard]] std::size_t conv2d_prepared_bytes(cpu& device, const conv2d_geometry& geometry) {
  using real = parameter_element_t<Element>;
  if (detail::is_dilated(geometry)) {
    return 0;
  }
  return detail::prepared_weights<Element>::header_bytes +
         detail::largest_workspace<Element>([&](const detail::tile_kernels<real>& kernels) {
           return detail::with_correlations<Layout, Element>(
               device, kernels, geometry, pass::forward, 1,
               [](const detail::correlations<Element>& correlations) { return correlations.packed_bytes(); });
         });
}

/// Implements has_prepared_conv2d on the CPU.
template <network_element Element, detail::convolution_layout Layout>
[[nodiscard]] std::size_t conv2d_prepared_workspace_bytes(cpu& device, const conv2d_geometry& geometry, index_t batch) {
  using real = parameter_element_t<Element>;
  if (detail::is_dilated(geometry)) {
    return conv2d_workspace_bytes<Element, Layout>(device, geometry, batch, pass::forward);
  }
  return detail::largest_workspace<Element>([&](const detail::tile_kernels<real>& kernels) {
    return detail::with_correlations<Layout, Element>(
        device, kernels, geometry, pass::forward, batch,
        [](const detail::correlations<Element>& correlations) { return correlations.workers_bytes(); });
  });
}

/// Implements has_prepared_conv2d on the CPU.
template <network_element Element, detail::convolution_layout Layout>
void conv2d_prepare(cpu& device, const conv2d_geometry& geometry,
                    image_view<const parameter_element_t<Element>, Layout, cpu> w, std::span<std::byte> prepared,
                    std::span<std::byte> workspace) {
  using memory = detail::prepared_weights<Element>;
  memory::packed_for(prepared.data()) = current_instruction_set();
  detail::with_correlations<Layout, Element>(device, detail::current_storage_kernels<Element>(), geometry,
                                             pass::forward, 1, [&](const detail::correlations<Element>& all) {
                                               all.prepare(device, w.data(), memory::packed(prepared.data()),
                                                           workspace.data());
                                             });
}

/// Implements has_prepared_conv2d on the CPU.
/// @throws configuration_error when kernels::set_instruction_set was called since conv2d_prepare
template <network_element Element, detail::convolution_layout Layout>
void conv2d_forward_prepared(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                             std::span<const std::byte> prepared, image_view<Element, Layout, cpu> y,
                             const forward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  using memory = detail::prepared_weights<Element>;
  auto* const from = const_cast<std::byte*>(prepared.data());
  detail::require_instructions(memory::packed_for(from), current_instruction_set());
  if (x.extent(axis::n) == 0) {
    return;
  }
  detail::with_correlations<Layout, Element>(
      device, detail::current_storage_kernels<Element>(), geometry, pass::forward, x.extent(axis::n),
      [&](const detail::correlations<Element>& all) {
        all.run_packed(device, x.data(), memory::packed(from), detail::output_of(y.data(), epilogue), workspace.data());
      });
}

/// Implements has_conv2d_backward_data on the CPU.
template <network_element Element, detail::convolution_layout Layout>
void conv2d_backward_data(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> dy,
                          image_view<const parameter_element_t<Element>, Layout, cpu> w,
                          image_view<Element, Layout, cpu> dx, const backward_epilogue<Element>& epilogue,
                          std::span<std::byte> workspace) {
  detail::correlate<Layout>(device, geometry, pass::backward_data, dy.extent(axis::n), dy.data(), w.data(),
                            detail::output_of(dx.data(), epilogue), workspace);
}

/// Implements has_conv2d_backward_weights on the CPU.
template <network_element Element, detail::convolution_layout Layout>
void conv2d_backward_weights(cpu& device, const conv2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                             image_view<const Element, Layout, cpu> dy,
                             image_view<parameter_element_t<Element>, Layout, cpu> dw,
                             parameter_element_t<Element>* dbias, std::span<std::byte> workspace) {
  detail::differentiate_weights<Layout>(device, geometry, x.extent(axis::n), x.data(), dy.data(), dw.data(), dbias,
                                        workspace);
}

}  // namespace gradus::kernels
