// SPDX-License-Identifier: BSL-1.0
//
// What a trace consists of: spans of time, what was done in them, and where they are shown.
#pragma once

#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t, std::uint32_t
#include <string_view>  // std::string_view

#include "gradus/comm/call.hpp"

namespace gradus::trace {

namespace detail {
class name_table;
}  // namespace detail

/// What a span of time was spent on.
enum class category : std::uint8_t {
  step,         ///< a whole training step
  forward,      ///< forward of a layer, or the phase of a step
  backward,     ///< backward of a layer, or the phase of a step
  exchange,     ///< the end of a step without the update: transfers are begun, added up, copied by the thread itself
  update,       ///< the update rule
  communicate,  ///< a transfer between ranks, from its beginning until it was seen to be complete
  wait,         ///< a thread stood still until a transfer was complete
  input,        ///< batches: prepared by the loader's thread, or waited for by the step
  copy,         ///< data that are copied
  evaluate,     ///< evaluation on another data set
  log           ///< callbacks: progress, checkpoints
};
inline constexpr int categories = 11;

[[nodiscard]] constexpr std::string_view name_of(category what) noexcept {
  constexpr std::string_view names[categories] = {"step", "forward", "backward", "exchange", "update", "communicate",
                                                  "wait", "input",   "copy",     "evaluate", "log"};
  const auto index = static_cast<std::uint8_t>(what);
  return index < categories ? names[index] : "unknown";
}

/// Where a span is shown. Spans of one track and thread are nested, but for transfers, which may overlap.
enum class track : std::uint8_t {
  step,         ///< the phases of a step, and all else that the rank's own thread does
  compute,      ///< layers
  communicate,  ///< transfers
  input,        ///< the loader's thread
  other         ///< copies and whatever other threads do
};
inline constexpr int tracks = 5;

[[nodiscard]] constexpr std::string_view name_of(track where) noexcept {
  constexpr std::string_view names[tracks] = {"step", "compute", "communicate", "input", "other"};
  const auto index = static_cast<std::uint8_t>(where);
  return index < tracks ? names[index] : "unknown";
}

/// A text that lives as long as the trace: a literal, or what recorder::intern returns. Recording one stores a pointer.
class name {
  struct interned {};

 public:
  /// A literal. (A text that is put together at run time goes through recorder::intern.)
  consteval name(const char* literal) noexcept : text_{literal} {}
  constexpr name() noexcept = default;

  /// "all_reduce", "send" and so on. (Those texts are literals.)
  [[nodiscard]] static constexpr name of(comm::call_kind kind) noexcept {
    return {interned{}, comm::name_of(kind).data()};
  }

  [[nodiscard]] constexpr const char* text() const noexcept { return text_; }  ///< null: none
  [[nodiscard]] constexpr bool empty() const noexcept { return text_ == nullptr; }

 private:
  friend class detail::name_table;
  constexpr name(interned /*tag*/, const char* text) noexcept : text_{text} {}

  const char* text_ = nullptr;
};

/// One thing that one thread did, or one transfer. 64 bytes.
struct span {
  static constexpr std::uint8_t no_operation = 255;

  std::int64_t begin = 0;     ///< of the recorder's clock, see recorder::now
  std::int64_t end = 0;       ///< likewise
  name title = {};            ///< what is shown
  name subject = {};          ///< the layer or the bucket, if there is one
  std::int64_t bytes = -1;    ///< moved; -1: does not apply
  std::int32_t step = -1;     ///< the training step; -1: none
  std::int32_t peer = -1;     ///< of a message: the other rank; of a broadcast: the root
  std::int32_t tag = 0;       ///< of a message
  std::uint32_t channel = 0;  ///< which communicator: duplicates have other numbers
  /// The how many-th collective of its channel, or message of its channel, sender, receiver and tag, from 0.
  std::uint32_t sequence = 0;
  category what = category::step;
  track where = track::step;
  std::uint8_t operation = no_operation;  ///< of a transfer: a comm::call_kind
  std::uint8_t thread = 0;                ///< in the order in which the rank's threads came; 0 made the recorder

  /// Whether it is an operation of a communicator.
  [[nodiscard]] constexpr bool is_transfer() const noexcept { return operation != no_operation; }
  [[nodiscard]] constexpr comm::call_kind kind() const noexcept { return static_cast<comm::call_kind>(operation); }
  [[nodiscard]] constexpr bool is_collective() const noexcept { return is_transfer() && !is_message(); }
  /// Whether it is a collective that no rank can leave before all have come. Of a broadcast that is said of the root
  /// alone.
  [[nodiscard]] constexpr bool needs_all_ranks() const noexcept {
    return is_collective() && kind() != comm::call_kind::broadcast;
  }
  [[nodiscard]] constexpr bool is_message() const noexcept {
    return is_transfer() && (kind() == comm::call_kind::send || kind() == comm::call_kind::receive);
  }
};
static_assert(sizeof(span) == 64);

}  // namespace gradus::trace
