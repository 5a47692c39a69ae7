// SPDX-License-Identifier: BSL-1.0
//
// Writes networks as ONNX files, for other programs that run them. The component gradus::onnx.
#pragma once

#include <cstddef>     // std::size_t
#include <filesystem>  // std::filesystem::path
#include <span>        // std::span
#include <string>      // std::string
#include <vector>      // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/version.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/onnx/detail/export/layer_export.hpp"
#include "gradus/onnx/detail/model/model.hpp"
#include "gradus/onnx/detail/model/model_files.hpp"

namespace gradus::io {

/// Options of save_onnx.
struct onnx_options {
  index_t batch_size = 0;              ///< examples of a call; 0: any number, the axis "N"
  std::string input_name = "input";    ///< of the images (N, C, H, W)
  std::string output_name = "output";  ///< of the scores, (N, C) or (N, C, H, W)
  /// Weights go to the file PATH.data next to the model; to PATH.data-1 where that exists. Models of more than 2 GB
  /// always do: the format allows no more.
  bool external_data = false;
  error_location where = error_location::current();  ///< the line of the program in errors
};

namespace detail {

/// The parameters and buffers of a network as floats.
template <class Network>
[[nodiscard]] std::vector<onnx_weight> onnx_weights(Network& network) {
  std::vector<onnx_weight> result;
  for (const auto& each : network.parameters()) {
    const auto& shape = each.shape();
    onnx_weight& made = result.emplace_back();
    made.name = each.name();
    made.dims = each.description().rank == 4   ? std::vector<index_t>{shape.n, shape.c, shape.h, shape.w}
                : each.description().rank == 2 ? std::vector<index_t>{shape.n, shape.c * shape.h * shape.w}
                                               : std::vector<index_t>{shape.n};
    for (const auto value : each.copy_values()) {
      made.values.push_back(static_cast<float>(value));
    }
  }
  using number = parameter_element_t<typename Network::element_type>;
  for (const auto& each : network.buffers()) {
    std::vector<number> host(static_cast<std::size_t>(each.elements.size()));
    network.device().copy_to_host(host.data(), each.elements.data(), host.size() * sizeof(number));
    result.push_back({each.name, {each.elements.size()}, {host.begin(), host.end()}});
  }
  return result;
}

}  // namespace detail

/// Writes the network in evaluation as an ONNX model (IR 8, operators of version 17) with weights in float, which
/// onnxruntime and others read. Images and weights are in the order (N, C, H, W) whatever the network's layout, so
/// both layouts give the same file. Dropout is left out; the loss is not part of the model: add nn::softmax where a
/// program expects probabilities. Element-wise functions become their steps.
///
///   io::save_onnx(net, "model.onnx");
///
/// @param path  replaced if it exists. Files PATH.data and PATH.data-NUMBER belong to the model: a save with external
///              data removes those of earlier saves
/// @throws configuration_error unless the network is compiled, or for a layer that has no ONNX operators
/// @throws format_error when a file cannot be written; an older model and its data stay
template <class Element, class Layout, class Device>
void save_onnx(nn::network<Element, Layout, Device>& network, const std::filesystem::path& path,
               const onnx_options& options = {}) {
  at_call(options.where, [&] {
    if (!network.structure().compiled()) {
      raise<configuration_error>("io::save_onnx", "a compiled network", "one that is still being built",
                                 "call compile({.max_batch_size = ...}) first");
    }
    const std::vector<detail::onnx_weight> weights = detail::onnx_weights(network);
    std::size_t bytes = 0;
    for (const detail::onnx_weight& each : weights) {
      bytes += each.values.size() * sizeof(float);
    }
    const bool external = options.external_data || bytes > 2'000'000'000;
    detail::onnx_model_files files{path};
    detail::onnx_graph graph{external ? files.choose_data_name() : std::string{}};
    detail::onnx_exporter{network.structure(), weights, options.batch_size, graph}.run(options.input_name,
                                                                                       options.output_name);
    const std::string model = graph.model(gradus::version, path.stem().string());
    if (external) {
      files.write(model, graph.external().bytes);
    } else {
      files.write(model);
    }
  });
}

}  // namespace gradus::io
