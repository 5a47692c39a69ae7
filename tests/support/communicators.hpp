// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of communicators, by the name that tests have for it.
#pragma once

#include "gradus/conformance/communicator.hpp"

namespace communicator_tests {
namespace comm = gradus::comm;
using namespace gradus::conformance;
}  // namespace communicator_tests
