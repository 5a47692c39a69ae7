// SPDX-License-Identifier: BSL-1.0
//
// The messages that cross the cuts of one stage of a pipeline.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "gradus/comm/request.hpp"
#include "gradus/nn/plan/stage_plan.hpp"

namespace gradus::parallel::detail {

/// What crosses the cuts of a stage in one direction, and its messages for each micro-batch.
struct stage_boundary {
  using request_table = std::vector<std::vector<comm::request>>;

  stage_boundary(std::span<const nn::stage_transfer> from, std::span<const nn::stage_transfer> to, std::size_t memory,
                 int most, bool gradients)
      : in{from},
        out{to},
        copies{static_cast<int>(memory)},
        backward{gradients},
        received(from.size()),
        sent(to.size()) {
    for (request_table* const table : {&received, &sent}) {
      for (std::vector<comm::request>& of_transfer : *table) {
        of_transfer.resize(static_cast<std::size_t>(most));
      }
    }
  }

  /// For messages.
  [[nodiscard]] const char* what() const noexcept { return backward ? "gradients" : "values"; }
  [[nodiscard]] const char* pass() const noexcept { return backward ? "backward" : "forward"; }
  [[nodiscard]] int tag(const nn::stage_transfer& transfer) const noexcept {
    return static_cast<int>(2 * transfer.number + (backward ? 1 : 0));
  }

  std::span<const nn::stage_transfer> in;
  std::span<const nn::stage_transfer> out;
  int copies;     // of the memory of what is received
  bool backward;  // gradients
  request_table received;
  request_table sent;
  int next = 0;  // micro-batch of the step that is to be received
};

}  // namespace gradus::parallel::detail
