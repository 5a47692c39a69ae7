// SPDX-License-Identifier: BSL-1.0
//
// Reads the content of an ONNX file. Files are hostile until they are checked.
#pragma once

#include <cstddef>      // std::ptrdiff_t, std::size_t
#include <filesystem>   // std::filesystem::path
#include <memory>       // std::make_shared
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include <protozero/exception.hpp>

#include "gradus/core/index.hpp"
#include "gradus/onnx/detail/model/constant_reader.hpp"
#include "gradus/onnx/detail/model/content.hpp"
#include "gradus/onnx/detail/model/external_data.hpp"
#include "gradus/onnx/detail/model/message.hpp"

namespace gradus::io::detail {

/// Reads the messages of one file.
class onnx_reader {
 public:
  /// @param bytes   the content; it is not referred to after the call
  /// @param folder  where files of external data are looked for; empty: such models are refused
  /// @param real    see onnx_external_data
  onnx_reader(std::string_view bytes, std::filesystem::path folder, std::filesystem::path real = {})
      : files_{std::move(folder), std::move(real)} {
    try {
      onnx_message model{bytes};
      bool has_graph = false;
      while (model.next()) {
        switch (model.tag()) {
          case 7:
            if (has_graph) {
              raise_bad_onnx("one graph", "two");
            }
            has_graph = true;
            read_graph(model.message(), content_, 0);
            break;
          case 8:
            read_opset(model.message());
            break;
          default:
            model.skip();
        }
      }
      if (!has_graph) {
        raise_bad_onnx("a model with a graph", "none");
      }
    } catch (const protozero::exception& failure) {
      raise_bad_onnx("messages of onnx.proto", failure.what());
    }
    for (std::size_t k = 0; k < content_.inputs.size();) {
      if (content_.constants.contains(content_.inputs[k].name)) {
        content_.inputs.erase(content_.inputs.begin() + static_cast<std::ptrdiff_t>(k));
      } else {
        ++k;
      }
    }
  }

  [[nodiscard]] onnx_content take() { return std::move(content_); }

 private:
  void read_opset(onnx_message opset) {
    std::string domain;
    index_t version = 0;
    while (opset.next()) {
      switch (opset.tag()) {
        case 1:
          domain = opset.text();
          break;
        case 2:
          version = opset.integer();
          break;
        default:
          opset.skip();
      }
    }
    if (domain.empty() || domain == "ai.onnx") {
      content_.opset = version;
    }
  }

  /// @param depth  of the attributes that the graph is in
  void read_graph(onnx_message graph, onnx_content& to, int depth) {
    while (graph.next()) {
      switch (graph.tag()) {
        case 1:
          to.operators.push_back(read_operator(graph.message(), depth));
          break;
        case 5: {
          std::string name;
          onnx_constant made = onnx_constant_reader::read(graph.message(), files_, &name);
          if (!to.constants.emplace(name, std::move(made)).second) {
            raise_bad_onnx("constants of different names", {"'", name, "' twice"});
          }
          break;
        }
        case 11:
          to.inputs.push_back(read_value(graph.message()));
          break;
        case 12:
          to.outputs.push_back(read_value(graph.message()));
          break;
        case 15:
          raise_unread_onnx("a graph without sparse constants", "some",
                            "sparse constants are not read: export the model with dense ones");
        default:
          graph.skip();
      }
    }
  }

  [[nodiscard]] onnx_operator read_operator(onnx_message node, int depth) {
    onnx_operator result;
    while (node.next()) {
      switch (node.tag()) {
        case 1:
          result.inputs.push_back(node.text());
          break;
        case 2:
          result.outputs.push_back(node.text());
          break;
        case 3:
          result.name = node.text();
          break;
        case 4:
          result.op_type = node.text();
          break;
        case 5: {
          std::string name;
          onnx_attribute made = read_attribute(node.message(), name, depth);
          result.attributes.insert_or_assign(name, std::move(made));
          break;
        }
        case 7:
          result.domain = node.text();
          break;
        default:
          node.skip();
      }
    }
    return result;
  }

  [[nodiscard]] onnx_attribute read_attribute(onnx_message attribute, std::string& name, int depth) {
    onnx_attribute result;
    while (attribute.next()) {
      switch (attribute.tag()) {
        case 1:
          name = attribute.text();
          break;
        case 2:
          result.real = static_cast<double>(attribute.number());
          break;
        case 3:
          result.integer = attribute.integer();
          break;
        case 4:
          result.text = attribute.text();
          break;
        case 5:
          result.tensor = onnx_constant_reader::read(attribute.message(), files_);
          break;
        case 6: {
          if (depth == most_depth) {
            raise_unread_onnx({"graphs in at most ", most_depth, " graphs"}, "more", "such models are not read");
          }
          auto graph = std::make_shared<onnx_content>();
          read_graph(attribute.message(), *graph, depth + 1);
          result.graph = std::move(graph);
          break;
        }
        case 7:
          attribute.append_to(result.tensor.numbers);
          break;
        case 8:
          attribute.append_to(result.integers);
          break;
        default:
          attribute.skip();
      }
    }
    return result;
  }

  [[nodiscard]] static onnx_value read_value(onnx_message value) {
    onnx_value result;
    while (value.next()) {
      switch (value.tag()) {
        case 1:
          result.name = value.text();
          break;
        case 2: {
          onnx_message type = value.message();
          while (type.next(1)) {
            onnx_message tensor = type.message();
            while (tensor.next()) {
              if (tensor.tag() == 1) {
                result.element_type = tensor.integer();
              } else if (tensor.tag() == 2) {
                result.dims = read_dims(tensor.message());
              } else {
                tensor.skip();
              }
            }
          }
          break;
        }
        default:
          value.skip();
      }
    }
    return result;
  }

  [[nodiscard]] static std::vector<index_t> read_dims(onnx_message shape) {
    std::vector<index_t> dims;
    while (shape.next(1)) {
      onnx_message dim = shape.message();
      index_t extent = 0;
      while (dim.next()) {
        if (dim.tag() == 1) {
          extent = dim.integer();
        } else {
          dim.skip();
        }
      }
      dims.push_back(extent < 0 ? 0 : extent);
    }
    return dims;
  }

  static constexpr int most_depth = 8;  // of branches in branches

  onnx_external_data files_;
  onnx_content content_;
};

}  // namespace gradus::io::detail
