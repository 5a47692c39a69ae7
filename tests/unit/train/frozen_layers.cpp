// SPDX-License-Identifier: BSL-1.0
//
// Frozen layers and groups of parameters on ranks: every strategy leaves frozen values as those of rank 0, sends fewer
// bytes, and takes the steps of one process.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::max
#include <mutex>      // std::mutex, std::scoped_lock
#include <string>     // std::string
#include <vector>     // std::vector

#include "../../support/training_runs.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"

namespace {

namespace comm = gradus::comm;
namespace frozen_nn = gradus::nn;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;

struct frozen_outcome {
  std::vector<double> weights;  ///< all, after training
  std::vector<double> frozen;   ///< after training
  std::vector<double> given;    ///< the frozen ones of rank 0, before training
  std::size_t bytes = 0;        ///< that travel in a step, where the strategy says it
  std::size_t state = 0;        ///< elements of the rule's first buffer
};

constexpr optim::sgd usual_rule{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

/// @param freezes  whether the first convolution and the normalization are frozen
template <class Element = double, class Communicator, class Strategy, class Rule = optim::sgd>
frozen_outcome train_frozen(Communicator& world, const Strategy& strategy, const gradus::data::shard& mine,
                            bool freezes = true, const Rule& rule = usual_rule) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<Element, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11, .shard = mine}};
  frozen_nn::network<Element, gradus::nhwc> net{device, {2, 9, 8}};
  frozen_nn::value x = net.input();
  x = net.add("conv1", frozen_nn::conv2d{.out_channels = 40, .kernel = {3, 3}}, x);
  x = net.add("relu1", frozen_nn::relu{}, x);
  x = net.add("conv2", frozen_nn::conv2d{.out_channels = 6, .kernel = {3, 3}}, x);
  x = net.add("norm", frozen_nn::batch_norm{}, x);
  x = net.add("relu2", frozen_nn::relu{}, x);
  x = net.add("dropout", frozen_nn::dropout{.rate = 0.3}, x);
  x = net.add("scores", frozen_nn::dense{.out_features = 4}, x);
  net.loss(frozen_nn::softmax_cross_entropy{}, x);
  if (freezes) {
    net.freeze("conv1");
    net.freeze("norm", {.evaluates = true});
  }
  net.group("scores.*", {.learning_rate_factor = 3});
  net.group("conv2.weight", {.learning_rate_factor = 0.5, .weight_decay = false});
  net.compile({.max_batch_size = std::max<gradus::index_t>(1, loader.local_batch_size()), .seed = 11});
  const auto frozen = net.values().subspan(net.gradients().size());
  frozen_outcome result;
  result.given.assign(frozen.begin(), frozen.end());
  if (mine.rank > 0) {  // these are not what is trained
    for (const auto& parameter : net.parameters()) {
      std::vector<Element> values = parameter.copy_values();
      for (Element& value : values) {
        value += static_cast<Element>(mine.rank);
      }
      parameter.assign_values(values);
    }
  }
  gradus::train::trainer trainer{net, rule, world, strategy};
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
  (void)trainer.evaluate(loader);
  result.weights.assign(net.values().begin(), net.values().end());
  result.frozen.assign(frozen.begin(), frozen.end());
  for (const parallel::transfer_buffer& each : trainer.strategy().transfer_buffers()) {
    result.bytes += each.bytes.size();
  }
  for (const optim::state_buffer& each : trainer.rule().buffers()) {
    result.state = result.state == 0 ? static_cast<std::size_t>(each.elements) : result.state;
  }
  return result;
}

const frozen_outcome& frozen_in_one_process() {
  static const frozen_outcome result = [] {
    comm::self one;
    return train_frozen(one, parallel::all_reduce{}, {});
  }();
  return result;
}

/// Checks the trained ranks against one process.
void require_frozen(const std::string& what, const std::vector<frozen_outcome>& results, double tolerance) {
  const frozen_outcome& one = frozen_in_one_process();
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    BOOST_TEST_CONTEXT(what << ", rank " << rank << " of " << results.size()) {
      BOOST_TEST(results[rank].frozen.size() > 700U);
      BOOST_TEST((results[rank].frozen == results[rank].given));
      BOOST_TEST((results[rank].weights == results.front().weights));
      BOOST_TEST(gradus_test::largest_difference(results[rank].weights, one.weights) < tolerance);
    }
  }
}

/// Trains with a strategy that has no ranks of servers only.
template <class Element = double, class Strategy>
std::vector<frozen_outcome> ranks_that_train(int ranks, const Strategy& strategy, bool freezes = true) {
  return comm::run_ranks(ranks, [&](comm::threads& world) {
    return train_frozen<Element>(world, strategy, {.rank = world.rank(), .ranks = world.size()}, freezes);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(frozen_layers_on_ranks)

BOOST_AUTO_TEST_CASE(one_process_keeps_frozen_values_and_no_state_for_them) {
  const frozen_outcome& one = frozen_in_one_process();
  BOOST_TEST((one.frozen == one.given));
  BOOST_TEST(one.state == one.weights.size() - one.frozen.size());
  comm::self world;
  const frozen_outcome all = train_frozen(world, parallel::all_reduce{}, {}, false);
  BOOST_TEST(all.frozen.empty());
  BOOST_TEST(all.state == all.weights.size());
}

BOOST_AUTO_TEST_CASE(every_strategy_takes_the_steps_of_one_process) {
  for (const int ranks : {1, 2, 3}) {
    require_frozen("all_reduce", ranks_that_train(ranks, parallel::all_reduce{}), 1e-9);
    require_frozen("all_reduce in small buckets behind forward",
                   ranks_that_train(ranks, parallel::all_reduce{.bucket_bytes = 500,
                                                                .first_bucket_bytes = 100,
                                                                .partition_bytes = 300,
                                                                .overlap_forward = true}),
                   1e-9);
    require_frozen("sharded_update", ranks_that_train(ranks, parallel::sharded_update{}), 1e-9);
    require_frozen("sharded_update by messages",
                   comm::run_ranks(ranks,
                                   [](comm::threads& world) {
                                     comm::collectives<comm::threads> ring{world.duplicate()};
                                     return train_frozen(ring, parallel::sharded_update{},
                                                         {.rank = ring.rank(), .ranks = ring.size()});
                                   }),
                   1e-9);
    require_frozen("parameter servers on all ranks",
                   ranks_that_train(ranks, parallel::parameter_server{.servers = ranks, .colocate = true}), 1e-9);
    for (const frozen_outcome& each : ranks_that_train(
             ranks, parallel::parameter_server{
                        .servers = ranks, .colocate = true, .mode = parallel::server_mode::bounded_staleness})) {
      BOOST_TEST((each.frozen == each.given));
    }
    require_frozen("model_averaging", ranks_that_train(ranks, parallel::model_averaging{.synchronous_steps = 1000}),
                   1e-9);
  }
}

BOOST_AUTO_TEST_CASE(a_server_of_its_own_knows_the_groups) {
  const parallel::parameter_server servers{.servers = 1};
  std::mutex mutex;
  std::vector<frozen_outcome> results;
  comm::run_ranks(3, [&](comm::threads& world) {
    if (servers.is_server_only(world)) {
      (void)parallel::serve<double>(world, usual_rule, servers);
      return;
    }
    frozen_outcome mine = train_frozen(world, servers, {.rank = world.rank(), .ranks = 2});
    const std::scoped_lock lock{mutex};
    results.push_back(std::move(mine));
  });
  BOOST_TEST(results.size() == 2U);
  require_frozen("parameter_server", results, 1e-9);
}

BOOST_AUTO_TEST_CASE(averages_and_16_bits_on_the_way_keep_frozen_values) {
  for (const frozen_outcome& each : ranks_that_train(2, parallel::model_averaging{.every_steps = 2})) {
    BOOST_TEST((each.frozen == each.given));
  }
  for (const frozen_outcome& each : ranks_that_train<float>(2, parallel::compressed_all_reduce<gradus::bfloat16>{})) {
    BOOST_TEST((each.frozen == each.given));
  }
  for (const frozen_outcome& each :
       ranks_that_train(2, parallel::model_averaging{.every_steps = 2, .outer = gradus::optim::adam_w{}})) {
    BOOST_TEST((each.frozen == each.given));
  }
}

BOOST_AUTO_TEST_CASE(gradients_and_values_of_frozen_layers_do_not_travel) {
  const auto require_fewer = [](const std::string& what, const auto& strategy) {
    const std::size_t all = ranks_that_train(2, strategy, false).front().bytes;
    const frozen_outcome some = ranks_that_train(2, strategy).front();
    BOOST_TEST(some.bytes > 0U, what);
    BOOST_TEST(some.bytes % (some.weights.size() - some.frozen.size()) == 0U, what);
    BOOST_TEST(all % some.weights.size() == 0U, what);
    BOOST_TEST(all - some.bytes == all / some.weights.size() * some.frozen.size(), what);
  };
  require_fewer("all_reduce", parallel::all_reduce{});
  comm::run_ranks(2, [&](comm::threads& world) {
    const auto mine = gradus::data::shard{.rank = world.rank(), .ranks = 2};
    comm::collectives<comm::threads> ring{world.duplicate()};
    const std::size_t all = train_frozen(ring, parallel::sharded_update{}, mine, false).bytes;
    const std::size_t some = train_frozen(ring, parallel::sharded_update{}, mine).bytes;
    if (world.rank() == 0) {
      BOOST_TEST(some < all);
    }
  });
  const std::size_t all =
      ranks_that_train(2, parallel::parameter_server{.servers = 2, .colocate = true}, false).front().bytes;
  const std::size_t some =
      ranks_that_train(2, parallel::parameter_server{.servers = 2, .colocate = true}).front().bytes;
  BOOST_TEST(some < all);
}

BOOST_AUTO_TEST_CASE(rules_around_rules_train_networks_with_frozen_layers) {
  comm::self world;
  const frozen_outcome scaled =
      train_frozen(world, parallel::all_reduce{}, {}, true,
                   optim::update<optim::sgd>{.rule = usual_rule, .loss_scaling = {.initial = 4}, .average = 0.999});
  BOOST_TEST((scaled.frozen == scaled.given));
  BOOST_TEST(gradus_test::largest_difference(scaled.weights, frozen_in_one_process().weights) < 1e-12);
  const frozen_outcome adam = train_frozen(world, parallel::all_reduce{}, {}, true, optim::adam_w{});
  BOOST_TEST((adam.frozen == adam.given));
  BOOST_TEST(adam.state == adam.weights.size() - adam.frozen.size());
}

BOOST_AUTO_TEST_CASE(ranks_that_freeze_other_layers_get_an_error) {
  for (const bool groups : {false, true}) {
    BOOST_CHECK_EXCEPTION(comm::run_ranks(2,
                                          [&](comm::threads& world) {
                                            gradus::cpu device{{.intra_op_threads = 1}};
                                            frozen_nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
                                            gradus_test::build_training_network(net);
                                            if (world.rank() == 1 && groups) {
                                              net.group("*.bias", {.learning_rate_factor = 2});
                                            } else if (world.rank() == 1) {
                                              net.freeze("conv1");
                                            }
                                            net.compile({.max_batch_size = 8, .seed = 1});
                                            gradus::train::trainer trainer{net, optim::sgd{}, world};
                                          }),
                          gradus::configuration_error, [](const gradus::configuration_error& failure) {
                            return std::string{failure.what()}.find("network") != std::string::npos;
                          });
  }
}

BOOST_AUTO_TEST_SUITE_END()
