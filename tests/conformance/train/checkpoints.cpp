// SPDX-License-Identifier: BSL-1.0
//
// A training that is saved to files and goes on from them in a new trainer: with every strategy, on other numbers of
// ranks and in another layout, after a signal, after failed saves.
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/link_of.hpp"

#include <sched.h>   // unshare
#include <unistd.h>  // chdir

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/state_runs.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace io = gradus::io;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;

struct checkpoint_folder {
  std::string path = (std::filesystem::temp_directory_path() / "gradus_test_checkpoints").string();
  checkpoint_folder() { std::filesystem::remove_all(path); }
  ~checkpoint_folder() { std::filesystem::remove_all(path); }

  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& each : std::filesystem::directory_iterator{path}) {
      names.push_back(each.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

/// What a rank has at the end of a training.
struct saved_outcome {
  std::vector<float> values;
  std::vector<float> buffers;
  std::vector<double> losses;  // of the epochs
  std::uint64_t steps = 0;
  io::checkpoint_report resumed;
  int signal_step = -1;
  std::vector<std::string> failures;
};

/// While it lives, this thread, and those that it starts, have a current folder of their own, as if they were on a node
/// whose memory only they see.
class own_current_folder {
 public:
  explicit own_current_folder(const std::string& path) {
    std::filesystem::create_directories(path);
    if (::unshare(CLONE_FS) != 0 || ::chdir(path.c_str()) != 0) {
      throw std::runtime_error{"a thread needs a current folder of its own"};
    }
  }
  own_current_folder(const own_current_folder&) = delete;
  own_current_folder& operator=(const own_current_folder&) = delete;
  ~own_current_folder() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

struct saved_run {
  int epochs = 3;
  train::checkpoint_options options{};
  bool resumes = false;
  std::uint64_t raise_after = 0;  // the last rank gets a signal in this step
  int signal = SIGUSR1;
  std::uint64_t break_folder_after = 0;  // the folder becomes a file
  bool evaluates = false;
  std::string memory_of_node{};  // the start of its path; ranks are in turn on two nodes
  bool nodes_apart = false;      // a node does not see the memory of the other
};

/// 7 steps an epoch.
template <class Layout, class Rule, class Strategy>
saved_outcome train_and_save(comm::threads& world, const std::string& folder, const Rule& rule,
                             const Strategy& strategy, const saved_run& run) {
  const std::string node = std::to_string(world.rank() % 2);
  std::optional<own_current_folder> apart;
  if (run.nodes_apart) {
    apart.emplace(run.memory_of_node + node);
  }
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, Layout> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  gradus::nn::network<float, Layout> net{device, {2, 9, 8}};
  gradus_test::build_network_with_statistics(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, rule, world, strategy};
  saved_outcome outcome;
  train::checkpoint_options options = run.options;
  std::vector<std::string> folders{folder};
  if (!run.memory_of_node.empty()) {
    options.memory_folder = run.nodes_apart ? "of_node" + node : run.memory_of_node + node;
    folders.push_back(options.memory_folder);
  }
  if (run.resumes) {
    outcome.resumed = trainer.resume(folders);
  }
  options.on_error = [&](const std::string& text) { outcome.failures.push_back(text); };
  train::checkpoints saving{folder, options};
  const auto disturb = [&](const train::step_report& step) {
    if (run.raise_after != 0 && step.step + 1 == run.raise_after && world.rank() + 1 == world.size()) {
      static_cast<void>(std::raise(run.signal));
    }
    if (run.break_folder_after != 0 && step.step + 1 == run.break_folder_after && world.rank() == 0) {
      std::filesystem::rename(folder, folder + "_before");  // a save may go on in it
      std::ofstream{folder} << "no folder";
      std::filesystem::remove_all(folder + "_before");
    }
  };
  const auto note = [&](const train::epoch_report& epoch) { outcome.losses.push_back(epoch.loss); };
  try {
    trainer.fit(loader, {.epochs = run.epochs, .learning_rate = 0.05}, disturb, note, saving);
  } catch (const train::interrupted& stop) {
    outcome.signal_step = static_cast<int>(trainer.steps());
    BOOST_TEST_MESSAGE(stop.what());
  }
  for (const auto& each : net.parameters()) {
    const auto values = each.copy_values();
    outcome.values.insert(outcome.values.end(), values.begin(), values.end());
  }
  outcome.buffers.assign(net.buffer_values().begin(), net.buffer_values().end());
  outcome.steps = trainer.steps();
  return outcome;
}

template <class Layout = gradus::nhwc, class Rule = optim::adam, class Strategy = parallel::all_reduce>
std::vector<saved_outcome> on_thread_ranks(int ranks, const std::string& folder, const saved_run& run,
                                           const Rule& rule = {}, const Strategy& strategy = {}) {
  return comm::run_ranks(
      ranks, [&](comm::threads& world) { return train_and_save<Layout>(world, folder, rule, strategy, run); });
}

void check_equal(const std::vector<saved_outcome>& resumed, const std::vector<saved_outcome>& whole) {
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    BOOST_TEST_CONTEXT("rank " << rank) {
      BOOST_TEST((resumed[rank].values == whole[rank].values));
      BOOST_TEST((resumed[rank].buffers == whole[rank].buffers));
      BOOST_TEST(resumed[rank].steps == whole[rank].steps);
      BOOST_TEST(resumed[rank].losses.back() == whole[rank].losses.back());
      BOOST_TEST(resumed[rank].failures.empty());
    }
  }
}

/// The largest distance of values over the largest of them.
[[nodiscard]] double apart(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 1e-30;
  double worst = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst / largest;
}

template <class Rule, class Strategy>
void check_strategy(int ranks, const Rule& rule, const Strategy& strategy) {
  const checkpoint_folder folder;
  const auto whole =
      on_thread_ranks<gradus::nhwc>(ranks, folder.path, {.epochs = 3, .options = {.every = 5}}, rule, strategy);
  // 5, 10, 15 and 20 were saved; the last three are kept.
  BOOST_TEST(folder.files() == (std::vector<std::string>{"step-000000010.safetensors", "step-000000015.safetensors",
                                                         "step-000000020.safetensors"}),
             boost::test_tools::per_element());
  for (const char* newest : {"step-000000020.safetensors", "step-000000015.safetensors"}) {
    const auto resumed = on_thread_ranks<gradus::nhwc>(
        ranks, folder.path, {.epochs = 3, .options = {.every = 1000}, .resumes = true}, rule, strategy);
    BOOST_TEST(resumed[0].resumed.path == folder.path + "/" + newest);
    check_equal(resumed, whole);
    std::filesystem::remove(folder.path + "/" + newest);
  }
}

/// Trains 7 steps with a trainer that is made with an optimizer_step, and returns what its saves, one after each step,
/// cost a rank.
std::vector<train::checkpoint_cost> save_with_optimizer_step(comm::threads& world, const std::string& folder,
                                                             bool behind) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_network_with_statistics(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  const auto parameters = train::trained_parameters_of(net);
  optim::parameter_update_of<optim::adam, float> rule{
      device, {}, static_cast<gradus::index_t>(parameters.values.size())};
  parallel::all_reduce::state<float> strategy{{}, world, parameters.flat()};
  comm::link_of all{world};
  train::optimizer_step_of<float> end{parameters, rule, strategy, all};
  end.start();
  train::trainer trainer{net, end, end.group()};
  std::vector<train::checkpoint_cost> costs;
  train::checkpoints saving{folder, {.every = 1, .on_save = [&](const auto& cost) { costs.push_back(cost); }}};
  if (behind) {
    saving.write_behind(world);
  }
  trainer.fit(loader, {.epochs = 1, .learning_rate = 0.05}, saving);
  return costs;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(checkpoints_of_trainings)

BOOST_AUTO_TEST_CASE(the_cost_of_each_save_is_reported_once) {
  const checkpoint_folder folder;
  std::vector<std::vector<train::checkpoint_cost>> costs(2);
  comm::run_ranks(2, [&](comm::threads& world) {
    auto& own = costs[static_cast<std::size_t>(world.rank())];
    train_and_save<gradus::nhwc>(
        world, folder.path, optim::adam{}, parallel::all_reduce{},
        {.epochs = 2, .options = {.every = 3, .on_save = [&](const auto& cost) { own.push_back(cost); }}});
  });
  for (const auto& own : costs) {
    BOOST_REQUIRE(own.size() == 4U);  // of 14 steps
    for (std::size_t i = 0; i < own.size(); ++i) {
      BOOST_TEST(own[i].save.step == static_cast<std::int64_t>(3 * (i + 1)));
      BOOST_TEST(own[i].save.paths.size() == 1U);
      BOOST_TEST(own[i].save.bytes > 0U);
      BOOST_TEST(own[i].snapshot > 0);
      BOOST_TEST(own[i].wait >= 0);
      BOOST_TEST(own[i].save.seconds > 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(failed_saves_are_reported_too) {
  const checkpoint_folder folder;
  std::vector<train::checkpoint_cost> costs;
  comm::run_ranks(1, [&](comm::threads& world) {
    train_and_save<gradus::nhwc>(world, folder.path, optim::adam{}, parallel::all_reduce{},
                                 {.epochs = 1,
                                  .options = {.every = 2, .on_save = [&](const auto& cost) { costs.push_back(cost); }},
                                  .break_folder_after = 3});
  });
  BOOST_REQUIRE(costs.size() == 3U);
  for (std::size_t i = 1; i < costs.size(); ++i) {  // the first may have ended before
    BOOST_TEST(costs[i].save.error != "");
    BOOST_TEST(costs[i].save.paths.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_trainer_of_an_optimizer_step_writes_between_steps_or_behind_them) {
  for (const bool behind : {false, true}) {
    const checkpoint_folder folder;
    const auto costs =
        comm::run_ranks(2, [&](comm::threads& world) { return save_with_optimizer_step(world, folder.path, behind); });
    BOOST_TEST(folder.files().size() == 3U);
    for (const auto& own : costs) {
      BOOST_TEST(own.size() == 7U);
      const bool waited =
          std::all_of(own.begin(), own.end(), [](const auto& each) { return each.snapshot >= each.save.seconds; });
      BOOST_TEST(waited == !behind);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_strategy_goes_on_to_the_bit) {
  check_strategy(1, optim::adam{}, parallel::all_reduce{});
  check_strategy(2, optim::sgd{.momentum = 0.9}, parallel::all_reduce{});
  check_strategy(3, optim::adam{}, parallel::sharded_update{});
  check_strategy(2, optim::sgd{.momentum = 0.9}, parallel::model_averaging{.every_steps = 4});
  check_strategy(2, optim::adam{}, parallel::parameter_server{.servers = 1, .colocate = true});
}

BOOST_AUTO_TEST_CASE(other_ranks_and_another_layout_go_on_to_rounding) {
  const checkpoint_folder folder;
  const optim::sgd rule{.momentum = 0.9};
  const auto whole = on_thread_ranks(2, folder.path, {.epochs = 2, .options = {.every = 9, .keep = 1}}, rule);
  for (const int ranks : {1, 3}) {
    const auto resumed =
        on_thread_ranks(ranks, folder.path, {.epochs = 2, .options = {.every = 1000}, .resumes = true}, rule);
    BOOST_TEST(resumed[0].steps == whole[0].steps);
    BOOST_TEST(resumed[0].resumed.step == 9);
  }
  const auto resumed =
      on_thread_ranks<gradus::nchw>(2, folder.path, {.epochs = 2, .options = {.every = 1000}, .resumes = true}, rule);
  BOOST_TEST(apart(resumed[0].values, whole[0].values) < 1e-4);
  BOOST_TEST(std::abs(resumed[0].losses.back() - whole[0].losses.back()) < 1e-4);
}

BOOST_AUTO_TEST_CASE(a_signal_on_one_rank_saves_on_all) {
  const checkpoint_folder folder;
  const auto whole = on_thread_ranks(2, folder.path + "_none", {.epochs = 2});
  std::filesystem::remove_all(folder.path + "_none");
  for (const int number : {SIGUSR1, SIGTERM}) {
    std::filesystem::remove_all(folder.path);
    const auto stopped =
        on_thread_ranks(2, folder.path, {.epochs = 2, .options = {.every = 1000}, .raise_after = 5, .signal = number});
    BOOST_TEST(stopped[0].signal_step == stopped[1].signal_step);
    BOOST_TEST(stopped[0].signal_step >= 5);
    BOOST_TEST(folder.files().size() == 1U);
    const auto resumed = on_thread_ranks(2, folder.path, {.epochs = 2, .options = {.every = 1000}, .resumes = true});
    BOOST_TEST(resumed[0].resumed.step == stopped[0].signal_step);
    check_equal(resumed, whole);
  }
  BOOST_TEST(train::interrupted::exit_code == 75);
}

// Workers whose reports, sums and signals are their own save and end together all the same.
BOOST_AUTO_TEST_CASE(workers_that_do_not_wait_for_each_other_save_together) {
  const parallel::parameter_server servers{.servers = 1, .colocate = true, .mode = parallel::server_mode::asynchronous};
  const optim::sgd rule{.momentum = 0.5};
  const checkpoint_folder folder;
  const auto whole = on_thread_ranks<gradus::nhwc>(
      3, folder.path, {.epochs = 2, .options = {.every = 5, .keep = 9, .best = train::best_epoch::loss}}, rule,
      servers);
  BOOST_TEST(folder.files().size() >= 3U);  // steps 5 and 10, and one or both ends of epochs
  BOOST_TEST(std::filesystem::exists(folder.path + "/step-000000005.safetensors"));
  BOOST_TEST(std::filesystem::exists(folder.path + "/step-000000010.safetensors"));
  const auto stopped = on_thread_ranks<gradus::nhwc>(
      3, folder.path, {.epochs = 4, .options = {.every = 5, .keep = 9}, .resumes = true, .raise_after = 18}, rule,
      servers);
  const auto at_end =
      on_thread_ranks<gradus::nhwc>(3, folder.path, {.epochs = 5, .resumes = true, .raise_after = 32}, rule, servers);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    BOOST_TEST(whole[rank].failures.empty());
    BOOST_TEST(stopped[rank].failures.empty());
    BOOST_TEST(stopped[rank].signal_step == 20);  // where they meet
    BOOST_TEST(at_end[rank].resumed.step == 20);
    BOOST_TEST(at_end[rank].signal_step == 35);  // at the end of the epoch
    BOOST_TEST((at_end[rank].values.size() == whole[rank].values.size()));
  }
}

BOOST_AUTO_TEST_CASE(the_best_epoch_is_kept) {
  const checkpoint_folder folder;
  const auto whole =
      on_thread_ranks(2, folder.path, {.epochs = 5, .options = {.keep = 1, .best = train::best_epoch::loss}});
  const auto best = std::min_element(whole[0].losses.begin(), whole[0].losses.end()) - whole[0].losses.begin();
  char name[64];
  std::snprintf(name, sizeof(name), "step-%09d.safetensors", static_cast<int>(7 * (best + 1)));
  BOOST_TEST(std::filesystem::exists(folder.path + "/" + name));
  BOOST_TEST(std::filesystem::exists(folder.path + "/step-000000035.safetensors"));
}

BOOST_AUTO_TEST_CASE(a_folder_that_goes_away_is_reported_and_training_goes_on) {
  const checkpoint_folder folder;
  const auto undisturbed = on_thread_ranks(2, folder.path + "_none", {.epochs = 2});
  std::filesystem::remove_all(folder.path + "_none");
  const auto broken = on_thread_ranks(2, folder.path, {.epochs = 2, .options = {.every = 3}, .break_folder_after = 4});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    BOOST_TEST((broken[rank].values == undisturbed[rank].values));
    BOOST_TEST(!broken[rank].failures.empty());
    for (const std::string& each : broken[rank].failures) {
      BOOST_TEST_MESSAGE(each);
      BOOST_TEST(each.find("is not saved") != std::string::npos);
      BOOST_TEST(each.find(folder.path) != std::string::npos);
    }
  }
  std::filesystem::remove(folder.path);
}

BOOST_AUTO_TEST_CASE(a_damaged_file_is_skipped) {
  const checkpoint_folder folder;
  const auto whole = on_thread_ranks(2, folder.path, {.epochs = 2, .options = {.every = 5}});
  const std::string newest = folder.path + "/step-000000010.safetensors";
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 1);
  const auto resumed = on_thread_ranks(2, folder.path, {.epochs = 2, .options = {.every = 1000}, .resumes = true});
  BOOST_TEST(resumed[0].resumed.step == 5);
  BOOST_REQUIRE(resumed[0].resumed.skipped.size() == 1U);
  BOOST_TEST(resumed[0].resumed.skipped[0].path == newest);
  check_equal(resumed, whole);
}

BOOST_AUTO_TEST_CASE(saves_in_memory_in_between) {
  const checkpoint_folder folder;
  const std::string memory = folder.path + "_memory";
  std::filesystem::remove_all(memory);
  const auto whole = on_thread_ranks(
      2, folder.path, {.epochs = 2, .options = {.every = 6, .memory_folder = memory, .memory_every = 2}});
  BOOST_TEST(folder.files() == (std::vector<std::string>{"step-000000006.safetensors", "step-000000012.safetensors"}),
             boost::test_tools::per_element());
  BOOST_TEST(std::filesystem::exists(memory + "/step-000000014.safetensors"));
  const std::vector<std::string> both{folder.path, memory};
  const auto report = io::find_newest(both);
  BOOST_TEST(report.step == 14);
  std::filesystem::remove_all(memory);
}

BOOST_AUTO_TEST_CASE(saves_on_the_file_system_at_the_same_steps_whatever_it_goes_on_from) {
  const checkpoint_folder folder;
  const std::string memory = folder.path + "_memory";
  std::filesystem::remove_all(memory);
  saved_run run{.epochs = 2, .options = {.every = 6, .memory_folder = memory, .memory_every = 2}, .raise_after = 8};
  BOOST_TEST(on_thread_ranks(2, folder.path, run)[0].signal_step == 8);
  run.raise_after = 0;
  run.resumes = true;
  on_thread_ranks(2, folder.path, run);
  BOOST_TEST(folder.files() == (std::vector<std::string>{"step-000000006.safetensors", "step-000000008.safetensors",
                                                         "step-000000012.safetensors"}),
             boost::test_tools::per_element());
  std::filesystem::remove_all(memory);
}

BOOST_AUTO_TEST_CASE(a_training_goes_on_from_the_memory_of_the_node_that_is_left) {
  const checkpoint_folder folder;
  const std::string memory = folder.path + "_memory";
  const auto remove_memory = [&] {
    for (const char* const node : {"0", "1"}) {
      std::filesystem::remove_all(memory + node);
    }
  };
  const saved_run first{.epochs = 2, .options = {.every = 6, .memory_every = 2}, .memory_of_node = memory};
  for (const int lost : {0, 1}) {
    remove_memory();
    std::filesystem::remove_all(folder.path);
    const auto whole = on_thread_ranks(2, folder.path, first);
    BOOST_TEST(whole[0].failures.empty());
    for (const std::string node : {"0", "1"}) {  // the steps that follow are of an epoch that is not over
      BOOST_TEST(std::filesystem::remove(memory + node + "/step-000000014.safetensors"));
      BOOST_TEST(std::filesystem::exists(memory + node + "/step-000000012.safetensors"));
    }
    std::filesystem::remove(folder.path + "/step-000000012.safetensors");
    std::filesystem::remove_all(memory + std::to_string(lost));
    saved_run second = first;
    second.resumes = true;
    second.options.every = 1000;
    const auto resumed = on_thread_ranks(2, folder.path, second);
    BOOST_TEST(resumed[0].resumed.path == memory + std::to_string(1 - lost) + "/step-000000012.safetensors");
    BOOST_TEST(resumed[0].resumed.node.starts_with("rank " + std::to_string(1 - lost) + " on '"));
    check_equal(resumed, whole);
    const auto on_three = on_thread_ranks(3, folder.path, second);
    BOOST_TEST(on_three[0].resumed.step == 14);
    BOOST_TEST((on_three[0].values == whole[0].values));
  }
  remove_memory();
}

// All nodes have the newest step, under paths of their own.
BOOST_AUTO_TEST_CASE(a_training_goes_on_from_memory_whose_path_differs_between_nodes) {
  const checkpoint_folder folder;
  const std::string memory = folder.path + "_memory";
  const saved_run first{
      .epochs = 2, .options = {.every = 6, .memory_every = 2}, .memory_of_node = memory, .nodes_apart = true};
  const auto whole = on_thread_ranks(2, folder.path, first);
  BOOST_TEST(whole[0].failures.empty());
  for (const std::string node : {"0", "1"}) {
    BOOST_TEST(std::filesystem::exists(memory + node + "/of_node" + node + "/step-000000014.safetensors"));
    BOOST_TEST(std::filesystem::remove(memory + node + "/of_node" + node + "/step-000000014.safetensors"));
  }
  std::filesystem::remove_all(folder.path);
  saved_run second = first;
  second.resumes = true;
  second.options.every = 1000;
  const auto resumed = on_thread_ranks(2, folder.path, second);
  BOOST_TEST(resumed[0].resumed.path == "of_node0/step-000000012.safetensors");
  BOOST_TEST(resumed[0].resumed.node.empty());
  check_equal(resumed, whole);
  for (const char* const node : {"0", "1"}) {
    std::filesystem::remove_all(memory + node);
  }
}

BOOST_AUTO_TEST_CASE(ranks_with_different_signals_agree_on_one_that_has_come) {
  for (const auto& [of_ranks, expected] :
       {std::pair{std::vector{SIGTERM, SIGUSR1}, SIGTERM}, std::pair{std::vector{SIGUSR1, SIGTERM, 0}, SIGTERM},
        std::pair{std::vector{0, SIGUSR1, SIGUSR1}, SIGUSR1}, std::pair{std::vector{0, 0}, 0},
        std::pair{std::vector{SIGUSR1}, SIGUSR1}}) {
    const auto agreed = comm::run_ranks(static_cast<int>(of_ranks.size()), [&](comm::threads& world) {
      comm::link_of<comm::threads> group{world};
      return train::detail::agreed_signal(group, of_ranks[static_cast<std::size_t>(world.rank())]);
    });
    for (const int each : agreed) {
      BOOST_TEST(each == expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  BOOST_CHECK_THROW((train::checkpoints{"folder", {.keep = 0}}), gradus::configuration_error);
  BOOST_CHECK_THROW((train::checkpoints{"folder", {.every = 7, .memory_folder = "/dev/shm/x", .memory_every = 2}}),
                    gradus::configuration_error);
  BOOST_CHECK_THROW((train::checkpoints{"folder", {.every = 7, .memory_every = 7}}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_another_rule_changes_nothing) {
  const checkpoint_folder folder;
  static_cast<void>(on_thread_ranks(2, folder.path, {.epochs = 1}));
  BOOST_CHECK_THROW(
      static_cast<void>(on_thread_ranks(2, folder.path, {.epochs = 1, .resumes = true}, optim::sgd{.momentum = 0.9})),
      gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
