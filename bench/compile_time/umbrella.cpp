// SPDX-License-Identifier: BSL-1.0
//
// The compile time of the umbrella header by itself.
#include <gradus/gradus.hpp>

int main() {}
