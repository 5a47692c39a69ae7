// SPDX-License-Identifier: BSL-1.0
//
// Early stopping: which epochs count, on several ranks and in a training that goes on; the best checkpoint is found.
#include "gradus/train/early_stopping.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <unistd.h>  // getpid

#include "../../support/training_runs.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/checkpoint/search.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/train/callback_state.hpp"

namespace {

namespace train = gradus::train;

/// The number of epochs until it stops, or all.
int epochs_until_stop(train::early_stopping& stop, const std::vector<double>& losses) {
  int epochs = 0;
  for (const double loss : losses) {
    ++epochs;
    if (stop.on_epoch({.loss = loss}) == train::flow::stop) {
      break;
    }
  }
  return epochs;
}

std::string complaint_about(const train::early_stopping_options& options) {
  try {
    const train::early_stopping stop{options};
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(stopping_early)

BOOST_AUTO_TEST_CASE(counts_epochs_in_a_row_without_improvement) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto check = [](const train::early_stopping_options& options, const std::vector<double>& losses, int epochs,
                        int best_epoch) {
    train::early_stopping stop{options};
    BOOST_TEST(epochs_until_stop(stop, losses) == epochs);
    BOOST_TEST(stop.stopped() == (epochs < static_cast<int>(losses.size())));
    BOOST_TEST(stop.best_epoch() == best_epoch);
  };
  check({.patience = 1}, {3, 2, 2, 1, 1}, 3, 1);
  check({.patience = 2}, {3, 2, 2, 1, 2, 1, 0}, 6, 3);
  check({.patience = 2, .threshold = 0.5}, {3, 2.6, 2.5, 0, 0}, 3, 0);
  check({.patience = 2, .first = 3}, {1, 2, 2, 2, 2, 2}, 5, 0);
  check({.patience = 2, .maximize = true}, {1, 2, 1, 1, 5}, 4, 1);
  check({.patience = 2}, {nan, nan, 1}, 2, -1);
  check({.patience = 3}, {3, 2, 1}, 3, 2);
}

BOOST_AUTO_TEST_CASE(a_state_goes_on_and_a_stop_gives_new_patience) {
  train::early_stopping first{{.patience = 3}};
  BOOST_TEST(epochs_until_stop(first, {2, 3, 3}) == 3);
  train::callback_state state;
  first.save_state(state);
  train::early_stopping second{{.patience = 3}};
  second.load_state(state);
  BOOST_TEST(second.best() == 2.0);
  BOOST_TEST(epochs_until_stop(second, {3, 3, 3}) == 1);
  BOOST_TEST(epochs_until_stop(second, {3, 3, 3, 3}) == 3);
  BOOST_TEST(second.best_epoch() == 0);

  train::callback_state damaged;
  const double numbers[] = {1, 1e300, 0, 0};
  damaged.put("early_stopping", numbers);
  BOOST_CHECK_THROW(second.load_state(damaged), gradus::format_error);
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  BOOST_TEST(complaint_about({.patience = 0}).find("patience of at least 1") != std::string::npos);
  BOOST_TEST(complaint_about({.first = -1}).find("first = -1") != std::string::npos);
  BOOST_TEST(complaint_about({.threshold = -1}).find("threshold = -1") != std::string::npos);
  BOOST_TEST(complaint_about({.metric = nullptr}).find("a metric") != std::string::npos);
}

// The second epoch is the best; training ends two epochs later, and the file of the second epoch has its weights.
BOOST_AUTO_TEST_CASE(all_ranks_stop_and_the_best_checkpoint_is_found) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("gradus_early_stopping_" + std::to_string(::getpid()))).string();
  std::filesystem::remove_all(folder);
  BOOST_TEST(!gradus::io::find_best(folder).found());
  const auto ranks = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<double, gradus::nhwc> loader{
        device, gradus_test::small_dataset(), {.global_batch_size = 32, .seed = 11}};
    gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 32, .seed = 11});
    train::trainer trainer{net, gradus::optim::sgd{}, world};
    train::early_stopping stop{{.patience = 2}};
    std::vector<double> best;
    trainer.fit(
        loader, {.epochs = 9, .learning_rate = 0.01},
        [&](train::epoch_report& epoch) {
          epoch.evaluation = train::evaluation_report{.loss = epoch.epoch == 1 ? 1.0 : 2.0};
          if (epoch.epoch == 1) {
            best.assign(net.values().begin(), net.values().end());
          }
        },
        stop, train::checkpoints{folder, {.keep = 1, .best = train::best_epoch::loss, .signals = false}});
    best.push_back(static_cast<double>(trainer.steps()));
    best.push_back(stop.best_epoch());
    return best;
  });
  std::vector<double> best = ranks.front();
  BOOST_TEST((ranks.front() == ranks.back()));
  BOOST_TEST(best.back() == 1);
  best.pop_back();
  BOOST_TEST(best.back() == 8);  // 4 epochs of 2 steps
  best.pop_back();
  const gradus::io::checkpoint_report found = gradus::io::find_best(folder);
  BOOST_TEST(found.step == 4);
  BOOST_TEST(gradus::io::find_newest(folder).step == 8);
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 1});
  gradus::io::load_weights(net, found.path);
  BOOST_TEST((std::vector<double>(net.values().begin(), net.values().end()) == best));
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_SUITE_END()
