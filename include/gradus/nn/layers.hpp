// SPDX-License-Identifier: BSL-1.0
//
// All layers.
// Module: nn. Depends on: kernels.
#pragma once

#include "gradus/nn/layers/add.hpp"                  // add
#include "gradus/nn/layers/batch_norm.hpp"           // batch_norm
#include "gradus/nn/layers/concat.hpp"               // concat
#include "gradus/nn/layers/conv2d.hpp"               // conv2d
#include "gradus/nn/layers/dense.hpp"                // dense
#include "gradus/nn/layers/dropout.hpp"              // dropout
#include "gradus/nn/layers/flatten.hpp"              // flatten
#include "gradus/nn/layers/local_response_norm.hpp"  // local_response_norm
#include "gradus/nn/layers/pad_channels.hpp"         // pad_channels
#include "gradus/nn/layers/pool2d.hpp"               // max_pool2d, average_pool2d, global_average_pool2d
#include "gradus/nn/layers/relu.hpp"                 // relu
