// SPDX-License-Identifier: BSL-1.0
//
// The baseline: what the standard headers that gradus uses cost without it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

int main() {}
