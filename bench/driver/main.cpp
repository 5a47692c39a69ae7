// SPDX-License-Identifier: BSL-1.0
//
// gradus_bench: measures the training of a network, on one core, in threads, or under mpiexec.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "gradus/core/text.hpp"
#include "input.hpp"
#include "plan.hpp"
#include "ranks.hpp"
#include "settings.hpp"
#include "sweep.hpp"

namespace {

/// Whether a launcher has started this process as another rank than 0: what all ranks find wrong, one says.
bool is_other_rank() {
  for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* const rank = std::getenv(name)) {
      return std::string_view{rank} != "0";
    }
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  driver::settings chosen;
  try {
    const std::string help = driver::read_settings(argc, argv, chosen);
    if (!help.empty()) {
      std::fputs(is_other_rank() ? "" : help.c_str(), stdout);
      return 0;
    }
    driver::require_supported(chosen);
  } catch (const std::exception& failure) {
    if (!is_other_rank()) {
      std::fprintf(stderr, "gradus_bench: %s\nTry --help.\n", gradus::detail::printable(failure.what()).c_str());
    }
    return 2;
  }
  try {
    switch (chosen.what) {
      case driver::command::scale:
        driver::scale(chosen, argc, argv);
        return 0;
      case driver::command::tune:
        driver::tune(chosen, argc, argv);
        return 0;
      case driver::command::pack:
        std::printf("packed %td images into %s\n", driver::pack_images(chosen), chosen.output.c_str());
        return 0;
      case driver::command::measure:
        break;
    }
#ifdef GRADUS_BENCH_WITH_MPI
    return driver::run_under_mpi(argc, argv, chosen);
#else
    if (chosen.dry_run) {
      driver::dry_run(chosen, chosen.ranks);
    } else {
      driver::measure_on_threads(chosen);
    }
    return 0;
#endif
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "gradus_bench: %s\n", gradus::detail::printable(failure.what()).c_str());
    return 1;
  }
}
