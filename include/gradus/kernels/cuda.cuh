// SPDX-License-Identifier: BSL-1.0
//
// All kernels of CUDA. Components gradus::cuda and gradus::cudnn; needs nvcc.
// Module: kernels. Depends on: tensor.
#pragma once

#include "gradus/kernels/cuda/batch_norm.cuh"           // batch_norm_forward_training, batch_norm_backward, ...
#include "gradus/kernels/cuda/concat.cuh"               // copy_channels
#include "gradus/kernels/cuda/conv2d.cuh"               // conv2d_forward, conv2d_backward_data, ...
#include "gradus/kernels/cuda/dropout.cuh"              // dropout_forward, dropout_backward
#include "gradus/kernels/cuda/elementwise.cuh"          // relu_forward, relu_backward, add_forward, copy_or_add
#include "gradus/kernels/cuda/local_response_norm.cuh"  // local_response_norm_forward, ...
#include "gradus/kernels/cuda/matmul.cuh"               // matmul, column_sums
#include "gradus/kernels/cuda/pool2d.cuh"               // max_pool2d_forward, average_pool2d_forward, ...
#include "gradus/kernels/cuda/softmax.cuh"              // softmax, softmax_cross_entropy_loss
