// SPDX-License-Identifier: BSL-1.0
//
// Reads the IDX format of the MNIST files: unsigned bytes in an array of 1 to 4 axes, and labels of any integers.
#pragma once

#include <algorithm>    // std::min, std::max
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int8_t to std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/byte_source.hpp"

namespace gradus::data {

/// The content of an IDX file: `values` in row-major order of `extents`.
struct idx_array {
  std::vector<index_t> extents;      ///< 1 to 4 extents, each at least 1
  std::vector<std::uint8_t> values;  ///< the bytes, one per element
};

/// The labels of an IDX file.
struct idx_labels {
  std::vector<std::int32_t> values;  ///< one for each example
};

/// Limits of a reader.
struct idx_options {
  /// Limit for the bytes of values; a header that declares more is an error.
  std::uint64_t maximum_bytes = std::uint64_t{4} << 30U;
};

namespace detail {

inline std::string hexadecimal(std::uint8_t byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  return {'0', 'x', digits[byte >> 4U], digits[byte & 15U]};
}

/// A type code as text: "0x0d (float)".
std::string idx_type(std::uint8_t code);

/// Fills `into` with the next bytes. @throws format_error if the source ends before it is full
inline void read_idx_header(byte_source& source, std::span<std::uint8_t> into) {
  if (const std::size_t got = source.read(into); got < into.size()) {
    raise<format_error>({"read_idx '", source.name(), "'"}, "the header of an IDX file",
                        "a file that ends inside the header", "the file is not IDX or was not copied completely");
  }
}

/// Bytes of an integer; 0 for other types.
[[nodiscard]] constexpr std::size_t idx_integer_size(std::uint8_t code) noexcept {
  return code == 0x08 || code == 0x09 ? 1 : code == 0x0b ? 2 : code == 0x0c ? 4 : 0;
}

/// Checks the first four bytes: 0, 0, the type of the elements, the number of axes. Returns the number of axes.
std::size_t check_idx_magic(const std::string& operation, const std::array<std::uint8_t, 4>& magic, bool labels);

/// Reads to the end: unsigned bytes, or labels of any integers, whose type it returns.
std::uint8_t read_idx_elements(byte_source& source, const idx_options& options, bool labels, idx_array& array);

}  // namespace detail

/// Reads an IDX file of unsigned bytes to its end.
///
/// The format: bytes 0, 0, type code, number of axes; an extent of 4 bytes, most significant first, for each axis; the
/// values (Y. LeCun, C. Cortes, C. J. C. Burges: "The MNIST database of handwritten digits").
///
/// Memory grows with the bytes that arrive, so a short file that declares a large array allocates little. At most one
/// byte more than declared is read, so a source may be endless.
/// @throws format_error if the source cannot be read, is not IDX, has a zero extent, declares more than
/// options.maximum_bytes, or has fewer or more bytes than it declares
[[nodiscard]] idx_array read_idx(byte_source& source, const idx_options& options = {},
                                 error_location where = error_location::current());

/// Reads an IDX file of labels, which are integers of 1, 2 or 4 bytes: (n), or (n, k) with the class in the first of k
/// numbers, as QMNIST has them.
/// @throws format_error as read_idx, or if there are other axes
[[nodiscard]] idx_labels read_idx_labels(byte_source& source, const idx_options& options = {},
                                         error_location where = error_location::current());

/// Reads a plain IDX file. For .gz files see gradus/data/gzip.hpp.
/// @throws format_error as the other read_idx
[[nodiscard]] inline idx_array read_idx(const std::string& path, const idx_options& options = {},
                                        error_location where = error_location::current()) {
  return at_call(where, [&] {
    file_source source{path};
    return read_idx(source, options);
  });
}

}  // namespace gradus::data

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::data::detail {

GRADUS_INLINE std::string idx_type(std::uint8_t code) {
  switch (code) {
    case 0x08:
      return "0x08 (unsigned byte)";
    case 0x09:
      return "0x09 (signed byte)";
    case 0x0b:
      return "0x0b (16-bit integer)";
    case 0x0c:
      return "0x0c (32-bit integer)";
    case 0x0d:
      return "0x0d (float)";
    case 0x0e:
      return "0x0e (double)";
    default:
      return hexadecimal(code);
  }
}

GRADUS_INLINE std::size_t check_idx_magic(const std::string& operation, const std::array<std::uint8_t, 4>& magic,
                                          bool labels) {
  if (magic[0] == 0x1f && magic[1] == 0x8b) {
    raise<format_error>(operation, "the first bytes 0x00 0x00 of an IDX file",
                        "0x1f 0x8b, the first bytes of gzip files",
                        "give the file the ending .gz and read it with gradus/data/gzip.hpp");
  }
  if (magic[0] != 0 || magic[1] != 0) {
    raise<format_error>(operation, "the first bytes 0x00 0x00 of an IDX file",
                        {hexadecimal(magic[0]), " ", hexadecimal(magic[1])}, "the file is not IDX");
  }
  if (labels && idx_integer_size(magic[2]) == 0) {
    raise<format_error>(operation, "labels that are integers: type 0x08, 0x09, 0x0b or 0x0c",
                        {"type ", idx_type(magic[2])});
  }
  if (!labels && magic[2] != 0x08) {
    raise<format_error>(operation, {"elements of type ", idx_type(0x08)}, {"type ", idx_type(magic[2])});
  }
  if (magic[3] < 1 || magic[3] > 4) {
    raise<format_error>(operation, "1 to 4 axes", {magic[3]});
  }
  return magic[3];
}

GRADUS_INLINE std::uint8_t read_idx_elements(byte_source& source, const idx_options& options, bool labels,
                                             idx_array& array) {
  const std::string operation = gradus::join({labels ? "read_idx_labels '" : "read_idx '", source.name(), "'"});
  std::array<std::uint8_t, 4> magic{};
  read_idx_header(source, magic);
  array.extents = std::vector<index_t>(check_idx_magic(operation, magic, labels));
  std::uint64_t declared = labels ? idx_integer_size(magic[2]) : 1;  // bytes
  for (std::size_t axis = 0; axis < array.extents.size(); ++axis) {
    std::array<std::uint8_t, 4> bytes{};
    read_idx_header(source, bytes);
    const std::uint64_t extent = std::uint64_t{bytes[0]} << 24U | std::uint64_t{bytes[1]} << 16U |
                                 std::uint64_t{bytes[2]} << 8U | std::uint64_t{bytes[3]};
    if (extent == 0) {
      raise<format_error>(operation, "extents of at least 1", {"extent 0 of axis ", axis});
    }
    array.extents[axis] = static_cast<index_t>(extent);
    if (extent > options.maximum_bytes / declared) {
      raise<format_error>(operation, {"at most ", options.maximum_bytes, " bytes of values"},
                          "a header that declares more", "raise idx_options::maximum_bytes if the file is correct");
    }
    declared *= extent;
  }
  constexpr std::uint64_t first_piece = std::uint64_t{1} << 20U;  // in bytes
  auto& values = array.values;
  while (values.size() < declared) {
    const std::size_t begin = values.size();
    const std::uint64_t piece = std::min(declared - begin, std::max<std::uint64_t>(first_piece, begin));
    values.resize(begin + static_cast<std::size_t>(piece));
    const std::size_t got = source.read(std::span{values}.subspan(begin));
    if (got < piece) {
      raise<format_error>(operation, {declared, " bytes of values as its header declares"}, {begin + got},
                          "the file was not copied completely");
    }
  }
  std::array<std::uint8_t, 1> more{};
  if (source.read(more) != 0) {
    raise<format_error>(operation, {"the end after ", declared, " bytes of values"}, "more bytes",
                        "the header and the content do not belong together");
  }
  return magic[2];
}

}  // namespace gradus::data::detail

namespace gradus::data {

GRADUS_INLINE idx_array read_idx(byte_source& source, const idx_options& options, error_location where) {
  return at_call(where, [&] {
    idx_array array;
    detail::read_idx_elements(source, options, false, array);
    return array;
  });
}

GRADUS_INLINE idx_labels read_idx_labels(byte_source& source, const idx_options& options, error_location where) {
  return at_call(where, [&] {
    idx_array array;
    const std::uint8_t type = detail::read_idx_elements(source, options, true, array);
    if (array.extents.size() > 2) {
      raise<format_error>({"read_idx_labels '", source.name(), "'"}, "labels: 1 axis, or 2 with the class in front",
                          {array.extents.size(), " axes"}, "this looks like a file of images");
    }
    const std::size_t bytes = detail::idx_integer_size(type);
    const std::size_t stride =
        bytes * (array.extents.size() == 2 ? static_cast<std::size_t>(array.extents[1]) : std::size_t{1});
    idx_labels labels;
    labels.values.resize(static_cast<std::size_t>(array.extents[0]));
    for (std::size_t i = 0; i < labels.values.size(); ++i) {
      std::uint32_t bits = 0;
      for (std::size_t k = 0; k < bytes; ++k) {
        bits = bits << 8U | array.values[i * stride + k];
      }
      labels.values[i] = type == 0x08   ? static_cast<std::int32_t>(bits)
                         : type == 0x09 ? static_cast<std::int8_t>(bits)
                         : type == 0x0b ? static_cast<std::int16_t>(bits)
                                        : static_cast<std::int32_t>(bits);
    }
    return labels;
  });
}

}  // namespace gradus::data
#endif
