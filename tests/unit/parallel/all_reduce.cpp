// SPDX-License-Identifier: BSL-1.0
//
// The plan of an all-reduce: buckets, order, words; what happens when a rank stays away.
#include <boost/test/unit_test.hpp>

#include <array>      // std::array
#include <atomic>     // std::atomic
#include <chrono>     // std::chrono::milliseconds, std::chrono::steady_clock
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <thread>     // std::this_thread
#include <vector>     // std::vector

#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/parallel/all_reduce.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using gradus::optim::segment;

/// Parameters of 10, 100, 50 and 1000 elements, each on a boundary of 16.
const std::vector<segment>& parameters() {
  static const std::vector<segment> all{{.name = "d", .offset = 0, .size = 10},
                                        {.name = "c", .offset = 16, .size = 100},
                                        {.name = "b", .offset = 128, .size = 50},
                                        {.name = "a", .offset = 192, .size = 1000}};
  return all;
}

struct rank_memory {
  std::vector<float> values = std::vector<float>(1200, 0.0F);
  std::vector<float> gradients = std::vector<float>(1200, 1.0F);

  parallel::flat_parameters<float> view() { return {values, gradients, parameters()}; }
};

using state = parallel::all_reduce::state<float>;

std::string refusal(const parallel::all_reduce& options) {
  try {
    comm::run_ranks(2, [&](comm::threads& world) {
      rank_memory memory;
      state strategy{options, world, memory.view()};
    });
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "no exception";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel_all_reduce)

BOOST_AUTO_TEST_CASE(a_bucket_closes_when_it_is_large_enough) {
  const auto buckets = parallel::make_buckets(parameters(), 1200, 60, 150);
  BOOST_TEST_REQUIRE(buckets.size() == 2U);
  BOOST_TEST(buckets[0].segments == 2U);
  BOOST_TEST(buckets[0].begin == 0);
  BOOST_TEST(buckets[0].end == 128);  // with the padding
  BOOST_TEST(buckets[1].first_segment == 2U);
  BOOST_TEST(buckets[1].begin == 128);
  BOOST_TEST(buckets[1].end == 1200);
  BOOST_TEST(parallel::make_buckets(parameters(), 1200, 1, 1).size() == 4U);
  BOOST_TEST(parallel::make_buckets(parameters(), 1200, 1200, 1200).size() == 1U);
  BOOST_TEST(parallel::make_buckets({}, 0, 1, 1).size() == 0U);
}

BOOST_AUTO_TEST_CASE(buckets_are_updated_in_the_order_of_the_plan) {
  comm::run_ranks(2, [](comm::threads& world) {
    rank_memory memory;
    state strategy{{.bucket_bytes = 1, .first_bucket_bytes = 1, .order = {2, 0, 3, 1}}, world, memory.view()};
    strategy.start();
    for (int step = 1; step <= 3; ++step) {
      strategy.gradients_ready(0, 2);
      strategy.gradients_ready(2, 1);
      strategy.gradients_ready(3, 1);
      std::string order;
      strategy.finish([&](std::span<const segment> ready) {
        for (const segment& each : ready) {
          order += each.name;
        }
      });
      if (order != "bdac" || memory.gradients[500] != static_cast<float>(1 << step)) {
        throw std::runtime_error{"step " + std::to_string(step) + ": " + order + " " +
                                 std::to_string(memory.gradients[500])};
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(one_rank_needs_no_buckets) {
  comm::self alone;
  rank_memory memory;
  parallel::all_reduce::state<float> strategy{{}, alone, memory.view()};
  std::size_t updated = 0;
  strategy.finish([&](std::span<const segment> ready) { updated += ready.size(); });
  BOOST_TEST(updated == 4U);
  BOOST_TEST(strategy.describe() == "all_reduce by self");
}

BOOST_AUTO_TEST_CASE(the_plan_in_words) {
  const auto plans = comm::run_ranks(2, [](comm::threads& world) {
    rank_memory memory;
    return state{{.bucket_bytes = 600, .first_bucket_bytes = 100}, world, memory.view()}.describe();
  });
  BOOST_TEST(plans[1] ==
             "all_reduce by threads, bytes under way: 67108864, behind backward\n"
             "bucket 0: 2 parameters from d to c, 128 elements\n"
             "bucket 1: 2 parameters from b to a, 1072 elements");
  const auto in_parts = comm::run_ranks(2, [](comm::threads& world) {
    rank_memory memory;
    return state{{.bucket_bytes = 600,
                  .first_bucket_bytes = 100,
                  .partition_bytes = 2003,
                  .credit_bytes = 4000,
                  .order = {2, 0, 1, 3}},
                 world,
                 memory.view()}
        .describe();
  });
  BOOST_TEST(in_parts[0] ==
             "all_reduce by threads, bytes under way: 4000, behind backward\n"
             "bucket 1: 2 parameters from b to a, 1072 elements, of these 500 to 1000\n"
             "bucket 0: 2 parameters from d to c, 128 elements\n"
             "bucket 1: 2 parameters from b to a, 1072 elements, of these 0 to 500\n"
             "bucket 1: 2 parameters from b to a, 1072 elements, of these 1000 to 1072");
}

/// Keeps what has begun; it is over when it is waited for, or when the test says so.
struct watched_channel : parallel::detail::gradient_channel {
  struct transfer final : comm::operation {
    std::atomic<bool> over = false;
    std::chrono::milliseconds lasts{0};  // when it is waited for
    bool test(const std::source_location&) override { return over; }
    void wait(const std::source_location&) override {
      for (const auto end = std::chrono::steady_clock::now() + lasts; std::chrono::steady_clock::now() < end;) {
        std::this_thread::yield();
      }
      over = true;
    }
    void abandon(bool) noexcept override {}
    void release() noexcept override {}
  };
  std::array<transfer, 8> begun;
  std::array<gradus::index_t, 8> sizes{};
  std::atomic<std::size_t> count = 0;

  comm::request reduce(gradus::index_t begin, gradus::index_t end) override {
    sizes[count] = end - begin;
    begun[count].over = false;
    return comm::request{begun[count++]};
  }
};

BOOST_AUTO_TEST_CASE(parts_begin_as_far_as_the_credit_goes) {
  const auto buckets = parallel::make_buckets(parameters(), 1200, 1, 1);  // of 16, 112, 64 and 1008 elements
  for (const bool overlap : {false, true}) {
    watched_channel channel;
    parallel::detail::bucket_exchange exchange{channel,
                                               parameters(),
                                               buckets,
                                               parallel::make_parts({buckets.data(), buckets.size()}, 400),
                                               {.overlap = overlap, .credit_bytes = 500 * 4, .element_bytes = 4}};
    const auto begun_in_time = [&](std::size_t count) {
      for (int i = 0; i < 5000 && channel.count < count; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      return channel.count.load();
    };
    for (int step = 0; step < 2; ++step) {
      channel.count = 0;
      exchange.segments_ready(3);
      exchange.segments_ready(1);
      if (overlap) {  // what is over gives its credit back without anybody waiting
        BOOST_TEST(begun_in_time(3) == 3U);
        channel.begun[2].over = true;  // those before it are still under way
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
        BOOST_TEST(channel.count == 3U);
        channel.begun[0].over = true;
        channel.begun[1].over = true;
        BOOST_TEST(begun_in_time(4) == 4U);
      }
      BOOST_TEST(exchange.wait_next().begin == 0);
      BOOST_TEST(exchange.wait_next().begin == 16);
      BOOST_TEST(exchange.wait_next().begin == 128);
      BOOST_TEST(exchange.waits_for(3, 1));
      BOOST_TEST(exchange.wait_next().begin == 192);  // of all its parts
      BOOST_TEST(channel.count == 6U);
      BOOST_TEST((channel.sizes == std::array<gradus::index_t, 8>{16, 112, 64, 400, 400, 208}));
      BOOST_TEST(exchange.all_taken());
    }
  }
}

BOOST_AUTO_TEST_CASE(the_thread_goes_on_after_a_wait_of_the_program) {
  const auto buckets = parallel::make_buckets(parameters(), 1200, 1, 1);
  watched_channel channel;
  for (auto& each : channel.begun) {
    each.lasts = std::chrono::milliseconds{4};  // meanwhile the thread finds the lock taken
  }
  parallel::detail::bucket_exchange exchange{channel,
                                             parameters(),
                                             buckets,
                                             parallel::make_parts({buckets.data(), buckets.size()}, 0),
                                             {.credit_bytes = 1, .element_bytes = 4}};
  for (int step = 0; step < 20; ++step) {
    channel.count = 0;
    exchange.segments_ready(4);
    for (std::size_t taken = 1; taken < 4; ++taken) {
      exchange.wait_next();
      for (int i = 0; i < 2000 && channel.count == taken; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      BOOST_TEST_REQUIRE(channel.count == taken + 1);
    }
    exchange.wait_next();
  }
}

BOOST_AUTO_TEST_CASE(the_thread_treats_denormals_as_the_device) {
  struct noting_channel final : watched_channel {
    comm::request reduce(gradus::index_t begin, gradus::index_t end) override {
      flushes[count] = gradus::flushes_denormals();
      on_thread[count] = std::this_thread::get_id() != program;
      return watched_channel::reduce(begin, end);
    }
    std::array<bool, 8> flushes{};
    std::array<bool, 8> on_thread{};
    std::thread::id program = std::this_thread::get_id();
  };
  const auto buckets = parallel::make_buckets(parameters(), 1200, 1, 1);
  for (const bool flush : {false, true}) {
    const gradus::floating_point_scope outside{!flush};  // threads inherit it
    noting_channel channel;
    parallel::detail::bucket_exchange exchange{
        channel,
        parameters(),
        buckets,
        parallel::make_parts({buckets.data(), buckets.size()}, 0),
        {.credit_bytes = 1, .element_bytes = 4, .flush_denormals = flush && gradus::can_flush_denormals}};
    exchange.segments_ready(4);
    for (std::size_t i = 0; i < 4; ++i) {  // each begins when the one before is over, without a wait
      for (int k = 0; k < 5000 && channel.count == i; ++k) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      BOOST_TEST_REQUIRE(channel.count == i + 1);
      if (channel.on_thread[i]) {
        BOOST_TEST(channel.flushes[i] == (flush && gradus::can_flush_denormals));
      }
      channel.begun[i].over = true;
    }
    BOOST_TEST(channel.on_thread[3]);
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      exchange.wait_next();
    }
  }
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
  BOOST_TEST(refusal({.credit_bytes = -1}).find("credit_bytes of at least 0") != std::string::npos);
  BOOST_TEST(refusal({.bucket_bytes = -1}).find("bucket_bytes") != std::string::npos);
  BOOST_TEST(refusal({.order = {0, 0}}).find("an order with each of 1 parts once") != std::string::npos);
  BOOST_TEST(refusal({.bucket_bytes = 1, .first_bucket_bytes = 1, .order = {0, 1}})
                 .find("an order with each of 4 parts once") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(finish_before_backward_is_a_mistake) {
  std::string message;
  try {
    comm::run_ranks(2, [](comm::threads& world) {
      rank_memory memory;
      state strategy{{.overlap = false}, world, memory.view()};
      strategy.gradients_ready(0, 3);
      strategy.finish([](std::span<const segment>) {});
    });
  } catch (const gradus::configuration_error& failure) {
    message = failure.what();
  }
  BOOST_TEST(message.find("call finish after backward") != std::string::npos, message);
}

BOOST_AUTO_TEST_CASE(a_rank_that_stays_away_is_named_with_the_bucket) {
  const auto messages = comm::run_ranks(3, [](comm::threads& world) -> std::string {
    world.set_time_limit(std::chrono::milliseconds{200});
    rank_memory memory;
    state strategy{{.bucket_bytes = 600, .first_bucket_bytes = 100}, world, memory.view()};
    strategy.gradients_ready(0, 2);
    if (world.rank() != 1) {
      strategy.gradients_ready(2, 2);
    }
    try {
      if (world.rank() != 1) {
        strategy.finish([](std::span<const segment>) {});
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds{600});
        strategy.gradients_ready(2, 2);
        strategy.finish([](std::span<const segment>) {});
      }
    } catch (const gradus::communication_error& failure) {
      return failure.what();
    }
    return "no exception";
  });
  for (const int rank : {0, 2}) {
    const std::string& message = messages[static_cast<std::size_t>(rank)];
    BOOST_TEST(message.find("bucket 1: 2 parameters from b to a") != std::string::npos, message);
    BOOST_TEST(message.find("rank 1") != std::string::npos, message);
  }
  BOOST_TEST(messages[1] != "no exception");
}

BOOST_AUTO_TEST_SUITE_END()
