// SPDX-License-Identifier: BSL-1.0
//
// One forward and one backward pass of a layer over a batch of images, with numbers in the order n, c, h, w.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus_test {

/// Fractions that 16 bits store exactly, as tests/golden/layers_geometry.py makes them.
[[nodiscard]] inline double geometry_fraction(std::int64_t index, int factor, int offset, int divisor) {
  return static_cast<double>((factor * index + offset) % 64 - 31) / divisor;
}

/// Calls body(index in the order n, c, h, w, offset in memory).
template <class Layout, class Body>
void for_each_logical(const gradus::image_extents& e, const Body& body) {
  const gradus::dense_mapping<Layout> at{e};
  std::size_t index = 0;
  for (gradus::index_t n = 0; n < e.n; ++n) {
    for (gradus::index_t c = 0; c < e.c; ++c) {
      for (gradus::index_t h = 0; h < e.h; ++h) {
        for (gradus::index_t w = 0; w < e.w; ++w) {
          body(index++, static_cast<std::size_t>(at(n, c, h, w)));
        }
      }
    }
  }
}

template <class Element, class Layout>
[[nodiscard]] std::vector<Element> geometry_fractions(const gradus::image_extents& e, int factor, int offset,
                                                      int divisor) {
  std::vector<Element> values(static_cast<std::size_t>(e.size()));
  for_each_logical<Layout>(e, [&](std::size_t index, std::size_t position) {
    values[position] = static_cast<Element>(static_cast<gradus::parameter_element_t<Element>>(
        geometry_fraction(static_cast<std::int64_t>(index), factor, offset, divisor)));
  });
  return values;
}

template <class Layout, class Element>
[[nodiscard]] std::vector<double> in_logical_order(const std::vector<Element>& values, const gradus::image_extents& e) {
  std::vector<double> result(values.size());
  for_each_logical<Layout>(e, [&](std::size_t index, std::size_t offset) {
    result[index] = static_cast<double>(static_cast<gradus::parameter_element_t<Element>>(values[offset]));
  });
  return result;
}

/// What a layer computes of two images: y, dx, dw and db. The workspace holds NaN before each pass.
template <class Element, class Layout, class Options>
[[nodiscard]] std::map<std::string, std::vector<double>> run_image_layer(const Options& options,
                                                                         const gradus::nn::value_shape& shape,
                                                                         gradus::cpu& device) {
  namespace nn = gradus::nn;
  using real = gradus::parameter_element_t<Element>;
  constexpr gradus::index_t batch = 2;
  typename Options::template layer<Element, Layout, gradus::cpu> layer{options};
  const nn::value_shape shapes[] = {shape};
  const nn::value_shape result_shape = layer.infer(shapes);
  const gradus::image_extents in = shape.batch(batch);
  const gradus::image_extents out = result_shape.batch(batch);
  const auto x = geometry_fractions<Element, Layout>(in, 37, 11, 32);
  const auto dy = geometry_fractions<Element, Layout>(out, 41, 3, 32);
  const real nan{std::numeric_limits<real>::quiet_NaN()};
  std::vector<Element> y(dy.size(), static_cast<Element>(nan));
  std::vector<Element> dx(x.size(), static_cast<Element>(nan));
  std::vector<std::vector<real>> values;
  std::vector<std::vector<real>> gradients;
  std::vector<gradus::image_extents> extents;
  for (const nn::parameter_description& p : layer.parameters()) {
    extents.push_back(p.shape);
    values.push_back(values.empty() ? geometry_fractions<real, Layout>(p.shape, 29, 5, 64)
                                    : geometry_fractions<real, Layout>(p.shape, 23, 17, 32));
    gradients.emplace_back(values.back().size(), nan);
  }
  std::vector<nn::parameter_memory<real>> memory;
  for (std::size_t k = 0; k < values.size(); ++k) {
    memory.push_back({values[k].data(), gradients[k].data()});
  }
  const std::size_t bytes = layer.memory(device, batch).workspace;
  auto* const block = static_cast<std::byte*>(device.allocate(bytes));
  const std::span<std::byte> workspace{block, bytes};
  const nn::step_context context{};
  const nn::image_batch<const Element, gradus::cpu> read[] = {{device, x.data(), in}};
  const nn::input_gradient<Element, gradus::cpu> written[] = {{{device, dx.data(), in}, {}}};
  std::fill(workspace.begin(), workspace.end(), std::byte{0xFF});
  layer.forward({device, read, {device, y.data(), out}, nullptr, memory, {}, {}, workspace, context});
  std::fill(workspace.begin(), workspace.end(), std::byte{0xFF});
  layer.backward({device,
                  read,
                  {device, y.data(), out},
                  {device, dy.data(), out},
                  written,
                  {},
                  memory,
                  {},
                  {},
                  workspace,
                  context});
  device.deallocate(block, bytes);
  std::map<std::string, std::vector<double>> found{{"y", in_logical_order<Layout>(y, out)},
                                                   {"dx", in_logical_order<Layout>(dx, in)}};
  for (std::size_t k = 0; k < values.size(); ++k) {
    found[k == 0 ? "dw" : "db"] = in_logical_order<Layout>(gradients[k], extents[k]);
  }
  return found;
}

}  // namespace gradus_test
