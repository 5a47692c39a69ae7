// SPDX-License-Identifier: BSL-1.0
//
// A base of optimizer steps that stand in front of another one, for example to time it.
#pragma once

#include <cstddef>   // std::size_t
#include <optional>  // std::optional

#include "gradus/core/loss_scale.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// Stands between a training and another optimizer_step: every function calls that of the other one. A derived class
/// overrides what it watches or does differently, and calls the function of this class there. A trainer that is made
/// with it trains, saves and goes on from checkpoints as one that is made with the other step.
///
/// @code
///   struct timed_update final : train::forwarding_step {
///     using forwarding_step::forwarding_step;
///     void update(const optim::update_step& step) override {
///       const auto began = std::chrono::steady_clock::now();
///       forwarding_step::update(step);
///       seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
///     }
///     double seconds = 0;
///   };
///   timed_update timed{end};
///   train::trainer trainer{net, timed, end.group()};
/// @endcode
class forwarding_step : public optimizer_step {
 public:
  /// @param inner  the other step, which outlives this object
  explicit forwarding_step(optimizer_step& inner) noexcept : inner_{&inner} {}

  void before_layer(std::size_t layer, nn::phase which) override { inner_->before_layer(layer, which); }
  void after_layer(std::size_t layer, nn::phase which) override { inner_->after_layer(layer, which); }
  void skip_layer(std::size_t layer) override { inner_->skip_layer(layer); }
  void gradients_ready(std::size_t first, std::size_t count) override { inner_->gradients_ready(first, count); }
  void before_pass(nn::stage_pass which, std::size_t stage, std::size_t micro_batch) override {
    inner_->before_pass(which, stage, micro_batch);
  }
  void after_pass() override { inner_->after_pass(); }

  [[nodiscard]] loss_scale scale_of_loss() override { return inner_->scale_of_loss(); }
  void update(const optim::update_step& step) override { inner_->update(step); }
  void complete_update() override { inner_->complete_update(); }
  [[nodiscard]] std::optional<double> gradient_norm() const noexcept override { return inner_->gradient_norm(); }
  void end_epoch(epoch_report& report) override { inner_->end_epoch(report); }
  [[nodiscard]] bool has_deferred_update() const noexcept override { return inner_->has_deferred_update(); }
  [[nodiscard]] bool on_servers() const noexcept override { return inner_->on_servers(); }
  [[nodiscard]] bool replicates() const noexcept override { return inner_->replicates(); }
  [[nodiscard]] optimizer_step& innermost() noexcept override { return inner_->innermost(); }

 protected:
  ~forwarding_step() = default;

  /// The other step.
  [[nodiscard]] optimizer_step& inner() const noexcept { return *inner_; }

 private:
  optimizer_step* inner_;
};

}  // namespace gradus::train
