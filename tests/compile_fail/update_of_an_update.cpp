// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: an optim::update of another one
#include "gradus/optim/update.hpp"
#include "gradus/optim/sgd.hpp"

using gradus::optim::sgd;
using gradus::optim::update;

#ifdef GRADUS_TEST_GOOD_TWIN
const update<sgd> rule{.max_norm = 1, .average = 0.999};
#else
const update<update<sgd>> rule{.rule = {.max_norm = 1}, .average = 0.999};
#endif
