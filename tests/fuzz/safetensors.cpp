// SPDX-License-Identifier: BSL-1.0
//
// The reader of .safetensors files. What it accepts is written again, and must then be read as the same.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <cstdlib>  // std::abort
#include <span>     // std::span
#include <string>   // std::string
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const gradus_fuzz::input_file input{data, size};
  try {
    const gradus::io::safetensors_file file{input.path(), size % 2 == 0};
    for (const auto& each : file.tensors()) {
      std::vector<float> numbers(gradus::io::safetensors_file::elements_of(each));
      file.read(each, std::span<float>{numbers});
      if (file.find(each.name) != &each || file.bytes(each).size() != each.end - each.begin) {
        std::abort();
      }
    }
    const auto header = gradus::io::lay_out_safetensors(file.header().tensors, file.header().metadata);
    const std::string head = gradus::io::safetensors_head(header);
    std::vector<std::uint8_t> again(head.begin(), head.end());
    const auto read = gradus::io::read_safetensors_header("again", again, header.file_size());
    if (read.metadata != header.metadata || read.tensors.size() != header.tensors.size()) {
      std::abort();
    }
    for (const auto& each : read.tensors) {
      const auto* const before = header.find(each.name);
      if (before == nullptr || before->type != each.type || before->shape != each.shape) {
        std::abort();
      }
    }
  } catch (const gradus::format_error&) {
  }
  return 0;
}
