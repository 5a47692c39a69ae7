// SPDX-License-Identifier: BSL-1.0
//
// What the layers of nn/layers/shaping.hpp compute, on any device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "gradus/conformance/detail/layer/device_array.hpp"
#include "gradus/conformance/shaping_layers.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/random.hpp"
#include "gradus/layout/mapping.hpp"

namespace gpu_shaping {

using gradus::index_t;
namespace nn = gradus::nn;

/// The output of a layer and the gradients of its inputs, in the logical order, one after the other.
struct outcome {
  std::string name;
  std::vector<double> numbers;
};

/// Where the elements of a batch are in memory, in the logical order.
template <class Layout>
std::vector<std::size_t> order_of(const gradus::image_extents& shape) {
  const gradus::dense_mapping<Layout> at{shape};
  std::vector<std::size_t> result;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t c = 0; c < shape.c; ++c) {
      for (index_t h = 0; h < shape.h; ++h) {
        for (index_t w = 0; w < shape.w; ++w) {
          result.push_back(static_cast<std::size_t>(at(n, c, h, w)));
        }
      }
    }
  }
  return result;
}

template <class Element, class Layout, class Device, class Options>
std::vector<double> numbers_of(Device& device, const Options& options, const std::vector<nn::value_shape>& shapes) {
  using real = gradus::parameter_element_t<Element>;
  using array = gradus::conformance::detail::device_array<Element, Device>;
  constexpr index_t batch = 3;
  typename Options::template layer<Element, Layout, Device> layer{options};
  const nn::value_shape out = layer.infer(shapes);
  if (layer.traits().aliases_input) {
    return {};
  }
  std::uint64_t number = 0;
  const gradus::random_stream stream{9, "shaping"};
  const auto random = [&](const nn::value_shape& shape) {
    const std::vector<std::size_t> order = order_of<Layout>(shape.batch(batch));
    std::vector<Element> values(order.size());
    for (const std::size_t at : order) {
      // Multiples of 1/16, which 16 bits hold.
      const auto sixteenths = static_cast<float>(static_cast<int>(16 * stream.normal(number++)));
      values[at] = static_cast<Element>(static_cast<real>(sixteenths / 16));
    }
    return values;
  };
  std::vector<array> inputs;
  std::vector<array> gradients;
  inputs.reserve(shapes.size());
  gradients.reserve(shapes.size());
  std::vector<nn::image_batch<const Element, Device>> read;
  std::vector<nn::input_gradient<Element, Device>> written;
  for (const nn::value_shape& shape : shapes) {
    inputs.emplace_back(device, random(shape));
    gradients.emplace_back(device, random(shape));
    read.push_back({device, inputs.back().data(), shape.batch(batch)});
    // The gradient of the last of two inputs is added to what is there.
    written.push_back({{device, gradients.back().data(), shape.batch(batch)}, {.accumulate = written.size() == 1}});
  }
  array output{device, random(out)};
  array slope{device, random(out)};
  const std::size_t bytes = layer.memory(device, batch).workspace;
  gradus::conformance::detail::device_array<std::byte, Device> workspace{device, std::vector<std::byte>(bytes)};
  const nn::step_context context{};
  layer.forward({device,
                 read,
                 {device, output.data(), out.batch(batch)},
                 nullptr,
                 {},
                 {},
                 {},
                 {workspace.data(), bytes},
                 context});
  layer.backward({device,
                  read,
                  {device, output.data(), out.batch(batch)},
                  {device, slope.data(), out.batch(batch)},
                  written,
                  {},
                  {},
                  {},
                  {},
                  {workspace.data(), bytes},
                  context});
  std::vector<double> result;
  const auto append = [&](const array& from, const nn::value_shape& shape) {
    const std::vector<Element> values = from.get();
    for (const std::size_t at : order_of<Layout>(shape.batch(batch))) {
      result.push_back(static_cast<double>(static_cast<real>(values[at])));
    }
  };
  append(output, out);
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    append(gradients[k], shapes[k]);
  }
  return result;
}

template <class Element, class Layout, class Device>
std::vector<outcome> outcomes_of(Device& device) {
  std::vector<outcome> result;
  for (const gradus::conformance::shaping_layer_case& each : gradus::conformance::shaping_layer_cases()) {
    result.push_back(
        {each.name,
         std::visit([&](const auto& options) { return numbers_of<Element, Layout>(device, options, each.inputs); },
                    each.options)});
  }
  return result;
}

/// In double precision on the CPU, in a translation unit of its own: nvcc does not compile the kernels of the CPU.
std::vector<outcome> on_cpu(bool channels_last);

}  // namespace gpu_shaping
