// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers: parallel::parameter_server and parallel::distributed_replicated. Not in gradus/gradus.hpp;
// component gradus::parameter_server.
#pragma once

#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/hosts.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/parameter_server/roles.hpp"
#include "gradus/parameter_server/summary.hpp"
