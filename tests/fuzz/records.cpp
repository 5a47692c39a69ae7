// SPDX-License-Identifier: BSL-1.0
//
// The reader of record files: the index, the names and the images. The input as it is, and with the checksum of its
// index made right, which leads further in.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t, std::uint64_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/record_file.hpp"
#include "input.hpp"

namespace {

void read_all_of(std::span<const std::uint8_t> input) {
  const gradus_fuzz::input_file file{input.data(), input.size()};
  try {
    const gradus::data::record_file records{file.path()};
    std::vector<std::uint8_t> image;
    for (gradus::index_t i = 0; i < records.size() && i < 100; ++i) {
      static_cast<void>(records.name(i));
      static_cast<void>(records.label(i));
      try {
        records.read(i, image);
      } catch (const gradus::format_error&) {
      }
    }
  } catch (const gradus::format_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace detail = gradus::data::detail;
  constexpr std::size_t foot_bytes = gradus::data::record_format::foot_bytes;
  read_all_of({data, size});
  if (size < foot_bytes) {
    return 0;
  }
  std::vector<std::uint8_t> changed(data, data + size);
  std::uint8_t* const foot = changed.data() + size - foot_bytes;
  const std::uint64_t index = detail::get_number(foot, 8);
  if (index <= size - foot_bytes) {
    const std::span entries = std::span{changed}.subspan(index, size - foot_bytes - index);
    detail::put_number(foot + 20, detail::checksum(0, entries), 4);
    read_all_of(changed);
  }
  return 0;
}
