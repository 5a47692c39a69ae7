// SPDX-License-Identifier: BSL-1.0
//
// The header of a .safetensors file: what it says of the tensors, how it is written and how it is read.
#pragma once

#include <algorithm>    // std::adjacent_find, std::any_of, std::find_if, std::min, std::sort
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t, std::uint64_t
#include <functional>   // std::less
#include <limits>       // std::numeric_limits
#include <map>          // std::map
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <tuple>        // std::tie
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/detail/json/reader.hpp"
#include "gradus/io/element_type.hpp"

namespace gradus::io {

/// The key of "__metadata__" that only checkpoints of this library have.
inline constexpr std::string_view checkpoint_key = "gradus.format";

/// What a file says of a tensor. Its elements are in row-major order: the last axis is the fastest.
struct safetensors_entry {
  std::string name;                       ///< UTF-8, unique in the file
  element_type type = element_type::f32;  ///< of its elements
  std::vector<index_t> shape = {};        ///< extents, at least 0; none for a single number
  std::uint64_t begin = 0;                ///< offset of the first byte, from the begin of the file's buffer
  std::uint64_t end = 0;                  ///< offset behind the last byte, from the begin of the file's buffer
};

/// What a file says of all its tensors. A file is the number of bytes N of the header (64 bits, little-endian), the
/// header as JSON of N bytes, and the buffer with the elements.
struct safetensors_header {
  /// "__metadata__": texts for texts. Readers that do not know a key ignore it.
  std::map<std::string, std::string, std::less<>> metadata = {};
  /// The tensors in the order of their bytes.
  std::vector<safetensors_entry> tensors = {};
  /// Offset of the buffer in the file, in bytes: 8 + N.
  std::uint64_t buffer_begin = 0;

  /// Bytes of all tensors.
  [[nodiscard]] std::uint64_t buffer_size() const noexcept { return tensors.empty() ? 0 : tensors.back().end; }
  /// Bytes of the file.
  [[nodiscard]] std::uint64_t file_size() const noexcept { return buffer_begin + buffer_size(); }
  /// The tensor of a name; null if there is none. It compares with one name after the other.
  [[nodiscard]] const safetensors_entry* find(std::string_view name) const noexcept {
    const auto at =
        std::find_if(tensors.begin(), tensors.end(), [&](const safetensors_entry& each) { return each.name == name; });
    return at == tensors.end() ? nullptr : &*at;
  }
};

namespace detail {

inline constexpr std::uint64_t longest_header = 100'000'000;  // bytes; the reference refuses longer ones
inline constexpr std::string_view metadata_key{"__metadata__"};

/// "[64, 3, 7, 7]".
[[nodiscard]] inline std::string shape_text(std::span<const index_t> shape) {
  std::string text{"["};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    append_text(text, {axis == 0 ? "" : ", ", shape[axis]});
  }
  return text += ']';
}

/// Bytes of the elements of a tensor. False if they, or a product of its first extents, are more than 2^64 - 1.
[[nodiscard]] inline bool bytes_of(std::span<const index_t> shape, element_type type, std::uint64_t& bytes) noexcept {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t product = 1;
  const auto multiply = [&](std::uint64_t factor) {
    const bool fits = factor == 0 || product <= most / factor;
    product *= factor;
    return fits;
  };
  for (const index_t extent : shape) {
    if (!multiply(static_cast<std::uint64_t>(extent))) {
      return false;
    }
  }
  if (!multiply(size_of(type))) {
    return false;
  }
  bytes = product;
  return true;
}

/// The names must differ: the format forbids a second tensor of a name, and readers differ in which one they take.
/// @return the name that is there twice, or null
[[nodiscard]] inline const std::string* find_second(const std::vector<safetensors_entry>& tensors) {
  std::vector<const std::string*> names;
  for (const safetensors_entry& each : tensors) {
    names.push_back(&each.name);
  }
  std::sort(names.begin(), names.end(), [](const std::string* a, const std::string* b) { return *a < *b; });
  const auto second = std::adjacent_find(names.begin(), names.end(),
                                         [](const std::string* a, const std::string* b) { return *a == *b; });
  return second == names.end() ? nullptr : *second;
}

/// The JSON of a header, without the spaces behind it.
[[nodiscard]] inline std::string header_json(const safetensors_header& header) {
  std::string text{"{"};
  if (!header.metadata.empty()) {
    append_json_string(text, metadata_key);
    text += ":{";
    bool first = true;
    for (const auto& [key, value] : header.metadata) {
      text += first ? "" : ",";
      first = false;
      append_json_string(text, key);
      text += ':';
      append_json_string(text, value);
    }
    text += '}';
  }
  for (const safetensors_entry& each : header.tensors) {
    text += text.size() == 1 ? "" : ",";
    append_json_string(text, each.name);
    append_text(text, {":{\"dtype\":\"", name_of(each.type), "\",\"shape\":["});
    for (std::size_t axis = 0; axis < each.shape.size(); ++axis) {
      append_text(text, {axis == 0 ? "" : ",", each.shape[axis]});
    }
    append_text(text, {"],\"data_offsets\":[", each.begin, ",", each.end, "]}"});
  }
  return text += '}';
}

/// Reads the JSON of a header.
class header_reader {
 public:
  header_reader(std::string_view operation, std::string_view text) : json_{operation, text} {}

  void read(safetensors_header& header) {
    bool has_metadata = false;
    json_.object([&, this](const std::string& key) {
      if (key == metadata_key) {
        if (has_metadata) {
          json_.refuse({"one entry \"", metadata_key, "\""}, "a second one");
        }
        has_metadata = true;
        metadata(header.metadata);
      } else {
        header.tensors.push_back({.name = key});
        tensor(header.tensors.back());
      }
    });
    json_.finish();
  }

 private:
  void metadata(std::map<std::string, std::string, std::less<>>& into) {
    if (json_.accept_null()) {
      return;
    }
    json_.object([&, this](const std::string& key) {
      if (!into.emplace(key, json_.string()).second) {
        json_.refuse("metadata with different keys", {"the key '", key, "' a second time"});
      }
    });
  }

  /// {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, or the three values in an array, as serde reads it too.
  void tensor(safetensors_entry& into) {
    int found[3] = {0, 0, 0};
    const auto field = [&, this](int which) {
      ++found[which];
      switch (which) {
        case 0:
          into.type = type(into.name);
          break;
        case 1:
          shape(into);
          break;
        default:
          offsets(into);
      }
    };
    if (json_.peek() == '[') {
      int next = 0;
      json_.array([&, this] {
        if (next == 3) {
          json_.refuse("the type, the shape and the offsets of a tensor", {"more values for '", into.name, "'"});
        }
        field(next++);
      });
    } else {
      json_.object([&, this](const std::string& key) {
        const int which = key == "dtype" ? 0 : key == "shape" ? 1 : key == "data_offsets" ? 2 : 3;
        if (which == 3) {
          json_.skip_value();
        } else {
          field(which);
        }
      });
    }
    for (const int count : found) {
      if (count != 1) {
        json_.refuse("one \"dtype\", one \"shape\" and one \"data_offsets\" for each tensor",
                     {count == 0 ? "one is missing for '" : "one comes twice for '", into.name, "'"});
      }
    }
  }

  /// "F32", or {"F32":null}, as serde reads it too.
  element_type type(const std::string& tensor) {
    if (json_.peek() != '{') {
      return type(tensor, json_.string());
    }
    std::string name;
    int entries = 0;
    json_.object([&, this](const std::string& key) {
      name = key;
      ++entries;
      if (!json_.accept_null()) {
        json_.refuse_next("null");
      }
    });
    if (entries != 1) {
      json_.refuse("one type", {entries, " types for '", tensor, "'"});
    }
    return type(tensor, name);
  }
  element_type type(const std::string& tensor, std::string_view name) const {
    for (std::size_t i = 0; i < all_element_types.size(); ++i) {
      if (all_element_types[i].name == name) {
        return static_cast<element_type>(i);
      }
    }
    json_.refuse("elements of BOOL, U8, I8, I16, U16, F16, BF16, I32, U32, F32, F64, I64 or U64",
                 {"'", name, "' for the tensor '", tensor, "'"},
                 name.starts_with("F8") || name.starts_with("F6") || name.starts_with("F4") || name == "C64"
                     ? "convert the tensor in Python: x.to(torch.float16)"
                     : "");
  }

  void shape(safetensors_entry& into) {
    json_.array([&, this] {
      constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<index_t>::max());
      const std::uint64_t extent = json_.whole_number();
      if (extent > most) {
        json_.refuse({"extents of at most ", most}, {extent, " for '", into.name, "'"});
      }
      into.shape.push_back(static_cast<index_t>(extent));
    });
  }

  void offsets(safetensors_entry& into) {
    std::size_t count = 0;
    json_.array([&, this] {
      const std::uint64_t value = json_.whole_number();
      (count == 0 ? into.begin : into.end) = value;
      ++count;
    });
    if (count != 2) {
      json_.refuse("two offsets", {count, " for '", into.name, "'"});
    }
  }

  json_reader json_;
};

}  // namespace detail

/// The first 8 + N bytes of a file: the length of the header, and the header with spaces behind it, so that the buffer
/// begins at a multiple of 64 bytes. If header.buffer_begin is not 0, the result has that length: metadata may change
/// if the new texts are as long as the old ones.
/// @throws configuration_error if the text is longer than header.buffer_begin, or than 100,000,000 bytes
[[nodiscard]] inline std::string safetensors_head(const safetensors_header& header,
                                                  error_location where = error_location::current()) {
  constexpr std::uint64_t alignment = 64;
  std::string json = detail::header_json(header);
  std::uint64_t total = header.buffer_begin;
  if (total == 0) {
    total = (8 + json.size() + alignment - 1) / alignment * alignment;
  }
  if (8 + json.size() > total || total - 8 > detail::longest_header) {
    raise<configuration_error>("safetensors header",
                               {"at most ", total < 8 ? 0 : std::min(total - 8, detail::longest_header), " bytes"},
                               {json.size(), " bytes"}, "shorten names or metadata", where);
  }
  json.resize(total - 8, ' ');
  std::string head;
  head.reserve(total);
  for (unsigned shift = 0; shift < 64; shift += 8) {
    head += static_cast<char>(static_cast<unsigned char>(std::uint64_t{json.size()} >> shift & 0xffU));
  }
  return head += json;
}

/// Orders tensors by the size of their elements, the largest first, and then by name, and gives each its bytes, one
/// behind the other. So every tensor begins at a multiple of the size of its elements, and the same tensors give the
/// same header on every rank, whatever order they come in.
///
/// @param tensors  name, type and shape of each; the offsets are ignored
/// @param metadata  entries of "__metadata__"
/// @throws configuration_error if two tensors have the same name, a name or metadata is not valid UTF-8, a tensor has
/// the name "__metadata__", an extent is negative, or all is too large
[[nodiscard]] inline safetensors_header lay_out_safetensors(
    std::vector<safetensors_entry> tensors, std::map<std::string, std::string, std::less<>> metadata = {},
    error_location where = error_location::current()) {
  constexpr std::string_view operation{"safetensors header"};
  std::sort(tensors.begin(), tensors.end(), [](const safetensors_entry& a, const safetensors_entry& b) {
    return size_of(a.type) != size_of(b.type) ? size_of(a.type) > size_of(b.type) : a.name < b.name;
  });
  if (const std::string* const second = detail::find_second(tensors)) {
    raise<configuration_error>(operation, "tensors with different names", {"'", *second, "' twice"}, {}, where);
  }
  const auto require_text = [&](std::string_view kind, const std::string& text) {
    if (detail::find_invalid_utf8(text) != std::string_view::npos) {
      raise<configuration_error>(operation, {kind, " of valid UTF-8"}, {"'", text, "'"}, {}, where);
    }
  };
  for (const auto& [key, value] : metadata) {
    require_text("metadata", key);
    require_text("metadata", value);
  }
  std::uint64_t offset = 0;
  for (safetensors_entry& each : tensors) {
    require_text("names", each.name);
    if (each.name == detail::metadata_key) {
      raise<configuration_error>(operation, "another name for a tensor", {"'", each.name, "'"}, {}, where);
    }
    std::uint64_t bytes = 0;
    const bool negative = std::any_of(each.shape.begin(), each.shape.end(), [](index_t extent) { return extent < 0; });
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<index_t>::max());
    if (negative || !detail::bytes_of(each.shape, each.type, bytes) || bytes > most - offset) {
      raise<configuration_error>(operation, {"extents of at least 0 and at most ", most, " bytes"},
                                 {"the shape ", detail::shape_text(each.shape), " of '", each.name, "'"}, {}, where);
    }
    each.begin = offset;
    each.end = offset += bytes;
  }
  safetensors_header header{.metadata = std::move(metadata), .tensors = std::move(tensors)};
  header.buffer_begin = safetensors_head(header, where).size();
  return header;
}

/// The offset of the buffer, from the first 8 bytes of a file: 8 + N.
/// @param operation  the begin of the message: "read 'x.safetensors'"
/// @param first  at least the first 8 bytes of the file, or all of a shorter file
/// @param file_size  bytes of the whole file
/// @throws format_error if the file is shorter, or if N is larger than 100,000,000
[[nodiscard]] inline std::uint64_t safetensors_buffer_begin(std::string_view operation,
                                                            std::span<const std::uint8_t> first,
                                                            std::uint64_t file_size,
                                                            error_location where = error_location::current()) {
  if (file_size < 8 || first.size() < 8) {
    raise<format_error>(operation, "a file of at least 8 bytes", {file_size, " bytes"},
                        "the file was not copied completely", where);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length << 8U | first[i];
  }
  if (length > detail::longest_header) {
    raise<format_error>(operation, {"a header of at most ", detail::longest_header, " bytes"}, {length, " bytes"},
                        "it is not a .safetensors file", where);
  }
  if (length > file_size - 8) {
    raise<format_error>(operation, {"a header of ", length, " bytes"}, {"a file of ", file_size, " bytes"},
                        "the file was not copied completely", where);
  }
  return length + 8;
}

/// Reads the header of a file. It accepts what the reference implementation (the Rust crate safetensors 0.8) accepts,
/// except for: two tensors or two metadata of the same name, which the format forbids; types without a C++ type (F8, F6
/// and F4 kinds, C64); and extents above 2^63 - 1.
///
/// @param operation  the begin of the message: "read 'x.safetensors'"
/// @param head  at least the first 8 + N bytes of the file
/// @param file_size  bytes of the whole file
/// @throws format_error if they are not those of such a file: the tensors must follow each other without a gap from the
/// begin of the buffer to the end of the file, and each must have the bytes of its shape
[[nodiscard]] inline safetensors_header read_safetensors_header(std::string_view operation,
                                                                std::span<const std::uint8_t> head,
                                                                std::uint64_t file_size,
                                                                error_location where = error_location::current()) {
  return at_call(where, [&] {
    safetensors_header header;
    header.buffer_begin = safetensors_buffer_begin(operation, head, file_size, where);
    if (head.size() < header.buffer_begin) {
      raise<format_error>(operation, {"the first ", header.buffer_begin, " bytes of the file"},
                          {head.size(), " bytes"});
    }
    const std::string_view text{reinterpret_cast<const char*>(head.data()) + 8, header.buffer_begin - 8};
    detail::header_reader{operation, text}.read(header);
    if (const std::string* const second = detail::find_second(header.tensors)) {
      raise<format_error>(operation, "tensors with different names", {"'", *second, "' twice"});
    }
    std::sort(header.tensors.begin(), header.tensors.end(), [](const safetensors_entry& a, const safetensors_entry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t next = 0;
    for (const safetensors_entry& each : header.tensors) {
      if (each.begin != next || each.end < each.begin) {
        raise<format_error>(operation, {"tensors without gaps: '", each.name, "' from byte ", next},
                            {"bytes ", each.begin, " to ", each.end});
      }
      next = each.end;
      std::uint64_t bytes = 0;
      if (!detail::bytes_of(each.shape, each.type, bytes) || bytes != each.end - each.begin) {
        raise<format_error>(
            operation,
            {"the bytes of ", name_of(each.type), " ", detail::shape_text(each.shape), " for '", each.name, "'"},
            {each.end - each.begin, " bytes"});
      }
    }
    if (next != file_size - header.buffer_begin) {
      raise<format_error>(operation, {"a file of ", header.buffer_begin, " + ", next, " bytes"}, {file_size, " bytes"},
                          "the file was not copied completely, or has more behind its end");
    }
    return header;
  });
}

}  // namespace gradus::io
