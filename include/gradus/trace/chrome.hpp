// SPDX-License-Identifier: BSL-1.0
//
// Writes a timeline in Chrome's trace event format, which Perfetto and gradus_report open.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t, std::uint32_t, std::uint64_t
#include <map>          // std::map
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/output_file.hpp"
#include "gradus/core/text.hpp"
#include "gradus/trace/detail/file/json.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"
#include "gradus/trace/text_sink.hpp"
#include "gradus/trace/timeline.hpp"

namespace gradus::trace {

/// Properties about the traced program that are written to the file.
struct program_properties {
  std::string model = {};           ///< name of the model
  index_t batch_size_per_rank = 0;  ///< batch size of one rank, with stages of one replica
  int threads = 0;                  ///< threads of a rank
};

/// A sink that writes a plain file, which has its name when it is closed.
class file_sink final : public text_sink {
 public:
  /// @throws format_error if the file cannot be created
  explicit file_sink(std::string path) : file_{std::move(path)} {}

  void write(std::string_view text) override { file_.write(text); }

  /// Makes the file durable and gives it its name. @throws format_error if not everything could be written
  void close() { file_.commit(); }

 private:
  io::output_file file_;
};

namespace detail {

/// The rows of a track: spans that overlap without being nested get different rows.
class row_layout {
 public:
  /// The row of a span. @pre spans come in the order of their begin; of those that begin together the longest comes
  /// first
  [[nodiscard]] std::size_t row_of(const span& one) {
    for (std::size_t row = 0; row < open_.size(); ++row) {
      std::vector<std::int64_t>& ends = open_[row];
      while (!ends.empty() && ends.back() <= one.begin) {
        ends.pop_back();
      }
      if (ends.empty() || ends.back() >= one.end) {
        ends.push_back(one.end);
        return row;
      }
    }
    open_.push_back({one.end});
    return open_.size() - 1;
  }

  [[nodiscard]] std::size_t rows() const noexcept { return open_.size(); }

 private:
  std::vector<std::vector<std::int64_t>> open_;  // for each row, the ends of the spans that enclose the next one
};

/// The arrows from sends to receives: their numbers, and the name of the memory.
class message_arrows {
 public:
  explicit message_arrows(const timeline& all) {
    for (std::size_t rank = 0; rank < all.ranks().size(); ++rank) {
      for (const span& one : all.ranks()[rank].spans) {
        if (one.is_message()) {
          arrow& found = arrows_[key_of(one, rank)];
          (one.kind() == comm::call_kind::send ? found.sent : found.received) = true;
          found.subject = found.subject.empty() ? one.subject : found.subject;
        }
      }
    }
    std::uint64_t next = 0;
    for (auto& each : arrows_) {
      each.second.number = ++next;
    }
  }

  /// The number of a message if both its ends were recorded, otherwise 0.
  [[nodiscard]] std::uint64_t number_of(const span& one, std::size_t rank) const {
    const auto found = arrows_.find(key_of(one, rank));
    return found == arrows_.end() || !found->second.sent || !found->second.received ? 0 : found->second.number;
  }

  /// The name of the memory of a message, if either end knows it; servers do not.
  [[nodiscard]] name subject_of(const span& one, std::size_t rank) const {
    const auto found = one.is_message() && one.subject.empty() ? arrows_.find(key_of(one, rank)) : arrows_.end();
    return found == arrows_.end() ? one.subject : found->second.subject;
  }

 private:
  using key = std::array<std::uint32_t, 5>;
  struct arrow {
    bool sent = false;
    bool received = false;
    name subject;
    std::uint64_t number = 0;
  };

  static key key_of(const span& one, std::size_t rank) noexcept {
    const auto own = static_cast<std::uint32_t>(rank);
    const auto other = static_cast<std::uint32_t>(one.peer);
    const bool send = one.kind() == comm::call_kind::send;
    return {one.channel, send ? own : other, send ? other : own, static_cast<std::uint32_t>(one.tag), one.sequence};
  }

  std::map<key, arrow> arrows_;
};

/// Writes the events of one file.
class chrome_writer {
 public:
  chrome_writer(text_sink& out, const timeline& all) : json_{out}, all_{all}, arrows_{all} {}

  void write(const program_properties& properties) {
    json_.raw("{\"traceEvents\":[\n");
    for (std::size_t rank = 0; rank < all_.ranks().size(); ++rank) {
      write_rank(rank);
    }
    json_.raw("\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"gradus\":\"1\"");
    json_.number(",\"ranks\":", static_cast<std::int64_t>(all_.ranks().size()));
    json_.number(",\"threads\":", properties.threads);
    json_.text(",\"model\":", properties.model);
    json_.number(",\"batch_size\":", static_cast<std::int64_t>(properties.batch_size_per_rank));
    write_ranks(",\"hosts\":", [&, this](const rank_timeline& rank) { json_.text("", rank.host); });
    write_ranks(",\"clock_error_us\":", [&, this](const rank_timeline& rank) {
      json_.microseconds("", static_cast<std::int64_t>(rank.clock_error));
    });
    write_ranks(",\"dropped\":",
                [&, this](const rank_timeline& rank) { json_.number("", static_cast<std::int64_t>(rank.dropped)); });
    json_.raw("}}\n");
    json_.flush();
  }

 private:
  static constexpr std::size_t tids_apart = 8;  // between the rows of a track

  template <class Write>
  void write_ranks(std::string_view key, const Write& write) {
    json_.raw(key);
    for (std::size_t rank = 0; rank < all_.ranks().size(); ++rank) {
      json_.raw(rank == 0 ? "[" : ",");
      write(all_.ranks()[rank]);
    }
    json_.raw(all_.ranks().empty() ? "[]" : "]");
  }

  void begin_event(std::string_view phase, std::size_t rank, std::size_t tid) {
    json_.raw(first_ ? "{\"ph\":\"" : ",\n{\"ph\":\"");
    first_ = false;
    json_.raw(phase);
    json_.number("\",\"pid\":", static_cast<std::int64_t>(rank));
    json_.number(",\"tid\":", static_cast<std::int64_t>(tid));
  }

  void write_rank(std::size_t rank) {
    const rank_timeline& own = all_.ranks()[rank];
    begin_event("M", rank, 0);
    json_.text(",\"name\":\"process_name\",\"args\":{\"name\":", gradus::join({"rank ", rank, " (", own.host, ")"}));
    json_.raw("}}");
    std::array<row_layout, tracks> rows;
    for (const span& one : own.spans) {
      const auto where = static_cast<std::size_t>(one.where);
      write_span(one, rank, where + tids_apart * rows[where].row_of(one));
    }
    for (std::size_t where = 0; where < rows.size(); ++where) {
      for (std::size_t row = 0; row < rows[where].rows(); ++row) {
        const std::string_view title = name_of(static_cast<track>(where));
        begin_event("M", rank, where + tids_apart * row);
        json_.text(",\"name\":\"thread_name\",\"args\":{\"name\":",
                   row == 0 ? std::string{title} : gradus::join({title, " ", row + 1}));
        json_.raw("}}");
        begin_event("M", rank, where + tids_apart * row);
        json_.number(",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":",
                     static_cast<std::int64_t>(100 * where + row));
        json_.raw("}}");
      }
    }
  }

  void write_span(const span& one, std::size_t rank, std::size_t tid) {
    begin_event("X", rank, tid);
    json_.microseconds(",\"ts\":", one.begin);
    json_.microseconds(",\"dur\":", one.end - one.begin);
    json_.text(",\"cat\":", name_of(one.what));
    const char* const title = one.title.empty() ? "" : one.title.text();
    const bool moved = one.is_transfer() || one.what == category::copy;
    const name subject = arrows_.subject_of(one, rank);
    const bool shows_subject = !subject.empty() && (moved || one.what == category::wait);
    json_.text(",\"name\":", shows_subject ? gradus::join({title, " ", subject.text()}) : title);
    std::string_view comma = ",\"args\":{";
    const auto key = [&, this](std::string_view text) {
      json_.raw(comma);
      json_.raw(text);
      comma = ",";
    };
    if (one.is_transfer()) {
      key("\"operation\":");
      json_.text("", title);
    }
    if (!subject.empty()) {
      key(moved ? "\"bucket\":" : one.what == category::wait ? "\"for\":" : "\"layer\":");
      json_.text("", subject.text());
    }
    if (one.bytes >= 0) {
      key("\"bytes\":");
      json_.number("", one.bytes);
    }
    if (one.peer >= 0) {
      key("\"peer\":");
      json_.number("", one.peer);
    }
    if (one.is_pass()) {
      key("\"stage\":");
      json_.number("", one.tag);
      key("\"micro_batch\":");
      json_.number("", one.sequence);
    }
    if (one.step >= 0) {
      key("\"step\":");
      json_.number("", one.step);
    }
    if (const std::optional<arrival> last = all_.all_arrived(one)) {
      key("\"all_arrived_us\":");
      json_.microseconds("", last->time);
      key("\"last_rank\":");
      json_.number("", last->rank);
    }
    json_.raw(comma == "," ? "}}" : ",\"args\":{}}");
    if (one.is_message()) {
      write_arrow(one, rank, tid);
    }
  }

  void write_arrow(const span& one, std::size_t rank, std::size_t tid) {
    const std::uint64_t number = arrows_.number_of(one, rank);
    if (number == 0) {
      return;
    }
    const bool send = one.kind() == comm::call_kind::send;
    begin_event(send ? "s" : "f", rank, tid);
    json_.number(send ? ",\"id\":" : ",\"bp\":\"e\",\"id\":", static_cast<std::int64_t>(number));
    json_.microseconds(",\"ts\":", send || one.end == one.begin ? one.begin : one.end - 1);
    json_.raw(",\"cat\":\"flow\",\"name\":\"message\"}");
  }

  json_writer json_;
  const timeline& all_;
  message_arrows arrows_;
  bool first_ = true;
};

}  // namespace detail

/// Writes a timeline as one JSON object: a process for each rank, a thread for each track, arrows from sends to
/// receives, times in microseconds. A track with spans that overlap has several threads, whose numbers are the track
/// plus multiples of 8.
/// @throws format_error if the sink cannot be written
inline void write_chrome(text_sink& out, const timeline& all, const program_properties& properties = {}) {
  detail::chrome_writer{out, all}.write(properties);
}

namespace detail {

/// Called before anything is sent: the path is the same on all ranks.
inline void require_plain(const std::string& path) {
  if (path.ends_with(".gz")) {
    raise<configuration_error>("trace::write", "a name that does not end in .gz", {"'", path, "'"},
                               "include gradus/trace/gzip.hpp and call trace::write_gzip");
  }
}

template <class Sink>
timeline write_to(const std::string& path, recorder& from, comm::any_communicator communicator,
                  const program_properties& properties) {
  timeline all = collect(from, communicator);
  if (communicator.rank() == 0) {
    Sink out{path};
    write_chrome(out, all, properties);
    out.close();
  }
  return all;
}

}  // namespace detail

/// Collects the recordings of all ranks, and writes them to a file on rank 0. All ranks call it; recording is off
/// afterwards. Returns the timeline, which is empty on all ranks except 0.
/// @throws format_error on rank 0 if the file cannot be written
/// @throws configuration_error if the path ends in .gz; use write_gzip of trace/gzip.hpp for it
/// @throws communication_error if a rank fails or does not call it in time
inline timeline write(const std::string& path, recorder& from, comm::any_communicator communicator,
                      const program_properties& properties = {}) {
  detail::require_plain(path);
  return detail::write_to<file_sink>(path, from, std::move(communicator), properties);
}

}  // namespace gradus::trace
