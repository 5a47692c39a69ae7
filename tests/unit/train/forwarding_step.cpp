// SPDX-License-Identifier: BSL-1.0
//
// A step that stands in front of another one sees all calls, passes them on and changes nothing. Checkpoints and traces
// are those of the other step.
#include "gradus/train/forwarding_step.hpp"

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradus/comm/link_of.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/stepwise.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"
#include "training_runs.hpp"

BOOST_AUTO_TEST_SUITE(steps_in_front_of_others)

namespace {

namespace comm = gradus::comm;
namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace train = gradus::train;
using gradus::index_t;
using forwarded_network = nn::network<double, gradus::nhwc>;

constexpr int epochs_in_front = 2;
constexpr int steps_of_epoch = 7;

/// Writes down its calls, with their arguments, and answers what no other step answers.
class named_step final : public train::optimizer_step {
 public:
  void before_layer(std::size_t layer, nn::phase which) override { note("before_layer", layer, which); }
  void after_layer(std::size_t layer, nn::phase which) override { note("after_layer", layer, which); }
  void skip_layer(std::size_t layer) override { note("skip_layer", layer); }
  void gradients_ready(std::size_t first, std::size_t count) override { note("gradients_ready", first, count); }
  void before_pass(nn::stage_pass which, std::size_t stage, std::size_t micro_batch) override {
    note("before_pass", which, stage, micro_batch);
  }
  void after_pass() override { note("after_pass"); }
  gradus::loss_scale scale_of_loss() override { return {.factor = 4}; }
  void update(const optim::update_step& step) override { note("update", step.learning_rate); }
  void complete_update() override { note("complete_update"); }
  std::optional<double> gradient_norm() const noexcept override { return 0.75; }
  void end_epoch(train::epoch_report& report) override { report.images_per_second = 17; }
  bool has_deferred_update() const noexcept override { return true; }
  bool on_servers() const noexcept override { return true; }
  bool replicates() const noexcept override { return true; }

  std::vector<std::string> calls;

 private:
  template <class... Arguments>
  void note(const std::string& name, Arguments... arguments) {
    std::string text = name;
    ((text += " " + std::to_string(static_cast<int>(arguments))), ...);
    calls.push_back(text);
  }
};

/// Passes everything on.
struct transparent final : train::forwarding_step {
  using forwarding_step::forwarding_step;
};

/// Counts the calls of a training.
struct counting_step final : train::forwarding_step {
  using forwarding_step::forwarding_step;
  void before_layer(std::size_t layer, nn::phase which) override {
    layers += 1;
    forwarding_step::before_layer(layer, which);
  }
  void update(const optim::update_step& step) override {
    updates += 1;
    forwarding_step::update(step);
  }
  void end_epoch(train::epoch_report& report) override {
    epochs += 1;
    forwarding_step::end_epoch(report);
  }
  int layers = 0;
  int updates = 0;
  int epochs = 0;
};

/// A training over a rank of threads whose end of a step has another one in front.
struct training_in_front {
  explicit training_in_front(comm::threads& world)
      : loader{device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 5}},
        net{device, {2, 9, 8}},
        parameters{parameters_of(net)},
        rule{device, {}, static_cast<index_t>(parameters.values.size())},
        strategy{{}, world, parameters.flat()},
        all{world},
        end{parameters, rule, strategy, all} {
    end.start();
  }

  static train::trained_parameters<double> parameters_of(forwarded_network& built) {
    gradus_test::build_training_network(built);
    built.compile({.max_batch_size = 8, .seed = 3});
    return train::trained_parameters_of(built);
  }
  [[nodiscard]] std::vector<double> values() { return {net.values().begin(), net.values().end()}; }

  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<double, gradus::nhwc> loader;
  forwarded_network net;
  train::trained_parameters<double> parameters;
  optim::parameter_update_of<optim::adam, double> rule;
  gradus::parallel::all_reduce::state<double> strategy;
  comm::link_of<comm::threads> all;
  train::optimizer_step_of<double> end;
};

const train::fit_options forwarded_options{.epochs = epochs_in_front, .learning_rate = 0.01};

}  // namespace

BOOST_AUTO_TEST_CASE(every_call_is_passed_on) {
  named_step inner;
  transparent second{inner};
  transparent first{static_cast<train::optimizer_step&>(second)};
  train::optimizer_step& outer = first;
  outer.before_layer(1, nn::phase::backward);
  outer.after_layer(2, nn::phase::forward);
  outer.skip_layer(3);
  outer.gradients_ready(4, 5);
  outer.before_pass(nn::stage_pass::backward, 6, 7);
  outer.after_pass();
  outer.update({8.0});
  outer.complete_update();
  const auto name = [](auto which) { return std::to_string(static_cast<int>(which)); };
  BOOST_TEST(inner.calls ==
                 (std::vector<std::string>{
                     "before_layer 1 " + name(nn::phase::backward), "after_layer 2 " + name(nn::phase::forward),
                     "skip_layer 3", "gradients_ready 4 5", "before_pass " + name(nn::stage_pass::backward) + " 6 7",
                     "after_pass", "update 8", "complete_update"}),
             boost::test_tools::per_element());
  BOOST_TEST(outer.scale_of_loss().factor == 4);
  BOOST_TEST(outer.gradient_norm().value_or(0) == 0.75);
  train::epoch_report report;
  outer.end_epoch(report);
  BOOST_TEST(report.images_per_second == 17);
  BOOST_TEST(outer.has_deferred_update());
  BOOST_TEST(outer.on_servers());
  BOOST_TEST(outer.replicates());
  BOOST_TEST(&outer.innermost() == &inner);
  BOOST_TEST(&inner.innermost() == &inner);
}

BOOST_AUTO_TEST_CASE(a_training_is_the_same_with_a_step_in_front) {
  comm::run_ranks(2, [](comm::threads& world) {
    training_in_front plain{world};
    train::trainer expected{plain.net, plain.end, plain.end.group()};
    expected.fit(plain.loader, forwarded_options);

    training_in_front watched{world};
    counting_step counts{watched.end};
    train::trainer trainer{watched.net, counts, watched.end.group()};
    trainer.fit(watched.loader, forwarded_options);

    training_in_front stepped{world};
    counting_step of_steps{stepped.end};
    train::trainer by_steps{stepped.net, of_steps, stepped.end.group()};
    by_steps.start(stepped.loader, {.learning_rate = 0.01});
    static_cast<void>(by_steps.train_steps(3));
    by_steps.finish();

    if (world.rank() == 0) {  // one thread uses the test framework
      BOOST_TEST((watched.values() == plain.values()));
      constexpr int steps = epochs_in_front * steps_of_epoch;
      BOOST_TEST(counts.updates == steps);
      BOOST_TEST(counts.epochs == epochs_in_front);
      BOOST_TEST(counts.layers == 2 * steps * 5);  // the layers before the ReLUs compute them
      BOOST_TEST(of_steps.updates == 3);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_state_is_that_of_the_step_behind) {
  comm::run_ranks(1, [](comm::threads& world) {
    train::training_state state;
    training_in_front whole{world};
    transparent second{whole.end};
    transparent first{static_cast<train::optimizer_step&>(second)};
    train::trainer trainer{whole.net, first, whole.end.group()};
    trainer.fit(whole.loader, forwarded_options, [&](const train::step_report& step) {
      if (step.step == 9) {
        train::capture(trainer, state);
      }
    });

    training_in_front resumed{world};
    counting_step counts{resumed.end};
    train::trainer again{resumed.net, counts, resumed.end.group()};
    train::restore(again, state);
    BOOST_TEST(again.steps() == 10U);
    BOOST_TEST(again.epochs() == 1);
    BOOST_TEST(again.steps_in_epoch() == 3);
    again.fit(resumed.loader, forwarded_options);
    BOOST_TEST((resumed.values() == whole.values()));
    BOOST_TEST(counts.updates == epochs_in_front * steps_of_epoch - 10);

    named_step unknown;
    train::trainer other{resumed.net, unknown, resumed.end.group()};
    BOOST_CHECK_EXCEPTION(train::capture(other, state), gradus::configuration_error,
                          [](const gradus::configuration_error& failure) {
                            return std::string{failure.what()}.find("train::forwarding_step") != std::string::npos;
                          });
  });
}

BOOST_AUTO_TEST_CASE(the_position_of_a_training) {
  comm::run_ranks(1, [](comm::threads& world) {
    training_in_front one{world};
    train::trainer trainer{one.net, one.end, one.end.group()};
    BOOST_TEST(trainer.epochs() == 0);
    BOOST_TEST(trainer.steps_in_epoch() == 0);
    int steps = 0;
    int epochs = 0;
    const auto on_step = [&](const train::step_report& step) {
      BOOST_TEST(trainer.epochs() == epochs);
      BOOST_TEST(trainer.steps_in_epoch() == step.step_in_epoch + 1);
      ++steps;
    };
    const auto on_epoch = [&](const train::epoch_report& /*epoch*/) {
      BOOST_TEST(trainer.epochs() == ++epochs);
      BOOST_TEST(trainer.steps_in_epoch() == 0);
    };
    trainer.fit(one.loader, forwarded_options, on_step, on_epoch);
    trainer.fit(one.loader, {.epochs = 1, .learning_rate = 0.01}, on_step, on_epoch);
    BOOST_TEST(steps == (epochs_in_front + 1) * steps_of_epoch);
    BOOST_TEST(trainer.epochs() == epochs_in_front + 1);
    BOOST_TEST(trainer.steps_in_epoch() == 0);
  });
}

BOOST_AUTO_TEST_CASE(a_trace_and_a_step_in_front_go_together) {
  comm::run_ranks(1, [](comm::threads& world) {
    training_in_front one{world};
    counting_step counts{one.end};
    train::trainer trainer{one.net, counts, one.end.group()};
    gradus::trace::recorder recorder;
    train::fit_traced(recorder, trainer, one.loader, forwarded_options);
    constexpr int steps = epochs_in_front * steps_of_epoch;
    BOOST_TEST(counts.updates == steps);
    int traced = 0;
    for (const gradus::trace::span& each : recorder.read().spans) {
      traced += each.what == gradus::trace::category::step ? 1 : 0;
    }
    BOOST_TEST(traced == steps);
    trainer.fit(one.loader, forwarded_options);  // is not traced
    BOOST_TEST(counts.updates == 2 * steps);
    int after = 0;
    for (const gradus::trace::span& each : recorder.read().spans) {
      after += each.what == gradus::trace::category::step ? 1 : 0;
    }
    BOOST_TEST(after == steps);
  });
}

BOOST_AUTO_TEST_SUITE_END()
