// SPDX-License-Identifier: BSL-1.0
//
// Words of commands, as a shell reads them, and words with the numbers of a job in them.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

namespace supervisor {

using word_list = std::vector<std::string>;

/// The word as a POSIX shell reads it back unchanged, whatever it has: in single quotes unless it is harmless.
[[nodiscard]] std::string shell_word(std::string_view word);
/// The words of a command as one line for a POSIX shell.
[[nodiscard]] std::string shell_line(const word_list& command);

/// The words with each {name} replaced by the number.
[[nodiscard]] word_list with_number(const word_list& command, std::string_view name, int number);
/// Whether a word has {name}.
[[nodiscard]] bool has_number(const word_list& command, std::string_view name);

}  // namespace supervisor
