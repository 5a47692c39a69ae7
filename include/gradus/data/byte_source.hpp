// SPDX-License-Identifier: BSL-1.0
//
// Sources of bytes under the names that readers of data sets use, and paths of their files.
#pragma once

#include <cstdio>       // std::FILE, std::fopen, std::fclose
#include <memory>       // std::unique_ptr
#include <string>       // std::string
#include <string_view>  // std::string_view

#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>  // stat
#endif

#include "gradus/core/byte_source.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/text.hpp"

namespace gradus::data {

using gradus::byte_source;
using gradus::file_source;

namespace detail {

/// The path of a file in a folder.
[[nodiscard]] inline std::string file_in(std::string_view folder, std::string_view name) {
  const bool separated = folder.empty() || folder.ends_with('/');
  return gradus::join({folder, separated ? "" : "/", name});
}

/// True if the path exists.
[[nodiscard]] inline bool file_exists(const std::string& path) noexcept {
#if defined(__unix__) || defined(__APPLE__)
  struct stat status;
  return stat(path.c_str(), &status) == 0;
#else
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "rb"), &std::fclose};
  return file != nullptr;
#endif
}

}  // namespace detail
}  // namespace gradus::data
