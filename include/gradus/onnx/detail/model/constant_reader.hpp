// SPDX-License-Identifier: BSL-1.0
//
// Reads constants of an ONNX model: their shapes, and elements of several types in several encodings.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint16_t, std::uint8_t
#include <cstring>      // std::memcpy
#include <map>          // std::map
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_arithmetic_v
#include <vector>       // std::vector

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/index.hpp"
#include "gradus/onnx/detail/model/content.hpp"
#include "gradus/onnx/detail/model/external_data.hpp"
#include "gradus/onnx/detail/model/message.hpp"

namespace gradus::io::detail {

/// Reads a constant from its message and, where it is external data, from a file.
class onnx_constant_reader {
 public:
  /// Reads a constant.
  /// @param name  its name; null: it has none
  /// @throws format_error when its elements are of a type that gradus does not read, or not as many as its shape says
  [[nodiscard]] static onnx_constant read(onnx_message tensor, onnx_external_data& files, std::string* name = nullptr) {
    onnx_constant result;
    index_t type = 0;
    bool external = false;
    bool has_raw = false;
    std::string_view raw;
    std::vector<float> floats;
    std::vector<index_t> integers;
    std::vector<double> doubles;
    std::map<std::string, std::string> entries;
    while (tensor.next()) {
      switch (tensor.tag()) {
        case 1:
          tensor.append_to(result.dims);
          break;
        case 2:
          type = tensor.integer();
          break;
        case 4:
          tensor.append_to(floats);
          break;
        case 5:  // 32 bits and less
        case 7:  // 64 bits
          tensor.append_to(integers);
          break;
        case 8:
          if (name != nullptr) {
            *name = tensor.text();
          } else {
            tensor.skip();
          }
          break;
        case 9:
          raw = tensor.view();
          has_raw = true;
          break;
        case 10:
          tensor.append_to(doubles);
          break;
        case 13:
          read_entry(tensor.message(), entries);
          break;
        case 14:
          external = tensor.integer() == 1;
          break;
        default:
          tensor.skip();
      }
    }
    const std::size_t count = elements_of(result.dims);
    if (external) {
      raw = files.bytes_of(entries);
      has_raw = true;
    }
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
        raise_unread_onnx("constants of float, double, float16, bfloat16, int32, int64 or bool",
                          {"element type ", type},
                          "constants of other types are not read: convert them before the export");
    }
    return result;
  }

 private:
  static constexpr index_t most_elements = index_t{1} << 40;

  /// A pair of texts, such as a location and the name of a file.
  static void read_entry(onnx_message entry, std::map<std::string, std::string>& to) {
    std::string key;
    std::string text;
    while (entry.next()) {
      if (entry.tag() == 1) {
        key = entry.text();
      } else if (entry.tag() == 2) {
        text = entry.text();
      } else {
        entry.skip();
      }
    }
    to[key] = text;
  }

  [[nodiscard]] static std::size_t elements_of(const std::vector<index_t>& dims) {
    index_t elements = 1;
    for (const index_t extent : dims) {
      if (extent < 0 || (extent > 0 && elements > most_elements / extent)) {
        raise_bad_onnx({"extents of at least 0 and less than ", most_elements, " elements"}, {extent});
      }
      elements *= extent;
    }
    return static_cast<std::size_t>(elements);
  }

  /// The elements from raw bytes, or from a field of numbers; of 16 bits, numbers are bit patterns.
  template <class Stored, class Field, class Result>
  static void fill(std::string_view raw, bool has_raw, std::size_t count, const Field& field, Result& to) {
    using number = typename Result::value_type;
    if (has_raw ? raw.size() % sizeof(Stored) != 0 || raw.size() / sizeof(Stored) != count : field.size() != count) {
      raise_bad_onnx({"a constant of ", count, " elements"},
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
};

}  // namespace gradus::io::detail
