// SPDX-License-Identifier: BSL-1.0
//
// Includes all kernels of CUDA. Components gradus::cuda and gradus::cudnn; needs nvcc.
#pragma once

#include "gradus/device/cuda.cuh"
#include "gradus/kernels/cuda/batch_norm.cuh"
#include "gradus/kernels/cuda/concat.cuh"
#include "gradus/kernels/cuda/conv2d.cuh"
#include "gradus/kernels/cuda/conv_transpose2d.cuh"
#include "gradus/kernels/cuda/dropout.cuh"
#include "gradus/kernels/cuda/elementwise.cuh"
#include "gradus/kernels/cuda/local_response_norm.cuh"
#include "gradus/kernels/cuda/matmul.cuh"
#include "gradus/kernels/cuda/pad2d.cuh"
#include "gradus/kernels/cuda/pool2d.cuh"
#include "gradus/kernels/cuda/softmax.cuh"
#include "gradus/kernels/device_kernels.hpp"
#include "gradus/layout/layouts.hpp"

namespace gradus {

static_assert(kernels::explain_kernels<cuda, float, nchw>() && kernels::explain_kernels<cuda, float, nhwc>());
static_assert(kernels::has_deferred_loss_sums<cuda> && kernels::has_loss_scale_use<cuda> &&
              kernels::has_loss_scale_application<cuda, float>);

}  // namespace gradus
