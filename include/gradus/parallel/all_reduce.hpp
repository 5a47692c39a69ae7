// SPDX-License-Identifier: BSL-1.0
//
// Synchronous data parallelism: every rank holds the parameters, and gradients are summed over all ranks.
// Module: parallel. Depends on: optim, comm.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view

#include "gradus/comm/communicator.hpp"         // all_reduce, broadcast
#include "gradus/comm/ring.hpp"                 // ring_all_reduce
#include "gradus/optim/segment.hpp"             // optim::segment
#include "gradus/parallel/synchronization.hpp"  // flat_parameters, synchronization

namespace gradus::parallel {

/// Who computes the sum over the ranks.
enum class all_reduce_algorithm : unsigned char {
  communicator,  ///< the communicator's own all_reduce: the MPI library's, or shared memory
  ring           ///< reduce-scatter and all-gather around a ring of send and receive
};

/// Synchronous training in which every rank updates its own copy of all parameters with the same gradient: the sum over
/// ranks, in one all-reduce of the flat gradient buffer as it lies. All ranks keep the same bits.
struct all_reduce {
  static constexpr std::string_view name = "all_reduce";

  all_reduce_algorithm algorithm = all_reduce_algorithm::communicator;

  template <class Element, class Communicator>
  class state {
   public:
    /// @param communicator  outlives the state; used by nothing else while a step runs
    state(const all_reduce& options, Communicator& communicator, const flat_parameters<Element>& parameters)
        : options_{options}, communicator_{&communicator}, parameters_{parameters} {}

    /// Makes the values those of rank 0.
    void start() { comm::broadcast(*communicator_, parameters_.values, 0).wait(); }

    void gradients_ready(std::size_t /*first*/, std::size_t /*count*/) noexcept {}

    /// Sums the gradients over the ranks and calls update(all segments).
    template <class Update>
    void finish(const Update& update) {
      if (communicator_->size() > 1) {
        if (options_.algorithm == all_reduce_algorithm::ring) {
          comm::ring_all_reduce(*communicator_, parameters_.gradients);
        } else {
          comm::all_reduce(*communicator_, parameters_.gradients).wait();
        }
      }
      update(parameters_.segments);
    }

    [[nodiscard]] std::string describe() const {
      return std::string{name} + "(" + (options_.algorithm == all_reduce_algorithm::ring ? "ring" : "communicator") +
             ", 1 bucket of " + std::to_string(parameters_.gradients.size()) + " elements)";
    }

   private:
    all_reduce options_;
    Communicator* communicator_;
    flat_parameters<Element> parameters_;
  };
};
static_assert(synchronization<all_reduce>);

}  // namespace gradus::parallel
