// SPDX-License-Identifier: BSL-1.0
//
// All kernels of the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include "gradus/core/unoptimized.hpp"                 // a program with slow kernels notes it
#include "gradus/kernels/cpu/batch_norm.hpp"           // batch_norm_forward_training, batch_norm_backward, ...
#include "gradus/kernels/cpu/concat.hpp"               // copy_channels
#include "gradus/kernels/cpu/conv2d.hpp"               // conv2d_forward, conv2d_backward_data, conv2d_backward_weights
#include "gradus/kernels/cpu/dropout.hpp"              // dropout_forward, dropout_backward
#include "gradus/kernels/cpu/elementwise.hpp"          // relu_forward, relu_backward, add_forward, copy_or_add
#include "gradus/kernels/cpu/local_response_norm.hpp"  // local_response_norm_forward, local_response_norm_backward
#include "gradus/kernels/cpu/matmul.hpp"               // matmul, column_sums
#include "gradus/kernels/cpu/pool2d.hpp"               // max_pool2d_forward, average_pool2d_forward, ...
#include "gradus/kernels/cpu/softmax.hpp"              // softmax, softmax_cross_entropy_loss
