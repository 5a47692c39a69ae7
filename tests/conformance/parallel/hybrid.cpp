// SPDX-License-Identifier: BSL-1.0
//
// Pipelines and their replicas on thread ranks: one meaning with one process that computes the same micro-batches.
#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../support/hybrid_training.hpp"
#include "../../support/waiting.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/training_state.hpp"

namespace hybrid_training {

namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus_test::hybrid_setup;
using gradus_test::train_with_skips;
using gradus_test::values_of_ranks;

constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

template <class Layout, class Rule>
void require_bits_of_one_process(const Rule& rule, const parallel::hybrid& options, const hybrid_setup& how) {
  BOOST_TEST_CONTEXT(options.stages << " ranks, " << options.stages_per_rank << " stages each, "
                                    << options.micro_batches << " micro-batches, " << options.schedule.name) {
    const auto want = gradus_test::train_alone(
        [&](auto& world, const auto& strategy, const hybrid_setup& whole) {
          return train_with_skips<Layout>(world, rule, strategy, whole);
        },
        how, options.micro_batches);
    const auto ranks = gradus::comm::run_ranks(
        options.stages, [&](auto& world) { return train_with_skips<Layout>(world, rule, options, how); });
    BOOST_TEST((values_of_ranks(ranks) == want.values));
    for (const auto& rank : ranks) {
      BOOST_TEST(rank.losses == want.losses, boost::test_tools::per_element());
      BOOST_TEST(rank.norms == want.norms, boost::test_tools::per_element());
      BOOST_TEST(rank.mean_norms == want.mean_norms, boost::test_tools::per_element());
      BOOST_TEST(rank.skipped_steps == want.skipped_steps);
      BOOST_TEST(rank.evaluation_loss == want.evaluation_loss);
      BOOST_TEST(rank.evaluation_accuracy == want.evaluation_accuracy);
      BOOST_TEST(rank.evaluated == want.evaluated);
      BOOST_TEST(rank.values.size() < (options.stages > 1 ? want.values.size() : want.values.size() + 1));
    }
  }
}

BOOST_AUTO_TEST_SUITE(hybrid)

BOOST_AUTO_TEST_CASE(a_pipeline_has_the_bits_of_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  for (const int stages : {1, 2, 3, 4, 8}) {
    for (const int micro_batches : {1, 2, 5, 12}) {
      const auto& rule = parallel::pipeline_rules[static_cast<std::size_t>(stages + micro_batches) % 3];
      require_bits_of_one_process<gradus::nhwc>(
          momentum, {.stages = stages, .micro_batches = micro_batches, .schedule = rule}, how);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_schedule_has_the_bits_of_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    require_bits_of_one_process<gradus::nchw>(momentum, {.stages = 3, .micro_batches = 6, .schedule = rule}, how);
  }
  require_bits_of_one_process<gradus::nchw>(momentum, {.stages = 2, .micro_batches = 6, .stages_per_rank = 3}, how);
  require_bits_of_one_process<gradus::nhwc>(momentum, {.stages = 3, .micro_batches = 4, .stages_per_rank = 2}, how);
}

BOOST_AUTO_TEST_CASE(rules_that_need_all_gradients_have_the_bits_of_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  const parallel::hybrid options{.stages = 4, .micro_batches = 4};
  require_bits_of_one_process<gradus::nhwc>(optim::update<optim::sgd>{.rule = momentum, .max_norm = 0.5}, options, how);
  require_bits_of_one_process<gradus::nhwc>(optim::adam{}, options, how);
  require_bits_of_one_process<gradus::nchw>(optim::lamb{}, options, how);
}

BOOST_AUTO_TEST_CASE(several_stages_of_a_rank_clip_as_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  const optim::update<optim::sgd> rule{.rule = momentum, .max_norm = 0.5};
  for (const int stages : {1, 2, 3}) {
    for (const int of_rank : {2, 3}) {
      require_bits_of_one_process<gradus::nhwc>(
          rule, {.stages = stages, .micro_batches = 4, .stages_per_rank = of_rank}, how);
    }
  }
}

// In the first steps the gradients of weights that read large inputs overflow, and no others: all stages skip them.
BOOST_AUTO_TEST_CASE(a_scaled_loss_has_the_bits_of_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  const gradus::data::image_dataset& usual = gradus_test::dataset_for_pipelines();
  const gradus::data::image_dataset large{usual.shape(),
                                          {usual.pixels().begin(), usual.pixels().end()},
                                          {usual.labels().begin(), usual.labels().end()},
                                          usual.classes(),
                                          {.scale = 100}};
  const optim::loss_scaling scaling{.initial = 0x1p117};
  const auto require_same = [&](const auto& rule, const parallel::hybrid& options) {
    const auto train = [&](auto& world, const auto& strategy, const hybrid_setup& setup) {
      return gradus_test::train_on_rank<gradus::nhwc>(world, rule, strategy, setup, large,
                                                      gradus_test::network_with_skips{&how});
    };
    const auto want = gradus_test::train_alone(train, how, options.micro_batches);
    const auto ranks = gradus::comm::run_ranks(options.stages, [&](auto& world) { return train(world, options, how); });
    BOOST_TEST((values_of_ranks(ranks) == want.values));
    BOOST_TEST(want.skipped_steps > 1);
    BOOST_TEST(want.skipped_steps < 8);
    for (const auto& rank : ranks) {
      BOOST_TEST(rank.skipped_steps == want.skipped_steps);
      BOOST_TEST(rank.mean_norms == want.mean_norms, boost::test_tools::per_element());
    }
  };
  for (const parallel::hybrid& options : {parallel::hybrid{.stages = 4, .micro_batches = 4},
                                          parallel::hybrid{.stages = 2, .micro_batches = 3, .stages_per_rank = 2}}) {
    require_same(optim::update<optim::sgd>{.rule = momentum, .loss_scaling = scaling}, options);
    require_same(optim::update<optim::sgd>{.rule = momentum, .max_norm = 0.5, .loss_scaling = scaling}, options);
  }
}

BOOST_AUTO_TEST_CASE(recomputed_and_frozen_layers_have_the_bits_of_one_process) {
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    const parallel::hybrid options{.stages = 3, .micro_batches = 4, .schedule = rule};
    require_bits_of_one_process<gradus::nhwc>(momentum, options,
                                              {.compile = {.max_batch_size = 12, .seed = 3, .recompute = true}});
    require_bits_of_one_process<gradus::nhwc>(momentum, options,
                                              {.compile = {.max_batch_size = 12, .seed = 3}, .freezes = true});
  }
}

BOOST_AUTO_TEST_CASE(a_network_that_was_not_compiled_takes_the_options_of_the_strategy) {
  const nn::compile_options compile{.max_batch_size = 12, .seed = 3};
  require_bits_of_one_process<gradus::nhwc>(momentum, {.stages = 4, .micro_batches = 3, .compile = compile},
                                            {.compile = compile, .compiled_before = false});
}

BOOST_AUTO_TEST_CASE(replicas_of_pipelines_equal_one_process_up_to_rounding) {
  for (const int replicas : {2, 3}) {
    for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
      const parallel::hybrid options{.stages = 2, .micro_batches = 2, .schedule = rule};
      hybrid_setup how{.batch_size = 12, .compile = {.max_batch_size = 12 / replicas, .seed = 3}};
      const auto ranks = gradus::comm::run_ranks(
          2 * replicas, [&](auto& world) { return train_with_skips<gradus::nhwc>(world, momentum, options, how); });
      // One process with replicas only: data parallelism of the same micro-batches.
      hybrid_setup data = how;
      data.compile.micro_batch_size = (data.compile.max_batch_size - 1) / 2 + 1;
      const auto want = gradus::comm::run_ranks(replicas, [&](auto& world) {
        return train_with_skips<gradus::nhwc>(world, momentum, parallel::all_reduce{}, data);
      });
      const auto got = values_of_ranks(ranks);
      for (const auto& [name, values] : want.front().values) {
        const auto found = got.find(name);
        BOOST_TEST_REQUIRE((found != got.end()));
        double most = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          most = std::max(most, static_cast<double>(std::abs(values[i] - found->second[i])));
        }
        BOOST_TEST(most < 2e-5, name);
      }
      BOOST_TEST(std::abs(ranks.front().evaluation_loss - want.front().evaluation_loss) < 1e-4);
      BOOST_TEST(ranks.front().evaluated == 53);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_stage_may_have_no_parameters) {
  // One stage has dropout only, another a ReLU and a pooling.
  const std::vector<std::string> first_layers{"dropout", "last_conv", "last_relu", "hidden"};
  const hybrid_setup how{.compile = {.max_batch_size = 6, .seed = 3}};
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    parallel::hybrid options{.stages = 5, .micro_batches = 3, .schedule = rule, .first_layers = first_layers};
    const auto train = [&](int ranks, const auto& norm_rule) {
      return values_of_ranks(gradus::comm::run_ranks(
          ranks, [&](auto& world) { return train_with_skips<gradus::nhwc>(world, norm_rule, options, how); }));
    };
    const auto two_replicas = train(10, optim::update<optim::sgd>{.rule = momentum, .max_norm = 0.5});
    options.first_layers = {"block0_sum", "block1_sum", "block2_sum", "hidden"};
    const auto others = train(10, optim::update<optim::sgd>{.rule = momentum, .max_norm = 0.5});
    BOOST_TEST((two_replicas == others));  // cuts change no bit
  }
}

/// The states of all ranks after some steps.
template <class Strategy>
std::vector<std::unique_ptr<gradus::train::training_state>> states_of(int ranks, const Strategy& strategy,
                                                                      const hybrid_setup& how) {
  std::vector<std::unique_ptr<gradus::train::training_state>> states(static_cast<std::size_t>(ranks));
  for (auto& each : states) {
    each = std::make_unique<gradus::train::training_state>();
  }
  gradus::comm::run_ranks(ranks, [&](auto& world) {
    return train_with_skips<gradus::nhwc>(world, momentum, strategy, how, {},
                                          states[static_cast<std::size_t>(world.rank())].get());
  });
  return states;
}

BOOST_AUTO_TEST_CASE(a_state_does_not_depend_on_the_stages) {
  const auto alone = [](const hybrid_setup& setup) {
    gradus::comm::self process;
    return train_with_skips<gradus::nhwc>(process, momentum, parallel::all_reduce{}, setup);
  };
  hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3, .micro_batch_size = 3}, .epochs = 2};
  for (const bool freezes : {false, true}) {
    how.freezes = freezes;
    how.capture_after = 0;
    const auto want = alone(how);
    how.capture_after = 7;  // within the second epoch
    const parallel::hybrid four{.stages = 4, .micro_batches = 4};
    const auto states = states_of(4, four, how);
    std::vector<const gradus::train::training_state*> parts;
    for (const auto& each : states) {
      parts.push_back(each.get());
    }
    const gradus::train::state_parts whole{parts};
    hybrid_setup goes_on = how;
    goes_on.capture_after = 0;
    goes_on.from = &whole;
    const auto require = [&](const auto& ranks, const char* name) {
      BOOST_TEST((values_of_ranks(ranks) == want.values), name << (freezes ? ", frozen layers" : ""));
      BOOST_TEST(ranks.front().losses.back() == want.losses.back(), name);
      BOOST_TEST(ranks.front().evaluation_loss == want.evaluation_loss, name);
    };
    require(std::vector{alone(goes_on)}, "one process");
    for (const parallel::hybrid& other :
         {four, parallel::hybrid{.stages = 2, .micro_batches = 4, .schedule = parallel::zero_bubble},
          parallel::hybrid{.stages = 2, .micro_batches = 4, .stages_per_rank = 2}}) {
      require(gradus::comm::run_ranks(
                  other.stages,
                  [&](auto& world) { return train_with_skips<gradus::nhwc>(world, momentum, other, goes_on); }),
              "other stages");
    }
    // And from one process to stages.
    const auto state = states_of(1, parallel::all_reduce{}, how);
    goes_on.from = state.front().get();
    require(gradus::comm::run_ranks(
                4, [&](auto& world) { return train_with_skips<gradus::nhwc>(world, momentum, four, goes_on); }),
            "from one process");
  }
}

BOOST_AUTO_TEST_CASE(replicas_go_on_from_their_state_to_the_bit) {
  const parallel::hybrid options{.stages = 2, .micro_batches = 2};
  hybrid_setup how{.compile = {.max_batch_size = 6, .seed = 3}, .capture_after = 7};
  const auto states = states_of(4, options, how);
  std::vector<const gradus::train::training_state*> parts;
  for (const auto& each : states) {
    parts.push_back(each.get());
  }
  const gradus::train::state_parts whole{parts};
  hybrid_setup goes_on = how;
  goes_on.capture_after = how.capture_after = 0;
  goes_on.from = &whole;
  const auto run = [&](const hybrid_setup& setup) {
    return gradus::comm::run_ranks(
        4, [&](auto& world) { return train_with_skips<gradus::nhwc>(world, momentum, options, setup); });
  };
  const auto want = run(how);
  const auto got = run(goes_on);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    BOOST_TEST((got[rank].values == want[rank].values));  // buffers, too
    BOOST_TEST(got[rank].losses.back() == want[rank].losses.back());
  }
}

/// The message of each of three ranks, of which rank 1 says nothing more after two steps.
std::vector<std::string> messages_behind_a_silent_rank() {
  std::vector<std::string> messages(3);
  std::atomic<int> failed{0};
  try {
    gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
      world.set_time_limit(std::chrono::milliseconds{600});
      const auto falls_silent = [&](const gradus::train::step_report& step) {
        if (world.rank() == 1 && step.step == 1) {
          gradus_test::comes_true([&] { return failed == 2; });
          throw std::runtime_error{"gone"};
        }
      };
      try {
        train_with_skips<gradus::nhwc>(world, momentum, parallel::hybrid{.stages = 3, .micro_batches = 4},
                                       {.compile = {.max_batch_size = 12}}, falls_silent);
      } catch (const gradus::communication_error& failure) {
        messages[static_cast<std::size_t>(world.rank())] = failure.what();
        ++failed;
        throw;
      }
    });
  } catch (const std::exception& /*first*/) {
  }
  return messages;
}

BOOST_AUTO_TEST_CASE(ranks_that_wait_for_a_stage_name_it) {
  const std::vector<std::string> messages = messages_behind_a_silent_rank();
  BOOST_TEST(gradus_test::contains(messages[0], "stage 0, backward of micro-batch 0, gradients from stage"),
             messages[0]);
  BOOST_TEST(gradus_test::contains(messages[2], "stage 2, forward of micro-batch 0, values from stage 1"), messages[2]);
}

BOOST_AUTO_TEST_CASE(ranks_that_cut_differently_learn_it_before_the_first_step) {
  std::vector<std::string> messages(2);
  try {
    gradus::comm::run_ranks(2, [&](auto& world) {
      const parallel::hybrid options{
          .stages = 2, .micro_batches = 2, .first_layers = {world.rank() == 0 ? "concat" : "dropout"}};
      try {
        train_with_skips<gradus::nhwc>(world, momentum, options, {.compile = {.max_batch_size = 12}});
      } catch (const gradus::configuration_error& failure) {
        messages[static_cast<std::size_t>(world.rank())] = failure.what();
        throw;
      }
    });
  } catch (const std::exception& /*first*/) {
  }
  for (const std::string& message : messages) {
    BOOST_TEST(gradus_test::contains(message, "stages of the network"), message);
    BOOST_TEST(gradus_test::contains(message, "'concat'"), message);
  }
}

BOOST_AUTO_TEST_CASE(ranks_with_other_options_learn_which) {
  std::vector<std::string> messages(2);
  try {
    gradus::comm::run_ranks(2, [&](auto& world) {
      try {
        train_with_skips<gradus::nhwc>(world, momentum,
                                       parallel::hybrid{.stages = 2, .micro_batches = world.rank() == 0 ? 2 : 3},
                                       {.compile = {.max_batch_size = 12}});
      } catch (const gradus::configuration_error& failure) {
        messages[static_cast<std::size_t>(world.rank())] = failure.what();
        throw;
      }
    });
  } catch (const std::exception& /*first*/) {
  }
  for (const std::string& message : messages) {
    BOOST_TEST(gradus_test::contains(message, "micro-batches of a pipeline on all ranks, got 2 on rank 0; 3 on rank 1"),
               message);
  }
}

BOOST_AUTO_TEST_CASE(measured_times_choose_the_cuts_and_those_of_rank_0_count) {
  // 32 layers in the order in which they are added, of which two take long.
  const auto times_with = [](std::size_t first, std::size_t second) {
    std::vector<parallel::step_profile::layer> times(32, {.forward = 1e-6, .backward = 2e-6});
    times[first] = times[second] = {.forward = 0.5, .backward = 1};
    return times;
  };
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  const auto train = [&](const std::vector<parallel::step_profile::layer>& of_first,
                         const std::vector<parallel::step_profile::layer>& of_others) {
    return gradus::comm::run_ranks(2, [&](auto& world) {
      const parallel::hybrid options{
          .stages = 2, .micro_batches = 3, .layer_times = world.rank() == 0 ? of_first : of_others};
      return train_with_skips<gradus::nhwc>(world, momentum, options, how);
    });
  };
  const auto begins_with = [](const std::string& stages, const char* layer) { return stages.rfind(layer, 0) == 0; };
  const auto estimated = train({}, times_with(30, 31));  // rank 0 has none
  for (const std::vector<parallel::step_profile::layer>& others :
       {std::vector<parallel::step_profile::layer>{}, times_with(0, 1)}) {
    const auto late = train(times_with(30, 31), others);
    BOOST_TEST(begins_with(late[1].stages, "scores"), late[1].stages);
    BOOST_TEST((values_of_ranks(late) == values_of_ranks(estimated)));  // cuts change no bit
  }
  const auto early = train(times_with(0, 1), times_with(30, 31));
  BOOST_TEST(begins_with(early[1].stages, "norm relu"), early[1].stages);
  BOOST_TEST(estimated[1].stages != early[1].stages);
  const auto none = train(std::vector<parallel::step_profile::layer>(32), {});  // all 0
  BOOST_TEST((values_of_ranks(none) == values_of_ranks(estimated)));
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  const auto message_of = [](const parallel::hybrid& options, int ranks, const hybrid_setup& how) {
    std::string message;
    try {
      gradus::comm::run_ranks(
          ranks, [&](auto& world) { return train_with_skips<gradus::nhwc>(world, momentum, options, how); });
    } catch (const gradus::configuration_error& failure) {
      message = failure.what();
    }
    return message;
  };
  const hybrid_setup how{.compile = {.max_batch_size = 12}};
  const auto require = [](const std::string& message, const char* part) {
    BOOST_TEST(gradus_test::contains(message, part), message);
  };
  require(message_of({.stages = 2}, 3, how), "a multiple of 2 ranks");
  require(message_of({.stages = 0}, 1, how), "at least 1");
  require(message_of({.stages = 2, .schedule = parallel::gpipe, .stages_per_rank = 2}, 2, how), "1 stage of each rank");
  require(message_of({.stages = 2, .first_layers = {"no_layer"}}, 2, how), "'no_layer'");
  require(message_of({.stages = 2, .memory_limit = 1000}, 2, how), "larger memory_limit");
  require(message_of({.stages = 2}, 2, {.compiled_before = false}), "the options to compile it");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<parallel::step_profile::layer> times(31);
  require(message_of({.stages = 2, .layer_times = times}, 2, how),
          "layer_times of the 32 layers of the network, got 31");
  times.resize(32);
  times[2].backward = nan;
  require(message_of({.stages = 2, .layer_times = times}, 2, how), "layer_times, of layer 'relu', got 0 and nan");
  times[2] = {.forward = -1, .backward = 0};
  require(message_of({.stages = 2, .layer_times = times}, 2, how), "layer_times, of layer 'relu', got -1 and 0");
}

BOOST_AUTO_TEST_CASE(a_network_in_stages_refuses_passes_over_all_layers) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_network_with_skips(net);
  net.compile_stages({.max_batch_size = 4}, {.first_layers = {0, 5}, .own = {1}});
  const gradus::image_tensor<float, gradus::nhwc> images{device, {4, 2, 9, 8}};
  BOOST_CHECK_EXCEPTION(static_cast<void>(net.forward(images.view())), gradus::configuration_error,
                        [](const auto& failure) { return gradus_test::contains(failure.what(), "cut into 2 stages"); });
  BOOST_TEST(net.parameters().front().name() == "scores.weight");
  BOOST_CHECK_THROW(static_cast<void>(net.find_parameter("conv.weight")), gradus::configuration_error);
  BOOST_CHECK_THROW(net.compile_stages({.max_batch_size = 4}, {.first_layers = {0, 500}, .own = {1}}),
                    gradus::configuration_error);
  BOOST_TEST(net.structure().stages().stages() == 2U);  // as before
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace hybrid_training
