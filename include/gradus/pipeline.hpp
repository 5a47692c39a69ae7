// SPDX-License-Identifier: BSL-1.0
//
// Networks larger than a rank: parallel::hybrid with its trainer, and the schedules of pipelines. Not in
// gradus/gradus.hpp; component gradus::pipeline.
#pragma once

#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/network_layers.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"
#include "gradus/pipeline/stages.hpp"
#include "gradus/pipeline/strategy.hpp"
