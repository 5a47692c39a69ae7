// SPDX-License-Identifier: BSL-1.0
//
// A training over traced MPI ranks makes one file, in which messages have arrows and steps hold their phases.
#include <cstdio>     // std::remove
#include <fstream>    // std::ifstream
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <vector>     // std::vector

#include "../support/trace_checks.hpp"
#include "../support/training_runs.hpp"
#include "communicators_mpi.hpp"
#include "gradus/train/traced.hpp"

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
  for (int rank = 0; rank < ranks; ++rank) {
    const int steps = gradus_test::count_spans(spans, rank, "step", "step");
    require(steps == 35, "there are " + std::to_string(steps) + " steps of rank " + std::to_string(rank));
    require(gradus_test::count_spans(spans, rank, "backward", "conv1") == steps, "a layer is missing");
    require(ranks == 1 || gradus_test::count_spans(spans, rank, "communicate", "all_reduce gradients 0") == steps,
            "a bucket is missing");
    require(gradus_test::count_spans(spans, rank, "evaluate", "evaluate") == 1, "the evaluation is missing");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return communicator_tests::run_conformance(argc, argv, [](comm::mpi& world) {
    const std::string path = "trace_mpi_test_" + std::to_string(world.size()) + ".json";
    trace::recorder recorder;
    auto traced = trace::traced(world.duplicate(), recorder);
    gradus_test::run_training<gradus::nhwc, float>(traced);
    send_around(traced, 3);
    trace::write(path, recorder, traced);
    if (world.rank() == 0) {
      check(path, world.size());
      std::remove(path.c_str());
      std::printf("passed: one file of all ranks\n");
    }
  });
}
