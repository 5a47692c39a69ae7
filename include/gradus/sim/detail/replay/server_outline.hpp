// SPDX-License-Identifier: BSL-1.0
//
// What workers and servers do in a step, from the plan of the strategy and the times of the layers.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <span>       // std::span
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/parameter_server/plan.hpp"
#include "gradus/parameter_server/roles.hpp"
#include "gradus/sim/server_training_options.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim::detail {

/// Layers of backward up to one whose parameters are then complete.
struct backward_piece {
  double seconds = 0;
  std::size_t parts = 0;  ///< parts of the plan that are complete then
};

struct server_outline {
  parallel::parameter_server_plan plan;
  std::vector<double> bytes;                        ///< of each part
  std::vector<double> update;                       ///< seconds of each part's update
  std::vector<double> forward;                      ///< seconds of each piece of forward
  std::vector<std::size_t> piece_of_part;           ///< the piece of forward that waits for each part
  std::vector<std::size_t> parts_of_piece;          ///< how many parts each piece waits for
  std::vector<backward_piece> backward;             ///< the last one has what is left
  std::vector<std::vector<std::size_t>> of_server;  ///< the parts of each server, in the order of pushes
  std::vector<std::vector<std::size_t>> pulls;      ///< the same in the order of pulls

  server_outline(const workload& work, const server_training& how, int ranks)
      : plan{parallel::make_server_plan(work.segments, work.element_bytes,
                                        parallel::roles_of(ranks, how.servers, how.colocate), how.placed,
                                        how.pull_priorities)} {
    of_server.resize(plan.who.servers.size());
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      const parallel::server_part& each = plan.parts[i];
      bytes.push_back(static_cast<double>(each.size) * static_cast<double>(work.element_bytes));
      update.push_back(
          work.elements > 0 ? work.update * static_cast<double>(each.size) / static_cast<double>(work.elements) : 0);
      of_server[static_cast<std::size_t>(each.server)].push_back(i);
    }
    pulls.resize(of_server.size());
    for (std::size_t k = 0; k < plan.parts.size(); ++k) {
      const std::size_t i = plan.pull_order.empty() ? k : plan.pull_order[k];
      pulls[static_cast<std::size_t>(plan.parts[i].server)].push_back(i);
    }
    make_backward(work);
    make_forward(work, how.overlap_forward || how.applies_as_they_come);
  }

 private:
  void make_backward(const workload& work) {
    double passed = work.other;
    std::size_t part = 0;
    for (std::size_t layer = work.layers.size(); layer-- > 0;) {
      passed += work.layers[layer].backward;
      const std::size_t before = part;
      while (part < plan.parts.size() && work.layer_of_segment[plan.parts[part].segment] == layer) {
        ++part;
      }
      if (part != before) {
        backward.push_back({.seconds = passed, .parts = part});
        passed = 0;
      }
    }
    backward.push_back({.seconds = passed, .parts = part});
  }

  void make_forward(const workload& work, bool by_layers) {
    std::vector<char> has(work.layers.size(), 0);
    for (const std::size_t layer : work.layer_of_segment) {
      has[layer] = 1;
    }
    std::vector<std::size_t> piece_of_layer(work.layers.size(), 0);
    forward.push_back(0);
    for (std::size_t layer = 0; layer < work.layers.size(); ++layer) {
      if (by_layers && has[layer] != 0 && forward.back() > 0) {
        forward.push_back(0);
      }
      forward.back() += work.layers[layer].forward;
      piece_of_layer[layer] = forward.size() - 1;
    }
    parts_of_piece.assign(forward.size(), 0);
    for (const parallel::server_part& each : plan.parts) {
      piece_of_part.push_back(piece_of_layer[work.layer_of_segment[each.segment]]);
      ++parts_of_piece[piece_of_part.back()];
    }
  }
};

}  // namespace gradus::sim::detail
