// SPDX-License-Identifier: BSL-1.0
//
// The layers of a network on a device, with the plan and the memory of their passes. A network has one, and each of its
// inference sessions.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::byte, std::size_t
#include <memory>     // std::make_unique, std::shared_ptr, std::unique_ptr
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/nn/detail/network/inference_weights.hpp"
#include "gradus/nn/detail/network/layer_pass.hpp"
#include "gradus/nn/detail/network/region_runner.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/plan_execution.hpp"
#include "gradus/nn/plan/tight_memory_plan.hpp"

namespace gradus::nn::detail {

/// The plan of a network for inference, without what depends on the device.
[[nodiscard]] plan_options inference_plan(const copy_options& options) noexcept;

/// Runs layers on a device. It has no memory until one of the functions `allocate` has succeeded. Functions with a
/// graph take that of the layers; it is compiled.
template <class Element, class Device>
class layer_execution {
  using memory_type = network_memory<Element, Device>;
  using batch_type = image_batch<const Element, Device>;
  using pass_type = layer_pass<Element, Device>;

 public:
  /// Runs layers, which outlive this object, on a device, which does, too.
  explicit layer_execution(Device& device, const runnable_layers<Element, Device>& layers = {})
      : device_{&device}, layers_{layers} {}

  /// The device that runs the layers.
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  /// The layers.
  [[nodiscard]] runnable_layers<Element, Device>& layers() noexcept { return layers_; }
  /// The layers.
  [[nodiscard]] const runnable_layers<Element, Device>& layers() const noexcept { return layers_; }
  /// The memory of values, parameters and gradients; null until it is allocated.
  [[nodiscard]] memory_type* memory() const noexcept { return memory_.get(); }

  /// Takes the memory of training: values, parameters and gradients.
  /// @throws device_error when there is too little memory; nothing changes then
  GRADUS_COLD void allocate(const graph& net, strides_of_extents strides) {
    plan_options planning = training_plan(net);
    dynamic_array<layer_memory> needed = prepare_plan(net, planning);
    take(net, std::make_unique<memory_type>(*device_, net, std::move(needed), strides, planning), planning.streams);
  }

  /// Takes the memory of forward passes for inference, without parameters and buffers.
  /// @param values  as inference_options::memory
  /// @throws configuration_error, device_error when there is too little memory; nothing changes then
  void allocate_for_inference(const graph& net, const copy_options& options, std::span<std::byte> values) {
    plan_options planning = inference_plan(options);
    dynamic_array<layer_memory> needed = prepare_plan(net, planning);
    take(net, std::make_unique<memory_type>(*device_, net, std::move(needed), planning, values), streams());
  }

  /// Takes the parameters, gradients and buffers of the layers of which this rank runs the stages.
  /// @throws device_error when there is too little memory; nothing changes then
  void allocate_for_stages(const graph& net, strides_of_extents strides) {
    const dynamic_array<layer_memory> needed = memory_of_layers(net);
    take(net, std::make_unique<memory_type>(*device_, net, strides, whole_plan(net, needed, training_plan(net))), 1);
  }

  /// The memory of each layer, besides values and parameters, in training.
  [[nodiscard]] dynamic_array<layer_memory> memory_of_layers(const graph& net) const {
    plan_options planning = training_plan(net);
    return prepare_plan(net, planning);
  }

  /// The plan of all layers, for stages: without offsets. What is recomputed and where is up to each stage.
  [[nodiscard]] static execution_plan whole_plan(const graph& net, std::span<const layer_memory> needed,
                                                 plan_options planning) {
    planning.recompute = nullptr;
    planning.side_by_side = nullptr;
    planning.place = [](std::span<const buffer_lifetime> buffers) {
      return memory_plan{.offsets = dynamic_array<std::size_t>(buffers.size()), .bytes = 0};
    };
    return plan_execution(net.describe_for_plan(needed, sizeof(Element)), planning);
  }

  /// Takes memory that was made for the layers. @param streams  on which they run
  void take(const graph& net, std::unique_ptr<memory_type> memory, std::size_t streams) {
    std::shared_ptr<region_runner> regions;
    if (!memory->plan().streams.regions.empty()) {
      regions = net.options().parallel_branches.make_runner(memory->plan());
    }
    layers_.make_room(net, streams);
    memory_ = std::move(memory);
    regions_ = std::move(regions);
  }

  /// The memory of a plan, without that of gradients and copies of weights.
  [[nodiscard]] memory_forecast forecast(const graph& net, plan_options planning) const {
    dynamic_array<layer_memory> needed = prepare_plan(net, planning);
    memory_forecast result;
    result.plan = plan_execution(net.describe_for_plan(needed, sizeof(Element)), planning);
    for (const layer_memory& each : needed) {
      result.workspace = std::max(result.workspace, planning.streams * memory_plan::aligned(each.workspace));
    }
    result.arena = result.plan.arena_bytes;
    result.layers = std::move(needed);
    return result;
  }

  /// The plan of a step of training, without what depends on the device.
  [[nodiscard]] static plan_options training_plan(const graph& net) noexcept {
    return {.recompute = net.options().recompute.choose, .optimizations = net.options().optimizations};
  }

  /// A pass over the layers. It refers to the arguments. @pre there is memory
  [[nodiscard]] pass_type pass_over(const graph& net, phase which, const batch_type& batch,
                                    const step_context& context) {
    return {*device_, net, layers_, *memory_, regions_.get(), which, batch, context};
  }

  /// The scores of a batch, outside training. They are valid until the layers run again.
  batch_type score(const graph& net, const batch_type& batch) {
    const step_context context{.training = false, .seed = net.options().seed, .step = 0, .first_example = 0};
    pass_type pass = pass_over(net, phase::forward, batch, context);
    pass.run_all(nullptr);
    return pass.value(net.scores());
  }

 private:
  [[nodiscard]] std::size_t streams() const {
    if constexpr (has_device_streams<Device>) {
      return static_cast<std::size_t>(std::max(1, device_->streams()));
    }
    return 1;
  }

  /// Fills the options of the plan. Returns the memory of each layer.
  GRADUS_ALWAYS_INLINE dynamic_array<layer_memory> prepare_plan(const graph& net, plan_options& planning) const {
    dynamic_array<layer_memory> needed(net.nodes().size());
    const compile_options& options = net.options();
    planning.optimizations = options.optimizations;
    if constexpr (has_device_streams<Device>) {
      if (device_->streams() > 1) {
        planning.side_by_side = options.parallel_branches.plan;
        planning.streams = planning.side_by_side == nullptr ? 1 : static_cast<std::size_t>(device_->streams());
      }
    }
    const index_t batch = net.examples_at_once();
    const auto memory_on = [&, this](std::size_t i, Device& on) {
      return planning.inference ? layers_[i].inference_memory(on, batch, planning.prepared)
                                : layers_[i].memory(on, batch);
    };
    for (std::size_t i = 0; i < needed.size(); ++i) {
      needed[i] = memory_on(i, *device_);
      if (planning.streams > 1) {
        needed[i].workspace = std::max(needed[i].workspace, memory_on(i, device_of_stream(*device_, 0)).workspace);
      }
    }
    require_layer_memory(net.nodes(), {needed.data(), needed.size()}, std::max(streams(), planning.streams));
    return needed;
  }

  Device* device_;
  runnable_layers<Element, Device> layers_;
  std::unique_ptr<memory_type> memory_;
  std::shared_ptr<region_runner> regions_;  // null where the layers run one after another
};

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE plan_options inference_plan(const copy_options& options) noexcept {
  plan_options planning;
  planning.inference = true;
  planning.fold_affine = options.folds;
  planning.prepared = options.prepares;
  planning.place = &plan_memory_tightly;
  return planning;
}

}  // namespace gradus::nn::detail
#endif
