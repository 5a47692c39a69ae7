// SPDX-License-Identifier: BSL-1.0
//
// A registration that outlives MPI: the memory is private to this rank again, with its contents.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  std::vector<float> data(100003, 1.0F);
  comm::mpi_shared::registration registration;
  float ranks = 0;
  int result = 0;
  {
    comm::mpi_environment environment{argc, argv};
    result = suite::run_conformance(environment, argc, argv, [&](comm::mpi& whole) {
      ranks = static_cast<float>(whole.size());
      comm::mpi_shared shared{environment};
      registration = comm::register_memory(shared, data);
      suite::require(registration.active() == (whole.size() > 1), "registered");
      comm::all_reduce(shared, data).wait();
    });
  }
  registration = {};
  const bool kept = std::all_of(data.begin(), data.end(), [&](float each) { return each == ranks; });
  data.assign(data.size(), 0.0F);
  if (!kept) {
    std::fprintf(stderr, "contents are lost\n");
  }
  return kept ? result : 1;
}
