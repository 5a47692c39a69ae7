// SPDX-License-Identifier: BSL-1.0
//
// A layer of squares, in the conformance suite. With an argument its gradient is half of what it should be.
#include <gradus/conformance/layer.hpp>
#include <span>
#include <string_view>

namespace {

namespace nn = gradus::nn;

bool defective = false;

/// y = x * x; dL/dx = 2 x dL/dy.
struct square {
  template <class Element, class Layout, class Device>
  class layer;
};

template <class Element, class Layout, class Device>
class square::layer final : public nn::layer<Element, Layout, Device> {
  using base = nn::layer<Element, Layout, Device>;

 public:
  explicit layer(const square& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "square"; }
  nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
  [[nodiscard]] nn::layer_traits traits() const noexcept override {
    return {.backward_reads_output = false, .recomputable = true};
  }

  void forward(const typename base::forward_call& call) override {
    const Element* const x = call.inputs[0].data();
    Element* const y = call.output.data();
    for (gradus::index_t i = 0; i < call.output.size(); ++i) {
      y[i] = x[i] * x[i];
    }
  }

  void backward(const typename base::backward_call& call) override {
    const auto& dx = call.input_gradients[0];
    if (!dx.needed()) {
      return;
    }
    const Element* const x = call.inputs[0].data();
    const Element* const dy = call.output_gradient.data();
    const Element factor = defective ? 1 : 2;
    for (gradus::index_t i = 0; i < call.output.size(); ++i) {
      Element& to = dx.images.data()[i];
      to = factor * x[i] * dy[i] + (dx.epilogue.accumulate ? to : Element{0});
    }
  }
};

}  // namespace

int main(int argc, char** /*argv*/) {
  defective = argc > 1;
  return gradus::conformance::report(gradus::conformance::check_layer("square", square{}, {{4, 5, 7}}));
}
