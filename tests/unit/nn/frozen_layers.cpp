// SPDX-License-Identifier: BSL-1.0
//
// Layers that are not trained and groups of parameters: what is planned, what has memory, and the errors.
// tests/property/nn_graphs compares networks with frozen layers with the reference.
#include <boost/test/unit_test.hpp>

#include <cmath>        // std::abs, std::nan
#include <limits>       // std::numeric_limits
#include <set>          // std::set
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::pair
#include <vector>       // std::vector

#include "../../support/network_checks.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/parallel/network_segments.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::cpu;
using frozen_network = nn::network<double, gradus::nhwc>;

/// Two blocks of convolution, normalization and PReLU, and a head.
void build_blocks(frozen_network& net) {
  nn::value x = net.input();
  for (const std::string block : {"one", "two"}) {
    x = net.add(block + ".conv", nn::conv2d{.out_channels = 16, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
    x = net.add(block + ".norm", nn::batch_norm{}, x);
    x = net.add(block + ".act", nn::prelu{}, x);
  }
  x = net.add("pool", nn::global_average_pool2d{}, x);
  x = net.add("dropout", nn::dropout{.rate = 0.5}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("head", nn::dense{.out_features = 4}, x));
}

/// The layers that run in each direction, and the parameters whose gradients were completed.
class layer_log final : public nn::step_hooks {
 public:
  void after_layer(std::size_t layer, nn::phase which) override {
    (which == nn::phase::forward ? forward : backward).insert(layer);
  }
  void gradients_ready(std::size_t first, std::size_t count) override {
    in_order = in_order && first == ready;
    ready = first + count;
  }

  std::set<std::size_t> forward;
  std::set<std::size_t> backward;
  std::size_t ready = 0;
  bool in_order = true;
};

template <class Function>
std::string refused(const Function& function) {
  try {
    function();
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "no error";
}

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::vector<double> all_values(frozen_network& net) {
  return {net.values().begin(), net.values().end()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(frozen_layers)

BOOST_AUTO_TEST_CASE(layers_below_the_lowest_trained_one_do_not_run_backward) {
  cpu device{{.intra_op_threads = 1}};
  const gradus_test::random_batch<double, gradus::nhwc> batch{device, {4, 3, 6, 5}, 4};
  const auto run = [&](const std::vector<std::string>& frozen) {
    frozen_network net{device, {3, 6, 5}};
    build_blocks(net);
    for (const std::string& pattern : frozen) {
      net.freeze(pattern);
    }
    net.compile({.max_batch_size = 4, .seed = 1});
    layer_log log;
    (void)net.train_step(batch.images, batch.labels, {}, &log);
    BOOST_TEST(log.forward.size() == 9U);
    BOOST_TEST(log.in_order);
    BOOST_TEST(log.ready == net.structure().trained_parameters().size());
    for (std::size_t k = 0; k < net.parameters().size(); ++k) {
      BOOST_TEST(net.parameters()[k].trained() == (k < log.ready));
    }
    return std::pair{log.backward, net.memory_bytes()};
  };
  const auto [all, bytes_of_all] = run({});
  BOOST_TEST(all.size() == 9U);
  const auto [head, bytes_of_head] = run({"one.*", "two.*"});
  BOOST_TEST((head == std::set<std::size_t>{8}));
  const auto [upper, bytes_of_upper] = run({"one.*"});
  BOOST_TEST((upper == std::set<std::size_t>{3, 4, 5, 6, 7, 8}));
  const auto [middle, bytes_of_middle] = run({"two.*"});  // backward goes through them
  BOOST_TEST(middle.size() == 9U);
  BOOST_TEST(bytes_of_head < bytes_of_upper);
  BOOST_TEST(bytes_of_upper < bytes_of_all);
  BOOST_TEST(bytes_of_middle < bytes_of_all);
}

BOOST_AUTO_TEST_CASE(frozen_parameters_follow_the_trained_ones_without_gradients) {
  cpu device{{.intra_op_threads = 1}};
  frozen_network net{device, {3, 6, 5}};
  build_blocks(net);
  net.freeze("two.conv");
  net.freeze("one.norm");
  const nn::memory_forecast forecast = net.forecast({.max_batch_size = 4});
  net.compile({.max_batch_size = 4, .seed = 1});
  BOOST_TEST(net.parameters().back().name() == "one.norm.bias");
  BOOST_TEST(net.parameters()[0].name() == "head.weight");
  BOOST_TEST(net.parameters()[3].name() == "two.norm.weight");
  BOOST_TEST(!net.find_parameter("two.conv.weight").trained());
  BOOST_TEST(net.find_parameter("two.conv.weight").gradient().data() == nullptr);
  BOOST_TEST(mentions(refused([&] { (void)net.find_parameter("two.conv.weight").copy_gradient(); }), "frozen"));
  const auto frozen = static_cast<std::size_t>(16 * 16 * 9 + 16 + 16 + 16);
  BOOST_TEST(net.values().size() == net.gradients().size() + frozen);  // all are multiples of 64 bytes
  BOOST_TEST(net.trained_values().size() == net.gradients().size());
  BOOST_TEST(net.trained_values().data() == net.values().data());
  BOOST_TEST(forecast.parameters == net.values().size_bytes());
  BOOST_TEST(forecast.gradients == net.gradients().size_bytes());
  BOOST_TEST(forecast.total() - forecast.buffers == net.memory_bytes());
  BOOST_TEST(gradus::parallel::segments_of(net.structure()).size() == net.structure().trained_parameters().size());
}

// prelu does not skip gradients of parameters: it writes them to memory that nothing reads.
BOOST_AUTO_TEST_CASE(a_layer_that_writes_all_gradients_may_be_frozen) {
  cpu device{{.intra_op_threads = 1}};
  const gradus_test::random_batch<double, gradus::nhwc> batch{device, {4, 3, 6, 5}, 4};
  frozen_network net{device, {3, 6, 5}};
  frozen_network trained{device, {3, 6, 5}};
  build_blocks(net);
  build_blocks(trained);
  net.freeze("*.act");
  BOOST_TEST(net.forecast({.max_batch_size = 4}).gradients == trained.forecast({.max_batch_size = 4}).gradients);
  net.compile({.max_batch_size = 4, .seed = 1});
  trained.compile({.max_batch_size = 4, .seed = 1});
  const std::vector<double> before = all_values(net);
  (void)net.train_step(batch.images, batch.labels);
  (void)trained.train_step(batch.images, batch.labels);
  BOOST_TEST((all_values(net) == before));
  BOOST_TEST(net.gradients().size() < net.values().size());
  for (const auto& parameter : trained.parameters()) {
    if (net.find_parameter(parameter.name()).trained()) {
      BOOST_TEST((net.find_parameter(parameter.name()).copy_gradient() == parameter.copy_gradient()));
    } else {
      BOOST_TEST(parameter.name().find(".act.") != std::string::npos);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_networks_that_evaluate_frozen_layers_are_those_of_finite_differences) {
  cpu device{{.intra_op_threads = 1}};
  const gradus_test::random_batch<double, gradus::nhwc> batch{device, {4, 3, 6, 5}, 4};
  frozen_network net{device, {3, 6, 5}};
  build_blocks(net);
  net.freeze("two.norm", {.evaluates = true});
  net.freeze("dropout", {.evaluates = true});
  net.compile({.max_batch_size = 4, .seed = 1});
  const auto& weight = net.find_parameter("one.conv.weight");
  const auto loss = [&] { return net.train_step(batch.images, batch.labels).loss / 4; };
  (void)loss();
  const std::vector<double> gradient = weight.copy_gradient();
  std::vector<double> values = weight.copy_values();
  for (std::size_t i = 0; i < values.size(); i += 29) {
    const double original = values[i];
    double sides[2] = {};
    for (const int side : {0, 1}) {
      values[i] = original + (side == 0 ? -1e-6 : 1e-6);
      weight.assign_values(values);
      sides[side] = loss();
    }
    values[i] = original;
    BOOST_TEST(std::abs((sides[1] - sides[0]) / 2e-6 - gradient[i]) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(running_statistics_of_a_frozen_layer_stand_still_only_if_it_evaluates) {
  cpu device{{.intra_op_threads = 1}};
  const gradus_test::random_batch<double, gradus::nhwc> batch{device, {4, 3, 6, 5}, 4};
  for (const bool evaluates : {false, true}) {
    frozen_network net{device, {3, 6, 5}};
    build_blocks(net);
    net.freeze("one.*", {.evaluates = evaluates});
    net.compile({.max_batch_size = 4, .seed = 1});
    (void)net.train_step(batch.images, batch.labels);
    for (const auto& buffer : net.buffers()) {
      const bool still = buffer.name == "one.norm.running_mean" && evaluates;
      if (buffer.name.ends_with("running_mean")) {
        BOOST_TEST((buffer.elements(0) == 0) == still, buffer.name << ", evaluates: " << evaluates);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_network_tells_what_it_trains) {
  cpu device{{.intra_op_threads = 1}};
  frozen_network net{device, {3, 6, 5}};
  build_blocks(net);
  const std::string plain = net.describe();
  BOOST_TEST(!mentions(plain, "frozen"));
  net.freeze("one.*");
  net.freeze("one.norm", {.evaluates = true});
  net.group("head.*", {.learning_rate_factor = 10});
  net.group("*.weight", {.weight_decay = false});
  net.group("two.conv.*", {.learning_rate_factor = 0.25});
  net.group("two.conv.bias", {.weight_decay = true});
  net.group("two.conv.bias", {.learning_rate_factor = 1});  // the last call counts
  const std::string text = net.describe();
  BOOST_TEST(mentions(text, "  frozen\n"));
  BOOST_TEST(mentions(text, "  frozen, evaluates\n"));
  BOOST_TEST(mentions(text, "\nhead.weight: learning rate * 10, no weight decay\nhead.bias: learning rate * 10\n"));
  BOOST_TEST(mentions(text, "\ntwo.conv.weight: learning rate * 0.25, no weight decay\ntwo.conv.bias: weight decay\n"));
  net.compile({.max_batch_size = 4, .seed = 1});
  net.group("head.bias", {.weight_decay = true});  // after compile, too
  for (const gradus::optim::segment& each : gradus::parallel::segments_of(net.structure())) {
    BOOST_TEST(each.learning_rate_factor == (each.name.starts_with("head.")   ? 10
                                             : each.name == "two.conv.weight" ? 0.25
                                                                              : 1));
    BOOST_TEST(each.decay == (each.name == "two.conv.bias" || each.name == "head.bias"));
  }
}

BOOST_AUTO_TEST_CASE(what_makes_no_sense_is_refused) {
  cpu device{{.intra_op_threads = 1}};
  frozen_network net{device, {3, 6, 5}};
  build_blocks(net);
  const std::string no_layer = refused([&] { net.freeze("one"); });
  BOOST_TEST(mentions(no_layer, "one.conv, one.norm, one.act, two.conv"));
  BOOST_TEST(mentions(no_layer, "frozen_layers.cpp"));
  BOOST_TEST(mentions(refused([&] { net.group("head", {}); }), "head.weight, head.bias"));
  for (const double factor : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    BOOST_TEST(mentions(refused([&] { net.group("head.*", {.learning_rate_factor = factor}); }), "above 0"));
  }
  net.freeze("*");
  BOOST_TEST(mentions(refused([&] { net.compile({.max_batch_size = 4}); }), "all of them frozen"));
  frozen_network compiled{device, {3, 6, 5}};
  build_blocks(compiled);
  compiled.compile({.max_batch_size = 4});
  BOOST_TEST(mentions(refused([&] { compiled.freeze("head"); }), "not compiled"));
  frozen_network without_loss{device, {3, 6, 5}};
  (void)without_loss.add("head", nn::dense{.out_features = 4}, without_loss.input());
  without_loss.freeze("head");
  without_loss.compile({.max_batch_size = 4});  // for forward
}

BOOST_AUTO_TEST_SUITE_END()
