// SPDX-License-Identifier: BSL-1.0
//
// One forward and one backward pass of a layer over vectors.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus_test {

template <class Element>
struct layer_outcome {
  std::vector<Element> output;
  std::vector<std::vector<Element>> gradients;                                // of the inputs
  std::vector<std::vector<gradus::parameter_element_t<Element>>> parameters;  // their gradients
};

/// Runs a layer over one example of `size` features each; parameters have their initial values in `parameters`.
template <class Options, class Element>
layer_outcome<Element> run_layer(const Options& options, const std::vector<std::vector<Element>>& inputs,
                                 const std::vector<Element>& output_gradient,
                                 std::vector<std::vector<gradus::parameter_element_t<Element>>> parameters = {}) {
  namespace nn = gradus::nn;
  using real = gradus::parameter_element_t<Element>;
  using layer_type = typename Options::template layer<Element, gradus::nchw, gradus::cpu>;
  gradus::cpu device{{.intra_op_threads = 2}};
  layer_type layer{options};
  const auto size = static_cast<gradus::index_t>(output_gradient.size());
  const std::vector<nn::value_shape> shapes(inputs.size(), nn::value_shape{size, 1, 1});
  layer.infer(shapes);
  const gradus::image_extents shape{1, size, 1, 1};
  layer_outcome<Element> result{std::vector<Element>(output_gradient.size()), inputs, parameters};
  std::vector<nn::image_batch<const Element, gradus::cpu>> read;
  std::vector<nn::input_gradient<Element, gradus::cpu>> written;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    read.push_back({device, inputs[k].data(), shape});
    written.push_back({{device, result.gradients[k].data(), shape}, {}});
  }
  std::vector<nn::parameter_memory<real>> memory;
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    memory.push_back({parameters[k].data(), result.parameters[k].data()});
  }
  std::vector<std::byte> workspace(layer.memory(device, 1).workspace);
  const nn::step_context context{};
  layer.forward({device, read, {device, result.output.data(), shape}, nullptr, memory, {}, {}, workspace, context});
  layer.backward({device,
                  read,
                  {device, result.output.data(), shape},
                  {device, output_gradient.data(), shape},
                  written,
                  {},
                  memory,
                  {},
                  {},
                  workspace,
                  context});
  return result;
}

}  // namespace gradus_test
