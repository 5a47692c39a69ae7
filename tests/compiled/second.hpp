// SPDX-License-Identifier: BSL-1.0
//
// What both source files of the program include.
#pragma once

#include <gradus/checkpoint/checkpoints.hpp>
#include <gradus/data/synthetic.hpp>
#include <gradus/gradus.hpp>
#include <gradus/nn/layers.hpp>
#include <gradus/optim/adam.hpp>
#include <gradus/optim/adam_w.hpp>
#include <gradus/optim/lamb.hpp>
#include <string>

// Trains, keeps checkpoints in a folder, goes on from them, and prints the loss after each epoch.
void second_file(const std::string& folder);
