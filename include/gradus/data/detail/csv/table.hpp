// SPDX-License-Identifier: BSL-1.0
//
// The fields of a CSV file.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <deque>        // std::deque
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/byte_source.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

namespace gradus::data::detail {

/// The lines of a CSV file (RFC 4180), split into fields. Lines of data count from 0; in messages they are those of the
/// file and count from 1, as editors show them.
class csv_table {
 public:
  csv_table(const std::string& path, char separator, bool header) : path_{path} {
    if (separator == '"' || separator == '\n' || separator == '\r' || separator == '.') {
      raise<configuration_error>({"csv '", path, "'"}, "a separator such as ',', ';' or '\\t'",
                                 {"'", std::string_view{&separator, 1}, "'"});
    }
    load();
    split(separator);
    if (lines_.size() < (header ? 2U : 1U)) {
      raise<format_error>({"csv '", path, "'"}, header ? "a line of names and lines of data" : "lines of data",
                          {lines_.size(), " lines"}, header ? "without names write .header = false" : "");
    }
    const std::size_t columns = fields_of(0).size();
    for (std::size_t line = 0; line < lines_.size(); ++line) {
      if (fields_of(line).size() != columns) {
        raise<format_error>({"csv '", path_, "', line ", lines_[line].number},
                            {columns, " fields, as in the first line"}, {fields_of(line).size(), " fields"},
                            columns == 1 ? "another separator is csv_options::separator" : "");
      }
    }
    for (std::size_t column = 0; column < columns; ++column) {
      names_.push_back(header ? std::string{fields_of(0)[column]} : std::to_string(column + 1));
    }
    first_ = header ? 1 : 0;
  }

  /// The names of the columns.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

  /// The numbers of columns of these names. @throws configuration_error if there is none, or there are two
  [[nodiscard]] std::vector<std::size_t> columns(const std::vector<std::string>& names) const {
    std::vector<std::size_t> result;
    for (const std::string& name : names) {
      std::size_t found = names_.size();
      for (std::size_t column = 0; column < names_.size(); ++column) {
        if (names_[column] == name) {
          if (found != names_.size()) {
            raise<configuration_error>({"csv '", path_, "'"}, {"one column '", name, "'"}, "two of this name");
          }
          found = column;
        }
      }
      if (found == names_.size()) {
        std::string all;
        for (const std::string& each : names_) {
          append_text(all, {all.empty() ? "'" : ", '", each, "'"});
        }
        raise<configuration_error>({"csv '", path_, "'"}, {"a column '", name, "'"}, {"the columns ", all});
      }
      result.push_back(found);
    }
    return result;
  }

  /// The fields of a column.
  [[nodiscard]] std::vector<std::string_view> words(std::size_t column) const {
    std::vector<std::string_view> result;
    for (std::size_t line = first_; line < lines_.size(); ++line) {
      result.push_back(fields_of(line)[column]);
    }
    return result;
  }

  /// True if all fields of a column are numbers.
  [[nodiscard]] bool has_numbers(std::size_t column) const {
    for (std::size_t line = first_; line < lines_.size(); ++line) {
      if (!read_number(trimmed(fields_of(line)[column]))) {
        return false;
      }
    }
    return true;
  }

  /// A number. @throws format_error if the field is none, or is not finite
  [[nodiscard]] double number(std::size_t line, std::size_t column) const {
    const std::string_view field = fields_of(first_ + line)[column];
    const std::optional<double> value = read_number(trimmed(field));
    if (!value || !is_finite(*value)) {
      refuse(line, column, "a finite number", {"'", field, "'"},
             trimmed(field).empty() ? "a missing value has to be filled in, or its line left out" : "");
    }
    return *value;
  }

  /// The numbers of columns, line after line.
  [[nodiscard]] std::vector<double> numbers(const std::vector<std::size_t>& columns) const {
    std::vector<double> result;
    result.reserve((lines_.size() - first_) * columns.size());
    for (std::size_t line = 0; line < lines_.size() - first_; ++line) {
      for (const std::size_t column : columns) {
        result.push_back(number(line, column));
      }
    }
    return result;
  }

  /// Reports a field that is not what is expected.
  [[noreturn]] void refuse(std::size_t line, std::size_t column, message_part expected, message_part actual,
                           message_part hint = {}) const {
    raise<format_error>({"csv '", path_, "', line ", lines_[first_ + line].number, ", column ", column + 1, " ('",
                         names_[column], "')"},
                        expected, actual, hint);
  }

 private:
  struct line_position {
    std::size_t first;   // of fields_
    std::size_t number;  // of the file, from 1
  };

  [[nodiscard]] std::span<const std::string_view> fields_of(std::size_t line) const noexcept {
    const std::size_t end = line + 1 < lines_.size() ? lines_[line + 1].first : fields_.size();
    return std::span{fields_}.subspan(lines_[line].first, end - lines_[line].first);
  }

  static std::string_view trimmed(std::string_view field) noexcept {
    const std::size_t first = field.find_first_not_of(" \t");
    return first == field.npos ? std::string_view{} : field.substr(first, field.find_last_not_of(" \t") - first + 1);
  }

  void load() {
    file_source file{path_};
    std::vector<std::uint8_t> piece(1 << 16);
    for (std::size_t count = piece.size(); count == piece.size();) {
      count = file.read(piece);
      text_.append(reinterpret_cast<const char*>(piece.data()), count);
    }
    if (const std::size_t zero = text_.find('\0'); zero != text_.npos) {
      raise<format_error>({"csv '", path_, "'"}, "text in UTF-8 or ASCII", {"a zero byte at ", zero},
                          "a file in UTF-16 has to be converted");
    }
  }

  void split(char separator) {
    constexpr std::string_view mark{"\xef\xbb\xbf"};
    std::size_t at = std::string_view{text_}.starts_with(mark) ? mark.size() : 0;
    const std::string_view text{text_};
    std::size_t number = 1;
    while (at < text.size()) {
      if (text[at] == '\n' || text.substr(at, 2) == "\r\n") {  // an empty line
        at += text[at] == '\n' ? std::size_t{1} : 2;
        ++number;
        continue;
      }
      lines_.push_back({fields_.size(), number});
      for (bool more = true; more;) {
        at = take_field(at, separator, number);
        more = at < text.size() && text[at] == separator;
        at += more ? std::size_t{1} : 0;
      }
      if (at < text.size()) {
        at += text[at] == '\n' ? std::size_t{1} : 2;
        ++number;
      }
    }
  }

  /// Adds the field that begins there. @return its end: a separator, the end of the line or of the file
  std::size_t take_field(std::size_t at, char separator, std::size_t& number) {
    const std::string_view text{text_};
    const auto ends = [&](std::size_t position) {
      return position >= text.size() || text[position] == separator || text[position] == '\n' ||
             text.substr(position, 2) == "\r\n" || (text[position] == '\r' && position + 1 == text.size());
    };
    if (at < text.size() && text[at] == '"') {
      const std::size_t begin = number;
      std::string field;
      for (++at;; ++at) {
        if (at >= text.size()) {
          raise<format_error>({"csv '", path_, "', line ", begin}, "a second quote at the end of the field",
                              "the end of the file");
        }
        if (text[at] == '"') {
          if (at + 1 >= text.size() || text[at + 1] != '"') {
            break;
          }
          ++at;
        }
        number += text[at] == '\n' ? std::size_t{1} : 0;
        field += text[at];
      }
      ++at;
      if (!ends(at)) {
        raise<format_error>({"csv '", path_, "', line ", number}, "a separator behind the quote of a field",
                            {"'", text.substr(at, 1), "'"}, "a quote inside a field is written twice");
      }
      fields_.push_back(quoted_.emplace_back(std::move(field)));
    } else {
      const std::size_t begin = at;
      while (!ends(at)) {
        ++at;
      }
      fields_.push_back(text.substr(begin, at - begin));
    }
    return at < text.size() && text[at] == '\r' && at + 1 == text.size() ? text.size() : at;
  }

  std::string path_;
  std::string text_;
  std::deque<std::string> quoted_;  // fields in quotes, without these
  std::vector<std::string_view> fields_;
  std::vector<line_position> lines_;
  std::vector<std::string> names_;
  std::size_t first_ = 0;  // the first line of data
};

}  // namespace gradus::data::detail
