// SPDX-License-Identifier: BSL-1.0
//
// The version of the library. CMakeLists.txt, conanfile.py and vcpkg.json read it from here.
#pragma once

#define GRADUS_VERSION_MAJOR 0
#define GRADUS_VERSION_MINOR 1
#define GRADUS_VERSION_PATCH 0

#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"

namespace gradus {

/// The version as "major.minor.patch".
inline constexpr std::string_view version = "0.1.0";

}  // namespace gradus
