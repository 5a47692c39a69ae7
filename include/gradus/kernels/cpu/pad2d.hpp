// SPDX-License-Identifier: BSL-1.0
//
// Padding of images on the CPU.
#pragma once

#include <algorithm>    // std::copy_n, std::fill_n, std::max, std::min
#include <type_traits>  // std::is_same_v

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/pad2d.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// The loops of both layouts. A pixel is `run` adjacent elements: all channels, or one where each channel has a plane.
template <class Element>
class padded_images {
  using real = parameter_element_t<Element>;

 public:
  padded_images(const pad2d_geometry& g, index_t images, bool channels_last)
      : rows_{padded_rows(g)},
        columns_{padded_columns_of(g)},
        planes_{channels_last ? images : images * g.channels},
        run_{channels_last ? g.channels : 1},
        value_{static_cast<Element>(static_cast<real>(g.value))} {}

  void forward(cpu& device, const Element* x, Element* y) const {
    const index_t height = rows_.before + rows_.size + rows_.after;
    const index_t width = columns_.before + columns_.size + columns_.after;
    device.parallel_for(planes_ * height, grain(width), [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        Element* const to = y + row * width * run_;
        const index_t source = rows_.source(row % height);
        if (source < 0) {
          std::fill_n(to, width * run_, value_);
          continue;
        }
        const Element* const from = x + (row / height * rows_.size + source) * columns_.size * run_;
        std::copy_n(from, columns_.size * run_, to + columns_.before * run_);
        pad(0, columns_.before, from, to);
        pad(columns_.before + columns_.size, width, from, to);
      }
    });
  }

  void backward(cpu& device, const Element* dy, Element* dx, const backward_epilogue<Element>& epilogue) const {
    const index_t height = rows_.before + rows_.size + rows_.after;
    const index_t width = columns_.before + columns_.size + columns_.after;
    device.parallel_for(planes_ * rows_.size, grain(columns_.size), [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        const padded_axis::copies rows = rows_.copies_of(row % rows_.size);
        const Element* const from = dy + row / rows_.size * height * width * run_;
        for (index_t w = 0; w < columns_.size;) {
          const padded_axis::copies columns = columns_.copies_of(w);
          index_t next = w + 1;
          while (columns.single() && next < columns_.size && columns_.copies_of(next).single()) {
            ++next;
          }
          fold(from, width, rows, columns, (next - w) * run_, (row * columns_.size + w) * run_, dx, epilogue);
          w = next;
        }
      }
    });
  }

 private:
  [[nodiscard]] index_t grain(index_t pixels) const noexcept {
    return std::max<index_t>(1, 16384 / std::max<index_t>(1, pixels * run_));  // enough rows for a task
  }

  /// Writes the columns [begin, end) of a padded row, which are around x.
  void pad(index_t begin, index_t end, const Element* from, Element* to) const {
    for (index_t w = begin; w < end; ++w) {
      const index_t source = columns_.source(w);
      if (source < 0) {
        std::fill_n(to + w * run_, run_, value_);
      } else {
        std::copy_n(from + source * run_, run_, to + w * run_);
      }
    }
  }

  /// Adds up the copies of `count` adjacent elements of dx, from offset `place` on: those of one pixel, or of pixels
  /// that have one copy in a row. Sums are rounded once.
  void fold(const Element* from, index_t width, const padded_axis::copies& rows, const padded_axis::copies& columns,
            index_t count, index_t place, Element* dx, const backward_epilogue<Element>& epilogue) const {
    constexpr index_t block = 256;
    real sums[block];
    for (index_t first = 0; first < count; first += block) {
      const index_t length = std::min(block, count - first);
      std::fill_n(sums, length, real{});
      const auto add_row = [&](index_t h) {
        const auto add = [&](index_t w) {
          const Element* const copy = from + (h * width + w) * run_ + first;
          for_each_packet<Element>(0, length, [&]<class Packet>(Packet, index_t i) {
            Packet::store(sums + i, Packet::load(sums + i) + Packet::load(copy + i));
          });
        };
        for (index_t w = columns.low; w < columns.low_end; ++w) {
          add(w);
        }
        add(columns.own);
        for (index_t w = columns.high; w < columns.high_end; ++w) {
          add(w);
        }
      };
      for (index_t h = rows.low; h < rows.low_end; ++h) {
        add_row(h);
      }
      add_row(rows.own);
      for (index_t h = rows.high; h < rows.high_end; ++h) {
        add_row(h);
      }
      Element* const to = dx + place + first;
      const held_derivative<computed<Element>> derivative{epilogue.mask};
      const Element* const mask = epilogue.relu_output == nullptr ? nullptr : epilogue.relu_output + place + first;
      for_each_packet<Element>(0, length, [&]<class Packet>(Packet, index_t i) {
        auto value = Packet::load(sums + i);
        if (epilogue.accumulate) {
          value += Packet::load(to + i);
        }
        if (mask != nullptr) {
          value = derivative.template times<Packet>(Packet::load(mask + i), value);
        }
        Packet::store(to + i, value);
      });
    }
  }

  padded_axis rows_;
  padded_axis columns_;
  index_t planes_;
  index_t run_;
  Element value_;
};

}  // namespace detail

/// See has_pad2d.
template <network_element Element, class Layout>
requires std::is_same_v<Layout, nhwc> || std::is_same_v<Layout, nchw>
void pad2d_forward(cpu& device, const pad2d_geometry& geometry, image_view<const Element, Layout, cpu> x,
                   image_view<Element, Layout, cpu> y) {
  const detail::padded_images<Element> all{geometry, x.extent(axis::n), std::is_same_v<Layout, nhwc>};
  all.forward(device, x.data(), y.data());
}

/// See has_pad2d.
template <network_element Element, class Layout>
requires std::is_same_v<Layout, nhwc> || std::is_same_v<Layout, nchw>
void pad2d_backward(cpu& device, const pad2d_geometry& geometry, image_view<const Element, Layout, cpu> dy,
                    image_view<Element, Layout, cpu> dx, const backward_epilogue<Element>& epilogue) {
  const detail::padded_images<Element> all{geometry, dy.extent(axis::n), std::is_same_v<Layout, nhwc>};
  all.backward(device, dy.data(), dx.data(), epilogue);
}

}  // namespace gradus::kernels
