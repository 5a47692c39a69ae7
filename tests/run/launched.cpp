// SPDX-License-Identifier: BSL-1.0
//
// A program of MPI for check_launchers.py: prints the number of processes that know of each other, and the processors
// that this one may use. With the word guest it begins MPI itself; with spawn it starts one more process, which is
// alone in its world.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "gradus/comm/mpi.hpp"
#include "gradus/comm/mpi_environment.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/binding.hpp"

namespace {

void report(int size) {
  std::printf("%s\n", gradus::join(
                          {size, " known, ", gradus::processors_of_rank(), " processors, ", gradus::describe_binding()})
                          .c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "guest") {
      MPI_Init(&argc, &argv);
      try {
        gradus::comm::mpi world{MPI_COMM_WORLD};
        report(world.size());
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "guest: %s\n", failure.what());
        MPI_Finalize();
        return 1;
      }
      MPI_Finalize();
      return 0;
    }
    const gradus::comm::mpi_environment environment{argc, argv};
    report(environment.size());
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "launched: %s\n", failure.what());
    return 1;
  }
}
