// SPDX-License-Identifier: BSL-1.0
//
// A device of host memory on which Thrust computes expressions, on its OpenMP backend: what a GPU does, without one.
#pragma once

#include <thrust/system/omp/execution_policy.h>  // thrust::omp::par

#include "archetypes.hpp"  // archetypes::device
#include "gradus/device/thrust_device.cuh"
#include "gradus/tensor/detail/thrust/evaluate.cuh"
#include "gradus/tensor/detail/thrust/reduce.cuh"

class thrust_host : public archetypes::device, public gradus::thrust_device {
 public:
  static constexpr std::string_view name = "thrust_host";
};

inline const auto& thrust_policy(const thrust_host&) {
  return thrust::omp::par;
}
