// SPDX-License-Identifier: BSL-1.0
//
// Messages between the stages of a pipeline, over any communicator.
#pragma once

#include <span>     // std::span
#include <utility>  // std::move

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/request.hpp"

namespace gradus::parallel {

/// Sends and receives of the ranks of one replica, without the type of their communicator.
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
  /// Begins to send to another rank of the replica. @param tag  tells messages between two ranks apart
  [[nodiscard]] virtual comm::request send(int rank, std::span<const Element> elements, int tag) = 0;
  /// Begins to receive from another rank of the replica.
  [[nodiscard]] virtual comm::request receive(int rank, std::span<Element> elements, int tag) = 0;
};

/// The messages of a communicator of the ranks of one replica, which this object owns.
template <class Element, class Communicator>
class pipeline_channel_of final : public pipeline_channel<Element> {
 public:
  /// @param replica  used for nothing else
  explicit pipeline_channel_of(Communicator replica) : replica_{std::move(replica)} {}

  [[nodiscard]] int rank() const noexcept override { return replica_.rank(); }
  [[nodiscard]] int size() const noexcept override { return replica_.size(); }
  [[nodiscard]] comm::request send(int rank, std::span<const Element> elements, int tag) override {
    return comm::send(replica_, rank, elements, tag);
  }
  [[nodiscard]] comm::request receive(int rank, std::span<Element> elements, int tag) override {
    return comm::receive(replica_, rank, elements, tag);
  }

 private:
  Communicator replica_;
};

}  // namespace gradus::parallel
