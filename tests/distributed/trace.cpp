// SPDX-License-Identifier: BSL-1.0
//
// Traced MPI ranks make one file, in which messages have arrows and collectives tell who was waited for.
#include <cstdint>    // std::uint8_t
#include <cstdio>     // std::remove
#include <fstream>    // std::ifstream
#include <span>       // std::span
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <vector>     // std::vector

#include "../support/trace_checks.hpp"
#include "communicators_mpi.hpp"
#include "gradus/trace/chrome.hpp"
#include "gradus/trace/transfers.hpp"

namespace {

namespace comm = gradus::comm;
namespace trace = gradus::trace;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error{what};
  }
}

template <class Communicator>
void send_around(Communicator& world, int rounds) {
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  for (int round = 0; round < rounds && world.size() > 1; ++round) {
    std::vector<float> out(1000, 1.0F);
    std::vector<float> in(1000);
    auto receive = comm::receive(world, before, in, 4);
    comm::send(world, next, out, 4).wait();
    receive.wait();
  }
}

/// Each collective, to which the last rank comes when all others have; it is the root of the broadcast.
template <class Communicator>
void meet_late(Communicator& world) {
  std::vector<float> all(static_cast<std::size_t>(8 * world.size()));
  std::vector<float> own(8);
  const int late = world.size() - 1;
  const auto meet = [&](const auto& begin) {
    std::uint8_t begun[1] = {};
    if (world.rank() == late) {
      for (int peer = 0; peer < late; ++peer) {
        comm::receive(world, peer, std::span{begun}, 9).wait();
      }
      begin().wait();
    } else {
      auto request = begin();
      comm::send(world, late, std::span{begun}, 9).wait();
      request.wait();
    }
  };
  meet([&] { return comm::all_reduce(world, all); });
  meet([&] { return comm::broadcast(world, all, late); });
  meet([&] { return comm::reduce_scatter(world, all, own); });
  meet([&] { return comm::all_gather(world, own, all); });
  meet([&] { return comm::barrier(world); });
}

void check(const std::string& path, int ranks) {
  std::ifstream in{path};
  const auto file = nlohmann::json::parse(in);
  const std::string complaint = gradus_test::first_complaint(file);
  require(complaint.empty(), complaint);
  const auto spans = gradus_test::spans_of(file);
  int arrows = 0;
  for (const auto& event : file.at("traceEvents")) {
    arrows += event.at("ph") == "s" ? 1 : 0;
  }
  const int sent = ranks > 1 ? 3 * ranks + 5 * (ranks - 1) : 0;
  require(arrows == sent, "there are " + std::to_string(arrows) + " arrows");
  for (int rank = 0; rank < ranks; ++rank) {
    for (const char* const name : {"all_reduce", "broadcast", "reduce_scatter", "all_gather", "barrier"}) {
      int told = 0;
      for (const auto& [track, of_track] : spans) {
        for (const auto& one : of_track) {
          told += track.first == rank && one.name == name && one.args.contains("all_arrived_us") &&
                          one.args.at("last_rank").get<int>() == ranks - 1
                      ? 1
                      : 0;
        }
      }
      require(told == 1, std::string{name} + " does not tell that the last rank came last");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return communicator_tests::run_conformance(argc, argv, [](comm::mpi& world) {
    const std::string path = "trace_mpi_test_" + std::to_string(world.size()) + ".json";
    trace::recorder recorder;
    auto traced = trace::traced(world.duplicate(), recorder);
    send_around(traced, 3);
    meet_late(traced);
    trace::write(path, recorder, traced);
    if (world.rank() == 0) {
      check(path, world.size());
      std::remove(path.c_str());
      std::printf("passed: one file of all ranks\n");
    }
  });
}
