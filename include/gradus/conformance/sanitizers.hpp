// SPDX-License-Identifier: BSL-1.0
//
// GRADUS_ADDRESS_SANITIZER and GRADUS_THREAD_SANITIZER: 1 where a file is compiled with that sanitizer, else 0. Tests
// run fewer cases with it. g++ defines __SANITIZE_ADDRESS__ and __SANITIZE_THREAD__; clang has __has_feature.
#pragma once

#include "gradus/core/config.hpp"

#if defined(__has_feature)
#define GRADUS_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#define GRADUS_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#if defined(__SANITIZE_ADDRESS__)
#define GRADUS_ADDRESS_SANITIZER 1
#else
#define GRADUS_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__)
#define GRADUS_THREAD_SANITIZER 1
#else
#define GRADUS_THREAD_SANITIZER 0
#endif
#endif
