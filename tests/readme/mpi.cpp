// SPDX-License-Identifier: BSL-1.0
//
// README's program over MPI, on as many ranks as its argument says.
#pragma GCC diagnostic ignored "-Wreturn-type"  // of a main function that is not one
#define main readme_main
#include "program.cpp"
#undef main
#define main readme_mpi_main
#include "of_mpi.cpp"
#undef main

#include <cstdlib>

#include "images.hpp"

int main(int argc, char** argv) {
  gradus::comm::mpi_environment environment{argc, argv};
  return environment.run([&](gradus::comm::mpi& world) {
    const auto images = few_images();
    gradus::comm::self alone;
    const auto want = train(alone, images);
    const auto got = train(world, images);
    const bool complete = argc == 2 && world.size() == std::atoi(argv[1]);
    return complete && same_report(got, want, "mpi") ? 0 : 1;
  });
}
