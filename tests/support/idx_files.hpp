// SPDX-License-Identifier: BSL-1.0
//
// IDX files for tests, right and wrong ones, in a folder that goes away with the test.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <cstdlib>      // mkdtemp
#include <exception>    // std::exception
#include <filesystem>   // std::filesystem
#include <fstream>      // std::ofstream
#include <stdexcept>    // std::runtime_error
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

namespace idx_files {

using bytes = std::vector<std::uint8_t>;

/// A folder of its own, removed at the end.
class folder {
 public:
  folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradus_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error{"no temporary folder"};
    }
    path_ = name;
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Writes a file and returns its path.
  std::filesystem::path write(std::string_view name, const bytes& content) const {
    const auto file = path_ / name;
    std::ofstream out{file, std::ios::binary};
    out.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    if (!out) {
      throw std::runtime_error{"cannot write " + file.string()};
    }
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// The head of an IDX file.
inline bytes header(const std::vector<std::uint32_t>& extents, std::uint8_t type = 0x08) {
  bytes head{0, 0, type, static_cast<std::uint8_t>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      head.push_back(static_cast<std::uint8_t>(extent >> shift));
    }
  }
  return head;
}

/// A whole IDX file; value i is first + i modulo `bound`.
inline bytes file(const std::vector<std::uint32_t>& extents, std::size_t first = 0, std::size_t bound = 256) {
  bytes content = header(extents);
  std::size_t count = 1;
  for (const std::uint32_t extent : extents) {
    count *= extent;
  }
  for (std::size_t i = 0; i < count; ++i) {
    content.push_back(static_cast<std::uint8_t>((first + i) % bound));
  }
  return content;
}

/// What action() throws, which must be an Error; its message. Otherwise what happened instead.
template <class Error, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Error& expected) {
    return expected.what();
  } catch (const std::exception& other) {
    return "another exception: " + std::string{other.what()};
  }
  return "no exception";
}

/// Whether the parts stand in the text in this order.
inline bool has_parts(std::string_view text, const std::vector<std::string>& parts) {
  std::size_t from = 0;
  for (const std::string& part : parts) {
    const auto at = text.find(part, from);
    if (at == std::string_view::npos) {
      return false;
    }
    from = at + part.size();
  }
  return true;
}

/// Checks that the parts stand in the message in this order, and shows it when they do not.
#define GRADUS_CHECK_MESSAGE(message, ...)                                                      \
  do {                                                                                          \
    const std::string text_of_message = message;                                                \
    BOOST_CHECK_MESSAGE(::idx_files::has_parts(text_of_message, __VA_ARGS__), text_of_message); \
  } while (false)

}  // namespace idx_files
