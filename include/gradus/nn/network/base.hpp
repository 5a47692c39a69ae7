// SPDX-License-Identifier: BSL-1.0
//
// How a network runs steps of training and evaluation with its loss. Compiled once for all layouts.
#pragma once

#include <algorithm>    // std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/detail/network/empty_step.hpp"
#include "gradus/nn/detail/network/use.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network/compiled_network.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/micro_batches.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn {

/// The base of network<Element, Layout, Device> that all layouts share.
template <class Element, class Device>
class network_base : public compiled_network<Element, Device> {
  using base = compiled_network<Element, Device>;
  using base::graph_;

 public:
  using typename base::parameter_element_type;

  /// Which targets of an example the loss reads; none without a loss.
  [[nodiscard]] nn::target_description target_description() const {
    return loss_ == nullptr ? nn::target_description{} : loss_->targets();
  }
  /// The kind of the loss in messages, such as "softmax_cross_entropy"; empty without a loss.
  [[nodiscard]] std::string_view loss_kind() const noexcept {
    return loss_ == nullptr ? std::string_view{} : loss_->kind();
  }
  /// What the layers and the loss compute, as text with a line for each, "'drop' is dropout of 'relu', (3, 8, 8)", and
  /// one for each option that it tells (layer_base::attributes), "layer 'drop' (dropout): rate = 0.1". Ranks that train
  /// together have the same text, and so has a training that goes on from a checkpoint. Frozen layers are not in it.
  [[nodiscard]] std::string describe_options() const {
    auto options = graph_.describe_options();
    if (loss_ != nullptr) {
      options.begin_loss(loss_->kind());
      loss_->attributes(options);
    }
    return options.text();
  }

 protected:
  using typename base::batch_type;
  using loss_type = loss_base<Element, Device>;   ///< the loss
  using targets_type = targets<Element, Device>;  ///< what the scores of a step are compared with

  /// As the constructor of network.
  network_base(Device& device, const value_shape& input) : base{device, input} {}
  /// As network.
  network_base(network_base&& other) noexcept = default;
  /// As network.
  network_base& operator=(network_base&& other) noexcept = default;
  GRADUS_COLD ~network_base() = default;

  /// As network::loss.
  void end(std::unique_ptr<loss_type> made, value scores, error_location where) {
    graph_.require_scores(scores, where);
    at_call(where, [&, this] {
      made->infer(graph_.shape(scores));
      made->prepare(this->device());
    });
    loss_ = std::move(made);
    graph_.end(scores);
  }

  /// As network::train_step.
  kernels::loss_sums train(const batch_type& batch, const targets_type& batch_targets, const step_options& options,
                           step_hooks* observer, error_location where) {
    return at_call(where, [&, this] {
      const auto use = detail::use_of::begin(*this, "network.train_step");
      const floating_point_scope arithmetic{flushes_denormals_on(this->device())};
      return train(batch, batch_targets, options, observer);
    });
  }

  /// As network::forward.
  batch_type score(const batch_type& batch, error_location where) {
    return at_call(where, [&, this] {
      const auto use = detail::use_of::begin(*this, "network.forward");
      const floating_point_scope arithmetic{flushes_denormals_on(this->device())};
      return score(batch);
    });
  }

  /// As network::evaluate. @param observer  may be null
  kernels::loss_sums sum_losses(const batch_type& batch, const targets_type& batch_targets,
                                score_observer<Element, Device>* observer, error_location where) {
    return at_call(where, [&, this] {
      const auto use = detail::use_of::begin(*this, "network.evaluate");
      const floating_point_scope arithmetic{flushes_denormals_on(this->device())};
      check("network.evaluate", batch, batch_targets);
      kernels::loss_sums total;
      for (index_t first = 0; first < batch.examples(); first += graph_.examples_at_once()) {
        const index_t count = at_once(batch, first);
        const batch_type scores = score(part_of(batch, first, count));
        const targets_type part = targets_of(batch_targets, first, count);
        total += with_late(loss_->compute(scores, part, 0.0, {this->device(), nullptr, scores.extents()}));
        if (observer != nullptr) {
          observer->scored(scores, part);
        }
      }
      return total;
    });
  }

  /// As network::find_non_finite. @param batch_targets  null: they are not looked at
  non_finite find_non_finite(const batch_type& batch, const targets_type* batch_targets, const step_options& options,
                             error_location where) {
    return at_call(where, [&, this] {
      const auto use = detail::use_of::begin(*this, "network.find_non_finite");
      const floating_point_scope arithmetic{flushes_denormals_on(this->device())};
      if (batch_targets != nullptr) {
        check("network.find_non_finite", batch, *batch_targets);
      }
      return find_non_finite(batch, batch_targets, options);
    });
  }

 private:
  template <class, class>
  friend class network_stage;

  /// Checks every layer's output before its memory is reused.
  class non_finite_checker final : public step_hooks {
   public:
    non_finite_checker(network_base& net, index_t examples) noexcept : net_{net}, examples_{examples} {}

    void after_layer(std::size_t layer, phase /*which*/) override {
      const Element* const output = net_.memory().value(layer + 1);
      if (where.empty() && output != nullptr &&
          !net_.memory().all_finite(output, net_.graph_.batch_extents(layer + 1, examples_).size())) {
        where = net_.graph_.describe(layer);
      }
    }

    std::string where;

   private:
    network_base& net_;
    index_t examples_;
  };

  /// A step in micro-batches, as compile_options::micro_batch_size says.
  class parts_of_network final : public detail::partial_steps {
   public:
    parts_of_network(network_base& net, const batch_type& batch, const targets_type& batch_targets) noexcept
        : net_{net}, batch_{batch}, targets_{batch_targets} {}

    kernels::loss_sums train(index_t first, index_t count, const step_options& options, step_hooks* observer) override {
      return net_.train_at_once(net_.part_of(batch_, first, count), net_.targets_of(targets_, first, count), options,
                                observer);
    }
    void keep_gradients(index_t begin, index_t end, bool add) override {
      add_gradients(begin, end, net_.gradients(), net_.memory().partial_gradients(), add);
    }
    void complete_gradients(index_t begin, index_t end) override {
      add_gradients(begin, end, net_.memory().partial_gradients(), net_.gradients(), true);
    }

   private:
    void add_gradients(index_t begin, index_t end, std::span<const parameter_element_type> from,
                       std::span<parameter_element_type> to, bool add) {
      copy_or_add(net_.device(), end - begin, from.data() + begin, to.data() + begin, add);
    }

    network_base& net_;
    const batch_type& batch_;
    const targets_type& targets_;
  };

  kernels::loss_sums train(const batch_type& batch, const targets_type& batch_targets, const step_options& options,
                           step_hooks* observer) {
    graph_.require_training("network.train_step");
    check("network.train_step", batch, batch_targets);
    if (batch.examples() == 0) {
      skip_step(batch, options, observer);
      return {};
    }
    if (batch.examples() > graph_.examples_at_once()) {
      parts_of_network parts{*this, batch, batch_targets};
      return graph_.options().micro_batch_size.train(
          parts, {batch.examples(), graph_.examples_at_once(), graph_.trained_parameters()}, options, observer);
    }
    return train_at_once(batch, batch_targets, options, observer);
  }

  /// A step without examples.
  void skip_step(const batch_type& batch, const step_options& options, step_hooks* hooks) {
    const step_context context = training_context(options);
    const detail::layer_range all{0, graph_.nodes().size()};
    auto forward = this->pass_over(phase::forward, batch, context);
    forward.begin();
    detail::skip_forward(graph_, this->memory().plan(), all, hooks,
                         [&](std::size_t layer) { forward.run_communicating(layer); });
    auto backward = this->pass_over(phase::backward, batch, context);
    backward.begin();
    detail::skip_backward(
        graph_, all, hooks, [&](std::size_t layer) { backward.run_communicating(layer); },
        [this](index_t first, index_t count) { zero_gradients(first, count); });
  }

  /// Makes elements of the flat buffer of gradients zero.
  void zero_gradients(index_t first, index_t count) {
    this->device().fill_zero(this->memory().gradients().data() + first,
                             static_cast<std::size_t>(count) * sizeof(parameter_element_type));
  }

  batch_type score(const batch_type& batch) {
    graph_.check_batch("network.forward", batch.extents(), graph_.examples_at_once());
    return this->run_forward(batch);
  }

  /// The first number of a batch, or of what its scores are compared with, that is not finite.
  /// @param batch_targets  may be null
  non_finite find_non_finite_data(const batch_type& batch, const targets_type* batch_targets) const {
    const auto look = [&, this](const auto* numbers, index_t count, std::string_view what) -> non_finite {
      if (numbers == nullptr || count == 0) {
        return {};
      }
      const index_t first = this->memory().first_non_finite(numbers, count);
      return first == count ? non_finite{} : non_finite{std::string{what}, first / (count / batch.examples())};
    };
    non_finite found = look(batch.data(), batch.size(), "the input");
    if (found.where.empty() && batch_targets != nullptr) {
      found = look(batch_targets->values.data(), batch_targets->values.size(), "the target");
    }
    if (found.where.empty() && batch_targets != nullptr) {
      found = look(batch_targets->weights.data(), static_cast<index_t>(batch_targets->weights.size()), "the weight");
    }
    return found;
  }

  non_finite find_non_finite(const batch_type& batch, const targets_type* batch_targets, step_options options) {
    const auto& memory = this->compiled_memory("network.find_non_finite", error_location::current());
    if (std::string name = memory.first_non_finite_parameter(graph_); !name.empty()) {
      return {gradus::join({"parameter ", name})};
    }
    if (non_finite found = find_non_finite_data(batch, batch_targets); !found.where.empty()) {
      return found;
    }
    const detail::readers_or_writer::reading weights = this->current_weights();
    std::string where;
    for (index_t first = 0; first < batch.examples() && where.empty(); first += graph_.examples_at_once()) {
      const batch_type part = part_of(batch, first, at_once(batch, first));
      non_finite_checker observer{*this, part.examples()};
      step_context context = training_context(options);
      context.communicates = false;
      context.training = !graph_.inference();
      this->pass_over(phase::forward, part, context).run_all(&observer);
      where = std::move(observer.where);
      options.first_example += static_cast<std::uint64_t>(part.examples());
    }
    return {std::move(where)};
  }

  void check(std::string_view operation, const batch_type& batch, const targets_type& batch_targets) const {
    graph_.require_loss(operation);
    graph_.check_batch(operation, batch.extents(), this->max_batch_size());
    detail::require_targets(operation, loss_->targets(), batch.examples(),
                            {.labels = static_cast<index_t>(batch_targets.labels.size()),
                             .values = batch_targets.values.extents(),
                             .weights = static_cast<index_t>(batch_targets.weights.size())});
  }

  [[nodiscard]] step_context training_context(const step_options& options) const noexcept {
    return {.training = true, .seed = this->seed(), .step = options.step, .first_example = options.first_example};
  }

  /// The examples [first, first + count).
  [[nodiscard]] batch_type part_of(const batch_type& batch, index_t first, index_t count) const {
    return {this->device(), batch.data() + first * graph_.batch_extents(0, 1).size(), graph_.batch_extents(0, count)};
  }
  /// The targets of the examples [first, first + count).
  [[nodiscard]] targets_type targets_of(const targets_type& all, index_t first, index_t count) const noexcept {
    return part_of_targets(all, loss_->targets(), first, count);
  }
  /// The number of examples to compute at once, starting at `first`.
  [[nodiscard]] index_t at_once(const batch_type& batch, index_t first) const noexcept {
    return std::min(graph_.examples_at_once(), batch.examples() - first);
  }

  kernels::loss_sums train_at_once(const batch_type& batch, const targets_type& batch_targets,
                                   const step_options& options, step_hooks* observer) {
    const step_context context = training_context(options);
    auto forward = this->pass_over(phase::forward, batch, context);
    forward.run_all(observer);
    const index_t global = options.global_examples > 0 ? options.global_examples : batch.examples();
    const kernels::loss_sums sums = compute_loss(forward, this->memory(), batch_targets, options.loss_scale, global);
    this->pass_over(phase::backward, batch, context).run_all(observer);
    return with_late(sums);
  }

  /// The loss of the scores of a forward pass, and their gradient.
  /// @param memory           of the pass
  /// @param global_examples  of the step over all ranks
  template <class Pass, class Memory>
  kernels::loss_sums compute_loss(Pass& forward, Memory& memory, const targets_type& batch_targets,
                                  const gradus::loss_scale& loss_scale, index_t global_examples) {
    const batch_type scores = forward.value(graph_.scores());
    const execution_plan::gradient_target& target = memory.plan().loss_target;
    const double scale = loss_scale.factor / static_cast<double>(global_examples);
    if constexpr (kernels::has_loss_scale_use<Device>) {
      use_loss_scale(this->device(), loss_scale);
    }
    const image_batch<Element, Device> gradient{
        this->device(), target.write == execution_plan::duty::layer ? memory.gradient(graph_.scores()) : nullptr,
        scores.extents()};
    const kernels::loss_sums sums = loss_->compute(scores, batch_targets, scale, gradient);
    if constexpr (kernels::has_loss_scale_application<Device, Element>) {
      apply_loss_scale(this->device(), gradient.size(), gradient.data());
    }
    forward.mask_if_planned(this->device(), target, graph_.scores());
    return sums;
  }

  /// The loss's result plus the sums that are still on the device (kernels/softmax.hpp).
  [[nodiscard]] kernels::loss_sums with_late(kernels::loss_sums sums) {
    if constexpr (kernels::has_deferred_loss_sums<Device>) {
      sums += take_loss_sums(this->device());
    }
    return sums;
  }

  std::unique_ptr<loss_type> loss_;
};

}  // namespace gradus::nn
