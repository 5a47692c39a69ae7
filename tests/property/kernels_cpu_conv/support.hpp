// SPDX-License-Identifier: BSL-1.0
//
// Convolutions by their definition, in double precision, and the comparison of the kernels with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eighths.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor_view.hpp"
#include "shape.hpp"

namespace conv {

/// Values in the order n, c, h, w, in double precision.
struct images {
  image_extents shape{0, 0, 0, 0};
  std::vector<double> values;

  images() = default;
  explicit images(const image_extents& extents) : shape{extents}, values(static_cast<std::size_t>(extents.size())) {}
  images(const image_extents& extents, std::string_view name)
      : shape{extents}, values{eighths(static_cast<std::size_t>(extents.size()), name)} {}
  double& operator()(index_t n, index_t c, index_t h, index_t w) {
    return values[static_cast<std::size_t>(((n * shape.c + c) * shape.h + h) * shape.w + w)];
  }
  double operator()(index_t n, index_t c, index_t h, index_t w) const { return const_cast<images&>(*this)(n, c, h, w); }
};

/// Calls body(n, o, p, q, i, h, w, r, s) for every multiply-add; i counts inside the group, the input channel is
/// in_channel.
template <class Body>
void for_each_term(const conv2d_geometry& g, index_t batch, const Body& body) {
  const index_t in = g.in_channels / g.groups;
  const index_t out = g.out_channels / g.groups;
  for (index_t n = 0; n < batch; ++n) {
    for (index_t o = 0; o < g.out_channels; ++o) {
      for (index_t p = 0; p < g.out_height; ++p) {
        for (index_t q = 0; q < g.out_width; ++q) {
          for (index_t r = 0; r < g.kernel_height; ++r) {
            const index_t h = p * g.stride_height - g.pad_top + r * g.dilation_height;
            if (h < 0 || h >= g.in_height) {
              continue;
            }
            for (index_t s = 0; s < g.kernel_width; ++s) {
              const index_t w = q * g.stride_width - g.pad_left + s * g.dilation_width;
              if (w < 0 || w >= g.in_width) {
                continue;
              }
              for (index_t i = 0; i < in; ++i) {
                body(n, o, p, q, i, o / out * in + i, h, w, r, s);
              }
            }
          }
        }
      }
    }
  }
}

/// What the three passes read, and what they should give.
struct problem {
  conv2d_geometry geometry;
  index_t batch;
  images x, w, dy, residual, old_dx, mask;
  std::vector<double> bias;
  images product;  // without epilogue
  images dx;       // without epilogue
  images dw;
  std::vector<double> dbias;

  explicit problem(const shape& s)
      : geometry{s.geometry()},
        batch{s.batch},
        x{geometry.input(batch), "x"},
        w{geometry.weights(), "w"},
        dy{geometry.output(batch), "dy"},
        residual{geometry.output(batch), "residual"},
        old_dx{geometry.input(batch), "old dx"},
        mask{geometry.input(batch), "mask"},
        bias(static_cast<std::size_t>(geometry.out_channels)),
        product{geometry.output(batch)},
        dx{geometry.input(batch)},
        dw{geometry.weights()},
        dbias(static_cast<std::size_t>(geometry.out_channels)) {
    for (std::size_t o = 0; o < bias.size(); ++o) {
      bias[o] = static_cast<double>(o % 5) - 2.0;
    }
    for_each_term(geometry, batch,
                  [&](index_t n, index_t o, index_t p, index_t q, index_t i, index_t c, index_t h, index_t v, index_t r,
                      index_t t) {
                    product(n, o, p, q) += x(n, c, h, v) * w(o, i, r, t);
                    dx(n, c, h, v) += dy(n, o, p, q) * w(o, i, r, t);
                    dw(o, i, r, t) += dy(n, o, p, q) * x(n, c, h, v);
                  });
    for (std::size_t at = 0; at < dy.values.size(); ++at) {
      const std::size_t plane = static_cast<std::size_t>(geometry.out_height * geometry.out_width);
      dbias[at / plane % dbias.size()] += dy.values[at];
    }
  }
};

template <class Element, class Layout>
[[nodiscard]] std::vector<Element> stored(const images& from) {
  const gradus::dense_mapping<Layout> at{from.shape};
  std::vector<Element> memory(from.values.size());
  for (index_t n = 0; n < from.shape.n; ++n) {
    for (index_t c = 0; c < from.shape.c; ++c) {
      for (index_t h = 0; h < from.shape.h; ++h) {
        for (index_t w = 0; w < from.shape.w; ++w) {
          memory[static_cast<std::size_t>(at(n, c, h, w))] =
              static_cast<Element>(static_cast<gradus::parameter_element_t<Element>>(from(n, c, h, w)));
        }
      }
    }
  }
  return memory;
}

/// What differences are measured by.
enum class measure {
  entry,  ///< 1 + |entry|
  all,    ///< the root mean square of all entries: of results that are sums of larger numbers
};

/// The root mean square of values.
[[nodiscard]] inline double root_mean_square(const images& of) {
  double sum = 0;
  for (const double value : of.values) {
    sum += value * value;
  }
  return of.values.empty() ? 0.0 : std::sqrt(sum / static_cast<double>(of.values.size()));
}

/// The largest |memory - wanted| over the measure.
template <class Layout, class Element>
[[nodiscard]] double difference(const std::vector<Element>& memory, const images& wanted, measure by = measure::entry) {
  const std::vector<double> right = stored<double, Layout>(wanted);
  const double size = root_mean_square(wanted);
  const double all = size > 0 ? size : 1.0;
  double worst = memory.size() == right.size() ? 0.0 : INFINITY;
  for (std::size_t i = 0; i < std::min(memory.size(), right.size()); ++i) {
    const double apart =
        std::abs(static_cast<double>(memory[i]) - right[i]) / (by == measure::all ? all : 1 + std::abs(right[i]));
    worst = apart <= worst ? worst : apart;
    if (std::isnan(apart)) {
      return INFINITY;
    }
  }
  return worst;
}

template <class Element>
[[nodiscard]] bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0);
}

/// What the kernels gave.
template <class Element>
struct results {
  std::vector<Element> y_plain, y_fused, dx_plain, dx_fused;
  std::vector<gradus::parameter_element_t<Element>> dw, dbias;
};

template <class Element, class Layout>
[[nodiscard]] results<Element> run(const problem& p, gradus::cpu& device, index_t planned_batch) {
  using gradus::kernels::pass;
  using real = gradus::parameter_element_t<Element>;
  using view = gradus::image_view<Element, Layout>;
  using const_view = gradus::image_view<const Element, Layout>;
  const conv2d_geometry& g = p.geometry;
  const auto x = stored<Element, Layout>(p.x);
  const auto w = stored<real, Layout>(p.w);
  const auto dy = stored<Element, Layout>(p.dy);
  const auto residual = stored<Element, Layout>(p.residual);
  const auto mask = stored<Element, Layout>(p.mask);
  const std::vector<real> bias(p.bias.begin(), p.bias.end());
  const auto nan = static_cast<Element>(NAN);  // what is not written shows

  const auto with_workspace = [&](pass which, const auto& call) {
    const std::size_t bytes = conv2d_workspace_bytes<Element, Layout>(device, g, planned_batch, which);
    auto* const memory = static_cast<std::byte*>(device.allocate(bytes));
    std::memset(memory, 0xFF, bytes);  // not a number
    call(std::span<std::byte>{memory, bytes});
    device.deallocate(memory, bytes);
  };
  const const_view xv{device, x.data(), g.input(p.batch)};
  const gradus::image_view<const real, Layout> wv{device, w.data(), g.weights()};
  const const_view dyv{device, dy.data(), g.output(p.batch)};

  results<Element> out;
  out.y_plain.assign(p.product.values.size(), nan);
  out.y_fused = out.y_plain;
  out.dx_plain.assign(p.dx.values.size(), nan);
  out.dx_fused = stored<Element, Layout>(p.old_dx);
  out.dw.assign(p.dw.values.size(), static_cast<real>(NAN));
  out.dbias.assign(p.dbias.size(), static_cast<real>(NAN));
  with_workspace(pass::forward, [&](std::span<std::byte> workspace) {
    conv2d_forward(device, g, xv, wv, view{device, out.y_plain.data(), g.output(p.batch)},
                   gradus::kernels::forward_epilogue<Element>{}, workspace);
    conv2d_forward(device, g, xv, wv, view{device, out.y_fused.data(), g.output(p.batch)},
                   gradus::kernels::forward_epilogue<Element>{
                       .bias = bias.data(), .residual = residual.data(), .act = gradus::kernels::activation::relu},
                   workspace);
  });
  with_workspace(pass::backward_data, [&](std::span<std::byte> workspace) {
    conv2d_backward_data(device, g, dyv, wv, view{device, out.dx_plain.data(), g.input(p.batch)},
                         gradus::kernels::backward_epilogue<Element>{}, workspace);
    conv2d_backward_data(device, g, dyv, wv, view{device, out.dx_fused.data(), g.input(p.batch)},
                         gradus::kernels::backward_epilogue<Element>{.accumulate = true, .relu_output = mask.data()},
                         workspace);
  });
  with_workspace(pass::backward_weights, [&](std::span<std::byte> workspace) {
    conv2d_backward_weights(device, g, xv, dyv, gradus::image_view<real, Layout>{device, out.dw.data(), g.weights()},
                            out.dbias.data(), workspace);
  });
  return out;
}

/// The worst difference of any result from the definition.
template <class Layout, class Element>
[[nodiscard]] double worst(const problem& p, const results<Element>& r, measure by = measure::entry) {
  images fused = p.product;
  for (index_t n = 0; n < fused.shape.n; ++n) {
    for (index_t c = 0; c < fused.shape.c; ++c) {
      for (index_t h = 0; h < fused.shape.h; ++h) {
        for (index_t v = 0; v < fused.shape.w; ++v) {
          fused(n, c, h, v) =
              std::max(0.0, fused(n, c, h, v) + p.bias[static_cast<std::size_t>(c)] + p.residual(n, c, h, v));
        }
      }
    }
  }
  images masked = p.dx;
  for (std::size_t i = 0; i < masked.values.size(); ++i) {
    masked.values[i] = p.mask.values[i] > 0 ? masked.values[i] + p.old_dx.values[i] : 0.0;
  }
  double result = difference<Layout>(r.y_plain, p.product, by);
  result = std::max(result, difference<Layout>(r.y_fused, fused, by));
  result = std::max(result, difference<Layout>(r.dx_plain, p.dx, by));
  result = std::max(result, difference<Layout>(r.dx_fused, masked, by));
  result = std::max(result, difference<Layout>(r.dw, p.dw, by));
  for (std::size_t o = 0; o < p.dbias.size(); ++o) {
    result = std::max(result, std::abs(static_cast<double>(r.dbias[o]) - p.dbias[o]) / (1 + std::abs(p.dbias[o])));
  }
  return result;
}

}  // namespace conv
