// SPDX-License-Identifier: BSL-1.0
//
// Includes all headers of expressions: element-wise operations, reductions, products, assignment, gradients.
#pragma once

#include "gradus/tensor/assign.hpp"
#include "gradus/tensor/broadcast.hpp"
#include "gradus/tensor/expression.hpp"
#include "gradus/tensor/functions.hpp"
#include "gradus/tensor/gradient.hpp"
#include "gradus/tensor/matrix.hpp"
#include "gradus/tensor/reduction.hpp"
