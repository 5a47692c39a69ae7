// SPDX-License-Identifier: BSL-1.0
//
// The reader of checkpoints: the input as it is, and with the checksum of its header made right, which leads further
// in.
#include <algorithm>  // std::min
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint32_t, std::uint8_t
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/checkpoint/reader.hpp"
#include "gradus/core/error.hpp"
#include "input.hpp"

namespace {

void read_all_of(const std::uint8_t* data, std::size_t size) {
  const gradus_fuzz::input_file file{data, size};
  try {
    const gradus::io::checkpoint_reader reader{file.path()};
    std::vector<std::byte> bytes;
    for (const auto& each : reader.header().tensors) {
      bytes.resize(static_cast<std::size_t>(each.end - each.begin));
      reader.read(each, 0, bytes);
    }
    reader.compare_checksums();
  } catch (const gradus::format_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_all_of(data, size);
  std::string text{gradus_fuzz::text_of(data, size)};
  if (size < 8) {
    return 0;
  }
  std::size_t length = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length << 8U | data[i];
  }
  const std::string head = text.substr(0, std::min(length, size - 8) + 8);
  const std::size_t position = gradus::io::detail::header_checksum_position(head);
  if (position != std::string::npos) {
    text.replace(position, 8, gradus::io::detail::checksum_text(gradus::io::detail::header_checksum(head, position)));
    read_all_of(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  return 0;
}
