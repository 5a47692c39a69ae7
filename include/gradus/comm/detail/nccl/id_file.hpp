// SPDX-License-Identifier: BSL-1.0
//
// The file through which ranks that share only a directory exchange the id by which they connect.
#pragma once

#include <chrono>       // std::chrono::milliseconds
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <cstdio>       // std::fopen, std::fread, std::fwrite, std::rename, std::remove, std::fgetc
#include <cstring>      // std::memcmp, std::memcpy
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <thread>       // std::this_thread

#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"

namespace gradus::comm::detail {

/// The file: "gradus-id", the number of ranks, the bytes of the id, a checksum of both.
struct id_file_head {
  char magic[12];
  std::int32_t ranks;
  std::uint32_t bytes;
  std::uint32_t unused;
  std::uint64_t checksum;
};

struct close_file {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

[[nodiscard]] inline std::uint64_t id_checksum(int ranks, std::span<const std::byte> id) noexcept {
  const std::string_view text{reinterpret_cast<const char*>(id.data()), id.size()};
  return gradus::detail::mix_bits(gradus::detail::hash_text(text) + static_cast<std::uint64_t>(ranks));
}

[[nodiscard]] inline id_file_head id_head(int ranks, std::span<const std::byte> id) noexcept {
  id_file_head head{};
  std::memcpy(head.magic, "gradus-id\n", 10);
  head.ranks = ranks;
  head.bytes = static_cast<std::uint32_t>(id.size());
  head.checksum = id_checksum(ranks, id);
  return head;
}

/// Writes the id on rank 0. The file appears complete or not at all.
/// @throws configuration_error if the file exists, perhaps from an earlier run, or cannot be written
inline void write_id_file(const std::string& path, int ranks, std::span<const std::byte> id) {
  // "x" refuses a path that exists, also if two groups of ranks create it at the same time.
  const std::string temporary = path + ".part";
  std::unique_ptr<std::FILE, close_file> there{std::fopen(path.c_str(), "rb")};
  if (there != nullptr) {
    gradus::raise<configuration_error>("id_file", "a file that does not exist yet", {path, " exists"},
                                       "remove it: it may be from an earlier run; every run needs its own path");
  }
  std::unique_ptr<std::FILE, close_file> file{std::fopen(temporary.c_str(), "wbx")};
  const id_file_head head = id_head(ranks, id);
  bool written = file != nullptr && std::fwrite(&head, sizeof(head), 1, file.get()) == 1 &&
                 std::fwrite(id.data(), 1, id.size(), file.get()) == id.size() && std::fflush(file.get()) == 0;
  file.reset();
  written = written && std::rename(temporary.c_str(), path.c_str()) == 0;
  if (!written) {
    gradus::raise<configuration_error>(
        "id_file", "a file for the id that can be written", {path, " cannot: ", temporary},
        "give a path in a directory that all ranks share and may write to; remove what is left "
        "of a run before");
  }
}

/// Waits for the file and reads the id from it, on the other ranks.
/// @throws communication_error if it does not appear in time
/// @throws format_error if it is not such a file
/// @throws configuration_error if it is for another number of ranks
inline void read_id_file(const std::string& path, int ranks, std::span<std::byte> id, std::chrono::milliseconds limit) {
  const clock::time_point deadline = clock::now() + limit;
  std::unique_ptr<std::FILE, close_file> file;
  while ((file = std::unique_ptr<std::FILE, close_file>{std::fopen(path.c_str(), "rb")}) == nullptr) {
    if (clock::now() >= deadline) {
      gradus::raise<communication_error>("id_file", {"the id of rank 0 in ", path, " within ", seconds_text(limit)},
                                         "no such file",
                                         "check that rank 0 runs and that all ranks use the same directory");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  id_file_head head{};
  const bool has_head = std::fread(&head, sizeof(head), 1, file.get()) == 1;
  if (!has_head || std::memcmp(head.magic, id_head(0, {}).magic, sizeof(head.magic)) != 0 || head.bytes != id.size() ||
      std::fread(id.data(), 1, id.size(), file.get()) != id.size() || std::fgetc(file.get()) != EOF ||
      head.checksum != id_checksum(head.ranks, id)) {
    gradus::raise<format_error>("id_file", {"the id of rank 0 in ", path}, "another file",
                                "choose a path that is not used otherwise");
  }
  if (head.ranks != ranks) {
    gradus::raise<configuration_error>("id_file", {"the id of a group of ", ranks, " ranks in ", path},
                                       {"one of ", head.ranks}, "start all ranks with the same number of ranks");
  }
}

}  // namespace gradus::comm::detail
