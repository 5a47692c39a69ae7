// SPDX-License-Identifier: BSL-1.0
//
// Reproducible training reaches the same bits on any number of ranks and threads, by every strategy. Ranks in threads;
// tests/distributed has MPI.
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../../support/reproducible_runs.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/conformance/sanitizers.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/synchronized_statistics.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/metrics.hpp"

namespace {

namespace reproducible_comm = gradus::comm;
using gradus::parallel::reproducible;
using gradus_test::bits_problem;
using gradus_test::bits_setup;
using gradus_test::train_bits;
using gradus_test::training_bits;
template <class Layout>
using float_network = gradus::nn::network<float, Layout>;
using nhwc_network = float_network<gradus::nhwc>;

// ThreadSanitizer is some fifty times slower: the same threads meet on fewer numbers of ranks, in one layout.
#if GRADUS_THREAD_SANITIZER
constexpr std::array numbers_of_ranks{2, 4};
constexpr std::array numbers_of_threads{1, 2};
using swept_layouts = std::tuple<gradus::nhwc>;
#else
constexpr std::array numbers_of_ranks{1, 2, 4, 8};
constexpr std::array numbers_of_threads{1, 2, 3};
using swept_layouts = std::tuple<gradus::nchw, gradus::nhwc>;
#endif

constexpr gradus::optim::sgd with_momentum{.momentum = 0.9, .weight_decay = 0.001};
constexpr gradus::optim::update<gradus::optim::sgd> with_clipping{.rule = {.momentum = 0.9}, .max_norm = 0.5};

/// The results of all ranks are these bits.
void check_bits(const std::vector<training_bits>& results, const training_bits& want) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    BOOST_TEST_CONTEXT("rank " << rank) {
      BOOST_TEST((results[rank].weights == want.weights));
      BOOST_TEST((results[rank].statistics == want.statistics));
      BOOST_TEST((results[rank].reports == want.reports));
    }
  }
}

/// By all-reduce in one process.
template <class Network, class Rule>
training_bits bits_of_one_process(const bits_problem<Network>& problem, const Rule& rule,
                                  const bits_setup& setup = {}) {
  reproducible_comm::self alone;
  return train_bits(alone, problem, rule, reproducible{gradus::parallel::all_reduce{}}, setup);
}

/// On threads of this process.
template <class Network, class Rule, class Strategy>
std::vector<training_bits> bits_of_ranks(int ranks, const bits_problem<Network>& problem, const Rule& rule,
                                         const Strategy& strategy, const bits_setup& setup = {}) {
  return reproducible_comm::run_ranks(ranks, [&](reproducible_comm::threads& world) {
    return train_bits(world, problem, rule, reproducible{strategy}, setup);
  });
}

/// On collectives of the library over messages.
template <class Network, class Rule, class Strategy>
std::vector<training_bits> bits_by_messages(int ranks, std::string_view algorithm, const bits_problem<Network>& problem,
                                            const Rule& rule, const Strategy& strategy) {
  return reproducible_comm::run_ranks(ranks, [&](reproducible_comm::threads& threads) {
    std::vector<int> nodes;
    for (int rank = 0; rank < ranks; ++rank) {
      nodes.push_back(rank * 2 / ranks);
    }
    reproducible_comm::collectives world{
        threads.duplicate(),
        {.all_reduce = reproducible_comm::parse_all_reduce_spec(algorithm), .node_of_rank = nodes}};
    return train_bits(world, problem, rule, reproducible{strategy});
  });
}

/// With parameter servers; ranks that only serve have no result.
template <class Network, class Rule>
std::vector<training_bits> bits_with_servers(int workers, const bits_problem<Network>& problem, const Rule& rule,
                                             const gradus::parallel::parameter_server& servers) {
  const int ranks = workers + (servers.colocate ? 0 : servers.servers);
  auto results = reproducible_comm::run_ranks(ranks, [&](reproducible_comm::threads& world) -> training_bits {
    const reproducible strategy{servers};
    if (strategy.is_server_only(world)) {
      gradus::parallel::serve<float>(world, rule, strategy);
      return {};
    }
    return train_bits(world, problem, rule, strategy);
  });
  results.resize(static_cast<std::size_t>(workers));
  return results;
}

const std::vector<gradus::parallel::parameter_server>& server_plans() {
  static const std::vector<gradus::parallel::parameter_server> plans{
      {.servers = 1},
      {.servers = 2},
      {.servers = 0, .colocate = true},
      {.servers = 1, .colocate = true, .overlap_forward = true},
  };
  return plans;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reproducible_bits)

BOOST_AUTO_TEST_CASE_TEMPLATE(do_not_depend_on_ranks_and_threads, Layout, swept_layouts) {
  using network = float_network<Layout>;
  for (const auto& problem : {gradus_test::mnist_problem<network>(), gradus_test::resnet_problem<network>()}) {
    const training_bits want = bits_of_one_process(problem, with_momentum);
    for (const int ranks : numbers_of_ranks) {
      for (const int threads : numbers_of_threads) {
        BOOST_TEST_CONTEXT(ranks << " ranks with " << threads << " threads") {
          check_bits(bits_of_ranks(ranks, problem, with_momentum, gradus::parallel::all_reduce{},
                                   {.threads = ranks < 8 ? threads : 1}),
                     want);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(of_sharded_updates_are_those_of_all_reduce, Layout, swept_layouts) {
  using network = float_network<Layout>;
  for (const auto& problem : {gradus_test::mnist_problem<network>(), gradus_test::resnet_problem<network>()}) {
    const training_bits want = bits_of_one_process(problem, with_momentum);
    for (const int ranks : numbers_of_ranks) {
      BOOST_TEST_CONTEXT(ranks << " ranks") {
        check_bits(bits_of_ranks(ranks, problem, with_momentum, gradus::parallel::sharded_update{}), want);
        check_bits(bits_by_messages(ranks, "ring", problem, with_momentum,
                                    gradus::parallel::sharded_update{.bucket_bytes = 30000, .first_bucket_bytes = 100}),
                   want);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(of_parameter_servers_are_those_of_all_reduce, Layout, swept_layouts) {
  using network = float_network<Layout>;
  for (const auto& problem : {gradus_test::mnist_problem<network>(), gradus_test::resnet_problem<network>()}) {
    const training_bits want = bits_of_one_process(problem, with_momentum);
    for (const int workers : numbers_of_ranks) {
      for (const auto& servers : server_plans()) {
        BOOST_TEST_CONTEXT(workers << " workers, " << servers.servers << " servers") {
          check_bits(bits_with_servers(workers, problem, with_momentum, servers), want);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(do_not_depend_on_the_algorithm) {
  const auto problem = gradus_test::resnet_problem<nhwc_network>();
  const training_bits want = bits_of_one_process(problem, with_momentum);
  for (const std::string_view algorithm : reproducible_comm::all_reduce_algorithm_names) {
    for (const int ranks : numbers_of_ranks) {
      BOOST_TEST_CONTEXT(algorithm << " of " << ranks << " ranks") {
        check_bits(bits_by_messages(ranks, algorithm, problem, with_momentum, gradus::parallel::all_reduce{}), want);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(do_not_depend_on_the_plan) {
  using gradus::parallel::all_reduce;
  const auto problem = gradus_test::mnist_problem<nhwc_network>();
  const training_bits want = bits_of_one_process(problem, with_momentum);
  for (const all_reduce& plan :
       {all_reduce{.bucket_bytes = 0}, all_reduce{.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap = false},
        all_reduce{.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap_forward = true},
        all_reduce{.bucket_bytes = 1, .first_bucket_bytes = 1, .partition_bytes = 1000, .credit_bytes = 2000},
        all_reduce{.bucket_bytes = 1, .first_bucket_bytes = 1, .order = {7, 0, 1, 4, 3, 2, 6, 5}}}) {
    for (const int ranks : {1, 4}) {
      check_bits(bits_of_ranks(ranks, problem, with_momentum, plan), want);
    }
  }
}

BOOST_AUTO_TEST_CASE(do_not_depend_on_memory_for_larger_batches) {
  const auto problem = gradus_test::resnet_problem<nhwc_network>();
  const training_bits want = bits_of_one_process(problem, with_momentum);
  check_bits({bits_of_one_process(problem, with_momentum, {.max_batch_size = 20})}, want);
  const bits_setup in_parts{.micro_batch_size = 2};
  const training_bits want_parts = bits_of_one_process(problem, with_momentum, in_parts);
  BOOST_TEST((want_parts.weights != want.weights));
  for (const int ranks : {2, 4}) {
    check_bits(bits_of_ranks(ranks, problem, with_momentum, gradus::parallel::all_reduce{}, in_parts), want_parts);
  }
}

BOOST_AUTO_TEST_CASE(of_adam) {
  constexpr gradus::optim::adam rule{};
  const auto problem = gradus_test::resnet_problem<nhwc_network>();
  const training_bits want = bits_of_one_process(problem, rule);
  for (const int ranks : numbers_of_ranks) {
    check_bits(bits_of_ranks(ranks, problem, rule, gradus::parallel::all_reduce{}), want);
    check_bits(bits_of_ranks(ranks, problem, rule, gradus::parallel::sharded_update{}), want);
  }
}

BOOST_AUTO_TEST_CASE(of_lamb) {
  constexpr gradus::optim::lamb rule{};
  const auto problem = gradus_test::resnet_problem<nhwc_network>();
  const training_bits want = bits_of_one_process(problem, rule);
  for (const int ranks : numbers_of_ranks) {
    check_bits(bits_of_ranks(ranks, problem, rule, gradus::parallel::all_reduce{}), want);
    check_bits(bits_with_servers(ranks, problem, rule,
                                 {.servers = 2, .placed = {.policy = gradus::parallel::placement_policy::greedy}}),
               want);
  }
}

BOOST_AUTO_TEST_CASE(of_clipped_gradients) {
  const auto problem = gradus_test::resnet_problem<nhwc_network>();
  const training_bits want = bits_of_one_process(problem, with_clipping);
  BOOST_TEST((want.weights != bits_of_one_process(problem, with_clipping.rule).weights));
  for (const int ranks : numbers_of_ranks) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      check_bits(bits_of_ranks(ranks, problem, with_clipping, gradus::parallel::all_reduce{}), want);
      check_bits(bits_of_ranks(ranks, problem, with_clipping, gradus::parallel::sharded_update{}), want);
      check_bits(bits_by_messages(ranks, "tree", problem, with_clipping,
                                  gradus::parallel::sharded_update{.bucket_bytes = 30000, .first_bucket_bytes = 100}),
                 want);
      for (const auto& servers : server_plans()) {  // which do not report the norm
        for (const training_bits& each : bits_with_servers(ranks, problem, with_clipping, servers)) {
          BOOST_TEST((each.weights == want.weights));
        }
      }
    }
  }
}

// Real targets far from 0, whose sums are not exact.
BOOST_AUTO_TEST_CASE(of_metrics) {
  namespace nn = gradus::nn;
  namespace metrics = gradus::metrics;
  constexpr gradus::index_t examples = 53;
  std::vector<float> x;
  std::vector<float> y;
  std::vector<double> weights;
  for (gradus::index_t i = 0; i < examples; ++i) {
    for (int k = 0; k < 3; ++k) {  // examples that begin anywhere in a line of the cache
      x.push_back(static_cast<float>((i * 37 + k * 11) % 29) / 7.0F);
    }
    y.push_back(100.0F + static_cast<float>((i * 53) % 31) / 3.0F);
    weights.push_back(0.1 * static_cast<double>(i % 4));
  }
  const auto run = [&](auto& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    const auto set = gradus::data::in_memory(gradus::data::examples_of(std::span{x}, {1, 3, 1, 1}),
                                             gradus::data::examples_of(std::span{y}, {1, 1, 1, 1}),
                                             {.weights = std::span<const double>{weights}});
    gradus::data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 20}};
    nhwc_network net{device, {3, 1, 1}};
    net.loss(nn::mean_squared_error{}, net.add("scores", nn::dense{.out_features = 1}, net.input()));
    net.compile({.max_batch_size = 3, .seed = 1});
    gradus::train::trainer trainer{net, with_clipping, world, reproducible{gradus::parallel::all_reduce{}}};
    std::vector<std::uint64_t> bits;
    const auto note = [&](double number) { bits.push_back(std::bit_cast<std::uint64_t>(number)); };
    trainer.fit(loader, {.epochs = 3, .learning_rate = 0.01},
                [&](const gradus::train::epoch_report& epoch) { note(epoch.loss); });
    const auto& [report, absolute, squared, determined] = trainer.evaluate(
        loader, metrics::list{metrics::mean_absolute_error{}, metrics::mean_squared_error{}, metrics::r2{}});
    note(report.loss);
    note(absolute);
    note(squared);
    note(determined.mean);
    return bits;
  };
  reproducible_comm::self alone;
  const auto want = run(alone);
  for (const int ranks : numbers_of_ranks) {
    for (const auto& each : reproducible_comm::run_ranks(ranks, [&](auto& world) { return run(world); })) {
      BOOST_TEST((each == want));
    }
  }
}

BOOST_AUTO_TEST_CASE(of_sixteen_bits) {
  const auto check = [](const auto& problem, const auto& rule) {
    const training_bits want = bits_of_one_process(problem, rule);
    for (const int ranks : {2, 4}) {
      check_bits(bits_of_ranks(ranks, problem, rule, gradus::parallel::all_reduce{}, {.threads = 2}), want);
    }
  };
  check(gradus_test::resnet_problem<gradus::nn::network<gradus::bfloat16, gradus::nhwc>>(), with_momentum);
  check(gradus_test::mnist_problem<gradus::nn::network<gradus::float16, gradus::nchw>>(9),
        gradus::optim::update<gradus::optim::sgd>{.rule = with_momentum, .max_norm = 0.5, .loss_scaling = {}});
}

// If they did, the other tests could not fail.
BOOST_AUTO_TEST_CASE(differ_between_numbers_of_ranks_without_virtual_workers) {
  const auto problem = gradus_test::mnist_problem<nhwc_network>();
  const bits_setup setup{.max_batch_size = 21};
  const auto run = [&](int ranks, const auto& strategy) {
    return reproducible_comm::run_ranks(ranks, [&](reproducible_comm::threads& world) {
      return train_bits(world, problem, with_momentum, strategy, setup);
    });
  };
  const auto one = run(1, gradus::parallel::all_reduce{});
  const auto four = run(4, gradus::parallel::all_reduce{});
  BOOST_TEST((one[0].weights != four[0].weights));
  BOOST_TEST((one[0].reports != four[0].reports));
}

BOOST_AUTO_TEST_CASE(of_other_numbers_of_virtual_workers_differ) {
  const auto problem = gradus_test::mnist_problem<nhwc_network>();
  reproducible_comm::self alone;
  const reproducible<gradus::parallel::all_reduce> four{.strategy = {}, .virtual_workers = 4};
  const training_bits want = train_bits(alone, problem, with_momentum, four, {.max_batch_size = 6});
  BOOST_TEST((want.weights != bits_of_one_process(problem, with_momentum).weights));
  const auto results = reproducible_comm::run_ranks(2, [&](reproducible_comm::threads& world) {
    return train_bits(world, problem, with_momentum, four, {.max_batch_size = 6});
  });
  check_bits(results, want);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(reproducible_refuses)

namespace {

/// The message of the error that body() throws.
template <class Body>
std::string reproducible_message(const Body& body) {
  try {
    body();
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "no error";
}

bool reproducible_says(const std::string& message, std::string_view words) {
  BOOST_TEST_INFO(message);
  return message.find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_cannot_share_the_virtual_workers) {
  const auto problem = gradus_test::mnist_problem<nhwc_network>();
  const auto messages = reproducible_comm::run_ranks(3, [&](reproducible_comm::threads& world) {
    return reproducible_message(
        [&] { train_bits(world, problem, with_momentum, reproducible{gradus::parallel::all_reduce{}}); });
  });
  for (const std::string& message : messages) {
    BOOST_TEST(reproducible_says(message, "1, 2, 4 or 8 ranks"));
    BOOST_TEST(reproducible_says(message, "3 ranks"));
  }
}

BOOST_AUTO_TEST_CASE(virtual_workers_that_are_no_power_of_two) {
  const auto problem = gradus_test::mnist_problem<nhwc_network>();
  reproducible_comm::self alone;
  for (const int workers : {-1, 0, 6, 1 << 17}) {
    BOOST_TEST(reproducible_says(reproducible_message([&] {
                                   train_bits(alone, problem, with_momentum,
                                              reproducible<>{.strategy = {}, .virtual_workers = workers});
                                 }),
                                 "power of two of virtual_workers"));
  }
}

BOOST_AUTO_TEST_CASE(batches_of_no_workers) {
  using gradus::train::worker_batch_size;
  BOOST_TEST(worker_batch_size(64) == 8);
  BOOST_TEST(worker_batch_size(65) == 9);
  BOOST_TEST(worker_batch_size(3, 4) == 1);
  BOOST_TEST(reproducible_says(reproducible_message([] { static_cast<void>(worker_batch_size(64, 0)); }),
                               "virtual workers of at least 1"));
  BOOST_TEST(reproducible_says(reproducible_message([] { static_cast<void>(worker_batch_size(0)); }),
                               "a batch and virtual workers"));
}

BOOST_AUTO_TEST_CASE(servers_that_do_not_wait_for_all_workers) {
  const auto problem = gradus_test::mnist_problem<nhwc_network>();
  for (const gradus::parallel::parameter_server& servers :
       {gradus::parallel::parameter_server{.colocate = true, .mode = gradus::parallel::server_mode::asynchronous},
        gradus::parallel::parameter_server{.colocate = true, .backup_workers = 1}}) {
    const auto messages = reproducible_comm::run_ranks(2, [&](reproducible_comm::threads& world) {
      return reproducible_message([&] { train_bits(world, problem, with_momentum, reproducible{servers}); });
    });
    for (const std::string& message : messages) {
      BOOST_TEST(reproducible_says(message, "synchronous servers without backup workers"));
    }
  }
}

BOOST_AUTO_TEST_CASE(statistics_that_ranks_share) {
  reproducible_comm::self alone;
  gradus::parallel::synchronized_statistics statistics{alone};
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic({.examples = 8, .channels = 1, .height = 4, .width = 4});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 8}};
  nhwc_network net{device, {1, 4, 4}};
  gradus::nn::value x = net.add("norm", gradus::nn::synchronized_batch_norm{.group = &statistics}, net.input());
  x = net.add("scores", gradus::nn::dense{.out_features = 10}, x);
  net.loss(gradus::nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = 1});
  gradus::train::trainer trainer{net, with_momentum, alone, reproducible{gradus::parallel::all_reduce{}}};
  const std::string message = reproducible_message([&] { trainer.fit(loader, {}); });
  BOOST_TEST(reproducible_says(message, "nn::synchronized_batch_norm"));
  BOOST_TEST(reproducible_says(message, "reproducible.cpp"));
}

BOOST_AUTO_TEST_CASE(loaders_with_other_shards) {
  struct other_shards {
    gradus::data::loader<float, gradus::nhwc>& batches;
    void take_shard(const gradus::data::shard& part) { batches.take_shard({.rank = part.rank, .ranks = part.ranks}); }
    void start_epoch(std::uint64_t epoch) { batches.start_epoch(epoch); }
    auto next() { return batches.next(); }
    gradus::index_t steps_per_epoch() const { return batches.steps_per_epoch(); }
    gradus::index_t examples_per_epoch() const { return batches.examples_per_epoch(); }
    std::string description() const { return batches.description(); }
  };
  const std::vector<std::string> messages = reproducible_comm::run_ranks(2, [](reproducible_comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    const auto images = gradus::data::make_synthetic({.examples = 9, .channels = 1, .height = 4, .width = 4});
    gradus::data::loader<float, gradus::nhwc> batches{device, images, {.global_batch_size = 9}};
    other_shards loader{batches};
    nhwc_network net{device, {1, 4, 4}};
    net.loss(gradus::nn::softmax_cross_entropy{},
             net.add("scores", gradus::nn::dense{.out_features = 10}, net.input()));
    net.compile({.max_batch_size = 2});
    gradus::train::trainer trainer{net, with_momentum, world, reproducible{gradus::parallel::all_reduce{}}};
    try {
      return reproducible_message([&] { trainer.fit(loader, {}); });
    } catch (const gradus::communication_error&) {  // the other rank has failed before
      return std::string{"of 9 examples"};
    }
  });
  for (const std::string& message : messages) {
    BOOST_TEST(reproducible_says(message, "of 9 examples"));
  }
}

BOOST_AUTO_TEST_SUITE_END()
