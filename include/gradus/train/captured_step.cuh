// SPDX-License-Identifier: BSL-1.0
//
// A training step on one GPU, recorded once and launched as a graph.
#pragma once

#include <cstdint>  // std::int32_t
#include <memory>   // std::unique_ptr
#include <span>     // std::span
#include <utility>  // std::move

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/train/detail/trainer/step_capture.cuh"
#include "gradus/train/optimizer_step.hpp"

namespace gradus::train {

/// Forward, loss, backward and update of a network as one graph: small networks wait for launches otherwise.
///
///   train::captured_step step{net, optim::sgd{.momentum = 0.9}};
///   const kernels::loss_sums sums = step(batch->images, batch->labels, learning_rate, options);
///
/// The first full batch runs as it always does, the second is recorded, and later ones are launched; they are copied to
/// memory of the step's own. Smaller batches, and others with another number of global examples, run as they always do.
/// A call waits for the loss and not for the step. The results are those of train_step and update.
///
/// For one rank, and for update rules that do not wait for the device: sgd, and an optim::update of it, by whose scale
/// the loss is multiplied. For a trainer, with any strategy and rule, there is captured_network. The network must
/// outlive it.
template <class Network>
class captured_step {
  using parameter_element = parameter_element_t<typename Network::element_type>;

 public:
  /// A batch of images, (n, c, h, w), in the memory of the device.
  using const_view = typename Network::const_view;
  /// What the scores of a batch are compared with.
  using targets_type = nn::targets<typename Network::element_type, cuda>;

  /// @throws configuration_error when the network is not compiled or the rule makes no sense
  template <class Update>
  captured_step(Network& network, const Update& rule, error_location where = error_location::current()) try
      : network_{&network},
        segments_{std::move(trained_parameters_of(network).segments)},
        rule_{optim::make_parameter_update<parameter_element>(network.device(), rule,
                                                              static_cast<index_t>(network.trained_values().size()))},
        recording_{network, where} {
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// One step. @param batch_targets  in the memory of the device
  /// @throws shape_error when shapes disagree
  kernels::loss_sums operator()(const const_view& images, const targets_type& batch_targets, double learning_rate,
                                nn::step_options options = {}, error_location where = error_location::current()) {
    return at_call(where, [&] { return step(images, batch_targets, learning_rate, options); });
  }

  /// Whether the step has been recorded.
  [[nodiscard]] bool recorded() const noexcept { return recording_.recorded(); }
  /// The rule with its state.
  [[nodiscard]] optim::parameter_update<parameter_element>& rule() noexcept { return *rule_; }

 private:
  kernels::loss_sums step(const const_view& images, const targets_type& batch_targets, double learning_rate,
                          nn::step_options options) {
    if (rule_->scales_loss()) {
      options.loss_scale = rule_->scale();
    }
    const auto run = [&](const const_view& batch, const targets_type& wanted) {
      const kernels::loss_sums sums = network_->train_step(batch, wanted, options);
      rule_->run_step({segments_.data(), segments_.size()}, network_->values().data(), network_->gradients().data(),
                      {learning_rate, options.step});
      return sums;
    };
    return recording_.takes(images, batch_targets, options)
               ? recording_.launch(images, batch_targets, learning_rate, options, run)
               : run(images, batch_targets);
  }

  Network* network_;
  dynamic_array<optim::segment> segments_;
  std::unique_ptr<optim::parameter_update<parameter_element>> rule_;
  detail::step_capture<Network> recording_;
};

}  // namespace gradus::train
