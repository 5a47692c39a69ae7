// SPDX-License-Identifier: BSL-1.0
//
// The messages of an ONNX file, read with protozero. Files are hostile until they are checked.
#pragma once

#include <cstddef>      // std::ptrdiff_t, std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint16_t, std::uint8_t
#include <cstring>      // std::memcpy
#include <filesystem>   // std::filesystem::path
#include <functional>   // std::less
#include <limits>       // std::numeric_limits
#include <map>          // std::map
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_arithmetic_v
#include <utility>      // std::move
#include <vector>       // std::vector

#include <protozero/pbf_reader.hpp>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/mapped_file.hpp"

namespace gradus::io::detail {

/// A constant of a model. Integers and numbers are both converted, whatever its element type is.
struct onnx_constant {
  std::vector<index_t> dims = {};
  std::vector<float> numbers = {};     // of float, double, float16 and bfloat16
  std::vector<index_t> integers = {};  // of 32 and 64 bits, and bool

  [[nodiscard]] std::size_t size() const noexcept { return numbers.size() + integers.size(); }
};

/// An attribute; which member counts depends on the operator.
struct onnx_attribute {
  double real = 0;
  index_t integer = 0;
  std::string text = {};
  std::vector<index_t> integers = {};
  onnx_constant tensor = {};
};

/// One operator of a model.
struct onnx_operator {
  std::string name;
  std::string op_type;
  std::string domain;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, onnx_attribute, std::less<>> attributes;
};

/// An input or output of a model. Extents that have a name, or none, are 0.
struct onnx_value {
  std::string name;
  std::vector<index_t> dims;
};

/// A model as it is in the file.
struct onnx_content {
  index_t opset = 0;
  std::vector<onnx_operator> operators;
  std::map<std::string, onnx_constant, std::less<>> constants;
  std::vector<onnx_value> inputs;  // without those that are constants
  std::vector<onnx_value> outputs;
};

/// Reads the messages of one file.
class onnx_reader {
 public:
  /// @param bytes   the content; it is not referred to after the call
  /// @param folder  where files of external data are looked for; empty: such models are refused
  onnx_reader(std::string_view bytes, std::filesystem::path folder) : folder_{std::move(folder)} {
    try {
      protozero::pbf_reader model{bytes.data(), bytes.size()};
      bool has_graph = false;
      while (model.next()) {
        switch (model.tag()) {
          case 7:
            if (has_graph) {
              bad("one graph", "two");
            }
            has_graph = true;
            read_graph(message_of(model));
            break;
          case 8:
            read_opset(message_of(model));
            break;
          default:
            model.skip();
        }
      }
      if (!has_graph) {
        bad("a model with a graph", "none");
      }
    } catch (const protozero::exception& failure) {
      bad("messages of onnx.proto", failure.what());
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
  static constexpr index_t most_elements = index_t{1} << 40;

  [[noreturn]] static void bad(message_part expected, message_part actual) {
    raise<format_error>("ONNX model", expected, actual, "the file is damaged, or is no ONNX model");
  }

  // The getters of protozero take a field of the right wire type for granted.
  static void require_type(const protozero::pbf_reader& message, protozero::pbf_wire_type type) {
    if (message.wire_type() != type) {
      bad({"wire type ", static_cast<int>(type), " of field ", message.tag()}, {static_cast<int>(message.wire_type())});
    }
  }
  [[nodiscard]] static std::string_view view_of(protozero::pbf_reader& message) {
    require_type(message, protozero::pbf_wire_type::length_delimited);
    const protozero::data_view view = message.get_view();
    return {view.data(), view.size()};
  }
  [[nodiscard]] static std::string text_of(protozero::pbf_reader& message) { return std::string{view_of(message)}; }
  [[nodiscard]] static protozero::pbf_reader message_of(protozero::pbf_reader& message) {
    require_type(message, protozero::pbf_wire_type::length_delimited);
    return message.get_message();
  }
  [[nodiscard]] static index_t integer_of(protozero::pbf_reader& message) {
    require_type(message, protozero::pbf_wire_type::varint);
    return message.get_int64();
  }
  [[nodiscard]] static float float_of(protozero::pbf_reader& message) {
    require_type(message, protozero::pbf_wire_type::fixed32);
    return message.get_float();
  }

  /// A repeated field of integers, packed or not.
  static void append_integers(protozero::pbf_reader& message, std::vector<index_t>& to) {
    if (message.wire_type() == protozero::pbf_wire_type::length_delimited) {
      for (const std::int64_t each : message.get_packed_int64()) {
        to.push_back(each);
      }
    } else {
      to.push_back(integer_of(message));
    }
  }
  static void append_floats(protozero::pbf_reader& message, std::vector<float>& to) {
    if (message.wire_type() == protozero::pbf_wire_type::length_delimited) {
      for (const float each : message.get_packed_float()) {
        to.push_back(each);
      }
    } else {
      to.push_back(float_of(message));
    }
  }
  static void append_doubles(protozero::pbf_reader& message, std::vector<double>& to) {
    if (message.wire_type() == protozero::pbf_wire_type::length_delimited) {
      for (const double each : message.get_packed_double()) {
        to.push_back(each);
      }
    } else {
      require_type(message, protozero::pbf_wire_type::fixed64);
      to.push_back(message.get_double());
    }
  }

  void read_opset(protozero::pbf_reader opset) {
    std::string domain;
    index_t version = 0;
    while (opset.next()) {
      switch (opset.tag()) {
        case 1:
          domain = text_of(opset);
          break;
        case 2:
          version = integer_of(opset);
          break;
        default:
          opset.skip();
      }
    }
    if (domain.empty() || domain == "ai.onnx") {
      content_.opset = version;
    }
  }

  void read_graph(protozero::pbf_reader graph) {
    while (graph.next()) {
      switch (graph.tag()) {
        case 1:
          content_.operators.push_back(read_operator(message_of(graph)));
          break;
        case 5: {
          std::string name;
          onnx_constant made = read_tensor(message_of(graph), &name);
          if (!content_.constants.emplace(name, std::move(made)).second) {
            bad("constants of different names", {"'", name, "' twice"});
          }
          break;
        }
        case 11:
          content_.inputs.push_back(read_value(message_of(graph)));
          break;
        case 12:
          content_.outputs.push_back(read_value(message_of(graph)));
          break;
        case 15:
          bad("a graph without sparse constants", "some");
        default:
          graph.skip();
      }
    }
  }

  [[nodiscard]] onnx_operator read_operator(protozero::pbf_reader node) {
    onnx_operator result;
    while (node.next()) {
      switch (node.tag()) {
        case 1:
          result.inputs.push_back(text_of(node));
          break;
        case 2:
          result.outputs.push_back(text_of(node));
          break;
        case 3:
          result.name = text_of(node);
          break;
        case 4:
          result.op_type = text_of(node);
          break;
        case 5: {
          std::string name;
          onnx_attribute made = read_attribute(message_of(node), name);
          result.attributes.insert_or_assign(name, std::move(made));
          break;
        }
        case 7:
          result.domain = text_of(node);
          break;
        default:
          node.skip();
      }
    }
    return result;
  }

  [[nodiscard]] onnx_attribute read_attribute(protozero::pbf_reader attribute, std::string& name) {
    onnx_attribute result;
    while (attribute.next()) {
      switch (attribute.tag()) {
        case 1:
          name = text_of(attribute);
          break;
        case 2:
          result.real = static_cast<double>(float_of(attribute));
          break;
        case 3:
          result.integer = integer_of(attribute);
          break;
        case 4:
          result.text = text_of(attribute);
          break;
        case 5:
          result.tensor = read_tensor(message_of(attribute), nullptr);
          break;
        case 7:
          append_floats(attribute, result.tensor.numbers);
          break;
        case 8:
          append_integers(attribute, result.integers);
          break;
        default:
          attribute.skip();
      }
    }
    return result;
  }

  [[nodiscard]] static onnx_value read_value(protozero::pbf_reader value) {
    onnx_value result;
    while (value.next()) {
      switch (value.tag()) {
        case 1:
          result.name = text_of(value);
          break;
        case 2: {
          protozero::pbf_reader type = message_of(value);
          while (type.next(1)) {
            protozero::pbf_reader tensor = message_of(type);
            while (tensor.next(2)) {
              result.dims = read_dims(message_of(tensor));
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

  [[nodiscard]] static std::vector<index_t> read_dims(protozero::pbf_reader shape) {
    std::vector<index_t> dims;
    while (shape.next(1)) {
      protozero::pbf_reader dim = message_of(shape);
      index_t extent = 0;
      while (dim.next()) {
        if (dim.tag() == 1) {
          extent = integer_of(dim);
        } else {
          dim.skip();
        }
      }
      dims.push_back(extent < 0 ? 0 : extent);
    }
    return dims;
  }

  [[nodiscard]] onnx_constant read_tensor(protozero::pbf_reader tensor, std::string* name) {
    onnx_constant result;
    index_t type = 0;
    bool external = false;
    bool has_raw = false;
    std::string_view raw;
    std::string in_file;
    std::vector<float> floats;
    std::vector<index_t> integers;
    std::vector<double> doubles;
    std::map<std::string, std::string> entries;
    while (tensor.next()) {
      switch (tensor.tag()) {
        case 1:
          append_integers(tensor, result.dims);
          break;
        case 2:
          type = integer_of(tensor);
          break;
        case 4:
          append_floats(tensor, floats);
          break;
        case 5:  // 32 bits and less
        case 7:  // 64 bits
          append_integers(tensor, integers);
          break;
        case 8:
          if (name != nullptr) {
            *name = text_of(tensor);
          } else {
            tensor.skip();
          }
          break;
        case 9: {
          raw = view_of(tensor);
          has_raw = true;
          break;
        }
        case 10:
          append_doubles(tensor, doubles);
          break;
        case 13: {
          protozero::pbf_reader entry = message_of(tensor);
          std::string key;
          std::string text;
          while (entry.next()) {
            if (entry.tag() == 1) {
              key = text_of(entry);
            } else if (entry.tag() == 2) {
              text = text_of(entry);
            } else {
              entry.skip();
            }
          }
          entries[key] = text;
          break;
        }
        case 14:
          external = integer_of(tensor) == 1;
          break;
        default:
          tensor.skip();
      }
    }
    index_t elements = 1;
    for (const index_t extent : result.dims) {
      if (extent < 0 || (extent > 0 && elements > most_elements / extent)) {
        bad({"extents of at least 0 and less than ", most_elements, " elements"}, {extent});
      }
      elements *= extent;
    }
    if (external) {
      in_file = external_bytes(entries);
      raw = in_file;
      has_raw = true;
    }
    const auto count = static_cast<std::size_t>(elements);
    switch (type) {
      case 1:
        fill<float>(raw, has_raw, count, floats, result.numbers);
        break;
      case 10:
        fill<float16>(raw, has_raw, count, integers, result.numbers);
        break;
      case 11:
        fill<double>(raw, has_raw, count, doubles, result.numbers);
        break;
      case 16:
        fill<bfloat16>(raw, has_raw, count, integers, result.numbers);
        break;
      case 6:
        fill<std::int32_t>(raw, has_raw, count, integers, result.integers);
        break;
      case 7:
        fill<std::int64_t>(raw, has_raw, count, integers, result.integers);
        break;
      case 9:
        fill<std::uint8_t>(raw, has_raw, count, integers, result.integers);
        break;
      default:
        bad("constants of float, double, float16, bfloat16, int32, int64 or bool", {"element type ", type});
    }
    return result;
  }

  /// The elements from raw bytes, or from a field of numbers; of 16 bits, numbers are bit patterns.
  template <class Stored, class Field, class Result>
  static void fill(std::string_view raw, bool has_raw, std::size_t count, const Field& field, Result& to) {
    using number = typename Result::value_type;
    if (has_raw ? raw.size() % sizeof(Stored) != 0 || raw.size() / sizeof(Stored) != count : field.size() != count) {
      bad({"a constant of ", count, " elements"},
          {has_raw ? raw.size() : field.size(), has_raw ? " bytes" : " elements"});
    }
    to.reserve(count);
    for (std::size_t k = 0; k < count; ++k) {
      Stored value{};
      if (has_raw) {
        std::memcpy(static_cast<void*>(&value), raw.data() + k * sizeof(Stored), sizeof(Stored));
      } else if constexpr (std::is_arithmetic_v<Stored>) {
        value = static_cast<Stored>(field[k]);
      } else {
        const auto pattern = static_cast<std::uint16_t>(field[k]);
        std::memcpy(static_cast<void*>(&value), &pattern, sizeof(pattern));
      }
      to.push_back(static_cast<number>(value));
    }
  }

  /// What a constant refers to in another file of the same folder.
  [[nodiscard]] std::string external_bytes(const std::map<std::string, std::string>& entries) {
    const auto text = [&](const char* key) {
      const auto found = entries.find(key);
      return found == entries.end() ? std::string{} : found->second;
    };
    const std::string location = text("location");
    const std::filesystem::path path{location};
    if (folder_.empty() || location.empty() || path.has_parent_path() || path.is_absolute() || location == "..") {
      bad("external data in a file next to the model", {"'", location, "'"});
    }
    auto found = files_.find(location);
    if (found == files_.end()) {
      found = files_.emplace(location, mapped_file{(folder_ / path).string()}).first;
    }
    const std::span<const std::uint8_t> bytes = found->second.bytes();
    const auto number = [&](const char* key, std::size_t otherwise) {
      const std::string digits = text(key);
      if (digits.empty()) {
        return otherwise;
      }
      std::size_t value = 0;
      for (const char each : digits) {
        if (each < '0' || each > '9' || value > std::numeric_limits<std::size_t>::max() / 10 - 9) {
          bad({"a number of bytes as the ", key, " of external data"}, digits);
        }
        value = 10 * value + static_cast<std::size_t>(each - '0');
      }
      return value;
    };
    const std::size_t offset = number("offset", 0);
    if (offset > bytes.size()) {
      bad({"an offset in the ", bytes.size(), " bytes of '", location, "'"}, {offset});
    }
    const std::size_t length = number("length", bytes.size() - offset);
    if (length > bytes.size() - offset) {
      bad({"data in the ", bytes.size(), " bytes of '", location, "'"}, {length, " bytes at ", offset});
    }
    return {reinterpret_cast<const char*>(bytes.data()) + offset, length};
  }

  std::filesystem::path folder_;
  std::map<std::string, mapped_file> files_;  // of external data
  onnx_content content_;
};

}  // namespace gradus::io::detail
