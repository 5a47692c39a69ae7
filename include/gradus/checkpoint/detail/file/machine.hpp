// SPDX-License-Identifier: BSL-1.0
//
// Which machine a rank runs on, and whether two ranks have one file open.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdio>   // std::fclose, std::fopen, std::fread
#include <string>   // std::string

#include "gradus/core/config.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/host_name.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io::detail {

/// "rank 2 on 'host'".
[[nodiscard]] inline std::string node_text(int rank, const std::string& host) {
  return join({"rank ", rank, " on '", host, "'"});
}

/// A text that differs between machines: the name, and on Linux the random number of the boot. Containers of one
/// machine may count as several.
[[nodiscard]] inline std::string machine_identity() {
  std::string text = host_name();
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/random/boot_id", "re"); file != nullptr) {
    char boot[64];
    const std::size_t size = std::fread(boot, 1, sizeof(boot), file);
    std::fclose(file);
    text.append(1, ' ').append(boot, size);
  }
  return text;
}

/// A text that is the same on two ranks only if they have opened one file. Equal paths on two machines may be two
/// files, also with equal numbers: the machine is part of it. One file of a network file system has a text on each
/// machine.
[[nodiscard]] inline std::string file_identity(const std::string& machine, const file_status& status) {
  return join({machine, " ", status.device, " ", status.number});
}

}  // namespace gradus::io::detail
