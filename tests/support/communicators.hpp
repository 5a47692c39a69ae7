// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of communicators, by the name that tests have for it.
#pragma once

#include "gradus/conformance/communicator.hpp"

namespace communicator_tests {
using namespace gradus::conformance;
}
