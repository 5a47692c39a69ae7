// SPDX-License-Identifier: BSL-1.0
//
// Dilated convolutions as convolutions without dilation of interleaved parts of the images.
#pragma once

#include <algorithm>  // std::clamp, std::copy_n, std::fill_n, std::max, std::min
#include <cstddef>    // std::byte, std::size_t
#include <numeric>    // std::gcd
#include <span>       // std::span

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// True if the taps of a kernel are not adjacent.
[[nodiscard]] constexpr bool is_dilated(const conv2d_geometry& g) noexcept {
  return (g.dilation_height > 1 && g.kernel_height > 1) || (g.dilation_width > 1 && g.kernel_width > 1);
}

/// The positions of one axis of x or y, divided into parts. Element i of part a is position first + a * apart + i *
/// step of the image, and zero if the image or the part has no such position.
struct part_axis {
  index_t size = 0;     ///< positions of the image
  index_t parts = 1;    ///< number of parts
  index_t extent = 0;   ///< elements of a part
  index_t first = 0;    ///< the position of element 0 of part 0; may be outside the image
  index_t apart = 0;    ///< positions from a part to the next
  index_t step = 1;     ///< positions from an element to the next
  index_t results = 0;  ///< positions of y
  index_t stride = 1;   ///< elements from a result of a part to the next
  index_t reach = 1;    ///< elements up to the end of the first result of a part

  struct range {
    index_t begin;
    index_t end;
  };
  [[nodiscard]] constexpr index_t position(index_t part, index_t i) const noexcept {
    return first + part * apart + i * step;
  }
  /// The elements of a part that are positions of the image and belong to a result.
  [[nodiscard]] constexpr range inside(index_t part) const noexcept {
    const index_t begin_position = position(part, 0);
    const index_t begin = begin_position < 0 ? ceil_div(-begin_position, step) : 0;
    const index_t of_results = (ceil_div(results - part, parts) - 1) * stride + reach;
    const index_t of_image = begin_position < size ? (size - 1 - begin_position) / step + 1 : 0;
    const index_t end = std::max<index_t>(0, std::min({extent, of_results, of_image}));
    return {std::min(begin, end), end};
  }
  /// True if every position of the image is in a part. No position is in two parts.
  [[nodiscard]] constexpr bool is_complete() const noexcept {
    index_t positions = 0;
    for (index_t part = 0; part < parts; ++part) {
      positions += inside(part).end - inside(part).begin;
    }
    return positions == size;
  }
};

/// One axis of a dilated convolution. Result t reads positions t * stride - pad + r * dilation. With f = gcd(stride,
/// dilation), results t = a + parts * u for parts = dilation / f read positions that are `dilation` apart: result u of
/// part a reads elements u * stride / f + r of every dilation-th position from a * stride - pad on. That is a
/// convolution without dilation. All parts have the same padding: the least that one of them needs.
struct dilated_axis {
  part_axis in;
  part_axis out;
  index_t stride = 1;
  index_t pad = 0;

  dilated_axis(index_t size, index_t results, index_t kernel, index_t all_stride, index_t dilation, index_t all_pad) {
    const index_t step = kernel == 1 ? 1 : dilation;
    const index_t common = std::gcd(all_stride, step);
    const index_t parts = std::clamp<index_t>(results, 1, step / common);  // with fewer results, each has its part
    stride = all_stride / common;
    const index_t least = all_pad - all_stride * (parts - 1);
    pad = least > 0 ? ceil_div(least, step) : 0;
    in = {.size = size,
          .parts = parts,
          .extent = size + results * all_stride + kernel * step,
          .first = pad * step - all_pad,
          .apart = all_stride,
          .step = step,
          .results = results,
          .stride = stride,
          .reach = kernel - pad};
    out = {.size = results,
           .parts = parts,
           .extent = ceil_div(results, parts),
           .apart = 1,
           .step = parts,
           .results = results};
    index_t most = 1;
    for (index_t part = 0; part < parts; ++part) {
      most = std::max(most, in.inside(part).end);
    }
    in.extent = most;
  }
};

/// A dilated convolution: copies of the parts of images, and the convolution of each part. Sums have the terms of the
/// definition, so results are as exact as those of the convolution without dilation.
template <class Element>
class dilated_convolution {
 public:
  /// A side of the convolution.
  enum class side : bool { in, out };

  dilated_convolution(const conv2d_geometry& g, channel_order order)
      : order_{order},
        height_{g.in_height, g.out_height, g.kernel_height, g.stride_height, g.dilation_height, g.pad_top},
        width_{g.in_width, g.out_width, g.kernel_width, g.stride_width, g.dilation_width, g.pad_left},
        part_{g} {
    part_.in_height = height_.in.extent;
    part_.in_width = width_.in.extent;
    part_.out_height = height_.out.extent;
    part_.out_width = width_.out.extent;
    part_.stride_height = height_.stride;
    part_.stride_width = width_.stride;
    part_.pad_top = height_.pad;
    part_.pad_left = width_.pad;
    part_.dilation_height = 1;
    part_.dilation_width = 1;
  }

  /// The convolution of one part.
  [[nodiscard]] const conv2d_geometry& part() const noexcept { return part_; }
  /// The parts of some images.
  [[nodiscard]] index_t parts(index_t images) const noexcept { return images * height_.in.parts * width_.in.parts; }
  /// The images that are computed at a time: as many as a cache holds. Only the shape decides.
  [[nodiscard]] index_t images_at_once(index_t batch) const noexcept {
    constexpr index_t most_bytes = 4 * 1024 * 1024;
    const index_t bytes = (elements(side::in, 1) + elements(side::out, 1)) * static_cast<index_t>(sizeof(Element));
    return std::clamp<index_t>(most_bytes / std::max<index_t>(1, bytes), 1, std::max<index_t>(1, batch));
  }
  /// The elements of the parts of some images.
  [[nodiscard]] index_t elements(side of, index_t images) const noexcept {
    return parts(images) * channels(of) * axis_of(of, height_).extent * axis_of(of, width_).extent;
  }
  /// True if every position of the images is in a part.
  [[nodiscard]] bool is_complete(side of) const noexcept {
    return axis_of(of, height_).is_complete() && axis_of(of, width_).is_complete();
  }
  /// Elements of an image.
  [[nodiscard]] index_t image(side of) const noexcept {
    return channels(of) * axis_of(of, height_).size * axis_of(of, width_).size;
  }

  /// Copies images into their parts: (image, part, ...).
  void gather(cpu& device, side of, index_t images, const Element* from, Element* to) const {
    const auto copy = [=](index_t count, const Element* source, index_t source_step, Element* target) {
      if (source_step == 1) {
        std::copy_n(source, count, target);
      } else {
        for (index_t j = 0; j < count; ++j) {
          target[j] = source[j * source_step];
        }
      }
    };
    for_each_row(device, of, images, [=, this](const row& r) {
      Element* const target = to + r.of_part;
      const index_t run = run_of(of);
      const part_axis& w = axis_of(of, width_);
      std::fill_n(target, r.begin * run, Element{});
      std::fill_n(target + r.end * run, (w.extent - r.end) * run, Element{});
      const Element* const source = from + r.of_image;
      if (run == 1 || w.step == 1) {
        copy((r.end - r.begin) * run, source, w.step, target + r.begin * run);
      } else {
        for (index_t j = r.begin; j < r.end; ++j) {
          std::copy_n(source + (j - r.begin) * w.step * run, run, target + j * run);
        }
      }
    });
  }

  /// Copies parts to their positions in images, times the derivative of the activation that wrote a mask.
  /// @param mask  of the images, or null
  void scatter(cpu& device, side of, index_t images, const Element* from, const Element* mask,
               const held_derivative<computed<Element>>& derivative, Element* to) const {
    for_each_row(device, of, images, [=, this](const row& r) {
      const index_t run = run_of(of);
      const index_t step = axis_of(of, width_).step;
      const Element* const source = from + r.of_part + r.begin * run;
      Element* const target = to + r.of_image;
      const index_t count = r.end - r.begin;
      if (mask != nullptr) {
        for (index_t j = 0; j < count; ++j) {
          const Element* const masks = mask + r.of_image + j * step * run;
          for (index_t i = 0; i < run; ++i) {
            target[j * step * run + i] = static_cast<Element>(derivative.bent(
                static_cast<computed<Element>>(masks[i]), static_cast<computed<Element>>(source[j * run + i])));
          }
        }
      } else if (step == 1) {
        std::copy_n(source, count * run, target);
      } else if (run == 1) {
        for (index_t j = 0; j < count; ++j) {
          target[j * step] = source[j];
        }
      } else {
        for (index_t j = 0; j < count; ++j) {
          std::copy_n(source + j * run, run, target + j * step * run);
        }
      }
    });
  }

 private:
  /// A row of a part: its elements [begin, end) are in the image.
  struct row {
    index_t of_part;   ///< offset of element 0 in the parts
    index_t of_image;  ///< offset of element `begin` in the images
    index_t begin;
    index_t end;
  };

  [[nodiscard]] static const part_axis& axis_of(side of, const dilated_axis& axis) noexcept {
    return of == side::in ? axis.in : axis.out;
  }
  [[nodiscard]] index_t channels(side of) const noexcept {
    return of == side::in ? part_.in_channels : part_.out_channels;
  }
  /// Adjacent elements of a position.
  [[nodiscard]] index_t run_of(side of) const noexcept { return order_ == channel_order::last ? channels(of) : 1; }

  /// Calls body(row) for the rows of all parts of some images. Rows outside the image are empty.
  template <class Body>
  void for_each_row(cpu& device, side of, index_t images, const Body& body) const {
    const part_axis& h = axis_of(of, height_);
    const part_axis& w = axis_of(of, width_);
    const index_t run = run_of(of);
    const index_t planes = channels(of) / run;
    const index_t row_elements = std::max<index_t>(1, w.extent * run);
    const index_t grain = std::max<index_t>(1, 16384 / (row_elements * std::max<index_t>(1, h.extent)));
    // One task for some planes: (image, part, channel).
    device.parallel_for(parts(images) * planes, grain, [&](index_t begin, index_t end) {
      for (index_t plane = begin; plane < end; ++plane) {
        const index_t channel = plane % planes;
        const index_t part = plane / planes % (h.parts * w.parts);
        const index_t n = plane / planes / (h.parts * w.parts);
        const part_axis::range rows = h.inside(part / w.parts);
        const part_axis::range columns = w.inside(part % w.parts);
        const index_t column = w.position(part % w.parts, columns.begin);
        for (index_t i = 0; i < h.extent; ++i) {
          const bool inside = i >= rows.begin && i < rows.end;
          const index_t position = h.position(part / w.parts, i);
          body(row{.of_part = (plane * h.extent + i) * row_elements,
                   .of_image = (((n * planes + channel) * h.size + position) * w.size + column) * run,
                   .begin = inside ? columns.begin : 0,
                   .end = inside ? columns.end : 0});
        }
      }
    });
  }

  channel_order order_;
  dilated_axis height_;
  dilated_axis width_;
  conv2d_geometry part_;
};

/// Stores an output whose sums are zero, for all results of `images` images.
template <class Element>
void store_zeros(cpu& device, const conv2d_geometry& g, channel_order order, index_t images,
                 const tile_output<Element>& output) {
  const correlation all{.results = g.in_channels,
                        .destination_height = g.in_height,
                        .destination_width = g.in_width,
                        .rows = g.in_height,
                        .columns = g.in_width};
  device.parallel_for(images * g.in_height, 1, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      store_nothing(all, order, 0, {.image = i / g.in_height, .images = 1, .row = i % g.in_height, .rows = 1}, output);
    }
  });
}

/// The workspace of a dilated pass: the parts of images, the gradients of the weights of some of the images, and the
/// workspace of the convolution of the parts.
template <class Element>
struct dilated_workspace {
  using real = computed<Element>;
  using side = typename dilated_convolution<Element>::side;

  Element* in;
  Element* out;
  real* dw;
  real* dbias;
  std::size_t bytes;  ///< before the workspace of the parts

  dilated_workspace(const dilated_convolution<Element>& all, pass which, index_t images, std::byte* memory) {
    scratch from{memory};
    in = from.template take<Element>(all.elements(side::in, images));
    out = from.template take<Element>(all.elements(side::out, images));
    const bool weights = which == pass::backward_weights;
    dw = from.template take<real>(weights ? all.part().weights().size() : 0);
    dbias = from.template take<real>(weights ? all.part().out_channels : 0);
    bytes = from.used();
  }
};

/// The bytes of workspace of a dilated pass.
/// @param of_parts  those of the convolution of the parts
template <class Element>
[[nodiscard]] std::size_t dilated_workspace_bytes(cpu& device, const conv2d_geometry& g, channel_order order,
                                                  index_t batch, pass which,
                                                  std::size_t (*of_parts)(cpu&, const conv2d_geometry&, index_t batch,
                                                                          pass which)) {
  const dilated_convolution<Element> all{g, order};
  const index_t images = all.images_at_once(batch);
  return dilated_workspace<Element>{all, which, images, nullptr}.bytes +
         of_parts(device, all.part(), all.parts(images), which);
}

/// A pass that consists of correlations: of x and w.
template <class Element>
using correlation_pass = void(cpu& device, const conv2d_geometry& g, pass which, index_t batch, const Element* x,
                              const computed<Element>* w, const tile_output<Element>& output,
                              std::span<std::byte> workspace);

/// A pass of a dilated convolution that consists of correlations.
/// @param run  runs the pass for the convolution of the parts
template <class Element>
GRADUS_COLD void correlate_dilated(cpu& device, const conv2d_geometry& g, channel_order order, pass which,
                                   index_t batch, const Element* x, const computed<Element>* w,
                                   const tile_output<Element>& output, std::span<std::byte> workspace,
                                   correlation_pass<Element>* run) {
  using side = typename dilated_convolution<Element>::side;
  const dilated_convolution<Element> all{g, order};
  const index_t most = all.images_at_once(batch);
  const dilated_workspace<Element> memory{all, which, most, workspace.data()};
  const bool forward = which == pass::forward;
  const side from = forward ? side::in : side::out;
  const side to = forward ? side::out : side::in;
  Element* const source = forward ? memory.in : memory.out;
  Element* const results = forward ? memory.out : memory.in;
  // Old values that are added in a part must not have been multiplied by the derivative before. A ReLU keeps what it
  // keeps when it masks twice.
  const bool masks_at_the_end = !all.is_complete(to) && output.mask != nullptr && output.derivative.other;
  const Element* const mask = masks_at_the_end ? nullptr : output.mask;
  if (!all.is_complete(to)) {
    tile_output<Element> outside = output;
    outside.mask = mask;
    store_zeros(device, g, order, batch, outside);
  }
  // The residual is added where the old values are: there is never more than one of them.
  const Element* const added = output.residual != nullptr ? output.residual : output.accumulate ? output.c : nullptr;
  for (index_t first = 0; first < batch; first += most) {
    const index_t images = std::min(most, batch - first);
    const index_t offset = first * all.image(to);
    all.gather(device, from, images, x + first * all.image(from), source);
    if (added != nullptr) {
      all.gather(device, to, images, added + offset, results);
    }
    const tile_output<Element> of_parts{
        .c = results, .bias = output.bias, .accumulate = added != nullptr, .act = output.act};
    run(device, all.part(), which, all.parts(images), source, w, of_parts, workspace.subspan(memory.bytes));
    all.scatter(device, to, images, results, mask == nullptr ? nullptr : mask + offset, output.derivative,
                output.c + offset);
  }
  if (masks_at_the_end) {
    store_zeros<Element>(device, g, order, batch,
                         {.c = output.c, .mask = output.mask, .accumulate = true, .derivative = output.derivative});
  }
}

/// The gradients of the weights and, unless it is null, of the bias.
template <class Element>
using weight_gradient_pass = void(cpu& device, const conv2d_geometry& g, index_t batch, const Element* x,
                                  const Element* dy, computed<Element>* dw, computed<Element>* dbias,
                                  std::span<std::byte> workspace);

/// The gradients of the weights and of the bias of a dilated convolution.
/// @param run  computes them for the convolution of the parts
template <class Element>
GRADUS_COLD void dilated_weight_gradients(cpu& device, const conv2d_geometry& g, channel_order order, index_t batch,
                                          const Element* x, const Element* dy, computed<Element>* dw,
                                          computed<Element>* dbias, std::span<std::byte> workspace,
                                          weight_gradient_pass<Element>* run) {
  using side = typename dilated_convolution<Element>::side;
  const dilated_convolution<Element> all{g, order};
  const index_t most = all.images_at_once(batch);
  const dilated_workspace<Element> memory{all, pass::backward_weights, most, workspace.data()};
  const auto add = [](const computed<Element>* from, index_t count, computed<Element>* to) {
    for (index_t i = 0; i < count; ++i) {
      to[i] += from[i];
    }
  };
  for (index_t first = 0; first == 0 || first < batch; first += most) {
    const index_t images = std::min(most, batch - first);
    all.gather(device, side::in, images, x + first * all.image(side::in), memory.in);
    all.gather(device, side::out, images, dy + first * all.image(side::out), memory.out);
    const bool adds = first > 0;
    run(device, all.part(), all.parts(images), memory.in, memory.out, adds ? memory.dw : dw,
        dbias == nullptr ? nullptr
        : adds           ? memory.dbias
                         : dbias,
        workspace.subspan(memory.bytes));
    if (adds) {
      add(memory.dw, g.weights().size(), dw);
      add(memory.dbias, dbias == nullptr ? 0 : g.out_channels, dbias);
    }
  }
}

}  // namespace gradus::kernels::detail
