// SPDX-License-Identifier: BSL-1.0
//
// Constants of an ONNX model that are stored in files next to it.
#pragma once

#include <cstddef>       // std::size_t
#include <cstdint>       // std::uint8_t
#include <filesystem>    // std::filesystem::path
#include <limits>        // std::numeric_limits
#include <map>           // std::map
#include <span>          // std::span
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::error_code
#include <utility>       // std::move

#include "gradus/core/mapped_file.hpp"
#include "gradus/core/text.hpp"
#include "gradus/onnx/detail/model/message.hpp"

namespace gradus::io::detail {

/// The files of a folder that a model refers to.
class onnx_external_data {
 public:
  /// @param folder  where the files are looked for; empty: models that refer to files are refused
  /// @param real    the folder of the model's file behind links, if the model is a link: its data may be there too
  explicit onnx_external_data(std::filesystem::path folder, std::filesystem::path real = {})
      : folder_{std::move(folder)}, real_{std::move(real)} {}

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
    const bool has_end = location.find('\0') != std::string::npos;  // the system would read another name
    if (folder_.empty() || location.empty() || has_end || path.has_parent_path() || path.is_absolute() ||
        location == "..") {
      raise_unread_onnx("external data in a file next to the model",
                        {"'", gradus::printable(location), has_end ? "', with a character 0" : "'"},
                        "files of other folders are not opened: save the model with its data in one folder");
    }
    auto found = files_.find(location);
    if (found == files_.end()) {
      require_no_way_out(path);
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
  /// A link may lead to a file of the folder, or of that of the model's file behind links, as caches of models have it.
  void require_no_way_out(const std::filesystem::path& location) const {
    std::error_code failed;
    const std::filesystem::path file = std::filesystem::canonical(folder_ / location, failed);
    if (failed) {
      return;  // that it cannot be read is said next
    }
    const std::filesystem::path there = file.parent_path();
    if (there != std::filesystem::canonical(folder_, failed) && there != real_) {
      raise_bad_onnx("external data in a file next to the model",
                     {"a link '", gradus::printable(location.string()), "' to another folder"});
    }
  }

  std::filesystem::path folder_;
  std::filesystem::path real_;
  std::map<std::string, mapped_file> files_;  // of external data
};

}  // namespace gradus::io::detail
