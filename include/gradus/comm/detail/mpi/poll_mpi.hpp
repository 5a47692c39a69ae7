// SPDX-License-Identifier: BSL-1.0
//
// A nonblocking collective of MPI, polled: it has a time limit whatever the level of threads is.
#pragma once

#include <mpi.h>

#include <memory>       // std::make_unique
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/wait.hpp"

namespace gradus::comm::detail {

/// Returns the result of a collective that begin(result, request) begins, once it is complete. Calls check() between
/// polls. If check() throws, MPI may still write to the result: it stays until the process ends.
/// @param operation  of the library, and `function` of MPI, for the message of an error of MPI
/// @param enter      enter(call) calls MPI
template <class Result, class Begin, class Enter, class Check>
Result poll_mpi(std::string_view operation, std::string_view function, const Begin& begin, const Enter& enter,
                const Check& check, Result initial = {}) {
  struct state {
    Result result;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  auto under_way = std::make_unique<state>(state{std::move(initial)});
  check_mpi(enter([&] { return begin(under_way->result, &under_way->request); }), operation, function);
  backoff rest{20};
  try {
    for (int done = 0;;) {
      check_mpi(enter([&] { return MPI_Test(&under_way->request, &done, MPI_STATUS_IGNORE); }), operation, function);
      if (done != 0) {
        return std::move(under_way->result);
      }
      check();
      rest.pause();
    }
  } catch (...) {
    static_cast<void>(under_way.release());
    throw;
  }
}

}  // namespace gradus::comm::detail
