// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: the_last_of_many
#ifndef GRADUS_TEST_GOOD_TWIN
int a = first;
int b = second;
int c = third;
int d = fourth;
int e = fifth;
int f = sixth;
int g = the_last_of_many;
#endif
