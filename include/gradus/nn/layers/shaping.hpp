// SPDX-License-Identifier: BSL-1.0
//
// Includes the layers that move, resize and combine images, and softmax as a layer. nn/layers.hpp does not include
// them.
#pragma once

#include "gradus/nn/layers/crop2d.hpp"
#include "gradus/nn/layers/multiply.hpp"
#include "gradus/nn/layers/permute.hpp"
#include "gradus/nn/layers/pixel_shuffle.hpp"
#include "gradus/nn/layers/reshape.hpp"
#include "gradus/nn/layers/softmax.hpp"
#include "gradus/nn/layers/upsample2d.hpp"
