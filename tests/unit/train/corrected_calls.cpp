// SPDX-License-Identifier: BSL-1.0
//
// After a mistake: the message says what to change, and the corrected call works on the same trainer and communicator.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/half_squares.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/metrics.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace data = gradus::data;
namespace metrics = gradus::metrics;
namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace train = gradus::train;
using corrected_network = nn::network<float, gradus::nhwc>;
using corrected_loader = data::loader<float, gradus::nhwc>;

/// Calls action() and returns the message of the error that it throws.
template <class Action>
std::string message_of_mistake(Action&& action) {
  try {
    action();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

void require_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' is not in: " << message);
  }
}

template <class Loss = nn::softmax_cross_entropy>
corrected_network make_corrected_network(gradus::cpu& device, gradus::index_t outputs = 3, const Loss& loss = {}) {
  corrected_network net{device, {1, 4, 4}};
  net.loss(loss, net.add("scores", nn::dense{.out_features = outputs}, net.input()));
  net.compile({.max_batch_size = 8});
  return net;
}

/// Loaders for the network, of other images, and of larger batches.
struct corrected_loaders {
  gradus::cpu device{{.intra_op_threads = 1}};
  data::image_dataset images = data::make_synthetic({.examples = 16, .height = 4, .width = 4, .classes = 3});
  data::image_dataset taller = data::make_synthetic({.examples = 16, .height = 5, .width = 4, .classes = 3});
  corrected_loader right{device, images, {.global_batch_size = 8}};
  corrected_loader other{device, taller, {.global_batch_size = 8}};
  corrected_loader large{device, images, {.global_batch_size = 16}};
};

/// A file without a name, and what was written to it.
class shown_text {
 public:
  [[nodiscard]] std::FILE* file() const noexcept { return file_.get(); }
  [[nodiscard]] std::string read() const {
    std::string text;
    std::rewind(file());
    for (int c = std::fgetc(file()); c != EOF; c = std::fgetc(file())) {
      text += static_cast<char>(c);
    }
    return text;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{std::tmpfile(), &std::fclose};
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(corrected_calls, corrected_loaders)

template <class Trainer>
void check_corrected_calls(Trainer& trainer, corrected_loaders& loaders) {
  const auto works = [&] {
    const std::string message = message_of_mistake([&] { trainer.fit(loaders.right, {}); });
    BOOST_TEST(message == "no error");
    BOOST_TEST(message_of_mistake([&] { (void)trainer.evaluate(loaders.right); }) == "no error");
  };
  BOOST_TEST(message_of_mistake([&] { trainer.fit(loaders.other, {}); }) != "no error");
  works();
  BOOST_TEST(message_of_mistake([&] { trainer.fit(loaders.large, {}); }) != "no error");
  works();
  BOOST_TEST(message_of_mistake([&] { trainer.fit(loaders.right, {.epochs = -1}); }) != "no error");
  works();
  BOOST_TEST(message_of_mistake([&] { (void)trainer.evaluate(loaders.right, metrics::top_k{4}); }) != "no error");
  works();
}

BOOST_AUTO_TEST_CASE(one_rank_goes_on_after_every_error) {
  corrected_network net = make_corrected_network(device);
  gradus::comm::self world;
  train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world};
  check_corrected_calls(trainer, *this);
  BOOST_TEST(message_of_mistake([&] { (void)trainer.evaluate(other); }) != "no error");
  int steps = 0;
  BOOST_CHECK_THROW(trainer.fit(right, {},
                                [&](const train::step_report&) {
                                  if (++steps == 2) {
                                    throw std::runtime_error{"in a callback"};
                                  }
                                }),
                    std::runtime_error);
  BOOST_TEST(message_of_mistake([&] { trainer.fit(right, {}); }) == "no error");
  train::trainer own{net, optim::sgd{}};
  check_corrected_calls(own, *this);
  train::trainer again{net, optim::sgd{}, world};  // a new trainer on the same communicator
  check_corrected_calls(again, *this);
}

BOOST_AUTO_TEST_CASE(ranks_go_on_after_errors_of_arguments) {
  const auto messages = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    corrected_loaders own;
    corrected_network net = make_corrected_network(own.device);
    train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world};
    std::vector<std::string> wrong;
    std::vector<std::string> corrected;
    corrected.push_back(message_of_mistake([&] { trainer.fit(own.large, {}); }));  // 8 images on each rank
    wrong.push_back(message_of_mistake([&] { trainer.fit(own.other, {}); }));
    corrected.push_back(message_of_mistake([&] { trainer.fit(own.right, {}); }));
    wrong.push_back(message_of_mistake([&] { trainer.fit(own.right, {.epochs = -1}); }));
    corrected.push_back(message_of_mistake([&] { trainer.fit(own.right, {}); }));
    wrong.push_back(message_of_mistake([&] { (void)trainer.evaluate(own.right, metrics::top_k{4}); }));
    corrected.push_back(message_of_mistake([&] { (void)trainer.evaluate(own.right); }));
    return std::vector{wrong, corrected};
  });
  for (const auto& of_rank : messages) {
    for (const std::string& each : of_rank[0]) {
      BOOST_TEST(each != "no error");
    }
    for (const std::string& each : of_rank[1]) {
      BOOST_TEST(each == "no error");
    }
  }
}

// One rank refuses its arguments, and both throw: the other quotes it.
BOOST_AUTO_TEST_CASE(a_mistake_of_one_rank_is_quoted_on_the_others) {
  const auto messages = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    corrected_loaders own;
    corrected_network net = make_corrected_network(own.device);
    train::trainer trainer{net, optim::sgd{}, world};
    const bool wrong = world.rank() == 1;
    std::vector<std::string> result;
    result.push_back(message_of_mistake([&] { trainer.fit(wrong ? own.other : own.right, {}); }));
    result.push_back(message_of_mistake([&] { trainer.fit(own.right, {.epochs = wrong ? -1 : 1}); }));
    result.push_back(message_of_mistake([&] { (void)trainer.evaluate(own.right, metrics::top_k{wrong ? 4 : 2}); }));
    result.push_back(message_of_mistake([&] { trainer.fit(own.right, {}); }));
    return result;
  });
  require_parts(messages[1][0], {"trainer.fit: expected a loader with images of (1, 4, 4)"});
  require_parts(messages[0][0], {"trainer.fit: expected the same arguments on all ranks, got valid ones on rank 0; "
                                 "trainer.fit: expected a loader with images of (1, 4, 4)",
                                 "on rank 1", "[corrected_calls.cpp:"});
  require_parts(messages[1][1], {"trainer.fit: expected epochs of at least 0, got -1"});
  require_parts(messages[0][1], {"epochs of at least 0, got -1", "on rank 1"});
  require_parts(messages[1][2], {"top_k: expected a k from 1 to 3"});
  require_parts(messages[0][2], {"trainer.evaluate: expected the same metrics on all ranks, got top-2",
                                 "top_k: expected a k from 1 to 3", "on rank 1"});
  BOOST_TEST(messages[0][3] == "no error");
  BOOST_TEST(messages[1][3] == "no error");
}

// Ranks may not go on when one of them has left a step: later calls quote the first error and say what to do.
BOOST_AUTO_TEST_CASE(a_communicator_that_has_failed_says_so) {
  const auto messages = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    corrected_loaders own;
    corrected_network net = make_corrected_network(own.device);
    train::trainer trainer{net, optim::sgd{}, world};
    (void)message_of_mistake([&] { (void)trainer.evaluate(own.other); });
    return message_of_mistake([&] { trainer.fit(own.right, {}); });
  });
  for (const std::string& each : messages) {
    require_parts(each, {"failed: trainer.evaluate: expected a loader with images of (1, 4, 4)",
                         "Hint: a communicator does not work after that"});
  }
}

BOOST_AUTO_TEST_CASE(loaders_that_do_not_fit_the_network) {
  corrected_network net = make_corrected_network(device);
  train::trainer trainer{net, optim::sgd{}};
  require_parts(
      message_of_mistake([&] { trainer.fit(other, {}); }),
      {"trainer.fit: expected a loader with images of (1, 4, 4), the input of the network, got a data set with "
       "images of (1, 5, 4)",
       "{.channels = 1, .height = 5, .width = 4}"});
  for (const std::string& each : {message_of_mistake([&] { trainer.fit(large, {}); }),
                                  message_of_mistake([&] { (void)trainer.evaluate(large); })}) {
    require_parts(each,
                  {"expected a loader with batches of at most 8 examples on a rank, the network's max_batch_size, "
                   "got batches of 16",
                   ".max_batch_size = 16, .micro_batch_size = 8", "a global_batch_size of at most 8"});
  }
  corrected_network small = make_corrected_network(device, 2);
  train::trainer other_trainer{small, optim::sgd{}};
  require_parts(message_of_mistake([&] { other_trainer.fit(right, {}); }),
                {"at most 2 classes", "If the label 2 is no class, it is the ignored_label of the data set"});
}

BOOST_AUTO_TEST_CASE(labels_that_are_no_class) {
  const std::vector<float> x(16 * 16);
  std::vector<std::int32_t> y(16, 1);
  y[3] = 255;
  const auto inputs = data::examples_of(std::span{x}, {1, 1, 4, 4});
  const auto set = data::in_memory(inputs, y, {.classes = 3});
  const auto ignoring = data::in_memory(inputs, y, {.classes = 3, .ignored_label = 255});
  corrected_loader loader{device, set, {.global_batch_size = 8}};
  corrected_loader ignoring_loader{device, ignoring, {.global_batch_size = 8}};
  corrected_network net = make_corrected_network(device);
  train::trainer trainer{net, optim::sgd{}};
  require_parts(message_of_mistake([&] { trainer.fit(loader, {}); }),
                {"loader: expected labels from 0 to 2, got label 255 of example 3",
                 "{.ignored_label = 255} and nn::softmax_cross_entropy{.ignored_label = 255}"});
  require_parts(message_of_mistake([&] { trainer.fit(ignoring_loader, {}); }),
                {"softmax_cross_entropy: expected labels in [0, 3), got 255",
                 "if 255 is no class, write nn::softmax_cross_entropy{.ignored_label = 255}"});
  corrected_network ignores = make_corrected_network(device, 3, nn::softmax_cross_entropy{.ignored_label = 255});
  train::trainer right_trainer{ignores, optim::sgd{}};
  BOOST_TEST(message_of_mistake([&] { right_trainer.fit(ignoring_loader, {}); }) == "no error");
  y[3] = -1;
  require_parts(message_of_mistake([&] { right_trainer.fit(ignoring_loader, {}); }),
                {"expected labels from 0 to 2 or the ignored label 255, got label -1"});
}

// Unless a loss of the program overrides targets(), it reads a class for each example.
BOOST_AUTO_TEST_CASE(a_loss_of_ones_own_without_targets) {
  const std::vector<float> x(16 * 16);
  const std::vector<float> y(16);
  const std::vector<std::int32_t> pixels(16 * 4, 1);
  const auto inputs = data::examples_of(std::span{x}, {1, 1, 4, 4});
  const auto real = data::in_memory(inputs, data::examples_of(std::span{y}, {1, 1, 1, 1}));
  const auto of_pixels = data::in_memory(inputs, data::examples_of(std::span{pixels}, {1, 1, 2, 2}));
  corrected_loader real_loader{device, real, {.global_batch_size = 8}};
  corrected_loader pixel_loader{device, of_pixels, {.global_batch_size = 8}};
  corrected_network net = make_corrected_network(device, 1, gradus_test::half_squares{});
  train::trainer trainer{net, optim::sgd{}};
  require_parts(message_of_mistake([&] { trainer.fit(real_loader, {}); }),
                {"as the loss half_squares reads it", "override targets() and return {.labels = 0, .values = scores}"});
  require_parts(message_of_mistake([&] { trainer.fit(pixel_loader, {}); }),
                {"as the loss half_squares reads it", "override targets() and return {.labels = height * width"});
  BOOST_TEST(message_of_mistake([&] { trainer.fit(right, {}); }) == "no error");
  corrected_network classes = make_corrected_network(device);
  train::trainer other_trainer{classes, optim::sgd{}};
  require_parts(message_of_mistake([&] { other_trainer.fit(real_loader, {}); }),
                {"as the loss softmax_cross_entropy reads it", "end the network with a loss of real targets"});
}

BOOST_AUTO_TEST_CASE(progress_writes_nothing_before_ranks_agree_and_ends_its_line) {
  const auto written = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    corrected_loaders own;
    corrected_network net = make_corrected_network(own.device);
    train::trainer trainer{net, optim::sgd{}, world};
    shown_text shown;
    const auto show = [&](bool terminal) { return train::progress{{.output = shown.file(), .terminal = terminal}}; };
    (void)message_of_mistake([&] { trainer.fit(own.right, {.epochs = world.rank() + 1}, show(true)); });
    (void)message_of_mistake([&] { trainer.fit(world.rank() == 1 ? own.other : own.right, {}, show(false)); });
    const std::string before = shown.read();
    (void)message_of_mistake([&] {
      trainer.fit(own.right, {.epochs = 2}, show(true), [](const train::epoch_report& epoch) {
        if (epoch.epoch == 0) {
          throw gradus::configuration_error{"callback", "no second epoch", "one"};
        }
      });
    });
    return std::vector<std::string>{before, shown.read()};
  });
  BOOST_TEST(written[0][0].empty());
  BOOST_TEST(written[1][0].empty());
  BOOST_TEST(written[1][1].empty());
  BOOST_TEST(written[0][1].ends_with("\n"));

  corrected_network net = make_corrected_network(device);
  train::trainer trainer{net, optim::sgd{}};
  shown_text bar;
  BOOST_CHECK_THROW(trainer.fit(right, {}, train::progress{{.output = bar.file(), .terminal = true}},
                                [](const train::step_report& step) {
                                  if (step.step_in_epoch == 1) {
                                    throw std::runtime_error{"in a callback"};
                                  }
                                }),
                    std::runtime_error);
  BOOST_TEST(bar.read().ends_with("left\n"), bar.read());
  shown_text whole;
  trainer.fit(right, {}, train::progress{{.output = whole.file(), .terminal = true}});
  BOOST_TEST((whole.read().ends_with(" s\n") && !whole.read().ends_with("\n\n")), whole.read());
}

BOOST_AUTO_TEST_CASE(a_regression_has_no_accuracy) {
  const std::vector<float> x(16 * 16, 1.0F);
  const std::vector<float> y(16, 2.0F);
  const auto set =
      data::in_memory(data::examples_of(std::span{x}, {1, 1, 4, 4}), data::examples_of(std::span{y}, {1, 1, 1, 1}));
  corrected_loader loader{device, set, {.global_batch_size = 8}};
  corrected_network net = make_corrected_network(device, 1, nn::mean_squared_error{});
  train::trainer trainer{net, optim::sgd{}};
  for (const bool terminal : {false, true}) {
    shown_text shown;
    trainer.fit(loader, {}, train::evaluate_every{loader},
                train::progress{{.output = shown.file(), .terminal = terminal}});
    BOOST_TEST(shown.read().find("test loss") != std::string::npos, shown.read());
    BOOST_TEST(shown.read().find("accuracy") == std::string::npos, shown.read());
  }
  const auto report = trainer.evaluate(loader);
  BOOST_TEST(report.labels == 0);
  BOOST_TEST(report.accuracy == 0.0);
}

BOOST_AUTO_TEST_SUITE_END()
