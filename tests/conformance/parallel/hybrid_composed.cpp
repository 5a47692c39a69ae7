// SPDX-License-Identifier: BSL-1.0
//
// Pipelines that a program composes itself, of parts that are chosen when it runs; and how many stages it needs.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../support/hybrid_training.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/network/stage.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/network_layers.hpp"
#include "gradus/pipeline/ranks.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/trainer.hpp"

namespace composed_pipelines {

namespace comm = gradus::comm;
namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;

constexpr optim::sgd momentum{.momentum = 0.9, .weight_decay = 0.01};
const nn::compile_options compile{.max_batch_size = 12, .seed = 3};

using values_by_name = std::map<std::string, std::vector<float>>;

/// The parameters of a rank after a training, and the losses of its epochs.
struct outcome {
  values_by_name values;
  std::vector<double> losses;
  double evaluation_loss = 0;
};

/// As gradus_test::train_with_skips, by a trainer that is made with an optimizer_step.
outcome train_composed(comm::threads& world, parallel::hybrid options) {
  using network = nn::network<float, gradus::nhwc>;
  options.compile = compile;
  gradus::cpu device{{.intra_op_threads = 1}};
  const gradus::data::loader_options batches{.global_batch_size = 12, .seed = 11};
  gradus::data::loader<float, gradus::nhwc> loader{device, gradus_test::dataset_for_pipelines(), batches};
  network net{device, {2, 9, 8}};
  gradus_test::build_network_with_skips(net);
  auto stages = std::make_unique<train::pipeline<network>>(options);
  comm::any_communicator ranks{world};
  stages->prepare(net, ranks);
  const auto parameters = train::trained_parameters_of(net);
  const auto elements = static_cast<gradus::index_t>(parameters.values.size());
  optim::parameter_update_of<optim::sgd, float> rule{device, momentum, elements};
  parallel::strategy_state<parallel::hybrid, float> strategy{options, world, parameters.flat()};
  comm::link_of all{world};
  train::optimizer_step_of<float> end{parameters, rule, strategy, all};
  end.start();
  train::trainer trainer{net, end, end.group(), std::move(stages)};
  outcome result;
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05},
              [&](const train::epoch_report& epoch) { result.losses.push_back(epoch.loss); });
  result.evaluation_loss = trainer.evaluate(loader).loss;
  for (const auto& each : net.parameters()) {
    const auto values = each.value();
    result.values[std::string{each.name()}].assign(values.data(), values.data() + values.size());
  }
  return result;
}

BOOST_AUTO_TEST_SUITE(composed_hybrid)

BOOST_AUTO_TEST_CASE(a_pipeline_of_parts_has_the_bits_of_one_process) {
  gradus_test::hybrid_setup how{.compile = compile};
  how.compile.micro_batch_size = 3;
  comm::self process;
  const auto alone = gradus_test::train_with_skips<gradus::nhwc>(process, momentum, parallel::all_reduce{}, how);
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    const parallel::hybrid options{.stages = 3, .micro_batches = 4, .schedule = rule};
    const auto ranks = comm::run_ranks(3, [&](auto& world) { return train_composed(world, options); });
    std::size_t parameters = 0;
    for (const outcome& rank : ranks) {
      BOOST_TEST(rank.losses == alone.losses, boost::test_tools::per_element());
      BOOST_TEST(rank.evaluation_loss == ranks[0].evaluation_loss);
      parameters += rank.values.size();
      for (const auto& [name, values] : rank.values) {
        BOOST_TEST((values == alone.values.at(name)), name);
      }
    }
    BOOST_TEST(parameters == 34U);
  }
}

BOOST_AUTO_TEST_CASE(stages_take_the_memory_that_is_forecast) {
  gradus::cpu device{{.intra_op_threads = 1}};
  for (const bool freezes : {false, true}) {
    for (const int stages : {1, 3, 5}) {
      const parallel::hybrid options{
          .stages = stages, .micro_batches = 4, .schedule = parallel::zero_bubble, .compile = compile};
      nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
      gradus_test::build_network_with_skips(net);
      if (freezes) {
        net.freeze("norm");
        net.freeze("block0_*");
      }
      const nn::compile_options compiled = parallel::compile_options_of(options, net);
      const parallel::network_stages cut = parallel::cut_network(net, options, compiled);
      const auto forecast = parallel::forecast_stages(net, options, compiled, cut);
      BOOST_TEST_REQUIRE(forecast.size() == static_cast<std::size_t>(stages));
      for (std::size_t s = 0; s < forecast.size(); ++s) {
        nn::stage_cuts own = cut.cuts;
        own.own = {s};
        net.compile_stages(compiled, own);
        const nn::network_stage<float, gradus::cpu> stage{
            net, s, {.stored = static_cast<std::size_t>(cut.stages.stages[s].stored), .splits_backward = true}};
        BOOST_TEST(forecast[s].arena + forecast[s].workspace == stage.memory_bytes());
        BOOST_TEST(forecast[s].parameters == net.values().size_bytes());
        BOOST_TEST(forecast[s].buffers == net.buffer_values().size_bytes());
        const nn::graph& graph = net.structure();
        BOOST_TEST(forecast[s].gradients ==
                   static_cast<std::size_t>(graph.gradient_elements() + graph.trained_elements()) * sizeof(float));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_fewest_stages_of_a_network_keep_within_the_limit) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_network_with_skips(net);
  parallel::hybrid options{.micro_batches = 4, .compile = compile};
  const nn::compile_options compiled = parallel::compile_options_of(options, net);
  const auto most_of = [&](const parallel::network_stages& cut) {
    std::size_t most = 0;
    for (const nn::memory_forecast& each : parallel::forecast_stages(net, options, compiled, cut)) {
      most = std::max(most, each.total());
    }
    return most;
  };
  bool found_several = false;
  for (std::size_t limit = 400'000; limit > 10'000; limit -= limit / 10) {
    options.memory_limit = limit;
    const auto cut = parallel::cut_into_fewest(net, options, compiled);
    if (!cut) {
      break;
    }
    BOOST_TEST(most_of(*cut) <= limit);
    found_several = found_several || cut->cuts.stages() > 1;
  }
  BOOST_TEST(found_several);
  options.memory_limit = 100;
  BOOST_TEST(!parallel::cut_into_fewest(net, options, compiled).has_value());
  BOOST_TEST(!net.compiled());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace composed_pipelines
