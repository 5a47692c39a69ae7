// SPDX-License-Identifier: BSL-1.0
//
// The command line of a job: one rank says what is wrong with it.
#include "program.hpp"

#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <utility>

#include "gradus/comm/command_line.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"

namespace cluster {

int run(int argc, char** argv, CLI::App& app, const std::function<void(process)>& check,
        const std::function<void(gradus::comm::mpi&)>& function) {
  constexpr int wrong_command_line = 2;
  gradus::comm::mpi_environment environment{argc, argv};  // outlives the catch at the end: it ends the job of a failure
  const process here{environment.rank(), environment.size()};

  gradus::comm::command_line own;
  const auto end = [&own](int status, std::string text) { own = {.status = status, .text = std::move(text)}; };
  try {
    app.parse(argc, argv);
    check(here);
  } catch (const CLI::ParseError& failure) {
    std::ostringstream output;
    std::ostringstream errors;
    if (app.exit(failure, output, errors) == 0) {
      end(0, output.str());
    } else {
      end(wrong_command_line, app.get_name() + ": " + errors.str());
    }
  } catch (const std::exception& failure) {
    end(wrong_command_line, app.get_name() + ": " + gradus::printable(failure.what()) + '\n');
  }

  try {
    const gradus::comm::command_line all =
        environment.run([&](gradus::comm::mpi& world) { return gradus::comm::agree(world, own); });
    if (all.ends()) {
      if (all.rank == here.rank) {
        std::fputs(all.text.c_str(), all.status == 0 ? stdout : stderr);
      }
      return all.status;
    }
    environment.run(function);
    return gradus::close_output(app.get_name().c_str(), 0);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: rank %d: %s\n", app.get_name().c_str(), here.rank,
                 gradus::printable(failure.what()).c_str());
    return 1;
  }
}

}  // namespace cluster
