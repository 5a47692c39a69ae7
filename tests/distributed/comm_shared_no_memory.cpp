// SPDX-License-Identifier: BSL-1.0
//
// If segments do not fit into /dev/shm, all ranks get an error that says so; no rank is killed, and smaller ones work.
// tests/CMakeLists.txt runs it with little room, too.
#include <filesystem>

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  comm::mpi_environment environment{argc, argv};
  return suite::run_conformance(environment, argc, argv, [&](comm::mpi& whole) {
    const auto ranks = static_cast<std::size_t>(whole.size());
    constexpr std::size_t segment = std::size_t{8} << 20;  // of which a rank has four
    const bool enough = std::filesystem::space("/dev/shm").available > ranks * 4 * segment + (std::size_t{1} << 20);
    comm::barrier(whole).wait();  // all have looked before memory is taken
    const auto sum = [&](comm::mpi_shared& shared) {
      std::vector<float> data(5'000'000, 1.0F);
      comm::all_reduce(shared, data).wait();
      suite::require(data.front() == static_cast<float>(ranks) && data.back() == data.front(), "sums");
    };
    if (enough) {
      comm::mpi_shared large{environment, {.segment_bytes = segment}};
      sum(large);
    } else {
      for (int attempt = 0; attempt < 3; ++attempt) {  // what an attempt has taken is given back
        const std::string message = suite::message_of<gradus::communication_error>([&] {
          const comm::mpi_shared large{environment, {.segment_bytes = segment}};
        });
        const std::string needed = std::to_string(ranks * 4 * segment >> 20U);
        suite::require_contains(message, "comm::mpi_shared: expected " + needed + ".0 MiB of shared memory for ");
        suite::require_contains(message, " ranks of this machine, got ");
        suite::require_contains(message, " MiB in /dev/shm. Hint: let the container have more");
      }
    }
    comm::mpi_shared small{environment, {.segment_bytes = 64 * 1024}};
    sum(small);
    if (whole.rank() == 0) {
      std::printf("%s memory\n", enough ? "enough" : "little");
    }
  });
}
