// SPDX-License-Identifier: BSL-1.0
//
// Includes all kernels of CUDA. Components gradus::cuda and gradus::cudnn; needs nvcc.
#pragma once

#include "gradus/kernels/cuda/batch_norm.cuh"
#include "gradus/kernels/cuda/concat.cuh"
#include "gradus/kernels/cuda/conv2d.cuh"
#include "gradus/kernels/cuda/dropout.cuh"
#include "gradus/kernels/cuda/elementwise.cuh"
#include "gradus/kernels/cuda/local_response_norm.cuh"
#include "gradus/kernels/cuda/matmul.cuh"
#include "gradus/kernels/cuda/pool2d.cuh"
#include "gradus/kernels/cuda/softmax.cuh"
