// SPDX-License-Identifier: BSL-1.0
//
// One forward and one backward pass of a layer over images in the logical order.
#pragma once

#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "../kernels_cpu_pointwise/support.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/layer.hpp"

namespace shaping {

using gradus::cpu;
using gradus::index_t;
using pointwise::plain_images;

/// What a layer computes, in the logical order.
struct outcome {
  plain_images output;
  std::vector<plain_images> gradients;  // of the inputs
};

/// The shape that a layer makes of inputs.
template <class Options>
gradus::nn::value_shape shape_of(const Options& options, const std::vector<plain_images>& inputs) {
  typename Options::template layer<double, gradus::nchw, cpu> layer{options};
  std::vector<gradus::nn::value_shape> shapes;
  for (const plain_images& each : inputs) {
    shapes.push_back({each.shape.c, each.shape.h, each.shape.w});
  }
  return layer.infer(shapes);
}

/// Runs a layer. Outputs and gradients are NaN before it writes them.
template <class Element, class Layout, class Options>
outcome run(const Options& options, const std::vector<plain_images>& inputs, const plain_images& output_gradient,
            int threads = 2) {
  namespace nn = gradus::nn;
  cpu device{{.intra_op_threads = threads}};
  typename Options::template layer<Element, Layout, cpu> layer{options};
  std::vector<nn::value_shape> shapes;
  for (const plain_images& each : inputs) {
    shapes.push_back({each.shape.c, each.shape.h, each.shape.w});
  }
  const nn::value_shape out = layer.infer(shapes);
  const index_t batch = inputs[0].shape.n;
  const auto blank = [](std::size_t count) {
    return std::vector<Element>(count, static_cast<Element>(static_cast<gradus::parameter_element_t<Element>>(NAN)));
  };
  std::vector<std::vector<Element>> memory;
  std::vector<std::vector<Element>> gradients;
  for (const plain_images& each : inputs) {
    memory.push_back(pointwise::stored<Element, Layout>(each));
    gradients.push_back(blank(memory.back().size()));
  }
  std::vector<Element> output = blank(pointwise::elements_of(out.batch(batch)));
  const std::vector<Element> slope = pointwise::stored<Element, Layout>(output_gradient);
  std::vector<nn::image_batch<const Element, cpu>> read;
  std::vector<nn::input_gradient<Element, cpu>> written;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    read.push_back({device, memory[k].data(), inputs[k].shape});
    written.push_back({{device, gradients[k].data(), inputs[k].shape}, {}});
  }
  std::vector<std::byte> workspace(layer.memory(device, batch).workspace);
  const nn::step_context context{};
  if (layer.traits().aliases_input) {
    output = memory[0];
    gradients[0] = slope;
  } else {
    layer.forward({device, read, {device, output.data(), out.batch(batch)}, nullptr, {}, {}, {}, workspace, context});
    layer.backward({device,
                    read,
                    {device, output.data(), out.batch(batch)},
                    {device, slope.data(), out.batch(batch)},
                    written,
                    {},
                    {},
                    {},
                    {},
                    workspace,
                    context});
  }
  outcome result{pointwise::plain<Layout>(out.batch(batch), output), {}};
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    result.gradients.push_back(pointwise::plain<Layout>(inputs[k].shape, gradients[k]));
  }
  return result;
}

/// The relative error of one rounding of an element; in double a few.
template <class Element>
constexpr double precision = sizeof(Element) == 8   ? 1e-14
                             : sizeof(Element) == 4 ? 1e-6
                                                    : 1.01 / 256;

}  // namespace shaping
