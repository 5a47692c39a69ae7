// SPDX-License-Identifier: BSL-1.0
//
// Runs the steps of a pipeline on one rank: the passes of its stages in the order of a schedule, and what crosses cuts.
#pragma once

#include <algorithm>  // std::for_each, std::max, std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <memory>     // std::make_unique, std::unique_ptr
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/comm/request.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network/base.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/stage.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/stage_plan.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/pipeline/channel.hpp"
#include "gradus/pipeline/detail/runner/crossing.hpp"
#include "gradus/pipeline/detail/runner/step_schedules.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/schedule.hpp"

namespace gradus::parallel {

/// A batch of one replica.
template <class Element, class Device>
struct pipeline_batch {
  const Element* images = nullptr;     ///< the first image, in the memory of the device
  index_t examples = 0;                ///< the number of images; the same on all ranks of the replica
  nn::targets<Element, Device> all{};  ///< what the scores are compared with
};

/// Runs steps on one rank of a replica. Values and gradients are sent as soon as they are there, and the memory for
/// those of the next micro-batches is ready before they come, so ranks wait only for what they need next.
///
/// The results are the same bits as those of one process with micro-batches of the same size.
template <class Element, class Device>
class pipeline_runner {
  using stage_type = nn::network_stage<Element, Device>;
  using micro_batch_type = nn::micro_batch<Element, Device>;

 public:
  /// Takes the memory of this rank's stages. Called by all ranks of all replicas.
  /// @param net      compiled by compile_stages with the stages of this rank, stage s on rank s mod channel.size()
  /// @param rule     of the schedules
  /// @param channel  to the other ranks of the replica; it outlives this object, as the network does
  /// @throws configuration_error when stages and ranks do not go together
  /// @throws device_error when there is too little memory
  pipeline_runner(nn::network_base<Element, Device>& net, const pipeline_rule& rule, pipeline_channel& channel)
      : net_{&net},
        channel_{&channel},
        micro_batch_size_{net.structure().examples_at_once()},
        schedules_{rule, channel.size(), most_micro_batches(net.structure()),
                   stages_per_rank(net.structure(), channel)} {
    const nn::graph& graph = net.structure();
    stages_of_rank_.resize(graph.stages().stages());
    for (const std::size_t stage : graph.stages().own) {
      if (stage % static_cast<std::size_t>(channel.size()) != static_cast<std::size_t>(channel.rank())) {
        raise<configuration_error>("pipeline_runner", {"stages that are ", channel.rank(), " mod ", channel.size()},
                                   {"stage ", stage});
      }
      own_.push_back(std::make_unique<own_stage>(net, stage, depth_of(stage, rule), most_micro_batches(graph)));
      stages_of_rank_[stage] = own_.back().get();
    }
    channel.connect(own_.front()->stage.plan().routes);
  }

  /// What crosses the cuts of this rank's stages, by the names of the layers whose results or gradients they are.
  [[nodiscard]] dynamic_array<transfer_buffer> transfer_buffers() {
    dynamic_array<transfer_buffer> result;
    for (const auto& each : own_) {
      for (const crossing* const way : {&each->values, &each->gradients}) {
        for (const nn::stage_transfer& transfer : way->in) {
          append_memory(*each, *way, transfer, result);
        }
        for (const nn::stage_transfer& transfer : way->out) {
          append_memory(*each, *way, transfer, result);
        }
      }
    }
    return result;
  }

  /// Whether this rank has the loss.
  [[nodiscard]] bool has_loss() const noexcept { return stages_of_rank_.back() != nullptr; }
  /// Runs a step: forward, loss and backward of all micro-batches. Called by all ranks of the replica.
  /// @param hooks  may be null; gradients are ready in the order of backward, each once
  /// @return  the sums of losses and of right answers on the rank with the loss; zeros on the others
  /// @throws communication_error with the stage and the pass when a rank fails or is late
  kernels::loss_sums train(const pipeline_batch<Element, Device>& batch, const nn::step_options& options,
                           nn::step_hooks* hooks) {
    not_finite_ = {};
    if (batch.examples == 0) {
      for (const auto& each : own_) {
        each->stage.skip_forward(hooks);
      }
      for (std::size_t s = own_.size(); s-- > 0;) {
        own_[s]->stage.skip_backward(hooks);
      }
      return {};
    }
    begin(batch, options);
    kernels::loss_sums total;
    guarded([&, this] {
      progress_hooks moving{*this, hooks};
      receive_more(true);
      for (const pipeline_action& action : schedules_.of(count_).of_rank(channel_->rank())) {
        total += run(action, moving);
      }
    });
    return total;
  }

  /// The sums of losses and of right answers of a batch, outside training. Called by all ranks of the replica.
  /// @param observer  of the scores; may be null
  kernels::loss_sums evaluate(const pipeline_batch<Element, Device>& batch,
                              nn::score_observer<Element, Device>* observer) {
    kernels::loss_sums total;
    if (batch.examples == 0) {
      return total;
    }
    begin(batch, {});
    guarded([&, this] {
      receive_more(false);
      for (int m = 0; m < count_; ++m) {
        for (const auto& each : own_) {
          wait_for(*each, each->values, m);
          each->stage.forward(micro_batch(*each, m), false, nullptr);
          send(*each, each->values, m);
          if (each->stage.is_last()) {
            total += each->stage.evaluate(micro_batch(*each, m), observer);
          }
        }
        // Only now: a later stage of this rank copies values from an earlier one.
        for (const auto& each : own_) {
          ++each->done;
        }
        receive_more(false);
      }
    });
    return total;
  }

  /// What was first seen not finite in the last step on the rank with the loss.
  [[nodiscard]] const nn::non_finite& first_not_finite() const noexcept { return not_finite_; }

 private:
  using crossing = detail::stage_boundary;

  /// A stage of this rank.
  struct own_stage {
    own_stage(nn::network_base<Element, Device>& net, std::size_t which, const nn::stage_depth& depth, int most)
        : number{which},
          stored{static_cast<int>(depth.stored)},
          stage{net, which, depth},
          values{stage.plan().values_in, stage.plan().values_out, stage.plan().value_copies, most, false},
          gradients{stage.plan().gradients_in, stage.plan().gradients_out, stage.plan().gradient_copies, most, true} {}

    /// The memory of a transfer.
    [[nodiscard]] std::span<Element> elements(const crossing& of, const nn::stage_transfer& transfer,
                                              const micro_batch_type& batch) {
      return of.backward ? stage.gradient(transfer, batch) : stage.value(transfer, batch);
    }

    std::size_t number;
    int stored;
    stage_type stage;
    crossing values;
    crossing gradients;
    // Of the step: the next micro-batch
    int backward = 0;  // that runs backward, or its first part,
    int done = 0;      // and that frees the memory of its values.
  };

  /// Moves messages on between two layers.
  class progress_hooks final : public nn::step_hooks {
   public:
    progress_hooks(pipeline_runner& runner, nn::step_hooks* hooks) noexcept : runner_{&runner}, hooks_{hooks} {}

    void before_layer(std::size_t layer, nn::phase which) override {
      runner_->move_on();
      if (hooks_ != nullptr) {
        hooks_->before_layer(layer, which);
      }
    }
    void after_layer(std::size_t layer, nn::phase which) override {
      if (hooks_ != nullptr) {
        hooks_->after_layer(layer, which);
      }
    }
    void gradients_ready(std::size_t first, std::size_t count) override {
      if (hooks_ != nullptr) {
        hooks_->gradients_ready(first, count);
      }
    }
    void before_pass(nn::stage_pass which, std::size_t stage, std::size_t micro_batch) override {
      if (hooks_ != nullptr) {
        hooks_->before_pass(which, stage, micro_batch);
      }
    }
    void after_pass() override {
      if (hooks_ != nullptr) {
        hooks_->after_pass();
      }
    }

   private:
    pipeline_runner* runner_;
    nn::step_hooks* hooks_;
  };

  [[nodiscard]] static int most_micro_batches(const nn::graph& graph) {
    return static_cast<int>((graph.options().max_batch_size - 1) / graph.examples_at_once() + 1);
  }
  [[nodiscard]] static int stages_per_rank(const nn::graph& graph, const pipeline_channel& channel) {
    const std::size_t stages = graph.stages().stages();
    const auto ranks = static_cast<std::size_t>(channel.size());
    if (stages == 0 || stages % ranks != 0) {
      raise<configuration_error>("pipeline_runner", {"a multiple of ", ranks, " stages, the ranks of a replica"},
                                 {stages});
    }
    return static_cast<int>(stages / ranks);
  }

  /// Gradients for another stage of this rank stay where they are until that stage runs backward.
  [[nodiscard]] nn::stage_depth depth_of(std::size_t stage, const pipeline_rule& rule) const {
    nn::stage_depth depth{.stored = schedules_.stored(stage), .splits_backward = rule.splits_backward};
    if (const auto& own = net_->structure().stages().own; own.size() > 1) {
      for (const std::size_t each : own) {
        depth.gradients = std::max(depth.gradients, schedules_.stored(each) + 1);
      }
    }
    return depth;
  }

  void append_memory(own_stage& own, const crossing& way, const nn::stage_transfer& transfer,
                     dynamic_array<transfer_buffer>& result) {
    const std::size_t value = transfer.value_of;
    const std::string name =
        gradus::join({way.what(), " of '", value == 0 ? std::string{"input"} : net_->structure().name(value - 1), "'"});
    for (int m = 0; m < std::max(way.copies, own.stored); ++m) {
      micro_batch_type batch;
      batch.number = static_cast<std::size_t>(m);
      batch.examples = micro_batch_size_;
      if (const auto bytes = std::as_bytes(own.elements(way, transfer, batch)); bytes.data() != nullptr) {
        result.push_back({name, bytes});
      }
    }
  }

  void begin(const pipeline_batch<Element, Device>& batch, const nn::step_options& options) {
    batch_ = batch;
    options_ = options;
    options_.global_examples = options.global_examples > 0 ? options.global_examples : batch.examples;
    count_ = static_cast<int>((batch.examples - 1) / micro_batch_size_ + 1);
    for (const auto& each : own_) {
      each->values.next = each->gradients.next = each->backward = each->done = 0;
    }
  }

  /// Runs the actions of a step. Its messages are over afterwards, also after an error.
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
      for_each_request([](comm::request& pending) { pending.wait(); });
    } catch (...) {
      for_each_request([](comm::request& pending) { pending.cancel(); });
      throw;
    }
  }

  template <class Body>
  void for_each_request(const Body& body) {
    for (const auto& each : own_) {
      for (crossing* const way : {&each->values, &each->gradients}) {
        for (auto* const table : {&way->received, &way->sent}) {
          for (std::vector<comm::request>& of_transfer : *table) {
            std::for_each(of_transfer.begin(), of_transfer.end(), body);
          }
        }
      }
    }
  }

  kernels::loss_sums run(const pipeline_action& action, progress_hooks& hooks) {
    own_stage& own = *stages_of_rank_[static_cast<std::size_t>(action.stage)];
    const int m = action.micro_batch;
    const auto compute = [&](auto&& pass) {
      hooks.before_pass(action.pass, own.number, static_cast<std::size_t>(m));
      pass();
      hooks.after_pass();
    };
    kernels::loss_sums sums;
    switch (action.pass) {
      case pipeline_pass::forward:
        wait_for(own, own.values, m);
        compute([&, this] { own.stage.forward(micro_batch(own, m), true, &hooks); });
        send(own, own.values, m);
        break;
      case pipeline_pass::backward:
      case pipeline_pass::input_gradients: {
        const bool whole = action.pass == pipeline_pass::backward;
        wait_for(own, own.gradients, m);
        compute([&, this] {
          sums = whole ? own.stage.backward(micro_batch(own, m), &hooks)
                       : own.stage.input_gradients(micro_batch(own, m), &hooks);
        });
        if (own.stage.is_last() && !is_finite(sums.loss) && not_finite_.where.empty()) {
          find_non_finite(own, m);
        }
        send(own, own.gradients, m);
        ++own.backward;
        own.done += whole ? 1 : 0;
        break;
      }
      case pipeline_pass::weight_gradients:
        compute([&, this] { own.stage.weight_gradients(micro_batch(own, m), &hooks); });
        ++own.done;
        break;
    }
    receive_more(true);
    return sums;
  }

  /// @param own  the stage with the loss. Each rank of the replica has the images
  void find_non_finite(own_stage& own, int m) {
    micro_batch_type batch = micro_batch(own, m);
    batch.images = images_of(m);
    not_finite_ = own.stage.find_non_finite(batch);
    if (not_finite_.example >= 0) {
      not_finite_.example += m * micro_batch_size_;
    }
  }

  [[nodiscard]] const Element* images_of(int m) const {
    return batch_.images + m * micro_batch_size_ * net_->structure().batch_extents(0, 1).size();
  }
  [[nodiscard]] micro_batch_type micro_batch(const own_stage& own, int m) const {
    const index_t first = m * micro_batch_size_;
    micro_batch_type result;
    result.number = static_cast<std::size_t>(m);
    result.count = static_cast<std::size_t>(count_);
    result.examples = std::min(micro_batch_size_, batch_.examples - first);
    result.images = own.number == 0 ? images_of(m) : nullptr;
    if (own.stage.is_last()) {
      result.all = nn::part_of_targets(batch_.all, net_->target_description(), first, result.examples);
    }
    result.options = options_;
    result.options.first_example += static_cast<std::uint64_t>(first);
    return result;
  }

  /// Begins to receive what there is memory for.
  void receive_more(bool gradients) {
    for (const auto& each : own_) {
      receive(*each, each->values, -1);
      if (gradients) {
        receive(*each, each->gradients, -1);
      }
    }
  }

  /// The next micro-batch whose memory is in use.
  [[nodiscard]] int freed(const own_stage& own, const crossing& way) const {
    int result = own.done;
    for (std::size_t t = 0; way.backward && t < way.out.size(); ++t) {
      if (const own_stage* const to = stages_of_rank_[way.out[t].peer]; to != nullptr) {
        result = std::min(result, to->backward);  // it copies them when it runs backward
      }
    }
    return result;
  }

  /// Begins to receive for micro-batches for which there is memory, and for those up to `needed`, for which it waits
  /// until there is.
  void receive(own_stage& own, crossing& way, int needed) {
    const int end = std::min(count_, freed(own, way) + way.copies);
    for (; way.next < end; ++way.next) {
      const int m = way.next;
      // What was received may have been sent on from the same memory.
      for (std::size_t t = 0; m >= way.copies && t < way.out.size(); ++t) {
        comm::request& before = way.sent[t][static_cast<std::size_t>(m - way.copies)];
        if (m > needed && !before.test()) {
          return;
        }
        wait(before, own, way, m, "to", way.out[t].peer);
      }
      for (std::size_t t = 0; t < way.in.size(); ++t) {
        const nn::stage_transfer& transfer = way.in[t];
        if (stages_of_rank_[transfer.peer] == nullptr) {  // else wait_for copies
          way.received[t][static_cast<std::size_t>(m)] = channel_->receive(
              {transfer.peer, own.number}, own.elements(way, transfer, micro_batch(own, m)), way.tag(transfer));
        }
      }
    }
  }

  /// Before a pass: what it reads is there, and what it overwrites has been sent.
  void wait_for(own_stage& own, crossing& way, int m) {
    receive(own, way, m);
    for (std::size_t t = 0; t < way.in.size(); ++t) {
      const nn::stage_transfer& transfer = way.in[t];
      if (own_stage* const from = stages_of_rank_[transfer.peer]; from != nullptr) {
        const micro_batch_type batch = micro_batch(*from, m);
        copy(from->elements(way, transfer, batch), own.elements(way, transfer, batch));
      }
      wait(way.received[t][static_cast<std::size_t>(m)], own, way, m, "from", transfer.peer);
    }
    // Values that are sent are among those that the stage stores.
    const int before = m - (way.backward ? way.copies : own.stored);
    for (std::size_t t = 0; before >= 0 && t < way.out.size(); ++t) {
      wait(way.sent[t][static_cast<std::size_t>(before)], own, way, m, "to", way.out[t].peer);
    }
  }

  /// After a pass.
  void send(own_stage& own, crossing& way, int m) {
    for (std::size_t t = 0; t < way.out.size(); ++t) {
      const nn::stage_transfer& transfer = way.out[t];
      if (stages_of_rank_[transfer.peer] == nullptr) {
        way.sent[t][static_cast<std::size_t>(m)] = channel_->send(
            {own.number, transfer.peer}, std::span<const Element>{own.elements(way, transfer, micro_batch(own, m))},
            way.tag(transfer));
      }
    }
  }

  /// Between two stages of this rank.
  void copy(std::span<const Element> from, std::span<Element> to) {
    copy_or_add(net_->device(), static_cast<index_t>(from.size()), from.data(), to.data(), false);
  }

  /// Between two layers: what other ranks wait for goes on.
  void move_on() {
    for (const auto& each : own_) {
      const auto moves = [](auto& table, int first, int end) {
        for (auto& of_transfer : table) {
          for (int m = std::max(first, 0); m < end; ++m) {
            static_cast<void>(of_transfer[static_cast<std::size_t>(m)].test());
          }
        }
      };
      moves(each->values.sent, each->done - 1, std::min(count_, each->done + each->stored));
      moves(each->gradients.sent, each->backward - each->gradients.copies, each->backward);
      moves(each->values.received, each->done, each->values.next);
      moves(each->gradients.received, each->backward, each->gradients.next);
    }
  }

  /// @param side  "to" or "from" the other stage
  void wait(comm::request& pending, const own_stage& own, const crossing& way, int m, const char* side,
            std::size_t peer) {
    try {
      pending.wait();
    } catch (error& failure) {
      const std::size_t stage = own.number;
      const std::string context = gradus::join(
          {"stage ", stage, ", ", way.pass(), " of micro-batch ", m, ", ", way.what(), " ", side, " stage ", peer});
      failure.add_context(context, error_location::current());
      throw;
    }
  }

  nn::network_base<Element, Device>* net_;
  pipeline_channel* channel_;
  index_t micro_batch_size_;
  detail::schedules_of_steps schedules_;
  std::vector<std::unique_ptr<own_stage>> own_;  // ascending
  std::vector<own_stage*> stages_of_rank_;       // by stage; null: of another rank
  nn::non_finite not_finite_;
  // Of the step:
  pipeline_batch<Element, Device> batch_;
  nn::step_options options_;
  int count_ = 0;  // micro-batches
};

}  // namespace gradus::parallel
