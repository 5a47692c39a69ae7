// SPDX-License-Identifier: BSL-1.0
#include "networks.hpp"

GRADUS_DEFINE_NETWORKS(gradus::float16, gradus::cpu)
