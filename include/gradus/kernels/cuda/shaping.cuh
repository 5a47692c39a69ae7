// SPDX-License-Identifier: BSL-1.0
//
// Includes the kernels of CUDA that the layers of nn/layers/shaping.hpp need. Component gradus::cuda; needs nvcc.
#pragma once

#include "gradus/kernels/cuda/channel_softmax.cuh"
#include "gradus/kernels/cuda/resize2d.cuh"
#include "gradus/kernels/cuda/scale_channels.cuh"
#include "gradus/kernels/cuda/strided_copy.cuh"
