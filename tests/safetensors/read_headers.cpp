// SPDX-License-Identifier: BSL-1.0
//
// Reads headers of .safetensors files for compare.py. Standard input is a sequence of batches: the number of files
// (32 bits, little-endian), and the number of bytes (32 bits) and the bytes of each. For each batch it writes the bytes
// of its answer (32 bits) and a line for each file: "-" and the message if it is refused, or "+" and for each tensor
// name (hexadecimal), type, extents, begin and end.
//
// With an argument it writes a file of that name instead, which compare.py knows.
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t, std::uint32_t
#include <cstdio>       // std::fflush, std::fread, std::fwrite
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/safetensors_file.hpp"

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

/// Tensors of several types, an empty one, a number, and texts with characters that JSON escapes.
void write_file(const std::string& path) {
  const std::vector<float> numbers{0.0F, -1.5F, 2.25F, 3.0F, 1e-3F, 1e30F};
  const std::vector<double> doubles{0.1};
  const std::vector<gradus::bfloat16> halves{gradus::bfloat16{1.0F}, gradus::bfloat16{-2.5F}};
  const std::vector<gradus::float16> others{gradus::float16{0.5F}};
  const std::vector<std::int64_t> counts{-1, 2};
  const std::vector<std::uint8_t> bytes{1, 2, 255};
  const std::vector<std::int32_t> none;
  gradus::io::safetensors_writer writer;
  writer.add("conv1.weight", numbers, {1, 2, 3}).add("number", doubles, {}).add("b", halves, {2}).add("h", others, {1});
  writer.add("counts", counts, {2, 1}).add("bytes", bytes, {3}).add("none", none, {0, 5});
  writer.metadata("format", "pt").metadata("a \"b\"", "line\n\\\x01\xe2\x82\xac");
  writer.write(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    write_file(argv[1]);
    return 0;
  }
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
