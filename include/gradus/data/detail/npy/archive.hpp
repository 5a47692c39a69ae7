// SPDX-License-Identifier: BSL-1.0
//
// The arrays of NumPy's .npz files: zip archives without compression.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t, std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/detail/npy/crc32.hpp"

namespace gradus::data::detail {

/// Little-endian numbers in a file, none of them behind its end.
class zip_numbers {
 public:
  zip_numbers(const std::string& operation, std::span<const std::uint8_t> file) : operation_{operation}, file_{file} {}

  /// The number of `bytes` bytes at a position.
  [[nodiscard]] std::uint64_t at(std::uint64_t position, std::size_t bytes) const {
    const std::span<const std::uint8_t> from = part(position, bytes);
    std::uint64_t number = 0;
    for (std::size_t i = bytes; i-- > 0;) {
      number = number << 8U | from[i];
    }
    return number;
  }
  /// Bytes at a position.
  [[nodiscard]] std::span<const std::uint8_t> part(std::uint64_t position, std::uint64_t bytes) const {
    if (position > file_.size() || bytes > file_.size() - position) {
      raise<format_error>(operation_, "a complete .npz archive", "one that ends early",
                          "the file was not copied completely");
    }
    const std::size_t first = position;
    const std::size_t count = bytes;
    return file_.subspan(first, count);
  }
  /// Refuses another mark than `expected`.
  void require_mark(std::uint64_t position, std::uint64_t expected) const {
    if (at(position, 4) != expected) {
      raise<format_error>(operation_, "a .npz archive", "a file with another structure", "write it with np.savez");
    }
  }

 private:
  const std::string& operation_;
  std::span<const std::uint8_t> file_;
};

/// The .npy file of the array `name` in a .npz file (PKWARE: ".ZIP File Format Specification", with zip64).
/// @throws format_error if the archive has no such array or compresses it, or its bytes have another checksum
[[nodiscard]] inline std::span<const std::uint8_t> npz_member(const std::string& operation,
                                                              std::span<const std::uint8_t> file,
                                                              std::string_view name) {
  constexpr std::uint64_t in_zip64 = 0xffffffffU;
  const zip_numbers numbers{operation, file};
  constexpr std::size_t end_size = 22;
  constexpr std::size_t longest_comment = 65535;
  std::size_t end = file.size() < end_size ? 0 : file.size() - end_size;
  const std::size_t least = end > longest_comment ? end - longest_comment : 0;
  while (end > least && numbers.at(end, 4) != 0x06054b50U) {
    --end;
  }
  numbers.require_mark(end, 0x06054b50U);
  std::uint64_t count = numbers.at(end + 10, 2);
  std::uint64_t entry = numbers.at(end + 16, 4);
  if ((entry == in_zip64 || count == 0xffffU) && end >= 20) {
    numbers.require_mark(end - 20, 0x07064b50U);
    const std::uint64_t record = numbers.at(end - 12, 8);
    numbers.require_mark(record, 0x06064b50U);
    count = numbers.part(record, 56).size() == 56 ? numbers.at(record + 32, 8) : 0;
    entry = numbers.at(record + 48, 8);
  }
  std::string names;
  for (std::uint64_t k = 0; k < count; ++k) {
    numbers.require_mark(entry, 0x02014b50U);
    const std::uint64_t name_size = numbers.at(entry + 28, 2);
    const std::uint64_t extra_size = numbers.at(entry + 30, 2);
    const std::span<const std::uint8_t> bytes = numbers.part(entry + 46, name_size);
    std::string_view found{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    found.remove_suffix(found.ends_with(".npy") ? 4 : 0);
    if (found == name) {
      if (numbers.at(entry + 10, 2) != 0) {
        raise<format_error>(operation, "an array without compression", "a compressed one",
                            "write it with np.savez instead of np.savez_compressed");
      }
      std::uint64_t size = numbers.at(entry + 24, 4);
      std::uint64_t local = numbers.at(entry + 42, 4);
      std::uint64_t extra = entry + 46 + name_size;
      const std::uint64_t extra_end = extra + extra_size;
      while (extra + 4 <= extra_end) {
        std::uint64_t value = extra + 4;
        if (numbers.at(extra, 2) == 1) {  // zip64: the numbers that do not fit 32 bits
          if (size == in_zip64) {
            size = numbers.at(value, 8);
            value += numbers.at(entry + 20, 4) == in_zip64 ? 16U : 8U;
          }
          local = local == in_zip64 ? numbers.at(value, 8) : local;
        }
        extra += 4 + numbers.at(extra + 2, 2);
      }
      numbers.require_mark(local, 0x04034b50U);
      const std::span<const std::uint8_t> content =
          numbers.part(local + 30 + numbers.at(local + 26, 2) + numbers.at(local + 28, 2), size);
      if (crc32(content) != numbers.at(entry + 16, 4)) {
        raise<format_error>(operation, {"the checksum of the array '", name, "' in the archive"}, "other bytes",
                            "the file is damaged: copy it again");
      }
      return content;
    }
    if (names.size() < 200) {
      names += gradus::join({names.empty() ? "'" : ", '", printable(found), "'"});
    }
    entry += 46 + name_size + extra_size + numbers.at(entry + 32, 2);
  }
  raise<format_error>(operation, {"an array '", name, "' in the archive"},
                      {names.empty() ? "none" : std::string_view{names}});
}

}  // namespace gradus::data::detail
