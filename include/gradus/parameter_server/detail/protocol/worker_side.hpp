// SPDX-License-Identifier: BSL-1.0
//
// What one worker says to all parameter servers: rounds of gradients out and values in.
#pragma once

#include <algorithm>    // std::copy
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <span>         // std::as_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/plan.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel::detail {

/// The flat buffers of a worker as bytes.
struct flat_bytes {
  std::span<std::uint8_t> values;
  std::span<std::uint8_t> gradients;
};

/// The worker's side of all its servers. Like the server's loop it never waits; one thread at a time calls it.
class worker_side {
 public:
  /// @param window  parts under way at most to a server: what it sends back need not wait behind all of them
  /// @param staged  values are received into memory of their own; take_values copies them
  /// @pre links, plan and buffers outlive it
  worker_side(server_links& links, const parameter_server_plan& plan, const flat_bytes& buffers, bool staged,
              int window)
      : links_{&links},
        plan_{&plan},
        buffers_{buffers},
        window_{static_cast<std::size_t>(window)},
        staged_(staged ? buffers.values.size() : 0),
        headers_(plan.who.servers.size()),
        ends_(plan.who.servers.size()),
        reports_(plan.who.servers.size()),
        summaries_(plan.who.servers.size()),
        pushes_(plan.parts.size()),
        pulls_(plan.parts.size()),
        here_(plan.parts.size(), std::uint8_t{1}),
        queues_(plan.who.servers.size()) {
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      queues_[static_cast<std::size_t>(plan.parts[i].server)].parts.push_back(i);
    }
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      links.reserve(plan.who.servers[i], 3 + 2 * queues_[i].parts.size());  // header, end, report; pushes, pulls
    }
  }

  worker_side(const worker_side&) = delete;
  worker_side& operator=(const worker_side&) = delete;

  /// Begins a round. @pre no round is open, and pushed()
  void open(round_kind kind, std::uint64_t lag) { open({.kind = kind, .lag = lag}); }

  /// Begins a round of any header. @pre no round is open, and pushed()
  void open(const round_header& header) {
    header_ = header;
    const round_kind kind = header.kind;
    for (std::size_t i = 0; i < headers_.size(); ++i) {
      links_->send(headers_[i], plan_->who.servers[i], bytes_to_send(header_), message_tag::header);
      if (kind == round_kind::summary) {
        links_->receive(reports_[i], plan_->who.servers[i], bytes_to_receive(summaries_[i]), message_tag::summary);
      }
    }
    for (push_queue& each : queues_) {
      each.begun = 0;
      each.done = 0;
    }
    segments_ = 0;
    open_ = kind != round_kind::summary && kind != round_kind::leave && kind != round_kind::fetch;
  }

  /// The parts of the first `segments` segments may be sent.
  /// @param source  the gradients, or the values of an initial round; it stays until pushed()
  void push(std::size_t segments, std::span<const std::uint8_t> source) {
    source_ = source;
    segments_ = segments;
    begin_pushes();
  }

  /// Ends the round, and asks for all values if it is valid.
  /// @pre pulled()
  void close(double learning_rate, bool valid) {
    end_round(learning_rate, valid);
    if (valid) {
      ask(staged_.empty() ? buffers_.values : std::span<std::uint8_t>{staged_.data(), staged_.size()});
    }
  }

  /// Ends a round that is not answered by values.
  void end_round(double learning_rate, bool valid) {
    end_ = {.learning_rate = learning_rate, .valid = valid ? 1U : 0U};
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      links_->send(ends_[i], plan_->who.servers[i], bytes_to_send(end_), message_tag::end);
    }
    open_ = false;
  }

  /// Receives all parts of a flat buffer. @pre pulled()
  void ask(std::span<std::uint8_t> target) {
    for (std::size_t k = 0; k < pulls_.size(); ++k) {
      const std::size_t i = plan_->pull_order.empty() ? k : plan_->pull_order[k];
      const server_part& part = plan_->parts[i];
      here_[i] = 0;
      const std::span<const std::uint8_t> bytes = bytes_of(part, target);
      links_->receive(pulls_[i], server_of(part), {const_cast<std::uint8_t*>(bytes.data()), bytes.size()},
                      message_tag::values(i));
    }
    missing_ = pulls_.size();
  }

  /// Whether something moved. @throws communication_error when a rank has failed
  bool poll() {
    bool moved = false;
    unsent_ = 0;
    for (dynamic_array<transfer>* const list : {&headers_, &ends_, &reports_}) {
      for (transfer& each : *list) {
        moved = links_->arrived(each) || moved;
        unsent_ += each.active() ? 1U : 0U;
      }
    }
    for (push_queue& each : queues_) {
      for (std::size_t k = each.done; k < each.begun; ++k) {
        moved = links_->arrived(pushes_[each.parts[k]]) || moved;
      }
      while (each.done < each.begun && !pushes_[each.parts[each.done]].active()) {
        ++each.done;
      }
    }
    moved = begin_pushes() || moved;
    for (const push_queue& each : queues_) {
      unsent_ += each.waiting(*plan_, segments_) ? 1U : 0U;
    }
    for (std::size_t i = 0; i < pulls_.size() && missing_ != 0; ++i) {
      if (links_->arrived(pulls_[i])) {
        here_[i] = 1;
        --missing_;
        moved = true;
      }
    }
    return moved;
  }

  /// A round has begun and not ended.
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// All that was sent has been taken, as of the last poll.
  [[nodiscard]] bool pushed() const noexcept { return unsent_ == 0; }
  /// All values that were asked for are here.
  [[nodiscard]] bool pulled() const noexcept { return missing_ == 0; }
  /// The values of segments [first, first + count) are here.
  [[nodiscard]] bool pulled(std::size_t first, std::size_t count) const noexcept {
    for (std::size_t i = 0; i < here_.size() && missing_ != 0; ++i) {
      const std::size_t segment = plan_->parts[i].segment;
      if (here_[i] == 0 && segment >= first && segment < first + count) {
        return false;
      }
    }
    return true;
  }

  /// Of `staged`: the values that have arrived become those of the network. @pre pulled()
  void take_values() noexcept {
    for (std::size_t i = 0; i < plan_->parts.size(); ++i) {
      const auto from = bytes_of(plan_->parts[i], {staged_.data(), staged_.size()});
      const auto to = bytes_of(plan_->parts[i], buffers_.values);
      std::copy(from.begin(), from.end(), const_cast<std::uint8_t*>(to.data()));
    }
  }

  /// Calls visit(name, memory) for what is sent and what is received of every part.
  template <class Visit>
  void visit_parts(const Visit& visit) const {
    const std::span<const std::uint8_t> values =
        staged_.empty() ? std::span<const std::uint8_t>{buffers_.values} : std::span{staged_.data(), staged_.size()};
    for (std::size_t i = 0; i < plan_->parts.size(); ++i) {
      for (const std::span<const std::uint8_t> buffer : {std::span<const std::uint8_t>{buffers_.gradients}, values}) {
        visit(std::string_view{plan_->names[i]}, std::as_bytes(bytes_of(plan_->parts[i], buffer)));
      }
    }
  }

  /// By server, after a round of summaries.
  [[nodiscard]] std::span<const server_summary> summaries() const noexcept {
    return {summaries_.data(), summaries_.size()};
  }

  [[nodiscard]] const flat_bytes& buffers() const noexcept { return buffers_; }

  /// What is missing: "pull of 'conv1.weights' from server 0 (rank 3)".
  [[nodiscard]] std::string describe_missing() const {
    const auto server = [&, this](std::size_t i) {
      return join({" server ", i, " (rank ", plan_->who.servers[i], ")"});
    };
    for (std::size_t i = 0; i < pushes_.size(); ++i) {
      if (pushes_[i].active()) {
        return join({"push of '", plan_->names[i], "' to", server(static_cast<std::size_t>(plan_->parts[i].server))});
      }
    }
    for (std::size_t i = 0; i < pulls_.size(); ++i) {
      if (pulls_[i].active()) {
        return join({"pull of '", plan_->names[i], "' from", server(static_cast<std::size_t>(plan_->parts[i].server))});
      }
    }
    for (std::size_t i = 0; i < headers_.size(); ++i) {
      if (headers_[i].active() || ends_[i].active() || reports_[i].active()) {
        return join({"a message to", server(i)});
      }
    }
    return "a message";
  }

 private:
  /// The parts of one server in the order in which they are sent.
  struct push_queue {
    dynamic_array<std::size_t> parts;
    std::size_t begun = 0;
    std::size_t done = 0;

    /// A part may be sent, or is under way.
    [[nodiscard]] bool waiting(const parameter_server_plan& plan, std::size_t segments) const noexcept {
      return done < begun || (begun < parts.size() && plan.parts[parts[begun]].segment < segments);
    }
  };

  bool begin_pushes() {
    bool moved = false;
    for (push_queue& each : queues_) {
      while (each.begun < each.parts.size() && each.begun - each.done < window_ &&
             plan_->parts[each.parts[each.begun]].segment < segments_) {
        const std::size_t i = each.parts[each.begun++];
        links_->send(pushes_[i], server_of(plan_->parts[i]), bytes_of(plan_->parts[i], source_),
                     message_tag::gradients(i));
        moved = true;
      }
    }
    return moved;
  }

  [[nodiscard]] int server_of(const server_part& part) const noexcept {
    return plan_->who.servers[static_cast<std::size_t>(part.server)];
  }
  [[nodiscard]] std::span<const std::uint8_t> bytes_of(const server_part& part,
                                                       std::span<const std::uint8_t> buffer) const noexcept {
    return buffer.subspan(static_cast<std::size_t>(part.offset * plan_->element_bytes),
                          static_cast<std::size_t>(part.size * plan_->element_bytes));
  }

  server_links* links_;
  const parameter_server_plan* plan_;
  flat_bytes buffers_;
  std::size_t window_;
  dynamic_array<std::uint8_t> staged_;
  round_header header_;
  round_end end_;
  dynamic_array<transfer> headers_;  // by server
  dynamic_array<transfer> ends_;     // by server
  dynamic_array<transfer> reports_;  // by server
  dynamic_array<server_summary> summaries_;
  dynamic_array<transfer> pushes_;    // by part
  dynamic_array<transfer> pulls_;     // by part
  dynamic_array<std::uint8_t> here_;  // by part: its values have come
  dynamic_array<push_queue> queues_;  // by server
  std::span<const std::uint8_t> source_;
  std::size_t segments_ = 0;  // whose parts may be sent in this round
  std::size_t unsent_ = 0;
  std::size_t missing_ = 0;
  bool open_ = false;
};

}  // namespace gradus::parallel::detail
