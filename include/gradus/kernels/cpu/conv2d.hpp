// SPDX-License-Identifier: BSL-1.0
//
// 2-D convolution on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>  // std::min, std::max
#include <array>      // std::array
#include <cstddef>    // std::byte, std::size_t
#include <span>       // std::span

#include "gradus/core/element.hpp"        // real_element
#include "gradus/core/index.hpp"          // index_t
#include "gradus/device/cpu.hpp"          // cpu
#include "gradus/kernels/conv2d.hpp"      // conv2d_geometry and what may be fused
#include "gradus/layout/mapping.hpp"      // dense_mapping
#include "gradus/tensor/tensor_view.hpp"  // image_view

namespace gradus::kernels {

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
[[nodiscard]] std::size_t conv2d_workspace_bytes(cpu&, const conv2d_geometry& geometry, index_t, pass which) {
  return which == pass::backward_weights ? 0 : static_cast<std::size_t>(geometry.weights().size()) * sizeof(Element);
}

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
void conv2d_forward(cpu& device, const conv2d_geometry& g, image_view<const Element, Layout, cpu> x,
                    image_view<const Element, Layout, cpu> w, image_view<Element, Layout, cpu> y,
                    const forward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  constexpr index_t lanes = 16;
  const index_t out = g.out_channels / g.groups;
  const index_t in = g.in_channels / g.groups;
  const dense_mapping<Layout> x_at{x.extents()};
  const dense_mapping<Layout> w_at{g.weights()};
  const dense_mapping<Layout> y_at{y.extents()};
  auto* const packed = reinterpret_cast<Element*>(workspace.data());  // (group, r, s, in, out)
  for (index_t o = 0; o < g.out_channels; ++o) {
    for (index_t i = 0; i < in; ++i) {
      for (index_t r = 0; r < g.kernel_height; ++r) {
        for (index_t s = 0; s < g.kernel_width; ++s) {
          packed[(((o / out * g.kernel_height + r) * g.kernel_width + s) * in + i) * out + o % out] =
              w.data()[w_at(o, i, r, s)];
        }
      }
    }
  }
  const index_t channel = x_at.stride(axis::c);
  device.parallel_tasks(x.extent(axis::n) * g.out_height, [&](index_t task) {
    const index_t n = task / g.out_height;
    const index_t p = task % g.out_height;
    for (index_t group = 0; group < g.groups; ++group) {
      for (index_t o0 = 0; o0 < out; o0 += lanes) {
        const index_t width = std::min(lanes, out - o0);
        for (index_t q = 0; q < g.out_width; ++q) {
          std::array<Element, lanes> sums{};
          for (index_t r = 0; r < g.kernel_height; ++r) {
            const index_t h = p * g.stride_height - g.pad_top + r;
            if (h < 0 || h >= g.in_height) {
              continue;
            }
            for (index_t s = 0; s < g.kernel_width; ++s) {
              const index_t v = q * g.stride_width - g.pad_left + s;
              if (v < 0 || v >= g.in_width) {
                continue;
              }
              const Element* const pixel = x.data() + x_at(n, group * in, h, v);
              const Element* const tap = packed + ((group * g.kernel_height + r) * g.kernel_width + s) * in * out + o0;
              if (width == lanes) {
                for (index_t i = 0; i < in; ++i) {
                  const Element factor = pixel[i * channel];
                  for (std::size_t o = 0; o < lanes; ++o) {
                    sums[o] += factor * tap[static_cast<std::size_t>(i * out) + o];
                  }
                }
              } else {
                for (index_t i = 0; i < in; ++i) {
                  for (index_t o = 0; o < width; ++o) {
                    sums[static_cast<std::size_t>(o)] += pixel[i * channel] * tap[i * out + o];
                  }
                }
              }
            }
          }
          for (index_t o = 0; o < width; ++o) {
            const index_t c = group * out + o0 + o;
            const index_t at = y_at(n, c, p, q);
            Element value = sums[static_cast<std::size_t>(o)];
            if (epilogue.bias != nullptr) {
              value += epilogue.bias[c];
            }
            if (epilogue.residual != nullptr) {
              value += epilogue.residual[at];
            }
            y.data()[at] = epilogue.act == activation::relu && value < 0 ? Element{} : value;
          }
        }
      }
    }
  });
}

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
void conv2d_backward_data(cpu& device, const conv2d_geometry& g, image_view<const Element, Layout, cpu> dy,
                          image_view<const Element, Layout, cpu> w, image_view<Element, Layout, cpu> dx,
                          const backward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  constexpr index_t lanes = 16;
  const index_t out = g.out_channels / g.groups;
  const index_t in = g.in_channels / g.groups;
  const dense_mapping<Layout> x_at{dx.extents()};
  const dense_mapping<Layout> w_at{g.weights()};
  const dense_mapping<Layout> y_at{dy.extents()};
  auto* const packed = reinterpret_cast<Element*>(workspace.data());  // (group, r, s, out, in)
  for (index_t o = 0; o < g.out_channels; ++o) {
    for (index_t i = 0; i < in; ++i) {
      for (index_t r = 0; r < g.kernel_height; ++r) {
        for (index_t s = 0; s < g.kernel_width; ++s) {
          packed[(((o / out * g.kernel_height + r) * g.kernel_width + s) * out + o % out) * in + i] =
              w.data()[w_at(o, i, r, s)];
        }
      }
    }
  }
  const index_t channel = y_at.stride(axis::c);
  device.parallel_tasks(dx.extent(axis::n) * g.in_height, [&](index_t task) {
    const index_t n = task / g.in_height;
    const index_t h = task % g.in_height;
    for (index_t group = 0; group < g.groups; ++group) {
      for (index_t i0 = 0; i0 < in; i0 += lanes) {
        const index_t width = std::min(lanes, in - i0);
        for (index_t v = 0; v < g.in_width; ++v) {
          std::array<Element, lanes> sums{};
          for (index_t r = 0; r < g.kernel_height; ++r) {
            const index_t p = h + g.pad_top - r;
            if (p < 0 || p % g.stride_height != 0 || p / g.stride_height >= g.out_height) {
              continue;
            }
            for (index_t s = 0; s < g.kernel_width; ++s) {
              const index_t q = v + g.pad_left - s;
              if (q < 0 || q % g.stride_width != 0 || q / g.stride_width >= g.out_width) {
                continue;
              }
              const Element* const pixel = dy.data() + y_at(n, group * out, p / g.stride_height, q / g.stride_width);
              const Element* const tap = packed + ((group * g.kernel_height + r) * g.kernel_width + s) * in * out + i0;
              if (width == lanes) {
                for (index_t o = 0; o < out; ++o) {
                  const Element factor = pixel[o * channel];
                  for (std::size_t i = 0; i < lanes; ++i) {
                    sums[i] += factor * tap[static_cast<std::size_t>(o * in) + i];
                  }
                }
              } else {
                for (index_t o = 0; o < out; ++o) {
                  for (index_t i = 0; i < width; ++i) {
                    sums[static_cast<std::size_t>(i)] += pixel[o * channel] * tap[o * in + i];
                  }
                }
              }
            }
          }
          for (index_t i = 0; i < width; ++i) {
            const index_t at = x_at(n, group * in + i0 + i, h, v);
            Element value = sums[static_cast<std::size_t>(i)];
            if (epilogue.accumulate) {
              value += dx.data()[at];
            }
            dx.data()[at] = epilogue.relu_output != nullptr && !(epilogue.relu_output[at] > 0) ? Element{} : value;
          }
        }
      }
    }
  });
}

/// See kernels/conv2d.hpp.
template <real_element Element, layout_policy Layout>
void conv2d_backward_weights(cpu& device, const conv2d_geometry& g, image_view<const Element, Layout, cpu> x,
                             image_view<const Element, Layout, cpu> dy, image_view<Element, Layout, cpu> dw,
                             Element* dbias, std::span<std::byte> /*workspace*/) {
  constexpr index_t lanes = 16;
  const index_t out = g.out_channels / g.groups;
  const index_t in = g.in_channels / g.groups;
  const dense_mapping<Layout> x_at{x.extents()};
  const dense_mapping<Layout> w_at{g.weights()};
  const dense_mapping<Layout> y_at{dy.extents()};
  const index_t batch = x.extent(axis::n);
  const index_t channel = y_at.stride(axis::c);
  const index_t blocks = (out + lanes - 1) / lanes;
  // A task owns one tap of one input channel and 16 output channels.
  device.parallel_tasks(g.groups * blocks * in, [&](index_t task) {
    const index_t i = task % in;
    const index_t o0 = task / in % blocks * lanes;
    const index_t group = task / in / blocks;
    const index_t width = std::min(lanes, out - o0);
    for (index_t r = 0; r < g.kernel_height; ++r) {
      for (index_t s = 0; s < g.kernel_width; ++s) {
        std::array<Element, lanes> sums{};
        for (index_t n = 0; n < batch; ++n) {
          for (index_t p = 0; p < g.out_height; ++p) {
            const index_t h = p * g.stride_height - g.pad_top + r;
            if (h < 0 || h >= g.in_height) {
              continue;
            }
            for (index_t q = 0; q < g.out_width; ++q) {
              const index_t v = q * g.stride_width - g.pad_left + s;
              if (v < 0 || v >= g.in_width) {
                continue;
              }
              const Element factor = x.data()[x_at(n, group * in + i, h, v)];
              const Element* const pixel = dy.data() + y_at(n, group * out + o0, p, q);
              if (width == lanes) {
                for (std::size_t o = 0; o < lanes; ++o) {
                  sums[o] += factor * pixel[static_cast<index_t>(o) * channel];
                }
              } else {
                for (index_t o = 0; o < width; ++o) {
                  sums[static_cast<std::size_t>(o)] += factor * pixel[o * channel];
                }
              }
            }
          }
        }
        for (index_t o = 0; o < width; ++o) {
          dw.data()[w_at(group * out + o0 + o, i, r, s)] = sums[static_cast<std::size_t>(o)];
        }
      }
    }
  });
  if (dbias != nullptr) {
    device.parallel_tasks(g.out_channels, [&](index_t o) {
      Element sum{};
      for (index_t n = 0; n < batch; ++n) {
        for (index_t p = 0; p < g.out_height; ++p) {
          for (index_t q = 0; q < g.out_width; ++q) {
            sum += dy.data()[y_at(n, o, p, q)];
          }
        }
      }
      dbias[o] = sum;
    });
  }
}

}  // namespace gradus::kernels
