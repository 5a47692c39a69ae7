// SPDX-License-Identifier: BSL-1.0
//
// A captured training on other ranks, layouts and strategies; mistakes; loaders and callbacks of all kinds.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../support/state_runs.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"

namespace state_changes {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;
using gradus::index_t;
using gradus_test::rank_outcome;
using gradus_test::rank_states;
using gradus_test::rule_of;
using gradus_test::run_on_rank;
using gradus_test::state_run;
using gradus_test::strategy_of;

template <class Layout, class Strategy, class Rule>
std::vector<rank_outcome> run(int ranks, const Strategy& options, const Rule& rule, const state_run& how,
                              const train::state_source* from, rank_states* to,
                              const train::restore_options& restoring = {}) {
  return comm::run_ranks(ranks, [&](comm::threads& world) {
    return run_on_rank<double, Layout, comm::threads>(
        world, rule_of<double>(rule), strategy_of<double, comm::threads>(options), how, from,
        to == nullptr ? nullptr : to->of_rank[static_cast<std::size_t>(world.rank())].get(), restoring);
  });
}

/// Whether one training is the end of another one, to rounding.
void check_close(const rank_outcome& resumed, const rank_outcome& whole, double tolerance = 1e-9) {
  BOOST_TEST(gradus_test::largest_difference(resumed.values, whole.values) < tolerance);
  BOOST_TEST(resumed.steps == whole.steps);
  BOOST_TEST(resumed.rates.size() < whole.rates.size());
  BOOST_TEST((resumed.numbers == std::vector<int>{1, 2}));
  const std::vector<double> last(whole.epochs.end() - static_cast<std::ptrdiff_t>(resumed.epochs.size()),
                                 whole.epochs.end());
  BOOST_TEST(gradus_test::largest_difference(resumed.epochs, last) < tolerance);
}

/// What a message of an error has to hold.
template <class Error, class Call>
void check_message(const Call& call, const std::vector<std::string>& parts) {
  try {
    call();
    BOOST_ERROR("no error");
  } catch (const Error& failure) {
    for (const std::string& part : parts) {
      BOOST_CHECK_MESSAGE(std::string_view{failure.what()}.find(part) != std::string_view::npos,
                          failure.what() << " has no " << part);
    }
  }
}

constexpr state_run interrupted{.capture_after = 10, .statistics = false};

BOOST_AUTO_TEST_SUITE(changes_of_states)

BOOST_AUTO_TEST_CASE(other_ranks_layouts_and_strategies) {
  const optim::adam adam;
  for (const int ranks : {1, 3}) {
    rank_states states{ranks};
    const auto whole = run<gradus::nhwc>(ranks, parallel::all_reduce{}, adam, interrupted, nullptr, &states);
    const train::state_parts parts = states.all(ranks);
    for (const int others : {1, 2, 3, 4}) {
      BOOST_TEST_CONTEXT("from " << ranks << " to " << others << " ranks") {
        check_close(run<gradus::nhwc>(others, parallel::all_reduce{}, adam, interrupted, &parts, nullptr).back(),
                    whole.front());
        check_close(run<gradus::nchw>(others, parallel::sharded_update{}, adam, interrupted, &parts, nullptr).back(),
                    whole.front());
        check_close(run<gradus::nchw>(others, parallel::parameter_server{.servers = 1, .colocate = true}, adam,
                                      interrupted, &parts, nullptr)
                        .back(),
                    whole.front());
      }
    }
  }
  // From servers to ranks that update all.
  rank_states states{2};
  const auto whole = run<gradus::nchw>(2, parallel::parameter_server{.servers = 2, .colocate = true}, adam, interrupted,
                                       nullptr, &states);
  const train::state_parts parts = states.all(2);
  check_close(run<gradus::nhwc>(3, parallel::all_reduce{}, adam, interrupted, &parts, nullptr).back(), whole.front());
}

// Ranks that trained each by itself go on from the mean: with a linear rule that is what they would have averaged.
BOOST_AUTO_TEST_CASE(ranks_that_were_apart) {
  const optim::sgd plain;
  rank_states states{2};
  const state_run how{.capture_after = 8, .learning_rate = 0.01, .statistics = false};
  (void)run<gradus::nhwc>(2, parallel::model_averaging{.every_steps = 3}, plain, how, nullptr, &states);
  const train::state_parts parts = states.all(2);
  BOOST_TEST(*parts.property("strategy counters") == "8 3 1");  // steps, averages (one at the end of the epoch), apart
  const std::size_t first = parts.find("scores.weight");
  const std::size_t second = parts.find("trainer.rank1.scores.weight");
  BOOST_REQUIRE(second < parts.entries());
  const auto values_of = [&](std::size_t i) {
    std::vector<double> values(static_cast<std::size_t>(parts.entry(i).elements()));
    parts.read(i, 0, std::as_writable_bytes(std::span{values}));
    return values;
  };
  BOOST_TEST((values_of(first) != values_of(second)));
  gradus::cpu device;
  gradus::nn::network<double, gradus::nchw> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, plain};
  train::restore(trainer, parts);
  const auto now = net.find_parameter("scores.weight").copy_values();
  for (std::size_t k = 0; k < now.size(); ++k) {
    BOOST_TEST(now[k] == (values_of(first)[k] + values_of(second)[k]) / 2);
  }
}

/// The numbers of an array.
std::vector<double> values_in(const train::state_source& state, const std::string& name) {
  const std::size_t i = state.find(name);
  BOOST_REQUIRE_MESSAGE(i < state.entries(), "no array " << name);
  std::vector<double> values(static_cast<std::size_t>(state.entry(i).elements()));
  state.read(i, 0, std::as_writable_bytes(std::span{values}));
  return values;
}

/// What other ranks capture at once when they have restored a state.
template <class Layout, class Strategy>
void restore_and_capture(int ranks, const Strategy& options, const train::state_source& from, rank_states& to) {
  comm::run_ranks(ranks, [&](comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::nn::network<double, Layout> net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 11});
    train::trainer trainer{net, optim::sgd{}, world, options};
    train::restore(trainer, from);
    train::capture(trainer, *to.of_rank[static_cast<std::size_t>(world.rank())]);
  });
}

BOOST_AUTO_TEST_CASE(an_outer_optimizer_goes_to_other_ranks) {
  const state_run how{.capture_after = 8, .learning_rate = 0.01, .statistics = false};
  const parallel::model_averaging outer{.every_steps = 3, .outer = optim::sgd{.momentum = 0.9}};
  rank_states states{2};
  (void)run<gradus::nhwc>(2, outer, optim::sgd{}, how, nullptr, &states);
  const train::state_parts before = states.all(2);
  rank_states of_others{3};
  restore_and_capture<gradus::nchw>(3, outer, before, of_others);
  const train::state_parts after = of_others.all(3);
  BOOST_TEST(*after.property("strategy counters") == "8 3 1");
  for (const std::string name : {"values.conv1.weight", "velocity.conv1.weight", "velocity.scores.bias"}) {
    const std::vector<double> numbers = values_in(before, "trainer.strategy.outer." + name);
    BOOST_TEST((numbers != std::vector<double>(numbers.size())), name);
    BOOST_TEST((values_in(after, "trainer.strategy.outer." + name) == numbers), name);
  }
  // Ranks that averaged, and were apart, begin together.
  rank_states averaged{2};
  (void)run<gradus::nhwc>(2, parallel::model_averaging{.every_steps = 3}, optim::sgd{}, how, nullptr, &averaged);
  const train::state_parts apart = averaged.all(2);
  rank_states began{2};
  restore_and_capture<gradus::nhwc>(2, outer, apart, began);
  const train::state_parts now = began.all(2);
  BOOST_TEST(*now.property("strategy counters") == "0 0 0");
  const std::vector<double> own = values_in(now, "scores.weight");
  BOOST_TEST((values_in(now, "trainer.rank1.scores.weight") == own));
  const std::vector<double> first = values_in(apart, "scores.weight");
  const std::vector<double> second = values_in(apart, "trainer.rank1.scores.weight");
  for (std::size_t k = 0; k < own.size(); ++k) {
    BOOST_TEST(own[k] == (first[k] + second[k]) / 2);
  }
  const std::vector<double> velocity = values_in(now, "trainer.strategy.outer.velocity.scores.weight");
  BOOST_TEST((velocity == std::vector<double>(velocity.size())));
  // Another outer rule has another state.
  check_message<gradus::shape_error>(
      [&] {
        rank_states none{2};
        restore_and_capture<gradus::nhwc>(2, parallel::model_averaging{.every_steps = 3, .outer = optim::adam{}},
                                          before, none);
      },
      {"trainer.strategy.outer.", "strategy"});
}

BOOST_AUTO_TEST_CASE(other_ranks_share_what_8_bits_have_lost) {
  const parallel::compressed_all_reduce<parallel::int8_blocks> options{};
  rank_states states{2};
  (void)run<gradus::nhwc>(2, options, optim::sgd{}, interrupted, nullptr, &states);
  const train::state_parts before = states.all(2);
  for (const int ranks : {2, 3}) {
    rank_states of_others{ranks};
    restore_and_capture<gradus::nchw>(ranks, options, before, of_others);
    const train::state_parts after = of_others.all(ranks);
    for (const std::string name : {"strategy.residual.conv1.weight", "strategy.residual.scores.bias"}) {
      const auto total = [&](const train::state_source& state, int of) {
        std::vector<double> sum = values_in(state, "trainer." + name);
        for (int rank = 1; rank < of; ++rank) {
          const std::vector<double> more = values_in(state, "trainer.rank" + std::to_string(rank) + "." + name);
          for (std::size_t k = 0; k < sum.size(); ++k) {
            sum[k] += more[k];
          }
        }
        return sum;
      };
      const std::vector<double> want = total(before, 2);
      BOOST_TEST((want != std::vector<double>(want.size())), name);
      BOOST_TEST(gradus_test::largest_difference(total(after, ranks), want) < 1e-15, name);
      BOOST_TEST((ranks == 3 || values_in(after, "trainer." + name) == values_in(before, "trainer." + name)), name);
    }
  }
  // One rank rounds nothing; another strategy has no residuals.
  rank_states alone{1};
  restore_and_capture<gradus::nhwc>(1, options, before, alone);
  BOOST_TEST(alone.all(1).find("trainer.strategy.residual.conv1.weight") == alone.all(1).entries());
  rank_states again{2};
  restore_and_capture<gradus::nhwc>(2, options, alone.all(1), again);
  const std::vector<double> residual = values_in(again.all(2), "trainer.strategy.residual.conv1.weight");
  BOOST_TEST((residual == std::vector<double>(residual.size())));
}

BOOST_AUTO_TEST_CASE(ranks_share_the_arrays) {
  for (const int ranks : {1, 2, 4}) {
    rank_states states{ranks};
    (void)run<gradus::nhwc>(ranks, parallel::all_reduce{}, optim::adam{}, {.epochs = 1, .capture_after = 3}, nullptr,
                            &states);
    std::vector<index_t> bytes(static_cast<std::size_t>(ranks));
    const auto arrays = states.of_rank[0]->arrays();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      index_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto& own = *states.of_rank[static_cast<std::size_t>(rank)];
        const gradus::io::element_range range = own.ranges_of(rank)[i];
        BOOST_TEST((range == own.arrays()[i].held));
        BOOST_TEST((range == states.of_rank[0]->ranges_of(rank)[i]));
        BOOST_TEST(own.arrays()[i].name == arrays[i].name);
        if (range.begin != range.end) {
          BOOST_TEST(range.begin == next);
          next = range.end;
        }
        if (!arrays[i].name.starts_with("norm1.running") && !arrays[i].name.starts_with("trainer.")) {
          bytes[static_cast<std::size_t>(rank)] += (range.end - range.begin) * arrays[i].element_bytes();
        }
      }
      BOOST_TEST(next == arrays[i].elements());
    }
    for (const index_t each : bytes) {  // rows of the largest parameter are 2 % of it
      BOOST_TEST(static_cast<double>(each) < 1.1 * static_cast<double>(bytes[0]));
      BOOST_TEST(static_cast<double>(each) > 0.9 * static_cast<double>(bytes[0]));
    }
  }
}

/// A network, a trainer of one process and a loader.
template <class Rule>
struct small_training {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  comm::self alone;
  train::trainer<gradus::nn::network<float, gradus::nhwc>> trainer;

  explicit small_training(const Rule& rule, index_t features = 4, std::uint64_t seed = 11)
      : trainer{built(features, seed), rule, alone} {}

  auto& built(index_t features, std::uint64_t seed) {
    namespace nn = gradus::nn;
    nn::value x = net.add("conv1", nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, net.input());
    if (features != 4) {
      x = net.add("more", nn::dense{.out_features = features}, x);
    }
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 4}, x));
    net.compile({.max_batch_size = 8, .seed = seed});
    return net;
  }
  [[nodiscard]] std::vector<float> values() { return {net.values().begin(), net.values().end()}; }
};

data::loader_options batches(index_t size = 8, std::uint64_t seed = 11) {
  return {.global_batch_size = size, .seed = seed};
}

BOOST_AUTO_TEST_CASE(mistakes_have_messages_and_change_nothing) {
  small_training<optim::adam> first{optim::adam{}};
  data::loader<float, gradus::nhwc> loader{first.device, gradus_test::small_dataset(), batches()};
  train::training_state state;
  first.trainer.fit(loader, {.epochs = 2, .learning_rate = 0.01}, [&](const train::step_report& step) {
    if (step.step == 9) {
      train::capture(first.trainer, state);
    }
  });
  const auto refuses = [&]<class Error>(auto& other, const train::state_source& source,
                                        const std::vector<std::string>& parts, const Error*,
                                        const train::restore_options& options = {}) {
    const auto before = other.values();
    check_message<Error>([&] { train::restore(other.trainer, source, options); }, parts);
    BOOST_TEST((other.values() == before));
    BOOST_TEST(other.trainer.steps() == 0U);
  };
  const gradus::shape_error* const shape = nullptr;
  const gradus::configuration_error* const configuration = nullptr;
  const gradus::format_error* const format = nullptr;
  small_training<optim::adam> other_network{optim::adam{}, 7};
  refuses(other_network, state,
          {"train::restore: expected the arrays of this network", "missing: more.weight float32 (7, 126)",
           "different: scores.weight float32 (4, 126) for scores.weight float32 (4, 7)", "state_changes.cpp"},
          shape);
  small_training<optim::sgd> other_rule{optim::sgd{.momentum = 0.9}};
  refuses(other_rule, state, {"expected a state with the rule 'sgd', got 'adam'", "state_changes.cpp"}, configuration);
  small_training<optim::adam> other_options{optim::adam{.beta1 = 0.5}};
  refuses(other_options, state, {"rule options", "adam(0.5", "same_rule_options"}, configuration);
  train::restore(other_options.trainer, state, {.same_rule_options = false});
  BOOST_TEST(other_options.trainer.steps() == 10U);
  small_training<optim::adam> other_seed{optim::adam{}, 4, 12};
  refuses(other_seed, state, {"a state with the seed '12', got '11'", "compile the network with this seed"},
          configuration);
  small_training<optim::adam> same{optim::adam{}};
  refuses(same, train::training_state{}, {"the text 'format' in the state", "weights only"}, format);
  refuses(same, state, {"of the end of an epoch, for another loader", "step 3 of an epoch"}, configuration,
          {.same_loader = false});

  // The loader is known when the fit begins. It may be tried again.
  train::restore(same.trainer, state);
  for (const auto& [size, seed] : {std::pair<index_t, std::uint64_t>{8, 12}, {4, 11}}) {
    data::loader<float, gradus::nhwc> other{same.device, gradus_test::small_dataset(), batches(size, seed)};
    check_message<gradus::configuration_error>([&] { same.trainer.fit(other, {.epochs = 2, .learning_rate = 0.01}); },
                                               {"expected the loader of the training that goes on: 53 examples",
                                                "shuffled with seed 11", "got 53 examples", "state_changes.cpp"});
  }
  data::loader<float, gradus::nhwc> right{same.device, gradus_test::small_dataset(), batches()};
  same.trainer.fit(right, {.epochs = 2, .learning_rate = 0.01});
  BOOST_TEST((same.values() == first.values()));
  check_message<gradus::configuration_error>(
      [&] {
        same.trainer.fit(right, {.epochs = 1, .learning_rate = 0.01},
                         [&](const train::step_report&) { train::restore(same.trainer, state); });
      },
      {"train::restore: expected a trainer outside of fit, got a call within a callback"});
}

/// A state with another text.
class altered_source final : public train::state_source {
 public:
  altered_source(const train::state_source& from, std::string name, std::string text)
      : from_{&from}, name_{std::move(name)}, text_{std::move(text)} {}
  [[nodiscard]] std::size_t entries() const noexcept override { return from_->entries(); }
  [[nodiscard]] const gradus::io::stored_array& entry(std::size_t i) const noexcept override { return from_->entry(i); }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    return name == name_ ? &text_ : from_->property(name);
  }
  [[nodiscard]] gradus::dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    return from_->properties_with(prefix);
  }
  void read(std::size_t i, index_t first, std::span<std::byte> to) const override {
    if (i >= entries()) {
      throw std::logic_error{"read of an array that is not there"};
    }
    from_->read(i, first, to);
  }

 private:
  const train::state_source* from_;
  std::string name_;
  std::string text_;
};

// A number that does not fit, and one that the arrays contradict: no memory is asked for before they are compared.
BOOST_AUTO_TEST_CASE(damaged_numbers_are_refused) {
  const optim::sgd plain;
  rank_states states{2};
  (void)run<gradus::nhwc>(2, parallel::model_averaging{.every_steps = 3}, plain,
                          {.capture_after = 8, .statistics = false}, nullptr, &states);
  const train::state_parts parts = states.all(2);
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::nn::network<double, gradus::nchw> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, plain};
  const auto refuses = [&]<class Error>(const std::string& name, const std::string& text,
                                        const std::vector<std::string>& message, const Error*) {
    const altered_source altered{parts, name, text};
    check_message<Error>([&] { train::restore(trainer, altered); }, message);
    BOOST_TEST(trainer.steps() == 0U);
  };
  const gradus::format_error* const format = nullptr;
  const gradus::shape_error* const shape = nullptr;
  for (const char* const ranks : {"0", "2147483648", "4294967298"}) {
    refuses("ranks", ranks, {"a number from 1 to 2147483647 as 'ranks'", ranks}, format);
  }
  refuses("epoch", "4294967296", {"a number from 0 to 2147483647 as 'epoch'"}, format);
  refuses("step in epoch", "9223372036854775808", {"as 'step in epoch'"}, format);
  refuses("ranks", "3", {"an array 'trainer.rank2.", "got none"}, shape);
  refuses("ranks", "1", {"'trainer.sums' in the form of trainer.sums float64 (1, 4)", "float64 (2, 4)"}, shape);
  rank_states of_one{1};
  (void)run<gradus::nhwc>(1, parallel::all_reduce{}, plain, {.capture_after = 8, .statistics = false}, nullptr,
                          &of_one);
  const train::state_parts one = of_one.all(1);
  check_message<gradus::shape_error>(
      [&] {
        const altered_source altered{one, "ranks", "2000000000"};
        train::restore(trainer, altered);
      },
      {"trainer.sums float64 (2000000000, 4)", "got trainer.sums float64 (1, 4)"});
  train::restore(trainer, one);
  BOOST_TEST(trainer.steps() == 8U);
}

/// A file that one rank cannot read.
class broken_source final : public train::state_source {
 public:
  broken_source(const train::state_source& from, bool fails) : from_{&from}, fails_{fails} {}
  [[nodiscard]] std::size_t entries() const noexcept override { return from_->entries(); }
  [[nodiscard]] const gradus::io::stored_array& entry(std::size_t i) const noexcept override { return from_->entry(i); }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    return from_->property(name);
  }
  [[nodiscard]] gradus::dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    return from_->properties_with(prefix);
  }
  void read(std::size_t i, index_t first, std::span<std::byte> to) const override {
    if (fails_ && from_->entry(i).name == "optimizer.velocity.scores.weight") {
      throw std::runtime_error{"the disk is gone"};
    }
    from_->read(i, first, to);
  }

 private:
  const train::state_source* from_;
  bool fails_;
};

BOOST_AUTO_TEST_CASE(all_ranks_get_the_error_of_one) {
  rank_states states{2};
  const optim::sgd rule{.momentum = 0.9};
  (void)run<gradus::nhwc>(2, parallel::all_reduce{}, rule, interrupted, nullptr, &states);
  const train::state_parts parts = states.all(2);
  struct verdict {
    std::string message;
    bool same = false;
  };
  for (const bool reads : {true, false}) {
    const auto verdicts = comm::run_ranks(3, [&](comm::threads& world) {
      gradus::cpu device{{.intra_op_threads = 1}};
      gradus::nn::network<double, gradus::nchw> net{device, {2, 9, 8}};
      gradus_test::build_training_network(net);
      net.compile({.max_batch_size = 8, .seed = 11});
      train::trainer trainer{net, rule, world};
      const std::vector<double> before(net.values().begin(), net.values().end());
      const broken_source broken{parts, world.rank() == 1};
      verdict result;
      try {
        if (reads) {
          train::restore(trainer, broken);
        } else if (world.rank() == 1) {  // with the part of one rank only
          train::restore(trainer, *states.of_rank[1]);
        } else {
          train::restore(trainer, parts);
        }
      } catch (const std::exception& failure) {
        result.message = failure.what();
      }
      result.same = std::equal(before.begin(), before.end(), net.values().begin()) && trainer.steps() == 0;
      train::restore(trainer, parts);  // the ranks still understand each other
      return result;
    });
    for (std::size_t rank = 0; rank < verdicts.size(); ++rank) {
      const std::string wanted = reads ? "the disk is gone" : "which rank 1 of 2 has";
      BOOST_CHECK_MESSAGE(verdicts[rank].message.find(wanted) != std::string::npos, verdicts[rank].message);
      BOOST_TEST((rank == 1 || verdicts[rank].message.find("rank 1 has failed") != std::string::npos));
      BOOST_TEST(verdicts[rank].same);
    }
  }
}

/// Asks the trainer that calls it, as callbacks that write checkpoints do.
struct asking {
  train::training_state* state;
  template <class Trainer>
  void on_step(Trainer& trainer, const train::step_report& step) {
    if (state != nullptr && step.step == 24) {  // in the second call, its second epoch
      train::capture(trainer, *state);
    }
  }
};

// Epochs of fit count from the beginning of the training, over several calls; what is done returns at once.
BOOST_AUTO_TEST_CASE(several_calls_of_fit) {
  const auto train_from = [](const train::state_source* from, train::training_state* to, std::vector<int>& epochs) {
    small_training<optim::sgd> one{optim::sgd{.momentum = 0.9}};
    data::loader<float, gradus::nhwc> loader{one.device, gradus_test::small_dataset(), batches()};
    if (from != nullptr) {
      train::restore(one.trainer, *from);
    }
    const auto seen = [&](const train::epoch_report& epoch) { epochs.push_back(epoch.epoch); };
    asking saving{to};
    one.trainer.fit(loader, {.epochs = 2, .learning_rate = 0.01}, seen, saving);
    one.trainer.fit(loader, {.epochs = 3, .learning_rate = 0.02}, seen, saving);
    return one.values();
  };
  train::training_state state;
  std::vector<int> whole;
  const auto values = train_from(nullptr, &state, whole);
  BOOST_TEST((whole == std::vector<int>{0, 1, 0, 1, 2}));
  std::vector<int> resumed;
  BOOST_TEST((train_from(&state, nullptr, resumed) == values));
  BOOST_TEST((resumed == std::vector<int>{1, 2}));
}

/// Examples that differ from epoch to epoch.
struct changing_set {
  const data::image_dataset* images = &gradus_test::small_dataset();
  [[nodiscard]] index_t size() const { return images->size(); }
  [[nodiscard]] gradus::image_extents example() const { return images->example(); }
  [[nodiscard]] int classes() const { return images->classes(); }
  [[nodiscard]] std::int32_t label(index_t i) const { return images->label(i); }
  [[nodiscard]] std::uint64_t hash() const { return images->hash(); }
  template <class Element>
  void read(index_t i, Element* planes) const {
    images->read(i, planes);
  }
  template <class Element>
  void read(index_t i, std::uint64_t epoch, Element* planes) const {
    images->read(i, planes);
    planes[0] += static_cast<Element>(epoch);
  }
};

/// A loader of a program that always begins at the first batch.
template <class Loader>
struct plain_loader {
  Loader* from;
  void start_epoch(std::uint64_t epoch) { from->start_epoch(epoch); }
  auto next() { return from->next(); }
  [[nodiscard]] index_t steps_per_epoch() const { return from->steps_per_epoch(); }
  [[nodiscard]] index_t examples_per_epoch() const { return from->examples_per_epoch(); }
  void take_shard(const data::shard& part) { from->take_shard(part); }
  [[nodiscard]] std::string description() const { return from->description(); }
};

/// A callback that counts epochs: its count decides when training stops.
struct counting {
  double epochs = 0;
  train::flow on_epoch(const train::epoch_report&) { return ++epochs == 4 ? train::flow::stop : train::flow::go_on; }
  void save_state(train::callback_state& to) const { to.put("counting", {&epochs, 1}); }
  void load_state(train::callback_state& from) {
    if (const auto numbers = from.take("counting"); numbers.size() == 1) {
      epochs = numbers[0];
    }
  }
};

// Two callbacks of a kind keep apart, and so do those of a traced training.
BOOST_AUTO_TEST_CASE(parallel_loaders_traces_and_callbacks) {
  const changing_set set;
  enum class kind { parallel, plain, traced };
  for (const kind which : {kind::parallel, kind::plain, kind::traced}) {
    const auto train_from = [&](const train::state_source* from, train::training_state* to, counting& second) {
      small_training<optim::sgd> one{optim::sgd{.momentum = 0.9}};
      const auto parameters = train::trained_parameters_of(one.net);
      optim::parameter_update_of<optim::sgd, float> rule{
          one.device, {.momentum = 0.9}, static_cast<index_t>(parameters.values.size())};
      parallel::all_reduce::state<float> strategy{{}, one.alone, parameters.flat()};
      comm::link_of all{one.alone};
      train::optimizer_step_of<float> end{parameters, rule, strategy, all};
      end.start();
      train::trainer trainer{one.net, end, end.group()};
      data::parallel_loader<float, gradus::nhwc> loader{one.device, set, batches(), {.threads = 2}};
      plain_loader<decltype(loader)> plain{&loader};
      gradus::trace::recorder recorder;
      if (from != nullptr) {
        train::restore(trainer, *from);
      }
      const auto saving = [&](const train::step_report& step) {
        if (to != nullptr && step.step == 9) {
          train::capture(trainer, *to);
        }
      };
      counting first;
      const train::fit_options options{.epochs = 9, .learning_rate = 0.01};
      if (which == kind::parallel) {
        trainer.fit(loader, options, first, saving, second);
      } else if (which == kind::plain) {
        trainer.fit(plain, options, first, saving, second);
      } else {
        train::fit_traced(recorder, trainer, loader, options, first, saving, second);
      }
      BOOST_TEST(trainer.steps() == 28U);  // the first one stops after four epochs
      return one.values();
    };
    train::training_state state;
    counting never{.epochs = 10};
    const auto values = train_from(nullptr, &state, never);
    counting again{.epochs = 0};
    BOOST_TEST((train_from(&state, nullptr, again) == values));
    BOOST_TEST(never.epochs == 14.0);
    BOOST_TEST(again.epochs == 14.0);
    BOOST_TEST((state.property("callback counting") != nullptr && state.property("callback counting#2") != nullptr));
  }
}

// Servers that do not wait are asked when no worker is within a step: all workers go on from what they have.
BOOST_AUTO_TEST_CASE(servers_that_do_not_wait) {
  for (const parallel::server_mode mode :
       {parallel::server_mode::asynchronous, parallel::server_mode::compat, parallel::server_mode::bounded_staleness}) {
    const parallel::parameter_server servers{.servers = 2, .colocate = true, .mode = mode};
    rank_states states{3};
    (void)run<gradus::nhwc>(3, servers, optim::adam{}, interrupted, nullptr, &states);
    const train::state_parts parts = states.all(3);
    BOOST_TEST(*parts.property("server updates") == "30");  // one of each worker in each of ten steps
    const auto resumed = run<gradus::nhwc>(3, servers, optim::adam{}, interrupted, &parts, nullptr);
    for (const rank_outcome& each : resumed) {
      BOOST_TEST(each.steps == 21U);
      BOOST_TEST(each.rates.size() == 11U);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace state_changes
