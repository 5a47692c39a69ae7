// SPDX-License-Identifier: BSL-1.0
//
// Error codes of MPI as exceptions.
#pragma once

#include <mpi.h>

#include <cstddef>          // std::size_t
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <string_view>      // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// MPI's message for an error code.
[[nodiscard]] inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    return gradus::join({"error code ", code});
  }
  return {text, static_cast<std::size_t>(length)};
}

/// @throws communication_error with MPI's message unless the code is success
inline void check_mpi(int code, std::string_view operation, std::string_view function,
                      std::source_location where = std::source_location::current()) {
  if (code != MPI_SUCCESS) {
    gradus::raise<communication_error>(operation, {}, {function, ": ", mpi_error_text(code)}, {}, where);
  }
}

}  // namespace gradus::comm::detail
