// SPDX-License-Identifier: BSL-1.0
//
// The location in a message is the line of the program that called the library.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/mnist.hpp"
#include "gradus/data/normalization.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/train/metrics.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace data = gradus::data;
namespace metrics = gradus::metrics;
namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace train = gradus::train;
using averaging = gradus::parallel::model_averaging;
using network = nn::network<float, gradus::nhwc>;
using batches = data::loader<float, gradus::nhwc>;
using parallel_batches = data::parallel_loader<float, gradus::nhwc>;

/// Calls action() and returns the message of the error that it throws.
template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

void require_location_of(const std::string& message, unsigned line, std::string_view mistake) {
  const std::string location = " [error_locations.cpp:" + std::to_string(line) + "]";
  BOOST_TEST(message.ends_with(location), mistake << ": not " << location << " at the end of: " << message);
}

/// The action makes a mistake, and the message names the line.
template <class Action>
void require_location(unsigned line, std::string_view mistake, Action&& action) {
  require_location_of(message_of(action), line, mistake);
}

/// A network of one dense layer on images of 1 x 4 x 4.
network make_network(gradus::cpu& device) {
  network net{device, {1, 4, 4}};
  const nn::value x = net.add("flatten", nn::flatten{}, net.input());
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
  return net;
}

network make_compiled(gradus::cpu& device) {
  network net = make_network(device);
  net.compile({.max_batch_size = 8});
  return net;
}

struct fixture {
  gradus::cpu device{{.intra_op_threads = 1}};
  data::image_dataset images = data::make_synthetic({.examples = 16, .height = 4, .width = 4, .classes = 3});
  data::image_dataset larger = data::make_synthetic({.examples = 16, .height = 5, .width = 4, .classes = 3});
  gradus::comm::self world;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(error_locations, fixture)

// A mistake a line.
// clang-format off
BOOST_AUTO_TEST_CASE(while_a_network_is_built) {
  network net{device, {1, 4, 4}};
  network other{device, {1, 4, 4}};
  const nn::value x = net.input();
  require_location(__LINE__, "input", [&] { network{device, {0, 4, 4}}; });
  require_location(__LINE__, "shapes", [&] { net.add("conv", nn::conv2d{.out_channels = 1, .kernel = {9, 9}}, x); });
  require_location(__LINE__, "layer's options", [&] { net.add("drop", nn::dropout{.rate = 2}, x); });
  require_location(__LINE__, "no input", [&] { net.add("sum", nn::add{}, std::vector<nn::value>{}); });
  require_location(__LINE__, "list of inputs", [&] { net.add("sum", nn::add{}, {x, x, x}); });
  require_location(__LINE__, "value of another network", [&] { net.add("relu", nn::relu{}, other.input()); });
  require_location(__LINE__, "shape", [&] { static_cast<void>(net.shape(other.input())); });
  require_location(__LINE__, "loss of another network", [&] { net.loss(nn::softmax_cross_entropy{}, other.input()); });
  const nn::value image = net.add("relu", nn::relu{}, x);
  require_location(__LINE__, "loss's options", [&] { net.loss(nn::softmax_cross_entropy{.label_smoothing = 2}, image); });
  require_location(__LINE__, "model", [&] { gradus::models::resnet(net, 51); });
  require_location(__LINE__, "layer of a model", [&] { gradus::models::mnist(other, {.dropout_rate = 2}); });
}

// The line in which std::make_unique calls the constructor is none of the program.
BOOST_AUTO_TEST_CASE(when_the_standard_library_makes_a_network) {
  const auto has_no_location = [](const std::string& message) {
    BOOST_TEST(message.find("expected ") != std::string::npos, message);
    BOOST_TEST(message.find('[') == std::string::npos, message);
  };
  has_no_location(message_of([&] { static_cast<void>(std::make_unique<network>(device, nn::value_shape{0, 4, 4})); }));
  has_no_location(message_of([&] { std::optional<batches>{}.emplace(device, images, data::loader_options{}); }));
}

BOOST_AUTO_TEST_CASE(when_a_network_is_compiled) {
  network empty{device, {1, 4, 4}};
  network net = make_network(device);
  network unused{device, {1, 4, 4}};
  unused.add("one", nn::relu{}, unused.input());
  unused.add("two", nn::relu{}, unused.input());
  network wild{device, {1, 4, 4}};
  wild.add("scores",
           nn::dense{.out_features = 3, .weight_initializer = nn::constant(std::numeric_limits<double>::infinity())},
           wild.input());
  require_location(__LINE__, "no layers", [&] { empty.compile({.max_batch_size = 8}); });
  require_location(__LINE__, "no batch size", [&] { net.compile({}); });
  require_location(__LINE__, "forecast", [&] { static_cast<void>(net.forecast({})); });
  require_location(__LINE__, "micro_batch_size", [&] { net.compile({.max_batch_size = 8, .micro_batch_size = -1}); });
  require_location(__LINE__, "output that nothing reads", [&] { unused.compile({.max_batch_size = 8}); });
  require_location(__LINE__, "initial values", [&] { wild.compile({.max_batch_size = 8}); });
  require_location(__LINE__, "values before", [&] { static_cast<void>(net.values()); });
  require_location(__LINE__, "gradients before", [&] { static_cast<void>(net.gradients()); });
  require_location(__LINE__, "buffers before", [&] { static_cast<void>(net.buffers()); });
  require_location(__LINE__, "plan before", [&] { static_cast<void>(net.plan()); });
  require_location(__LINE__, "memory before", [&] { static_cast<void>(net.memory_bytes()); });
  require_location(__LINE__, "parameter before", [&] { static_cast<void>(net.find_parameter("scores.weight")); });
  net.compile({.max_batch_size = 8});
  require_location(__LINE__, "second time", [&] { net.compile({.max_batch_size = 8}); });
  require_location(__LINE__, "layer after", [&] { net.add("late", nn::relu{}, net.input()); });
  require_location(__LINE__, "unknown parameter", [&] { static_cast<void>(net.find_parameter("scores.wait")); });
}

BOOST_AUTO_TEST_CASE(when_a_network_runs) {
  network building = make_network(device);
  network net = make_compiled(device);
  network without_loss{device, {1, 4, 4}};
  without_loss.add("relu", nn::relu{}, without_loss.input());
  without_loss.compile({.max_batch_size = 8});
  const gradus::image_tensor<float, gradus::nhwc> right{device, {2, 1, 4, 4}};
  const gradus::image_tensor<float, gradus::nhwc> wrong{device, {2, 1, 5, 4}};
  const std::vector<std::int32_t> labels{0, 1};
  const std::vector<std::int32_t> no_class{0, 3};
  require_location(__LINE__, "not compiled", [&] { building.train_step(right.view(), labels); });
  require_location(__LINE__, "no loss", [&] { without_loss.train_step(right.view(), labels); });
  require_location(__LINE__, "shape", [&] { net.train_step(wrong.view(), labels); });
  require_location(__LINE__, "label", [&] { net.train_step(right.view(), no_class); });
  require_location(__LINE__, "shape of forward", [&] { net.forward(wrong.view()); });
  require_location(__LINE__, "shape of evaluate", [&] { net.evaluate(wrong.view(), labels); });
  require_location(__LINE__, "label of evaluate", [&] { net.evaluate(right.view(), no_class); });
  require_location(__LINE__, "find_non_finite", [&] { static_cast<void>(building.find_non_finite(right.view(), {})); });
}

BOOST_AUTO_TEST_CASE(of_data_and_loaders) {
  require_location(__LINE__, "data set", [&] { data::image_dataset({1, 1, 4, 4}, {}, {}, 3); });
  require_location(__LINE__, "normalization", [&] { static_cast<void>(images.with({.scale = 0})); });
  require_location(__LINE__, "synthetic data", [&] { static_cast<void>(data::make_synthetic({.examples = 0})); });
  require_location(__LINE__, "normalization_of", [&] { static_cast<void>(data::normalization_of(images.with({.mean = {0.5}}))); });
  require_location(__LINE__, "no files", [&] { static_cast<void>(data::load_mnist_plain("/no", data::split::test)); });
  require_location(__LINE__, "no batch size", [&] { batches{device, images, {}}; });
  require_location(__LINE__, "large batch", [&] { batches{device, images, {.global_batch_size = 17, .drop_last = true}}; });
  require_location(__LINE__, "prefetch", [&] { batches{device, images, {.global_batch_size = 8, .prefetch = 0}}; });
  require_location(__LINE__, "parallel loader", [&] { parallel_batches{device, images, {}}; });
  require_location(__LINE__, "readers", [&] { parallel_batches{device, images, {.global_batch_size = 8}, {.threads = 0}}; });
  batches loader{device, images, {.global_batch_size = 8}};
  require_location(__LINE__, "no epoch", [&] { static_cast<void>(loader.next()); });
  require_location(__LINE__, "part", [&] { loader.take_shard({.rank = 2, .ranks = 2}); });
}

BOOST_AUTO_TEST_CASE(of_devices_and_tensors) {
  const gradus::tensor<float, 2> matrix{device, {3, 4}};
  require_location(__LINE__, "threads", [&] { gradus::cpu{{.intra_op_threads = -1}}; });
  require_location(__LINE__, "memory", [&] { gradus::tensor<float, 1>{device, {gradus::index_t{1} << 58}}; });
  require_location(__LINE__, "slice", [&] { static_cast<void>(matrix.view().slice(2, 2)); });
  require_location(__LINE__, "reshape", [&] { static_cast<void>(matrix.view().reshape(gradus::extents<1>{5})); });
}

BOOST_AUTO_TEST_CASE(when_a_trainer_is_made) {
  network building = make_network(device);
  network net = make_compiled(device);
  const optim::update<optim::sgd> scaled{.loss_scaling = {.growth = 0}};
  require_location(__LINE__, "not compiled", [&] { train::trainer trainer(building, optim::sgd{}, world); });
  require_location(__LINE__, "momentum", [&] { train::trainer trainer(net, optim::sgd{.momentum = 1}, world); });
  require_location(__LINE__, "lars", [&] { train::trainer trainer(net, optim::lars{.trust = 0}, world); });
  require_location(__LINE__, "scale of the loss", [&] { train::trainer trainer(net, scaled, world); });
  const averaging outer{.outer = optim::sgd{.momentum = 1}};
  require_location(__LINE__, "outer rule", [&] { train::trainer trainer(net, optim::sgd{}, world, outer); });
  const averaging rate{.outer = optim::sgd{}, .outer_learning_rate = -1};
  require_location(__LINE__, "outer rate", [&] { train::trainer trainer(net, optim::sgd{}, world, rate); });
  require_location(__LINE__, "rate", [&] { optim::schedule{-1.0}; });
  require_location(__LINE__, "schedule", [&] { optim::schedule{optim::cosine{.epochs = 0}}; });
  require_location(__LINE__, "scaled rate", [&] { static_cast<void>(optim::linearly_scaled(0.1, 0, 64)); });
}

BOOST_AUTO_TEST_CASE(when_scores_are_predicted_and_measured) {
  network net = make_compiled(device);
  const gradus::image_tensor<float, gradus::nhwc> wrong{device, {2, 1, 5, 4}};
  const gradus::image_tensor<float, gradus::nhwc> right{device, {2, 1, 4, 4}};
  metrics::meter accuracy{metrics::accuracy{}};
  const std::vector<std::int32_t> labels(3);
  const auto scores = nn::predict(net, right);
  require_location(__LINE__, "images", [&] { static_cast<void>(nn::predict(net, wrong)); });
  require_location(__LINE__, "compute", [&] { static_cast<void>(accuracy.compute()); });
  require_location(__LINE__, "labels", [&] { accuracy.update(scores.view(), labels); });
}

BOOST_AUTO_TEST_CASE(when_a_trainer_trains) {
  network net = make_compiled(device);
  batches loader{device, images, {.global_batch_size = 8}};
  batches other{device, larger, {.global_batch_size = 8}};
  batches of_rank_1{device, images, {.global_batch_size = 8, .shard = {.rank = 1, .ranks = 2}}};
  train::trainer trainer{net, optim::sgd{}, world};
  require_location(__LINE__, "epochs", [&] { trainer.fit(loader, {.epochs = -1}); });
  require_location(__LINE__, "rate", [&] { trainer.fit(loader, {.learning_rate = -1.0}); });
  require_location(__LINE__, "shape", [&] { trainer.fit(other, {}); });
  require_location(__LINE__, "another rank's part", [&] { trainer.fit(of_rank_1, {}); });
  require_location(__LINE__, "shape of evaluate", [&] { static_cast<void>(trainer.evaluate(other)); });
  require_location(__LINE__, "part of evaluate", [&] { static_cast<void>(trainer.evaluate(of_rank_1)); });
  require_location(__LINE__, "evaluate_every", [&] { train::evaluate_every(loader, 0); });
  const metrics::list top_4{metrics::top_k{4}};
  require_location(__LINE__, "metric", [&] { static_cast<void>(trainer.evaluate(loader, metrics::top_k{4})); });
  require_location(__LINE__, "metrics", [&] { static_cast<void>(trainer.evaluate(loader, top_4)); });
  require_location(__LINE__, "shape with metrics", [&] { static_cast<void>(trainer.evaluate(other, metrics::accuracy{})); });
  require_location(__LINE__, "evaluate_metrics", [&] { train::evaluate_metrics(loader, top_4, 0); });
  train::evaluate_metrics wrong{loader, top_4};
  const unsigned line = __LINE__ - 1;
  train::trainer fresh{net, optim::sgd{}};  // the communicator of the other one has failed
  require_location_of(message_of([&] { fresh.fit(loader, {}, wrong); }), line, "metrics of a callback");
  gradus::comm::self again;
  train::trainer hasty{net, optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, again};
  require_location(__LINE__, "infinite loss", [&] { hasty.fit(loader, {.epochs = 9, .learning_rate = 1e30}); });
}

/// Over a communicator that records, other parts stand between the trainer and the loader.
BOOST_AUTO_TEST_CASE(when_a_traced_trainer_trains) {
  network net = make_compiled(device);
  batches loader{device, larger, {.global_batch_size = 8}};
  gradus::trace::recorder recorder;
  auto traced = gradus::trace::traced(gradus::comm::self{}, recorder);
  train::trainer trainer{net, optim::sgd{}, traced};
  require_location(__LINE__, "shape", [&] { trainer.fit(loader, {}); });
  require_location(__LINE__, "metric", [&] { static_cast<void>(trainer.evaluate(loader, metrics::top_k{4})); });
}

/// A mistake in a callback is in the callback.
BOOST_AUTO_TEST_CASE(in_a_callback) {
  network net = make_compiled(device);
  batches loader{device, images, {.global_batch_size = 8}};
  batches other{device, larger, {.global_batch_size = 8}};
  train::trainer trainer{net, optim::sgd{}, world};
  unsigned line = 0;
  const auto calls = [&] {
    trainer.fit(loader, {}, [&](const train::epoch_report&) {
      line = __LINE__ + 1;
      static_cast<void>(trainer.evaluate(other));
    });
  };
  const std::string message = message_of(calls);
  require_location_of(message, line, "callback");
}

/// Other ranks get the line of the rank that made the mistake.
BOOST_AUTO_TEST_CASE(of_another_rank) {
  std::string seen;
  gradus::comm::run_ranks(2, [&](gradus::comm::threads& ranks) {
    gradus::cpu own{{.intra_op_threads = 1}};
    network net = make_compiled(own);
    batches loader{own, images, {.global_batch_size = 8, .shard = {.rank = 0, .ranks = 2}}};
    train::trainer trainer{net, optim::sgd{}, ranks};
    if (ranks.rank() == 1) {
      require_location(__LINE__, "part", [&] { trainer.fit(loader, {}); });
      return;
    }
    seen = message_of([&] { trainer.fit(loader, {}); });
  });
  const std::string line = std::to_string(__LINE__ - 5);
  BOOST_TEST(seen.find("[error_locations.cpp:" + line + "]") != std::string::npos, "not line " << line << " in: " << seen);
}
// clang-format on

BOOST_AUTO_TEST_SUITE_END()
