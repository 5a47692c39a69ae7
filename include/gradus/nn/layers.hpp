// SPDX-License-Identifier: BSL-1.0
//
// Includes all layers.
#pragma once

#include "gradus/nn/layers/add.hpp"
#include "gradus/nn/layers/batch_norm.hpp"
#include "gradus/nn/layers/concat.hpp"
#include "gradus/nn/layers/conv2d.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/layers/dropout.hpp"
#include "gradus/nn/layers/flatten.hpp"
#include "gradus/nn/layers/local_response_norm.hpp"
#include "gradus/nn/layers/pad_channels.hpp"
#include "gradus/nn/layers/pool2d.hpp"
#include "gradus/nn/layers/relu.hpp"
