// SPDX-License-Identifier: BSL-1.0
//
// The graph of a step from the layers of a network, the measured times of its layers, and the orders that TIC and TAC
// give the networks of the studies.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/transfer_orders.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/parallel/transfer_order/bucket_order.hpp"
#include "gradus/parallel/transfer_order/order.hpp"
#include "gradus/parallel/transfer_order/simulated_step.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace nn = gradus::nn;
namespace parallel = gradus::parallel;
using gradus::nn::phase;
using parallel::step_graph;

/// The layers of a network without its memory: what the functions of models/ build on.
class network_outline {
 public:
  explicit network_outline(const nn::value_shape& input) : graph_{input} {}

  [[nodiscard]] nn::value input() const { return {0, graph_.identity()}; }

  template <class Description>
  nn::value add(std::string_view name, const Description& description, const nn::input_list& inputs) {
    using layer = typename Description::template layer<float, gradus::nhwc, gradus::cpu>;
    return graph_.append(name, std::make_unique<layer>(description), inputs.values(), std::source_location::current());
  }

  template <class Description>
  void loss(const Description& /*description*/, nn::value scores) {
    graph_.end(scores);
  }

  [[nodiscard]] const nn::value_shape& shape(nn::value v) const { return graph_.shape(v.index); }
  [[nodiscard]] nn::graph& graph() { return graph_; }

 private:
  nn::graph graph_;
};

/// conv1 -> relu1, whose output goes to "left" and past it; both meet in "sum".
template <class Network>
void build(Network& net) {
  nn::value x = net.add("conv1", nn::conv2d{.out_channels = 2, .kernel = {3, 3}}, net.input());
  x = net.add("relu1", nn::relu{}, x);
  const nn::value left = net.add("left", nn::conv2d{.out_channels = 2, .kernel = {1, 1}}, x);
  x = net.add("sum", nn::add{}, nn::input_list{left, x});
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
}

nn::graph& resnet(network_outline& outline, int depth) {
  gradus::models::resnet(outline, depth, {});
  return outline.graph();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(networks)

BOOST_AUTO_TEST_CASE(forward_graph_of_a_network_with_a_branch) {
  network_outline outline{{1, 6, 5}};
  build(outline);
  parallel::step_profile profile;
  profile.layers = {{1, 9}, {2, 9}, {3, 9}, {4, 9}, {5, 9}};
  profile.link = {.latency = 0.5, .bytes_per_second = 8};
  const step_graph graph = parallel::forward_graph(outline.graph(), profile);
  const std::vector<std::string> names{"conv1.weight",  "conv1.bias",  "conv1", "relu1",
                                       "left.weight",   "left.bias",   "left",  "sum",
                                       "scores.weight", "scores.bias", "scores"};
  const std::vector<numbers> inputs{{}, {}, {0, 1}, {2}, {}, {}, {4, 5, 3}, {6, 3}, {}, {}, {8, 9, 7}};
  // weight of conv1: 2 * 1 * 3 * 3 elements of 4 bytes at 8 bytes a second, after half a second
  const std::vector<double> seconds{9.5, 1.5, 1, 2, 2.5, 1.5, 3, 4, 36.5, 2, 5};
  BOOST_TEST_REQUIRE(graph.operations().size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const step_graph::operation& each = graph.operations()[i];
    BOOST_TEST(each.name == names[i]);
    BOOST_TEST(each.seconds == seconds[i], names[i] << " takes " << each.seconds);
    BOOST_CHECK_EQUAL_COLLECTIONS(each.inputs.begin(), each.inputs.end(), inputs[i].begin(), inputs[i].end());
  }
  BOOST_TEST_REQUIRE(graph.transfers() == 6U);
  BOOST_TEST(graph.transfer(3).name == "left.bias");
  BOOST_TEST(graph.operations()[5].transfer == 3U);
  BOOST_TEST(graph.operations()[6].transfer == step_graph::none);
}

BOOST_AUTO_TEST_CASE(parameters_are_those_of_the_compiled_network) {
  network_outline outline{{1, 6, 5}};
  build(outline);
  const numbers parameters = parallel::parameters_of_transfers(outline.graph());
  parallel::step_profile profile;
  profile.layers.resize(5);
  profile.transfers = {10, 11, 12, 13, 14, 15};  // in the order of parameters()
  const step_graph graph = parallel::forward_graph(outline.graph(), profile);
  outline.graph().compile({.max_batch_size = 1, .seed = 1}, sizeof(float));
  BOOST_TEST_REQUIRE(parameters.size() == outline.graph().parameters().size());
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    BOOST_TEST(graph.transfer(k).name == outline.graph().parameters()[parameters[k]]->name);
    BOOST_TEST(graph.transfer(k).seconds == profile.transfers[parameters[k]]);
  }
  BOOST_TEST(graph.transfer(0).seconds == 14.0);
}

BOOST_AUTO_TEST_CASE(a_part_with_a_deferred_update_overtakes_nothing) {
  network_outline outline{{1, 6, 5}};
  build(outline);
  outline.graph().compile({.max_batch_size = 1, .seed = 1}, sizeof(float));
  const parallel::transfer_priorities conv1_first{5, 5, 1, 1, 0, 0};  // of scores, left and conv1
  const auto order = [&](double backward_of_conv1) {
    parallel::step_profile profile;
    profile.layers = {{1, backward_of_conv1}, {1, 0}, {1, 1}, {1, 0}, {1, 1}};
    profile.link = {.latency = 0, .bytes_per_second = 32};  // scores.weight travels for 10 s, from 1 s on
    return parallel::bucket_order({.bucket_bytes = 1, .first_bucket_bytes = 1, .credit_bytes = 1}, outline.graph(),
                                  profile, conv1_first, 2);
  };
  const numbers overtaking{0, 4, 5, 2, 3, 1};
  const numbers waiting{0, 2, 4, 5, 3, 1};  // for one part
  const numbers in_time = order(2);         // conv1 is complete after 4 s
  const numbers scarcely = order(8.9);      // after 10.9 s, if transfers cost backward nothing
  BOOST_CHECK_EQUAL_COLLECTIONS(in_time.begin(), in_time.end(), overtaking.begin(), overtaking.end());
  BOOST_CHECK_EQUAL_COLLECTIONS(scarcely.begin(), scarcely.end(), waiting.begin(), waiting.end());
}

BOOST_AUTO_TEST_CASE(profiles_of_another_network_are_refused) {
  network_outline outline{{1, 6, 5}};
  build(outline);
  parallel::step_profile profile;
  profile.layers.resize(4);
  BOOST_CHECK_THROW(parallel::forward_graph(outline.graph(), profile), gradus::configuration_error);
  profile.layers.resize(5);
  profile.transfers.resize(5);
  BOOST_CHECK_THROW(parallel::forward_graph(outline.graph(), profile), gradus::configuration_error);
  BOOST_CHECK_THROW(parallel::estimated_profile(outline.graph(), 1, 0), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(estimates_follow_multiply_adds) {
  network_outline outline{{1, 6, 5}};
  build(outline);
  const parallel::step_profile profile = parallel::estimated_profile(outline.graph(), 10, 1000);
  BOOST_TEST_REQUIRE(profile.layers.size() == 5U);
  BOOST_TEST(profile.layers[0].forward == 2 * 9 * 4 * 3 * 10 / 1000.0);
  BOOST_TEST(profile.layers[0].backward == 2 * profile.layers[0].forward);
  BOOST_TEST(profile.layers[1].forward == 0.0);
}

BOOST_AUTO_TEST_CASE(the_recorder_keeps_the_shortest) {
  parallel::profile_recorder recorder{2};
  BOOST_TEST(recorder.profile().layers[1].forward == 0.0);
  recorder.add(1, phase::forward, 3);
  recorder.add(1, phase::forward, 2);
  recorder.add(1, phase::forward, 4);
  recorder.add(1, phase::backward, 7);
  recorder.add(2, phase::forward, 1);
  recorder.add(0, phase::backward, 0);
  const parallel::step_profile profile = recorder.profile();
  BOOST_TEST_REQUIRE(profile.layers.size() == 2U);
  BOOST_TEST(profile.layers[1].forward == 2.0);
  BOOST_TEST(profile.layers[1].backward == 7.0);
  BOOST_TEST(profile.layers[0].forward == 0.0);
  BOOST_TEST(profile.transfers.empty());
}

BOOST_AUTO_TEST_CASE(the_recorder_hears_a_network) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {1, 6, 5}};
  build(net);
  net.compile({.max_batch_size = 2, .seed = 1});
  const gradus::image_tensor<float, gradus::nhwc> images{device, {2, 1, 6, 5}};
  const std::vector<std::int32_t> labels{0, 2};
  parallel::profile_recorder recorder{net.layers()};
  const auto begin = std::chrono::steady_clock::now();
  net.train_step(images, labels, {}, &recorder);
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double sum = 0;
  const parallel::step_profile profile = recorder.profile();
  for (const std::size_t layer : {0U, 2U, 4U}) {
    BOOST_TEST(profile.layers[layer].forward > 0.0);
    BOOST_TEST(profile.layers[layer].backward > 0.0);
  }
  for (const parallel::step_profile::layer& each : profile.layers) {
    sum += each.forward + each.backward;
  }
  BOOST_TEST(sum <= all);
}

BOOST_AUTO_TEST_CASE(resnet_50_goes_from_front_to_back) {
  network_outline outline{{3, 224, 224}};
  const nn::graph& network = resnet(outline, 50);
  const step_graph graph = parallel::forward_graph(network, parallel::estimated_profile(network, 32, 1e11));
  BOOST_TEST_REQUIRE(graph.transfers() == 161U);
  BOOST_TEST(graph.transfer(0).name == network.nodes()[0].parameters[0].name);
  for (const numbers& priorities : {parallel::tic(graph, {.break_ties = true}), parallel::tac(graph)}) {
    const numbers order = sequence(priorities);
    BOOST_TEST(order.front() == 0U);
    // The scores come last: weight and bias, in any order.
    BOOST_TEST(order[159] + order[160] == 159U + 160U);
    // Front to back up to the two branches of a block: nothing moves by more than a block's parameters.
    for (std::size_t k = 0; k < order.size(); ++k) {
      BOOST_TEST((order[k] < k + 13 && k < order[k] + 13), "transfer " << order[k] << " goes as number " << k);
    }
  }
  // What network.parameters() has last goes first.
  const numbers gradients = parallel::priorities_of_parameters(network, parallel::tac(graph));
  numbers of_layer;
  for (std::size_t k = 0; k < network.nodes()[0].parameters.size(); ++k) {
    of_layer.push_back(gradients[161 - network.nodes()[0].parameters.size() + k]);
  }
  BOOST_TEST(of_layer.front() == 0U);
  BOOST_CHECK_THROW(parallel::priorities_of_parameters(network, {0, 1}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(inception_3_orders_are_better_than_chance) {
  network_outline outline{{3, 299, 299}};
  gradus::models::inception3(outline);
  const nn::graph& network = outline.graph();
  parallel::step_profile profile = parallel::estimated_profile(network, 32, 1e11);
  profile.link.bytes_per_second = 1e8;
  const step_graph graph = parallel::forward_graph(network, profile);
  const parallel::step_bounds limits = parallel::bounds(graph);
  const auto efficiency = [&](const numbers& priorities) {
    return parallel::overlap_efficiency(limits, parallel::simulate(graph, priorities).makespan);
  };
  const numbers by_time = parallel::tac(graph);
  BOOST_TEST(sequence(by_time).front() < network.nodes()[0].parameters.size() + 2);
  double best_of_chance = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    best_of_chance = std::max(best_of_chance, efficiency(parallel::random_order(graph.transfers(), seed)));
  }
  BOOST_TEST(efficiency(by_time) > 0.9);
  BOOST_TEST(efficiency(parallel::tic(graph)) > 0.9);
  BOOST_TEST(best_of_chance < 0.5);
}

BOOST_AUTO_TEST_CASE(the_work_grows_with_layers_that_have_parameters) {
  network_outline outline{{3, 224, 224}};
  const nn::graph& network = resnet(outline, 152);
  const step_graph graph = parallel::forward_graph(network, parallel::estimated_profile(network, 32, 1e11));
  BOOST_TEST(graph.transfers() == 467U);
  std::size_t with_parameters = 0;
  for (const nn::graph::node& each : network.nodes()) {
    with_parameters += each.parameters.empty() ? 0 : 1;
  }
  // A set for each of them, and one for each block whose second branch has parameters.
  const parallel::detail::outstanding_transfers outstanding{graph, true};
  BOOST_TEST(outstanding.sets() <= with_parameters + 4);
  BOOST_TEST(sequence(parallel::tac(graph)).front() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
