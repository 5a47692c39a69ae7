// SPDX-License-Identifier: BSL-1.0
//
// The steps of an element-wise function as data.
#pragma once

#include <array>  // std::array

#include "gradus/core/config.hpp"

namespace gradus {

/// What a step of a formula computes, as the function of tensor/functions.hpp or the operator of the same name.
enum class formula_operation : signed char {
  number = -2,    ///< formula_step::number
  variable = -1,  ///< the argument operands[0] of the function
  add,
  subtract,
  multiply,
  divide,
  negate,
  minimum,
  maximum,
  clamp,
  exp,
  log,
  sqrt,
  tanh,
  sigmoid,
  erf,
  softplus,
  relu,
  abs,
  square,
  pow,
  where,   ///< of a condition and two numbers
  masked,  ///< of a condition and a number: where(condition, number, 0)
  equal,
  not_equal,
  less,
  less_equal,
  logical_and,
  logical_or,
  logical_not
};

/// One step of a formula as data.
struct formula_step {
  formula_operation operation = formula_operation::variable;  ///< what it computes
  std::array<int, 3> operands{-1, -1, -1};  ///< earlier steps in the list, or of a variable its number; -1: none
  double number = 0;                        ///< of formula_operation::number
};

}  // namespace gradus
