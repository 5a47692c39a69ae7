// SPDX-License-Identifier: BSL-1.0
//
// Sums of gradients that travel in an encoding of their own, with feedback of what it loses.
#pragma once

#include <algorithm>        // std::fill, std::min
#include <cmath>            // std::sqrt
#include <cstddef>          // std::byte, std::ptrdiff_t, std::size_t
#include <cstdint>          // std::uint8_t
#include <exception>        // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <limits>           // std::numeric_limits
#include <memory>           // std::make_unique, std::unique_ptr
#include <numeric>          // std::accumulate
#include <source_location>  // std::source_location
#include <span>             // std::as_writable_bytes, std::span
#include <string>           // std::string
#include <utility>          // std::exchange, std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/detail/all_reduce/bucket_exchange.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel::detail {

/// Gradients that travel encoded in blocks. `Codec` has the members of int8_blocks.
template <class Element, class Codec>
class encoded_gradients_on final : public gradient_channel {
 public:
  /// @throws configuration_error where messages are not matched by tags
  encoded_gradients_on(comm::any_communicator channel, std::span<Element> gradients)
      : channel_{std::move(channel)}, gradients_{gradients}, residuals_(channel_.size() > 1 ? gradients.size() : 0) {
    if (channel_.size() > 1 && !channel_.link().properties().matches_tags) {
      raise<configuration_error>(
          "parallel::compressed_all_reduce", "a communicator that matches messages by their tags",
          channel_.link().properties().name, "train with parallel::compressed_all_reduce<bfloat16>");
    }
  }
  encoded_gradients_on(const encoded_gradients_on&) = delete;
  encoded_gradients_on& operator=(const encoded_gradients_on&) = delete;
  ~encoded_gradients_on() = default;

  comm::request reduce(index_t begin, index_t end) override {
    part_sum& one = sum_of(begin, end);
    return channel_.watch({.kind = comm::call_kind::all_reduce, .count = end - begin, .element = Codec::name},
                          one.memory(), [&] { return one.start(); });
  }

  /// The memory of such a part that travels.
  [[nodiscard]] std::span<const std::byte> memory(index_t begin, index_t end) const {
    return sum_of(begin, end).memory();
  }

  /// Sums are decoded as they arrive.
  void arrived(index_t /*begin*/, index_t /*end*/) noexcept {}

  [[nodiscard]] std::string name() const {
    return gradus::join({channel_.link().properties().name, " in ", Codec::name});
  }
  [[nodiscard]] comm::any_communicator& communicator() noexcept { return channel_; }

  /// Before the first part of a step. @param scale  of the gradients
  void begin_step(double scale) noexcept {
    scale_ = static_cast<Element>(scale);
    without_scale_ = static_cast<Element>(1 / scale);
    squares_ = 0;
    error_ = 0;
    not_finite_ = 0;
  }

  /// What rounding has taken from this rank's gradients and sums so far, without the scale of the loss, at their
  /// offsets; empty on one rank.
  [[nodiscard]] std::span<Element> residuals() noexcept { return {residuals_.data(), residuals_.size()}; }

  /// Root of the sum of squares of what rounding took in the last step from what this rank has encoded, with the
  /// residuals of the steps before, over that of these numbers; infinite when one of them is not finite.
  [[nodiscard]] double relative_error() const noexcept { return error_ > 0 ? std::sqrt(error_ / squares_) : 0.0; }

  /// Sums over the ranks that were NaN in the last step, as on all ranks.
  [[nodiscard]] std::size_t not_finite() const noexcept { return not_finite_; }

  /// "gradients in int8: relative error 4.1e-03, 0 sums not finite"
  [[nodiscard]] std::string summary() const {
    char error[32];
    format_text(error, sizeof(error), "%.1e", relative_error());
    return gradus::join({"gradients in ", Codec::name, ": relative error ", static_cast<const char*>(error), ", ",
                         not_finite_, " sums not finite"});
  }

 private:
  static constexpr index_t block = Codec::block;
  static constexpr auto in_block = static_cast<std::size_t>(block);

  /// The sum of one part: every rank adds up one chunk of it, which the others send it, and sends them the result.
  class part_sum final : public comm::operation {
   public:
    /// @param number  of the part, the same on all ranks
    part_sum(encoded_gradients_on& owner, index_t begin, index_t end, int number)
        : owner_{&owner},
          begin_{begin},
          end_{end},
          tag_{number * 2 % (comm::largest_tag + 1)},
          encoded_(at(Codec::bytes(end - begin))),
          received_(at(bytes_of(owner.channel_.rank()) * (owner.channel_.size() - 1))),
          messages_(at(2 * owner.channel_.size())) {
      owner.channel_.reserve_messages(messages_.size());
    }

    [[nodiscard]] bool is_of(index_t begin, index_t end) const noexcept { return begin_ == begin && end_ == end; }
    [[nodiscard]] std::span<const std::byte> memory() const noexcept { return {encoded_.data(), encoded_.size()}; }

    /// Encodes the chunks of the other ranks, and begins to send them.
    [[nodiscard]] comm::request start() {
      owner_->channel_.link().watch_copy(memory(), [&, this] {
        for (int rank = 0; rank < ranks(); ++rank) {
          for (index_t i = first(rank); rank != own() && i < first(rank + 1); i += block) {
            Element values[in_block] = {};
            owner_->add_to(values, i, count_at(i));
            owner_->encode(i, values, count_at(i), code_of(i));
          }
        }
      });
      under_way_ = messages::contributions;
      active_ = true;
      comm::request pending{*this};
      begin_messages([&, this](int rank) { return received_of(rank); }, [&, this](int rank) { return chunk(rank); });
      return pending;
    }

    bool test(const std::source_location& /*where*/) override {
      advance();
      if (failure_ != nullptr) {
        std::rethrow_exception(std::exchange(failure_, nullptr));
      }
      return under_way_ == messages::nothing;
    }

    /// Waits for one message after another; other parts move on in between.
    void wait(const std::source_location& where) override {
      for (;;) {
        for (const std::unique_ptr<part_sum>& each : owner_->sums_) {
          each->advance();
        }
        if (test(where)) {
          return;
        }
        try {
          messages_[done_].wait(where);
        } catch (...) {
          drop_messages();
          throw;
        }
      }
    }

    void abandon(bool unwinding) noexcept override {
      if (!unwinding) {
        try {
          wait(std::source_location::current());
        } catch (...) {
          // The communicator has failed; its next operation reports it.
        }
      }
      drop_messages();
    }

    void release() noexcept override { active_ = false; }

   private:
    enum class messages : unsigned char { nothing, contributions, results };

    /// Makes all progress that is possible without waiting.
    void advance() noexcept {
      if (!active_ || failure_ != nullptr) {
        return;
      }
      try {
        while (under_way_ != messages::nothing && all_done()) {
          if (under_way_ == messages::contributions) {
            owner_->channel_.link().watch_copy(memory(), [this] { add_up(); });
            under_way_ = messages::results;
            begin_messages([&, this](int rank) { return chunk(rank); }, [&, this](int) { return chunk(own()); });
          } else {
            owner_->channel_.link().watch_copy(memory(), [this] { decode(); });
            under_way_ = messages::nothing;
          }
        }
      } catch (...) {
        failure_ = std::current_exception();
        drop_messages();
      }
    }

    [[nodiscard]] bool all_done() {
      while (done_ < begun_ && messages_[done_].test()) {
        ++done_;
      }
      return done_ == begun_;
    }

    /// Begins to receive receive_to(rank) from each other rank, and to send it send_from(rank).
    template <class ReceiveTo, class SendFrom>
    void begin_messages(const ReceiveTo& receive_to, const SendFrom& send_from) {
      done_ = 0;
      begun_ = 0;
      const int tag = tag_ + (under_way_ == messages::results ? 1 : 0);
      comm::link& link = owner_->channel_.link();
      for (int distance = 1; distance < ranks(); ++distance) {  // ranks do not all begin with the same one
        const int from = (own() + distance) % ranks();
        if (const std::span<std::uint8_t> to = receive_to(from); !to.empty()) {
          messages_[begun_++] = link.receive(from, to, tag);
        }
      }
      for (int distance = 1; distance < ranks(); ++distance) {
        const int to = (own() + ranks() - distance) % ranks();
        if (const std::span<std::uint8_t> from = send_from(to); !from.empty()) {
          messages_[begun_++] = link.send(to, from, tag);
        }
      }
    }

    /// Adds the contributions of all ranks to the own chunk, in the order of the ranks, and encodes it.
    void add_up() noexcept {
      for (index_t i = first(own()); i < first(own() + 1); i += block) {
        const index_t count = count_at(i);
        Element total[in_block] = {};
        Element of_rank[in_block];
        for (int rank = 0; rank < ranks(); ++rank) {
          if (rank == own()) {
            owner_->add_to(total, i, count);
            continue;
          }
          const std::uint8_t* const code = received_of(rank).data() + Codec::bytes(i - first(own()));
          Codec::decode(reinterpret_cast<const std::byte*>(code), std::span{of_rank, at(count)});
          for (std::size_t k = 0; k < at(count); ++k) {
            total[k] += of_rank[k];
          }
        }
        owner_->encode(i, total, count, code_of(i));
      }
    }

    void decode() noexcept {
      for (index_t i = begin_; i < end_; i += block) {
        owner_->decode(i, count_at(i), code_of(i));
      }
    }

    void drop_messages() noexcept {
      for (comm::request& each : messages_) {
        each.cancel();
      }
    }

    [[nodiscard]] int ranks() const noexcept { return owner_->channel_.size(); }
    [[nodiscard]] int own() const noexcept { return owner_->channel_.rank(); }
    /// The first element of a rank's chunk; chunks are whole blocks of the part.
    [[nodiscard]] index_t first(int rank) const noexcept {
      const index_t blocks = (end_ - begin_ + block - 1) / block;
      return std::min(end_, begin_ + block * gradus::detail::part_bound<index_t>(blocks, ranks(), rank));
    }
    [[nodiscard]] index_t bytes_of(int rank) const noexcept { return Codec::bytes(first(rank + 1) - first(rank)); }
    /// Elements of the block that begins at element i.
    [[nodiscard]] index_t count_at(index_t i) const noexcept { return std::min(block, end_ - i); }
    [[nodiscard]] std::byte* code_of(index_t i) noexcept { return encoded_.data() + Codec::bytes(i - begin_); }
    [[nodiscard]] std::span<std::uint8_t> chunk(int rank) noexcept {
      return {reinterpret_cast<std::uint8_t*>(code_of(first(rank))), at(bytes_of(rank))};
    }
    /// What another rank sends of the own chunk.
    [[nodiscard]] std::span<std::uint8_t> received_of(int rank) noexcept {
      const index_t bytes = bytes_of(own());
      return {reinterpret_cast<std::uint8_t*>(received_.data()) + bytes * (rank < own() ? rank : rank - 1), at(bytes)};
    }
    static constexpr std::size_t at(index_t i) noexcept { return static_cast<std::size_t>(i); }

    encoded_gradients_on* owner_;
    index_t begin_;
    index_t end_;
    int tag_;
    dynamic_array<std::byte> encoded_;   // all chunks: those of other ranks are sent, then received
    dynamic_array<std::byte> received_;  // the own chunk of each other rank
    dynamic_array<comm::request> messages_;
    std::size_t begun_ = 0;
    std::size_t done_ = 0;  // these, and all before
    messages under_way_ = messages::nothing;
    bool active_ = false;
    std::exception_ptr failure_;
  };

  /// Adds the gradients of a block, with their residuals.
  void add_to(Element* sums, index_t i, index_t count) const noexcept {
    const Element* const gradients = gradients_.data() + i;
    const Element* const residuals = residuals_.data() + i;
    for (index_t k = 0; k < count; ++k) {
      sums[k] += gradients[k] + residuals[k] * scale_;
    }
  }

  /// Encodes the block at element i, and keeps what that loses. @param values  with zeros behind the first `count`
  void encode(index_t i, const Element (&values)[in_block], index_t count, std::byte* to) noexcept {
    const auto size = static_cast<std::size_t>(count);
    if (!Codec::encode(std::span<const Element>{values, size}, to)) {
      error_ = std::numeric_limits<double>::infinity();
      return;
    }
    Element lost[in_block] = {};
    Codec::decode(to, std::span<Element>{lost, size});
    for (std::size_t k = 0; k < block; ++k) {
      lost[k] = values[k] - lost[k];
    }
    Element* const residuals = residuals_.data() + i;
    for (std::size_t k = 0; k < size; ++k) {
      residuals[k] = lost[k] * without_scale_;
    }
    constexpr std::size_t lanes = 8;  // sums that do not wait for each other
    double squares[lanes] = {};
    double error[lanes] = {};
    for (std::size_t k = 0; k < block; k += lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const double value = values[k + lane];
        const double part = lost[k + lane];
        squares[lane] += value * value;
        error[lane] += part * part;
      }
    }
    squares_ += std::accumulate(squares, squares + lanes, 0.0);
    error_ += std::accumulate(error, error + lanes, 0.0);
  }

  void decode(index_t i, index_t count, const std::byte* from) noexcept {
    const std::span<Element> sums = gradients_.subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(count));
    Codec::decode(from, sums);
    not_finite_ += is_finite(sums[0]) ? 0 : sums.size();  // a block is NaN as a whole
  }

  /// The sum of a part, made at its first use. Parts begin in the same order on all ranks.
  [[nodiscard]] part_sum& sum_of(index_t begin, index_t end) const {
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      next_ = next_ < sums_.size() ? next_ : 0;
      part_sum& found = *sums_[next_++];  // mostly the next one
      if (found.is_of(begin, end)) {
        return found;
      }
    }
    sums_.push_back(std::make_unique<part_sum>(const_cast<encoded_gradients_on&>(*this), begin, end,
                                               static_cast<int>(sums_.size())));
    return *sums_.back();
  }

  mutable comm::any_communicator channel_;
  std::span<Element> gradients_;
  dynamic_array<Element> residuals_;
  Element scale_ = 1;          // of the loss
  Element without_scale_ = 1;  // its inverse
  double squares_ = 0;
  double error_ = 0;
  std::size_t not_finite_ = 0;
  mutable dynamic_array<std::unique_ptr<part_sum>> sums_;  // of the parts
  mutable std::size_t next_ = 0;                           // of these
};

/// An all-reduce of encoded gradients on one rank.
template <class Element, class Codec>
class encoded_all_reduce_state final : public all_reduce_state<Element, encoded_gradients_on<Element, Codec>> {
  using base = all_reduce_state<Element, encoded_gradients_on<Element, Codec>>;

 public:
  /// As that of all_reduce_state.
  encoded_all_reduce_state(const all_reduce& options, comm::any_communicator communicator,
                           const flat_parameters<Element>& parameters)
      : base{options, std::move(communicator), parameters} {
    if (const std::span<Element> residuals = this->own_channel().residuals(); !residuals.empty()) {
      buffers_.push_back({.memory = {.name = "residual",
                                     .bytes = std::as_writable_bytes(residuals),
                                     .elements = static_cast<index_t>(residuals.size()),
                                     .element = element_name<Element>},
                          .of_parameters = true,
                          .of_rank = true});
    }
  }

  void use(optim::parameter_update<Element>& update) override { update_ = &update; }

  void gradients_ready(std::size_t first, std::size_t count) override {
    if (ready_ == 0 && count > 0) {  // nothing is under way
      this->own_channel().begin_step(update_ == nullptr ? 1.0 : update_->scale().factor);
      clear_between_parameters();
    }
    ready_ += count;
    if (ready_ == this->parameters().segments.size()) {
      ready_ = 0;
    }
    base::gradients_ready(first, count);
  }

  /// The residuals of this rank.
  [[nodiscard]] std::span<const strategy_buffer> buffers() const noexcept override {
    return {buffers_.data(), buffers_.size()};
  }

 private:
  /// Backward never writes the gaps, which travel with their block and are NaN where that was.
  void clear_between_parameters() noexcept {
    const flat_parameters<Element>& all = this->parameters();
    for (std::size_t k = 0; k < all.segments.size(); ++k) {
      const auto begin = static_cast<std::size_t>(all.segments[k].offset + all.segments[k].size);
      const std::size_t end =
          k + 1 < all.segments.size() ? static_cast<std::size_t>(all.segments[k + 1].offset) : all.gradients.size();
      std::fill(all.gradients.begin() + static_cast<std::ptrdiff_t>(begin),
                all.gradients.begin() + static_cast<std::ptrdiff_t>(end), Element{});
    }
  }

  optim::parameter_update<Element>* update_ = nullptr;
  std::size_t ready_ = 0;  // segments of this step
  dynamic_array<strategy_buffer> buffers_;
};

}  // namespace gradus::parallel::detail
