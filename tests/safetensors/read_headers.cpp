// SPDX-License-Identifier: BSL-1.0
//
// Reads headers of .safetensors files for compare.py. Standard input is a sequence of batches: the number of files
// (32 bits, little-endian), and the number of bytes (32 bits) and the bytes of each. For each batch it writes the bytes
// of its answer (32 bits) and a line for each file: "-" and the message if it is refused, or "+" and for each tensor
// name (hexadecimal), type, extents, begin and end.
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t, std::uint32_t
#include <cstdio>       // std::fflush, std::fread, std::fwrite
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"

namespace {

bool read_number(std::uint32_t& number) {
  return std::fread(&number, 1, sizeof(number), stdin) == sizeof(number);
}

std::string answer(const std::vector<std::uint8_t>& file) {
  try {
    const auto header = gradus::io::read_safetensors_header("read", file, file.size());
    std::string line{"+"};
    for (const auto& each : header.tensors) {
      line += ' ';
      for (const char letter : "x" + each.name) {
        constexpr std::string_view digits{"0123456789abcdef"};
        const auto byte = static_cast<unsigned char>(letter);
        line += digits[byte >> 4U];
        line += digits[byte & 0xfU];
      }
      gradus::append_text(line, {" ", name_of(each.type), " "});
      for (const auto extent : each.shape) {
        gradus::append_text(line, {extent, ","});
      }
      gradus::append_text(line, {" ", each.begin, " ", each.end});
    }
    return line;
  } catch (const gradus::format_error& failure) {
    std::string line{"-"};
    for (const char letter : failure.message()) {
      line += letter == '\n' ? ' ' : letter;
    }
    return line;
  }
}

}  // namespace

int main() {
  std::uint32_t files = 0;
  std::vector<std::uint8_t> file;
  while (read_number(files)) {
    std::string answers;
    for (std::uint32_t i = 0; i < files; ++i) {
      std::uint32_t size = 0;
      if (!read_number(size)) {
        return 1;
      }
      file.resize(size);
      if (std::fread(file.data(), 1, size, stdin) != size) {
        return 1;
      }
      answers += answer(file) + '\n';
    }
    const auto size = static_cast<std::uint32_t>(answers.size());
    std::fwrite(&size, 1, sizeof(size), stdout);
    std::fwrite(answers.data(), 1, answers.size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}
