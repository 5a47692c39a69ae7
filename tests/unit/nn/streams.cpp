// SPDX-License-Identifier: BSL-1.0
//
// Layers that run side by side: the same bits, whatever the number of streams and threads.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "../../support/branching_networks.hpp"

namespace models = gradus::models;
using gradus_test::build_branching;
using gradus_test::results_of_steps;
using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

namespace {

namespace nn = gradus::nn;

/// Passes its input on; waits until `together` of its kind run at the same time, or for a second; may throw.
struct meeting {
  std::atomic<int>* running = nullptr;
  std::atomic<int>* most = nullptr;
  int together = 1;
  std::atomic<bool>* fails = nullptr;

  template <class Element, class Layout, class Device>
  class layer;
};

template <class Element, class Layout, class Device>
class meeting::layer final : public nn::layer<Element, Layout, Device> {
  using base = nn::layer<Element, Layout, Device>;

 public:
  explicit layer(const meeting& options)
      : running_{options.running}, most_{options.most}, together_{options.together}, fails_{options.fails} {}
  [[nodiscard]] std::string_view kind() const noexcept override { return "meeting"; }
  [[nodiscard]] gradus::index_t multiply_adds() const noexcept override { return 1000; }
  nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
  void forward(const typename base::forward_call& call) override {
    meet();
    if (fails_ != nullptr && *fails_) {
      throw std::runtime_error{"a layer that fails"};
    }
    std::copy_n(call.inputs[0].data(), call.output.size(), call.output.data());
  }
  void backward(const typename base::backward_call& call) override {
    meet();
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      for (gradus::index_t i = 0; i < call.output_gradient.size(); ++i) {
        dx.images.data()[i] =
            call.output_gradient.data()[i] + (dx.epilogue.accumulate ? dx.images.data()[i] : Element{0});
      }
    }
  }

 private:
  void meet() {
    const int now = ++*running_;
    for (int seen = *most_; seen < now && !most_->compare_exchange_weak(seen, now);) {
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{1};
    while (*most_ < together_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    --*running_;
  }

  std::atomic<int>* running_;
  std::atomic<int>* most_;
  int together_;
  std::atomic<bool>* fails_;
};

/// Three branches of a meeting each, after a convolution.
template <class Network>
void build_meetings(Network& net, const std::vector<meeting>& branches) {
  nn::value x =
      net.add("stem", nn::conv2d{.out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same()}, net.input());
  std::vector<nn::value> ends;
  for (const meeting& each : branches) {
    ends.push_back(net.add("meeting" + std::to_string(ends.size()), each, x));
  }
  x = net.add("joined", nn::concat{}, ends);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
  net.compile({.max_batch_size = 3, .seed = 1, .parallel_branches = true});
}

struct recorder final : nn::step_hooks {
  std::vector<std::string> before;
  std::vector<std::string> events;  // but for those before a layer

  void before_layer(std::size_t layer, gradus::nn::phase which) override {
    before.push_back(name("", layer, which));
    announced.insert(before.back());
  }
  void after_layer(std::size_t layer, gradus::nn::phase which) override {
    in_time = in_time && announced.erase(name("", layer, which)) == 1;
    events.push_back(name("after", layer, which));
  }
  void gradients_ready(std::size_t first, std::size_t count) override {
    events.push_back("ready " + std::to_string(first) + " " + std::to_string(count));
  }
  static std::string name(const char* what, std::size_t layer, gradus::nn::phase which) {
    return what + (" " + std::to_string(layer)) + (which == gradus::nn::phase::forward ? " f" : " b");
  }

  std::set<std::string> announced;
  bool in_time = true;  // every layer was announced before it ran
};

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_streams)

BOOST_AUTO_TEST_CASE_TEMPLATE(lanes_do_not_change_a_bit, Layout, layouts) {
  const auto build = [](auto& net) { build_branching(net); };
  const nn::value_shape input{3, 13, 11};
  const auto expected = results_of_steps<Layout>({.intra_op_threads = 1}, input, build);
  for (const int streams : {1, 2, 3}) {
    for (const int threads : {1, 2}) {
      for (const bool recompute : {false, true}) {
        const gradus::cpu_options options{.intra_op_threads = threads, .inter_op_threads = streams};
        for (int repeat = 0; repeat < (streams == 1 ? 1 : 2); ++repeat) {
          BOOST_TEST((results_of_steps<Layout>(options, input, build, recompute) == expected));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_plan_finds_the_branches) {
  const auto regions = [](int streams) {
    gradus::cpu device{{.intra_op_threads = 1, .inter_op_threads = streams}};
    nn::network<float, gradus::nhwc> net{device, {3, 13, 11}};
    build_branching(net);
    net.compile({.max_batch_size = 6, .seed = 1, .parallel_branches = true});
    std::vector<std::size_t> branches;
    for (const auto& region : net.plan().streams.regions) {
      branches.push_back(region.branches);
    }
    return branches;
  };
  BOOST_TEST(regions(1).empty());
  // Both modules and the projection, forward; and in the other order, backward.
  const std::vector<std::size_t> expected{4, 4, 2, 2, 4, 4};
  BOOST_TEST(regions(2) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(branches_do_not_share_memory) {
  // Two branches of three layers that keep nothing for backward, so that memory is free again after every layer.
  nn::graph_description graph;
  for (const std::vector<std::size_t>& inputs :
       std::vector<std::vector<std::size_t>>{{0}, {1}, {2}, {3}, {1}, {5}, {6}, {4, 7}, {8}}) {
    nn::graph_description::node node;
    for (const std::size_t value : inputs) {
      node.inputs.push_back(value);
    }
    node.traits = {.backward_reads_inputs = false, .backward_reads_output = false};
    node.trains = true;
    node.output_bytes = 1000;
    node.work = 1;
    graph.nodes.push_back(node);
  }
  graph.scores = 9;
  graph.has_loss = true;
  const nn::execution_plan alone = nn::plan_execution(graph);
  const nn::execution_plan plan = nn::plan_execution(graph, {.side_by_side = &nn::detail::plan_streams, .streams = 2});
  BOOST_TEST_REQUIRE(plan.streams.regions.size() == 2U);
  BOOST_TEST(plan.streams.regions[0].first_time == 1U);
  BOOST_TEST(plan.streams.regions[0].last_time == 6U);
  bool shared_alone = false;
  for (std::size_t a = 2; a <= 4; ++a) {
    for (std::size_t b = 5; b <= 7; ++b) {
      BOOST_TEST(plan.slots[a].value_offset != plan.slots[b].value_offset);
      BOOST_TEST(plan.slots[a].gradient_offset != plan.slots[b].gradient_offset);
      shared_alone = shared_alone || alone.slots[a].value_offset == alone.slots[b].value_offset;
    }
  }
  BOOST_TEST(shared_alone);
}

BOOST_AUTO_TEST_CASE(branches_run_at_the_same_time) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  gradus::cpu device{{.intra_op_threads = 1, .inter_op_threads = 3}};
  nn::network<float, gradus::nhwc> net{device, {2, 5, 5}};
  build_meetings(net, std::vector<meeting>(3, meeting{&running, &most, 3}));
  const gradus_test::random_batch<float, gradus::nhwc> batch{device, {3, 2, 5, 5}, 3};
  (void)net.evaluate(batch.images, batch.labels);
  BOOST_TEST(most == 3);
  (void)net.train_step(batch.images, batch.labels);
  BOOST_TEST(most == 3);
}

BOOST_AUTO_TEST_CASE(an_exception_arrives_and_the_network_goes_on) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  for (const std::size_t failing : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    std::atomic<bool> fails{false};
    std::vector<meeting> branches(3, meeting{&running, &most});
    branches[failing].fails = &fails;
    gradus::cpu device{{.intra_op_threads = 2, .inter_op_threads = 2}};
    nn::network<float, gradus::nhwc> net{device, {2, 5, 5}};
    build_meetings(net, branches);
    const gradus_test::random_batch<float, gradus::nhwc> batch{device, {3, 2, 5, 5}, 3};
    const double loss = net.train_step(batch.images, batch.labels).loss;
    const std::vector<float> gradients{net.gradients().begin(), net.gradients().end()};
    for (int round = 0; round < 20; ++round) {
      fails = true;
      BOOST_CHECK_THROW((void)net.train_step(batch.images, batch.labels), std::runtime_error);
      fails = false;
      BOOST_TEST(net.train_step(batch.images, batch.labels).loss == loss);
      BOOST_TEST(std::equal(gradients.begin(), gradients.end(), net.gradients().begin()));
    }
  }
}

BOOST_AUTO_TEST_CASE(parameters_may_change_until_their_layer_is_announced) {
  using network = nn::network<float, gradus::nhwc>;
  struct late_update final : nn::step_hooks {
    explicit late_update(network& changed) : net{changed} {}
    void before_layer(std::size_t layer, gradus::nn::phase which) override {
      if (which == gradus::nn::phase::forward) {
        const nn::parameter_range own = net.parameters_of(layer);
        for (const auto& p : net.parameters().subspan(own.first, own.count)) {
          double_values(net, p.offset(), p.size());
        }
      }
    }
    static void double_values(network& net, gradus::index_t offset, gradus::index_t size) {
      for (float& value : net.values().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size))) {
        value *= 2;
      }
    }
    network& net;
  };
  std::vector<float> expected;
  for (const int streams : {1, 3}) {
    gradus::cpu device{{.intra_op_threads = 1, .inter_op_threads = streams}};
    network net{device, {3, 13, 11}};
    build_branching(net);
    net.compile({.max_batch_size = 6, .seed = 1, .parallel_branches = true});
    const gradus_test::random_batch<float, gradus::nhwc> batch{device, {6, 3, 13, 11}, 5};
    late_update observer{net};
    if (streams == 1) {
      late_update::double_values(net, 0, static_cast<gradus::index_t>(net.values().size()));
      (void)net.train_step(batch.images, batch.labels);
      expected.assign(net.gradients().begin(), net.gradients().end());
    } else {
      (void)net.train_step(batch.images, batch.labels, {}, &observer);
    }
    BOOST_TEST(std::equal(expected.begin(), expected.end(), net.gradients().begin()));
  }
}

BOOST_AUTO_TEST_CASE(hooks_receive_the_same_as_without_streams) {
  std::vector<std::string> expected;
  for (const int streams : {1, 2, 8}) {  // more than there are branches, and than there are cores
    gradus::cpu device{{.intra_op_threads = 1, .inter_op_threads = streams}};
    nn::network<float, gradus::nhwc> net{device, {3, 13, 11}};
    build_branching(net);
    net.compile({.max_batch_size = 6, .seed = 1, .parallel_branches = true});
    const gradus_test::random_batch<float, gradus::nhwc> batch{device, {6, 3, 13, 11}, 5};
    recorder observer;
    (void)net.train_step(batch.images, batch.labels, {}, &observer);
    if (streams == 1) {
      expected = observer.events;
    }
    BOOST_TEST(!observer.events.empty());
    BOOST_TEST(observer.events == expected);
    BOOST_TEST(observer.in_time);
  }
}

BOOST_AUTO_TEST_CASE(the_first_value_that_is_not_finite_is_found_on_streams) {
  for (const int streams : {1, 2}) {
    gradus::cpu device{{.intra_op_threads = 1, .inter_op_threads = streams}};
    nn::network<float, gradus::nhwc> net{device, {3, 13, 11}};
    build_branching(net);
    net.compile({.max_batch_size = 6, .seed = 1, .parallel_branches = true});
    const auto& weight = net.find_parameter("module1_b2_conv.weight");
    weight.assign_values(std::vector<float>(weight.copy_values().size(), 1e38F));
    const gradus_test::random_batch<float, gradus::nhwc> batch{device, {6, 3, 13, 11}, 5};
    BOOST_TEST(net.find_non_finite(batch.images, {}).where == "layer 'module1_b2_conv' (conv2d)");
  }
}

BOOST_AUTO_TEST_CASE(absurd_numbers_of_streams) {
  BOOST_CHECK_THROW(gradus::cpu({.intra_op_threads = 1, .inter_op_threads = 0}), gradus::configuration_error);
  BOOST_CHECK_THROW(gradus::cpu({.intra_op_threads = 100, .inter_op_threads = 100}), gradus::configuration_error);
  BOOST_TEST(gradus::cpu({.intra_op_threads = 2, .inter_op_threads = 3}).threads() == 6);
  BOOST_TEST(gradus::cpu({.intra_op_threads = 2, .inter_op_threads = 3}).stream(0).threads() == 2);
}

BOOST_AUTO_TEST_SUITE_END()
