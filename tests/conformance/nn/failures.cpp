// SPDX-License-Identifier: BSL-1.0
//
// What the suite of layers says of a layer that is wrong.
#include <boost/test/unit_test.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/conformance/layer.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"

namespace {

namespace nn = gradus::nn;

enum class mistake { none, name, name_again, shape, gradient_left_out, gradient_that_depends };

/// y = x + shift + second of each image, with mistakes.
struct shifted {
  mistake which = mistake::none;

  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const shifted& options) : which_{options.which} {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "shifted"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    [[nodiscard]] nn::layer_traits traits() const noexcept override { return {.backward_reads_output = false}; }
    [[nodiscard]] std::vector<nn::parameter_description> parameters() const override {
      const gradus::image_extents shape{1, which_ == mistake::shape ? 2 : 1, 1, 1};
      return {{"shift", shape, 1, nn::zeros(), {}, false},
              {which_ == mistake::name         ? ""
               : which_ == mistake::name_again ? "shift"
                                               : "second",
               {1, 1, 1, 1},
               1,
               nn::zeros(),
               {},
               false}};
    }
    void forward(const typename base::forward_call& call) override {
      for (gradus::index_t i = 0; i < call.output.size(); ++i) {
        call.output.data()[i] = call.inputs[0].data()[i] + call.parameters[0].value[0] + call.parameters[1].value[0];
      }
    }
    void backward(const typename base::backward_call& call) override {
      const auto& to = call.input_gradients[0];
      Element sum = 0;
      for (gradus::index_t i = 0; i < call.output_gradient.size(); ++i) {
        const Element dy = call.output_gradient.data()[i];
        sum += dy;
        if (to.needed()) {
          to.images.data()[i] = to.epilogue.accumulate ? to.images.data()[i] + dy : dy;
        }
      }
      call.parameters[0].gradient[0] = sum;
      if (which_ != mistake::gradient_left_out) {
        const bool other = which_ == mistake::gradient_that_depends && !to.needed();
        call.parameters[1].gradient[0] = other ? sum + 1 : sum;
      }
    }

   private:
    mistake which_;
  };
};

[[nodiscard]] std::string failure_of(mistake which) {
  gradus::cpu device{{.intra_op_threads = 1}};
  return gradus::conformance::failure_of([&] {
    gradus::conformance::require_layer_contract<double, gradus::nchw>(device, shifted{which}, {{2, 3, 3}});
  });
}

void require_message(mistake which, std::string_view expected) {
  const std::string message = failure_of(which);
  BOOST_TEST(message.find(expected) != std::string::npos, message);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_failures)

BOOST_AUTO_TEST_CASE(a_layer_that_is_right_passes) {
  BOOST_TEST(failure_of(mistake::none) == "");
}

BOOST_AUTO_TEST_CASE(parameters_that_a_network_refuses_fail) {
  require_message(mistake::name, "shifted: expected parameters and buffers with names, got parameter 1 without one");
  require_message(mistake::name_again, "got a parameter 'shift' again");
  require_message(mistake::shape,
                  "expected the shape (o, 1, 1, 1) of the parameter 'shift' of rank 1, got (1, 2, 1, 1)");
}

BOOST_AUTO_TEST_CASE(the_parameter_of_a_wrong_gradient_is_named) {
  require_message(mistake::gradient_left_out, "backward writes all of the gradient of 'second'");
  require_message(mistake::gradient_that_depends, "the gradient of 'second' does not depend on which other gradients");
}

BOOST_AUTO_TEST_SUITE_END()
