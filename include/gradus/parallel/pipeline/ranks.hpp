// SPDX-License-Identifier: BSL-1.0
//
// The ranks of replicas of a pipeline: what they send each other, over any communicator.
#pragma once

#include <memory>   // std::make_unique, std::unique_ptr
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/parallel/hybrid.hpp"
#include "gradus/parallel/pipeline/channel.hpp"

namespace gradus::parallel {

/// What a rank sends to the other ranks of parallel::hybrid besides gradients, without the type of their communicator.
/// @tparam Element  of the values between layers
template <class Element>
class pipeline_ranks {
 public:
  pipeline_ranks() = default;
  pipeline_ranks(const pipeline_ranks&) = delete;
  pipeline_ranks& operator=(const pipeline_ranks&) = delete;
  virtual ~pipeline_ranks() = default;

  /// All ranks.
  [[nodiscard]] virtual comm::link& all() noexcept = 0;
  /// The ranks with the stages of this one, in all replicas.
  [[nodiscard]] virtual comm::link& replicas() noexcept = 0;
  /// To the other ranks of this replica.
  [[nodiscard]] virtual pipeline_channel<Element>& channel() noexcept = 0;
};

namespace detail {

/// The messages of a replica over a communicator of all ranks.
template <class Element, class Communicator>
struct channel_for {
  using type = pipeline_channel_of<Element, comm::split_of<Communicator>>;
  [[nodiscard]] static std::unique_ptr<type> make(Communicator& communicator, std::vector<int> ranks) {
    return std::make_unique<type>(comm::split(communicator, std::move(ranks)));
  }
};
template <class Element, class Communicator>
requires(!comm::matches_tags<Communicator>) struct channel_for<Element, Communicator> {
  using type = pipeline_channel_by_order<Element, Communicator>;
  [[nodiscard]] static std::unique_ptr<type> make(Communicator& communicator, std::vector<int> ranks) {
    return std::make_unique<type>(communicator.duplicate(), std::move(ranks));
  }
};

}  // namespace detail

/// The ranks of a communicator.
template <class Element, class Communicator>
class pipeline_ranks_of final : public pipeline_ranks<Element> {
  using group_type = comm::split_of<Communicator>;
  using channel_type = typename detail::channel_for<Element, Communicator>::type;

 public:
  /// Called by all ranks. The communicator outlives this object.
  /// @throws configuration_error when the options and the number of ranks do not go together
  pipeline_ranks_of(const hybrid& options, Communicator& communicator)
      : all_{(options.check(communicator.size()), communicator)},
        replicas_{comm::split(communicator, detail::ranks_of_stage(options, communicator.rank(), communicator.size()))},
        any_replicas_{replicas_},
        channel_{detail::channel_for<Element, Communicator>::make(
            communicator, detail::ranks_of_replica(options, communicator.rank()))} {}

  [[nodiscard]] comm::link& all() noexcept override { return all_; }
  [[nodiscard]] comm::link& replicas() noexcept override { return any_replicas_; }
  [[nodiscard]] pipeline_channel<Element>& channel() noexcept override { return *channel_; }

 private:
  comm::link_of<Communicator> all_;
  group_type replicas_;
  comm::link_of<group_type> any_replicas_;
  std::unique_ptr<channel_type> channel_;
};

}  // namespace gradus::parallel
