// SPDX-License-Identifier: BSL-1.0
//
// The modes with parameter servers, on ranks of comm::threads.
#include "gradus/comm/threads.hpp"
#include "gradus/trace/transfers.hpp"
#include "servers_on.hpp"

namespace driver {

using communicator = gradus::comm::recorded<gradus::comm::threads, gradus::trace::transfers>;
template step_end make_server_end<communicator>(communicator&, const settings&, const std::vector<int>&, gradus::cpu&,
                                                trained_parameters, const any_rule&, const transfer_plan&);
template void serve_to_the_end<communicator>(communicator&, const settings&, const std::vector<int>&, const any_rule&);

}  // namespace driver
