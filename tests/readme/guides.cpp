// SPDX-License-Identifier: BSL-1.0
//
// The programs of the guides in docs: all compile, and those marked "cpp run" return 0.
#include "programs_of_guides.inc"

#include <cstdio>
#include <exception>

int main() {
  int failures = 0;
  for (int i = 0; i < number_of_programs; ++i) {
    const guide_program& each = programs_of_guides[i];
    try {
      const int status = each.run();
      if (status != 0) {
        std::printf("FAILED: %s: expected 0, got %d\n", each.location, status);
        ++failures;
      }
    } catch (const std::exception& failure) {
      std::printf("FAILED: %s: expected no exception, got: %s\n", each.location, failure.what());
      ++failures;
    }
  }
  std::printf("%d programs of the guides, %d failed\n", number_of_programs, failures);
  return failures == 0 && number_of_programs > 0 ? 0 : 1;
}
