// SPDX-License-Identifier: BSL-1.0
//
// 2-D convolution on the CPU: blocked matrix products over the taps of a few rows at a time.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::fill_n, std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"          // real_element
#include "gradus/core/index.hpp"            // index_t
#include "gradus/device/cpu.hpp"            // cpu
#include "gradus/kernels/conv2d.hpp"        // conv2d_geometry and what may be fused
#include "gradus/kernels/cpu/gemm.hpp"      // gemm
#include "gradus/layout/layout_policy.hpp"  // axis, layout_policy
#include "gradus/layout/mapping.hpp"        // dense_mapping
#include "gradus/tensor/tensor_view.hpp"    // image_view

namespace gradus::kernels {

namespace detail {

/// What the passes know of a convolution in one layout.
///
/// The taps of a block of output rows are gathered into a small matrix that stays in cache, (pixels, taps) where
/// channels are adjacent and (taps, pixels) otherwise, in the order of the weights' memory. Work is split into pieces
/// that do not depend on the number of threads.
template <class Element, class Layout>
class conv2d_plan {
 public:
  static constexpr index_t most_pieces = 8;
  static constexpr bool channels_last = Layout::order[3] == axis::c;

  conv2d_plan(const conv2d_geometry& geometry, index_t batch) : g_{geometry}, batch_{batch} {
    constexpr index_t cache = index_t{192} * 1024 / static_cast<index_t>(sizeof(Element));
    block_rows_ = std::clamp<index_t>(cache / std::max<index_t>(1, taps() * g_.out_width), 1,
                                      std::max<index_t>(1, g_.out_height));
    pieces_ = std::clamp<index_t>(batch_, 1, most_pieces);
  }

  [[nodiscard]] index_t in() const { return g_.in_channels / g_.groups; }
  [[nodiscard]] index_t out() const { return g_.out_channels / g_.groups; }
  [[nodiscard]] index_t taps() const { return in() * g_.kernel_height * g_.kernel_width; }
  [[nodiscard]] index_t pixels() const { return g_.out_height * g_.out_width; }
  [[nodiscard]] index_t pieces() const { return pieces_; }
  [[nodiscard]] index_t block_rows() const { return block_rows_; }

  /// Elements of one piece's workspace: the gathered taps, the scratch of the product, and partial weights.
  [[nodiscard]] index_t piece_elements(bool partial_weights) const {
    return rounded(taps() * block_rows_ * g_.out_width) + rounded(gemm_scratch<Element>) +
           (partial_weights ? rounded(g_.weights().size()) + rounded(g_.out_channels) : 0);
  }
  [[nodiscard]] Element* gathered(Element* piece) const { return piece; }
  [[nodiscard]] Element* scratch(Element* piece) const { return piece + rounded(taps() * block_rows_ * g_.out_width); }
  [[nodiscard]] Element* partial_weights(Element* piece) const {
    return scratch(piece) + rounded(gemm_scratch<Element>);
  }
  [[nodiscard]] Element* partial_bias(Element* piece) const {
    return partial_weights(piece) + rounded(g_.weights().size());
  }

  /// Calls visit(piece, image, group, first row, rows) for every block of output rows of the images of a piece.
  template <class Visit>
  void for_each_block(index_t piece, const Visit& visit) const {
    const index_t first = piece * batch_ / pieces_;
    const index_t end = (piece + 1) * batch_ / pieces_;
    for (index_t n = first; n < end; ++n) {
      for (index_t group = 0; group < g_.groups; ++group) {
        for (index_t p = 0; p < g_.out_height; p += block_rows_) {
          visit(n, group, p, std::min(block_rows_, g_.out_height - p));
        }
      }
    }
  }

  /// Calls visit(element of the gathered matrix, offset in the image or -1, count) over runs along the fastest axis.
  template <class Visit>
  void for_each_run(index_t group, index_t p0, index_t rows, const Visit& visit) const {
    const index_t pixels_here = rows * g_.out_width;
    for (index_t r = 0; r < g_.kernel_height; ++r) {
      for (index_t s = 0; s < g_.kernel_width; ++s) {
        for (index_t p = 0; p < rows; ++p) {
          const index_t h = (p0 + p) * g_.stride_height - g_.pad_top + r;
          for (index_t q = 0; q < g_.out_width; ++q) {
            const index_t v = q * g_.stride_width - g_.pad_left + s;
            const bool inside = h >= 0 && h < g_.in_height && v >= 0 && v < g_.in_width;
            const index_t pixel = p * g_.out_width + q;
            if constexpr (channels_last) {
              visit(pixel * taps() + (r * g_.kernel_width + s) * in(),
                    inside ? (h * g_.in_width + v) * g_.in_channels + group * in() : -1, in(), index_t{1}, index_t{1});
            } else {
              visit((r * g_.kernel_width + s) * pixels_here + pixel,
                    inside ? (group * in() * g_.in_height + h) * g_.in_width + v : -1, in(),
                    g_.kernel_height * g_.kernel_width * pixels_here, g_.in_height * g_.in_width);
            }
          }
        }
      }
    }
  }

  void gather(const Element* image, index_t group, index_t p0, index_t rows, Element* to) const {
    for_each_run(group, p0, rows, [&](index_t at, index_t offset, index_t count, index_t to_step, index_t from_step) {
      if (offset < 0) {
        for (index_t i = 0; i < count; ++i) {
          to[at + i * to_step] = Element{};
        }
      } else {
        for (index_t i = 0; i < count; ++i) {
          to[at + i * to_step] = image[offset + i * from_step];
        }
      }
    });
  }

  void scatter_add(const Element* from, index_t group, index_t p0, index_t rows, Element* image) const {
    for_each_run(group, p0, rows, [&](index_t at, index_t offset, index_t count, index_t from_step, index_t to_step) {
      if (offset >= 0) {
        for (index_t i = 0; i < count; ++i) {
          image[offset + i * to_step] += from[at + i * from_step];
        }
      }
    });
  }

  [[nodiscard]] static index_t rounded(index_t elements) { return (elements + 15) / 16 * 16; }

 private:
  conv2d_geometry g_;
  index_t batch_;
  index_t block_rows_ = 1;
  index_t pieces_ = 1;
};

}  // namespace detail

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
[[nodiscard]] std::size_t conv2d_workspace_bytes(cpu&, const conv2d_geometry& geometry, index_t batch, pass which) {
  const detail::conv2d_plan<Element, Layout> plan{geometry, batch};
  // A smaller batch has fewer pieces of the same size.
  return static_cast<std::size_t>(plan.pieces() * plan.piece_elements(which == pass::backward_weights)) *
         sizeof(Element);
}

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
void conv2d_forward(cpu& device, const conv2d_geometry& g, image_view<const Element, Layout, cpu> x,
                    image_view<const Element, Layout, cpu> w, image_view<Element, Layout, cpu> y,
                    const forward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  if (x.extent(axis::n) == 0) {
    return;
  }
  using plan_type = detail::conv2d_plan<Element, Layout>;
  const plan_type plan{g, x.extent(axis::n)};
  auto* const memory = reinterpret_cast<Element*>(workspace.data());
  const index_t taps = plan.taps();
  device.parallel_tasks(plan.pieces(), [&](index_t piece) {
    Element* const mine = memory + piece * plan.piece_elements(false);
    plan.for_each_block(piece, [&](index_t n, index_t group, index_t p, index_t rows) {
      const index_t pixels = rows * g.out_width;
      const index_t first = p * g.out_width;
      plan.gather(x.data() + n * g.in_channels * g.in_height * g.in_width, group, p, rows, plan.gathered(mine));
      const Element* const weights = w.data() + group * plan.out() * taps;
      if constexpr (plan_type::channels_last) {
        const index_t at = (n * plan.pixels() + first) * g.out_channels + group * plan.out();
        detail::gemm<Element>(pixels, plan.out(), taps, {plan.gathered(mine), taps, 1}, {weights, 1, taps},
                              y.data() + at, g.out_channels, false, plan.scratch(mine));
        for (index_t i = 0; i < pixels; ++i) {
          for (index_t o = 0; o < plan.out(); ++o) {
            const index_t k = at + i * g.out_channels + o;
            Element value =
                y.data()[k] + (epilogue.bias != nullptr ? epilogue.bias[group * plan.out() + o] : Element{});
            value += epilogue.residual != nullptr ? epilogue.residual[k] : Element{};
            y.data()[k] = epilogue.act == activation::relu && value < Element{} ? Element{} : value;
          }
        }
      } else {
        const index_t at = (n * g.out_channels + group * plan.out()) * plan.pixels() + first;
        detail::gemm<Element>(plan.out(), pixels, taps, {weights, taps, 1}, {plan.gathered(mine), pixels, 1},
                              y.data() + at, plan.pixels(), false, plan.scratch(mine));
        for (index_t o = 0; o < plan.out(); ++o) {
          const Element bias = epilogue.bias != nullptr ? epilogue.bias[group * plan.out() + o] : Element{};
          for (index_t i = 0; i < pixels; ++i) {
            const index_t k = at + o * plan.pixels() + i;
            const Element value =
                y.data()[k] + bias + (epilogue.residual != nullptr ? epilogue.residual[k] : Element{});
            y.data()[k] = epilogue.act == activation::relu && value < Element{} ? Element{} : value;
          }
        }
      }
    });
  });
}

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
void conv2d_backward_data(cpu& device, const conv2d_geometry& g, image_view<const Element, Layout, cpu> dy,
                          image_view<const Element, Layout, cpu> w, image_view<Element, Layout, cpu> dx,
                          const backward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  if (dy.extent(axis::n) == 0) {
    return;
  }
  using plan_type = detail::conv2d_plan<Element, Layout>;
  const plan_type plan{g, dy.extent(axis::n)};
  auto* const memory = reinterpret_cast<Element*>(workspace.data());
  const index_t taps = plan.taps();
  const index_t image = g.in_channels * g.in_height * g.in_width;
  device.parallel_tasks(plan.pieces(), [&](index_t piece) {
    Element* const mine = memory + piece * plan.piece_elements(false);
    const index_t begin = piece * dy.extent(axis::n) / plan.pieces() * image;
    const index_t end = (piece + 1) * dy.extent(axis::n) / plan.pieces() * image;
    if (!epilogue.accumulate) {
      std::fill(dx.data() + begin, dx.data() + end, Element{});
    }
    plan.for_each_block(piece, [&](index_t n, index_t group, index_t p, index_t rows) {
      const index_t pixels = rows * g.out_width;
      const index_t first = p * g.out_width;
      const Element* const weights = w.data() + group * plan.out() * taps;
      if constexpr (plan_type::channels_last) {
        const index_t at = (n * plan.pixels() + first) * g.out_channels + group * plan.out();
        detail::gemm<Element>(pixels, taps, plan.out(), {dy.data() + at, g.out_channels, 1}, {weights, taps, 1},
                              plan.gathered(mine), taps, false, plan.scratch(mine));
      } else {
        const index_t at = (n * g.out_channels + group * plan.out()) * plan.pixels() + first;
        detail::gemm<Element>(taps, pixels, plan.out(), {weights, 1, taps}, {dy.data() + at, plan.pixels(), 1},
                              plan.gathered(mine), pixels, false, plan.scratch(mine));
      }
      plan.scatter_add(plan.gathered(mine), group, p, rows, dx.data() + n * image);
    });
    if (epilogue.relu_output != nullptr) {
      for (index_t i = begin; i < end; ++i) {
        dx.data()[i] = epilogue.relu_output[i] > Element{} ? dx.data()[i] : Element{};
      }
    }
  });
}

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
void conv2d_backward_weights(cpu& device, const conv2d_geometry& g, image_view<const Element, Layout, cpu> x,
                             image_view<const Element, Layout, cpu> dy, image_view<Element, Layout, cpu> dw,
                             std::type_identity_t<Element>* dbias, std::span<std::byte> workspace) {
  using plan_type = detail::conv2d_plan<Element, Layout>;
  const index_t weights = g.weights().size();
  if (dy.extent(axis::n) == 0) {
    std::fill_n(dw.data(), weights, Element{});
    if (dbias != nullptr) {
      std::fill_n(dbias, g.out_channels, Element{});
    }
    return;
  }
  const plan_type plan{g, dy.extent(axis::n)};
  auto* const memory = reinterpret_cast<Element*>(workspace.data());
  const index_t taps = plan.taps();
  device.parallel_tasks(plan.pieces(), [&](index_t piece) {
    Element* const mine = memory + piece * plan.piece_elements(true);
    Element* const sums = plan.partial_weights(mine);
    Element* const bias_sums = plan.partial_bias(mine);
    std::fill_n(sums, weights, Element{});
    std::fill_n(bias_sums, g.out_channels, Element{});
    plan.for_each_block(piece, [&](index_t n, index_t group, index_t p, index_t rows) {
      const index_t pixels = rows * g.out_width;
      const index_t first = p * g.out_width;
      plan.gather(x.data() + n * g.in_channels * g.in_height * g.in_width, group, p, rows, plan.gathered(mine));
      Element* const target = sums + group * plan.out() * taps;
      if constexpr (plan_type::channels_last) {
        const Element* const gradient = dy.data() + (n * plan.pixels() + first) * g.out_channels + group * plan.out();
        detail::gemm<Element>(plan.out(), taps, pixels, {gradient, 1, g.out_channels}, {plan.gathered(mine), taps, 1},
                              target, taps, true, plan.scratch(mine));
        for (index_t i = 0; i < pixels; ++i) {
          for (index_t o = 0; o < plan.out(); ++o) {
            bias_sums[group * plan.out() + o] += gradient[i * g.out_channels + o];
          }
        }
      } else {
        const Element* const gradient = dy.data() + (n * g.out_channels + group * plan.out()) * plan.pixels() + first;
        detail::gemm<Element>(plan.out(), taps, pixels, {gradient, plan.pixels(), 1}, {plan.gathered(mine), 1, pixels},
                              target, taps, true, plan.scratch(mine));
        for (index_t o = 0; o < plan.out(); ++o) {
          for (index_t i = 0; i < pixels; ++i) {
            bias_sums[group * plan.out() + o] += gradient[o * plan.pixels() + i];
          }
        }
      }
    });
  });
  const auto combine = [&](index_t count, auto partial, Element* to) {
    for (index_t i = 0; i < count; ++i) {
      Element sum = partial(memory)[i];
      for (index_t piece = 1; piece < plan.pieces(); ++piece) {
        sum += partial(memory + piece * plan.piece_elements(true))[i];
      }
      to[i] = sum;
    }
  };
  combine(
      weights, [&](Element* piece) { return plan.partial_weights(piece); }, dw.data());
  if (dbias != nullptr) {
    combine(
        g.out_channels, [&](Element* piece) { return plan.partial_bias(piece); }, dbias);
  }
}

}  // namespace gradus::kernels
