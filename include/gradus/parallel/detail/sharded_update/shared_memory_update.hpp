// SPDX-License-Identifier: BSL-1.0
//
// A sharded update of ranks that reach each other's memory: sums, steps and new values in one pass.
#pragma once

#include <algorithm>        // std::max, std::min
#include <array>            // std::array
#include <cstddef>          // std::byte, std::size_t
#include <cstring>          // std::memcpy
#include <memory>           // std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::as_writable_bytes, std::span
#include <string>           // std::string
#include <utility>          // std::pair

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/detail/sharded_update/parameter_blocks.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/tensor/instances.hpp"

namespace gradus::parallel::detail {

/// When the gradients of all ranks are complete, each rank goes through its block of the parameters piece by piece: it
/// sums the gradients of all and updates its values, and writes both to the other ranks. What a piece takes stays in
/// the cache, and only one rank reads and writes the state of the rule; the others fetch it when it is
/// needed.
///
/// Where windows do not reach, as on the pages at the ends of arrays of MPI processes, gradients are summed by
/// all-reduces and every rank updates all.
template <class Element>
class shared_memory_update final : public partial_strategy<Element> {
 public:
  /// Called by all ranks: they meet on a duplicate of the communicator.
  /// @throws configuration_error when options make no sense
  /// @pre the communicator makes windows
  template <class Options>
  shared_memory_update(const Options& options, comm::any_communicator communicator,
                       const flat_parameters<Element>& parameters)
      : channel_{communicator.duplicate()},
        parameters_{parameters},
        elements_{static_cast<index_t>(parameters.values.size())},
        values_{shared(std::as_writable_bytes(parameters.values))},
        gradients_{shared(std::as_writable_bytes(parameters.gradients))} {
    options.check();
    make_plan();
  }

  /// What this rank will update of the rule's state can be fetched by the others. Called by all ranks, before the first
  /// step. The state outlives this object.
  void use(optim::parameter_update<Element>& update) override {
    rule_ = &update;
    for (const optim::state_buffer& each : update.buffers()) {
      if (each.elements == elements_) {
        state_.push_back(shared(each.bytes));
      }
    }
    make_plan();
  }

  /// Makes the values those of rank 0.
  void start() override { comm::broadcast(channel_, parameters_.values, 0).wait(); }

  /// Calls update(segments) for this rank's parts of the parameters, and brings the values together.
  void finish(const update_call& update) override {
    const bool needs_all = rule_ != nullptr && rule_->needs_all_gradients();
    if (channel_.size() == 1) {
      if (needs_all) {
        rule_->test(parameters_.segments, parameters_.gradients.data());
        rule_->use_totals();
      }
      update(parameters_.segments);
      return;
    }
    newest_ = newest_state::being_made;
    std::array<comm::request, 2> sums;
    const auto wait_for_sums = [&] {
      waiting_for("the gradients of a step", [&] {
        for (comm::request& each : sums) {
          each.wait();
        }
      });
    };
    waiting_for("the gradients of a step", [&, this] {
      sums = {sum_beside(0, blocks_.begin), sum_beside(blocks_.end, elements_)};
      comm::barrier(channel_).wait();
    });
    if (needs_all) {
      go_through_own(update, [this](std::span<const optim::segment> own) {
        sum_own(own);
        rule_->test(own, parameters_.gradients.data());
      });
      wait_for_sums();
      if (channel_.rank() == 0) {  // all ranks have the sums of what windows do not reach
        rule_->test({beside_.data(), beside_.size()}, parameters_.gradients.data());
      }
      waiting_for("the totals of the gradients", [this] { comm::all_reduce(channel_, rule_->totals()).wait(); });
      rule_->use_totals();
      go_through_own(update, [&, this](std::span<const optim::segment> own) { update_and_hand_out(update, own); });
    } else {
      go_through_own(update, [&, this](std::span<const optim::segment> own) {
        sum_own(own);
        update_and_hand_out(update, own);
      });
      wait_for_sums();
    }
    if (!beside_.empty()) {
      update(std::span<const optim::segment>{beside_.data(), beside_.size()});
    }
    waiting_for("the values of a step", [this] { comm::barrier(channel_).wait(); });
    newest_ = newest_state::in_blocks;
  }

  [[nodiscard]] bool sums_totals() const noexcept override { return true; }

  /// All ranks have the sums.
  [[nodiscard]] double gather_gradients() override { return 1; }

  /// The shared state becomes whole on this rank: what the others have updated is copied from them. They may be on the
  /// way to their next update, for which they need this rank.
  /// @throws communication_error if a rank has failed
  void fetch_state() override {
    if (newest_ == newest_state::everywhere) {
      return;
    }
    if (newest_ == newest_state::being_made || !gradients_.bytes->use([this] { copy_state(); })) {
      // The last step has failed, and others may still be in it, or a rank has left: this says which, and why.
      waiting_for("the state of the rule", [this] { comm::barrier(channel_).wait(); });
      return;
    }
    newest_ = newest_state::everywhere;
  }

  /// As fetch_state, on all ranks, before any of them goes on. Called by all of them.
  void gather_state() override {
    fetch_state();
    waiting_for("the state of the rule", [this] { comm::barrier(channel_).wait(); });
  }

  /// The plan.
  [[nodiscard]] std::string describe() const override {
    std::string result = gradus::join({"sharded_update by ", channel_.link().properties().name, " in shared memory, ",
                                       blocks_.block, " of ", elements_, " elements on each rank"});
    if (!beside_.empty()) {
      append_text(result, {", ", elements_ - (blocks_.end - blocks_.begin), " on all by all_reduce"});
    }
    return result;
  }

 private:
  /// Copies what the other ranks have updated of the rule's state.
  void copy_state() const noexcept {
    for (const shared_array& each : state_) {
      for (int rank = 0; rank < channel_.size(); ++rank) {
        const auto [begin, end] = block_of(rank);
        if (rank != channel_.rank() && begin < end) {
          copy(each, begin, end, rank, channel_.rank());
        }
      }
    }
  }

  static constexpr index_t piece_elements = index_t{1} << 14U;

  /// An array with an element for each parameter, of whatever type.
  struct shared_array {
    index_t element_bytes;
    std::unique_ptr<comm::link_window> bytes;
  };

  /// Called by all ranks.
  [[nodiscard]] shared_array shared(std::span<std::byte> data) {
    return {elements_ == 0 ? index_t{1} : static_cast<index_t>(data.size()) / elements_,
            channel_.link().make_window(data)};
  }

  /// Where what the last step has made of the rule's state is.
  enum class newest_state : unsigned char { everywhere, in_blocks, being_made };

  /// What a rank updates: elements [first, second).
  [[nodiscard]] std::pair<index_t, index_t> block_of(int rank) const noexcept {
    const bool last = rank + 1 == channel_.size();
    return {blocks_.first_of(rank), last ? blocks_.end : blocks_.first_of(rank + 1)};
  }

  /// Divides the lines of the cache that all windows reach.
  void make_plan() {
    index_t begin = 0;
    index_t end = elements_;
    const auto within = [&](const shared_array& array) {
      const index_t first = array.bytes->first();
      const index_t last = first + static_cast<index_t>(array.bytes->of(0).size());
      begin = std::max(begin, (first + array.element_bytes - 1) / array.element_bytes);
      end = std::min(end, last / array.element_bytes);
    };
    within(gradients_);
    within(values_);
    for (const shared_array& each : state_) {
      within(each);
    }
    constexpr auto line = static_cast<index_t>(std::max<std::size_t>(64 / sizeof(Element), 1));
    begin = (begin + line - 1) / line * line;
    blocks_ = {begin, std::max(begin, end), channel_.size(), sizeof(Element)};
    const auto [first, last] = block_of(channel_.rank());
    pieces_.clear();
    append_pieces(pieces_, parameters_.segments, first, last, piece_elements);
    beside_.clear();
    append_pieces(beside_, parameters_.segments, 0, blocks_.begin, elements_);
    append_pieces(beside_, parameters_.segments, blocks_.end, elements_, elements_);
  }

  template <class Wait>
  static void waiting_for(const char* what, const Wait& wait,
                          std::source_location where = std::source_location::current()) {
    try {
      wait();
    } catch (error& failure) {
      failure.add_context(gradus::join({"sharded_update, waiting for ", what}), where);
      throw;
    }
  }

  /// Begins to sum gradients that windows do not reach.
  comm::request sum_beside(index_t begin, index_t end) {
    return begin == end
               ? comm::request{}
               : comm::all_reduce(channel_, parameters_.gradients.subspan(as_size(begin), as_size(end - begin)));
  }

  /// Calls body(segments) for this rank's parts of the parameters, some at a time.
  template <class Body>
  void go_through_own(const update_call& update, const Body& body) {
    // Of the windows of a rank that of the gradients is the first to go. Where a rank has left this step nothing is
    // done: why is known when the values are waited for.
    static_cast<void>(gradients_.bytes->use([&, this] {
      const comm::rule_pass seen = update.pass();
      const index_t most = piece_elements * (rule_ == nullptr ? 1 : rule_->threads());
      for (std::size_t first = 0; first < pieces_.size();) {
        std::size_t last = first;
        index_t elements = 0;
        do {
          elements += pieces_[last++].size;
        } while (last < pieces_.size() && elements + pieces_[last].size <= most);
        body(std::span<const optim::segment>{pieces_.data() + first, last - first});
        first = last;
      }
    }));
  }

  void sum_own(std::span<const optim::segment> own) {
    in_parallel(own.front().offset, own.back().offset + own.back().size,
                [this](index_t from, index_t to) { sum(from, to); });
  }

  void update_and_hand_out(const update_call& update, std::span<const optim::segment> own) {
    update(own);
    in_parallel(own.front().offset, own.back().offset + own.back().size,
                [this](index_t from, index_t to) { hand_out(from, to); });
  }

  /// The gradients of all ranks become their sums: in the order of the ranks, or in the communicator's own
  /// (comm::pairwise_sums).
  void sum(index_t begin, index_t end) const noexcept {
    const auto source = [this](int rank) { return static_cast<const Element*>(gradients_of(rank)); };
    const auto store = [this](index_t i, const Element* sums, auto count) {
      for (int rank = 0; rank < channel_.size(); ++rank) {
        std::memcpy(gradients_of(rank) + i, sums, as_size(count) * sizeof(Element));
      }
    };
    if (channel_.link().properties().sums_in_tree) {
      comm::detail::add_in_tree<Element>(channel_.size(), begin, end, source, store);
    } else {
      comm::detail::reduce_contributions<Element>(comm::reduction::sum, channel_.size(), begin, end, source, store);
    }
  }

  /// So that element i of all is `gradients_of(rank)[i]`, where windows reach it.
  [[nodiscard]] Element* gradients_of(int rank) const noexcept {
    return reinterpret_cast<Element*>(gradients_.bytes->of(rank).data() - gradients_.bytes->first());
  }

  void hand_out(index_t begin, index_t end) const noexcept {
    for (int rank = 0; rank < channel_.size(); ++rank) {
      if (rank != channel_.rank()) {
        copy(values_, begin, end, channel_.rank(), rank);
      }
    }
  }

  static void copy(const shared_array& array, index_t begin, index_t end, int from, int to) noexcept {
    const auto offset = as_size(begin * array.element_bytes - array.bytes->first());
    std::memcpy(array.bytes->of(to).data() + offset, array.bytes->of(from).data() + offset,
                as_size((end - begin) * array.element_bytes));
  }

  /// Calls body(from, to) for parts of [begin, end), on the threads of the rule's device.
  template <class Body>
  void in_parallel(index_t begin, index_t end, const Body& body) {
    if (rule_ != nullptr) {
      rule_->parallel_for(end - begin, piece_elements,
                          [&](index_t from, index_t to) { body(begin + from, begin + to); });
    } else {
      body(begin, end);
    }
  }

  comm::any_communicator channel_;
  flat_parameters<Element> parameters_;
  index_t elements_;
  optim::parameter_update<Element>* rule_ = nullptr;
  parameter_blocks blocks_{0, 0, 1, sizeof(Element)};  // where all windows reach
  dynamic_array<optim::segment> pieces_;               // of this rank
  dynamic_array<optim::segment> beside_;               // the blocks, of all ranks
  newest_state newest_ = newest_state::everywhere;
  shared_array values_;
  dynamic_array<shared_array> state_;  // of the rule
  shared_array gradients_;             // the last member: see go_through_own
};

}  // namespace gradus::parallel::detail

GRADUS_COMPILED_CLASS_OF_PARAMETERS(::gradus::parallel::detail::shared_memory_update)
