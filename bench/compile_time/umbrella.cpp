// SPDX-License-Identifier: BSL-1.0
//
// What the umbrella header alone costs.
#include <gradus/gradus.hpp>

int main() {}
