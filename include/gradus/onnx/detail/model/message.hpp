// SPDX-License-Identifier: BSL-1.0
//
// A message of an ONNX file, read with protozero. The type of each field is checked: files are hostile.
#pragma once

#include <cstdint>      // std::int64_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include <protozero/pbf_reader.hpp>

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io::detail {

/// Raises format_error: a file is no ONNX model.
[[noreturn]] inline void raise_bad_onnx(message_part expected, message_part actual) {
  raise<format_error>("ONNX model", expected, actual, "the file is damaged, or is no ONNX model");
}

/// Raises format_error: a model is ONNX, but has what is not read.
[[noreturn]] inline void raise_unread_onnx(message_part expected, message_part actual, message_part hint) {
  raise<format_error>("ONNX model", expected, actual, hint);
}

/// The fields of a message, one after another: after next() has returned true, tag() tells which field it is, and one
/// function reads or skips it. All throw format_error for a field of another type, and protozero::exception where the
/// bytes end too early.
class onnx_message {
 public:
  explicit onnx_message(std::string_view bytes) : fields_{bytes.data(), bytes.size()} {}

  /// Goes to the next field; false at the end.
  [[nodiscard]] bool next() { return fields_.next(); }
  /// Goes to the next field of this number; false at the end.
  [[nodiscard]] bool next(protozero::pbf_tag_type tag) { return fields_.next(tag); }
  /// The number of the field.
  [[nodiscard]] protozero::pbf_tag_type tag() const { return fields_.tag(); }
  void skip() { fields_.skip(); }

  /// Bytes, which are those of the file.
  [[nodiscard]] std::string_view view() {
    require(protozero::pbf_wire_type::length_delimited);
    const protozero::data_view found = fields_.get_view();
    return {found.data(), found.size()};
  }
  [[nodiscard]] std::string text() { return std::string{view()}; }
  [[nodiscard]] onnx_message message() { return onnx_message{view()}; }
  [[nodiscard]] index_t integer() {
    require(protozero::pbf_wire_type::varint);
    return fields_.get_int64();
  }
  [[nodiscard]] float number() {
    require(protozero::pbf_wire_type::fixed32);
    return fields_.get_float();
  }

  /// A repeated field of integers, packed or not.
  void append_to(std::vector<index_t>& integers) {
    if (is_packed()) {
      for (const std::int64_t each : fields_.get_packed_int64()) {
        integers.push_back(each);
      }
    } else {
      integers.push_back(integer());
    }
  }
  /// A repeated field of floats, packed or not.
  void append_to(std::vector<float>& numbers) {
    if (is_packed()) {
      for (const float each : fields_.get_packed_float()) {
        numbers.push_back(each);
      }
    } else {
      numbers.push_back(number());
    }
  }
  /// A repeated field of doubles, packed or not.
  void append_to(std::vector<double>& numbers) {
    if (is_packed()) {
      for (const double each : fields_.get_packed_double()) {
        numbers.push_back(each);
      }
    } else {
      require(protozero::pbf_wire_type::fixed64);
      numbers.push_back(fields_.get_double());
    }
  }

 private:
  [[nodiscard]] bool is_packed() const { return fields_.wire_type() == protozero::pbf_wire_type::length_delimited; }

  // The getters of protozero take a field of the right wire type for granted.
  void require(protozero::pbf_wire_type type) const {
    if (fields_.wire_type() != type) {
      raise_bad_onnx({"wire type ", static_cast<int>(type), " of field ", fields_.tag()},
                     {static_cast<int>(fields_.wire_type())});
    }
  }

  protozero::pbf_reader fields_;
};

}  // namespace gradus::io::detail
