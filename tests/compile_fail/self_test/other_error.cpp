// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: a message that never comes
#ifndef GRADUS_TEST_GOOD_TWIN
static_assert(false, "another message");
#endif
