// SPDX-License-Identifier: BSL-1.0
//
// Networks that all test programs share (networks/*.cpp). Part of the precompiled header: no test includes it.
#pragma once

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/nn/network/instances.hpp"

GRADUS_DECLARE_NETWORKS(float, gradus::cpu)
GRADUS_DECLARE_NETWORKS(double, gradus::cpu)
GRADUS_DECLARE_NETWORKS(gradus::bfloat16, gradus::cpu)
GRADUS_DECLARE_NETWORKS(gradus::float16, gradus::cpu)
