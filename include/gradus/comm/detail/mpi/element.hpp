// SPDX-License-Identifier: BSL-1.0
//
// MPI's names for element types, and reductions for MPI.
#pragma once

#include <mpi.h>

#include <atomic>   // std::atomic
#include <cstddef>  // std::byte

#include "gradus/comm/reduction.hpp"
#include "gradus/comm/transfer.hpp"

namespace gradus::comm::detail {

/// The MPI datatype of an element type.
[[nodiscard]] inline MPI_Datatype mpi_type_of(element_kind kind) noexcept {
  switch (kind) {
    case element_kind::float32:
      return MPI_FLOAT;
    case element_kind::float64:
      return MPI_DOUBLE;
    case element_kind::int32:
      return MPI_INT32_T;
    case element_kind::int64:
      return MPI_INT64_T;
    case element_kind::uint8:
      return MPI_UINT8_T;
    case element_kind::bfloat16:
    case element_kind::float16:
      return MPI_UINT16_T;  // their bits; the library has its own reductions for them
  }
  return MPI_DATATYPE_NULL;
}

[[nodiscard]] inline MPI_Op own_operation_of_mpi(reduction operation) noexcept {
  switch (operation) {
    case reduction::sum:
      return MPI_SUM;
    case reduction::product:
      return MPI_PROD;
    case reduction::minimum:
      return MPI_MIN;
    case reduction::maximum:
      return MPI_MAX;
  }
  return MPI_OP_NULL;
}

/// How elements are combined with which MPI cannot compute. Set before the first reduction of the kind.
template <element_kind Kind>
inline std::atomic<element_type::accumulate_function> accumulate_for_mpi{nullptr};

/// A reduction for elements that MPI cannot compute with. It exists until MPI is finalized.
template <element_kind Kind, reduction Operation>
[[nodiscard]] MPI_Op made_operation() noexcept {
  static const MPI_Op made = [] {
    MPI_Op fresh = MPI_OP_NULL;
    MPI_Op_create(
        [](void* source, void* target, int* count, MPI_Datatype*) {
          accumulate_for_mpi<Kind>.load(std::memory_order_relaxed)(Operation, static_cast<std::byte*>(target),
                                                                   static_cast<const std::byte*>(source), *count);
        },
        1, &fresh);
    return fresh;
  }();
  return made;
}

template <element_kind Kind>
[[nodiscard]] MPI_Op operation_for_mpi(const element_type& element, reduction operation) noexcept {
  accumulate_for_mpi<Kind>.store(element.accumulate, std::memory_order_relaxed);
  switch (operation) {
    case reduction::sum:
      return made_operation<Kind, reduction::sum>();
    case reduction::product:
      return made_operation<Kind, reduction::product>();
    case reduction::minimum:
      return made_operation<Kind, reduction::minimum>();
    case reduction::maximum:
      return made_operation<Kind, reduction::maximum>();
  }
  return MPI_OP_NULL;
}

/// The MPI reduction of elements.
[[nodiscard]] inline MPI_Op mpi_operation_of(const element_type& element, reduction operation) noexcept {
  switch (element.kind) {
    case element_kind::bfloat16:
      return operation_for_mpi<element_kind::bfloat16>(element, operation);
    case element_kind::float16:
      return operation_for_mpi<element_kind::float16>(element, operation);
    default:
      return own_operation_of_mpi(operation);
  }
}

}  // namespace gradus::comm::detail
