// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of layers: behavior against traits (nn::layer_traits), gradients against finite differences.
#pragma once

#include <algorithm>  // std::all_of, std::max
#include <cmath>      // std::abs, std::isfinite
#include <cstddef>    // std::size_t
#include <limits>     // std::numeric_limits
#include <span>       // std::span
#include <string>     // std::string, std::to_string
#include <vector>     // std::vector

#include "gradus/conformance/detail/layer/activations.hpp"
#include "gradus/conformance/detail/layer/layer_runner.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::conformance {

/// Checks one layer with its inputs.
template <class Element, class Layout, class Device>
class contract_check : detail::layer_runner<Element, Layout, Device> {
  using runner = detail::layer_runner<Element, Layout, Device>;
  using runner::backward;
  using runner::base_;
  using runner::evaluates_;
  using runner::forward;
  using runner::inputs_;
  using runner::mask;
  using runner::not_numbers;
  using runner::old_gradient;
  using runner::output_gradient_;
  using runner::output_shape_;
  using runner::parameters_;
  using runner::random;
  using runner::same_bits;
  using runner::size_of;
  using runner::traits_;
  using typename runner::activation;
  using typename runner::backward_result;
  using typename runner::elements;
  using typename runner::forward_result;
  using typename runner::real;
  using typename runner::request;

 public:
  using runner::runner;

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

  /// What the layer fuses or masks, if it does: ReLU and, if it knows others, a leaky ReLU and one with a cap.
  [[nodiscard]] std::span<const activation> activations(bool any) const {
    return {detail::checked_activations.data(), !any ? 0U : traits_.any_activation ? 3U : 1U};
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
  [[nodiscard]] static bool all_finite(const std::vector<Any>& from) {
    return std::all_of(from.begin(), from.end(), [](Any element) { return std::isfinite(static_cast<real>(element)); });
  }

  forward_result first_;
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
