// SPDX-License-Identifier: BSL-1.0
//
// Reads a network from a line of text, such as "10Gbit/s 25us".
#pragma once

#include <algorithm>    // std::min
#include <cstddef>      // std::size_t
#include <optional>     // std::nullopt, std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/sim/cluster.hpp"

namespace gradus::sim {

/// A network, and how far its numbers may be wrong.
struct described_network {
  cluster description;       ///< hosts, links and threads
  double uncertainty = 0.1;  ///< relative, of bandwidth and latency: 0.1 for numbers of a data sheet
};

namespace detail {

/// A unit and what it is worth.
struct unit_word {
  std::string_view text;
  double worth;
};

inline constexpr unit_word rates[] = {{"Gbit/s", 1.25e8},   {"gbit", 1.25e8},    {"Mbit/s", 1.25e5},
                                      {"mbit", 1.25e5},     {"Tbit/s", 1.25e11}, {"GB/s", 1e9},
                                      {"MB/s", 1e6},        {"kB/s", 1e3},       {"GiB/s", 1073741824.0},
                                      {"MiB/s", 1048576.0}, {"B/s", 1}};
inline constexpr unit_word durations[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/// How many characters at the beginning of a word are a number without a sign: "1.5e+03us" begins with seven.
[[nodiscard]] inline std::size_t length_of_number(std::string_view word) {
  constexpr std::string_view digits = "0123456789";
  const std::size_t mantissa = std::min(word.find_first_not_of("0123456789."), word.size());
  if (mantissa == word.size() || (word[mantissa] != 'e' && word[mantissa] != 'E')) {
    return mantissa;
  }
  std::size_t exponent = mantissa + 1;
  if (exponent < word.size() && (word[exponent] == '+' || word[exponent] == '-')) {
    ++exponent;
  }
  const std::size_t end = std::min(word.find_first_not_of(digits, exponent), word.size());
  return end == exponent ? mantissa : end;
}

/// "10Gbit/s" in bytes a second; nothing if it is something else.
template <std::size_t Count>
[[nodiscard]] std::optional<double> read_with_unit(std::string_view word, const unit_word (&units)[Count]) {
  const std::size_t end = length_of_number(word);
  if (end == word.size() || end == 0) {
    return std::nullopt;
  }
  const std::optional<double> number = read_number(word.substr(0, end));
  for (const unit_word& each : units) {
    if (number && word.substr(end) == each.text && is_finite(*number * each.worth)) {
      return *number * each.worth;
    }
  }
  return std::nullopt;
}

/// The words of a text; what follows '#' in a line is a comment.
class word_reader {
 public:
  explicit word_reader(std::string_view text) noexcept : rest_{text} {}

  /// Empty at the end.
  std::string_view next() noexcept {
    for (;;) {
      const std::size_t begin = rest_.find_first_not_of(" \t\r\n,;");
      if (begin == std::string_view::npos) {
        rest_ = {};
        return {};
      }
      rest_.remove_prefix(begin);
      if (rest_.front() != '#') {
        break;
      }
      const std::size_t line = rest_.find('\n');
      rest_.remove_prefix(line == std::string_view::npos ? rest_.size() : line);
    }
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t\r\n,;#"));
    rest_.remove_prefix(word.size());
    return word;
  }

 private:
  std::string_view rest_;
};

[[noreturn]] inline void refuse_network(std::string_view expected, std::string_view got) {
  raise<format_error>("the description of a network", expected,
                      got.empty() ? std::string{"the end of the text"} : join({"'", printable(got.substr(0, 80)), "'"}),
                      "for example: 10Gbit/s 25us rails 2 message 2us adding 4GB/s uncertain 10%");
}

}  // namespace detail

/// Reads a description of a network. A rate and a time are bandwidth and latency of the links between hosts; further
/// words, in any order, have a value behind them:
///
///   word               | value
///   inside             | rate and time of messages within a host
///   message            | time that a thread spends on a message at each end
///   adding             | rate at which it sums
///   carried            | rate at which a processor moves bytes through its network stack
///   stolen             | share of that time that computing loses, 0 to 1
///   poll               | time until a computing rank notices a message
///   rails              | network interfaces of a host
///   switch             | hosts on a switch
///   oversubscription   | bytes a second of these hosts over those of the uplinks
///   uncertain          | percent by which bandwidth and latency may be wrong
///
/// Rates are Gbit/s, Mbit/s, Tbit/s, GB/s, MB/s, kB/s, GiB/s, MiB/s or B/s; times are s, ms, us or ns.
/// @param begin  what the text does not say
/// @throws format_error with what was expected and what came
/// @throws configuration_error for numbers that make no sense
[[nodiscard]] inline described_network read_network(std::string_view text, const cluster& begin = {}) {
  described_network found{.description = begin};
  cluster& made = found.description;
  bool has_rate = false;
  bool has_latency = false;
  detail::word_reader words{text};
  const auto rate = [&](std::string_view word) {
    const auto value = detail::read_with_unit(word, detail::rates);
    if (!value) {
      detail::refuse_network("a rate such as 10Gbit/s or 1.2GB/s", word);
    }
    return *value;
  };
  const auto duration = [&](std::string_view word) {
    const auto value = detail::read_with_unit(word, detail::durations);
    if (!value) {
      detail::refuse_network("a time such as 25us or 0.1ms", word);
    }
    return *value;
  };
  const auto number = [&](std::string_view word, double least, double most) {
    const auto value = read_number(word);
    if (!value || !(*value >= least && *value <= most)) {
      detail::refuse_network(join({"a number from ", least, " to ", most}), word);
    }
    return *value;
  };
  const auto whole = [&](std::string_view word, double most) {
    const double value = number(word, 1, most);
    if (value != static_cast<double>(static_cast<int>(value))) {
      detail::refuse_network("a whole number", word);
    }
    return static_cast<int>(value);
  };
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == "inside") {
      made.inside.bytes_per_second = rate(words.next());
      made.inside.latency = duration(words.next());
    } else if (word == "message") {
      made.message_seconds = duration(words.next());
    } else if (word == "adding") {
      made.adding = rate(words.next());
    } else if (word == "carried") {
      made.carried_bytes_per_second = rate(words.next());
    } else if (word == "stolen") {
      made.stolen_share = number(words.next(), 0, 1);
    } else if (word == "poll") {
      made.poll_seconds = duration(words.next());
    } else if (word == "rails") {
      made.rails = whole(words.next(), 64);
    } else if (word == "switch") {
      made.hosts_per_switch = whole(words.next(), 65536);
    } else if (word == "hosts") {
      continue;  // "switch 16 hosts"
    } else if (word == "oversubscription") {
      made.oversubscription = number(words.next(), 1, 1e6);
    } else if (word == "uncertain") {
      std::string_view value = words.next();
      if (!value.ends_with('%')) {
        detail::refuse_network("a percentage such as 10%", value);
      }
      value.remove_suffix(1);
      found.uncertainty = number(value, 0, 1000) / 100;
    } else if (const auto bandwidth = detail::read_with_unit(word, detail::rates); bandwidth && !has_rate) {
      made.network.bytes_per_second = *bandwidth;
      has_rate = true;
    } else if (const auto latency = detail::read_with_unit(word, detail::durations); latency && !has_latency) {
      made.network.latency = *latency;
      has_latency = true;
    } else {
      detail::refuse_network("one bandwidth, one latency, or a word of the list", word);
    }
  }
  if (!has_rate || !has_latency) {
    detail::refuse_network(has_rate ? "a latency such as 25us" : "a bandwidth such as 10Gbit/s", {});
  }
  made.check();
  return found;
}

}  // namespace gradus::sim
