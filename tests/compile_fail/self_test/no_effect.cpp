// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR(other): some message
// EXPECT_ERROR(member): a message that never comes
#ifdef GRADUS_TEST_CASE_OTHER
static_assert(false, "some message");
#endif
int main() {}
