// SPDX-License-Identifier: BSL-1.0
//
// One stage of a network that is cut into stages: the passes of its micro-batches, and the memory that crosses cuts.
#pragma once

#include <cstddef>  // std::size_t
#include <memory>   // std::make_unique
#include <span>     // std::span
#include <string>   // std::string
#include <utility>  // std::move

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/detail/network/empty_step.hpp"
#include "gradus/nn/detail/network/layer_execution.hpp"
#include "gradus/nn/detail/network/layer_pass.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/base.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/plan_stage.hpp"
#include "gradus/nn/plan/stage_plan.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/targets.hpp"

namespace gradus::nn {

/// A micro-batch of a step, for the passes of a stage.
template <class Element, class Device>
struct micro_batch {
  std::size_t number = 0;  ///< from 0, within the step
  std::size_t count = 1;   ///< micro-batches of the step
  index_t examples = 0;    ///< the number of examples
  /// The first image, in the memory of the device; only the stage with the input reads it, and find_non_finite.
  const Element* images = {};
  targets<Element, Device> all;  ///< what the scores are compared with; only the stage with the loss reads it
  step_options options;          ///< of the step, with the first example of this micro-batch
};

/// Runs one stage of a network that is compiled by network::compile_stages, with memory for several micro-batches.
///
/// A training step gives the same bits as network::train_step with micro-batches of this size, if for each micro-batch
/// and each stage
///   1. plan().values_in has arrived from the stages before, then forward runs, and values_out may be sent;
///   2. gradients_in has arrived from the stages behind, then backward runs, and gradients_out may be sent;
/// where micro-batches run backward in ascending order. The last stage computes the loss at the beginning of backward.
/// Where backward is split (stage_depth::splits_backward), input_gradients and later weight_gradients run in place of
/// backward, each in ascending order. The gradients of the parameters are added over the micro-batches; after the last
/// one they are those of the step.
///
/// The network outlives its stages and is not compiled again while they exist.
template <class Element, class Device>
class network_stage {
  using network_type = network_base<Element, Device>;
  using execution_type = detail::layer_execution<Element, Device>;
  using pass_type = detail::layer_pass<Element, Device>;
  using number = parameter_element_t<Element>;

 public:
  /// A micro-batch of the network's elements.
  using batch_type = micro_batch<Element, Device>;

  /// Takes the memory of a stage.
  /// @param stage  one of this rank's
  /// @throws configuration_error unless the network is compiled by compile_stages and runs the stage on this rank, or
  ///         when a cut separates layers that write one value
  /// @throws device_error when there is too little memory
  network_stage(network_type& net, std::size_t stage, const stage_depth& depth,
                error_location where = error_location::current())
      : net_{&net}, execution_{net.device(), net.execution_.layers()} {
    at_call(where, [&, this] {
      const graph& all = net.structure();
      if (!all.in_stages() || stage >= all.stages().stages() || !all.stages().owns(all.stages().first_layers[stage])) {
        raise<configuration_error>("network_stage", "a stage of this rank of a network that is cut into stages",
                                   {"stage ", stage}, "call compile_stages first");
      }
      dynamic_array<layer_memory> needed = execution_.memory_of_layers(all);
      plan_ = plan_stage(all.describe_for_plan(needed, sizeof(Element)), net.plan(), all.stages(), stage, depth,
                         execution_type::training_plan(all));
      for (std::size_t i = 0; i < needed.size(); ++i) {
        if (i < plan_.first || i >= plan_.end) {
          needed[i] = {};
        }
      }
      execution_.take(all,
                      std::make_unique<detail::network_memory<Element, Device>>(
                          net.device(), std::move(needed), plan_.plan, plan_.regions, net.memory()),
                      1);
    });
  }

  /// What it sends, receives and keeps.
  [[nodiscard]] const stage_plan& plan() const noexcept { return plan_; }
  /// Whether it has the loss.
  [[nodiscard]] bool is_last() const noexcept { return plan_.end == structure().nodes().size(); }
  /// Bytes that it has taken: values, their gradients and workspace, for all micro-batches under way.
  [[nodiscard]] std::size_t memory_bytes() const { return memory().bytes(); }

  /// The elements of a transfer of values, in the memory of the device; of the network's input they may be the batch's.
  [[nodiscard]] std::span<Element> value(const stage_transfer& transfer, const batch_type& batch) {
    memory().choose(batch.number);
    memory().begin(phase::forward);
    Element* const data = memory().value(transfer.value_of);
    return {data == nullptr ? const_cast<Element*>(batch.images) : data, elements_of(transfer, batch.examples)};
  }
  /// The elements of a transfer of gradients.
  [[nodiscard]] std::span<Element> gradient(const stage_transfer& transfer, const batch_type& batch) {
    memory().choose(batch.number);
    const std::size_t offset_of = plan_.plan.slots[transfer.slot].gradient_of;
    return {memory().gradient_memory(offset_of), elements_of(transfer, batch.examples)};
  }

  /// Runs the layers forward. @param hooks  may be null
  void forward(const batch_type& batch, bool training, step_hooks* hooks) {
    const floating_point_scope arithmetic{flushes_denormals_on(device())};
    const step_context context = context_of(batch, training);
    const image_batch<const Element, Device> images = images_of(batch);
    memory().choose(batch.number);
    pass_type pass = pass_over(phase::forward, images, context);
    pass.begin();
    for (std::size_t i = plan_.first; i < plan_.end; ++i) {
      if (!plan_.plan.nodes[i].forward) {
        continue;
      }
      if (hooks != nullptr) {
        hooks->before_layer(i, phase::forward);
      }
      pass.run(i, pass_type::alone);
      if (hooks != nullptr) {
        hooks->after_layer(i, phase::forward);
      }
    }
  }

  /// The sums of losses and of correct predictions, outside training. @pre it is the last stage, and forward has run
  kernels::loss_sums evaluate(const batch_type& batch, score_observer<Element, Device>* observer) {
    const floating_point_scope arithmetic{flushes_denormals_on(device())};
    const step_context context = context_of(batch, false);
    const image_batch<const Element, Device> images = images_of(batch);
    memory().choose(batch.number);
    pass_type pass = pass_over(phase::forward, images, context);
    pass.begin();
    const image_batch<const Element, Device> scores = pass.value(structure().scores());
    const kernels::loss_sums sums =
        net_->with_late(net_->loss_->compute(scores, batch.all, 0.0, {device(), nullptr, scores.extents()}));
    if (observer != nullptr) {
      observer->scored(scores, batch.all);
    }
    return sums;
  }

  /// Runs the layers backward; the last stage computes the loss first, and returns its sums.
  /// @param hooks  may be null; in the last micro-batch gradients_ready is called for each layer with parameters
  kernels::loss_sums backward(const batch_type& batch, step_hooks* hooks) {
    return run_backward(batch, detail::backward_part::all, hooks);
  }
  /// The first part of backward: gradients of values, and of the parameters whose layers compute them at the same time.
  kernels::loss_sums input_gradients(const batch_type& batch, step_hooks* hooks) {
    return run_backward(batch, detail::backward_part::inputs, hooks);
  }
  /// The second part of backward: the other gradients of the parameters.
  void weight_gradients(const batch_type& batch, step_hooks* hooks) {
    const floating_point_scope arithmetic{flushes_denormals_on(device())};
    const step_context context = context_of(batch, true);
    const image_batch<const Element, Device> images = images_of(batch);
    memory().choose(batch.number);
    pass_type pass = pass_over(phase::backward, images, context);
    pass.begin();
    for (std::size_t i = plan_.end; i-- > plan_.first;) {
      if (plan_.later_weights[i] != 0) {
        if (hooks != nullptr) {
          hooks->before_layer(i, phase::backward);
        }
        pass.run_part(i, detail::backward_part::weights);
        if (hooks != nullptr) {
          hooks->after_layer(i, phase::backward);
        }
        add_gradients(i, batch);
      }
      announce(i, batch, hooks);
    }
  }

  /// In place of forward, in a step without examples. @param hooks  may be null
  void skip_forward(step_hooks* hooks) {
    detail::skip_forward(structure(), plan_.plan, {plan_.first, plan_.end}, hooks, exchanges_nothing);
  }
  /// In place of backward, when the stages of the rank have skipped forward: the gradients of the layers are zero.
  void skip_backward(step_hooks* hooks) {
    detail::skip_backward(structure(), {plan_.first, plan_.end}, hooks, exchanges_nothing,
                          [this](index_t first, index_t count) { net_->zero_gradients(first, count); });
  }

  /// The first value of a micro-batch that is not finite: of its images, unless they are null, of what its scores are
  /// compared with, of what the stage receives, or of the output of a layer. Runs forward again.
  [[nodiscard]] non_finite find_non_finite(const batch_type& batch) {
    if (non_finite found = net_->find_non_finite_data(images_of(batch), &batch.all); !found.where.empty()) {
      return found;
    }
    for (const stage_transfer& each : plan_.values_in) {
      const std::span<const Element> elements = value(each, batch);
      if (!memory().all_finite(elements.data(), static_cast<index_t>(elements.size()))) {
        return {gradus::join({"the values that stage ", stage(), " receives"})};
      }
    }
    non_finite_checker search{*this, batch.examples};
    forward(batch, true, &search);
    return {std::move(search.where)};
  }

 private:
  /// Layers of a network in stages exchange no data with other ranks.
  static void exchanges_nothing(std::size_t /*layer*/) noexcept {}

  /// Checks every layer's output before its memory is reused.
  class non_finite_checker final : public step_hooks {
   public:
    non_finite_checker(network_stage& of, index_t examples) noexcept : of_{of}, examples_{examples} {}

    void after_layer(std::size_t layer, phase /*which*/) override {
      const Element* const output = of_.memory().value(layer + 1);
      if (where.empty() && output != nullptr &&
          !of_.memory().all_finite(output, of_.structure().batch_extents(layer + 1, examples_).size())) {
        where = of_.structure().describe(layer);
      }
    }

    std::string where;

   private:
    network_stage& of_;
    index_t examples_;
  };

  [[nodiscard]] const graph& structure() const noexcept { return net_->structure(); }
  [[nodiscard]] std::size_t stage() const { return structure().stages().stage_of(plan_.first); }
  [[nodiscard]] Device& device() const noexcept { return net_->device(); }
  [[nodiscard]] detail::network_memory<Element, Device>& memory() const noexcept { return *execution_.memory(); }

  [[nodiscard]] std::size_t elements_of(const stage_transfer& transfer, index_t examples) const {
    return static_cast<std::size_t>(structure().batch_extents(transfer.value_of, examples).size());
  }
  [[nodiscard]] image_batch<const Element, Device> images_of(const batch_type& batch) const {
    return {device(), batch.images, structure().batch_extents(0, batch.examples)};
  }
  [[nodiscard]] step_context context_of(const batch_type& batch, bool training) const noexcept {
    return {.training = training,
            .seed = structure().options().seed,
            .step = batch.options.step,
            .first_example = batch.options.first_example};
  }
  [[nodiscard]] pass_type pass_over(phase which, const image_batch<const Element, Device>& images,
                                    const step_context& context) {
    return execution_.pass_over(structure(), which, images, context);
  }

  /// Elements of the flat buffer of gradients.
  struct gradient_range {
    index_t begin = 0;
    index_t count = 0;
  };

  [[nodiscard]] gradient_range gradients_of(std::size_t layer) const {
    const std::span<const parameter_description> own = structure().nodes()[layer].trained();
    return own.empty()
               ? gradient_range{}
               : gradient_range{own.front().offset, own.back().offset + own.back().shape.size() - own.front().offset};
  }

  /// The gradients of a layer's parameters for a micro-batch are there: adds them to those of the micro-batches before.
  void add_gradients(std::size_t layer, const batch_type& batch) {
    const gradient_range own = gradients_of(layer);
    if (own.count == 0 || batch.count == 1) {
      return;
    }
    number* const gradients = net_->memory().gradients().data() + own.begin;
    number* const sums = net_->memory().partial_gradients().data() + own.begin;
    if (batch.number + 1 < batch.count) {
      copy_or_add(device(), own.count, static_cast<const number*>(gradients), sums, batch.number > 0);
    } else {
      copy_or_add(device(), own.count, static_cast<const number*>(sums), gradients, true);
    }
  }

  /// The gradients of a layer's parameters for the step are there, after those of the last micro-batch.
  void announce(std::size_t layer, const batch_type& batch, step_hooks* hooks) const {
    const graph::node& n = structure().nodes()[layer];
    if (hooks != nullptr && !n.trained().empty() && batch.number + 1 == batch.count) {
      hooks->gradients_ready(n.first_parameter, n.trained().size());
    }
  }

  kernels::loss_sums run_backward(const batch_type& batch, detail::backward_part part, step_hooks* hooks) {
    const floating_point_scope arithmetic{flushes_denormals_on(device())};
    const step_context context = context_of(batch, true);
    const image_batch<const Element, Device> images = images_of(batch);
    memory().choose(batch.number);
    kernels::loss_sums sums;
    if (is_last()) {
      pass_type pass = pass_over(phase::forward, images, context);
      pass.begin();
      sums = net_->compute_loss(pass, memory(), batch.all, batch.options.loss_scale, batch.options.global_examples);
    }
    pass_type pass = pass_over(phase::backward, images, context);
    pass.begin();
    for (std::size_t i = plan_.end; i-- > plan_.first;) {
      if (plan_.plan.nodes[i].backward) {
        if (hooks != nullptr) {
          hooks->before_layer(i, phase::backward);
        }
        const bool later = part == detail::backward_part::inputs && plan_.later_weights[i] != 0;
        pass.run_part(i, later ? detail::backward_part::inputs : detail::backward_part::all);
        if (hooks != nullptr) {
          hooks->after_layer(i, phase::backward);
        }
        if (!later) {
          add_gradients(i, batch);
        }
      }
      if (part == detail::backward_part::all) {
        announce(i, batch, hooks);
      }
    }
    return is_last() ? net_->with_late(sums) : sums;
  }

  network_type* net_;
  execution_type execution_;
  stage_plan plan_;
};

}  // namespace gradus::nn
