// SPDX-License-Identifier: BSL-1.0
//
// Traced MPI ranks make one file, in which messages have arrows and collectives tell who was waited for.
#include <chrono>     // std::chrono_literals
#include <cstdio>     // std::remove
#include <fstream>    // std::ifstream
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <thread>     // std::this_thread
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

/// Each collective, to which the last rank comes late; it is the root of the broadcast.
template <class Communicator>
void meet_late(Communicator& world) {
  using namespace std::chrono_literals;
  std::vector<float> all(static_cast<std::size_t>(8 * world.size()));
  std::vector<float> own(8);
  const int late = world.size() - 1;
  const auto meet = [&](const auto& begin) {
    comm::barrier(world).wait();
    if (world.rank() == late) {
      std::this_thread::sleep_for(20ms);
    }
    begin().wait();
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
  require(arrows == (ranks > 1 ? 3 * ranks : 0), "there are " + std::to_string(arrows) + " arrows");
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    for (const char* const name : {"all_reduce", "broadcast", "reduce_scatter", "all_gather", "barrier"}) {
      int waited = 0;
      for (const auto& one : spans.at({rank, 2})) {
        if (one.name == name) {
          require(one.args.contains("all_arrived_us"), std::string{name} + " does not tell who was waited for");
          const double waiting = one.args.at("all_arrived_us").get<double>() - one.begin;
          waited += waiting > 15e3 && one.args.at("last_rank").get<int>() == ranks - 1 ? 1 : 0;
        }
      }
      require(waited == 1, std::to_string(waited) + " times the late rank was waited for in " + name);
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
