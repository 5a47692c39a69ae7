// SPDX-License-Identifier: BSL-1.0
//
// The header of a .npy file: its text, and what it says of the array.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::data::detail {

/// What the header says.
struct npy_header {
  std::string type;              // "<f4"
  bool fortran = false;          // the first axis is the fastest
  std::vector<index_t> extents;  // at least 0; none for a single number
  std::size_t begin = 0;         // offset of the first element in the file, in bytes
};

/// "(3, 4)", "(3,)" or "()", as NumPy writes a shape.
[[nodiscard]] inline std::string npy_shape(std::span<const index_t> extents) {
  std::string text{"("};
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    append_text(text, {axis == 0 ? "" : ", ", extents[axis]});
  }
  return text.append(extents.size() == 1 ? ",)" : ")");
}

/// Reads the dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, which is an expression of Python.
class npy_dictionary {
 public:
  npy_dictionary(const std::string& operation, std::string_view text) : operation_{operation}, text_{text} {}

  /// @throws format_error unless the text is such a dictionary
  void read(npy_header& header) {
    bool have_type = false;
    bool have_order = false;
    bool have_shape = false;
    const auto once = [&, this](bool& have, std::string_view key) {
      if (have) {
        refuse({"one entry '", key, "'"}, "a second one");
      }
      have = true;
    };
    require('{');
    while (!accept('}')) {
      const std::string key = string();
      require(':');
      if (key == "descr") {
        once(have_type, key);
        header.type = type();
      } else if (key == "fortran_order") {
        once(have_order, key);
        header.fortran = truth();
      } else if (key == "shape") {
        once(have_shape, key);
        header.extents = shape();
      } else {
        refuse("the entries 'descr', 'fortran_order' and 'shape'", {"'", key, "'"});
      }
      if (!accept(',')) {
        require('}');
        break;
      }
    }
    if (next() != '\0') {
      refuse("the end of the dictionary", "more text");
    }
    if (!have_type || !have_order || !have_shape) {
      refuse("the entries 'descr', 'fortran_order' and 'shape'", "a dictionary without one of them");
    }
  }

 private:
  [[noreturn]] void refuse(message_part expected, message_part actual, message_part hint = {}) const {
    raise<format_error>(operation_, expected, actual, hint);
  }
  [[noreturn]] void refuse_next(message_part expected) {
    const char found = next();
    if (found == '\0') {
      refuse(expected, "the end of the header");
    }
    refuse(expected, {"'", std::string_view{&found, 1}, "' at position ", at_, " of the dictionary"});
  }

  /// The next character that is not a space; 0 at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (next() != wanted || at_ >= text_.size()) {
      return false;
    }
    ++at_;
    return true;
  }
  void require(char wanted) {
    if (!accept(wanted)) {
      refuse_next({"'", std::string_view{&wanted, 1}, "' in the dictionary of the header"});
    }
  }

  std::string string() {
    const char quote = next();
    if (quote != '\'' && quote != '"') {
      refuse_next("a text in quotes");
    }
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      ++at_;
    }
    if (at_ >= text_.size()) {
      refuse("a text with a second quote", "the end of the header");
    }
    return std::string{text_.substr(begin, at_++ - begin)};
  }

  std::string type() {
    if (next() == '[' || next() == '(') {
      refuse("elements that are numbers", "records of several fields (a structured type)",
             "save one field: np.save(path, np.ascontiguousarray(x['name'], dtype='<f4'))");
    }
    return string();
  }

  bool truth() {
    (void)next();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    refuse_next("True or False for 'fortran_order'");
  }

  std::vector<index_t> shape() {
    constexpr std::size_t most_axes = 64;  // NumPy's own limit
    std::vector<index_t> extents;
    if (!accept('(')) {
      refuse_next("a tuple of extents, as (3, 4)");
    }
    while (!accept(')')) {
      if (extents.size() == most_axes) {
        refuse({"at most ", most_axes, " axes"}, "more");
      }
      extents.push_back(extent());
      if (!accept(',')) {
        if (extents.size() == 1) {
          refuse_next("a comma after the extent, as in (3,)");
        }
        require(')');
        break;
      }
    }
    return extents;
  }

  index_t extent() {
    if (next() == '-') {
      refuse("extents of at least 0", "a negative extent", "the file is damaged, or its writer is wrong");
    }
    if (next() < '0' || next() > '9') {
      refuse_next("a whole number as an extent");
    }
    constexpr index_t most = std::numeric_limits<index_t>::max();
    index_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<index_t>(text_[at_] - '0');
      if (value > (most - digit) / 10) {
        refuse({"extents of at most ", most}, "a larger one");
      }
      value = 10 * value + digit;
      ++at_;
    }
    if (at_ < text_.size() && text_[at_] == 'L') {  // Python 2
      ++at_;
    }
    return value;
  }

  const std::string& operation_;
  std::string_view text_;
  std::size_t at_ = 0;
};

/// Reads the first bytes of a file: "\x93NUMPY", the version (2 bytes), the length of the dictionary (2 bytes in
/// version 1.0, 4 in 2.0 and 3.0, little-endian), the dictionary. (NumPy, numpy.lib.format)
/// @throws format_error unless they are those of a .npy file
[[nodiscard]] inline npy_header read_npy_header(const std::string& operation, std::span<const std::uint8_t> file) {
  constexpr std::string_view magic{"\x93NUMPY"};
  constexpr std::size_t longest = 65535;  // bytes of a dictionary
  const std::string_view text{reinterpret_cast<const char*>(file.data()), file.size()};
  if (text.substr(0, 2) == "PK") {
    raise<format_error>(operation, "a .npy file", "a .npz or other zip archive", "name an array of it: set.npz/x");
  }
  if (text.substr(0, 2) == "\x1f\x8b") {
    raise<format_error>(operation, "a .npy file", "a compressed file", "unpack it with gunzip");
  }
  if (!text.starts_with(magic)) {
    raise<format_error>(operation, "the first bytes \\x93NUMPY of a .npy file",
                        text.size() < magic.size() ? "a file that is too short" : "others",
                        "save the array with np.save(path, x)");
  }
  npy_header header;
  const auto require_bytes = [&](std::size_t count) {
    if (text.size() < count) {
      raise<format_error>(operation, {"a header of ", count, " bytes"}, {"a file of ", text.size(), " bytes"},
                          "the file was not copied completely");
    }
  };
  require_bytes(magic.size() + 2);
  const unsigned version = file[6];
  if (version < 1 || version > 3 || file[7] != 0) {
    raise<format_error>(operation, "version 1.0, 2.0 or 3.0 of the format", {version, ".", unsigned{file[7]}});
  }
  const std::size_t digits = version == 1 ? 2 : 4;
  const std::size_t begin = magic.size() + 2 + digits;
  require_bytes(begin);
  std::size_t length = 0;
  for (std::size_t i = digits; i-- > 0;) {
    length = length << 8U | file[8 + i];
  }
  if (length > longest) {
    raise<format_error>(operation, {"a header of at most ", longest, " bytes"}, {length});
  }
  require_bytes(begin + length);
  npy_dictionary{operation, text.substr(begin, length)}.read(header);
  header.begin = begin + length;
  return header;
}

/// The bytes of a header of version 1.0 for an array in C order. They end at a multiple of 64 bytes.
[[nodiscard]] inline std::string write_npy_header(std::string_view type, std::span<const index_t> extents) {
  std::string dictionary =
      gradus::join({"{'descr': '", type, "', 'fortran_order': False, 'shape': ", npy_shape(extents), ", }"});
  constexpr std::size_t before = 10;
  dictionary.append(63 - (before + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  std::string header{"\x93NUMPY\x01", 7};
  header += '\0';
  header += static_cast<char>(dictionary.size() & 0xffU);
  header += static_cast<char>(dictionary.size() >> 8U);
  return header + dictionary;
}

}  // namespace gradus::data::detail
