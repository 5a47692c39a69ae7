// SPDX-License-Identifier: BSL-1.0
//
// What the programs of README.md train on here: so few images that it takes seconds, and a batch that is not full.
#pragma once

#include <cmath>
#include <cstdio>

#include "gradus/data/synthetic.hpp"
#include "gradus/train/report.hpp"

inline auto few_images() {
  return gradus::data::make_synthetic({.examples = 300});
}

/// Whether a training left what one process leaves, to rounding.
inline bool same_report(const gradus::train::evaluation_report& got, const gradus::train::evaluation_report& want,
                        const char* ranks) {
  std::printf("%s: loss %.9g for %.9g, %td examples\n", ranks, got.loss, want.loss, got.examples);
  return std::abs(got.loss - want.loss) < 1e-4 * want.loss && got.examples == want.examples &&
         std::abs(got.accuracy - want.accuracy) < 0.01;
}
