// SPDX-License-Identifier: BSL-1.0
//
// Ranks with a card each, in threads, over NCCL.
#pragma once

#include "gradus/comm/nccl.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/device/cuda.cuh"

/// Calls body(device, communicator) on the ranks, and returns their results.
template <class Body>
auto on_cards(int ranks, const Body& body) {
  return gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& hosts) {
    gradus::cuda device{{.device = hosts.rank()}};
    gradus::comm::nccl cards{hosts.duplicate(), device};
    auto result = body(device, cards);
    gradus::comm::barrier(hosts).wait();  // no rank leaves while others need it
    return result;
  });
}
