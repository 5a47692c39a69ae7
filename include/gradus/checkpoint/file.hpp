// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints as files: writing them from all ranks, finding the newest valid one, reading it on any number of ranks.
#pragma once

#include "gradus/checkpoint/content.hpp"
#include "gradus/checkpoint/reader.hpp"
#include "gradus/checkpoint/search.hpp"
#include "gradus/checkpoint/shared_checkpoint.hpp"
#include "gradus/checkpoint/writer.hpp"
#include "gradus/io/stored_array.hpp"
