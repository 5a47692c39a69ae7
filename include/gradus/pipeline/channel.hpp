// SPDX-License-Identifier: BSL-1.0
//
// Messages between the stages of a pipeline, over any communicator.
#pragma once

#include <algorithm>  // std::find
#include <cstddef>    // std::size_t
#include <memory>     // std::make_unique, std::unique_ptr
#include <span>       // std::span
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/ordered_channels.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/nn/plan/stage_plan.hpp"

namespace gradus::parallel {

/// Sends and receives of the ranks of one replica. Stage s is on rank s mod size(). Messages have tags; where the
/// communicator does not match them (comm::matches_tags), each route has a line of its own.
class pipeline_channel {
 public:
  /// Called by all ranks.
  /// @param all    the ranks of all replicas; it goes on working
  /// @param ranks  those of the replica of this rank
  pipeline_channel(comm::any_communicator& all, std::vector<int> ranks)
      : rank_{static_cast<int>(std::find(ranks.begin(), ranks.end(), all.rank()) - ranks.begin())},
        ranks_{std::move(ranks)} {
    if (all.link().properties().matches_tags) {
      replica_ = std::make_unique<comm::any_communicator>(comm::split(all, ranks_));
    } else {
      lines_ = std::make_unique<comm::ordered_channels>(all.duplicate());
    }
  }

  /// This rank of the replica.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The ranks of the replica.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// The rank of a stage.
  [[nodiscard]] int rank_of(std::size_t stage) const noexcept {
    return static_cast<int>(stage % static_cast<std::size_t>(size()));
  }

  /// Prepares the routes of messages, before the first one. Called by all ranks of all replicas, with the same routes.
  void connect(std::span<const nn::stage_route> routes) {
    for (const nn::stage_route& route : routes) {
      const int from = rank_of(route.from);
      const int to = rank_of(route.to);
      if (lines_ != nullptr && from != to) {  // else it is copied
        routes_.push_back(route);
        lines_->connect(ranks_[static_cast<std::size_t>(from)], ranks_[static_cast<std::size_t>(to)]);
      }
    }
  }
  /// Begins to send from a stage of this rank to one of another rank of the replica.
  /// @param tag  tells messages of a route apart
  template <class Element>
  [[nodiscard]] comm::request send(const nn::stage_route& route, std::span<const Element> elements, int tag) {
    return lines_ != nullptr ? lines_->send(line_of(route), elements)
                             : comm::send(*replica_, rank_of(route.to), elements, tag);
  }
  /// Begins to receive, for a stage of this rank from one of another rank. Messages of a route are received in the
  /// order in which they are sent.
  template <class Element>
  [[nodiscard]] comm::request receive(const nn::stage_route& route, std::span<Element> elements, int tag) {
    return lines_ != nullptr ? lines_->receive(line_of(route), elements)
                             : comm::receive(*replica_, rank_of(route.from), elements, tag);
  }

 private:
  /// @pre connected
  [[nodiscard]] std::size_t line_of(const nn::stage_route& route) const noexcept {
    return static_cast<std::size_t>(std::find(routes_.begin(), routes_.end(), route) - routes_.begin());
  }

  int rank_;
  std::vector<int> ranks_;
  std::unique_ptr<comm::any_communicator> replica_;  // where tags are matched
  std::unique_ptr<comm::ordered_channels> lines_;    // where they are not
  std::vector<nn::stage_route> routes_;              // by line
};

}  // namespace gradus::parallel
