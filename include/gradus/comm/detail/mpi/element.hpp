// SPDX-License-Identifier: BSL-1.0
//
// MPI's names for element types, and reductions for MPI.
#pragma once

#include <mpi.h>

#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t
#include <string_view>  // std::string_view

#include "gradus/comm/reduction.hpp"
#include "gradus/core/element.hpp"

namespace gradus::comm::detail {

/// The MPI datatype of an element type.
template <transferable Element>
[[nodiscard]] MPI_Datatype mpi_type() noexcept {
  if constexpr (std::same_as<Element, float>) {
    return MPI_FLOAT;
  } else if constexpr (std::same_as<Element, double>) {
    return MPI_DOUBLE;
  } else if constexpr (std::same_as<Element, std::int32_t>) {
    return MPI_INT32_T;
  } else if constexpr (std::same_as<Element, std::int64_t>) {
    return MPI_INT64_T;
  } else if constexpr (sizeof(Element) == 2) {  // bfloat16, float16
    return MPI_UINT16_T;                        // their bits; the library has its own reductions for them
  } else {
    static_assert(std::same_as<Element, std::uint8_t>, "gradus::comm::mpi: no MPI type for this element type");
    return MPI_UINT8_T;
  }
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

/// A reduction for elements that MPI cannot compute with. It exists until MPI is finalized.
template <transferable Element, reduction Operation>
[[nodiscard]] MPI_Op made_operation() noexcept {
  static const MPI_Op made = [] {
    MPI_Op fresh = MPI_OP_NULL;
    MPI_Op_create(
        [](void* source, void* target, int* count, MPI_Datatype*) {
          accumulate(Operation, static_cast<Element*>(target), static_cast<const Element*>(source), *count);
        },
        1, &fresh);
    return fresh;
  }();
  return made;
}

template <transferable Element>
[[nodiscard]] MPI_Op operation_for_mpi(reduction operation) noexcept {
  switch (operation) {
    case reduction::sum:
      return made_operation<Element, reduction::sum>();
    case reduction::product:
      return made_operation<Element, reduction::product>();
    case reduction::minimum:
      return made_operation<Element, reduction::minimum>();
    case reduction::maximum:
      return made_operation<Element, reduction::maximum>();
  }
  return MPI_OP_NULL;
}

/// The MPI handles of an element type.
struct mpi_element {
  MPI_Datatype type;
  std::size_t bytes;
  std::string_view name;
  MPI_Op (*operation)(reduction) noexcept;
};

template <transferable Element>
[[nodiscard]] mpi_element mpi_element_of() noexcept {
  if constexpr (sizeof(Element) == 2) {
    return {mpi_type<Element>(), sizeof(Element), element_name<Element>, &operation_for_mpi<Element>};
  } else {
    return {mpi_type<Element>(), sizeof(Element), element_name<Element>, &own_operation_of_mpi};
  }
}

}  // namespace gradus::comm::detail
