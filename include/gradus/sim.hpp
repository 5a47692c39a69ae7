// SPDX-License-Identifier: BSL-1.0
//
// The simulator: what a step of a training would take on a cluster. Not in gradus/gradus.hpp; component gradus::sim.
#pragma once

#include "gradus/sim/calibration.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/data_parallel.hpp"
#include "gradus/sim/data_parallel_options.hpp"
#include "gradus/sim/network_text.hpp"
#include "gradus/sim/pipeline_training.hpp"
#include "gradus/sim/pipeline_training_options.hpp"
#include "gradus/sim/prediction.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/server_training.hpp"
#include "gradus/sim/server_training_options.hpp"
#include "gradus/sim/timeline.hpp"
#include "gradus/sim/workload.hpp"
