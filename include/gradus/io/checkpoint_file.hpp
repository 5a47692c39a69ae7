// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints as files: writing them from all ranks, finding the newest valid one, reading it on any number of ranks.
#pragma once

#include "gradus/io/checkpoint_content.hpp"
#include "gradus/io/checkpoint_reader.hpp"
#include "gradus/io/checkpoint_search.hpp"
#include "gradus/io/checkpoint_writer.hpp"
#include "gradus/io/shared_checkpoint.hpp"
#include "gradus/io/stored_array.hpp"
