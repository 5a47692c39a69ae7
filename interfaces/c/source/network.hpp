// SPDX-License-Identifier: BSL-1.0
//
// The networks behind the handles of the C interface, of float or double.
#pragma once

#include <algorithm>  // std::min
#include <atomic>     // std::atomic
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int64_t
#include <memory>     // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "arrays.hpp"
#include "calls.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus_c.h"

#if defined(GRADUS_C_ONNX)
#include "gradus/onnx/import.hpp"
#endif

namespace gradus_c {

namespace nn = gradus::nn;

#if defined(GRADUS_C_NO_DOUBLE)
inline constexpr bool built_with_double = false;
#else
inline constexpr bool built_with_double = true;
#endif

class device final : public object {
 public:
  explicit device(const gradus::cpu_options& options) : processors{options} {}

  gradus::cpu processors;
};

/// A network of one element type.
template <class Element>
struct network_of {
  using element = Element;
  /// The layout of all networks of the interface. Arrays of the caller have any order: they are copied into batches.
  using network_type = nn::network<Element, gradus::nhwc>;

  network_of(gradus::cpu& on, const nn::value_shape& input) : net{on, input} {}

  network_type net;
  /// Room for the images of one forward pass of predict. Without elements before compile.
  std::unique_ptr<gradus::tensor<Element, 1>> images;
};

class network final : public object {
 public:
  network(std::shared_ptr<device> on, int element) : on_{std::move(on)}, element_{element} {}

  [[nodiscard]] int element() const noexcept { return element_; }

  /// Calls body(network_of&).
  /// @throws failure before the network has an input
  template <class Body>
  decltype(auto) with(const Body& body) {
    if constexpr (built_with_double) {
      if (double_ != nullptr) {
        return body(*double_);
      }
    }
    if (float_ == nullptr) {
      throw failure{GRADUS_CONFIGURATION_ERROR, "a network with an input", "one without",
                    "call gradus_network_input or gradus_network_read_onnx first"};
    }
    return body(*float_);
  }

  void make_input(std::string name, const nn::value_shape& shape) {
    if (float_ != nullptr || double_ != nullptr) {
      throw failure{GRADUS_CONFIGURATION_ERROR,
                    {"one input of a network; it has '", input_, "'"},
                    {"'", name, "'"},
                    "this version has networks of one input: put the arrays into its channels"};
    }
    if constexpr (built_with_double) {
      if (element_ == GRADUS_DOUBLE) {
        double_ = std::make_unique<network_of<double>>(on_->processors, shape);
      }
    }
    if (element_ == GRADUS_FLOAT) {
      float_ = std::make_unique<network_of<float>>(on_->processors, shape);
    }
    input_ = std::move(name);
  }

  void name_output(std::string name, nn::value value) {
    if (!output_.empty()) {
      throw failure{GRADUS_CONFIGURATION_ERROR,
                    {"one output of a network; it has '", output_, "'"},
                    {"'", name, "'"},
                    "this version has networks of one output: concatenate the values into its channels"};
    }
    output_ = std::move(name);
    output_value_ = value;
  }

  /// @throws failure if the network has no input of this name
  void require_input(const char* name) const { require_name("the input", input_, name); }
  /// @throws failure if the network has no output of this name
  void require_output(const char* name) const { require_name("the output", output_, name); }
  [[nodiscard]] const std::string& input_name() const noexcept { return input_; }
  [[nodiscard]] const std::string& output_name() const noexcept { return output_; }
  [[nodiscard]] nn::value output() const noexcept { return output_value_; }

  /// The name of a layer: the caller's, or the kind and a number.
  [[nodiscard]] std::string name_of_layer(const char* given, const char* kind) {
    if (given != nullptr) {
      return given;
    }
    return with([&](auto& of) {
      for (int number = 1;; ++number) {
        std::string name = gradus::join({kind, number});
        bool used = false;
        for (const auto& node : of.net.structure().nodes()) {
          used = used || node.name == name;
        }
        if (!used) {
          return name;
        }
      }
    });
  }

  /// A value that the interface has given out. @throws failure
  [[nodiscard]] nn::value value_of(gradus_value value) {
    return with([&](auto& of) -> nn::value {
      const auto& graph = of.net.structure();
      if (value < 0 || value > static_cast<gradus_value>(graph.nodes().size())) {
        refuse({"a value of this network, from 0 to ", graph.nodes().size()}, {value},
               "use what the functions that add layers have returned for this network");
      }
      return {static_cast<std::size_t>(value), graph.identity()};
    });
  }

  /// Adds a layer of several inputs.
  template <class Description>
  void add(const char* name, const char* kind, const Description& description, const std::vector<gradus_value>& inputs,
           gradus_value* output) {
    require_pointer("output", output);
    std::vector<nn::value> values;
    for (const gradus_value each : inputs) {
      values.push_back(value_of(each));
    }
    const std::string layer = name_of_layer(name, kind);
    *output = static_cast<gradus_value>(
        with([&](auto& of) { return of.net.add(layer, description, nn::input_list{values}); }).index);
  }

  /// @throws failure unless the network is compiled
  void require_compiled() {
    with([&](auto& of) {
      if (!of.net.compiled()) {
        throw failure{GRADUS_CONFIGURATION_ERROR, "a compiled network", "one that is still being built",
                      "call gradus_network_compile first"};
      }
    });
  }

  void compile(const gradus_compile_options& options) {
    if (trainers.load() > 0) {
      throw failure{GRADUS_CONFIGURATION_ERROR, "a network without a trainer", "one that a trainer works on",
                    "call gradus_trainer_free first, or make another network"};
    }
    with([&](auto& of) {
      const std::size_t layers = of.net.structure().nodes().size();
      if (output_.empty()) {
        throw failure{GRADUS_CONFIGURATION_ERROR, "a network with an output", "one without",
                      "call gradus_network_output with the value of the last layer"};
      }
      if (output_value_.index != layers) {
        throw failure{GRADUS_CONFIGURATION_ERROR,
                      {"an output that is the last layer, value ", layers},
                      {"value ", output_value_.index},
                      "add no layers behind the output"};
      }
      if (options.inference != 0) {
        of.net.compile_for_inference({.max_batch_size = options.max_batch_size, .seed = options.seed});
      } else {
        nn::compile_options compiling{.max_batch_size = options.max_batch_size, .seed = options.seed};
        if (options.micro_batch_size != 0) {
          compiling.micro_batch_size = options.micro_batch_size;
        }
        if (options.recompute != 0) {
          compiling.recompute = true;
        }
        of.net.compile(compiling);
      }
#if defined(GRADUS_C_ONNX)
      if (model != nullptr) {
        model->assign_weights(of.net);
        model.reset();
      }
#endif
      using element = typename std::remove_reference_t<decltype(of)>::element;
      const index_t elements = of.net.structure().examples_at_once() * of.net.shape(of.net.input()).size();
      of.images = std::make_unique<gradus::tensor<element, 1>>(on_->processors, gradus::extents<1>{elements});
    });
  }

  /// Computes the output of all examples, a part at a time. Allocates nothing.
  void predict(const examples& from, const examples& to) {
    with([&](auto& of) {
      using view = typename std::remove_reference_t<decltype(of.net)>::const_view;
      const nn::value_shape& shape = from.shape;
      const index_t most = of.net.structure().examples_at_once();
      for (index_t first = 0; first < from.count; first += most) {
        const index_t count = std::min(most, from.count - first);
        for (index_t i = 0; i < count; ++i) {
          read_example(from, first + i, of.images->data() + i * shape.size());
        }
        const auto scores = of.net.forward(view{on_->processors, of.images->data(), shape.batch(count)});
        for (index_t i = 0; i < count; ++i) {
          write_example(to, first + i, scores.data() + i * to.shape.size());
        }
      }
    });
  }

  std::atomic<int> trainers{0};  ///< that refer to the memory of the compiled network

#if defined(GRADUS_C_ONNX)
  std::unique_ptr<gradus::io::onnx_model> model;  // until its weights have been assigned
#endif

 private:
  static void require_name(const char* what, const std::string& own, const char* name) {
    require_pointer(what, name);
    if (own != name) {
      refuse({what, " '", own, "' of the network"}, {"'", name, "'"});
    }
  }

  std::shared_ptr<device> on_;
  int element_;
  std::string input_;
  std::string output_;
  nn::value output_value_;
  std::unique_ptr<network_of<float>> float_;
  std::unique_ptr<network_of<double>> double_;
};

/// Padding by the constants of the interface.
[[nodiscard]] inline nn::padding padding_of(std::int32_t rule, const std::int64_t (&pad)[4]) {
  switch (rule) {
    case GRADUS_PAD_VALID:
      return nn::padding::valid();
    case GRADUS_PAD_SAME:
      return nn::padding::same();
    case GRADUS_PAD_EXPLICIT:
      return nn::padding::explicit_padding(pad[0], pad[1], pad[2], pad[3]);
    default:
      refuse_constant("padding", rule, "GRADUS_PAD_VALID, GRADUS_PAD_SAME or GRADUS_PAD_EXPLICIT");
  }
}

/// Two extents of options: a 0 is the default, as the second the first.
[[nodiscard]] inline nn::size2d size_of(const std::int64_t (&pair)[2], nn::size2d missing) noexcept {
  if (pair[0] == 0 && pair[1] == 0) {
    return missing;
  }
  return {pair[0], pair[1] == 0 ? pair[0] : pair[1]};
}

}  // namespace gradus_c
