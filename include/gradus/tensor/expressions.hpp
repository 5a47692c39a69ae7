// SPDX-License-Identifier: BSL-1.0
//
// Everything to compute with tensors: element-wise operations, reductions, products, assignment, gradients.
// Module: tensor. Depends on: layout, device.
#pragma once

#include "gradus/tensor/assign.hpp"      // assign, evaluate, scalar_of
#include "gradus/tensor/broadcast.hpp"   // per_channel, per_row, per_column, along
#include "gradus/tensor/expression.hpp"  // expression
#include "gradus/tensor/functions.hpp"   // operators, where, exp, ...
#include "gradus/tensor/gradient.hpp"    // gradients, value_and_gradients
#include "gradus/tensor/matrix.hpp"      // matmul, transpose, layout_cast
#include "gradus/tensor/reduction.hpp"   // sum, mean, max, ...
