// SPDX-License-Identifier: BSL-1.0
//
// Everything that needs no other library than Eigen: tensors, networks, training on the CPU, ranks in threads. Tracing
// is included by choice (gradus/train/traced.hpp). So is what few programs use; it is declared here for the compiler to
// show the line that includes it.
#pragma once

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/command_line.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/flight_recorder.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/comm/tune.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/version.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/idx.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/mnist.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/trainer.hpp"

namespace gradus::optim {
struct adagrad;   // #include <gradus/optim/adagrad.hpp>
struct adam;      // #include <gradus/optim/adam.hpp>
struct adam_w;    // #include <gradus/optim/adam_w.hpp>
struct lamb;      // #include <gradus/optim/lamb.hpp>
struct rms_prop;  // #include <gradus/optim/rms_prop.hpp>
template <class Rule>
struct update;  // #include <gradus/optim/update.hpp>
}  // namespace gradus::optim

namespace gradus::nn {
struct binary_cross_entropy_with_logits;  // #include <gradus/nn/losses.hpp>
struct cosine_similarity;                 // #include <gradus/nn/losses.hpp>
struct huber;                             // #include <gradus/nn/losses.hpp>
struct mean_absolute_error;               // #include <gradus/nn/losses.hpp>
struct mean_squared_error;                // #include <gradus/nn/losses.hpp>
template <class Network, class... Steps>
class sequential;  // #include <gradus/nn/sequential.hpp>
}  // namespace gradus::nn

namespace gradus::metrics {
struct accuracy;                 // #include <gradus/nn/metrics.hpp>
struct confusion_matrix;         // #include <gradus/nn/metrics.hpp>
struct intersection_over_union;  // #include <gradus/nn/metrics.hpp>
struct mean_absolute_error;      // #include <gradus/nn/metrics.hpp>
struct mean_squared_error;       // #include <gradus/nn/metrics.hpp>
struct r2;                       // #include <gradus/nn/metrics.hpp>
struct top_k;                    // #include <gradus/nn/metrics.hpp>
}  // namespace gradus::metrics

namespace gradus::parallel {
struct hybrid;           // #include <gradus/pipeline.hpp>
struct int8_blocks;      // #include <gradus/parallel/int8_blocks.hpp>
struct model_averaging;  // #include <gradus/parallel/model_averaging.hpp>
template <class Strategy>
struct reproducible;  // #include <gradus/train/reproducible.hpp>
}  // namespace gradus::parallel

namespace gradus::train {
class checkpoints;        // #include <gradus/checkpoint.hpp>
class early_stopping;     // #include <gradus/train/early_stopping.hpp>
class gradient_norms;     // #include <gradus/train/gradient_norms.hpp>
class reduce_on_plateau;  // #include <gradus/train/reduce_on_plateau.hpp>
class update_ratio;       // #include <gradus/train/update_ratio.hpp>
template <class Loader, class Metrics>
class evaluate_metrics;  // #include <gradus/train/metrics.hpp>
}  // namespace gradus::train
