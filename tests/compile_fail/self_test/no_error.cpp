// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: a message that never comes
int main() {}
