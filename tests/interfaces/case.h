/* SPDX-License-Identifier: BSL-1.0
 *
 * One small training for all languages: 24 samples of 2 channels, 6 rows and 5 columns, and a number for each pixel.
 * Samples are made of integers, so that they are the same bits everywhere. */
#ifndef GRADUS_TEST_CASE_H
#define GRADUS_TEST_CASE_H

enum { SAMPLES = 24, CHANNELS = 2, ROWS = 6, COLUMNS = 5, BATCH = 8, STEPS = 9 };

/* Element (n, c, h, w) of the input, and (n, h, w) of the target. */
static inline double input_at(int n, int c, int h, int w) {
  return ((n * 7 + c * 5 + h * 3 + w * 11) % 17 - 8) / 8.0;
}
static inline double target_at(int n, int h, int w) {
  return (input_at(n, 0, h, w) - input_at(n, 1, h, (w + 1) % COLUMNS)) / 2;
}

#endif
