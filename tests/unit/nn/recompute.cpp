// SPDX-License-Identifier: BSL-1.0
//
// Values that are computed again in the backward pass: the same bits in less memory.
#include <boost/test/unit_test.hpp>

#include <string_view>
#include <tuple>
#include <vector>

#include "../../support/branching_networks.hpp"

namespace models = gradus::models;
using gradus_test::build_branching;
using gradus_test::results_of_steps;
using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

namespace {

namespace nn = gradus::nn;

/// Twice its input; records how it was called.
struct spying {
  std::vector<nn::step_context>* calls = nullptr;
  bool recomputable = true;

  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const spying& options) : calls_{options.calls}, recomputable_{options.recomputable} {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "spying"; }
    [[nodiscard]] nn::layer_traits traits() const noexcept override {
      return {.backward_reads_inputs = false, .backward_reads_output = false, .recomputable = recomputable_};
    }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void forward(const typename base::forward_call& call) override {
      calls_->push_back(call.context);
      for (gradus::index_t i = 0; i < call.output.size(); ++i) {
        call.output.data()[i] = 2 * call.inputs[0].data()[i];
      }
    }
    void backward(const typename base::backward_call& call) override {
      for (gradus::index_t i = 0; i < call.output_gradient.size(); ++i) {
        call.input_gradients[0].images.data()[i] = 2 * call.output_gradient.data()[i];
      }
    }

   private:
    std::vector<nn::step_context>* calls_;
    bool recomputable_;
  };
};

template <class Build>
nn::execution_plan plan_of(const nn::value_shape& input, const Build& build, bool recompute) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, input};
  build(net);
  net.compile({.max_batch_size = 6, .seed = 1, .recompute = recompute});
  return net.plan();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_recompute)

BOOST_AUTO_TEST_CASE_TEMPLATE(recomputation_does_not_change_a_bit, Layout, layouts) {
  const auto compare = [](const nn::value_shape& input, const auto& build) {
    const auto kept = results_of_steps<Layout>({.intra_op_threads = 1}, input, build);
    for (const int threads : {1, 2}) {
      BOOST_TEST((results_of_steps<Layout>({.intra_op_threads = threads}, input, build, true) == kept));
    }
  };
  compare({3, 13, 11}, [](auto& net) { build_branching(net); });
  compare({3, 16, 16}, [](auto& net) { models::cifar_resnet(net, 20, {.classes = 5}); });
  compare({3, 16, 16},
          [](auto& net) { models::cifar_resnet(net, 29, {.classes = 5, .version = models::resnet_version::v2}); });
}

BOOST_AUTO_TEST_CASE(the_arena_shrinks) {
  const auto ratio = [](const nn::value_shape& input, const auto& build) {
    const nn::execution_plan kept = plan_of(input, build, false);
    const nn::execution_plan again = plan_of(input, build, true);
    BOOST_TEST(kept.recomputed.size() == 0U);
    BOOST_TEST(again.recomputed.size() > 0U);
    return static_cast<double>(again.arena_bytes) / static_cast<double>(kept.arena_bytes);
  };
  // Half of the values are inputs of normalizations, which stay; the other half goes, but for one in a few shortcuts.
  BOOST_TEST(ratio({3, 32, 32}, [](auto& net) { models::cifar_resnet(net, 20, {.classes = 10}); }) < 0.75);
  BOOST_TEST(ratio({3, 32, 32}, [](auto& net) {
               models::cifar_resnet(net, 29, {.classes = 10, .version = models::resnet_version::v2});
             }) < 0.75);
  BOOST_TEST(ratio({3, 32, 32}, [](auto& net) { build_branching(net); }) < 0.8);
}

BOOST_AUTO_TEST_CASE(layers_run_again_once_and_know_it) {
  for (const bool recomputable : {true, false}) {
    std::vector<nn::step_context> calls;
    gradus::cpu device{{.intra_op_threads = 1}};
    nn::network<float, gradus::nhwc> net{device, {2, 8, 8}};
    const auto convolve = [&](const char* name, nn::value x) {
      return net.add(name, nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
    };
    nn::value x = net.add("a", nn::batch_norm{}, convolve("conv1", net.input()));
    x = net.add("spy", spying{&calls, recomputable}, x);
    x = net.add("b", nn::batch_norm{}, convolve("conv2", x));
    x = net.add("c", nn::batch_norm{}, convolve("conv3", x));
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
    net.compile({.max_batch_size = 3, .seed = 1, .recompute = true});
    const gradus_test::random_batch<float, gradus::nhwc> batch{device, {3, 2, 8, 8}, 3};
    (void)net.train_step(batch.images, batch.labels, {.step = 4, .first_example = 9});
    BOOST_TEST_REQUIRE(calls.size() == (recomputable ? 2U : 1U));
    BOOST_TEST(!calls.front().again);
    BOOST_TEST(calls.back().again == recomputable);
    BOOST_TEST(calls.back().training);
    BOOST_TEST(calls.back().step == 4U);
    BOOST_TEST(calls.back().first_example == 9U);
    calls.clear();
    (void)net.evaluate(batch.images, batch.labels);
    BOOST_TEST(calls.size() == 1U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
