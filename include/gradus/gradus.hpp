// SPDX-License-Identifier: BSL-1.0
//
// Everything that needs no other library than Eigen: tensors, networks, training on the CPU, ranks in threads. Tracing
// is included by choice (gradus/train/traced.hpp).
// Module: gradus. Depends on: all modules.
#pragma once

#include "gradus/comm/agreement.hpp"                  // comm::require_agreement
#include "gradus/comm/all_reduce_rule.hpp"            // comm::parse_all_reduce_spec
#include "gradus/comm/any_communicator.hpp"                  // comm::any_group, comm::group_of
#include "gradus/comm/collectives.hpp"                // comm::collectives
#include "gradus/comm/command_line.hpp"               // comm::agree, comm::command_line
#include "gradus/comm/communicator.hpp"               // comm::communicator, comm::all_reduce, ...
#include "gradus/comm/flight_recorder.hpp"            // comm::recorded, comm::flight_recorder
#include "gradus/comm/self.hpp"                       // comm::self
#include "gradus/comm/threads.hpp"                    // comm::threads, comm::run_ranks
#include "gradus/comm/tune.hpp"                       // comm::tune_all_reduce
#include "gradus/core/bfloat16.hpp"                   // bfloat16
#include "gradus/core/element.hpp"                    // element, real_element
#include "gradus/core/error.hpp"                      // error and what derives from it
#include "gradus/core/extents.hpp"                    // extents, image_extents
#include "gradus/core/index.hpp"                      // index_t
#include "gradus/core/output.hpp"                     // close_output
#include "gradus/core/random.hpp"                     // random_stream
#include "gradus/core/version.hpp"                    // version
#include "gradus/data/dataset.hpp"                    // data::image_dataset
#include "gradus/data/idx.hpp"                        // data::read_idx
#include "gradus/data/loader.hpp"                     // data::loader
#include "gradus/data/mnist.hpp"                      // data::load_mnist_plain
#include "gradus/data/sampler.hpp"                    // data::shard
#include "gradus/data/synthetic.hpp"                  // data::make_synthetic
#include "gradus/device/cpu.hpp"                      // cpu
#include "gradus/device/device_policy.hpp"            // device_policy
#include "gradus/layout/layout_policy.hpp"            // layout_policy, axis
#include "gradus/layout/layouts.hpp"                  // nchw, nhwc, row_major
#include "gradus/layout/mapping.hpp"                  // dense_mapping
#include "gradus/models/mnist.hpp"                    // models::mnist
#include "gradus/nn/layers.hpp"                       // nn::conv2d, nn::dense, ...
#include "gradus/nn/network.hpp"                      // nn::network
#include "gradus/optim/lars.hpp"                      // optim::lars
#include "gradus/optim/schedules.hpp"                 // optim::constant, optim::piecewise, ...
#include "gradus/optim/sgd.hpp"                       // optim::sgd
#include "gradus/parallel/all_reduce.hpp"             // parallel::all_reduce
#include "gradus/parallel/compressed_all_reduce.hpp"  // parallel::compressed_all_reduce
#include "gradus/parallel/sharded_update.hpp"         // parallel::sharded_update
#include "gradus/parallel/strategy.hpp"        // parallel::synchronization
#include "gradus/tensor/copy.hpp"                     // to, copy
#include "gradus/tensor/expressions.hpp"              // operators, sum, matmul, assign, gradients, ...
#include "gradus/tensor/tensor.hpp"                   // tensor, image_tensor
#include "gradus/tensor/tensor_view.hpp"              // tensor_view, image_view
#include "gradus/train/progress.hpp"                  // train::progress
#include "gradus/train/trainer.hpp"                   // train::trainer
