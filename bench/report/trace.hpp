// SPDX-License-Identifier: BSL-1.0
//
// A trace in memory: the spans of every rank and track, with times in microseconds, and the reader of trace files.
#pragma once

#include <array>        // std::array
#include <cstdint>      // std::int32_t, std::int64_t, std::uint64_t
#include <limits>       // std::numeric_limits
#include <map>          // std::map
#include <stdexcept>    // std::runtime_error
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::pair
#include <vector>       // std::vector

namespace gradus::report {

/// What is wrong with a trace file or with what was asked for; the message says what was expected and what came.
class report_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The field "cat" of a span. Categories that are not in the list count as `other`.
enum class category : std::uint8_t {
  step,
  forward,
  backward,
  exchange,
  update,
  communicate,
  wait,
  input,
  copy,
  evaluate,
  log,
  other
};
inline constexpr std::size_t category_count = 12;
/// The names of the categories in a trace file, in the order of the enumeration.
inline constexpr std::array<std::string_view, category_count> category_names{
    "step", "forward", "backward", "exchange", "update", "communicate",
    "wait", "input",   "copy",     "evaluate", "log",    "other"};

/// The tracks of a rank that mean something to the analysis. In the file "tid" is the track plus a multiple of 8, where
/// spans of a track overlap that viewers want in different threads.
namespace tracks {
inline constexpr int step = 0;         ///< phases of the step: what the program's thread does
inline constexpr int compute = 1;      ///< layers
inline constexpr int communicate = 2;  ///< transfers
inline constexpr int apart = 8;
}  // namespace tracks

/// What spans of one kind have in common; a span refers to it by its index in `trace::labels`.
struct label {
  std::string name;
  category what = category::other;
  std::string operation;          ///< of transfers: "all_reduce", "send", ...
  std::string bucket;             ///< of transfers: what is transferred
  std::string layer;              ///< of layers
  std::string waits_for;          ///< of waits: the transfer
  std::int64_t bytes = -1;        ///< -1: not told
  std::int32_t peer = -1;         ///< of sends and receives: the other rank; of some collectives: the root; -1: none
  std::int32_t stage = -1;        ///< of passes of a pipeline: the stage, from 0; -1: none
  std::int32_t micro_batch = -1;  ///< likewise: the micro-batch, from 0; -1: none

  bool operator<(const label& other) const;
  /// The transfer comes from the peer.
  bool incoming() const {
    return what == category::communicate && peer >= 0 && (operation == "receive" || operation == "recv");
  }
  /// The transfer goes to the peer.
  bool outgoing() const { return what == category::communicate && peer >= 0 && operation == "send"; }
  /// The transfer is between two ranks.
  bool point_to_point() const { return incoming() || outgoing(); }
  /// A pass of a pipeline's stage over a micro-batch.
  bool is_pass() const {
    return stage >= 0 && micro_batch >= 0 && (what == category::forward || what == category::backward);
  }
};

/// A piece of time on one track. Times in microseconds since the first span of the trace.
struct span {
  double start = 0;
  double duration = 0;
  /// When the last rank had arrived at the collective; NaN: not told.
  double all_arrived = std::numeric_limits<double>::quiet_NaN();
  std::int32_t last_rank = -1;  ///< who arrived last; -1: not told
  std::int32_t step = -1;       ///< -1: not told
  std::uint32_t label = 0;      ///< index in `trace::labels`

  double end() const { return start + duration; }
};

/// An arrow from a send to a receive: rank, track and time of both ends.
struct flow {
  struct end_point {
    std::int32_t rank = -1, track = 0;
    double time = 0;
  };
  end_point from, to;
};

/// All that a trace file says.
struct trace {
  std::int32_t ranks = 0;
  std::int32_t threads = 0;     ///< of each rank; 0: not told
  std::int64_t batch_size = 0;  ///< images of a step of each rank, with stages of each replica; 0: not told
  std::string model;
  std::vector<std::string> hosts;                           ///< one a rank, or empty
  std::vector<double> clock_error_us;                       ///< one a rank, or empty
  std::vector<std::int64_t> dropped;                        ///< spans that were lost, one a rank, or empty
  std::vector<label> labels;                                ///< what the spans refer to
  std::map<std::pair<int, int>, std::vector<span>> tracks;  ///< by (rank, track), sorted by start, longer ones first
  std::map<std::pair<int, int>, std::string> track_names;   ///< by (rank, track), where the file names them
  std::vector<flow> flows;                                  ///< arrows whose two ends are there
  double end = 0;                                           ///< the last end of a span, microseconds
  std::vector<std::string> notes;                           ///< what was read but not understood, in words

  /// The spans of a track; empty if it has none.
  const std::vector<span>& track(int rank, int number) const;
};

/// Reads a trace in Chrome's JSON format as gradus records it (object form, `otherData.gradus` is "1").
/// @param text  the whole file
/// @param name  how error messages call it
/// @throws report_error  text is not JSON, or not such a trace: which event and field, what was expected, what came
trace read_trace(std::string_view text, const std::string& name);

/// Of the text of a trace: that of 64 ranks which recorded some ten thousand spans each fits.
inline constexpr std::uint64_t usual_largest_bytes = std::uint64_t{512} << 20U;

/// The same, from a regular file, which may be compressed (gzip) where the program was built with zlib.
/// @param largest_bytes  of the text, inflated if it is compressed; below 2^62
/// @throws report_error  also if the file cannot be read, is a device or a pipe, or is longer
trace read_trace_file(const std::string& path, std::uint64_t largest_bytes = usual_largest_bytes);

/// A text of others for a message: control characters are replaced and long texts cut.
std::string in_quotes(std::string_view text);

}  // namespace gradus::report
