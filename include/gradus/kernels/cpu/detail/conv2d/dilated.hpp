// SPDX-License-Identifier: BSL-1.0
//
// Dilated convolutions as convolutions without dilation of interleaved parts of the images. The code does not depend on
// the element type. It is compiled into programs that set a dilation: class dilation refers to it.
#pragma once

#include <algorithm>  // std::clamp, std::max, std::min
#include <cstddef>    // std::byte, std::size_t
#include <cstring>    // std::memcpy, std::memset
#include <numeric>    // std::gcd
#include <span>       // std::span

#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d_geometry.hpp"
#include "gradus/kernels/cpu/detail/copy/elements.hpp"

namespace gradus::kernels::detail {

/// count / size, rounded up.
[[nodiscard]] constexpr index_t parts_of(index_t count, index_t size) noexcept {
  return (count + size - 1) / size;
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
    const index_t begin = begin_position < 0 ? parts_of(-begin_position, step) : 0;
    const index_t of_results = (parts_of(results - part, parts) - 1) * stride + reach;
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
    pad = least > 0 ? parts_of(least, step) : 0;
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
           .extent = parts_of(results, parts),
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

/// Copies runs of `run` adjacent elements that begin `from_step` elements apart to positions `to_step` elements apart.
/// @param bytes  of an element: 2, 4 or 8
inline void copy_runs(index_t count, index_t run, index_t bytes, const std::byte* from, index_t from_step,
                      std::byte* to, index_t to_step) noexcept {
  if (from_step == run && to_step == run) {
    std::memcpy(to, from, static_cast<std::size_t>(count * run * bytes));
  } else if (run > 1) {
    for (index_t j = 0; j < count; ++j) {
      std::memcpy(to + j * to_step * bytes, from + j * from_step * bytes, static_cast<std::size_t>(run * bytes));
    }
  } else {
    copy_elements(count, bytes, from, from_step, to, to_step);
  }
}

/// A dilated convolution: copies of the parts of images, and the convolution of each part. Sums have the terms of the
/// definition, so results are as exact as those of the convolution without dilation.
class dilated_convolution {
 public:
  /// A side of the convolution.
  enum class side : bool { in, out };

  dilated_convolution(const conv2d_geometry& g, bool channels_last, index_t element_bytes)
      : channels_last_{channels_last},
        bytes_{element_bytes},
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
    part_.dilation_height = {};
    part_.dilation_width = {};
  }

  /// The convolution of one part.
  [[nodiscard]] const conv2d_geometry& part() const noexcept { return part_; }
  /// The parts of some images.
  [[nodiscard]] index_t parts(index_t images) const noexcept { return images * height_.in.parts * width_.in.parts; }
  /// The images that are computed at a time: as many as a cache holds. Only the shape decides.
  [[nodiscard]] index_t images_at_once(index_t batch) const noexcept {
    constexpr index_t most_bytes = 4 * 1024 * 1024;
    const index_t bytes = (elements(side::in, 1) + elements(side::out, 1)) * bytes_;
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
  /// Bytes of some images.
  [[nodiscard]] index_t image_bytes(side of, index_t images) const noexcept {
    return images * channels(of) * axis_of(of, height_).size * axis_of(of, width_).size * bytes_;
  }

  /// Copies images into their parts: (image, part, ...).
  void gather(cpu& device, side of, index_t images, const std::byte* from, std::byte* to) const {
    for_each_row(device, of, images, [=, this](const row& r) {
      std::byte* const target = to + r.of_part * bytes_;
      const index_t run = run_of(of);
      const part_axis& w = axis_of(of, width_);
      const auto zeros = [&, this](index_t begin, index_t end) {
        std::memset(target + begin * run * bytes_, 0, static_cast<std::size_t>((end - begin) * run * bytes_));
      };
      zeros(0, r.begin);
      zeros(r.end, w.extent);
      copy_runs(r.end - r.begin, run, bytes_, from + r.of_image * bytes_, w.step * run, target + r.begin * run * bytes_,
                run);
    });
  }

  /// Copies parts to their positions in images.
  /// @param mask        of the images, or null
  /// @param derivative  of the activation that wrote the mask
  /// @param masked      copies times the derivative
  void scatter(cpu& device, side of, index_t images, const std::byte* from, const std::byte* mask,
               const activation& derivative, decltype(erased_convolution::copy_masked) masked, std::byte* to) const {
    for_each_row(device, of, images, [=, this](const row& r) {
      const index_t run = run_of(of);
      const index_t step = axis_of(of, width_).step * run;
      const std::byte* const source = from + (r.of_part + r.begin * run) * bytes_;
      std::byte* const target = to + r.of_image * bytes_;
      if (mask == nullptr) {
        copy_runs(r.end - r.begin, run, bytes_, source, run, target, step);
      } else {
        masked(r.end - r.begin, run, step, source, mask + r.of_image * bytes_, derivative, target);
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
  [[nodiscard]] index_t run_of(side of) const noexcept { return channels_last_ ? channels(of) : 1; }

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

  bool channels_last_;
  index_t bytes_;  // of an element
  dilated_axis height_;
  dilated_axis width_;
  conv2d_geometry part_;
};

/// The workspace of a dilated pass: the parts of images, the gradients of the weights of some of the images, and the
/// workspace of the convolution of the parts.
struct dilated_workspace {
  std::byte* in;
  std::byte* out;
  std::byte* dw;
  std::byte* dbias;
  index_t bytes = 0;  ///< before the workspace of the parts

  dilated_workspace(const erased_convolution& parts, const dilated_convolution& all, pass which, index_t images,
                    std::byte* memory) {
    using side = dilated_convolution::side;
    const bool weights = which == pass::backward_weights;
    const auto take = [&, this](index_t wanted) {
      std::byte* const here = memory == nullptr ? nullptr : memory + bytes;
      bytes += parts_of(wanted, 64) * 64;
      return here;
    };
    in = take(all.elements(side::in, images) * parts.element_bytes);
    out = take(all.elements(side::out, images) * parts.element_bytes);
    dw = take(weights ? all.part().weights().size() * parts.parameter_bytes : 0);
    dbias = take(weights ? all.part().out_channels * parts.parameter_bytes : 0);
  }
};

/// Bytes of workspace of one pass of a dilated convolution.
[[nodiscard]] inline std::size_t dilated_workspace_bytes(const erased_convolution& parts, cpu& device,
                                                         const conv2d_geometry& g, index_t batch, pass which) {
  const dilated_convolution all{g, parts.channels_last, parts.element_bytes};
  const index_t images = all.images_at_once(batch);
  return static_cast<std::size_t>(dilated_workspace{parts, all, which, images, nullptr}.bytes) +
         parts.workspace_bytes(device, all.part(), all.parts(images), which);
}

/// Runs the forward pass, or computes gradients of x, of a dilated convolution.
inline void correlate_dilated(const erased_convolution& parts, cpu& device, const conv2d_geometry& g, pass which,
                              index_t batch, const void* x, const void* w, const erased_output& output,
                              std::span<std::byte> workspace) {
  using side = dilated_convolution::side;
  const dilated_convolution all{g, parts.channels_last, parts.element_bytes};
  const index_t most = all.images_at_once(batch);
  const dilated_workspace memory{parts, all, which, most, workspace.data()};
  const bool forward = which == pass::forward;
  const side from = forward ? side::in : side::out;
  const side to = forward ? side::out : side::in;
  std::byte* const source = forward ? memory.in : memory.out;
  std::byte* const results = forward ? memory.out : memory.in;
  const auto store_zeros = [&](const erased_output& outside) {
    device.parallel_for(batch * g.in_height, 1, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        parts.store_zeros(g, parts.channels_last, i / g.in_height, i % g.in_height, outside);
      }
    });
  };
  // Old values that are added in a part must not have been multiplied by the derivative before. A ReLU keeps what it
  // keeps when it masks twice.
  const bool masks_at_the_end = !all.is_complete(to) && output.mask != nullptr && output.derivative != activation::relu;
  const void* const mask = masks_at_the_end ? nullptr : output.mask;
  if (!all.is_complete(to)) {
    erased_output outside = output;
    outside.mask = mask;
    store_zeros(outside);
  }
  // The residual is added where the old values are: there is never more than one of them.
  const void* const added = output.residual != nullptr ? output.residual : output.accumulate ? output.c : nullptr;
  for (index_t first = 0; first < batch; first += most) {
    const index_t images = std::min(most, batch - first);
    const index_t offset = all.image_bytes(to, first);
    all.gather(device, from, images, static_cast<const std::byte*>(x) + all.image_bytes(from, first), source);
    if (added != nullptr) {
      all.gather(device, to, images, static_cast<const std::byte*>(added) + offset, results);
    }
    const erased_output of_parts{.c = results, .bias = output.bias, .accumulate = added != nullptr, .act = output.act};
    parts.correlate(device, all.part(), which, all.parts(images), source, w, of_parts,
                    workspace.subspan(static_cast<std::size_t>(memory.bytes)));
    all.scatter(device, to, images, results, mask == nullptr ? nullptr : static_cast<const std::byte*>(mask) + offset,
                output.derivative, parts.copy_masked, static_cast<std::byte*>(output.c) + offset);
  }
  if (masks_at_the_end) {
    store_zeros({.c = output.c, .mask = output.mask, .accumulate = true, .derivative = output.derivative});
  }
}

/// Adds `count` numbers to others.
template <class Number>
void add_numbers(const std::byte* from, index_t count, void* to) noexcept {
  const auto* const added = reinterpret_cast<const Number*>(from);
  auto* const sums = static_cast<Number*>(to);
  for (index_t i = 0; i < count; ++i) {
    sums[i] += added[i];
  }
}

/// Computes gradients of weights and bias of a dilated convolution.
inline void dilated_weight_gradients(const erased_convolution& parts, cpu& device, const conv2d_geometry& g,
                                     index_t batch, const void* x, const void* dy, void* dw, void* dbias,
                                     std::span<std::byte> workspace) {
  using side = dilated_convolution::side;
  const dilated_convolution all{g, parts.channels_last, parts.element_bytes};
  const index_t most = all.images_at_once(batch);
  const dilated_workspace memory{parts, all, pass::backward_weights, most, workspace.data()};
  const auto add = parts.parameter_bytes == sizeof(double) ? &add_numbers<double> : &add_numbers<float>;
  for (index_t first = 0; first == 0 || first < batch; first += most) {
    const index_t images = std::min(most, batch - first);
    all.gather(device, side::in, images, static_cast<const std::byte*>(x) + all.image_bytes(side::in, first),
               memory.in);
    all.gather(device, side::out, images, static_cast<const std::byte*>(dy) + all.image_bytes(side::out, first),
               memory.out);
    const bool adds = first > 0;
    parts.differentiate_weights(device, all.part(), all.parts(images), memory.in, memory.out, adds ? memory.dw : dw,
                                dbias == nullptr ? nullptr
                                : adds           ? memory.dbias
                                                 : dbias,
                                workspace.subspan(static_cast<std::size_t>(memory.bytes)));
    if (adds) {
      add(memory.dw, g.weights().size(), dw);
      add(memory.dbias, dbias == nullptr ? 0 : g.out_channels, dbias);
    }
  }
}

inline constexpr dilated_passes dilated_passes::on_cpu{.workspace_bytes = &dilated_workspace_bytes,
                                                       .correlate = &correlate_dilated,
                                                       .differentiate_weights = &dilated_weight_gradients};

}  // namespace gradus::kernels::detail
