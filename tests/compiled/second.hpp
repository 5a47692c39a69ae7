// SPDX-License-Identifier: BSL-1.0
//
// What the source files of the program include.
#pragma once

#include <cstdint>
#include <cstring>
#include <gradus/checkpoint/checkpoints.hpp>
#include <gradus/data/synthetic.hpp>
#include <gradus/gradus.hpp>
#include <gradus/nn/layers.hpp>
#include <gradus/optim/adam.hpp>
#include <gradus/optim/adam_w.hpp>
#include <gradus/optim/lamb.hpp>
#include <string>

template <class Float>
std::uint64_t bits(const Float& value) {
  std::uint64_t result = 0;
  std::memcpy(&result, &value, sizeof value);
  return result;
}

// FNV-1a over the bytes of all parameters.
template <class Network>
std::uint64_t hash_of(Network& net) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const auto& each : net.values()) {
    hash = (hash ^ bits(each)) * 1099511628211ULL;
  }
  return hash;
}

// Trains networks of double, bfloat16 and float16, and prints what they compute, bit by bit.
void other_elements();

// Trains, keeps checkpoints in a folder, goes on from them, and prints the loss after each epoch.
void second_file(const std::string& folder);
