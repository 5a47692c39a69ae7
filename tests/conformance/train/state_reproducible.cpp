// SPDX-License-Identifier: BSL-1.0
//
// Reproducible training that goes on from a state of any step, on any number of ranks and by any of its strategies, is
// the undisturbed one, to the bit.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "../../support/state_runs.hpp"
#include "../../support/waiting.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"

namespace reproducible_states {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;
using gradus_test::contains;
using gradus_test::rank_outcome;
using gradus_test::rank_states;

constexpr optim::adam plain_rule{};
constexpr optim::update<optim::adam> clipped_rule{.max_norm = 0.5};

struct resumable_run {
  const train::state_source* from = nullptr;
  train::training_state* to = nullptr;
  std::uint64_t capture_after = 0;       // steps
  bool capture_at_end_of_epoch = false;  // of the epoch in which these steps are reached
  bool evaluates = false;                // after every step
  std::string folder{};                  // of checkpoints, every 3 steps
  bool resumes = false;                  // from the folder
  int epochs = 3;
  gradus::index_t batch_size = 8;
};

/// With batches of 8: 7 steps an epoch; the last one has 5 examples, fewer than there are virtual workers.
template <class Strategy, class Communicator, class Rule = optim::adam>
rank_outcome run(Communicator& world, const Strategy& strategy, const resumable_run& how,
                 const Rule& rule = plain_rule) {
  if constexpr (requires { strategy.is_server_only(world); }) {
    if (strategy.is_server_only(world)) {
      static_cast<void>(parallel::serve<float>(world, rule, strategy));
      return {};
    }
  }
  using loader_type = gradus::data::loader<float, gradus::nhwc>;
  gradus::cpu device{{.intra_op_threads = 1}};
  loader_type loader{device, gradus_test::small_dataset(), {.global_batch_size = how.batch_size, .seed = 11}};
  loader_type test{device, gradus_test::small_dataset(), {.global_batch_size = 8, .shuffle = false, .seed = 11}};
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_network_with_statistics(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, rule, world, strategy};
  rank_outcome outcome;
  if (how.from != nullptr) {
    std::fill(net.values().begin(), net.values().end(), 0.25F);
    std::fill(net.buffer_values().begin(), net.buffer_values().end(), 9.0F);
    train::restore(trainer, *how.from);
  }
  if (how.resumes) {
    static_cast<void>(trainer.resume(how.folder));
  }
  const auto capture_now = [&](bool now) {
    if (how.to != nullptr && now) {
      train::capture(trainer, *how.to);
    }
  };
  struct recorder {
    std::function<void(const train::step_report&)> step;
    std::function<void(const train::epoch_report&)> epoch;
    void on_step(const train::step_report& report) { step(report); }
    void on_epoch(const train::epoch_report& report) { epoch(report); }
  } seen{
      [&](const train::step_report& step) {
        outcome.rates.push_back(step.learning_rate);
        if (how.evaluates) {
          outcome.epochs.push_back(trainer.evaluate(test).loss);
        }
        capture_now(step.step + 1 == how.capture_after && !how.capture_at_end_of_epoch);
      },
      [&](const train::epoch_report& epoch) {
        outcome.epochs.insert(outcome.epochs.end(), {epoch.loss, epoch.accuracy, static_cast<double>(epoch.examples)});
        if (epoch.gradient_norm) {
          outcome.epochs.insert(outcome.epochs.end(), {epoch.gradient_norm->mean, epoch.gradient_norm->largest});
        }
        outcome.numbers.push_back(epoch.epoch);
        capture_now(how.capture_at_end_of_epoch && how.to != nullptr && how.to->empty() &&
                    trainer.steps() >= how.capture_after);
      }};
  const train::fit_options options{.epochs = how.epochs, .learning_rate = 0.05};
  if (how.folder.empty()) {
    trainer.fit(loader, options, seen);
  } else {
    trainer.fit(loader, options, seen, train::checkpoints{how.folder, {.every = 3}});
  }
  for (const auto& each : net.parameters()) {  // without what is between them in memory
    const auto values = each.copy_values();
    outcome.values.insert(outcome.values.end(), values.begin(), values.end());
  }
  outcome.buffers.assign(net.buffer_values().begin(), net.buffer_values().end());
  outcome.steps = trainer.steps();
  return outcome;
}

using run_of_rank = std::function<resumable_run(int rank)>;

/// The workers' outcomes on thread ranks, of which the last `servers` only serve.
template <class Strategy, class Rule = optim::adam>
std::vector<rank_outcome> run_on(int workers, int servers, const Strategy& strategy, const run_of_rank& how,
                                 const Rule& rule = plain_rule) {
  auto outcomes = comm::run_ranks(workers + servers, [&](comm::threads& world) {
    return run(world, parallel::reproducible{strategy}, how(world.rank()), rule);
  });
  outcomes.resize(static_cast<std::size_t>(workers));
  return outcomes;
}

template <class Strategy, class Rule = optim::adam>
std::vector<rank_outcome> run_by_messages(int ranks, const Strategy& strategy, const run_of_rank& how,
                                          const Rule& rule = plain_rule) {
  return comm::run_ranks(ranks, [&](comm::threads& threads) {
    comm::collectives world{threads.duplicate()};
    return run(world, parallel::reproducible{strategy}, how(threads.rank()), rule);
  });
}

template <class Rule = optim::adam>
rank_outcome run_alone(const resumable_run& how = {}, const Rule& rule = plain_rule) {
  comm::self alone;
  return run(alone, parallel::reproducible{parallel::all_reduce{}}, how, rule);
}

void require(const std::vector<rank_outcome>& outcomes, const rank_outcome& whole, const std::string& how) {
  BOOST_TEST_CONTEXT(how << " on " << outcomes.size() << " ranks") {
    for (const rank_outcome& each : outcomes) {
      BOOST_TEST(each.difference(whole) == "");
    }
  }
}

/// States of ranks under several strategies after some steps, and what goes on from each.
/// @param servers  servers take part: they have no state of a rule that clips by the norm
template <class Rule>
void check_states(const Rule& rule, bool servers, std::uint64_t step, bool at_end,
                  const std::vector<int>& numbers_of_ranks, gradus::index_t batch_size = 8) {
  using parallel::parameter_server;
  const parallel::sharded_update small_buckets{.bucket_bytes = 500, .first_bucket_bytes = 100};
  const rank_outcome whole = run_alone({.batch_size = batch_size}, rule);
  BOOST_TEST(whole.steps == 3U * static_cast<std::uint64_t>((53 - 1) / batch_size + 1));
  const auto check = [&](int from, const auto& train_ranks) {
    rank_states states{from};
    const auto outcomes = train_ranks([&](int rank) {
      return resumable_run{.to = rank < from ? states.of_rank[static_cast<std::size_t>(rank)].get() : nullptr,
                           .capture_after = step,
                           .capture_at_end_of_epoch = at_end,
                           .batch_size = batch_size};
    });
    require(outcomes, whole, "captured after step " + std::to_string(step));  // a capture changes nothing
    const train::state_parts state = states.all(from);
    const std::string title = "from step " + std::to_string(step) + " of " + std::to_string(from) + " ranks, to ";
    const auto how = [&](int /*rank*/) { return resumable_run{.from = &state, .batch_size = batch_size}; };
    for (const int ranks : numbers_of_ranks) {
      require(run_on(ranks, 0, parallel::all_reduce{}, how, rule), whole, title + "all_reduce");
      require(run_on(ranks, 0, parallel::sharded_update{}, how, rule), whole, title + "sharded_update");
      require(run_by_messages(ranks, small_buckets, how, rule), whole, title + "sharded_update by messages");
      if (servers) {
        require(run_on(ranks, 1, parameter_server{.servers = 1}, how, rule), whole, title + "a server");
      }
    }
  };
  for (const int ranks : numbers_of_ranks) {
    check(ranks, [&](const run_of_rank& how) { return run_on(ranks, 0, parallel::all_reduce{}, how, rule); });
  }
  const int last = numbers_of_ranks.back();
  check(last, [&](const run_of_rank& how) { return run_on(last, 0, parallel::sharded_update{}, how, rule); });
  check(last, [&](const run_of_rank& how) { return run_by_messages(last, small_buckets, how, rule); });
  if (servers) {
    check(last, [&](const run_of_rank& how) { return run_on(last, 2, parameter_server{.servers = 2}, how, rule); });
  }
}

BOOST_AUTO_TEST_SUITE(states_of_reproducible_training)

BOOST_AUTO_TEST_CASE(go_on_within_an_epoch_to_the_bit) {
  check_states(plain_rule, true, 10, false, {1, 4});
}
BOOST_AUTO_TEST_CASE(go_on_after_the_first_step_to_the_bit) {
  check_states(plain_rule, true, 1, false, {2, 8});
}
BOOST_AUTO_TEST_CASE(go_on_after_the_last_step_of_an_epoch_to_the_bit) {
  check_states(plain_rule, true, 7, false, {1, 2});
}
BOOST_AUTO_TEST_CASE(go_on_at_the_end_of_an_epoch_to_the_bit) {
  check_states(plain_rule, true, 8, true, {1, 4});
}
// Two of the 8 virtual workers have no examples in full batches of 6, and others in the last one of 5.
BOOST_AUTO_TEST_CASE(of_workers_without_examples_go_on_to_the_bit) {
  check_states(plain_rule, false, 12, false, {1, 4}, 6);
}
BOOST_AUTO_TEST_CASE(of_clipped_gradients_go_on_to_the_bit) {
  check_states(clipped_rule, false, 9, false, {1, 4});
}

// The values under way arrive when the state is taken: the training that goes on does the same.
BOOST_AUTO_TEST_CASE(of_staged_servers_go_on_to_the_bit) {
  const parallel::parameter_server staged{.servers = 1, .staged = true};
  rank_states states{2};
  const auto whole = run_on(2, 1, staged, [&](int rank) {
    return resumable_run{.to = rank < 2 ? states.of_rank[static_cast<std::size_t>(rank)].get() : nullptr,
                         .capture_after = 10};
  });
  const train::state_parts state = states.all(2);
  require(run_on(4, 1, staged, [&](int /*rank*/) { return resumable_run{.from = &state}; }), whole.front(), "staged");
}

BOOST_AUTO_TEST_CASE(in_files_go_on_to_the_bit) {
  struct folder {
    std::string path = (std::filesystem::temp_directory_path() / "gradus_test_reproducible_states").string();
    folder() { std::filesystem::remove_all(path); }
    ~folder() { std::filesystem::remove_all(path); }
  } const files;
  const rank_outcome whole = run_alone();
  // Steps 3, 6, 9 and 12 are saved.
  static_cast<void>(run_on(2, 0, parallel::sharded_update{},
                           [&](int /*rank*/) { return resumable_run{.folder = files.path, .epochs = 2}; }));
  const auto resumed = run_on(4, 1, parallel::parameter_server{.servers = 1},
                              [&](int /*rank*/) { return resumable_run{.folder = files.path, .resumes = true}; });
  BOOST_TEST(resumed.front().rates.size() == 21U - 12U);
  require(resumed, whole, "files");
}

// A state that is captured again has the arrays of the moment, within an epoch and at its end.
BOOST_AUTO_TEST_CASE(can_be_taken_again_in_the_same_memory) {
  comm::self alone;
  train::training_state state;
  const parallel::reproducible strategy{parallel::all_reduce{}};
  std::vector<double> sums;
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_network_with_statistics(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, clipped_rule, alone, strategy};
  const auto sum_of = [&](const std::string& name) {
    const std::size_t i = state.find(name);
    BOOST_TEST_REQUIRE(i < state.entries());
    std::vector<std::uint8_t> bytes(
        static_cast<std::size_t>(state.entry(i).elements() * state.entry(i).element_bytes()));
    state.read(i, 0, std::as_writable_bytes(std::span{bytes}));
    double sum = 0;
    for (const std::uint8_t each : bytes) {
      sum += each;
    }
    return sum;
  };
  trainer.fit(loader, {.epochs = 1, .learning_rate = 0.05}, [&](const train::step_report&) {
    train::capture(trainer, state);
    sums.push_back(sum_of("trainer.worker7.buffers"));
    BOOST_TEST(sum_of("trainer.workers") > 0);
  });
  BOOST_TEST(sums.size() == 7U);
  BOOST_TEST(sums[0] > 0);
  BOOST_TEST(sums[0] != sums[1]);
  train::capture(trainer, state);
  BOOST_TEST(sum_of("trainer.worker7.buffers") == 0);
  BOOST_TEST(sum_of("trainer.workers") == 0);
}

// The statistics of an evaluation are those of worker 0, and the workers go on with their own.
BOOST_AUTO_TEST_CASE(are_not_changed_by_evaluations_within_an_epoch) {
  const resumable_run evaluating{.evaluates = true};
  const rank_outcome whole = run_alone(evaluating);
  BOOST_TEST((whole.values == run_alone().values));
  for (const int ranks : {2, 8}) {
    for (const rank_outcome& each :
         run_on(ranks, 0, parallel::all_reduce{}, [&](int /*rank*/) { return evaluating; })) {
      BOOST_TEST(each.difference(whole) == "", ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(of_other_virtual_workers_are_refused_within_an_epoch) {
  comm::self alone;
  const auto message_of = [&](const train::state_source& state) {
    try {
      static_cast<void>(run(alone, parallel::reproducible{parallel::all_reduce{}}, {.from = &state}));
    } catch (const gradus::configuration_error& failure) {
      return std::string{failure.what()};
    }
    return std::string{};
  };
  const auto captured = [&](train::training_state& to, const auto& strategy, bool at_end) {
    static_cast<void>(run(alone, strategy, {.to = &to, .capture_after = 5, .capture_at_end_of_epoch = at_end}));
  };
  const parallel::reproducible four{parallel::all_reduce{}, 4};
  train::training_state within;
  captured(within, four, false);
  const std::string others = message_of(within);
  BOOST_TEST(contains(others,
                      "a state of reproducible training with 8 virtual workers, got 4, after step 5 of an "
                      "epoch"),
             others);
  BOOST_TEST(contains(others, "take a state of the end of an epoch"), others);
  train::training_state plain;
  captured(plain, parallel::all_reduce{}, false);
  BOOST_TEST(contains(message_of(plain), "8 virtual workers, got none, after step 5 of an epoch"));
  train::training_state end;
  captured(end, four, true);
  BOOST_TEST(message_of(end) == "");
  captured(plain, four, false);  // its memory had a state of another training
  BOOST_TEST(contains(message_of(plain), "8 virtual workers, got 4"));
  // Another training takes the state of a reproducible one: values, and the statistics of worker 0.
  BOOST_TEST(run(alone, parallel::all_reduce{}, {.from = &within}).steps == 21U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reproducible_states
