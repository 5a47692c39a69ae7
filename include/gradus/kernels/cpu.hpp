// SPDX-License-Identifier: BSL-1.0
//
// Includes all kernels of the CPU.
#pragma once

#include "gradus/core/unoptimized.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/batch_norm.hpp"
#include "gradus/kernels/cpu/concat.hpp"
#include "gradus/kernels/cpu/conv2d.hpp"
#include "gradus/kernels/cpu/conv_transpose2d.hpp"
#include "gradus/kernels/cpu/dropout.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/cpu/local_response_norm.hpp"
#include "gradus/kernels/cpu/matmul.hpp"
#include "gradus/kernels/cpu/pad2d.hpp"
#include "gradus/kernels/cpu/pool2d.hpp"
#include "gradus/kernels/cpu/softmax.hpp"
#include "gradus/kernels/device_kernels.hpp"
#include "gradus/layout/layouts.hpp"

namespace gradus {

static_assert(kernels::explain_kernels<cpu, float, nchw>() && kernels::explain_kernels<cpu, float, nhwc>());

}  // namespace gradus
