// SPDX-License-Identifier: BSL-1.0
//
// What ends a training that is to be started again.
#pragma once

#include <cstdint>  // std::uint64_t

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"

namespace gradus::train {

/// A training has saved a checkpoint because of a signal, and ends. Every rank throws it after the same step, so the
/// communicator goes on working.
class interrupted : public error_of_all_ranks {
 public:
  /// What main returns, so that a scheduler starts the job again: EX_TEMPFAIL of sysexits.h.
  static constexpr int exit_code = 75;

  /// @param number  of the signal
  /// @param step    steps done
  interrupted(int number, std::uint64_t step, error_location where = error_location::current());
};

}  // namespace gradus::train

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train {

GRADUS_INLINE_CONSTRUCTOR interrupted::interrupted(int number, std::uint64_t step, error_location where)
    : error_of_all_ranks{"training",
                         {},
                         {"signal ", number, " has come: a checkpoint of step ", step, " is saved"},
                         "start the program again: trainer.resume(folder) goes on from it",
                         where} {}

}  // namespace gradus::train
#endif
