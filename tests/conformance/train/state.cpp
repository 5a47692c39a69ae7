// SPDX-License-Identifier: BSL-1.0
//
// A training that goes on from a captured state is the undisturbed one, to the bit: every update rule and element type,
// at any step.
#include "gradus/train/state.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/state_runs.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/optim/adagrad.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/rms_prop.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/all_reduce.hpp"

namespace {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus_test::check_resumed;
using gradus_test::make_rule;
using gradus_test::rule_of;
using gradus_test::strategy_of;

template <class Number>
using named_rules = std::vector<std::pair<std::string, make_rule<Number>>>;

/// Rules with a state of their own: of one kind, several kinds, of all parameters, and around others.
template <class Number>
named_rules<Number> all_rules() {
  constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
  constexpr optim::loss_scaling restless{.initial = 0x1p18, .growth_interval = 3};
  named_rules<Number> rules;
  const auto add = [&](std::string name, const auto& rule) {
    rules.emplace_back(std::move(name), rule_of<Number>(rule));
  };
  add("sgd", momentum);
  add("sgd without momentum", optim::sgd{});
  add("lars", optim::lars{});
  add("adam", optim::adam{});
  add("adam_w", optim::adam_w{});
  add("rms_prop", optim::rms_prop{});
  add("rms_prop, centered with momentum", optim::rms_prop{.momentum = 0.9, .centered = true});
  add("adagrad", optim::adagrad{});
  add("lamb", optim::lamb{});
  add("averaged_weights", optim::update<optim::adam>{.average = 0.9});
  add("clipped_norm", optim::update<optim::sgd>{.rule = momentum, .max_norm = 0.5});
  add("clipped_value", optim::update<optim::adam>{.clip_value = 0.01});
  add("scaled_loss", optim::update<optim::sgd>{.rule = momentum, .loss_scaling = restless});
  add("all parts of an update of adam",
      optim::update<optim::adam>{.max_norm = 1, .clip_value = 0.5, .loss_scaling = restless, .average = 0.999});
  return rules;
}

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;
using elements = std::tuple<float, double, gradus::bfloat16, gradus::float16>;

}  // namespace

BOOST_AUTO_TEST_SUITE(state)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_rule_goes_on_to_the_bit, Element, elements) {
  using number = gradus_test::parameters_of<Element>;
  for (const auto& [name, rule] : all_rules<number>()) {
    BOOST_TEST_CONTEXT(name << ", " << gradus::element_name<Element>) {
      check_resumed<Element>(2, rule, strategy_of<number, comm::threads>(parallel::all_reduce{}),
                             {.capture_after = 10});
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(any_step_of_an_epoch, Layout, layouts) {
  const auto adam = rule_of<float>(optim::adam{});
  const auto strategy = strategy_of<float, comm::threads>(parallel::all_reduce{});
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::uint64_t step : {1U, 6U, 7U, 8U, 13U, 14U, 20U, 21U}) {
      check_resumed<float, Layout>(ranks, adam, strategy, {.capture_after = step}, ranks == 2);
    }
    for (const std::uint64_t step : {1U, 8U, 15U}) {
      check_resumed<float, Layout>(ranks, adam, strategy, {.capture_after = step, .capture_at_end_of_epoch = true});
    }
  }
}

BOOST_AUTO_TEST_CASE(micro_batches_and_a_learning_rate_that_remembers) {
  const auto sgd = rule_of<float>(optim::sgd{.momentum = 0.9});
  const auto strategy = strategy_of<float, comm::threads>(parallel::all_reduce{});
  for (const bool end : {false, true}) {
    check_resumed<float>(
        2, sgd, strategy,
        {.epochs = 5, .micro_batch_size = 2, .capture_after = 16, .capture_at_end_of_epoch = end, .plateau = true},
        true);
  }
}

BOOST_AUTO_TEST_SUITE_END()
