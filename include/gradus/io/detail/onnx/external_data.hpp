// SPDX-License-Identifier: BSL-1.0
//
// Constants of an ONNX model that are stored in files next to it.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <filesystem>   // std::filesystem::path
#include <limits>       // std::numeric_limits
#include <map>          // std::map
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/mapped_file.hpp"
#include "gradus/io/detail/onnx/message.hpp"

namespace gradus::io::detail {

/// The files of a folder that a model refers to.
class onnx_external_data {
 public:
  /// @param folder  where the files are looked for; empty: models that refer to files are refused
  explicit onnx_external_data(std::filesystem::path folder) : folder_{std::move(folder)} {}

  /// The bytes of a constant, which stay valid as long as this object.
  /// @param entries  the file (location), and where the bytes are in it (offset, length)
  /// @throws format_error when the file is in another folder, or ends before
  [[nodiscard]] std::string_view bytes_of(const std::map<std::string, std::string>& entries) {
    const auto text = [&](const char* key) {
      const auto found = entries.find(key);
      return found == entries.end() ? std::string{} : found->second;
    };
    const std::string location = text("location");
    const std::filesystem::path path{location};
    if (folder_.empty() || location.empty() || path.has_parent_path() || path.is_absolute() || location == "..") {
      raise_unread_onnx("external data in a file next to the model", {"'", location, "'"},
                        "files of other folders are not opened: save the model with its data in one folder");
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
          raise_bad_onnx({"a number of bytes as the ", key, " of external data"}, digits);
        }
        value = 10 * value + static_cast<std::size_t>(each - '0');
      }
      return value;
    };
    const std::size_t offset = number("offset", 0);
    if (offset > bytes.size()) {
      raise_bad_onnx({"an offset in the ", bytes.size(), " bytes of '", location, "'"}, {offset});
    }
    const std::size_t length = number("length", bytes.size() - offset);
    if (length > bytes.size() - offset) {
      raise_bad_onnx({"data in the ", bytes.size(), " bytes of '", location, "'"}, {length, " bytes at ", offset});
    }
    return {reinterpret_cast<const char*>(bytes.data()) + offset, length};
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, mapped_file> files_;  // of external data
};

}  // namespace gradus::io::detail
