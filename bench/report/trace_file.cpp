// SPDX-License-Identifier: BSL-1.0
//
// Trace files as they lie on disk: as text, or compressed.
#include <fstream>  // std::ifstream

#include "trace.hpp"
#ifdef GRADUS_REPORT_WITH_GZIP
#include <span>  // std::span

#include "gradus/core/error.hpp"  // error
#include "gradus/data/gzip.hpp"   // gzip_source
#endif

namespace gradus::report {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::string text;
  if (file) {
    char block[1 << 16];
    while (file.read(block, sizeof block) || file.gcount() > 0) {
      text.append(block, static_cast<std::size_t>(file.gcount()));
    }
  }
  if (!file.eof() || file.bad()) {
    throw report_error{path + ": cannot be read. Is it a file, and are you allowed to read it?"};
  }
  return text;
}

bool is_compressed(const std::string& content) {
  return content.compare(0, 2, "\x1f\x8b") == 0;
}

#ifdef GRADUS_REPORT_WITH_GZIP

/// Traces shrink to a tenth or so; what grows much more is not one, and could fill the memory.
constexpr std::size_t most_growth = 256;

std::string inflated(const std::string& path, std::size_t compressed_size) {
  constexpr std::size_t block = std::size_t{1} << 20;
  const std::size_t most = most_growth * compressed_size + block;
  std::string text;
  try {
    data::gzip_source source{path};
    for (;;) {
      const std::size_t before = text.size();
      text.resize(before + block);
      const std::size_t got = source.read({reinterpret_cast<std::uint8_t*>(text.data()) + before, block});
      text.resize(before + got);
      if (got < block) {
        return text;
      }
      if (text.size() > most) {
        throw report_error{path + ": inflates to more than " + std::to_string(most_growth) +
                           " times its size: it is no trace"};
      }
    }
  } catch (const error& failure) {
    throw report_error{path + ": " + failure.what()};
  }
}

#else

std::string inflated(const std::string& path, std::size_t /*compressed_size*/) {
  throw report_error{path +
                     ": is compressed, and this gradus_report was built without zlib. Write it as text first: "
                     "gunzip --stdout FILE.gz > FILE"};
}

#endif

}  // namespace

trace read_trace_file(const std::string& path) {
  std::string content = content_of(path);
  if (is_compressed(content)) {
    content = inflated(path, content.size());
  }
  return read_trace(content, path);
}

}  // namespace gradus::report
