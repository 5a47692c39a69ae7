// SPDX-License-Identifier: BSL-1.0
//
// Files of the source tree that tests read. Only main.cpp is compiled with the path: the other objects are the same
// in every folder, so a compiler cache finds them.
#pragma once

#include <string>

/// The path of a file or folder, which is given relative to the folder tests.
[[nodiscard]] std::string path_in_tests(const std::string& name);
