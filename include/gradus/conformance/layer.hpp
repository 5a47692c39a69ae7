// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of layers: behavior against traits (nn::layer_traits), gradients against finite differences.
#pragma once

#include <algorithm>  // std::all_of, std::max
#include <cmath>      // std::abs, std::isfinite, std::round
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint64_t, std::uint8_t
#include <cstring>    // std::memcmp
#include <limits>     // std::numeric_limits
#include <memory>     // std::make_unique, std::unique_ptr
#include <span>       // std::span
#include <string>     // std::string, std::to_string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/conformance/detail/layer/activations.hpp"
#include "gradus/conformance/detail/layer/device_array.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/activation.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::conformance {

/// One layer with its inputs; runs its passes with chosen arguments.
template <class Element, class Layout, class Device>
class contract_check {
  using real = gradus::parameter_element_t<Element>;
  using activation = gradus::kernels::activation;
  using layer_type = nn::layer_passes<Element, Device>;
  using images = nn::image_batch<Element, Device>;
  using const_images = nn::image_batch<const Element, Device>;
  using elements = std::vector<Element>;
  using array = detail::device_array<Element, Device>;
  using real_array = detail::device_array<real, Device>;

 public:
  /// Makes the layer and random inputs, parameters and output gradients for it. The device must outlive the check.
  /// @param options  of the layer
  /// @param inputs   shape of each input, without the batch
  /// @param batch    number of examples
  /// @throws configuration_error, shape_error where the layer does not accept its options or the inputs, or
  ///         nn::require_parameters refuses its parameters
  template <class Options>
  contract_check(Device& device, const Options& options, std::vector<nn::value_shape> inputs, index_t batch)
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

  /// Checks forward and backward against the traits.
  void run() {
    check_forward();
    if (!traits_.aliases_input) {
      check_backward();
    }
  }

  /// Checks gradients of inputs and parameters against central differences of sum(output * output_gradient), in double.
  void check_gradients() {
    static_assert(sizeof(Element) == 8, "gradus::conformance: finite differences need double");
    if (traits_.aliases_input) {
      return;
    }
    // Not multiples of 1/8 as in the other checks: all values differ, so a maximum is differentiable.
    const auto spread = [](auto& values, const std::string& name) {
      const random_stream stream{18, name};
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<Element>(stream.normal(i));
      }
    };
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      spread(inputs_[k], "smooth input" + std::to_string(k));
    }
    const auto loss = [&, this] {
      const elements output = forward(nullptr, nullptr).output;
      double sum = 0;
      for (std::size_t i = 0; i < output.size(); ++i) {
        sum += output[i] * output_gradient_[i];
      }
      return sum;
    };
    const auto compare = [&](auto& values, const auto& gradient, const std::string& what) {
      constexpr std::size_t most = 24;  // elements of an array that are tested
      double largest = 1;
      for (const double each : gradient) {
        largest = std::max(largest, std::abs(each));
      }
      const std::size_t stride = std::max<std::size_t>(1, values.size() / most);
      for (std::size_t i = 0; i < values.size(); i += stride) {
        const double original = values[i];
        double best = std::numeric_limits<double>::infinity();
        double difference = 0;
        constexpr double steps[] = {1e-4, 1e-6};  // a kink within the larger step does not affect the smaller one
        for (const double step : steps) {
          values[i] = original + step;
          const double above = loss();
          values[i] = original - step;
          const double below = loss();
          const double estimate = (above - below) / (2 * step);
          if (std::abs(estimate - gradient[i]) < best) {
            best = std::abs(estimate - gradient[i]);
            difference = estimate;
          }
        }
        values[i] = original;
        require(best <= 1e-5 * largest,
                "the gradient of " + what + "[" + std::to_string(i) + "] is " +
                    join({static_cast<double>(gradient[i]), ", finite differences say ", difference}));
      }
    };
    const auto described = base_->parameters();
    for (const bool evaluates : {false, true}) {  // the second time as in a frozen layer
      evaluates_ = evaluates;
      first_ = forward(nullptr, nullptr);
      const backward_result got = backward(first_, std::vector<request>(inputs_.size()), {.wanted = false}, !evaluates);
      for (std::size_t k = 0; k < inputs_.size(); ++k) {
        compare(inputs_[k], got.gradients[k], "input " + std::to_string(k) + (evaluates ? " of a frozen layer" : ""));
      }
      for (std::size_t p = 0; p < parameters_.size() && !evaluates; ++p) {
        compare(parameters_[p], got.parameters[p], std::string{described[p].name});
      }
    }
  }

 private:
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
    detail::device_array<std::byte, Device> state{
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
    detail::device_array<std::byte, Device> state{device_, after.state};
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

  void check_forward() {
    first_ = forward(nullptr, nullptr);
    if (traits_.aliases_input) {
      return;  // the layer does nothing
    }
    require(all_finite(first_.output), "forward writes a finite number to every element of its output");
    if (traits_.recomputable) {
      const forward_result again = forward(nullptr, &first_);
      require(same_bits(again.output, first_.output), "a second forward pass makes the same output");
      require(same_bits(again.state, first_.state), "a second forward pass leaves the same state");
      for (std::size_t b = 0; b < first_.buffers.size(); ++b) {
        require(same_bits(again.buffers[b], first_.buffers[b]), "a second forward pass does not change buffers");
      }
    }
    if (traits_.fuses_residual) {
      const elements residual = random(size_of(output_shape_), "residual");
      const forward_result sum = forward(&residual, nullptr);
      close(sum.output, detail::combined(first_.output, &residual, nullptr), "forward adds the residual");
      if (traits_.recomputable) {
        require(same_bits(forward(&residual, &sum).output, sum.output), "a second pass adds the residual, too");
      }
      for (const activation& act : activations(traits_.fuses_activation)) {
        base_->set_activation(act);
        close(forward(&residual, nullptr).output, detail::activated(sum.output, act),
              "the activation" + detail::name_of(act) + " comes after the residual");
        base_->set_activation(activation::identity);
      }
    }
    for (const activation& act : activations(traits_.fuses_activation)) {
      base_->set_activation(act);
      const forward_result got = forward(nullptr, nullptr);
      close(got.output, detail::activated(first_.output, act), "forward applies the activation" + detail::name_of(act));
      if (traits_.recomputable) {
        require(same_bits(forward(nullptr, &got).output, got.output), "a second pass activates, too");
      }
      base_->set_activation(activation::identity);
    }
    if (const activation& act = traits_.is_activation; act != activation::identity) {
      close(first_.output, detail::activated(inputs_[0], act), "forward is the activation of the traits");
    }
  }

  /// Tests every combination of arguments for the gradients of the first two inputs and of the residual.
  void check_backward() {
    const std::vector<request> plain(inputs_.size());
    const request nothing{.wanted = false};
    const std::vector<nn::parameter_description> described = base_->parameters();
    const backward_result expected = backward(first_, plain, nothing);
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      require(all_finite(expected.gradients[k]), "backward writes all of the gradient of input " + std::to_string(k) +
                                                     ", and reads only what its traits say");
    }
    const auto check = [&, this](const std::vector<request>& requests, const request& residual) {
      const backward_result got = backward(first_, requests, residual);
      for (std::size_t k = 0; k < inputs_.size(); ++k) {
        check_gradient(got.gradients[k], expected.gradients[k], requests[k], k);
      }
      check_gradient(got.residual, output_gradient_, residual, inputs_.size());
      for (std::size_t p = 0; p < expected.parameters.size(); ++p) {
        const std::string gradient = "the gradient of '" + described[p].name + "'";
        require(all_finite(got.parameters[p]),
                "backward writes all of " + gradient + ", and reads only what its traits say");
        require(same_bits(got.parameters[p], expected.parameters[p]),
                gradient + " does not depend on which other gradients are needed");
      }
    };
    if (const activation& act = traits_.is_activation; act != activation::identity) {
      close(expected.gradients[0], detail::combined(output_gradient_, nullptr, &first_.output, act),
            "backward is the derivative of the activation that the traits say");
    }
    const backward_result frozen = backward(first_, plain, nothing, false);
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      require(same_bits(frozen.gradients[k], expected.gradients[k]), "frozen layers make the same input gradients");
    }
    std::vector<request> choices{nothing, {}, {.accumulate = true}};
    for (const activation& act : activations(traits_.masks_input_gradients)) {
      choices.push_back({.mask = true, .act = act});
      choices.push_back({.accumulate = true, .mask = true, .act = act});
    }
    std::vector<request> residual_choices{nothing};
    if (traits_.writes_residual_gradient) {
      residual_choices.push_back({});
      residual_choices.push_back({.accumulate = true});
    }
    for (const request& residual : residual_choices) {
      for (const request& a : choices) {
        for (const request& b : choices) {
          std::vector<request> requests = plain;
          requests[0] = a;
          if (inputs_.size() > 1) {
            requests.back() = b;
          }
          check(requests, residual);
          if (inputs_.size() == 1) {
            break;
          }
        }
      }
    }
  }

  void check_gradient(const elements& got, const elements& expected, const request& asked, std::size_t position) const {
    const elements old = old_gradient(expected.size(), position);
    const elements output = mask(expected.size(), position, asked.act);
    if (!asked.wanted) {
      require(same_bits(got, asked.accumulate ? old : not_numbers(got.size())),
              "a gradient that is not needed is not written");
      return;
    }
    close(got, detail::combined(expected, asked.accumulate ? &old : nullptr, asked.mask ? &output : nullptr, asked.act),
          std::string{"gradient "} + std::to_string(position) +
              (asked.accumulate ? " is added to, as epilogue.accumulate says" : " is written") +
              (asked.mask ? " and masked" + detail::name_of(asked.act) : ""));
  }

  [[nodiscard]] static elements old_gradient(std::size_t count, std::size_t position) {
    return random(static_cast<index_t>(count), "old" + std::to_string(position));
  }
  /// What the layer fuses or masks, if it does: ReLU and, if it knows others, a leaky ReLU and one with a cap.
  [[nodiscard]] std::span<const activation> activations(bool any) const {
    return {detail::checked_activations.data(), !any ? 0U : traits_.any_activation ? 3U : 1U};
  }
  [[nodiscard]] static elements mask(std::size_t count, std::size_t position, const activation& act) {
    return detail::activated(random(static_cast<index_t>(count), "mask" + std::to_string(position)), act);
  }

  static void close(const elements& got, const elements& expected, const std::string& what) {
    double largest = 0;
    double difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(static_cast<real>(expected[i]))));
      const double here = std::abs(static_cast<double>(static_cast<real>(got[i])) -
                                   static_cast<double>(static_cast<real>(expected[i])));
      difference = here <= difference ? difference : here;  // keeps a NaN
    }
    require(difference <= 8 * precision * largest,
            join({what, ": expected values up to ", largest, ", got a difference of ", difference}));
  }
  static constexpr double precision = sizeof(Element) == 8 ? 0x1p-52 : sizeof(Element) == 4 ? 0x1p-22 : 0x1p-8;

  template <class Any>
  [[nodiscard]] static bool same_bits(const std::vector<Any>& a, const std::vector<Any>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Any)) == 0);
  }
  template <class Any>
  [[nodiscard]] static bool all_finite(const std::vector<Any>& from) {
    return std::all_of(from.begin(), from.end(), [](Any element) { return std::isfinite(static_cast<real>(element)); });
  }

  /// Device memory of one pass.
  struct arrays {
    arrays(contract_check& check, const std::vector<std::vector<real>>& buffer_values)
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
    detail::device_array<std::byte, Device> scratch;
    std::size_t scratch_bytes;
  };

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
  forward_result first_;
  bool evaluates_ = false;  // step_context::evaluates
};

/// Checks one layer on a device, with batches of one and of three examples.
/// @param least_batch  in place of one: a layer that normalizes over the examples may need two of them
/// @throws std::logic_error that says which check failed
template <class Element, class Layout, class Device, class Options>
void require_layer_contract(Device& device, const Options& options, const std::vector<nn::value_shape>& inputs,
                            index_t least_batch = 1) {
  for (const index_t batch : {least_batch, index_t{3}}) {
    contract_check<Element, Layout, Device>{device, options, inputs, batch}.run();
    if constexpr (sizeof(Element) == 8) {
      contract_check<Element, Layout, Device>{device, options, inputs, batch}.check_gradients();
    }
  }
}

/// Runs all cases of a layer on the CPU, for float and double in both layouts. Odd extents find most errors.
/// @param options  options of the layer, as for network::add
/// @param inputs   shapes of the values that the layer reads
///
/// @code
///   int main() {
///     return gradus::conformance::report(gradus::conformance::check_layer("scale", scale{.by = 3}, {{4, 5, 7}}));
///   }
/// @endcode
template <class Options>
[[nodiscard]] std::vector<result> check_layer(const std::string& name, const Options& options,
                                              const std::vector<nn::value_shape>& inputs) {
  cpu device{{.intra_op_threads = 2}};
  std::vector<result> results;
  const auto check = [&]<class Element, class Layout>(Element /*of values*/, Layout /*of images*/) {
    run_case(results, name + ", " + std::string{element_name<Element>} + ", " + std::string{Layout::name},
             [&] { require_layer_contract<Element, Layout>(device, options, inputs); });
  };
  check(double{}, nchw{});
  check(double{}, nhwc{});
  check(float{}, nchw{});
  check(float{}, nhwc{});
  return results;
}

}  // namespace gradus::conformance
