// SPDX-License-Identifier: BSL-1.0
//
// The spans of a trace: periods of time, with the kind of work and the track on which they are shown.
#pragma once

#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t, std::uint32_t
#include <string_view>  // std::string_view

#include "gradus/comm/call.hpp"

namespace gradus::trace {

namespace detail {
class name_table;
}  // namespace detail

/// The kind of work in a span.
enum class category : std::uint8_t {
  step,         ///< a whole training step
  forward,      ///< forward of a layer, or the forward phase of a step
  backward,     ///< backward of a layer, or the backward phase of a step
  exchange,     ///< end of a step except the update: the thread begins, sums and copies transfers
  update,       ///< the update rule
  communicate,  ///< a transfer between ranks, from its begin until a thread sees that it is complete
  wait,         ///< a thread waits until a transfer is complete
  input,        ///< batches: the loader's thread prepares one, or the step waits for one
  copy,         ///< a copy of data
  evaluate,     ///< evaluation on another data set
  log           ///< callbacks: progress, checkpoints
};
/// The number of categories.
inline constexpr int categories = 11;

/// The name of a category, such as "forward".
[[nodiscard]] constexpr std::string_view name_of(category what) noexcept {
  constexpr std::string_view names[categories] = {"step", "forward", "backward", "exchange", "update", "communicate",
                                                  "wait", "input",   "copy",     "evaluate", "log"};
  const auto index = static_cast<std::uint8_t>(what);
  return index < categories ? names[index] : "unknown";
}

/// The track on which a span is shown. Spans of one track and thread are nested, except transfers, which may overlap.
enum class track : std::uint8_t {
  step,         ///< the phases of a step, and all other work of the rank's own thread
  compute,      ///< layers
  communicate,  ///< transfers
  input,        ///< the loader's thread
  other         ///< copies, and all work of other threads
};
/// The number of tracks.
inline constexpr int tracks = 5;

/// The name of a track, such as "compute".
[[nodiscard]] constexpr std::string_view name_of(track where) noexcept {
  constexpr std::string_view names[tracks] = {"step", "compute", "communicate", "input", "other"};
  const auto index = static_cast<std::uint8_t>(where);
  return index < tracks ? names[index] : "unknown";
}

/// A text that is valid as long as the trace: a literal, or a result of recorder::intern. Recording stores a pointer.
class name {
  struct interned {};

 public:
  /// A literal. (For a text that is built at run time use recorder::intern.)
  consteval name(const char* literal) noexcept : text_{literal} {}
  constexpr name() noexcept = default;

  /// The name of an operation, a literal: "all_reduce", "send" and so on.
  [[nodiscard]] static constexpr name of(comm::call_kind kind) noexcept {
    return {interned{}, comm::name_of(kind).data()};
  }

  [[nodiscard]] constexpr const char* text() const noexcept { return text_; }  ///< null: no name
  /// True if there is no name.
  [[nodiscard]] constexpr bool empty() const noexcept { return text_ == nullptr; }

 private:
  friend class detail::name_table;
  constexpr name(interned /*tag*/, const char* text) noexcept : text_{text} {}

  const char* text_ = nullptr;
};

/// One period of work of one thread, or one transfer. 64 bytes.
struct span {
  /// The value of `operation` for spans that are not transfers.
  static constexpr std::uint8_t no_operation = 255;
  /// The value of `operation` for a pass of a pipeline's stage over a micro-batch.
  static constexpr std::uint8_t stage_pass = 254;

  std::int64_t begin = 0;   ///< in ticks of the recorder's clock, see recorder::now
  std::int64_t end = 0;     ///< in ticks of the recorder's clock
  name title = {};          ///< the name that is shown
  name subject = {};        ///< the layer or the bucket, if any
  std::int64_t bytes = -1;  ///< bytes moved; -1: does not apply
  std::int32_t step = -1;   ///< the training step; -1: none
  std::int32_t peer = -1;   ///< for a message the other rank; for a broadcast the root
  /// For a message; for a collective of a comm::subset 1 + the first rank of the subset; for a pass the stage.
  std::int32_t tag = 0;
  std::uint32_t channel = 0;  ///< index of the communicator; duplicates have other indices
  /// Zero-based index of this collective on its channel, or of this message for its channel, sender, receiver and tag;
  /// for a pass of a stage the micro-batch.
  std::uint32_t sequence = 0;
  category what = category::step;         ///< the kind of work
  track where = track::step;              ///< the track on which it is shown
  std::uint8_t operation = no_operation;  ///< for a transfer a comm::call_kind
  std::uint8_t thread = 0;  ///< index of the rank's thread, in the order of first use; thread 0 made the recorder

  /// True for an operation of a communicator.
  [[nodiscard]] constexpr bool is_transfer() const noexcept { return operation < stage_pass; }
  /// True for a pass of a pipeline's stage over a micro-batch.
  [[nodiscard]] constexpr bool is_pass() const noexcept { return operation == stage_pass; }
  /// The operation. @pre is_transfer()
  [[nodiscard]] constexpr comm::call_kind kind() const noexcept { return static_cast<comm::call_kind>(operation); }
  /// True for a collective.
  [[nodiscard]] constexpr bool is_collective() const noexcept { return is_transfer() && !is_message(); }
  /// True for a collective that no rank can leave before all ranks have arrived. For a broadcast this holds for the
  /// root only.
  [[nodiscard]] constexpr bool needs_all_ranks() const noexcept {
    return is_collective() && kind() != comm::call_kind::broadcast;
  }
  /// True for a send or a receive.
  [[nodiscard]] constexpr bool is_message() const noexcept {
    return is_transfer() && (kind() == comm::call_kind::send || kind() == comm::call_kind::receive);
  }
};
static_assert(sizeof(span) == 64);

}  // namespace gradus::trace
