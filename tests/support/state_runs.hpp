// SPDX-License-Identifier: BSL-1.0
//
// Small trainings that are interrupted: what one rank has at the end, with and without an interruption.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/reduce_on_plateau.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"
#include "training_runs.hpp"

namespace gradus_test {

/// What a rank has after a training.
struct rank_outcome {
  std::vector<double> values;
  std::vector<double> buffers;
  std::vector<double> rule;    // its state
  std::vector<double> epochs;  // loss, accuracy, examples, and norms and scale, of each
  std::vector<int> numbers;    // of the epochs
  std::vector<double> rates;   // learning rate of each step
  std::uint64_t steps = 0;

  /// Whether this is the end of the other one: some of its first epochs and steps are missing.
  [[nodiscard]] std::string difference(const rank_outcome& whole) const {
    const auto ends = [](const auto& all, const auto& last) {
      return last.size() <= all.size() && std::equal(last.rbegin(), last.rend(), all.rbegin());
    };
    return values != whole.values          ? "values"
           : buffers != whole.buffers      ? "buffers"
           : rule != whole.rule            ? "the state of the rule"
           : !ends(whole.epochs, epochs)   ? "reports of epochs"
           : !ends(whole.numbers, numbers) ? "numbers of epochs"
           : !ends(whole.rates, rates)     ? "learning rates"
           : steps != whole.steps          ? "steps"
                                           : "";
  }
};

template <class Element>
using parameters_of = gradus::parameter_element_t<Element>;

template <class Number>
using make_rule =
    std::function<std::unique_ptr<gradus::optim::parameter_update<Number>>(gradus::cpu&, gradus::index_t elements)>;
template <class Number, class Communicator>
using make_strategy = std::function<std::unique_ptr<gradus::parallel::strategy<Number>>(
    Communicator&, const gradus::parallel::flat_parameters<Number>&)>;

template <class Number, class Rule>
make_rule<Number> rule_of(const Rule& rule) {
  return [rule](gradus::cpu& device, gradus::index_t elements) {
    return gradus::optim::make_parameter_update<Number>(device, rule, elements);
  };
}
template <class Number, class Communicator, class Strategy>
make_strategy<Number, Communicator> strategy_of(const Strategy& options) {
  return [options](Communicator& world, const gradus::parallel::flat_parameters<Number>& parameters) {
    return gradus::parallel::make_strategy<Number>(options, world, parameters);
  };
}

struct state_run {
  int epochs = 3;
  gradus::index_t batch_size = 8;
  gradus::index_t micro_batch_size = 0;
  std::uint64_t capture_after = 0;       // steps; 0: never
  bool capture_at_end_of_epoch = false;  // in on_epoch of the epoch in which these steps are reached
  double learning_rate = 0.05;
  std::uint64_t seed = 11;
  bool plateau = false;    // the learning rate is that of reduce_on_plateau
  bool statistics = true;  // the network has running statistics, which depend on the number of ranks
};

/// The network of training_runs.hpp with running statistics, and a kernel whose memory order depends on the layout.
template <class Network>
void build_network_with_statistics(Network& net) {
  namespace nn = gradus::nn;
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 5, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("norm1", nn::batch_norm{}, x);
  x = net.add("relu1", nn::relu{}, x);
  x = net.add("pool1", nn::max_pool2d{}, x);
  x = net.add("conv2", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .stride = {2, 2}}, x);
  x = net.add("relu2", nn::relu{}, x);
  x = net.add("dropout", nn::dropout{.rate = 0.3}, x);
  x = net.add("scores", nn::dense{.out_features = 4}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
}

/// Trains on one rank; with `from` after a restore into a network, a rule and buffers with other numbers.
template <class Element, class Layout, class Communicator>
rank_outcome run_on_rank(Communicator& world, const make_rule<parameters_of<Element>>& make,
                         const make_strategy<parameters_of<Element>, Communicator>& strategy_with, const state_run& run,
                         const gradus::train::state_source* from, gradus::train::training_state* to,
                         const gradus::train::restore_options& restoring = {}) {
  using number = parameters_of<Element>;
  namespace train = gradus::train;
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<Element, Layout> loader{
      device, small_dataset(), {.global_batch_size = run.batch_size, .seed = run.seed}};
  gradus::nn::network<Element, Layout> net{device, {2, 9, 8}};
  if (run.statistics) {
    build_network_with_statistics(net);
  } else {
    build_training_network(net);
  }
  net.compile({.max_batch_size = run.batch_size, .seed = run.seed, .micro_batch_size = run.micro_batch_size});
  if (from != nullptr) {
    std::fill(net.buffer_values().begin(), net.buffer_values().end(), number{9});
  }
  const auto parameters = train::trained_parameters_of(net);
  const auto strategy = strategy_with(world, parameters.flat());
  const bool on_servers = strategy->scope() == gradus::parallel::update_scope::on_servers;
  const auto rule = make(device, on_servers ? 0 : static_cast<gradus::index_t>(parameters.values.size()));
  gradus::comm::link_of all{world};
  train::optimizer_step_of<number> end{parameters, *rule, *strategy, all};
  end.start();
  train::trainer trainer{net, end, end.group()};
  rank_outcome outcome;
  if (from != nullptr) {
    std::fill(net.values().begin(), net.values().end(), number{0.25});
    train::restore(trainer, *from, restoring);
  }
  struct watch {
    rank_outcome* seen;
    void on_step(const train::step_report& step) { seen->rates.push_back(step.learning_rate); }
    void on_epoch(const train::epoch_report& epoch) {
      seen->epochs.insert(seen->epochs.end(), {epoch.loss, epoch.accuracy, static_cast<double>(epoch.examples),
                                               static_cast<double>(epoch.steps)});
      if (epoch.gradient_norm) {
        seen->epochs.insert(seen->epochs.end(), {epoch.gradient_norm->mean, epoch.gradient_norm->largest});
      }
      if (epoch.loss_scale) {
        seen->epochs.insert(seen->epochs.end(),
                            {epoch.loss_scale->scale, static_cast<double>(epoch.loss_scale->skipped_steps)});
      }
      seen->numbers.push_back(epoch.epoch);
    }
  } seen{&outcome};
  struct checkpoint {
    train::trainer<std::remove_cvref_t<decltype(net)>>* of;
    const state_run* run;
    train::training_state* state;
    void on_step(const train::step_report& step) {
      if (state != nullptr && step.step + 1 == run->capture_after && !run->capture_at_end_of_epoch) {
        train::capture(*of, *state);
      }
    }
    void on_epoch(const train::epoch_report& /*epoch*/) {
      if (state != nullptr && run->capture_at_end_of_epoch && state->empty() && of->steps() >= run->capture_after) {
        train::capture(*of, *state);
      }
    }
  } saving{&trainer, &run, to};
  train::reduce_on_plateau plateau{{.initial = run.learning_rate, .factor = 0.5, .patience = 0, .threshold = 0.9}};
  const gradus::optim::schedule falling = [rate = run.learning_rate](double epoch) { return rate / (1 + epoch); };
  if (run.plateau) {
    trainer.fit(loader, {.epochs = run.epochs, .learning_rate = plateau}, plateau, seen, saving);
  } else {
    trainer.fit(loader, {.epochs = run.epochs, .learning_rate = falling}, seen, saving);
  }
  for (const auto& each : net.parameters()) {  // without what is between them in memory
    const auto values = each.copy_values();
    outcome.values.insert(outcome.values.end(), values.begin(), values.end());
  }
  outcome.buffers.assign(net.buffer_values().begin(), net.buffer_values().end());
  for (const auto& each : rule->buffers()) {
    for (gradus::index_t i = 0; i < each.elements && !on_servers; ++i) {
      outcome.rule.push_back(each.bytes.size() / static_cast<std::size_t>(each.elements) == 8
                                 ? reinterpret_cast<const double*>(each.bytes.data())[i]
                                 : static_cast<double>(reinterpret_cast<const float*>(each.bytes.data())[i]));
    }
  }
  outcome.steps = trainer.steps();
  return outcome;
}

/// The states of all ranks.
struct rank_states {
  std::vector<std::unique_ptr<gradus::train::training_state>> of_rank;

  explicit rank_states(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      of_rank.push_back(std::make_unique<gradus::train::training_state>());
    }
  }
  /// @param workers  the ranks that have captured: the first ones
  [[nodiscard]] gradus::train::state_parts all(int workers) const {
    std::vector<const gradus::train::training_state*> parts;
    for (int rank = 0; rank < workers; ++rank) {
      parts.push_back(of_rank[static_cast<std::size_t>(rank)].get());
    }
    return gradus::train::state_parts{parts};
  }
};

/// Says whether a rank is a server and no worker; then it has served.
using serve_function = std::function<bool(gradus::comm::threads& world)>;

/// One training with a capture, and one that goes on from it. Both end alike, and with `undisturbed` also one without a
/// capture.
/// @param servers  ranks that only serve, the last ones
template <class Element, class Layout = gradus::nhwc, class Communicator>
void check_resumed(int ranks, const make_rule<parameters_of<Element>>& rule,
                   const make_strategy<parameters_of<Element>, Communicator>& strategy, const state_run& run,
                   bool undisturbed = false, int servers = 0, const serve_function& serves = {}) {
  namespace comm = gradus::comm;
  namespace train = gradus::train;
  rank_states states{ranks};
  const auto on_ranks = [&](const train::state_source* from, bool captures) {
    auto outcomes = comm::run_ranks(ranks, [&](comm::threads& world) {
      if (serves && serves(world)) {
        return rank_outcome{};
      }
      train::training_state* const to =
          captures ? states.of_rank[static_cast<std::size_t>(world.rank())].get() : nullptr;
      if constexpr (std::is_same_v<Communicator, comm::threads>) {
        return run_on_rank<Element, Layout, Communicator>(world, rule, strategy, run, from, to);
      } else {
        Communicator around{world.duplicate()};
        return run_on_rank<Element, Layout, Communicator>(around, rule, strategy, run, from, to);
      }
    });
    outcomes.resize(static_cast<std::size_t>(ranks - servers));
    return outcomes;
  };
  const std::vector<rank_outcome> whole = on_ranks(nullptr, true);
  const train::state_parts parts = states.all(ranks - servers);
  const std::vector<rank_outcome> resumed = on_ranks(&parts, false);
  BOOST_TEST(whole.front().steps == static_cast<std::uint64_t>(7 * run.epochs));
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    BOOST_TEST_CONTEXT("rank " << rank << " of " << ranks << ", captured after " << run.capture_after) {
      BOOST_TEST(resumed[rank].difference(whole[rank]) == "");
      BOOST_TEST(resumed[rank].rates.size() == whole[rank].rates.size() - std::stoul(*parts.property("steps")));
    }
  }
  if (undisturbed) {
    const std::vector<rank_outcome> without = on_ranks(nullptr, false);
    for (std::size_t rank = 0; rank < whole.size(); ++rank) {
      BOOST_TEST(whole[rank].difference(without[rank]) == "");
    }
  }
}

}  // namespace gradus_test
