// SPDX-License-Identifier: BSL-1.0
//
// The messages of an ONNX file, written with protozero: IR version 8, operators of version 17.
#pragma once

#include <cstddef>           // std::size_t
#include <cstdint>           // std::int32_t, std::int64_t
#include <initializer_list>  // std::initializer_list
#include <set>               // std::set
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move
#include <vector>            // std::vector

#include <protozero/pbf_writer.hpp>

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::io::detail {

/// Field numbers of onnx.proto.
namespace onnx_field {
inline constexpr protozero::pbf_tag_type attribute_name = 1, attribute_f = 2, attribute_i = 3, attribute_s = 4,
                                         attribute_ints = 8, attribute_type = 20;
inline constexpr protozero::pbf_tag_type node_input = 1, node_output = 2, node_name = 3, node_op_type = 4,
                                         node_attribute = 5, node_domain = 7;
inline constexpr protozero::pbf_tag_type tensor_dims = 1, tensor_data_type = 2, tensor_name = 8, tensor_raw_data = 9,
                                         tensor_external_data = 13, tensor_data_location = 14;
inline constexpr protozero::pbf_tag_type entry_key = 1, entry_value = 2;
inline constexpr protozero::pbf_tag_type value_name = 1, value_type = 2, type_tensor = 1, tensor_type_element = 1,
                                         tensor_type_shape = 2, shape_dim = 1, dim_value = 1, dim_param = 2;
inline constexpr protozero::pbf_tag_type graph_node = 1, graph_name = 2, graph_initializer = 5, graph_input = 11,
                                         graph_output = 12;
inline constexpr protozero::pbf_tag_type model_ir_version = 1, model_producer_name = 2, model_producer_version = 3,
                                         model_graph = 7, model_opset_import = 8, opset_domain = 1, opset_version = 2;
}  // namespace onnx_field

/// Element types of onnx.proto.
inline constexpr std::int32_t onnx_float = 1;
inline constexpr std::int32_t onnx_int64 = 7;

/// One operator: its inputs, outputs and attributes.
class onnx_node {
 public:
  onnx_node(std::string_view op_type, std::string_view name, std::initializer_list<std::string_view> inputs,
            std::initializer_list<std::string_view> outputs)
      : onnx_node{op_type, name, std::span<const std::string_view>{inputs.begin(), inputs.size()}, outputs} {}
  onnx_node(std::string_view op_type, std::string_view name, std::span<const std::string_view> inputs,
            std::initializer_list<std::string_view> outputs) {
    protozero::pbf_writer writer{bytes_};
    for (const std::string_view each : inputs) {
      writer.add_string(onnx_field::node_input, each.data(), each.size());
    }
    for (const std::string_view each : outputs) {
      writer.add_string(onnx_field::node_output, each.data(), each.size());
    }
    writer.add_string(onnx_field::node_name, name.data(), name.size());
    writer.add_string(onnx_field::node_op_type, op_type.data(), op_type.size());
  }

  onnx_node& integer(std::string_view name, std::int64_t value) {
    return attribute(name, 2, [&](protozero::pbf_writer& to) { to.add_int64(onnx_field::attribute_i, value); });
  }
  onnx_node& real(std::string_view name, double value) {
    return attribute(
        name, 1, [&](protozero::pbf_writer& to) { to.add_float(onnx_field::attribute_f, static_cast<float>(value)); });
  }
  onnx_node& text(std::string_view name, std::string_view value) {
    return attribute(
        name, 3, [&](protozero::pbf_writer& to) { to.add_bytes(onnx_field::attribute_s, value.data(), value.size()); });
  }
  onnx_node& integers(std::string_view name, std::initializer_list<index_t> values) {
    return integers(name, std::span{values.begin(), values.size()});
  }
  onnx_node& integers(std::string_view name, std::span<const index_t> values) {
    return attribute(name, 7, [&](protozero::pbf_writer& to) {
      for (const index_t each : values) {
        to.add_int64(onnx_field::attribute_ints, each);
      }
    });
  }

  /// An attribute of any of these types.
  onnx_node& any(std::string_view name, index_t value) { return integer(name, value); }
  onnx_node& any(std::string_view name, double value) { return real(name, value); }
  onnx_node& any(std::string_view name, const std::string& value) { return text(name, value); }
  onnx_node& any(std::string_view name, const std::vector<index_t>& values) { return integers(name, values); }

  /// The domain of an operator that is not ONNX's own.
  void set_domain(std::string_view name) {
    protozero::pbf_writer{bytes_}.add_string(onnx_field::node_domain, name.data(), name.size());
  }

  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  template <class Write>
  onnx_node& attribute(std::string_view name, std::int32_t type, const Write& write) {
    std::string content;
    protozero::pbf_writer writer{content};
    writer.add_string(onnx_field::attribute_name, name.data(), name.size());
    write(writer);
    writer.add_enum(onnx_field::attribute_type, type);
    protozero::pbf_writer{bytes_}.add_message(onnx_field::node_attribute, content);
    return *this;
  }

  std::string bytes_;
};

/// Where the bytes of constants go: into the model's file, or into another one that it names.
struct onnx_external_file {
  std::string name;        ///< without its folder; empty: constants stay in the model
  std::string bytes = {};  ///< what the file holds
};

/// A graph under construction.
class onnx_graph {
 public:
  explicit onnx_graph(std::string external_name) : external_{std::move(external_name)} {}

  void add(const onnx_node& node) { protozero::pbf_writer{bytes_}.add_message(onnx_field::graph_node, node.bytes()); }

  /// Puts an operator into a domain, of which the model uses version 1.
  void use_domain(onnx_node& node, const std::string& name) {
    node.set_domain(name);
    domains_.insert(name);
  }

  /// A constant of float or of 64-bit integers, from its bytes in the order of a little-endian machine.
  void constant(std::string_view name, std::int32_t element, std::span<const index_t> dims, std::string_view raw) {
    std::string content;
    protozero::pbf_writer writer{content};
    for (const index_t each : dims) {
      writer.add_int64(onnx_field::tensor_dims, each);
    }
    writer.add_int32(onnx_field::tensor_data_type, element);
    writer.add_string(onnx_field::tensor_name, name.data(), name.size());
    if (external_.name.empty() || raw.size() < smallest_external) {
      writer.add_bytes(onnx_field::tensor_raw_data, raw.data(), raw.size());
    } else {
      external_.bytes.resize((external_.bytes.size() + page - 1) / page * page);
      entry(writer, "location", external_.name);
      entry(writer, "offset", std::to_string(external_.bytes.size()));
      entry(writer, "length", std::to_string(raw.size()));
      writer.add_enum(onnx_field::tensor_data_location, 1);
      external_.bytes.append(raw);
    }
    protozero::pbf_writer{bytes_}.add_message(onnx_field::graph_initializer, content);
  }

  /// The input or output of the model; an extent of 0 has the name "N".
  void value(bool input, std::string_view name, std::span<const index_t> dims) {
    std::string shape;
    for (const index_t each : dims) {
      std::string dim;
      if (each == 0) {
        protozero::pbf_writer{dim}.add_string(onnx_field::dim_param, "N");
      } else {
        protozero::pbf_writer{dim}.add_int64(onnx_field::dim_value, each);
      }
      protozero::pbf_writer{shape}.add_message(onnx_field::shape_dim, dim);
    }
    std::string tensor;
    protozero::pbf_writer{tensor}.add_int32(onnx_field::tensor_type_element, onnx_float);
    protozero::pbf_writer{tensor}.add_message(onnx_field::tensor_type_shape, shape);
    std::string type;
    protozero::pbf_writer{type}.add_message(onnx_field::type_tensor, tensor);
    std::string content;
    protozero::pbf_writer writer{content};
    writer.add_string(onnx_field::value_name, name.data(), name.size());
    writer.add_message(onnx_field::value_type, type);
    protozero::pbf_writer{bytes_}.add_message(input ? onnx_field::graph_input : onnx_field::graph_output, content);
  }

  /// The whole file.
  [[nodiscard]] std::string model(std::string_view producer_version, std::string_view name) {
    protozero::pbf_writer{bytes_}.add_string(onnx_field::graph_name, name.data(), name.size());
    std::string result;
    protozero::pbf_writer writer{result};
    writer.add_int64(onnx_field::model_ir_version, 8);
    writer.add_string(onnx_field::model_producer_name, "gradus");
    writer.add_string(onnx_field::model_producer_version, producer_version.data(), producer_version.size());
    writer.add_message(onnx_field::model_graph, bytes_);
    std::string opset;
    protozero::pbf_writer{opset}.add_int64(onnx_field::opset_version, 17);
    writer.add_message(onnx_field::model_opset_import, opset);
    for (const std::string& each : domains_) {
      std::string own;
      protozero::pbf_writer{own}.add_string(onnx_field::opset_domain, each.data(), each.size());
      protozero::pbf_writer{own}.add_int64(onnx_field::opset_version, 1);
      writer.add_message(onnx_field::model_opset_import, own);
    }
    return result;
  }

  [[nodiscard]] const onnx_external_file& external() const noexcept { return external_; }

 private:
  static constexpr std::size_t page = 4096;               // the offset of a constant is a multiple
  static constexpr std::size_t smallest_external = 1024;  // bytes

  static void entry(protozero::pbf_writer& tensor, std::string_view key, std::string_view text) {
    std::string content;
    protozero::pbf_writer writer{content};
    writer.add_string(onnx_field::entry_key, key.data(), key.size());
    writer.add_string(onnx_field::entry_value, text.data(), text.size());
    tensor.add_message(onnx_field::tensor_external_data, content);
  }

  std::string bytes_;
  std::set<std::string> domains_;  // besides ONNX's own
  onnx_external_file external_;
};

}  // namespace gradus::io::detail
