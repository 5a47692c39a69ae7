// SPDX-License-Identifier: BSL-1.0
//
// README's program on one process and on ranks in threads.
#pragma GCC diagnostic ignored "-Wreturn-type"  // of a main function that is not one
#define main readme_main
#include "program.cpp"
#undef main

#include "images.hpp"

namespace {

/// README's line for four ranks, as it stands there.
void on_four_ranks(const auto& images) {
#include "of_threads.inc"
}

}  // namespace

int main() {
  const auto images = few_images();
  gradus::comm::self alone;
  const auto want = train(alone, images);
  bool same = true;
  for (const int ranks : {1, 2, 4}) {
    for (const auto& got :
         gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) { return train(world, images); })) {
      same = same_report(got, want, "threads") && same;
    }
  }
  on_four_ranks(images);
  return same ? 0 : 1;
}
