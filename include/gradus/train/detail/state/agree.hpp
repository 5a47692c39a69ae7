// SPDX-License-Identifier: BSL-1.0
//
// A mistake of one rank becomes an error on all.
#pragma once

#include <algorithm>    // std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <cstring>      // std::memcpy
#include <exception>    // std::current_exception, std::exception, std::exception_ptr, std::rethrow_exception
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/link.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"

namespace gradus::train::detail {

/// Calls work() on all ranks, which sends nothing. If it throws on one rank, all ranks throw, before any goes on.
/// @throws what work throws; on other ranks configuration_error with the text of the first rank that failed
template <class Work>
void all_or_none(comm::link& group, std::string_view what, const Work& work) {
  constexpr std::size_t length = 1024;
  std::exception_ptr own;
  std::string text;
  try {
    work();
  } catch (const error& failure) {
    own = std::current_exception();
    text = failure.message();
  } catch (const std::exception& failure) {
    own = std::current_exception();
    text = failure.what();
  }
  if (own != nullptr && text.empty()) {
    text = "an exception without a text";
  }
  if (group.size() > 1) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::uint8_t failed[] = {own != nullptr ? std::uint8_t{1} : std::uint8_t{0}};
    dynamic_array<std::uint8_t> flags(ranks);
    group.all_gather(failed, {flags.data(), flags.size()});
    std::size_t first = 0;
    while (first < ranks && flags[first] == 0) {
      ++first;
    }
    if (first == ranks) {
      return;
    }
    dynamic_array<std::uint8_t> mine(length);
    dynamic_array<std::uint8_t> texts(ranks * length);
    std::memcpy(mine.data(), text.data(), std::min(text.size(), length - 1));
    group.all_gather({mine.data(), mine.size()}, {texts.data(), texts.size()});
    if (own == nullptr) {
      raise<configuration_error>(
          what, {}, {"rank ", first, " has failed: ", reinterpret_cast<const char*>(texts.data() + first * length)});
    }
  }
  if (own != nullptr) {
    std::rethrow_exception(own);
  }
}

/// Returns when all ranks have called it.
inline void meet(comm::link& group) {
  if (group.size() > 1) {
    const std::uint8_t one[] = {1};
    dynamic_array<std::uint8_t> all(static_cast<std::size_t>(group.size()));
    group.all_gather(one, {all.data(), all.size()});
  }
}

}  // namespace gradus::train::detail
