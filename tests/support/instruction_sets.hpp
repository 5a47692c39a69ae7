// SPDX-License-Identifier: BSL-1.0
//
// Runs a part of a test with every instruction set of the processor.
#pragma once

#include "gradus/simd/isa.hpp"

/// Calls body(instruction set) for every one that this processor has, and restores the choice.
template <class Body>
void for_each_instruction_set(const Body& body) {
  using gradus::kernels::instruction_set;
  const instruction_set before = gradus::kernels::current_instruction_set();
  for (const instruction_set which : gradus::kernels::detail::all_instruction_sets) {
    if (gradus::kernels::is_available(which)) {
      gradus::kernels::set_instruction_set(which);
      body(which);
    }
  }
  gradus::kernels::set_instruction_set(before);
}
