// SPDX-License-Identifier: BSL-1.0
//
// gradus_bench: measures the training of a network, on one core, in threads, or under mpiexec.
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "../program/failure.hpp"
#include "../program/signals.hpp"
#include "gradus/comm/command_line.hpp"
#include "gradus/comm/launcher.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "input.hpp"
#include "plan.hpp"
#include "predict.hpp"
#include "ranks.hpp"
#include "settings.hpp"
#include "sweep.hpp"
#include "traffic.hpp"

namespace {

/// What the sub-commands do is done once, not once a rank.
void require_no_launcher(driver::command what) {
  if (what != driver::command::measure && what != driver::command::network && gradus::comm::started_by_launcher()) {
    const char* const name = name_of(what);
    throw std::invalid_argument{std::string{name} + ": expected one process, got ranks of mpiexec: run gradus_bench " +
                                name + " without it" +
                                (what == driver::command::pack ? "" : "; --launcher mpiexec lets it start ranks")};
  }
}

gradus::comm::command_line read_command_line(int argc, char** argv, driver::settings& chosen) {
  try {
    std::string help = driver::read_settings(argc, argv, chosen);
    if (!help.empty()) {
      return {.status = 0, .text = std::move(help)};
    }
    driver::require_supported(chosen);
    require_no_launcher(chosen.what);
    if (chosen.memory_traffic && gradus::comm::started_by_launcher()) {
      throw std::invalid_argument{"--memory-traffic: expected one process, got ranks of mpiexec: run it without"};
    }
    return {};
  } catch (const std::exception& failure) {
    return driver::refused(failure.what());
  }
}

int run(int argc, char** argv) {
  driver::settings chosen;
  gradus::comm::command_line own = read_command_line(argc, argv, chosen);
  try {
#ifdef GRADUS_BENCH_WITH_MPI
    // Also of a command line that cannot be followed: the other ranks of the job wait in MPI_Init. Without a launcher
    // MPI is left alone: it would open ports of the network for nothing.
    if (gradus::comm::started_by_launcher()) {
      return driver::run_under_mpi(argc, argv, chosen, std::move(own));
    }
#else
    gradus::comm::require_started_alone("gradus_bench");
#endif
    if (own.ends()) {
      driver::say(own);
      return own.status;
    }
    switch (chosen.what) {
      case driver::command::scale:
        driver::scale(chosen, argc, argv);
        break;
      case driver::command::tune:
        if (chosen.predicts) {
          driver::propose(chosen);
        } else {
          driver::tune(chosen, argc, argv);
        }
        break;
      case driver::command::predict:
        driver::predict(chosen);
        break;
      case driver::command::pack:
        std::printf("packed %td images into %s\n", driver::pack_images(chosen),
                    gradus::printable(chosen.output).c_str());
        break;
      case driver::command::network:
        throw std::invalid_argument{
            "network: expected ranks of mpiexec on two hosts or more, got one process: for example mpiexec -n 4 "
            "--hosts "
            "a,b,c,d gradus_bench network"};
      case driver::command::measure:
        if (chosen.memory_traffic) {
          driver::show_memory_traffic(chosen);
        } else if (chosen.dry_run) {
          driver::dry_run(chosen, chosen.ranks);
        } else {
          driver::measure_on_threads(chosen);
        }
        break;
    }
    return 0;
  } catch (const program::interrupted& end) {
    std::fflush(stdout);
    std::fprintf(stderr, "gradus_bench: ended by %s\n", end.what());
    program::end_by(end.signal);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "gradus_bench: %s\n", program::describe(failure).c_str());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  program::end_on_signals("gradus_bench");
  return gradus::close_output("gradus_bench", run(argc, argv));
}
