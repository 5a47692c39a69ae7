// SPDX-License-Identifier: BSL-1.0
//
// gradus_run -- COMMAND: starts a job on one machine, on several, or in Slurm, and starts it again from its newest
// checkpoint when it dies.
#include <cstdio>     // std::fprintf, std::fputs
#include <exception>  // std::exception
#include <stdexcept>  // std::invalid_argument
#include <string>     // std::string

#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "settings.hpp"
#include "start.hpp"

namespace {

int run(int argc, char** argv) {
  supervisor::settings chosen;
  try {
    if (const std::string help = supervisor::read_settings(argc, argv, chosen); !help.empty()) {
      std::fputs(help.c_str(), stdout);
      return 0;
    }
  } catch (const std::invalid_argument& failure) {
    std::fprintf(stderr, "gradus_run: %s\nTry --help.\n", gradus::printable(failure.what()).c_str());
    return 2;
  }
  try {
    return chosen.announce ? supervisor::announce_and_become(chosen) : supervisor::start(chosen);
  } catch (const std::invalid_argument& failure) {
    std::fprintf(stderr, "gradus_run: %s\nTry --help.\n", gradus::printable(failure.what()).c_str());
    return 2;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "gradus_run: %s\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::close_output("gradus_run", run(argc, argv));
}
