// SPDX-License-Identifier: BSL-1.0
//
// What the trainer says and refuses: disagreeing ranks, losses that are not finite, callbacks, progress.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#if defined(__unix__)
#include <fcntl.h>   // O_RDWR, open
#include <unistd.h>  // close, dup, dup2
#endif

#include "../../support/training_runs.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/state.hpp"

namespace {

namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace train = gradus::train;
using network = nn::network<float, gradus::nhwc>;

void require_text(const std::string& message, const std::string& part) {
  BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' is not in: " << message);
}

struct plan {
  gradus::index_t batch_size = 8;
  gradus::index_t channels = 5;
  std::uint64_t seed = 1;
  double learning_rate = 0.05;
  double momentum = 0.9;
  int epochs = 1;
};

/// Trains a small network as `chosen` says and hands everything to `callbacks`.
template <class Communicator, class... Callbacks>
void train_as(Communicator& communicator, const plan& chosen, Callbacks&&... callbacks) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{
      device,
      gradus_test::small_dataset(),
      {.global_batch_size = chosen.batch_size, .seed = 1, .shard = {communicator.rank(), communicator.size()}}};
  network net{device, {2, 9, 8}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = chosen.channels, .kernel = {3, 3}}, net.input());
  x = net.add("relu", nn::relu{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 4}, x));
  net.compile({.max_batch_size = 8, .seed = chosen.seed});
  train::trainer trainer{net, gradus::optim::sgd{.momentum = chosen.momentum}, communicator};
  trainer.fit(loader, {.epochs = chosen.epochs, .learning_rate = chosen.learning_rate}, callbacks...);
}

/// The messages of all ranks when rank 1 differs from rank 0.
std::vector<std::string> messages_of_ranks(const plan& first, const plan& second) {
  return gradus::comm::run_ranks(2, [&](auto& world) -> std::string {
    try {
      train_as(world, world.rank() == 0 ? first : second);
    } catch (const gradus::error& failure) {
      return failure.what();
    }
    return "no error";
  });
}

/// Eight small images of which one rank cannot read the last.
struct damaged_set {
  bool damaged = false;
  [[nodiscard]] gradus::index_t size() const noexcept { return 8; }
  [[nodiscard]] gradus::image_extents example() const noexcept { return {1, 2, 9, 8}; }
  [[nodiscard]] int classes() const noexcept { return 4; }
  [[nodiscard]] std::int32_t label(gradus::index_t i) const noexcept { return static_cast<std::int32_t>(i % 4); }
  [[nodiscard]] std::uint64_t hash() const noexcept { return 1; }
  void read(gradus::index_t i, float* planes) const {
    if (damaged && i == 7) {
      gradus::raise<gradus::format_error>("damaged_set", "an image", "none");
    }
    std::fill(planes, planes + 2 * 9 * 8, 0.5F);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(trainer)

BOOST_AUTO_TEST_CASE(a_trainer_without_a_communicator_trains_in_one_process) {
  const auto values_after = [](const auto& train) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<float, gradus::nhwc> loader{device, gradus_test::small_dataset(), {.global_batch_size = 8}};
    network net{device, {2, 9, 8}};
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 4}, net.input()));
    net.compile({.max_batch_size = 8, .seed = 1});
    train(net, loader);
    return std::vector<float>(net.values().begin(), net.values().end());
  };
  const std::vector<float> alone = values_after([](network& net, auto& loader) {
    train::trainer trainer{net, optim::sgd{.momentum = 0.9}};
    BOOST_TEST(trainer.communicator().size() == 1);
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
    BOOST_TEST(trainer.evaluate(loader).examples > 0);
  });
  const std::vector<float> with_self = values_after([](network& net, auto& loader) {
    gradus::comm::self world;
    train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world};
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
  });
  BOOST_TEST(alone == with_self, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_in_an_evaluation_tells_the_others) {
  const auto messages = gradus::comm::run_ranks(2, [](gradus::comm::threads& world) -> std::string {
    world.set_time_limit(std::chrono::minutes{10});
    gradus::cpu device{{.intra_op_threads = 1}};
    const damaged_set images{.damaged = world.rank() == 1};
    gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 4, .shuffle = false}};
    network net{device, {2, 9, 8}};
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 4}, net.input()));
    net.compile({.max_batch_size = 4, .seed = 1});
    train::trainer trainer{net, optim::sgd{}, world};
    try {
      (void)trainer.evaluate(loader);
    } catch (const gradus::error& failure) {
      return failure.what();
    }
    return "no error";
  });
  for (const std::string& message : messages) {
    require_text(message, "damaged_set: expected an image, got none");
  }
  require_text(messages[0], "rank 1");
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_get_an_error_with_the_difference) {
  const struct {
    plan other;
    std::string part;
  } cases[]{
      {{.channels = 6}, "network"},       {{.seed = 2}, "seed"},         {{.learning_rate = 0.1}, "learning rate"},
      {{.momentum = 0.5}, "update rule"}, {{.batch_size = 6}, "loader"}, {{.epochs = 2}, "epochs"}};
  for (const auto& [other, part] : cases) {
    for (const std::string& message : messages_of_ranks({}, other)) {
      require_text(message, part);
      require_text(message, "rank");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_stops_all_ranks) {
  const auto messages = messages_of_ranks({.learning_rate = 1e30, .epochs = 3}, {.learning_rate = 1e30, .epochs = 3});
  bool named = false;
  for (const std::string& message : messages) {
    require_text(message, "expected a finite loss");
    require_text(message, "first not finite: ");
    named = named || message.find("training step") != std::string::npos;
  }
  BOOST_TEST(named);
}

BOOST_AUTO_TEST_CASE(the_first_layer_that_is_not_finite_is_named) {
  gradus::comm::self alone;
  try {
    train_as(alone, {.learning_rate = 1e30, .epochs = 3});
    BOOST_FAIL("no error");
  } catch (const gradus::numeric_error& failure) {
    const std::string message = failure.what();
    require_text(message, "training step ");
    BOOST_TEST((message.find("layer '") != std::string::npos || message.find("parameter ") != std::string::npos),
               message);
    require_text(message, "Hint: a smaller learning rate");
  }
}

// Steps would train the averages, and a state would have both under each other's name.
BOOST_AUTO_TEST_CASE(no_step_and_no_state_is_made_of_the_averages_of_the_weights) {
  const auto messages_of = [](int ranks) {
    return gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
      gradus::cpu device{{.intra_op_threads = 1}};
      gradus::data::loader<float, gradus::nhwc> loader{
          device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 1}};
      network net{device, {2, 9, 8}};
      gradus_test::build_training_network(net);
      net.compile({.max_batch_size = 8, .seed = 1});
      train::trainer trainer{net, optim::update{.rule = optim::sgd{}, .average = 0.9}, world};
      const train::fit_options options{.epochs = 1, .learning_rate = 0.05};
      trainer.fit(loader, options);
      train::training_state state;
      std::vector<std::string> refused;
      const auto expect = [&](const auto& body) {
        try {
          body();
          refused.emplace_back("no error");
        } catch (const gradus::configuration_error& failure) {
          refused.emplace_back(failure.what());
        }
      };
      trainer.swap_average();
      expect([&] { trainer.fit(loader, options); });
      expect([&] { train::capture(trainer, state); });
      trainer.swap_average();
      train::capture(trainer, state);
      trainer.fit(loader, options);
      if (world.size() == 1) {  // whose state has all
        trainer.swap_average();
        train::restore(trainer, state);  // the weights of the state, and its averages
      }
      expect([&] {
        trainer.fit(loader, {.epochs = 3, .learning_rate = 0.05},
                    [&](const train::epoch_report& /*epoch*/) { trainer.swap_average(); });
      });
      return refused;
    });
  };
  for (const int ranks : {1, 2}) {
    for (const std::vector<std::string>& refused : messages_of(ranks)) {
      BOOST_REQUIRE(refused.size() == 3U);
      require_text(refused[0], "trainer.fit: expected the weights that are trained, got their averages in their place");
      require_text(refused[1], "train::capture: expected the weights that are trained, got their averages");
      require_text(refused[2], "trainer.fit: expected the weights that are trained, got their averages");
    }
  }
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  gradus::comm::self alone;
  BOOST_CHECK_THROW(train_as(alone, {.learning_rate = -1}), gradus::configuration_error);
  BOOST_CHECK_THROW(train_as(alone, {.learning_rate = std::numeric_limits<double>::quiet_NaN()}),
                    gradus::configuration_error);
  BOOST_CHECK_THROW(train_as(alone, {.momentum = 1.5}), gradus::configuration_error);
  BOOST_CHECK_THROW(train_as(alone, {.epochs = -1}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(a_network_that_is_not_frozen_is_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::comm::self alone;
  network net{device, {2, 9, 8}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 4}, net.input()));
  BOOST_CHECK_THROW((train::trainer{net, gradus::optim::sgd{}, alone}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(callbacks_hear_everything_and_can_stop) {
  struct listener {
    int starts = 0;
    int steps = 0;
    int epochs = 0;
    int finishes = 0;
    void on_start(const train::run_information& run) {
      ++starts;
      BOOST_TEST(run.steps_per_epoch == 7);  // 53 examples in steps of 8
      BOOST_TEST(run.examples_per_epoch == 53);
    }
    void on_step(const train::step_report& step) {
      BOOST_TEST(step.step == static_cast<std::uint64_t>(steps));
      BOOST_TEST(step.global_examples == (step.step_in_epoch == 6 ? 5 : 8));
      ++steps;
    }
    train::flow on_epoch(const train::epoch_report& epoch) {
      ++epochs;
      BOOST_TEST(epoch.examples == 53);
      return epoch.epoch == 1 ? train::flow::stop : train::flow::go_on;
    }
    void on_finish() { ++finishes; }
  };
  gradus::comm::self alone;
  listener heard;
  train_as(alone, {.epochs = 5}, heard);
  BOOST_TEST(heard.starts == 1);
  BOOST_TEST(heard.steps == 14);
  BOOST_TEST(heard.epochs == 2);
  BOOST_TEST(heard.finishes == 1);

  std::vector<int> epochs = gradus::comm::run_ranks(2, [](auto& world) {
    struct stopper {
      int rank;
      int epochs = 0;
      train::flow on_epoch(const train::epoch_report&) {
        ++epochs;
        return rank == 1 ? train::flow::stop : train::flow::go_on;
      }
    } stops{world.rank()};
    train_as(world, {.epochs = 4}, stops);
    return stops.epochs;
  });
  BOOST_TEST((epochs == std::vector<int>{1, 1}));  // one rank says stop: all stop
}

/// A file without a name, and what was written to it.
class written_text {
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

BOOST_AUTO_TEST_CASE(progress_is_a_line_an_epoch_or_a_bar) {
  gradus::comm::self alone;
  written_text lines;
  train_as(alone, {.epochs = 2}, train::progress{{.output = lines.file(), .terminal = false}});
  require_text(lines.read(), "epoch 1/2: loss ");
  require_text(lines.read(), "epoch 2/2: loss ");
  BOOST_TEST(lines.read().find('\r') == std::string::npos);
  written_text bar;
  train_as(alone, {.epochs = 1}, train::progress{{.output = bar.file(), .terminal = true}});
  require_text(bar.read(), "[============================] 100%");
  require_text(bar.read(), "images/s");
  const auto shown = gradus::comm::run_ranks(2, [](auto& world) {
    written_text mine;
    train_as(world, {}, train::progress{{.output = mine.file(), .terminal = false}});
    return mine.read();
  });
  BOOST_TEST(!shown[0].empty());
  BOOST_TEST(shown[1].empty());
}

// In one pass over memory where ranks share it and the rule works element by element.
static_assert(std::is_same_v<train::default_strategy<network, optim::sgd, gradus::comm::threads>,
                             gradus::parallel::sharded_update>);
static_assert(
    std::is_same_v<train::default_strategy<network, optim::lars, gradus::comm::threads>, gradus::parallel::all_reduce>);
static_assert(std::is_same_v<train::default_strategy<network, optim::update<optim::sgd>, gradus::comm::threads>,
                             gradus::parallel::sharded_update>);
static_assert(std::is_same_v<train::default_strategy<network, optim::update<optim::lars>, gradus::comm::threads>,
                             gradus::parallel::all_reduce>);
static_assert(
    std::is_same_v<train::default_strategy<network, optim::sgd, gradus::comm::self>, gradus::parallel::one_process>);

// A rank that looks at the state of the rule in the middle of an epoch sees what it would see with all_reduce.
BOOST_AUTO_TEST_CASE(without_a_synchronization_the_state_is_that_of_all_reduce_at_any_step) {
  using velocities = std::vector<std::vector<float>>;
  const auto train_with = [](auto& world, const auto&... strategy) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<float, gradus::nhwc> loader{
        device, gradus_test::small_dataset(), {.global_batch_size = 8, .shard = {world.rank(), world.size()}}};
    network net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 1});
    train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world, strategy...};
    velocities seen;
    struct keeper {
      velocities* kept;
      decltype(trainer)* of;
      int rank;
      void on_step(const train::step_report& step) {
        if (step.step % 3 == static_cast<std::uint64_t>(rank)) {
          for (const gradus::optim::state_buffer& each : of->rule().buffers()) {
            const auto* const data = reinterpret_cast<const float*>(each.bytes.data());
            kept->emplace_back(data, data + each.elements);
          }
        }
      }
    };
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, keeper{&seen, &trainer, world.rank()});
    return seen;
  };
  const auto want = gradus::comm::run_ranks(
      3, [&](gradus::comm::threads& world) { return train_with(world, gradus::parallel::all_reduce{}); });
  const auto have = gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) { return train_with(world); });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    BOOST_TEST(want[rank].size() > 3U);
    BOOST_TEST((have[rank] == want[rank]));
  }
}

BOOST_AUTO_TEST_CASE(functions_are_callbacks) {
  gradus::comm::self alone;
  int steps = 0;
  std::vector<double> losses;
  const auto count_steps = [&](const train::step_report&) { ++steps; };
  train_as(alone, {.epochs = 3}, count_steps, [&](train::epoch_report& epoch) {
    losses.push_back(epoch.loss);
    return losses.size() == 2 ? train::flow::stop : train::flow::go_on;
  });
  BOOST_TEST(losses.size() == 2U);
  BOOST_TEST(steps == 2 * 7);  // 53 examples in batches of 8
}

#if defined(__unix__)
BOOST_AUTO_TEST_CASE(a_terminal_that_a_launcher_gives_is_none) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  BOOST_TEST_REQUIRE(terminal >= 0);
  BOOST_TEST_REQUIRE((::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0));
  const int end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  BOOST_TEST_REQUIRE(end >= 0);
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(end, STDOUT_FILENO);
  const bool alone = train::output_is_terminal();
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  const bool launched = train::output_is_terminal();
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::dup2(before, STDOUT_FILENO);
  for (const int each : {before, end, terminal}) {
    ::close(each);
  }
  BOOST_TEST(alone);
  BOOST_TEST(!launched);
}
#endif

// ---- rules of a program's own

namespace {

/// Adam (Kingma, Ba 2015) without more: what it does depends on the number of the step.
struct own_adam {
  static constexpr std::string_view name = "own_adam";
  static constexpr bool elementwise = true;

  void check() const {}
  [[nodiscard]] std::string description() const { return "own_adam"; }

  template <class Element, class Device>
  class state {
   public:
    state(Device& /*device*/, const own_adam& /*rule*/, gradus::index_t parameters)
        : first_(static_cast<std::size_t>(parameters)), second_(static_cast<std::size_t>(parameters)) {}

    void update(Device& /*device*/, std::span<const optim::segment> segments, Element* values, const Element* gradients,
                const optim::update_step& step) {
      const double t = static_cast<double>(step.number) + 1;
      for (const optim::segment& each : segments) {
        for (gradus::index_t i = each.offset; i < each.offset + each.size; ++i) {
          Element& m = first_[static_cast<std::size_t>(i)];
          Element& v = second_[static_cast<std::size_t>(i)];
          m = 0.9 * m + 0.1 * gradients[i];
          v = 0.99 * v + 0.01 * gradients[i] * gradients[i];
          values[i] -=
              step.learning_rate * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
        }
      }
    }
    template <class Visitor>
    void visit_buffers(Visitor&& visitor) {
      visitor(std::string_view{"first"}, first_.data(), static_cast<gradus::index_t>(first_.size()));
      visitor(std::string_view{"second"}, second_.data(), static_cast<gradus::index_t>(second_.size()));
    }

   private:
    std::vector<Element> first_;
    std::vector<Element> second_;
  };
};

/// The same, which does not say that it may be given parts of parameters.
struct careful_adam : own_adam {
  static constexpr bool elementwise = false;
};

template <class Rule>
using chosen_by_default = train::default_strategy<nn::network<double, gradus::nhwc>, Rule, gradus::comm::threads>;
static_assert(std::is_same_v<chosen_by_default<own_adam>, gradus::parallel::sharded_update>);
static_assert(std::is_same_v<chosen_by_default<careful_adam>, gradus::parallel::all_reduce>);
static_assert(std::is_same_v<chosen_by_default<optim::lars>, gradus::parallel::all_reduce>);

}  // namespace

BOOST_AUTO_TEST_CASE(a_rule_receives_the_number_of_the_step_however_often_it_is_called) {
  const auto train_with = [](auto& world, const auto& rule, const auto&... strategy) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<double, gradus::nhwc> loader{device, gradus_test::small_dataset(), {.global_batch_size = 8}};
    nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 1});
    train::trainer trainer{net, rule, world, strategy...};
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.01});
    return std::vector<double>(net.values().begin(), net.values().end());
  };
  gradus::comm::self alone;
  const auto want = train_with(alone, own_adam{});
  const auto with_buckets = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    return train_with(world, own_adam{}, gradus::parallel::all_reduce{.bucket_bytes = 256, .first_bucket_bytes = 64});
  });
  const auto by_default =
      gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) { return train_with(world, own_adam{}); });
  const auto whole =
      gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) { return train_with(world, careful_adam{}); });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    BOOST_TEST(gradus_test::largest_difference(with_buckets[rank], want) < 1e-9);
    BOOST_TEST(gradus_test::largest_difference(by_default[rank], want) < 1e-9);
    BOOST_TEST(gradus_test::largest_difference(whole[rank], want) < 1e-9);
  }
}

// ---- who trains on what

namespace {

/// Trains on one part of the batches, or on what the trainer says; returns what is left, as numbers.
template <class Communicator>
std::vector<double> train_on_part(Communicator& world, gradus::data::shard part) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<double, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 3, .shard = part}};
  gradus::data::loader<double, gradus::nhwc> unseen{
      device, gradus_test::small_dataset(), {.global_batch_size = 10, .shuffle = false, .shard = part}};
  nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, net.input());
  net.loss(nn::softmax_cross_entropy{},
           net.add("scores", nn::dense{.out_features = 4}, net.add("relu", nn::relu{}, x)));
  net.compile({.max_batch_size = 10, .seed = 1});
  train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world};
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
  const train::evaluation_report report = trainer.evaluate(unseen);
  std::vector<double> result(net.values().begin(), net.values().end());
  result.insert(result.end(), {report.loss, report.accuracy, static_cast<double>(report.examples)});
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_trainer_gives_each_rank_its_part_of_every_batch) {
  gradus::comm::self alone;
  const std::vector<double> want = train_on_part(alone, {.rank = 0, .ranks = 0});
  for (const int ranks : {1, 2, 3, 4, 11}) {  // more ranks than examples of a batch, too
    const auto have = gradus::comm::run_ranks(
        ranks, [](gradus::comm::threads& world) { return train_on_part(world, {.rank = 0, .ranks = 0}); });
    const auto said = gradus::comm::run_ranks(ranks, [](gradus::comm::threads& world) {
      return train_on_part(world, {.rank = world.rank(), .ranks = world.size()});
    });
    for (std::size_t rank = 0; rank < have.size(); ++rank) {
      BOOST_TEST(gradus_test::largest_difference(have[rank], want) < 1e-12, ranks << " ranks");
      BOOST_TEST((have[rank] == said[rank]), ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_loader_of_another_part_is_refused_on_all_ranks) {
  using gradus::data::shard;
  const struct {
    shard of_rank_0;
    shard of_rank_1;
    std::string part;
  } cases[]{{{0, 1}, {0, 1}, "rank 0 of 1"},   // everything on every rank
            {{0, 2}, {0, 2}, "rank 0 of 2"},   // the same part twice
            {{1, 2}, {0, 2}, "rank 1 of 2"},   // the other's part
            {{0, 3}, {1, 3}, "rank 1 of 3"}};  // as if there were three
  for (const auto& [of_rank_0, of_rank_1, part] : cases) {
    const auto messages = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) -> std::string {
      try {
        (void)train_on_part(world, world.rank() == 0 ? of_rank_0 : of_rank_1);
      } catch (const gradus::error& failure) {
        return failure.what();
      }
      return "no error";
    });
    for (const std::string& message : messages) {
      require_text(message, "the shard of the loader's options");
      require_text(message, "leave loader_options::shard out");
    }
    BOOST_TEST((messages[0].find(part) != std::string::npos || messages[1].find(part) != std::string::npos), part);
  }
}

BOOST_AUTO_TEST_CASE(ranks_share_evaluations) {
  // Boost.Test is for one thread: the ranks return what is checked.
  const auto evaluate_on = [](auto& world) {
    std::vector<train::evaluation_report> result;
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<float, gradus::nhwc> loader{device, gradus_test::small_dataset(), {.global_batch_size = 8}};
    gradus::data::loader<float, gradus::nhwc> unseen{
        device, gradus_test::small_dataset(), {.global_batch_size = 10, .shuffle = false}};
    network net{device, {2, 9, 8}};
    nn::value x = net.add("conv", nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, net.input());
    x = net.add("norm", nn::batch_norm{}, x);
    net.loss(nn::softmax_cross_entropy{},
             net.add("scores", nn::dense{.out_features = 4}, net.add("relu", nn::relu{}, x)));
    net.compile({.max_batch_size = 10, .seed = 1});
    train::trainer trainer{net, gradus::optim::sgd{}, world};
    struct keeper {
      std::vector<train::evaluation_report>* kept;
      void on_epoch(const train::epoch_report& epoch) {
        if (epoch.evaluation) {
          kept->push_back(*epoch.evaluation);
        }
      }
    };
    trainer.fit(loader, {.epochs = 3, .learning_rate = 0.05}, train::evaluate_every{unseen, 2}, keeper{&result});
    // One process with the same parameters and rank 0's statistics says the same.
    gradus::comm::self alone;
    train::trainer by_one{net, gradus::optim::sgd{}, alone};
    gradus::data::loader<float, gradus::nhwc> whole{
        device, gradus_test::small_dataset(), {.global_batch_size = 5, .shuffle = false}};
    result.push_back(by_one.evaluate(whole));
    return result;
  };
  const auto reports = gradus::comm::run_ranks(2, [&](auto& world) { return evaluate_on(world); });
  for (const auto& each : reports) {
    BOOST_TEST_REQUIRE(each.size() == 3U);  // after epochs 2 and 3, and by one process
    BOOST_TEST(each[1].examples == 53);
    BOOST_TEST(std::abs(each[2].loss - each[1].loss) < 1e-5);
    BOOST_TEST(each[2].accuracy == each[1].accuracy);
    BOOST_TEST(each[1].loss == reports[0][1].loss);
  }
}

BOOST_AUTO_TEST_SUITE_END()
