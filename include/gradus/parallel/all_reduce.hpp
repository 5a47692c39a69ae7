// SPDX-License-Identifier: BSL-1.0
//
// Synchronous data parallelism: every rank holds the parameters, and gradients are summed over all ranks.
// Module: parallel. Depends on: optim, comm.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/communicator.hpp"         // all_reduce, broadcast
#include "gradus/core/text.hpp"                 // text
#include "gradus/optim/segment.hpp"             // optim::segment
#include "gradus/parallel/synchronization.hpp"  // flat_parameters, synchronization

namespace gradus::parallel {

/// Synchronous training in which every rank updates its own copy of all parameters with the same gradient: the sum over
/// ranks, in one all-reduce of the flat gradient buffer as it lies. All ranks keep the same bits.
///
/// The communicator decides how the sum is computed: comm::mpi takes the MPI library's all-reduce, comm::threads adds
/// in shared memory, comm::collectives<...> by the algorithm of your choice.
struct all_reduce {
  static constexpr std::string_view name = "all_reduce";

  template <class Element, class Communicator>
  class state {
   public:
    /// Called by all ranks: gradients travel on a duplicate of the communicator.
    state(const all_reduce& /*options*/, Communicator& communicator, const flat_parameters<Element>& parameters)
        : channel_{communicator.duplicate()}, parameters_{parameters} {}

    /// Makes the values those of rank 0.
    void start() { comm::broadcast(channel_, parameters_.values, 0).wait(); }

    void gradients_ready(std::size_t /*first*/, std::size_t /*count*/) noexcept {}

    /// Sums the gradients over the ranks and calls update(all segments).
    template <class Update>
    void finish(const Update& update) {
      if (channel_.size() > 1) {
        comm::all_reduce(channel_, parameters_.gradients).wait();
      }
      update(parameters_.segments);
    }

    [[nodiscard]] std::string describe() const {
      return gradus::detail::text(
          {name, " by ", Communicator::name, ", 1 bucket of ", parameters_.gradients.size(), " elements"});
    }

   private:
    Communicator channel_;
    flat_parameters<Element> parameters_;
  };
};
static_assert(synchronization<all_reduce>);

}  // namespace gradus::parallel
