// SPDX-License-Identifier: BSL-1.0
//
// Weak scaling of thread ranks: see scaling.hpp.
//
//   bench_comm_scaling [--model NAME] [--batch-size N] [--ranks N] [--steps N] [--rounds N] [--no-overlap]
#include "scaling.hpp"

#include "gradus/comm/threads.hpp"
#include "gradus/core/output.hpp"

int main(int argc, char** argv) {
  scaling::settings what;
  int ranks = 2;
  CLI::App app{"Weak scaling of thread ranks, alone and together in turn"};
  scaling::add_options(app, what);
  app.add_option("--ranks", ranks)->check(CLI::Range(1, 64))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  bench::require_network(what.model);
  gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) { scaling::measure(world, what); });
  return gradus::close_output("bench_comm_scaling", 0);
}
