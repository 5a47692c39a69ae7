// SPDX-License-Identifier: BSL-1.0
//
// The command line of a job: one rank says what is wrong with it.
#include "program.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>

namespace cluster {

int run(int argc, char** argv, CLI::App& app, const std::function<void(place)>& check,
        const std::function<void(gradus::comm::mpi&)>& function) {
  constexpr int wrong_command_line = 2;
  gradus::comm::mpi_environment environment{argc, argv};  // outlives the catch at the end: it ends the job of a failure
  const place here{environment.rank(), environment.size()};

  std::ostringstream output;
  std::ostringstream errors;
  int status = -1;  // the program goes on
  try {
    app.parse(argc, argv);
    check(here);
  } catch (const CLI::ParseError& failure) {
    status = app.exit(failure, output, errors) == 0 ? 0 : wrong_command_line;
  } catch (const std::exception& failure) {
    errors << failure.what() << '\n';
    status = wrong_command_line;
  }
  int speaker = status < 0 ? here.ranks : here.rank;
  MPI_Allreduce(MPI_IN_PLACE, &speaker, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (speaker < here.ranks) {
    if (speaker == here.rank) {
      std::cout << output.str() << std::flush;
      if (status > 0) {
        std::cerr << app.get_name() << ": " << errors.str();
      }
    }
    return status < 0 ? wrong_command_line : status;
  }

  try {
    environment.run(function);
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: rank %d: %s\n", app.get_name().c_str(), here.rank, failure.what());
    return 1;
  }
}

}  // namespace cluster
