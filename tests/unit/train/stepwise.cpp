// SPDX-License-Identifier: BSL-1.0
//
// A training that goes on step by step is a fit: the same steps, reports, rates and weights.
#include "gradus/train/stepwise.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"
#include "training_runs.hpp"

BOOST_AUTO_TEST_SUITE(stepwise_training)

namespace {

namespace comm = gradus::comm;
namespace train = gradus::train;
using gradus::index_t;
using std::chrono_literals::operator""ms;

using stepped_network = gradus::nn::network<double, gradus::nhwc>;

/// The calls of callbacks, in order.
struct told {
  std::vector<std::string> what;

  void on_start(const train::run_information& run) { what.push_back("start " + std::to_string(run.ranks)); }
  void on_step(const train::step_report& step) {
    what.push_back("step " + std::to_string(step.step) + " " + std::to_string(step.epoch) + " " +
                   std::to_string(step.step_in_epoch) + " " + std::to_string(step.learning_rate) + " " +
                   std::to_string(step.local_loss));
  }
  void on_epoch(const train::epoch_report& epoch) {
    what.push_back("epoch " + std::to_string(epoch.epoch) + " " + std::to_string(epoch.loss) + " " +
                   std::to_string(epoch.steps) + " " + std::to_string(epoch.examples));
  }
  void on_finish() { what.emplace_back("finish"); }
};

struct outcome {
  told reports;
  std::vector<double> weights;
};

const auto stepped_rate = gradus::optim::cosine{.initial = 0.01, .epochs = 3};
constexpr int stepped_epochs = 3;

/// @param body  trains: body(trainer, loader, told)
template <class Strategy, class Body>
outcome run_stepped(comm::threads& world, const Strategy& strategy, const Body& body) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<double, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 5}};
  stepped_network net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 3});
  train::trainer trainer{net, gradus::optim::adam{}, world, strategy};
  outcome result;
  body(trainer, loader, result.reports);
  result.weights.assign(net.values().begin(), net.values().end());
  return result;
}

template <class Strategy, class Body>
std::vector<outcome> on_ranks(int ranks, const Strategy& strategy, const Body& body) {
  std::vector<outcome> all(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::threads& world) {
    all[static_cast<std::size_t>(world.rank())] = run_stepped(world, strategy, body);
  });
  return all;
}

template <class Strategy>
void require_a_fit(const Strategy& strategy) {
  for (const int ranks : {1, 2, 4}) {
    const auto want = on_ranks(ranks, strategy, [](auto& trainer, auto& loader, told& reports) {
      trainer.fit(loader, {.epochs = stepped_epochs, .learning_rate = stepped_rate}, reports);
    });
    // In calls of several lengths, which do not divide an epoch of 7 steps, with other uses between them.
    for (const index_t most : {1, 3, 7, 100}) {
      const auto have = on_ranks(ranks, strategy, [most](auto& trainer, auto& loader, told& reports) {
        trainer.start(loader, {.epochs = stepped_epochs, .learning_rate = stepped_rate}, reports);
        index_t steps = 0;
        for (bool over = false; !over;) {
          const train::steps_report report = trainer.train_steps(most);
          over = report.over;
          steps += report.steps;
          static_cast<void>(trainer.evaluate(loader));  // of the training: it goes back to its batch
        }
        trainer.finish();
        if (steps != 21) {
          throw std::runtime_error{"expected 21 steps, got " + std::to_string(steps)};
        }
      });
      for (std::size_t rank = 0; rank < want.size(); ++rank) {
        BOOST_TEST(have[rank].reports.what == want[rank].reports.what, boost::test_tools::per_element());
        BOOST_TEST(have[rank].weights == want[rank].weights, "weights of steps by " << most);
      }
    }
  }
}

/// A training in one process.
struct one_process {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<double, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 5}};
  stepped_network net{device, {2, 9, 8}};
  std::optional<train::trainer<stepped_network>> trainer;  // a member, made when the network is

  one_process() {
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 3});
    trainer.emplace(net, gradus::optim::adam{});
  }

  [[nodiscard]] std::vector<double> weights() { return {net.values().begin(), net.values().end()}; }
};

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_are_those_of_a_fit) {
  require_a_fit(gradus::parallel::all_reduce{});
  require_a_fit(gradus::parallel::all_reduce{.overlap_forward = true});
  require_a_fit(gradus::parallel::sharded_update{});
  require_a_fit(gradus::parallel::reproducible<gradus::parallel::all_reduce>{.virtual_workers = 4});
}

// Of several ranks whose clocks differ: all make the same steps, and one slow rank ends the call of all.
BOOST_AUTO_TEST_CASE(ranks_agree_on_the_end_of_a_budget) {
  comm::run_ranks(3, [](comm::threads& world) {
    static_cast<void>(run_stepped(world, gradus::parallel::all_reduce{}, [&](auto& trainer, auto& loader, told&) {
      const auto slow = [&](const train::step_report&) { std::this_thread::sleep_for(world.rank() == 1 ? 20ms : 0ms); };
      trainer.start(loader, {}, slow);
      std::vector<double> numbers;
      for (const auto budget : {0ms, -5ms, 1ms, 50ms, world.rank() == 2 ? 50ms : 10000ms}) {
        const train::steps_report report = trainer.train_for(budget);
        numbers.push_back(static_cast<double>(report.steps));
      }
      std::vector<double> sum = numbers;
      trainer.communicator().link().sum(sum);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (sum[i] != 3 * numbers[i]) {
          throw std::runtime_error{"ranks have made other steps"};
        }
      }
      const bool some = numbers[2] == 1 && numbers[3] >= 1 && numbers[3] <= 3 && numbers[4] >= 1 && numbers[4] <= 3;
      if (numbers[0] != 0 || numbers[1] != 0 || !some) {
        throw std::runtime_error{"the number of steps does not fit the budget: " + std::to_string(numbers[2]) + ", " +
                                 std::to_string(numbers[3]) + ", " + std::to_string(numbers[4])};
      }
    }));
  });
}

BOOST_AUTO_TEST_CASE(predictions_between_calls_use_the_newest_weights_and_change_no_step) {
  one_process watched;
  one_process plain;
  gradus::image_tensor<double, gradus::nhwc> image{watched.device, {1, 2, 9, 8}};
  std::fill_n(image.data(), 144, 0.5);
  watched.trainer->start(watched.loader, {.learning_rate = 0.01});
  plain.trainer->start(plain.loader, {.learning_rate = 0.01});
  std::vector<double> before;
  for (int i = 0; i < 10; ++i) {
    watched.trainer->train_steps(2);
    plain.trainer->train_steps(2);
    const auto scores = gradus::nn::predict(watched.net, image);
    std::vector<double> now(scores.data(), scores.data() + 4);
    BOOST_TEST(now != before);
    before = std::move(now);
  }
  BOOST_TEST(watched.weights() == plain.weights());
  BOOST_TEST(watched.trainer->steps() == 20U);
}

BOOST_AUTO_TEST_CASE(a_training_goes_on_from_a_state_between_its_calls) {
  one_process run;
  train::training_state state;
  told reports;
  run.trainer->start(run.loader, {.learning_rate = stepped_rate}, reports);
  run.trainer->train_steps(9);
  train::capture(*run.trainer, state);
  reports.what.clear();
  run.trainer->train_steps(8);
  const std::vector<double> want = run.weights();
  const std::vector<std::string> told_before = std::exchange(reports.what, {});
  train::restore(*run.trainer, state);  // back
  run.trainer->train_steps(8);
  BOOST_TEST(run.weights() == want);
  BOOST_TEST(reports.what == told_before, boost::test_tools::per_element());

  one_process other;  // another process
  train::restore(*other.trainer, state);
  told others;
  other.trainer->start(other.loader, {.learning_rate = stepped_rate}, others);
  other.trainer->train_steps(8);
  BOOST_TEST(other.weights() == want);
}

BOOST_AUTO_TEST_CASE(callbacks_end_a_training) {
  one_process run;
  int finished = 0;
  struct stops {
    int* finished;
    train::flow on_epoch(const train::epoch_report& epoch) const {
      return epoch.epoch == 1 ? train::flow::stop : train::flow::go_on;
    }
    void on_finish() const { ++*finished; }
  };
  run.trainer->start(run.loader, {}, stops{&finished});  // a temporary is kept
  const train::steps_report report = run.trainer->train_steps(1000);
  BOOST_TEST(report.steps == 14);
  BOOST_TEST(report.over);
  BOOST_TEST(report.local_loss > 0);
  BOOST_TEST(report.seconds > 0);
  BOOST_TEST(finished == 1);
  BOOST_TEST(run.trainer->train_steps(1).steps == 0);
  run.trainer->finish();
  BOOST_TEST(finished == 1);

  run.trainer->start(run.loader, {}, stops{&finished});  // finish and fit end it
  run.trainer->train_steps(3);
  run.trainer->finish();
  BOOST_TEST(finished == 2);
  run.trainer->start(run.loader, {}, stops{&finished});
  run.trainer->train_steps(3);
  run.trainer->fit(run.loader, {.epochs = 1});
  BOOST_TEST(finished == 3);
  run.trainer->start(run.loader, {.epochs = 0}, stops{&finished});
  BOOST_TEST(run.trainer->train_steps(1).over);
}

BOOST_AUTO_TEST_CASE(mistakes_are_errors) {
  one_process run;
  BOOST_TEST(error_of([&] { run.trainer->train_steps(1); })
                 .find("trainer.train_steps: expected a training that has been "
                       "started, got none") == 0U);
  BOOST_TEST(error_of([&] { run.trainer->train_for(1ms); }).find("trainer.train_for: expected a training") == 0U);
  BOOST_TEST(error_of([&] { run.trainer->start(run.loader, {.epochs = -1}); }).find("epochs of at least 0") !=
             std::string::npos);
  int calls = 0;
  run.trainer->start(run.loader, {}, [&calls](const train::step_report&) {
    if (++calls == 2) {
      gradus::raise<gradus::configuration_error>("a callback", "nothing", "something");
    }
  });
  BOOST_TEST(error_of([&] { run.trainer->train_steps(5); }).find("a callback") == 0U);
  const std::string again = error_of([&] { run.trainer->train_steps(1); });
  BOOST_TEST(again.find("got one that has ended by an error") != std::string::npos);
  BOOST_TEST(again.find("stepwise.cpp") != std::string::npos);
  run.trainer->start(run.loader, {});
  BOOST_TEST(run.trainer->train_steps(5).steps == 5);
}

BOOST_AUTO_TEST_SUITE_END()
