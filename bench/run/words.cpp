// SPDX-License-Identifier: BSL-1.0
//
// Words of commands, as a shell reads them, and words with the numbers of a job in them.
#include "words.hpp"

#include <algorithm>  // std::any_of
#include <cstddef>    // std::size_t

#include "gradus/core/text.hpp"

namespace supervisor {

std::string shell_word(std::string_view word) {
  constexpr std::string_view harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!word.empty() && word.find_first_not_of(harmless) == std::string_view::npos) {
    return std::string{word};
  }
  std::string text = "'";
  for (const char each : word) {
    if (each == '\'') {
      text += "'\\''";
    } else {
      text += each;
    }
  }
  return text + "'";
}

std::string shell_line(const word_list& command) {
  std::string line;
  for (const std::string& each : command) {
    line += (line.empty() ? "" : " ") + shell_word(each);
  }
  return line;
}

word_list with_number(const word_list& command, std::string_view name, int number) {
  const std::string braced_name = gradus::join({"{", name, "}"});
  const std::string digits = std::to_string(number);
  word_list replaced = command;
  for (std::string& word : replaced) {
    for (std::size_t at = word.find(braced_name); at != std::string::npos;
         at = word.find(braced_name, at + digits.size())) {
      word.replace(at, braced_name.size(), digits);
    }
  }
  return replaced;
}

bool has_number(const word_list& command, std::string_view name) {
  const std::string braced_name = gradus::join({"{", name, "}"});
  return std::any_of(command.begin(), command.end(),
                     [&](const std::string& word) { return word.find(braced_name) != std::string::npos; });
}

}  // namespace supervisor
