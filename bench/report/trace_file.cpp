// SPDX-License-Identifier: BSL-1.0
//
// Trace files as they are stored on disk: as text, or compressed.
#include <algorithm>  // std::max, std::min
#include <span>       // std::span

#include "gradus/core/error.hpp"
#include "gradus/data/byte_source.hpp"
#include "trace.hpp"
#ifdef GRADUS_REPORT_WITH_GZIP
#include "gradus/data/gzip.hpp"
#endif

namespace gradus::report {
namespace {

/// What is left of a source. Memory grows with what comes.
std::string content_of(data::byte_source& source, std::uint64_t largest, const char* what) {
  constexpr std::size_t first_block = std::size_t{1} << 16;
  std::string text;
  for (std::size_t block = first_block;; block = std::max(block, text.size())) {
    const std::size_t before = text.size();
    // One byte more than is allowed: a file of just the limit ends there.
    const auto room = static_cast<std::size_t>(std::min<std::uint64_t>(block, largest - before + 1));
    text.resize(before + room);
    const std::size_t got = source.read({reinterpret_cast<std::uint8_t*>(text.data()) + before, room});
    text.resize(before + got);
    if (text.size() > largest) {
      throw report_error{source.name() + ": " + what + " more than " + std::to_string(largest >> 20U) +
                         " MiB. If it is a trace all the same, raise --largest-mebibytes: reading it takes some three "
                         "times its size of memory."};
    }
    if (got < room) {
      return text;
    }
  }
}

bool is_compressed(const std::string& path) {
  data::file_source file{path};
  std::uint8_t first[2] = {};
  return file.read(first) == 2 && first[0] == 0x1fU && first[1] == 0x8bU;
}

#ifdef GRADUS_REPORT_WITH_GZIP

std::string inflated(const std::string& path, std::uint64_t largest) {
  data::gzip_source source{path};
  return content_of(source, largest, "it inflates to");
}

#else

std::string inflated(const std::string& path, std::uint64_t /*largest*/) {
  throw report_error{path +
                     ": is compressed, and this gradus_report was built without zlib. Write it as text first: "
                     "gunzip --stdout FILE.gz > FILE"};
}

#endif

}  // namespace

trace read_trace_file(const std::string& path, std::uint64_t largest_bytes) {
  std::string content;
  try {
    if (is_compressed(path)) {
      content = inflated(path, largest_bytes);
    } else {
      data::file_source file{path};
      content = content_of(file, largest_bytes, "it has");
    }
  } catch (const error& failure) {
    throw report_error{failure.what()};
  }
  return read_trace(content, path);
}

}  // namespace gradus::report
