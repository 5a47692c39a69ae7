// SPDX-License-Identifier: BSL-1.0
//
// Texts of the library's errors for programs that call the C interface: functions of C++ become those of gradus_c.h.
#pragma once

#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace gradus_c {

namespace detail {

/// What the C interface says in place of words of the library.
struct translation {
  std::string_view words;
  std::string_view in_c;
};

inline constexpr translation translations[] = {
    {"keep the mpi_environment until the end of main, and MPI_Finalize behind it",
     "call MPI_Finalize behind the last call of gradus"},
    {"keep the mpi_environment until the end of main", "call MPI_Finalize behind the last call of gradus"},
    {"compile for batches of this size, net.compile({.max_batch_size = ",
     "call gradus_network_compile for batches of this size (max_batch_size = "},
    {"}), or use nn::predict, which takes any number of images",
     "), or use gradus_network_predict, which takes any number of samples"},
    {"net.compile({.max_batch_size = ", "gradus_network_compile with max_batch_size = "},
    {", .micro_batch_size = ", " and micro_batch_size = "},
    {"}) computes them in parts", " computes them in parts"},
    {"call compile({.max_batch_size = ...}) first", "call gradus_network_compile first"},
    {"nn::dense{.out_features = classes}", "gradus_network_dense with out_features = classes"},
    {"; train::restore with {.same_loader = false} takes another one at the end of an epoch", ""},
    {"trainer.fit after train::restore", "the training after gradus_trainer_resume"},
    {"the loader of the training that goes on", "the options of the training that goes on"},
    {"optim::update: ", "update: "},
    {"trainer.resume(folder)", "gradus_trainer_resume"},
    {"trainer.fit", "the training"},
    {"set_time_limit", "gradus_comm_set_time_limit"},
};

/// Without " [file.hpp:116]", which the errors of other ranks have within the text.
[[nodiscard]] inline std::string without_locations(std::string text) {
  for (std::size_t begin = text.find(" [", 1); begin != std::string::npos; begin = text.find(" [", begin)) {
    const std::size_t end = text.find_first_of("] ", begin + 2);
    const std::size_t colon = text.rfind(':', end);
    const bool location = end != std::string::npos && text[end] == ']' && colon > begin && colon + 1 < end &&
                          text.find_first_not_of("0123456789", colon + 1) == end && text.find('.', begin) < colon;
    if (location) {
      const bool stops = text[begin - 1] == '.' && text.substr(end + 1).starts_with('.');  // ". [file.hpp:116]."
      text.erase(begin, end + 1 - begin + (stops ? 1 : 0));
    } else {
      begin += 2;
    }
  }
  return text;
}

/// True for advice that is in C++ still.
[[nodiscard]] inline bool is_cpp(std::string_view advice) noexcept {
  for (const std::string_view sign : {"::", "{."}) {
    if (advice.find(sign) != std::string_view::npos) {
      return true;
    }
  }
  for (const std::string_view object : {"net.", "trainer."}) {
    const std::size_t at = advice.find(object);
    const std::size_t end = at + object.size();
    if (at != std::string_view::npos && end < advice.size() && advice[end] >= 'a' && advice[end] <= 'z') {
      return true;
    }
  }
  return false;
}

/// Hints without their parts that are in C++ still. Parts end with "; " or ". ".
[[nodiscard]] inline std::string without_cpp_hints(std::string_view text) {
  constexpr std::string_view mark = " Hint: ";
  std::size_t hint = text.find(mark);
  std::string result{text.substr(0, hint)};
  while (hint != std::string_view::npos) {
    const std::size_t next = text.find(mark, hint + mark.size());
    std::string_view rest =
        text.substr(hint + mark.size(), next == std::string_view::npos ? next : next - hint - mark.size());
    std::string kept;
    while (!rest.empty()) {
      std::size_t end = rest.find("; ");
      if (const std::size_t stop = rest.find(". "); stop < end) {
        end = stop;
      }
      const std::string_view part = rest.substr(0, end);
      if (!is_cpp(part)) {
        kept += rest.substr(0, end == std::string_view::npos ? end : end + 2);
      }
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
    }
    if (kept.ends_with("; ")) {
      kept.replace(kept.size() - 2, 2, ".");
    } else if (kept.ends_with(' ')) {
      kept.pop_back();
    }
    result += kept.empty() ? "" : std::string{mark} + kept;
    hint = next;
  }
  return result;
}

}  // namespace detail

/// A text of the library as the C interface says it: without lines of headers, and without advice for C++.
[[nodiscard]] inline std::string text_in_c(std::string_view text) {
  std::string result = detail::without_locations(std::string{text});
  for (const detail::translation& each : detail::translations) {
    for (std::size_t at = result.find(each.words); at != std::string::npos;
         at = result.find(each.words, at + each.in_c.size())) {
      result.replace(at, each.words.size(), each.in_c);
    }
  }
  return detail::without_cpp_hints(result);
}

}  // namespace gradus_c
