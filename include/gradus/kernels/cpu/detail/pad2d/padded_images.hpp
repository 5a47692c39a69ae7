// SPDX-License-Identifier: BSL-1.0
//
// Padding of images on the CPU, for all element types. It is compiled into programs that choose a padding mode: class
// chosen_padding_mode refers to it.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::byte, std::size_t
#include <cstring>    // std::memcpy

#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/copy/elements.hpp"
#include "gradus/kernels/pad2d_geometry.hpp"

namespace gradus::kernels::detail {

/// The arguments of a sum of copies: `count` adjacent elements of dx from `offset` on, which are those of one
/// pixel, or of pixels that have one copy in a row.
struct fold_call {
  const void* dy;  ///< the padded images
  index_t image;   ///< offset of the padded image, in elements
  index_t width;   ///< pixels of a row of it
  index_t run;     ///< adjacent elements of a pixel
  padded_axis::copies rows;
  padded_axis::copies columns;
  index_t count;
  index_t offset;
  void* dx;
  bool accumulate;
  const void* relu_output;
  activation mask;  // whose output it is
};

/// The loops of both layouts. A pixel is `run` adjacent elements: all channels, or one where each channel has a plane.
class padded_images {
 public:
  padded_images(const pad2d_geometry& g, const erased_images& batch)
      : rows_{padded_rows(g)},
        columns_{padded_columns_of(g)},
        planes_{batch.channels_last ? batch.images : batch.images * g.channels},
        run_{batch.channels_last ? g.channels : 1},
        bytes_{run_ * batch.element_bytes},
        element_bytes_{batch.element_bytes} {}

  void forward(cpu& device, const std::byte* value, const std::byte* x, std::byte* y) const {
    const index_t width = width_of(columns_);
    device.parallel_for(planes_ * width_of(rows_), grain(width), [&, this](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        std::byte* const to = y + row * width * bytes_;
        const index_t source = rows_.source(row % width_of(rows_));
        if (source < 0) {
          fill(value, 0, width, to);
          continue;
        }
        const std::byte* const from = x + (row / width_of(rows_) * rows_.size + source) * columns_.size * bytes_;
        std::memcpy(to + columns_.before * bytes_, from, static_cast<std::size_t>(columns_.size * bytes_));
        if (columns_.mode == padding_mode::zeros) {
          fill(value, 0, columns_.before, to);
          fill(value, columns_.before + columns_.size, width, to);
        } else {
          pad(0, columns_.before, from, to);
          pad(columns_.before + columns_.size, width, from, to);
        }
      }
    });
  }

  void backward(cpu& device, fold_function* fold, fold_call call) const {
    const index_t height = width_of(rows_);
    call.width = width_of(columns_);
    call.run = run_;
    device.parallel_for(planes_ * rows_.size, grain(columns_.size), [&, this](index_t begin, index_t end) {
      fold_call own = call;
      for (index_t row = begin; row < end; ++row) {
        own.rows = rows_.copies_of(row % rows_.size);
        own.image = row / rows_.size * height * call.width * run_;
        for (index_t w = 0; w < columns_.size;) {
          own.columns = columns_.copies_of(w);
          index_t next = w + 1;
          while (own.columns.single() && next < columns_.size && columns_.copies_of(next).single()) {
            ++next;
          }
          own.count = (next - w) * run_;
          own.offset = (row * columns_.size + w) * run_;
          fold(own);
          w = next;
        }
      }
    });
  }

 private:
  /// Positions of y.
  [[nodiscard]] static index_t width_of(const padded_axis& axis) noexcept {
    return axis.before + axis.size + axis.after;
  }
  [[nodiscard]] index_t grain(index_t pixels) const noexcept {
    return std::max<index_t>(1, 16384 / std::max<index_t>(1, pixels * run_));  // enough rows for a task
  }

  /// Writes the pixels [begin, end) of a row, all of one value.
  void fill(const std::byte* value, index_t begin, index_t end, std::byte* to) const noexcept {
    copy_elements((end - begin) * run_, element_bytes_, value, 0, to + begin * bytes_, 1);
  }

  /// Writes the columns [begin, end) of a padded row, which are around x.
  void pad(index_t begin, index_t end, const std::byte* from, std::byte* to) const noexcept {
    for (index_t w = begin; w < end; ++w) {
      std::memcpy(to + w * bytes_, from + columns_.source(w) * bytes_, static_cast<std::size_t>(bytes_));
    }
  }

  padded_axis rows_;
  padded_axis columns_;
  index_t planes_;
  index_t run_;
  index_t bytes_;  // of a pixel
  index_t element_bytes_;
};

/// Writes padded images: padding_passes::forward on the CPU.
inline void pad_images(cpu& device, const pad2d_geometry& g, const erased_images& batch, const void* value,
                       const void* x, void* y) {
  padded_images{g, batch}.forward(device, static_cast<const std::byte*>(value), static_cast<const std::byte*>(x),
                                  static_cast<std::byte*>(y));
}

/// Adds gradients of padded images: padding_passes::backward on the CPU.
inline void fold_images(cpu& device, const pad2d_geometry& g, const erased_images& batch, fold_function* fold,
                        const void* dy, void* dx, bool accumulate, const void* relu_output, const activation& mask) {
  const padded_images all{g, batch};
  all.backward(device, fold,
               {.dy = dy,
                .image = 0,
                .width = 0,
                .run = 0,
                .rows = {},
                .columns = {},
                .count = 0,
                .offset = 0,
                .dx = dx,
                .accumulate = accumulate,
                .relu_output = relu_output,
                .mask = mask});
}

inline constexpr padding_passes padding_passes::on_cpu{.forward = &pad_images, .backward = &fold_images};

}  // namespace gradus::kernels::detail
