// SPDX-License-Identifier: BSL-1.0
//
// What random trees are compared with.
#include "../property/tensor/trees_reference.cpp"
