// SPDX-License-Identifier: BSL-1.0
//
// A state of a network whose arrays have the same names and shapes, and whose layers or loss compute something else.
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/conv2d.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/layers/dropout.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace nn = gradus::nn;
namespace train = gradus::train;

/// What differs between the networks, all of them with the same parameters.
struct layers_of_state {
  gradus::kernels::padding_mode padding = gradus::kernels::padding_mode::zeros;
  double slope = 0.1;
  bool tanh = false;  // in place of leaky_relu
  bool no_activation = false;
  double rate = 0.25;
  double smoothing = 0;
  bool frozen = false;
};

template <class Layout>
struct training_of_layers {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::image_dataset images =
      gradus::data::make_synthetic({.examples = 16, .height = 6, .width = 6, .classes = 3});
  gradus::data::loader<float, Layout> loader{device, images, {.global_batch_size = 8, .seed = 1}};
  nn::network<float, Layout> net{device, {1, 6, 6}};

  explicit training_of_layers(const layers_of_state& of = {}) {
    nn::value x = net.add(
        "conv",
        nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .padding = nn::padding::same(), .padding_mode = of.padding},
        net.input());
    if (of.tanh) {
      x = net.add("act", nn::tanh{}, x);
    } else if (!of.no_activation) {
      x = net.add("act", nn::leaky_relu{.negative_slope = of.slope}, x);
    }
    x = net.add("drop", nn::dropout{.rate = of.rate}, x);
    net.loss(nn::softmax_cross_entropy{.label_smoothing = of.smoothing},
             net.add("scores", nn::dense{.out_features = 3}, x));
    if (of.frozen) {
      net.freeze("conv");
    }
    net.compile({.max_batch_size = 8, .seed = 1});
  }
};

/// A state with another text.
class state_with_property final : public train::state_source {
 public:
  state_with_property(const train::state_source& from, std::string name, const std::string* text)
      : from_{&from}, name_{std::move(name)}, text_{text} {}

  [[nodiscard]] std::size_t entries() const noexcept override { return from_->entries(); }
  [[nodiscard]] const gradus::io::stored_array& entry(std::size_t i) const noexcept override { return from_->entry(i); }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    return name == name_ ? text_ : from_->property(name);
  }
  [[nodiscard]] gradus::dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    return from_->properties_with(prefix);
  }
  void read(std::size_t i, gradus::index_t first, std::span<std::byte> to) const override { from_->read(i, first, to); }

 private:
  const train::state_source* from_;
  std::string name_;
  const std::string* text_;
};

/// Takes the state after an epoch of the default layers.
void take_state(train::training_state& state) {
  training_of_layers<gradus::nhwc> with;
  train::trainer trainer{with.net, gradus::optim::sgd{}};
  trainer.fit(with.loader, {.epochs = 1, .learning_rate = 0.01});
  train::capture(trainer, state);
}

/// What restore says to other layers; empty if it takes the state.
template <class Layout = gradus::nhwc>
std::string refusal(const train::state_source& state, const layers_of_state& of,
                    const train::restore_options& options = {}) {
  training_of_layers<Layout> with{of};
  train::trainer trainer{with.net, gradus::optim::sgd{}};
  try {
    train::restore(trainer, state, options);
  } catch (const gradus::configuration_error& failure) {
    BOOST_TEST(trainer.steps() == 0U);
    return failure.what();
  }
  BOOST_TEST(trainer.steps() == 2U);
  return {};
}

bool says(const std::string& all, std::string_view text) {
  BOOST_TEST_INFO(all);
  return all.find(text) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layers_of_states)

BOOST_AUTO_TEST_CASE(the_first_layer_that_differs_is_named) {
  train::training_state state;
  take_state(state);
  const std::string circular = refusal(state, {.padding = gradus::kernels::padding_mode::circular});
  BOOST_TEST(says(circular, "expected the layers of the state: layer 'conv' (conv2d): padding_mode = zeros"));
  BOOST_TEST(says(circular, "got layer 'conv' (conv2d): padding_mode = circular"));
  BOOST_TEST(says(refusal(state, {.tanh = true}), "got 'act' is tanh of 'conv'"));
  BOOST_TEST(says(refusal(state, {.slope = 0.2}), "got layer 'act' (leaky_relu): negative_slope = 0.2"));
  BOOST_TEST(says(refusal(state, {.no_activation = true}), "got 'drop' is dropout of 'conv'"));
  BOOST_TEST(says(refusal(state, {.rate = 0.5}), "got layer 'drop' (dropout): rate = 0.5"));
  BOOST_TEST(says(refusal(state, {.smoothing = 0.1}), "got loss (softmax_cross_entropy): label_smoothing = 0.1"));
}

BOOST_AUTO_TEST_CASE(the_same_layers_go_on_in_another_layout_and_frozen) {
  train::training_state state;
  take_state(state);
  BOOST_TEST(refusal(state, {}) == "");
  BOOST_TEST(refusal<gradus::nchw>(state, {}) == "");
  BOOST_TEST(training_of_layers<gradus::nhwc>{{.frozen = true}}.net.describe_options() == *state.property("layers"));
}

BOOST_AUTO_TEST_CASE(other_layers_go_on_where_the_program_says_so) {
  train::training_state state;
  take_state(state);
  BOOST_TEST(refusal(state, {.tanh = true, .smoothing = 0.1}, {.same_layers = false}) == "");
}

BOOST_AUTO_TEST_CASE(states_of_earlier_versions_are_compared_by_what_they_have) {
  train::training_state state;
  take_state(state);
  BOOST_TEST(refusal(state_with_property{state, "layers", nullptr}, {.tanh = true}) == "");
  const std::string version = "0.0.1";
  const state_with_property earlier{state, "gradus version", &version};
  BOOST_TEST(refusal(earlier, {.slope = 0.2, .rate = 0.5}) == "");
  BOOST_TEST(says(refusal(earlier, {.tanh = true}), "got 'act' is tanh"));
}

BOOST_AUTO_TEST_SUITE_END()
