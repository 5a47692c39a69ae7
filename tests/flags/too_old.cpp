// SPDX-License-Identifier: BSL-1.0
//
// Must not compile, with few lines that tell what to do, where the compiler or the standard is too old: see old.cmake.
#include HEADER
