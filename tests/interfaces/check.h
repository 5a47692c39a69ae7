/* SPDX-License-Identifier: BSL-1.0
 *
 * Checks of the tests in C: a failed one is printed, and counts. */
#ifndef GRADUS_TEST_CHECK_H
#define GRADUS_TEST_CHECK_H

#include <stdio.h>
#include <string.h>

#include "gradus_c.h"

static int failed_checks = 0;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ++failed_checks;                                               \
    }                                                                \
  } while (0)

/* The call succeeds. */
#define OK(call)                                                                 \
  do {                                                                           \
    const gradus_status got = (call);                                            \
    if (got != GRADUS_OK) {                                                      \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, gradus_last_error()); \
      ++failed_checks;                                                           \
    }                                                                            \
  } while (0)

/* A text names nothing of C++ and no line of a header. */
static int is_text_for_c(const char* text) {
  return strstr(text, "::") == NULL && strstr(text, "{.") == NULL && strstr(text, "net.compile") == NULL &&
         strstr(text, ".hpp:") == NULL && strstr(text, "trainer.fit") == NULL &&
         strstr(text, "mpi_environment") == NULL;
}

/* The call is refused with this status, and its text has these words, all for a program in C. */
#define REFUSED(expected, words, call)                                                                              \
  do {                                                                                                              \
    const gradus_status got = (call);                                                                               \
    if (got != (expected) || strstr(gradus_last_error(), (words)) == NULL || !is_text_for_c(gradus_last_error())) { \
      printf("%s:%d: %s: expected %s with '%s', got %s: %s\n", __FILE__, __LINE__, #call,                           \
             gradus_status_name(expected), (words), gradus_status_name(got), gradus_last_error());                  \
      ++failed_checks;                                                                                              \
    }                                                                                                               \
  } while (0)

#endif
