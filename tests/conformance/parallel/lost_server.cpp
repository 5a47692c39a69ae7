// SPDX-License-Identifier: BSL-1.0
//
// A parameter server dies, or a worker of a node: all ranks get an error that names the dead rank, the operation and
// the variable, and no rank hangs.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../../support/waiting.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/parameter_server.hpp"

namespace {

using gradus::index_t;
using gradus::optim::segment;
using gradus::parallel::distributed_replicated;
using gradus::parallel::parameter_server;
using gradus::parallel::server_mode;
using gradus_test::comes_true;
using gradus_test::contains;

/// Gradient descent that calls a function before each update: on a server it may end the server's life.
struct watched_descent {
  static constexpr std::string_view name = "watched_descent";

  void (*before_update)() = nullptr;

  void check() const {}
  [[nodiscard]] std::string description() const { return "watched_descent"; }

  template <class Element, class Device>
  struct state {
    state(Device& /*device*/, const watched_descent& rule, index_t /*elements*/) : before_update{rule.before_update} {}
    void update(Device& /*device*/, std::span<const segment> segments, Element* values, const Element* gradients,
                const gradus::optim::update_step& step) {
      before_update();
      for (const segment& each : segments) {
        for (index_t i = each.offset; i < each.offset + each.size; ++i) {
          values[i] -= static_cast<Element>(step.learning_rate) * gradients[i];
        }
      }
    }
    template <class Visitor>
    void visit_buffers(const Visitor& /*visitor*/) {}

    void (*before_update)();
  };
};
static_assert(gradus::optim::update_rule<watched_descent>);

std::atomic<int> updates;
std::atomic<int> failed;

constexpr int fatal_update = 5;

/// The server says nothing more, until all three workers have given up.
void falls_silent() {
  if (++updates == fatal_update) {
    comes_true([] { return failed == 3; });
    throw std::runtime_error{"killed"};
  }
}

void throws() {
  if (++updates == fatal_update) {
    throw std::runtime_error{"the server's disk is on fire"};
  }
}

void does_nothing() {}

/// What each of four ranks says when it fails. Workers make steps without end, but for one that may fall silent.
template <class Strategy>
std::vector<std::string> messages_of_ranks(const Strategy& options, const watched_descent& rule,
                                           int silent_worker = -1) {
  std::vector<std::string> messages(4);
  updates = 0;
  failed = 0;
  const std::vector<segment> segments{{.name = "last.weights", .offset = 0, .size = 20},
                                      {.name = "first.weights", .offset = 20, .size = 10}};
  try {
    gradus::comm::run_ranks(4, [&](gradus::comm::threads& world) {
      world.set_time_limit(std::chrono::milliseconds{600});
      std::string& message = messages[static_cast<std::size_t>(world.rank())];
      try {
        if (options.is_server_only(world)) {
          gradus::parallel::serve<float>(world, rule, options);
          return;
        }
        std::vector<float> values(30);
        std::vector<float> gradients(30, 1.0F);
        typename Strategy::template state<float> state{options, world, {values, gradients, segments}};
        gradus::cpu device{{.intra_op_threads = 1}};
        gradus::optim::parameter_update_of<watched_descent, float> applied{device, rule, 0};
        state.use(applied);
        state.start();
        for (int step = 0;; ++step) {
          if (world.rank() == silent_worker && step == 2) {
            comes_true([] { return failed == 3; });
            throw std::runtime_error{"killed"};
          }
          state.gradients_ready(0, 2);
          state.end_of_step(0.25);
          state.finish([](std::span<const segment>) {});
        }
      } catch (const std::exception& failure) {
        message = failure.what();
        ++failed;
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return messages;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lost_servers)

BOOST_AUTO_TEST_CASE(a_silent_server_is_named_on_all_ranks) {
  for (const parameter_server& options :
       {parameter_server{}, parameter_server{.mode = server_mode::asynchronous}, parameter_server{.staged = true}}) {
    const auto messages = messages_of_ranks(options, {falls_silent});
    for (const std::size_t worker : {0U, 1U, 2U}) {
      BOOST_TEST(contains(messages[worker], "parameter_server."), messages[worker]);
      BOOST_TEST(contains(messages[worker], "weights'"), messages[worker]);
      BOOST_TEST(contains(messages[worker], " server 0 (rank 3): it did not answer within 0.6 s"), messages[worker]);
    }
  }
}

BOOST_AUTO_TEST_CASE(nodes_get_an_error_that_names_a_silent_server) {
  const auto messages = messages_of_ranks(distributed_replicated{.ranks_per_node = 2}, {falls_silent});
  for (const std::size_t worker : {0U, 1U, 2U}) {
    BOOST_TEST(contains(messages[worker], "server 0 (rank 3): it did not answer within 0.6 s"), messages[worker]);
  }
}

BOOST_AUTO_TEST_CASE(a_silent_worker_of_a_node_is_named_on_all_ranks) {
  const auto messages = messages_of_ranks(distributed_replicated{.ranks_per_node = 2}, {does_nothing}, 1);
  for (const std::size_t other : {0U, 2U, 3U}) {
    BOOST_TEST(contains(messages[other], "receive from rank 1"), messages[other]);
    BOOST_TEST(contains(messages[other], "rank 1 did not arrive within 0.3 s"), messages[other]);
  }
}

BOOST_AUTO_TEST_CASE(a_server_that_throws_tells_why) {
  for (const parameter_server& options : {parameter_server{.who = {.workers = {0, 1, 3}, .servers = {2}}},
                                          parameter_server{.who = {.workers = {0, 1, 2, 3}, .servers = {2}}}}) {
    const auto messages = messages_of_ranks(options, {throws});
    for (const std::string& message : messages) {
      BOOST_TEST(contains(message, "the server's disk is on fire"), message);
    }
    for (const std::size_t other : {0U, 1U, 3U}) {
      BOOST_TEST(contains(messages[other], "rank 2"), messages[other]);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
