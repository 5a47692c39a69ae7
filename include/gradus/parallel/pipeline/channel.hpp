// SPDX-License-Identifier: BSL-1.0
//
// Messages between the stages of a pipeline, over any communicator.
#pragma once

#include <algorithm>  // std::find
#include <cstddef>    // std::size_t
#include <span>       // std::span
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/message_lines.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/nn/plan/stage_plan.hpp"

namespace gradus::parallel {

/// Sends and receives of the ranks of one replica, without the type of their communicator. Stage s is on rank
/// s mod size().
template <class Element>
class pipeline_channel {
 public:
  pipeline_channel() = default;
  pipeline_channel(const pipeline_channel&) = delete;
  pipeline_channel& operator=(const pipeline_channel&) = delete;
  virtual ~pipeline_channel() = default;

  /// This rank of the replica.
  [[nodiscard]] virtual int rank() const noexcept = 0;
  /// The ranks of the replica.
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Prepares the routes of messages, before the first one. Called by all ranks of all replicas, with the same routes.
  virtual void connect(std::span<const nn::stage_route> routes) = 0;
  /// Begins to send from a stage of this rank to one of another rank of the replica.
  /// @param tag  tells messages of a route apart
  [[nodiscard]] virtual comm::request send(const nn::stage_route& route, std::span<const Element> elements,
                                           int tag) = 0;
  /// Begins to receive, for a stage of this rank from one of another rank. Messages of a route are received in the
  /// order in which they are sent.
  [[nodiscard]] virtual comm::request receive(const nn::stage_route& route, std::span<Element> elements, int tag) = 0;

  /// The rank of a stage.
  [[nodiscard]] int rank_of(std::size_t stage) const noexcept {
    return static_cast<int>(stage % static_cast<std::size_t>(size()));
  }
};

/// The messages of a communicator of the ranks of one replica, which this object owns.
template <class Element, class Communicator>
class pipeline_channel_of final : public pipeline_channel<Element> {
  static_assert(comm::matches_tags<Communicator>);

 public:
  /// @param replica  used for nothing else
  explicit pipeline_channel_of(Communicator replica) : replica_{std::move(replica)} {}

  [[nodiscard]] int rank() const noexcept override { return replica_.rank(); }
  [[nodiscard]] int size() const noexcept override { return replica_.size(); }
  void connect(std::span<const nn::stage_route> /*routes*/) override {}
  [[nodiscard]] comm::request send(const nn::stage_route& route, std::span<const Element> elements, int tag) override {
    return comm::send(replica_, this->rank_of(route.to), elements, tag);
  }
  [[nodiscard]] comm::request receive(const nn::stage_route& route, std::span<Element> elements, int tag) override {
    return comm::receive(replica_, this->rank_of(route.from), elements, tag);
  }

 private:
  Communicator replica_;
};

/// The messages of a communicator of all replicas that does not match tags: each route has a line of its own.
template <class Element, class Communicator>
class pipeline_channel_by_order final : public pipeline_channel<Element> {
 public:
  /// @param all    used for nothing else
  /// @param ranks  of the replica of this rank
  pipeline_channel_by_order(Communicator all, std::vector<int> ranks)
      : lines_{std::move(all)},
        ranks_{std::move(ranks)},
        rank_{static_cast<int>(std::find(ranks_.begin(), ranks_.end(), lines_.rank()) - ranks_.begin())} {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(ranks_.size()); }

  void connect(std::span<const nn::stage_route> routes) override {
    for (const nn::stage_route& route : routes) {
      const int from = this->rank_of(route.from);
      const int to = this->rank_of(route.to);
      if (from != to) {  // else it is copied
        routes_.push_back(route);
        lines_.connect(ranks_[static_cast<std::size_t>(from)], ranks_[static_cast<std::size_t>(to)]);
      }
    }
  }
  [[nodiscard]] comm::request send(const nn::stage_route& route, std::span<const Element> elements,
                                   int /*tag*/) override {
    return lines_.send(line_of(route), elements);
  }
  [[nodiscard]] comm::request receive(const nn::stage_route& route, std::span<Element> elements, int /*tag*/) override {
    return lines_.receive(line_of(route), elements);
  }

 private:
  /// @pre connected
  [[nodiscard]] std::size_t line_of(const nn::stage_route& route) const noexcept {
    return static_cast<std::size_t>(std::find(routes_.begin(), routes_.end(), route) - routes_.begin());
  }

  comm::message_lines<Communicator> lines_;
  std::vector<int> ranks_;
  int rank_;
  std::vector<nn::stage_route> routes_;  // by line
};

}  // namespace gradus::parallel
