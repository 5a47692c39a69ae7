// SPDX-License-Identifier: BSL-1.0
#ifndef GRADUS_TEST_GOOD_TWIN
static_assert(false, "some message");
#endif
