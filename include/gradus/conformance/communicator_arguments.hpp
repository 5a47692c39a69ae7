// SPDX-License-Identifier: BSL-1.0
//
// The conformance cases of arguments that a communicator refuses, and of ranks that disagree.
#pragma once

#include <chrono>       // std::chrono_literals
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/error.hpp"

namespace gradus::conformance {

using namespace std::chrono_literals;

/// Invalid ranks, roots, sizes, tags and time limits raise errors.
template <class Communicator>
void bad_arguments_are_refused(Communicator& world) {
  std::vector<float> data(12);
  const auto refuses = [&](auto&& action, std::string_view part) {
    require_contains(message_of<gradus::configuration_error>(action), part);
  };
  for (const int peer : {-1, world.size(), world.rank(), world.size() + 1000}) {
    refuses([&] { comm::send(world, peer, data).wait(); }, "expected another rank");
    refuses([&] { comm::receive(world, peer, data).wait(); }, "expected another rank");
  }
  for (const int root : {-1, world.size()}) {
    refuses([&] { comm::broadcast(world, data, root).wait(); }, "root");
  }
  if (world.size() > 1) {
    const int peer = (world.rank() + 1) % world.size();
    for (const int tag : {-1, comm::largest_tag + 1}) {
      refuses([&] { comm::send(world, peer, data, tag).wait(); }, "tag");
    }
  }
  refuses([&] { world.set_time_limit(0ms); }, "above zero");
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<float> blocks(3 * ranks + 1);
  std::vector<float> block(3);
  const auto misfits = [&](auto&& action, std::string_view part) {
    require_contains(message_of<gradus::shape_error>(action), part);
  };
  misfits([&] { comm::all_gather(world, block, blocks).wait(); }, "output of");
  misfits([&] { comm::reduce_scatter(world, blocks, block).wait(); }, "input of");
  if (ranks > 1) {
    const std::span whole{blocks.data(), 3 * ranks};
    misfits([&] { comm::all_gather(world, std::span{blocks}.subspan(1, 3), whole).wait(); }, "overlap");
    misfits([&] { comm::reduce_scatter(world, whole, std::span{blocks}.subspan(1, 3)).wait(); }, "overlap");
  }
  comm::barrier(world).wait();  // no operation was started
}

/// require_agreement names the entry that differs, on all ranks.
template <class Communicator>
void disagreement_is_named_on_all_ranks(Communicator& world) {
  comm::require_agreement(world, "options", {{"seed", "1"}, {"batch size", "64"}});
  comm::require_agreement(world, "nothing", {});
  if (world.size() == 1) {
    return;
  }
  const bool last = world.rank() == world.size() - 1;
  const std::string ranks = "rank " + std::to_string(world.size() - 1);
  std::string message = message_of<gradus::configuration_error>([&] {
    comm::require_agreement(world, "training plan",
                            {{"seed", "1"}, {"batch size", last ? "32" : "64"}, {"layers", last ? "7" : "8"}});
  });
  require_contains(message, "training plan: expected the same batch size on all ranks, got 64 on rank");
  require_contains(message, "; 32 on " + ranks);
  message = message_of<gradus::configuration_error>([&] {
    std::vector<comm::property> properties{{"seed", "1"}};
    if (last) {
      properties.push_back({"layer 3", "dense 10:5"});
    }
    comm::require_agreement(world, "network", properties);
  });
  require_contains(message, "the same layer 3 on all ranks, got nothing on rank");
  require_contains(message, "; dense 10:5 on " + ranks);
  message = message_of<gradus::configuration_error>([&] {
    comm::require_agreement(world, "network", {{last ? "b" : "a", "1"}});
  });
  require_contains(message, "'b' (1) in its place on " + ranks);
  comm::require_agreement(world, "afterwards", {{"all", "is well"}});
}

}  // namespace gradus::conformance
