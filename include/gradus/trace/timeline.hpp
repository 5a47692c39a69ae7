// SPDX-License-Identifier: BSL-1.0
//
// Collects the recordings of all ranks on rank 0, with one common clock.
#pragma once

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t
#include <cstring>    // std::strlen
#include <limits>     // std::numeric_limits
#include <map>        // std::map
#include <memory>     // std::make_shared, std::shared_ptr
#include <optional>   // std::nullopt, std::optional
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::erase_if, std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/host_name.hpp"
#include "gradus/trace/clock_alignment.hpp"
#include "gradus/trace/detail/file/wire.hpp"
#include "gradus/trace/detail/recorder/clock.hpp"
#include "gradus/trace/detail/recorder/name_table.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace {

/// The recording of one rank.
struct rank_timeline {
  std::string host;           ///< host name
  std::vector<span> spans;    ///< as recording::spans, in nanoseconds since timeline::begin
  std::uint64_t dropped = 0;  ///< number of missing spans, which are older than the others
  double clock_error = 0;     ///< largest possible difference of times to the clock of rank 0, in nanoseconds
};

/// When the last rank arrived at a collective, and which rank it was.
struct arrival {
  std::int64_t time = 0;  ///< in nanoseconds since timeline::begin
  int rank = 0;           ///< the last rank to arrive
};

/// The recordings of all ranks, in the time of rank 0.
class timeline {
 public:
  timeline() = default;

  /// Takes over recordings with times of one clock.
  /// @param names  keeps the names of the spans valid, if necessary
  explicit timeline(std::vector<rank_timeline> ranks, std::shared_ptr<const void> names = nullptr)
      : ranks_{std::move(ranks)}, names_{std::move(names)} {
    move_to_zero();
    find_arrivals();
  }

  /// The recordings, one per rank.
  [[nodiscard]] const std::vector<rank_timeline>& ranks() const noexcept { return ranks_; }

  /// Removes spans that ended before the first step of any rank began. Ranks without steps, such as servers, do not
  /// know when the others begin to record.
  void begin_with_steps() {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    for (const rank_timeline& rank : ranks_) {
      for (const span& one : rank.spans) {
        begin = one.what == category::step ? std::min(begin, one.begin) : begin;
      }
    }
    if (begin == std::numeric_limits<std::int64_t>::max()) {
      return;
    }
    for (rank_timeline& rank : ranks_) {
      std::erase_if(rank.spans, [&](const span& one) { return one.end < begin; });
    }
    move_to_zero();
    arrivals_.clear();
    groups_.clear();
    find_arrivals();
  }

  /// When the last rank arrived at the collective of which `part` is one rank's span. Until then the rank waited; after
  /// that data were transferred. On other ranks a broadcast waits only for the root, so for their spans this is when
  /// the root and the rank itself had arrived. Empty if it is not a collective, or if a rank that must take part has
  /// not recorded it.
  [[nodiscard]] std::optional<arrival> all_arrived(const span& part) const {
    if (!part.is_collective()) {
      return std::nullopt;
    }
    const auto found = arrivals_.find(key_of(part));
    if (found == arrivals_.end() || (part.needs_all_ranks() && found->second.parts != members_of(part))) {
      return std::nullopt;
    }
    const arrival& last = found->second.last;
    return arrival{std::max(last.time, part.begin), last.rank};
  }

 private:
  using key = std::array<std::uint32_t, 4>;  // channel, tag, operation, sequence
  struct arrived {
    arrival last{};
    std::size_t parts = 0;
  };

  /// The ranks that have recorded collectives of a comm::subset.
  struct group {
    std::size_t members = 0;
    std::size_t last_rank = 0;
  };
  using group_key = std::array<std::uint32_t, 2>;  // channel, tag

  static group_key group_of(const span& one) noexcept { return {one.channel, static_cast<std::uint32_t>(one.tag)}; }

  [[nodiscard]] std::size_t members_of(const span& one) const {
    const auto found = one.tag == 0 ? groups_.end() : groups_.find(group_of(one));
    return found == groups_.end() ? ranks_.size() : found->second.members;
  }

  static key key_of(const span& one) noexcept {
    return {one.channel, static_cast<std::uint32_t>(one.tag), one.operation, one.sequence};
  }

  void move_to_zero() {
    std::int64_t begin = 0;
    bool any = false;
    for (const rank_timeline& rank : ranks_) {
      for (const span& one : rank.spans) {
        begin = any ? std::min(begin, one.begin) : one.begin;
        any = true;
      }
    }
    for (rank_timeline& rank : ranks_) {
      for (span& one : rank.spans) {
        one.begin -= begin;
        one.end -= begin;
      }
    }
  }

  void find_arrivals() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const span& one : ranks_[rank].spans) {
        if (one.needs_all_ranks() && one.tag != 0) {
          group& in = groups_[group_of(one)];
          if (in.members == 0 || in.last_rank != rank) {
            in = {in.members + 1, rank};
          }
        }
        const bool root = one.is_collective() && one.peer == static_cast<std::int32_t>(rank);
        if (one.needs_all_ranks() || root) {
          arrived& found = arrivals_[key_of(one)];
          if (found.parts++ == 0 || one.begin > found.last.time) {
            found.last = {one.begin, static_cast<int>(rank)};
          }
        }
      }
    }
  }

  std::vector<rank_timeline> ranks_;
  std::map<key, arrived> arrivals_;
  std::map<group_key, group> groups_;
  std::shared_ptr<const void> names_;
};

namespace detail {

/// Packs a rank's spans with times of rank 0.
[[nodiscard]] inline std::vector<std::uint8_t> pack(const recording& own, const clock_alignment& clock) {
  name_numbers names;
  std::vector<wire_span> spans;
  spans.reserve(own.spans.size());
  for (const span& one : own.spans) {
    wire_span packed{.content = one, .title = names.number(one.title), .subject = names.number(one.subject)};
    packed.content.begin = clock.of_rank_0(one.begin);
    packed.content.end = clock.of_rank_0(one.end);
    packed.content.title = {};
    packed.content.subject = {};
    spans.push_back(packed);
  }
  byte_writer out;
  const std::string host = host_name();
  out.put_text(host.data(), host.size());
  out.put(own.dropped);
  out.put(clock.error());
  out.put<std::uint64_t>(names.texts().size());
  for (const char* const text : names.texts()) {
    out.put_text(text, std::strlen(text));
  }
  out.put<std::uint64_t>(spans.size());
  for (const wire_span& one : spans) {
    out.put(one);
  }
  return std::move(out.bytes());
}

[[nodiscard]] inline rank_timeline unpack(std::span<const std::uint8_t> bytes, name_table& names) {
  byte_reader in{bytes};
  rank_timeline rank;
  rank.host = in.get_text();
  rank.dropped = in.get<std::uint64_t>();
  rank.clock_error = in.get<double>();
  if (!(rank.clock_error >= 0 && rank.clock_error < 1e18)) {
    raise<format_error>("trace", "a clock error of at least 0 ns", {rank.clock_error});
  }
  std::vector<name> known(in.get_count(sizeof(std::uint64_t)));
  for (name& each : known) {
    each = names.intern(in.get_text());
  }
  const auto name_at = [&](std::uint32_t number) { return number < known.size() ? known[number] : name{}; };
  rank.spans.resize(in.get_count(sizeof(wire_span)));
  for (span& each : rank.spans) {
    const auto packed = in.get<wire_span>();
    each = packed.content;
    if (static_cast<int>(each.what) >= categories || static_cast<int>(each.where) >= tracks) {
      raise<format_error>("trace", "a span of a known category and track", "another one",
                          "run the same version of the program on all ranks");
    }
    constexpr std::int64_t latest = std::int64_t{1} << 61U;  // so that differences of times do not overflow
    if (each.begin < -latest || each.end > latest || each.end < each.begin) {
      raise<format_error>("trace", {"a span that ends after its begin, within ", latest, " ns"},
                          {"one from ", each.begin, " to ", each.end});
    }
    each.title = name_at(packed.title);
    each.subject = name_at(packed.subject);
  }
  return rank;
}

/// Calls take on rank 0 with the bytes of each rank, one after another.
template <class Take>
void gather_bytes(comm::any_communicator& communicator, std::span<const std::uint8_t> own, const Take& take) {
  constexpr std::size_t most_at_once = std::size_t{1} << 24U;
  constexpr int tag = 1;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(communicator.size()));
  const std::int64_t size[] = {static_cast<std::int64_t>(own.size())};
  comm::all_gather(communicator, std::span{size}, sizes).wait();
  if (communicator.rank() != 0) {
    for (std::size_t done = 0; done < own.size(); done += most_at_once) {
      comm::send(communicator, 0, own.subspan(done, std::min(most_at_once, own.size() - done)), tag).wait();
    }
    return;
  }
  take(own);
  std::vector<std::uint8_t> bytes;
  for (int peer = 1; peer < communicator.size(); ++peer) {
    bytes.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(peer)]));
    for (std::size_t done = 0; done < bytes.size(); done += most_at_once) {
      const auto part = std::span{bytes}.subspan(done, std::min(most_at_once, bytes.size() - done));
      comm::receive(communicator, peer, part, tag).wait();
    }
    take(std::span<const std::uint8_t>{bytes});
  }
}

}  // namespace detail

/// Collects the ranks' recordings on rank 0, which gets all of them; the others get an empty timeline. All ranks call
/// it; recording is off afterwards. It compares the clocks again and assumes a constant drift since the communicator
/// was traced. Rank 0 needs 64 bytes for each span of all ranks.
/// @throws communication_error if a rank fails or does not call it in time
[[nodiscard]] inline timeline collect(recorder& from, comm::any_communicator communicator) {
  from.enable(false);
  const clock_offset last = measure_clock(communicator, &detail::steady_nanoseconds);
  const clock_alignment clock{from.first_clock().value_or(last), last};
  const auto names = std::make_shared<detail::name_table>();
  std::vector<rank_timeline> ranks;
  detail::gather_bytes(communicator, detail::pack(from.read(), clock),
                       [&](std::span<const std::uint8_t> bytes) { ranks.push_back(detail::unpack(bytes, *names)); });
  return timeline{std::move(ranks), names};
}

}  // namespace gradus::trace
