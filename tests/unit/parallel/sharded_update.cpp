// SPDX-License-Identifier: BSL-1.0
//
// Updates of which each rank makes a part: who updates what, the rule's state at the end of epochs, ranks that fail.
#include <boost/test/unit_test.hpp>

#include <array>      // std::array
#include <atomic>     // std::atomic
#include <chrono>     // std::chrono
#include <cmath>      // std::sin
#include <memory>     // std::unique_ptr
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <thread>     // std::this_thread
#include <tuple>      // std::tuple
#include <vector>     // std::vector

#include "../../support/communicators.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"

namespace {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace suite = communicator_tests;
using gradus::index_t;
using namespace std::chrono_literals;

/// Some that several ranks share, and small ones; not all end at a line of the cache.
const std::vector<optim::segment>& uneven_parameters() {
  static const std::vector<optim::segment> all{{.name = "large", .offset = 0, .size = 100003},
                                               {.name = "bias", .offset = 100016, .size = 5, .decay = false},
                                               {.name = "middle", .offset = 100032, .size = 1111},
                                               {.name = "first", .offset = 101152, .size = 40}};
  return all;
}
constexpr std::size_t uneven_elements = 101200;

using sgd_update = optim::parameter_update_of<optim::sgd, float>;

/// A rule whose device has no threads for the rest of the work.
class without_threads final : public optim::parameter_update<float> {
 public:
  explicit without_threads(sgd_update& rule) : rule_{&rule} {}
  [[nodiscard]] std::string_view name() const noexcept override { return rule_->name(); }
  [[nodiscard]] std::string description() const override { return rule_->description(); }
  [[nodiscard]] bool elementwise() const noexcept override { return true; }
  void update(std::span<const optim::segment> ready, float* values, const float* gradients,
              const optim::update_step& step) override {
    rule_->update(ready, values, gradients, step);
  }
  [[nodiscard]] gradus::dynamic_array<optim::state_buffer> buffers() override { return rule_->buffers(); }
  [[nodiscard]] std::unique_ptr<optim::parameter_update<float>> with_state_on(gradus::cpu& device,
                                                                              index_t elements) const override {
    return rule_->with_state_on(device, elements);
  }

 private:
  sgd_update* rule_;
};

struct trained_rank {
  std::vector<float> values;
  std::vector<float> gradients;   // of the last step
  std::vector<float> velocities;  // in the end
  std::vector<float> on_the_way;  // after the second step, where the strategy fetches them
};

std::vector<float> velocities_of(sgd_update& rule) {
  std::vector<float> result;
  rule.state().visit_buffers(
      [&](std::string_view, const float* data, index_t count) { result.assign(data, data + count); });
  return result;
}

/// Some steps with gradients that are different on all ranks.
template <bool HasThreads = true, class Strategy, class Communicator>
trained_rank train_uneven(Communicator& world, const Strategy& options, int threads = 1) {
  gradus::cpu device{{.intra_op_threads = threads}};
  std::vector<float> values(uneven_elements, static_cast<float>(world.rank()));  // start makes them those of rank 0
  std::vector<float> gradients(uneven_elements);
  sgd_update rule{
      device, {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}, static_cast<index_t>(uneven_elements)};
  without_threads slow{rule};
  const auto made = parallel::make_strategy<float>(options, world, {values, gradients, uneven_parameters()});
  parallel::strategy<float>& strategy = *made;
  strategy.use(HasThreads ? static_cast<optim::parameter_update<float>&>(rule) : slow);
  trained_rank result;
  strategy.start();
  for (int step = 0; step < 3; ++step) {
    for (const optim::segment& each : uneven_parameters()) {
      for (index_t i = 0; i < each.size; ++i) {
        gradients[static_cast<std::size_t>(each.offset + i)] =
            static_cast<float>(std::sin(static_cast<double>(i + 7 * step + 1000 * world.rank())));
      }
      strategy.gradients_ready(0, 1);
    }
    const auto update = [&](std::span<const optim::segment> ready) {
      rule.update(ready, values.data(), gradients.data(), 0.1);
    };
    strategy.finish(update);
    if (step == 1 && world.rank() == world.size() - 1) {  // the others go on
      strategy.fetch_state();
      result.on_the_way = velocities_of(rule);
    }
  }
  strategy.gather_state();
  strategy.gather_state();  // nothing is left to do
  result.values = values;
  result.gradients = gradients;
  result.velocities = velocities_of(rule);
  return result;
}

template <class Options>
void require_uneven_ranks(int ranks, const Options& options, const std::string& what, bool exactly, int threads = 1) {
  const auto want = comm::run_ranks(ranks, [](comm::threads& world) {
    return train_uneven(world, parallel::all_reduce{.bucket_bytes = 5000, .first_bucket_bytes = 100});
  });
  const auto results = comm::run_ranks(ranks, [&](comm::threads& world) { return options(world, threads); });
  if (exactly) {
    BOOST_TEST((results.back().on_the_way == want.back().on_the_way));
  }
  for (const trained_rank& each : results) {
    BOOST_TEST_CONTEXT(what << ", " << ranks << " ranks, " << threads << " threads") {
      if (exactly) {
        BOOST_TEST((each.values == want.front().values));
        BOOST_TEST((each.velocities == want.front().velocities));
        BOOST_TEST((each.gradients == want.front().gradients));
      } else {
        BOOST_TEST((each.values == results.front().values));
        BOOST_TEST((each.velocities == results.front().velocities));
        double largest = 0;
        for (std::size_t i = 0; i < uneven_elements; ++i) {
          largest = std::max(largest, static_cast<double>(std::abs(each.values[i] - want.front().values[i])));
          largest = std::max(largest, static_cast<double>(std::abs(each.velocities[i] - want.front().velocities[i])));
        }
        BOOST_TEST(largest < 1e-5);
      }
    }
  }
}

/// Enough for ranks on a network of its own.
struct little_memory {
  std::vector<float> values = std::vector<float>(uneven_elements);
  std::vector<float> gradients = std::vector<float>(uneven_elements);
  parallel::flat_parameters<float> view() { return {values, gradients, uneven_parameters()}; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel_sharded_update)

BOOST_AUTO_TEST_CASE(in_shared_memory_all_that_ranks_have_is_that_of_all_reduce) {
  const suite::watchdog guard{600s};
  for (const int ranks : {1, 2, 3, 7}) {
    for (const int threads : {1, 3}) {
      require_uneven_ranks(
          ranks, [](auto& world, int of_rank) { return train_uneven(world, parallel::sharded_update{}, of_rank); },
          "with threads", true, threads);
    }
    require_uneven_ranks(
        ranks, [](auto& world, int) { return train_uneven<false>(world, parallel::sharded_update{}); },
        "without threads", true);
  }
}

BOOST_AUTO_TEST_CASE(by_messages_too) {
  const suite::watchdog guard{600s};
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& options :
         {parallel::sharded_update{}, parallel::sharded_update{.bucket_bytes = 5000, .first_bucket_bytes = 100},
          parallel::sharded_update{.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap = false},
          parallel::sharded_update{.bucket_bytes = 0}}) {
      require_uneven_ranks(
          ranks,
          [&](auto& world, int) {
            comm::collectives around{world.duplicate(), {.all_reduce = comm::parse_all_reduce_spec("ring")}};
            return train_uneven(around, options);
          },
          "by a ring, buckets of " + std::to_string(options.bucket_bytes), false);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_blocks_are_those_of_whole_lines) {
  const parallel::detail::parameter_blocks blocks{32, 32 + 100, 3, 4};
  BOOST_TEST(blocks.block == 32);
  BOOST_TEST(blocks.first_of(2) == 96);
  BOOST_TEST(blocks.rest == 128);
  const parallel::detail::parameter_blocks none{0, 40, 3, 4};
  BOOST_TEST(none.block == 0);
  BOOST_TEST(none.rest == 0);
}

BOOST_AUTO_TEST_CASE(its_plan_in_words) {
  const auto plans = comm::run_ranks(3, [](comm::threads& world) {
    little_memory memory;
    return parallel::make_strategy<float>(parallel::sharded_update{}, world, memory.view())->describe();
  });
  BOOST_TEST(plans[0] == "sharded_update by threads in shared memory, 33728 of 101200 elements on each rank");
  BOOST_TEST(plans[2] == plans[0]);
  comm::self alone;
  little_memory memory;
  const auto one = parallel::make_strategy<float>(parallel::sharded_update{}, alone, memory.view());
  BOOST_TEST(one->describe() == "sharded_update by self");
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  const auto refused = [](const parallel::sharded_update& options) {
    return suite::failure_of([&] {
      comm::run_ranks(2, [&](comm::threads& world) {
        little_memory memory;
        const auto made = parallel::make_strategy<float>(options, world, memory.view());
      });
    });
  };
  BOOST_TEST(refused({.bucket_bytes = -1}).find("of at least 0, got -1 and 1048576") != std::string::npos,
             refused({.bucket_bytes = -1}));
  BOOST_TEST(refused({.first_bucket_bytes = -2}).find("got 26214400 and -2") != std::string::npos);
}

// The memory of a rank that fails in the middle of a step is freed while the others still read and write theirs.
BOOST_AUTO_TEST_CASE(a_rank_that_fails_in_its_update_ends_the_step_of_all) {
  const suite::watchdog guard{300s};
  for (const int failing : {0, 1, 2}) {
    std::array<std::string, 3> messages;
    std::array<std::string, 3> about_state;
    const std::string first = suite::failure_of([&] {
      comm::run_ranks(3, [&](comm::threads& world) {
        little_memory memory;
        const auto strategy = parallel::make_strategy<float>(parallel::sharded_update{}, world, memory.view());
        strategy->start();
        for (int step = 0; step < 5; ++step) {
          strategy->gradients_ready(0, uneven_parameters().size());
          const auto update = [&](std::span<const optim::segment>) {
            if (world.rank() == failing && step == 3) {
              throw std::runtime_error{"the disk is full"};
            }
            std::this_thread::sleep_for(1ms);
          };
          if (world.rank() == failing) {
            strategy->finish(update);
          } else {
            auto& message = messages[static_cast<std::size_t>(world.rank())];
            message = suite::failure_of([&] { strategy->finish(update); });
            if (!message.empty()) {
              about_state[static_cast<std::size_t>(world.rank())] = suite::failure_of([&] { strategy->fetch_state(); });
              return;
            }
          }
        }
      });
    });
    BOOST_TEST(first == "the disk is full");
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (static_cast<int>(rank) != failing) {
        BOOST_TEST(messages[rank].find("rank " + std::to_string(failing)) != std::string::npos, messages[rank]);
        BOOST_TEST(messages[rank].find("sharded_update, waiting for the ") != std::string::npos, messages[rank]);
        BOOST_TEST(about_state[rank].find("rank " + std::to_string(failing)) != std::string::npos, about_state[rank]);
        BOOST_TEST(about_state[rank].find("waiting for the state of the rule") != std::string::npos, about_state[rank]);
      }
    }
  }
}

// Its memory is there still, but others may write what it has of the state.
BOOST_AUTO_TEST_CASE(no_rank_fetches_the_state_of_a_step_that_failed) {
  const suite::watchdog guard{300s};
  std::atomic<int> looked{0};
  const auto messages = comm::run_ranks(3, [&](comm::threads& world) -> std::string {
    little_memory memory;
    const auto strategy = parallel::make_strategy<float>(parallel::sharded_update{}, world, memory.view());
    std::string message;
    for (int step = 0; step < 2 && message.empty(); ++step) {
      message = suite::failure_of([&] {
        strategy->finish([&](std::span<const optim::segment>) {
          if (world.rank() == 1 && step == 1) {
            throw std::runtime_error{"the disk is full"};
          }
        });
      });
      if (message == "the disk is full") {
        world.fail(message);
      }
    }
    message = suite::failure_of([&] { strategy->fetch_state(); });
    for (++looked; looked < 3;) {
      std::this_thread::sleep_for(1ms);
    }
    return message;
  });
  for (const std::string& each : messages) {
    BOOST_TEST(each.find("waiting for the state of the rule") != std::string::npos, each);
    BOOST_TEST(each.find("the disk is full") != std::string::npos, each);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_come_is_named) {
  const suite::watchdog guard{300s};
  const auto messages = comm::run_ranks(3, [](comm::threads& world) -> std::string {
    world.set_time_limit(200ms);
    little_memory memory;
    const auto strategy = parallel::make_strategy<float>(parallel::sharded_update{}, world, memory.view());
    if (world.rank() == 1) {
      std::this_thread::sleep_for(600ms);
      return {};
    }
    return suite::failure_of([&] { strategy->finish([](std::span<const optim::segment>) {}); });
  });
  for (const std::size_t rank : {0U, 2U}) {
    BOOST_TEST(messages[rank].find("rank 1 did not arrive within") != std::string::npos, messages[rank]);
    BOOST_TEST(messages[rank].find("waiting for the gradients of a step") != std::string::npos, messages[rank]);
  }
}

BOOST_AUTO_TEST_SUITE_END()
