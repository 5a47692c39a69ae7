// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: say which report the function takes
#include "gradus/train/detail/trainer/parts.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
inline constexpr auto callback = [](const gradus::train::step_report&) {};
#else
inline constexpr auto callback = [](const auto&) {};
#endif
static_assert(gradus::train::detail::explain_callback<decltype(callback), int>());
