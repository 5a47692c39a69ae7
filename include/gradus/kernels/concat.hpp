// SPDX-License-Identifier: BSL-1.0
//
// The contract of channel copies, which join and split image batches.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus::kernels {

// Every device D in the library overloads, for network elements E and layouts L:
//
//   void copy_channels(D&, image_view<const E, L, D> source, index_t first_source_channel,
//                      image_view<E, L, D> destination, index_t first_destination_channel, index_t channels,
//                      bool accumulate);
//
// destination(n, first_destination_channel + c, h, w) (+)= source(n, first_source_channel + c, h, w) for c in [0,
// channels), where (+)= is += if `accumulate`, else =. Batch, height and width agree.

}  // namespace gradus::kernels
