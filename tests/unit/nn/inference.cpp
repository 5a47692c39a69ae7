// SPDX-License-Identifier: BSL-1.0
//
// Networks that are compiled for inference: what is folded, weights before and after, memory of the caller, sessions on
// several threads, and what such a network refuses.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../../support/branching_networks.hpp"
#include "../../support/network_checks.hpp"
#include "gradus/nn/inference_session.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/simd/isa.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;
using gradus_test::random_batch;
using float_network = nn::network<float, gradus::nhwc>;

/// Numbers that are not those before training, for parameters of normalization, biases and statistics.
template <class Network>
void train_a_little(Network& net, const random_batch<float, typename Network::layout_type>& batch) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    (void)net.train_step(batch.images, batch.labels, {.step = step});
    for (std::size_t i = 0; i < net.trained_values().size(); ++i) {
      net.trained_values()[i] -= 0.05F * net.gradients()[i];
    }
  }
}

template <class View>
std::vector<float> copy_of(const View& view) {
  return {view.data(), view.data() + view.size()};
}

float farthest(const std::vector<float>& a, const std::vector<float>& b) {
  BOOST_REQUIRE(a.size() == b.size());
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float distance = std::abs(a[i] - b[i]);
    most = distance <= most ? most : distance;
  }
  return most;
}

/// Calls `fails`, and checks that its message has `text`.
template <class Error, class Call>
void expect_message(const Call& fails, const std::string& text) {
  BOOST_CHECK_EXCEPTION(fails(), Error, [&](const Error& error) {
    const bool found = std::string{error.what()}.find(text) != std::string::npos;
    BOOST_TEST(found, error.what());
    return found;
  });
}

/// A convolution, normalization and ReLU, and scores.
void build_normalized(float_network& net) {
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .bias = false}, net.input());
  x = net.add("norm", nn::batch_norm{}, x);
  x = net.add("relu", nn::relu{}, x);
  x = net.add("dropout", nn::dropout{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, x));
}

template <class Network>
const nn::execution_plan::node& planned(const Network& net, const std::string& layer) {
  for (std::size_t i = 0; i < net.layers(); ++i) {
    if (net.layer_name(i) == layer) {
      return net.plan().nodes[i];
    }
  }
  throw std::runtime_error{"no layer " + layer};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_inference)

BOOST_AUTO_TEST_CASE(every_linear_layer_folds_the_normalization_behind_it) {
  gradus::cpu device{{.intra_op_threads = 2}};
  float_network net{device, {4, 9, 8}};
  nn::value x = net.add("plain", nn::conv2d{.out_channels = 6, .kernel = {3, 3}}, net.input());
  x = net.add("norm1", nn::batch_norm{}, x);
  x = net.add("grouped", nn::conv2d{.out_channels = 6, .kernel = {1, 1}, .groups = 3, .bias = false}, x);
  x = net.add("norm2", nn::batch_norm{.scale = false}, x);
  x = net.add("dilated",
              nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same(), .dilation = {2, 2}}, x);
  x = net.add("norm3", nn::batch_norm{.shift = false}, x);
  x = net.add("padded",
              nn::conv2d{.out_channels = 6,
                         .kernel = {3, 3},
                         .padding = nn::padding::same(),
                         .padding_mode = nn::padding_mode::reflect},
              x);
  x = net.add("norm4", nn::batch_norm{}, x);
  x = net.add("transposed", nn::conv_transpose2d{.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}, .groups = 2},
              x);
  x = net.add("norm5", nn::batch_norm{}, x);
  x = net.add("features", nn::dense{.out_features = 7, .bias = false}, x);
  x = net.add("norm6", nn::batch_norm{}, x);
  x = net.add("relu", nn::relu{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, x));
  net.compile({.max_batch_size = 6, .seed = 3});
  const random_batch<float, gradus::nhwc> batch{device, {6, 4, 9, 8}, 5};
  train_a_little(net, batch);
  const std::vector<float> expected = copy_of(net.forward(batch.images));
  const auto sums = net.evaluate(batch.images, batch.labels);
  net.compile_for_inference({.max_batch_size = 6});
  for (const char* const name : {"norm1", "norm2", "norm3", "norm4", "norm5", "norm6", "relu"}) {
    BOOST_TEST(!planned(net, name).forward, name);
  }
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), expected) < 1e-4);
  BOOST_TEST(net.evaluate(batch.images, batch.labels).loss == sums.loss, boost::test_tools::tolerance(1e-4));
  BOOST_TEST(net.find_non_finite(batch.images, {}).where.empty());
  // Without the normalization the scores would be others.
  for (const auto& buffer : net.buffers()) {
    std::fill_n(buffer.elements.data(), buffer.elements.size(), 2.0F);
  }
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), expected) > 1e-2);
}

BOOST_AUTO_TEST_CASE(a_value_that_others_read_is_not_scaled) {
  gradus::cpu device{{.intra_op_threads = 1}};
  float_network net{device, {3, 6, 5}};
  const nn::value x =
      net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same()}, net.input());
  const nn::value y = net.add("norm", nn::batch_norm{}, x);
  nn::value z = net.add("sum", nn::add{}, {x, y});
  // An activation comes in between.
  z = net.add("conv2", nn::conv2d{.out_channels = 4}, z);
  z = net.add("relu2", nn::relu{}, z);
  z = net.add("norm2", nn::batch_norm{}, z);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, z));
  net.compile({.max_batch_size = 4, .seed = 3});
  const random_batch<float, gradus::nhwc> batch{device, {4, 3, 6, 5}, 5};
  train_a_little(net, batch);
  const std::vector<float> expected = copy_of(net.forward(batch.images));
  net.compile_for_inference({.max_batch_size = 4});
  BOOST_TEST(planned(net, "norm").forward);
  BOOST_TEST(planned(net, "norm2").forward);
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), expected) == 0);
}

BOOST_AUTO_TEST_CASE(new_weights_hold_in_the_next_call) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  float_network trained{device, {2, 6, 6}};
  build_normalized(trained);
  trained.compile({.max_batch_size = 3, .seed = 1});
  train_a_little(trained, batch);
  const std::vector<float> expected = copy_of(trained.forward(batch.images));

  float_network net{device, {2, 6, 6}};
  build_normalized(net);
  net.compile_for_inference({.max_batch_size = 3, .seed = 2});
  BOOST_TEST(net.inference());
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), expected) > 1e-2);
  for (std::size_t k = 0; k < net.parameters().size(); ++k) {
    net.find_parameter(net.parameters()[k].name()).assign_values(trained.parameters()[k].copy_values());
  }
  for (std::size_t k = 0; k < net.buffers().size(); ++k) {
    std::copy_n(trained.buffers()[k].elements.data(), net.buffers()[k].elements.size(),
                net.buffers()[k].elements.data());
  }
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), expected) < 1e-5);
  // Through a view from before the last call: the network cannot know.
  const auto weight = net.find_parameter("conv.weight").value();
  (void)net.forward(batch.images);
  for (index_t i = 0; i < weight.size(); ++i) {
    weight.data()[i] *= 1.5F;
  }
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), expected) < 1e-5);
  net.update_weights();
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), expected) > 1e-2);
}

BOOST_AUTO_TEST_CASE(a_network_may_be_compiled_for_inference_again) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {7, 2, 6, 6}, 5};
  float_network net{device, {2, 6, 6}};
  build_normalized(net);
  net.compile_for_inference({.max_batch_size = 2});
  const std::vector<float> two = copy_of(net.forward(batch.images.view().slice(0, 2)));
  net.compile_for_inference({.max_batch_size = 7, .prepare_weights = false});
  const std::vector<float> seven = copy_of(net.forward(batch.images));
  BOOST_TEST(farthest(two, {seven.begin(), seven.begin() + 10}) < 1e-6);
  BOOST_TEST(net.max_batch_size() == 7);
  BOOST_TEST(net.forward(batch.images.view().slice(0, 0)).size() == 0);
}

BOOST_AUTO_TEST_CASE(it_refuses_to_train) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  float_network net{device, {2, 6, 6}};
  build_normalized(net);
  expect_message<gradus::configuration_error>([&] { net.update_weights(); }, "compile");
  expect_message<gradus::configuration_error>([&] { nn::inference_session session{net}; }, "not compiled");
  net.compile_for_inference({.max_batch_size = 3});
  const char* const text = "compiled for inference";
  expect_message<gradus::configuration_error>([&] { (void)net.train_step(batch.images, batch.labels); }, text);
  expect_message<gradus::configuration_error>([&] { (void)net.gradients(); }, text);
  expect_message<gradus::configuration_error>([&] { (void)net.trained_values(); }, text);
  expect_message<gradus::configuration_error>([&] { net.compile({.max_batch_size = 3}); }, "not compiled");
  BOOST_TEST(!net.parameters()[0].trained());
  BOOST_TEST(net.summary().find("batches of 3") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(values_are_in_memory_of_the_caller) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  float_network net{device, {2, 6, 6}};
  build_normalized(net);
  const nn::memory_forecast forecast = net.forecast_for_inference({.max_batch_size = 3});
  BOOST_TEST(forecast.gradients == 0U);
  // Two values: after the ReLU (3 x 4 x 4 x 6), and the scores (3 x 5).
  BOOST_TEST(forecast.arena == 3U * 4 * 4 * 6 * 4 + 64);
  gradus::tensor<float, 1, gradus::row_major> memory{device, {static_cast<index_t>(forecast.arena / sizeof(float))}};
  const std::span<std::byte> bytes{reinterpret_cast<std::byte*>(memory.data()), forecast.arena};
  expect_message<gradus::configuration_error>(
      [&] { net.compile_for_inference({.max_batch_size = 3, .memory = bytes.first(forecast.arena - 64)}); },
      std::to_string(forecast.arena) + " bytes or more");
  expect_message<gradus::configuration_error>(
      [&] { net.compile_for_inference({.max_batch_size = 2, .memory = bytes.subspan(4)}); }, "4 bytes after");
  net.compile_for_inference({.max_batch_size = 3, .memory = bytes});
  const auto scores = net.forward(batch.images);
  const auto* const at = reinterpret_cast<const std::byte*>(scores.data());
  BOOST_TEST((at >= bytes.data() && at < bytes.data() + bytes.size()));
  BOOST_TEST(net.plan().arena_bytes == forecast.arena);
  BOOST_TEST(net.memory_bytes() == forecast.total() - forecast.arena - forecast.buffers);
}

BOOST_AUTO_TEST_CASE(a_failure_leaves_a_trained_network_as_it_was) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  float_network net{device, {2, 6, 6}};
  float_network same{device, {2, 6, 6}};
  std::vector<std::byte> few(64);
  for (float_network* const each : {&net, &same}) {
    build_normalized(*each);
    each->compile({.max_batch_size = 3, .seed = 4});
    train_a_little(*each, batch);
  }
  BOOST_CHECK_THROW(net.compile_for_inference({.max_batch_size = 2, .memory = few}), gradus::configuration_error);
  BOOST_CHECK_THROW(net.compile_for_inference({.max_batch_size = 0}), gradus::configuration_error);
  train_a_little(net, batch);
  train_a_little(same, batch);
  BOOST_TEST(farthest(copy_of(net.forward(batch.images)), copy_of(same.forward(batch.images))) == 0);
  BOOST_TEST(net.max_batch_size() == 3);
}

BOOST_AUTO_TEST_CASE(weights_that_are_prepared_for_other_instructions_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto before = gradus::kernels::current_instruction_set();
  if (before == gradus::kernels::instruction_set::portable) {
    return;
  }
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  float_network net{device, {2, 6, 6}};
  build_normalized(net);
  net.compile_for_inference({.max_batch_size = 3});
  const std::vector<float> expected = copy_of(net.forward(batch.images));
  gradus::kernels::set_instruction_set(gradus::kernels::instruction_set::portable);
  expect_message<gradus::configuration_error>([&] { (void)net.forward(batch.images); }, "update_weights");
  net.update_weights();
  const std::vector<float> portable = copy_of(net.forward(batch.images));
  gradus::kernels::set_instruction_set(before);
  BOOST_TEST(farthest(portable, expected) < 1e-5);
}

BOOST_AUTO_TEST_CASE(sessions_run_at_the_same_time) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<float, gradus::nchw> net{device, {3, 13, 11}};
  gradus_test::build_branching(net);
  net.compile({.max_batch_size = 4, .seed = 1});
  train_a_little(net, random_batch<float, gradus::nchw>{device, {4, 3, 13, 11}, 5});
  net.compile_for_inference({.max_batch_size = 4, .parallel_branches = true});
  constexpr int count = 4;
  std::vector<random_batch<float, gradus::nchw>> batches;
  std::vector<std::vector<float>> expected;
  for (int k = 0; k < count; ++k) {
    batches.emplace_back(device, gradus::image_extents{4 - k % 2, 3, 13, 11}, 5 + k);
    for (index_t i = 0; i < batches.back().images.size(); ++i) {
      batches.back().images.data()[i] *= static_cast<float>(k + 1);
    }
    expected.push_back(copy_of(net.forward(batches.back().images)));
  }
  std::vector<int> wrong(count);
  std::vector<std::size_t> bytes(count);
  {
    std::vector<std::thread> threads;
    for (int k = 0; k < count; ++k) {
      threads.emplace_back([&, k] {
        const auto at = static_cast<std::size_t>(k);
        // Two have a device of their own, one of them with streams; the others share that of the network.
        gradus::cpu own{{.intra_op_threads = 1, .inter_op_threads = k == 0 ? 2 : 1}};
        nn::inference_session session{net, k < 2 ? own : device};
        bytes[at] = session.memory_bytes();
        for (int pass = 0; pass < 20; ++pass) {
          wrong[at] += copy_of(session.forward(batches[at].images)) == expected[at] ? 0 : 1;
        }
        const auto all = nn::predict(session, batches[at].images);
        wrong[at] += copy_of(all) == expected[at] ? 0 : 1;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  for (const int failures : wrong) {
    BOOST_TEST(failures == 0);
  }
  BOOST_TEST(bytes[1] + net.values().size_bytes() < net.memory_bytes());  // without the weights
  nn::inference_session session{net};
  BOOST_TEST(session.max_batch_size() == 4);
  BOOST_TEST((session.output_shape() == net.output_shape()));
  expect_message<gradus::shape_error>(
      [&] {
        const gradus::tensor<float, 4, gradus::nchw> many{device, {5, 3, 13, 11}};
        (void)session.forward(many.view());
      },
      "at most 4");
}

namespace {

/// Waits in its forward pass until the test lets it go on.
struct slow_layer {
  std::atomic<int>* state;  // 1: the pass waits, 2: it may go on

  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const slow_layer& options) : state_{options.state} {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "slow"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void forward(const typename base::forward_call& call) override {
      int waits = 0;
      if (state_->compare_exchange_strong(waits, 1)) {
        state_->notify_all();
        state_->wait(1);
      }
      std::copy_n(call.inputs[0].data(), call.output.size(), call.output.data());
    }
    void backward(const typename base::backward_call& /*call*/) override {}

   private:
    std::atomic<int>* state_;
  };
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_network_or_session_that_is_in_use_refuses_another_thread) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {2, 2, 6, 6}, 2};
  std::atomic<int> state{2};
  float_network net{device, {2, 6, 6}};
  nn::value x = net.add("slow", slow_layer{&state}, net.input());
  x = net.add("scores", nn::dense{.out_features = 2}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile_for_inference({.max_batch_size = 2});
  const std::vector<float> expected = copy_of(net.forward(batch.images));
  gradus::cpu own{{.intra_op_threads = 1}};
  nn::inference_session session{net, own};

  /// Runs `first` on a thread, and the others while it waits.
  const auto during = [&](const auto& first, const auto& others) {
    state = 0;
    std::thread thread{first};
    state.wait(0);
    others();
    state = 2;
    state.notify_all();
    thread.join();
  };
  std::vector<float> scores;
  during([&] { scores = copy_of(net.forward(batch.images)); },
         [&] {
           expect_message<gradus::configuration_error>([&] { (void)net.forward(batch.images); },
                                                       "network.forward: expected one thread at a time");
           expect_message<gradus::configuration_error>([&] { (void)net.forward(batch.images); }, "inference_session");
           expect_message<gradus::configuration_error>([&] { (void)net.evaluate(batch.images, batch.labels); },
                                                       "network.evaluate: expected one thread");
           expect_message<gradus::configuration_error>([&] { (void)nn::predict(net, batch.images); },
                                                       "predict: expected one thread");
           expect_message<gradus::configuration_error>([&] { (void)net.find_non_finite(batch.images, {}); },
                                                       "network.find_non_finite: expected one thread");
           // A session runs meanwhile.
           BOOST_TEST(copy_of(session.forward(batch.images)) == expected, boost::test_tools::per_element());
         });
  BOOST_TEST(scores == expected, boost::test_tools::per_element());
  during([&] { scores = copy_of(session.forward(batch.images)); },
         [&] {
           expect_message<gradus::configuration_error>([&] { (void)session.forward(batch.images); },
                                                       "inference_session.forward: expected one thread at a time");
           BOOST_TEST(copy_of(net.forward(batch.images)) == expected, boost::test_tools::per_element());
         });
  BOOST_TEST(scores == expected, boost::test_tools::per_element());
  // Afterwards, and behind an error, they run again.
  BOOST_CHECK_THROW((void)net.forward(random_batch<float, gradus::nhwc>{device, {3, 2, 6, 6}, 2}.images),
                    gradus::shape_error);
  BOOST_TEST(copy_of(net.forward(batch.images)) == expected, boost::test_tools::per_element());
  BOOST_TEST(copy_of(session.forward(batch.images)) == expected, boost::test_tools::per_element());

  // A network that is trained.
  state = 2;
  float_network trained{device, {2, 6, 6}};
  trained.loss(nn::softmax_cross_entropy{}, trained.add("scores", nn::dense{.out_features = 2},
                                                        trained.add("slow", slow_layer{&state}, trained.input())));
  trained.compile({.max_batch_size = 2});
  during([&] { (void)trained.train_step(batch.images, batch.labels); },
         [&] {
           expect_message<gradus::configuration_error>([&] { (void)trained.train_step(batch.images, batch.labels); },
                                                       "network.train_step: expected one thread at a time");
         });
}

BOOST_AUTO_TEST_CASE(sessions_have_the_weights_that_were_loaded) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  float_network net{device, {2, 6, 6}};
  build_normalized(net);
  net.compile_for_inference({.max_batch_size = 3, .seed = 1});
  float_network other{device, {2, 6, 6}};
  build_normalized(other);
  other.compile_for_inference({.max_batch_size = 3, .seed = 2});
  const std::vector<float> expected = copy_of(other.forward(batch.images));
  constexpr int count = 3;
  std::vector<std::unique_ptr<gradus::cpu>> own;
  std::vector<std::unique_ptr<nn::inference_session<float, gradus::nhwc>>> sessions;
  for (int k = 0; k < count; ++k) {
    own.push_back(std::make_unique<gradus::cpu>(gradus::cpu_options{.intra_op_threads = 1}));
    sessions.push_back(std::make_unique<nn::inference_session<float, gradus::nhwc>>(net, *own.back()));
    BOOST_TEST(copy_of(sessions.back()->forward(batch.images)) != expected);
  }
  const std::span<const float> values = other.values();
  std::copy(values.begin(), values.end(), net.values().begin());
  // All of them at the same time, while another thread asks for parameters.
  std::vector<int> wrong(count);
  std::vector<std::thread> threads;
  for (int k = 0; k < count; ++k) {
    threads.emplace_back([&, k] {
      const auto at = static_cast<std::size_t>(k);
      for (int pass = 0; pass < 20; ++pass) {
        wrong[at] += copy_of(sessions[at]->forward(batch.images)) == expected ? 0 : 1;
      }
    });
  }
  for (int pass = 0; pass < 20; ++pass) {
    BOOST_TEST(net.parameters().size() > 0U);
    BOOST_TEST(copy_of(net.forward(batch.images)) == expected, boost::test_tools::per_element());
    net.update_weights();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const int failures : wrong) {
    BOOST_TEST(failures == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_network_with_sessions_keeps_what_they_read) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  auto net = std::make_unique<float_network>(device, nn::value_shape{2, 6, 6});
  build_normalized(*net);
  net->compile_for_inference({.max_batch_size = 3});
  {
    nn::inference_session session{*net};
    const std::vector<float> expected = copy_of(session.forward(batch.images));
    expect_message<gradus::configuration_error>([&] { net->compile_for_inference({.max_batch_size = 8}); },
                                                "expected a network without sessions, got 1 that would lose");
    BOOST_TEST(copy_of(session.forward(batch.images)) == expected, boost::test_tools::per_element());
    BOOST_TEST(copy_of(net->forward(batch.images)) == expected, boost::test_tools::per_element());
    const nn::inference_session moved{std::move(session)};
    BOOST_CHECK_THROW(net->compile_for_inference({.max_batch_size = 8}), gradus::configuration_error);
  }
  net->compile_for_inference({.max_batch_size = 8});
  nn::inference_session session{*net};
  float_network elsewhere{std::move(*net)};
  expect_message<gradus::configuration_error>([&] { (void)session.forward(batch.images); }, "moved or destroyed");
  elsewhere.compile_for_inference({.max_batch_size = 3});  // that session is not one of its own
  nn::inference_session another{elsewhere};
  (void)another.forward(batch.images);
}

BOOST_AUTO_TEST_CASE(a_session_has_its_values_in_memory_of_the_caller) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {3, 2, 6, 6}, 5};
  float_network net{device, {2, 6, 6}};
  build_normalized(net);
  net.compile_for_inference({.max_batch_size = 3});
  gradus::tensor<float, 1, gradus::row_major> memory{device, {static_cast<index_t>(net.plan().arena_bytes / 4)}};
  const std::span<std::byte> bytes{reinterpret_cast<std::byte*>(memory.data()), net.plan().arena_bytes};
  nn::inference_session session{net, {.memory = bytes}};
  BOOST_TEST(copy_of(session.forward(batch.images)) == copy_of(net.forward(batch.images)),
             boost::test_tools::per_element());
  BOOST_CHECK_THROW((nn::inference_session{net, device, {.memory = bytes.first(64)}}), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
