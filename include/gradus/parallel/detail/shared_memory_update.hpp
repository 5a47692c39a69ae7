// SPDX-License-Identifier: BSL-1.0
//
// A sharded update of ranks that reach each other's memory: sums, steps and new values in one pass.
// Module: parallel. Depends on: optim, comm.
#pragma once

#include <algorithm>        // std::max, std::min
#include <array>            // std::array
#include <cstddef>          // std::size_t
#include <cstring>          // std::memcpy
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <utility>          // std::declval

#include "gradus/comm/communicator.hpp"                 // all_reduce, barrier, broadcast
#include "gradus/comm/reduction.hpp"                    // reduce_contributions, reduction
#include "gradus/comm/request.hpp"                      // request
#include "gradus/core/config.hpp"                       // GRADUS_COLD
#include "gradus/core/error.hpp"                        // error
#include "gradus/core/index.hpp"                        // index_t
#include "gradus/core/text.hpp"                         // append, text
#include "gradus/core/vector.hpp"                       // vector
#include "gradus/optim/segment.hpp"                     // optim::segment
#include "gradus/parallel/detail/parameter_blocks.hpp"  // append_pieces, gather_state, parameter_blocks
#include "gradus/parallel/synchronization.hpp"          // flat_parameters

namespace gradus::parallel::detail {

/// When the gradients of all ranks are complete, each rank goes through its block of the parameters piece by piece: it
/// sums the gradients of all, updates its values and writes them to the others'. What a piece takes stays in the cache,
/// so memory is read and written once where an all-reduce and an update do so twice.
///
/// Where windows do not reach, as on the pages at the ends of arrays of MPI processes, gradients are summed by
/// all-reduces and every rank updates all.
template <class Element, class Communicator, class Options>
class shared_memory_update {
 public:
  static constexpr bool updates_parts = true;

  /// Called by all ranks: they meet on a duplicate of the communicator.
  /// @throws configuration_error when options make no sense
  GRADUS_COLD shared_memory_update(const Options& options, Communicator& communicator,
                                   const flat_parameters<Element>& parameters)
      : channel_{communicator.duplicate()},
        parameters_{parameters},
        elements_{static_cast<index_t>(parameters.values.size())},
        values_{channel_.make_window(parameters.values)},
        gradients_{channel_.make_window(parameters.gradients)},
        blocks_{blocks_where(values_, gradients_, channel_)} {
    options.check();
    const bool last = channel_.rank() + 1 == channel_.size();
    append_pieces(pieces_, parameters.segments, blocks_.first_of(channel_.rank()),
                  last ? blocks_.end : blocks_.first_of(channel_.rank() + 1), piece_elements);
    append_pieces(beside_, parameters.segments, 0, blocks_.begin, elements_);
    append_pieces(beside_, parameters.segments, blocks_.end, elements_, elements_);
  }

  /// Makes the values those of rank 0.
  GRADUS_COLD void start() { comm::broadcast(channel_, parameters_.values, 0).wait(); }

  void gradients_ready(std::size_t /*first*/, std::size_t /*count*/) noexcept {}

  /// Calls update(segments) for this rank's parts of the parameters, and brings the values together.
  template <class Update>
  void finish(const Update& update) {
    if (channel_.size() == 1) {
      update(parameters_.segments);
      return;
    }
    std::array<comm::request, 2> sums;
    waiting_for("the gradients of a step", [&] {
      sums = {sum_beside(0, blocks_.begin), sum_beside(blocks_.end, elements_)};
      comm::barrier(channel_).wait();
    });
    update_own(update);
    waiting_for("the gradients of a step", [&] {
      for (comm::request& each : sums) {
        each.wait();
      }
    });
    if (!beside_.empty()) {
      update(std::span<const optim::segment>{beside_.data(), beside_.size()});
    }
    waiting_for("the values of a step", [this] { comm::barrier(channel_).wait(); });
    whole_ = false;
  }

  /// The state of the rule becomes whole on all ranks, if there was a step. Called by all of them.
  template <class State>
  GRADUS_COLD void gather(State& state) {
    if (!whole_) {
      gather_state(channel_, {&blocks_, 1}, elements_, state);
      whole_ = true;
    }
  }

  /// The plan.
  [[nodiscard]] GRADUS_COLD std::string describe() const {
    std::string result = gradus::detail::text({"sharded_update by ", Communicator::name, " in shared memory, ",
                                               blocks_.block, " of ", elements_, " elements on each rank"});
    if (!beside_.empty()) {
      gradus::detail::append(result, {", ", elements_ - (blocks_.end - blocks_.begin), " on all by all_reduce"});
    }
    return result;
  }

 private:
  using window = decltype(std::declval<Communicator&>().make_window(std::declval<std::span<Element>>()));
  static constexpr index_t piece_elements = index_t{1} << 14U;

  /// Lines of the cache that both windows reach.
  GRADUS_COLD static parameter_blocks blocks_where(const window& values, const window& gradients,
                                                   const Communicator& ranks) {
    const auto last = [](const window& reached) {
      return reached.first() + static_cast<index_t>(reached.of(0).size());
    };
    constexpr auto line = static_cast<index_t>(std::max<std::size_t>(64 / sizeof(Element), 1));
    const index_t begin = (std::max(values.first(), gradients.first()) + line - 1) / line * line;
    return {begin, std::max(begin, std::min(last(values), last(gradients))), ranks.size(), sizeof(Element)};
  }

  template <class Wait>
  static void waiting_for(const char* what, const Wait& wait,
                          std::source_location where = std::source_location::current()) {
    try {
      wait();
    } catch (error& failure) {
      failure.add_context(gradus::detail::text({"sharded_update, waiting for ", what}), where);
      throw;
    }
  }

  /// Begins to sum gradients that windows do not reach.
  comm::request sum_beside(index_t begin, index_t end) {
    return begin == end
               ? comm::request{}
               : comm::all_reduce(channel_, parameters_.gradients.subspan(as_size(begin), as_size(end - begin)));
  }

  template <class Update>
  void update_own(const Update& update) {
    const auto values_in_use = values_.use();
    const auto gradients_in_use = gradients_.use();
    if (!values_in_use || !gradients_in_use) {
      return;  // a rank has left this step: why is known when the values are waited for
    }
    const index_t most = piece_elements * threads_of(update);
    for (std::size_t first = 0; first < pieces_.size();) {
      std::size_t last = first;
      index_t elements = 0;
      do {
        elements += pieces_[last++].size;
      } while (last < pieces_.size() && elements + pieces_[last].size <= most);
      const index_t begin = pieces_[first].offset;
      const index_t end = pieces_[last - 1].offset + pieces_[last - 1].size;
      in_parallel(update, begin, end, [this](index_t from, index_t to) { sum(from, to); });
      update(std::span<const optim::segment>{pieces_.data() + first, last - first});
      in_parallel(update, begin, end, [this](index_t from, index_t to) { hand_out(from, to); });
      first = last;
    }
  }

  /// This rank's gradients become the sums over all ranks, in their order.
  void sum(index_t begin, index_t end) const noexcept {
    Element* const own = parameters_.gradients.data();
    comm::detail::reduce_contributions<Element>(
        comm::reduction::sum, channel_.size(), begin, end,
        [this](int rank) { return static_cast<const Element*>(gradients_.of(rank).data()) - gradients_.first(); },
        [own](index_t i, const Element* sums, auto count) {
          std::memcpy(own + i, sums, as_size(count) * sizeof(Element));
        });
  }

  void hand_out(index_t begin, index_t end) const noexcept {
    for (int rank = 0; rank < channel_.size(); ++rank) {
      if (rank != channel_.rank()) {
        std::memcpy(values_.of(rank).data() + (begin - values_.first()), parameters_.values.data() + begin,
                    as_size(end - begin) * sizeof(Element));
      }
    }
  }

  template <class Update>
  static index_t threads_of(const Update& update) noexcept {
    if constexpr (requires { update.device().threads(); }) {
      return update.device().threads();
    } else {
      return 1;
    }
  }

  /// Calls body(from, to) for parts of [begin, end), on the threads of the update if it has a device.
  template <class Update, class Body>
  static void in_parallel(const Update& update, index_t begin, index_t end, const Body& body) {
    if constexpr (requires { update.device().threads(); }) {
      update.device().parallel_for(end - begin, piece_elements,
                                   [&](index_t from, index_t to) { body(begin + from, begin + to); });
    } else {
      body(begin, end);
    }
  }

  Communicator channel_;
  flat_parameters<Element> parameters_;
  index_t elements_;
  window values_;
  window gradients_;
  parameter_blocks blocks_;                        // where both reach
  gradus::detail::vector<optim::segment> pieces_;  // of this rank
  gradus::detail::vector<optim::segment> beside_;  // the blocks, of all ranks
  bool whole_ = true;                              // the rule's state, on this rank
};

}  // namespace gradus::parallel::detail
