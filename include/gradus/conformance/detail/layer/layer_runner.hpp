// SPDX-License-Identifier: BSL-1.0
//
// A layer that is run outside a network, on memory that shows what it reads and writes.
#pragma once

#include <cmath>    // std::round
#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::uint64_t
#include <cstring>  // std::memcmp
#include <limits>   // std::numeric_limits
#include <memory>   // std::make_unique, std::unique_ptr
#include <span>     // std::span
#include <string>   // std::string, std::to_string
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/conformance/detail/layer/activations.hpp"
#include "gradus/conformance/detail/layer/device_array.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/kernels/activation.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/parameter_checks.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::conformance::detail {

/// One layer with its inputs; runs its passes with chosen arguments.
template <class Element, class Layout, class Device>
class layer_runner {
 public:
  /// Makes the layer and random inputs, parameters and output gradients for it. The device must outlive the runner.
  /// @param options  of the layer
  /// @param inputs   shape of each input, without the batch
  /// @param batch    number of examples
  /// @throws configuration_error, shape_error where the layer does not accept its options or the inputs, or
  ///         nn::require_parameters refuses its parameters
  template <class Options>
  layer_runner(Device& device, const Options& options, std::vector<nn::value_shape> inputs, index_t batch)
      : device_{device}, shapes_{std::move(inputs)}, batch_{batch} {
    static_assert(nn::explain_layer<Options, Element, Layout, Device>());
    using concrete = typename Options::template layer<Element, Layout, Device>;
    auto layer = std::make_unique<concrete>(options);
    passes_ = layer.get();
    base_ = std::move(layer);
    output_shape_ = base_->infer(shapes_);
    const std::vector<nn::parameter_description> described = base_->parameters();
    nn::require_parameters(*base_, described);
    traits_ = base_->traits();
    memory_ = passes_->memory(device_, batch_);
    for (std::size_t k = 0; k < shapes_.size(); ++k) {
      inputs_.push_back(random(size_of(shapes_[k]), "input" + std::to_string(k)));
    }
    for (const nn::parameter_description& parameter : described) {
      std::vector<real> values;
      for (const Element value : random(parameter.shape.size(), parameter.name)) {
        values.push_back(static_cast<real>(value));
      }
      parameters_.push_back(std::move(values));
    }
    output_gradient_ = random(size_of(output_shape_), "output gradient");
  }

 protected:
  using real = gradus::parameter_element_t<Element>;
  using activation = gradus::kernels::activation;
  using layer_type = nn::layer_passes<Element, Device>;
  using images = nn::image_batch<Element, Device>;
  using const_images = nn::image_batch<const Element, Device>;
  using elements = std::vector<Element>;
  using array = device_array<Element, Device>;
  using real_array = device_array<real, Device>;

  /// The results of a forward pass.
  struct forward_result {
    elements output;
    std::vector<std::byte> state;
    std::vector<std::vector<real>> buffers;
  };

  /// The arguments of a backward pass for the gradient of one value.
  struct request {
    bool wanted = true;
    bool accumulate = false;
    bool mask = false;
    activation act = activation::relu;  // of the mask
  };

  /// The results of a backward pass.
  struct backward_result {
    std::vector<elements> gradients;
    elements residual;
    std::vector<std::vector<real>> parameters;
  };

  [[nodiscard]] index_t size_of(const nn::value_shape& shape) const { return shape.batch(batch_).size(); }

  /// Random multiples of 1/8, except 0.
  [[nodiscard]] static elements random(index_t count, const std::string& name) {
    const random_stream stream{17, name};
    elements result;
    for (index_t i = 0; i < count; ++i) {
      const double number = std::round(8 * stream.normal(static_cast<std::uint64_t>(i))) / 8;
      result.push_back(static_cast<Element>(static_cast<real>(number == 0 ? 0.125 : number)));
    }
    return result;
  }
  [[nodiscard]] static elements not_numbers(std::size_t count) {
    return elements(count, static_cast<Element>(std::numeric_limits<real>::quiet_NaN()));
  }

  [[nodiscard]] forward_result forward(const elements* residual, const forward_result* again) {
    array output{device_, not_numbers(static_cast<std::size_t>(size_of(output_shape_)))};
    device_array<std::byte, Device> state{
        device_, again != nullptr ? again->state : std::vector<std::byte>(memory_.state, std::byte{0xff})};
    std::vector<std::vector<real>> buffers;
    for (const nn::buffer_description& buffer : base_->buffers()) {
      std::vector<real>& values = buffers.emplace_back();
      for (index_t i = 0; i < buffer.size; ++i) {
        values.push_back(static_cast<real>(buffer.initial_value(i)));
      }
    }
    if (again != nullptr) {
      buffers = again->buffers;
    }
    arrays used{*this, buffers};
    array residual_memory{device_, residual != nullptr ? *residual : elements{}};
    const nn::step_context context{
        .training = true, .seed = 3, .step = 4, .first_example = 5, .again = again != nullptr, .evaluates = evaluates_};
    passes_->forward({device_, used.input_views, images{device_, output.data(), output_shape_.batch(batch_)},
                      residual != nullptr ? residual_memory.data() : nullptr, used.parameter_memory, used.buffer_memory,
                      std::span{state.data(), memory_.state}, used.workspace(), context});
    forward_result result{output.get(), state.get(), {}};
    for (const auto& buffer : used.buffers) {
      result.buffers.push_back(buffer.get());
    }
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      require(same_bits(used.inputs[k].get(), inputs_[k]), "forward does not change its inputs");
    }
    return result;
  }

  /// @param trained  false: gradients of parameters are null, if the layer skips them then
  [[nodiscard]] backward_result backward(const forward_result& after, const std::vector<request>& requests,
                                         const request& residual, bool trained = true) {
    const auto poisoned = [](const elements& from, bool read) { return read ? from : not_numbers(from.size()); };
    arrays used{*this, after.buffers};
    for (nn::parameter_memory<real>& each : used.parameter_memory) {
      each.gradient = trained || !traits_.skips_parameter_gradients ? each.gradient : nullptr;
    }
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      used.inputs[k].set(poisoned(inputs_[k], traits_.backward_reads_inputs));
    }
    array output{device_, poisoned(after.output, traits_.backward_reads_output)};
    array output_gradient{device_, output_gradient_};
    device_array<std::byte, Device> state{device_, after.state};
    std::vector<array> gradients;
    std::vector<array> masks;
    std::vector<nn::input_gradient<Element, Device>> targets;
    gradients.reserve(inputs_.size() + 1);
    masks.reserve(inputs_.size() + 1);
    const auto target = [&, this](const request& asked, const nn::value_shape& shape, std::size_t position) {
      const auto count = static_cast<std::size_t>(size_of(shape));
      gradients.emplace_back(device_, asked.accumulate ? old_gradient(count, position) : not_numbers(count));
      masks.emplace_back(device_, mask(count, position, asked.act));
      return nn::input_gradient<Element, Device>{
          images{device_, asked.wanted ? gradients.back().data() : nullptr, shape.batch(batch_)},
          {.accumulate = asked.accumulate,
           .relu_output = asked.mask ? masks.back().data() : nullptr,
           .mask = asked.act}};
    };
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      targets.push_back(target(requests[k], shapes_[k], k));
    }
    const auto residual_target = target(residual, output_shape_, inputs_.size());
    const nn::step_context context{.training = true, .seed = 3, .step = 4, .first_example = 5, .evaluates = evaluates_};
    passes_->backward({device_, used.input_views, const_images{device_, output.data(), output_shape_.batch(batch_)},
                       const_images{device_, output_gradient.data(), output_shape_.batch(batch_)}, targets,
                       residual_target, used.parameter_memory, used.buffer_memory,
                       std::span{state.data(), memory_.state}, used.workspace(), context});
    backward_result result;
    for (const array& gradient : gradients) {
      result.gradients.push_back(gradient.get());
    }
    result.residual = std::move(result.gradients.back());
    result.gradients.pop_back();
    for (const auto& gradient : used.parameter_gradients) {
      result.parameters.push_back(gradient.get());
    }
    require(same_bits(output_gradient.get(), output_gradient_), "backward does not change the gradient of its output");
    require(same_bits(state.get(), after.state), "backward does not change the state");
    return result;
  }

  [[nodiscard]] static elements old_gradient(std::size_t count, std::size_t position) {
    return random(static_cast<index_t>(count), "old" + std::to_string(position));
  }
  [[nodiscard]] static elements mask(std::size_t count, std::size_t position, const activation& act) {
    return activated(random(static_cast<index_t>(count), "mask" + std::to_string(position)), act);
  }

  template <class Any>
  [[nodiscard]] static bool same_bits(const std::vector<Any>& a, const std::vector<Any>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Any)) == 0);
  }

  Device& device_;
  std::vector<nn::value_shape> shapes_;
  index_t batch_;
  std::unique_ptr<nn::layer_base> base_;
  layer_type* passes_ = nullptr;
  nn::value_shape output_shape_;
  nn::layer_traits traits_;
  nn::layer_memory memory_;
  std::vector<elements> inputs_;
  std::vector<std::vector<real>> parameters_;
  elements output_gradient_;
  bool evaluates_ = false;  // step_context::evaluates

 private:
  /// Device memory of one pass.
  struct arrays {
    arrays(layer_runner& check, const std::vector<std::vector<real>>& buffer_values)
        : scratch{check.device_, std::vector<std::byte>(check.memory_.workspace, std::byte{0xff})},
          scratch_bytes{check.memory_.workspace} {
      for (std::size_t k = 0; k < check.inputs_.size(); ++k) {
        inputs.emplace_back(check.device_, check.inputs_[k]);
        input_views.push_back({check.device_, inputs.back().data(), check.shapes_[k].batch(check.batch_)});
      }
      for (const std::vector<real>& values : check.parameters_) {
        parameters.emplace_back(check.device_, values);
        parameter_gradients.emplace_back(check.device_,
                                         std::vector<real>(values.size(), std::numeric_limits<real>::quiet_NaN()));
        parameter_memory.push_back({parameters.back().data(), parameter_gradients.back().data()});
      }
      for (const std::vector<real>& values : buffer_values) {
        buffers.emplace_back(check.device_, values);
        buffer_memory.push_back(buffers.back().data());
      }
    }

    [[nodiscard]] std::span<std::byte> workspace() { return {scratch.data(), scratch_bytes}; }

    std::vector<array> inputs;
    std::vector<const_images> input_views;
    std::vector<real_array> parameters;
    std::vector<real_array> parameter_gradients;
    std::vector<nn::parameter_memory<real>> parameter_memory;
    std::vector<real_array> buffers;
    std::vector<real*> buffer_memory;
    device_array<std::byte, Device> scratch;
    std::size_t scratch_bytes;
  };
};

}  // namespace gradus::conformance::detail
