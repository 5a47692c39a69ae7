// SPDX-License-Identifier: BSL-1.0
//
// The training of gradus_bench in the layout nchw.
#include "gradus/core/bfloat16.hpp"
#include "gradus/layout/layouts.hpp"
#include "training_in.hpp"

namespace driver {

template std::unique_ptr<training> make_training_in<float, gradus::nchw>(const settings&, gradus::cpu&,
                                                                         const input_set&, const batches&,
                                                                         gradus::trace::recorder&);
template std::unique_ptr<training> make_training_in<gradus::bfloat16, gradus::nchw>(const settings&, gradus::cpu&,
                                                                                    const input_set&, const batches&,
                                                                                    gradus::trace::recorder&);

}  // namespace driver
