// SPDX-License-Identifier: BSL-1.0
//
// Ranks whose /dev/shm is full get an error that says so; no rank is killed. tests/CMakeLists.txt runs it with a small
// /dev/shm, which the first rank fills when MPI has begun.
#include <fcntl.h>   // open
#include <unistd.h>  // close, unlink, write

#include <filesystem>

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  comm::mpi_environment environment{argc, argv};
  return suite::run_conformance(environment, argc, argv, [&](comm::mpi& whole) {
    constexpr const char* filler = "/dev/shm/gradus_test_fills_it";
    const bool small = std::filesystem::space("/dev/shm").capacity <= std::size_t{32} << 20;
    comm::barrier(whole).wait();
    if (small) {
      if (whole.rank() == 0) {
        const int file = ::open(filler, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        const std::vector<char> zeros(4096);
        while (::write(file, zeros.data(), zeros.size()) > 0) {
        }
        ::close(file);
      }
      comm::barrier(whole).wait();
      const std::string message =
          suite::message_of<gradus::communication_error>([&] { const comm::mpi_shared full{environment}; });
      comm::barrier(whole).wait();
      if (whole.rank() == 0) {
        ::unlink(filler);
      }
      suite::require_contains(message, " ranks of this machine, got 0.0 MiB in /dev/shm");
      comm::barrier(whole).wait();
    }
    comm::mpi_shared some{environment, {.segment_bytes = 64 * 1024}};
    std::vector<float> data(1000, 1.0F);
    comm::all_reduce(some, data).wait();
    suite::require(data.front() == static_cast<float>(whole.size()), "sum");
    if (whole.rank() == 0) {
      std::printf("%s memory\n", small ? "little" : "enough");
    }
  });
}
