// SPDX-License-Identifier: BSL-1.0
//
// Memory is registered where /dev/shm has room for it. Where it has none, all ranks reduce as without registration. No
// rank is killed. tests/CMakeLists.txt runs it with little room, too.
#include <filesystem>

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  comm::mpi_environment environment{argc, argv};
  return suite::run_conformance(environment, argc, argv, [&](comm::mpi& whole) {
    comm::mpi_shared shared{environment};
    std::vector<float> data(6'000'000, 1.0F);
    const std::size_t needed = static_cast<std::size_t>(whole.size()) * data.size() * sizeof(float);
    const bool enough = std::filesystem::space("/dev/shm").available > needed + (std::size_t{1} << 20);
    comm::barrier(shared).wait();  // all have looked before memory is taken
    const auto registration = comm::register_memory(shared, data);
    suite::require(registration.active() == (whole.size() > 1 && enough), "registered if there is memory");
    comm::all_reduce(shared, data).wait();
    const auto ranks = static_cast<float>(whole.size());
    suite::require(std::all_of(data.begin(), data.end(), [&](float each) { return each == ranks; }), "sums");
    if (whole.rank() == 0) {
      std::printf("%s memory\n", enough ? "enough" : "little");
    }
  });
}
