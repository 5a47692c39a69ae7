// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints: train::checkpoints, which saves a training and goes on from it, and the files without a trainer. Not in
// gradus/gradus.hpp; component gradus::checkpoint.
#pragma once

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/checkpoint/file.hpp"
