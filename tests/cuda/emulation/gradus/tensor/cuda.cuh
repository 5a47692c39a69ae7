// SPDX-License-Identifier: BSL-1.0
//
// Makes gradus/tensor/cuda.cuh, which requires nvcc, compile with the C++ compiler.
#pragma once
#pragma GCC system_header  // include_next is an extension

#include "gradus/tensor/detail/thrust/reduce.cuh"

#define __CUDACC__ 1
#include_next "gradus/tensor/cuda.cuh"
#undef __CUDACC__
