// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: the right message
static_assert(false, "the right message");
