// SPDX-License-Identifier: BSL-1.0
//
// Workloads and clusters for tests of the simulator.
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string, std::to_string
#include <vector>   // std::vector

#include "gradus/core/index.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus_test {

/// Layers with one parameter each, of these numbers of elements, in the order of forward.
inline gradus::sim::workload simulated_workload(const std::vector<gradus::index_t>& elements, double forward,
                                                double backward, double update = 0) {
  gradus::sim::workload work;
  work.model = "test";
  work.batch_size_per_rank = 8;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    work.layers.push_back({"layer " + std::to_string(i), forward, backward});
  }
  for (std::size_t i = elements.size(); i-- > 0;) {
    work.segments.push_back({.name = "p" + std::to_string(i), .offset = work.elements, .size = elements[i]});
    work.layer_of_segment.push_back(i);
    work.elements += elements[i];
  }
  work.update = update;
  return work;
}

/// 1.25 GB/s, 20 us and 2 us for a message at each end; adding takes time.
inline gradus::sim::cluster simulated_cluster() {
  return {.network = {.bytes_per_second = 1.25e9, .latency = 20e-6},
          .inside = {.bytes_per_second = 6e9, .latency = 1e-6},
          .message_seconds = 2e-6,
          .adding = 5e9};
}

}  // namespace gradus_test
