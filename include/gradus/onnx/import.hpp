// SPDX-License-Identifier: BSL-1.0
//
// Reads ONNX files as networks. The component gradus::onnx.
#pragma once

#include <array>         // std::array
#include <cstddef>       // std::size_t
#include <filesystem>    // std::filesystem::path
#include <span>          // std::span
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::error_code
#include <type_traits>   // std::is_same_v, std::remove_cvref_t, std::type_identity_t
#include <utility>       // std::move
#include <variant>       // std::visit
#include <vector>        // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/mapped_file.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/graph_import.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"
#include "gradus/onnx/operators.hpp"

namespace gradus::io {

namespace detail {

/// A network of one element type, layout and device that a model is added to.
template <class Network>
class onnx_network final : public onnx_target {
 public:
  onnx_network(Network& net, const custom_operators<Network>& own, error_location where)
      : net_{net}, own_{own}, where_{where} {}

  [[nodiscard]] nn::value add(const std::string& name, const imported_options& options,
                              std::span<const nn::value> inputs) override {
    const auto add_layer = [&, this](const auto& layer) {
      return net_.add(name, layer, nn::input_list{std::vector<nn::value>(inputs.begin(), inputs.end())}, where_);
    };
    return std::visit(
        [&](const auto& each) {
          using type = std::remove_cvref_t<decltype(each)>;
          if constexpr (std::is_same_v<type, onnx_function_layer>) {
            return add_function(each, add_layer);
          } else if constexpr (std::is_same_v<type, onnx_clip>) {
            return add_layer(
                nn::elementwise([low = each.low, high = each.high](auto x) { return clamp(x, low, high); }));
          } else if constexpr (requires { each.weight_initializer; }) {
            type layer = each;
            layer.weight_initializer = nn::zeros();  // the file has the weights
            return add_layer(layer);
          } else {
            return add_layer(each);
          }
        },
        options);
  }

  [[nodiscard]] const nn::value_shape& shape(nn::value v) const override { return net_.shape(v, where_); }

  [[nodiscard]] std::span<const nn::graph_node> layers() const override { return net_.structure().nodes(); }

  void freeze(const std::string& name) override { net_.freeze(name, {}, where_); }

  [[nodiscard]] std::string custom_names() const override {
    std::string names;
    for (const auto& each : own_) {
      append_text(names, {names.empty() ? "" : ", ", each.first});
    }
    return names;
  }
  [[nodiscard]] bool has_custom(std::string_view name) const override { return own_.contains(name); }
  [[nodiscard]] custom_result translate_custom(std::string_view name, custom_operator& op) override {
    return own_.find(name)->second(net_, op);
  }

 private:
  Network& net_;
  const custom_operators<Network>& own_;
  error_location where_;
};

}  // namespace detail

/// Extents of one image where a model leaves them open. 0: the file has them.
///
///   auto net = io::load_onnx<float>(device, "model.onnx", {.max_batch_size = 16}, {.height = 224, .width = 224});
struct onnx_extents {
  index_t channels = 0;  ///< C
  index_t height = 0;    ///< H; L of signals (N, C, L)
  index_t width = 0;     ///< W
};

/// A network in an ONNX file: what io::save_onnx writes, and what torch.onnx.export writes of networks whose layers
/// the library has (docs/onnx.md lists the operators).
///
///   io::onnx_model model{"model.onnx"};
///   nn::network<float> net{device, model.input()};
///   const nn::value scores = model.add_to(net, net.input());
///   net.loss(nn::softmax_cross_entropy{}, scores);  // to go on training
///   net.compile({.max_batch_size = 32});
///   model.assign_weights(net);
///
/// load_onnx does it in one line, without a loss. Layers have the names of their weights in the file, or of the
/// operators.
class onnx_model {
 public:
  /// Reads the file, and files of external data next to it.
  /// @param open  extents of one image that the file leaves open
  /// @throws format_error when a file cannot be read or is damaged
  /// @throws configuration_error when extents are missing or differ from those of the file
  explicit onnx_model(const std::filesystem::path& path, const onnx_extents& open = {},
                      error_location where = error_location::current()) {
    at_call(where, [&, this] {
      const mapped_file file{path.string()};
      const std::string_view bytes{reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
      std::error_code unknown;
      content_ = detail::onnx_reader{bytes, path.parent_path().empty() ? "." : path.parent_path(),
                                     std::filesystem::canonical(path, unknown).parent_path()}
                     .take();
      check(path.string(), open);
    });
  }

  /// Reads a model from memory; one with external data is refused.
  /// @throws format_error when it is damaged
  static onnx_model from_bytes(std::string_view bytes, const onnx_extents& open = {},
                               error_location where = error_location::current()) {
    onnx_model result;
    at_call(where, [&] {
      result.content_ = detail::onnx_reader{bytes, {}}.take();
      result.check("in memory", open);
    });
    return result;
  }

  /// The shape of one image.
  [[nodiscard]] const nn::value_shape& input() const noexcept { return input_; }

  /// Adds the layers of the model to a network and returns the value of the first output.
  /// @param images  a value of the shape input()
  /// @param own  functions that translate operators
  /// @throws configuration_error, shape_error for an operator that the layers cannot compute; the message names it
  template <class Network>
  nn::value add_to(Network& net, nn::value images, const std::type_identity_t<custom_operators<Network>>& own = {},
                   error_location where = error_location::current()) {
    return at_call(where, [&, this] {
      if (net.shape(images) != input_) {
        raise<shape_error>("onnx_model.add_to", nn::describe(input_), nn::describe(net.shape(images)),
                           "make the network with the shape model.input()");
      }
      detail::onnx_network<Network> target{net, own, where};
      detail::onnx_importer importer{content_, target};
      const nn::value result = importer.run(images);
      weights_ = importer.take_weights();
      return result;
    });
  }

  /// Gives the weights and running statistics of the file to the layers that add_to made.
  /// @throws configuration_error when the network is not compiled, or add_to was not called for it
  template <class Network>
  void assign_weights(Network& net, error_location where = error_location::current()) const {
    using number = parameter_element_t<typename Network::element_type>;
    at_call(where, [&, this] {
      for (const detail::imported_weight& each : weights_) {
        const std::vector<number> values(each.values.begin(), each.values.end());
        bool is_buffer = false;
        for (const auto& buffer : net.buffers()) {
          if (buffer.name == each.name) {
            is_buffer = true;
            if (static_cast<std::size_t>(buffer.elements.size()) != values.size()) {
              raise<shape_error>("onnx_model.assign_weights",
                                 {buffer.elements.size(), " numbers for '", each.name, "'"}, {values.size()});
            }
            net.device().copy_from_host(buffer.elements.data(), values.data(), values.size() * sizeof(number));
          }
        }
        if (!is_buffer) {
          net.find_parameter(each.name).assign_values(values);
        }
      }
    });
  }

 private:
  onnx_model() = default;

  void check(const std::string& name, const onnx_extents& open) {
    if (content_.inputs.size() != 1 || content_.outputs.empty()) {
      raise<configuration_error>({"ONNX model ", name}, "one input and an output",
                                 {content_.inputs.size(), " inputs and ", content_.outputs.size(), " outputs"});
    }
    std::vector<index_t>& dims = content_.inputs.front().dims;
    const std::array<index_t, 4> given{0, open.channels, open.height, open.width};
    const std::array<std::string_view, 4> names{"", "channels", "height", "width"};
    if (dims.size() < 2 || dims.size() > 4) {
      raise<configuration_error>({"ONNX model ", name},
                                 "an input of images (N, C, H, W), signals (N, C, L) or vectors (N, C)",
                                 {dims.size(), " axes"});
    }
    double elements = 1;
    for (std::size_t k = 1; k < 4; ++k) {
      const index_t extent = k < dims.size() ? dims[k] : index_t{1};
      if (given[k] < 0 || (given[k] != 0 && extent > 0 && given[k] != extent)) {
        raise<configuration_error>({"ONNX model ", name}, {names[k], " = ", extent, ", as in the file"}, {given[k]},
                                   "leave out the extents that the file fixes");
      }
      if (k < dims.size()) {
        dims[k] = extent > 0 ? extent : given[k];
        if (dims[k] == 0) {
          raise<configuration_error>({"ONNX model ", name}, "the extents of one image",
                                     {"open ", names[k], " of the input '", content_.inputs.front().name, "'"},
                                     {"write io::load_onnx<float>(device, path, options, {.", names[k], " = 224})"});
        }
        elements *= static_cast<double>(dims[k]);
      }
    }
    if (!(elements < 0x1p32)) {
      raise<configuration_error>({"ONNX model ", name}, "images of fewer than 2^32 elements", {elements});
    }
    input_ = {dims[1], dims.size() > 2 ? dims[2] : index_t{1}, dims.size() > 3 ? dims[3] : index_t{1}};
  }

  detail::onnx_content content_;
  nn::value_shape input_;
  std::vector<detail::imported_weight> weights_;
};

/// Reads an ONNX file as a compiled network with its weights.
///
///   auto net = io::load_onnx<float, nhwc>(device, "model.onnx", {.max_batch_size = 16});
///   const auto scores = net.forward(images);
///
/// @param open  extents of one image that the file leaves open
/// @param own  functions that translate operators
/// @throws format_error, configuration_error, shape_error as onnx_model
template <class Element, class Layout = nchw, class Device = cpu>
[[nodiscard]] nn::network<Element, Layout, Device> load_onnx(
    Device& device, const std::filesystem::path& path, const nn::compile_options& options,
    const onnx_extents& open = {}, const custom_operators<nn::network<Element, Layout, Device>>& own = {},
    error_location where = error_location::current()) {
  return at_call(where, [&] {
    onnx_model model{path, open};
    nn::network<Element, Layout, Device> net{device, model.input()};
    (void)model.add_to(net, net.input(), own);
    net.compile(options);
    model.assign_weights(net);
    return net;
  });
}

}  // namespace gradus::io
