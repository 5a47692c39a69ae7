// SPDX-License-Identifier: BSL-1.0
//
// Roles and hosts of parameter servers, their plan, and the order in which values go out.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/link_of.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parameter_server/detail/protocol/client.hpp"
#include "gradus/parameter_server/detail/protocol/loop.hpp"
#include "gradus/parameter_server/detail/protocol/segment_list.hpp"
#include "gradus/parameter_server/detail/protocol/variable_store.hpp"
#include "gradus/parameter_server/detail/protocol/worker_side.hpp"
#include "gradus/parameter_server/hosts.hpp"
#include "gradus/parameter_server/plan.hpp"
#include "gradus/parameter_server/roles.hpp"

namespace {

namespace parallel = gradus::parallel;
using gradus::optim::segment;
using parallel::parse_host_list;
using parallel::roles;
using parallel::roles_of;

/// Two layers, as backward completes them.
const std::vector<segment>& segments() {
  static const std::vector<segment> list{{.name = "dense2.weights", .offset = 0, .size = 1000},
                                         {.name = "dense2.bias", .offset = 1008, .size = 10, .decay = false},
                                         {.name = "dense1.weights", .offset = 1024, .size = 78400},
                                         {.name = "dense1.bias", .offset = 79424, .size = 100, .decay = false}};
  return list;
}

template <class Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

/// A check on a rank: Boost.Test is for one thread at a time.
void check(bool holds, std::string_view what) {
  static std::mutex mutex;
  const std::scoped_lock lock{mutex};
  BOOST_CHECK_MESSAGE(holds, what);
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Notes the tags of what is sent.
class noting_link final : public gradus::comm::forwarding_link {
 public:
  explicit noting_link(gradus::comm::link& inner) : forwarding_link{inner} {}
  gradus::comm::request send(int peer, std::span<const std::uint8_t> data, int tag) override {
    tags.push_back(tag);
    return inner().send(peer, data, tag);
  }

  std::vector<int> tags;
};

/// A rule that servers make their state of.
template <class Rule>
class rule_of {
 public:
  rule_of(const Rule& rule) : update_{device_, rule, 0} {}
  operator const gradus::optim::parameter_update<float>&() const { return update_; }

 private:
  gradus::cpu device_{{.intra_op_threads = 1}};
  gradus::optim::parameter_update_of<Rule, float> update_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(servers)

BOOST_AUTO_TEST_CASE(roles_by_number) {
  BOOST_TEST((roles_of(4, 1, false) == roles{.workers = {0, 1, 2}, .servers = {3}}));
  BOOST_TEST((roles_of(4, 2, true) == roles{.workers = {0, 1, 2, 3}, .servers = {0, 1}}));
  BOOST_TEST((roles_of(2, 0, true) == roles{.workers = {0, 1}, .servers = {0, 1}}));
  for (const auto& [ranks, servers, colocate] :
       {std::tuple{2, 2, false}, {1, 1, false}, {2, 0, false}, {2, 3, true}, {2, -1, true}}) {
    BOOST_CHECK_THROW(static_cast<void>(roles_of(ranks, servers, colocate)), gradus::configuration_error);
  }
}

BOOST_AUTO_TEST_CASE(roles_by_host) {
  const auto list = parse_host_list("worker=h0,h1,h1;server=h2,h0");
  BOOST_TEST((list == parallel::host_list{.workers = {"h0", "h1", "h1"}, .servers = {"h2", "h0"}}));
  // A role a rank on h0, and side by side.
  const std::vector<std::string> apart{"h2", "h1", "h0", "h1", "h0"};
  BOOST_TEST((roles_of(list, apart) == roles{.workers = {2, 1, 3}, .servers = {0, 4}}));
  const std::vector<std::string> beside{"h0", "h1", "h1", "h2"};
  BOOST_TEST((roles_of(list, beside) == roles{.workers = {0, 1, 2}, .servers = {3, 0}}));
  const std::vector<std::string> too_few{"h0", "h1", "h2"};
  BOOST_TEST(contains(message_of([&] { static_cast<void>(roles_of(list, too_few)); }), "host 'h1'"));
  const std::vector<std::string> unnamed{"h0", "h1", "h1", "h2", "h9"};
  BOOST_TEST(contains(message_of([&] { static_cast<void>(roles_of(list, unnamed)); }), "lists that name host 'h9'"));
  for (const std::string_view wrong :
       {"", "worker", "worker=;server=a", "worker=a", "server=a", "worker=a;server=b;", "worker=a,;server=b",
        "boss=a;server=b", "worker=a;worker=b", "worker=a b;server=c"}) {
    BOOST_TEST_CONTEXT(wrong) {
      BOOST_TEST(contains(message_of([&] { static_cast<void>(parse_host_list(wrong)); }), "worker=h0,h1;server=h2"));
    }
  }
}

// With a comparison of each name with all others this took minutes.
BOOST_AUTO_TEST_CASE(many_hosts_take_little_time) {
  const auto began = std::chrono::steady_clock::now();
  constexpr int hosts = 30'000;
  parallel::host_list list;
  std::vector<std::string> host_of_rank;
  for (int i = 0; i < hosts; ++i) {
    list.workers.push_back("node" + std::to_string(i));
    host_of_rank.push_back("node" + std::to_string(hosts - 1 - i));
  }
  list.servers = list.workers;
  const roles found = roles_of(list, host_of_rank);
  BOOST_TEST(found.workers.front() == hosts - 1);
  BOOST_TEST(found.servers.back() == 0);
  BOOST_TEST((std::chrono::steady_clock::now() - began < std::chrono::seconds{20}));
}

BOOST_AUTO_TEST_CASE(hosts_of_ranks) {
  gradus::comm::run_ranks(3, [](gradus::comm::threads& world) {
    gradus::comm::link_of<gradus::comm::threads> group{world};
    const auto names = parallel::gather_host_names(group, world.rank() == 1 ? std::string(300, 'x') : "host");
    check(names == std::vector<std::string>{"host", std::string(255, 'x'), "host"},
          "names == std::vector<std::string>{\"host\", std::string(255, 'x'), \"host\"}");
  });
}

BOOST_AUTO_TEST_CASE(variables_are_placed_in_the_order_of_creation) {
  const roles who = roles_of(4, 3, true);
  const auto plan = [&](parallel::placement_policy policy, std::vector<std::size_t> priorities = {}) {
    return parallel::make_server_plan(segments(), 4, who, {.policy = policy}, priorities);
  };
  const auto servers = [](const parallel::parameter_server_plan& of) {
    std::vector<int> list;
    for (const auto& part : of.parts) {
      list.push_back(part.server);
    }
    return list;
  };
  // dense1.weights, dense1.bias, dense2.weights, dense2.bias on servers 0, 1, 2 and 1 (greedy) or 0 (round-robin)
  BOOST_TEST((servers(plan(parallel::placement_policy::greedy)) == std::vector<int>{2, 1, 0, 1}));
  BOOST_TEST((servers(plan(parallel::placement_policy::round_robin)) == std::vector<int>{2, 0, 0, 1}));
  const auto cut = plan(parallel::placement_policy::partitioned, {0, 1, 2, 3});
  BOOST_TEST(cut.parts.size() > 4U);
  std::vector<gradus::index_t> filled(3);
  std::vector<gradus::index_t> next{0, 1008, 1024, 79424};
  for (const auto& part : cut.parts) {  // all elements once, and no gaps on a server
    BOOST_TEST(part.offset == next[part.segment]);
    next[part.segment] += part.size;
    BOOST_TEST(part.server_offset == filled[static_cast<std::size_t>(part.server)]);
    filled[static_cast<std::size_t>(part.server)] += part.size;
  }
  BOOST_TEST((next == std::vector<gradus::index_t>{1000, 1018, 79424, 79524}));
  for (int server = 0; server < 3; ++server) {
    BOOST_TEST(filled[static_cast<std::size_t>(server)] == cut.elements_of(server));
  }
  BOOST_TEST(contains(cut.describe(), "dense1.weights[0, "));
  BOOST_TEST(contains(cut.describe(), "server 2 of 3: "));
  BOOST_TEST(cut.hash() == plan(parallel::placement_policy::partitioned, {0, 1, 2, 3}).hash());
  BOOST_TEST(cut.hash() != plan(parallel::placement_policy::partitioned, {0, 1, 3, 2}).hash());
  BOOST_TEST(contains(message_of([&] { plan(parallel::placement_policy::greedy, {1, 2}); }), "one pull priority"));
  // A rule that needs whole parameters refuses parts of them.
  BOOST_TEST(contains(message_of([&] {
                        parallel::detail::variables_of<float>{cut, 0, segments(), 1, rule_of<gradus::optim::lars>{{}}};
                      }),
                      "whole parameters for the update rule 'lars', got the part dense1.weights["));
}

BOOST_AUTO_TEST_CASE(servers_learn_the_parameters_from_a_text) {
  const std::vector<std::size_t> priorities{3, 1, 0, 2};
  const auto list = parallel::detail::unpack_segments(parallel::detail::pack(segments(), priorities));
  BOOST_TEST(std::equal(list.segments.begin(), list.segments.end(), segments().begin(), segments().end()));
  BOOST_TEST(
      std::equal(list.pull_priorities.begin(), list.pull_priorities.end(), priorities.begin(), priorities.end()));
  for (const std::string_view wrong :
       {"x", "1 2 1 -1 name", "1 2\n", "-1 2 1 -1 name\n", "1 2 1 99999999999999999999 a\n"}) {
    BOOST_CHECK_THROW(static_cast<void>(parallel::detail::unpack_segments(wrong)), gradus::format_error);
  }
}

BOOST_AUTO_TEST_CASE(values_go_out_in_the_order_of_pulls) {
  using namespace parallel::detail;
  const std::vector<std::size_t> priorities{3, 1, 0, 2};
  const auto plan = parallel::make_server_plan(segments(), 4, roles_of(2, 1, false),
                                               {.policy = parallel::placement_policy::greedy}, priorities);
  gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    gradus::comm::owned_link<gradus::comm::threads> inner{world.duplicate()};
    noting_link channel{inner};
    server_links links{channel, message_tag::count(plan.parts.size())};
    if (world.rank() == 1) {
      variables_of<float> store{plan, 0, segments(), 1, rule_of<gradus::optim::sgd>{{}}};
      server_loop loop{links, plan, 0, {.window = 1}, store};
      while (!loop.done()) {
        loop.poll();
      }
      const std::vector<int> want{message_tag::values(2), message_tag::values(1), message_tag::values(3),
                                  message_tag::values(0)};
      check(channel.tags == want, "channel.tags == want");
      return;
    }
    std::vector<float> values(79524);
    std::iota(values.begin(), values.end(), 0.0F);
    const std::vector<float> before = values;
    const std::span bytes{reinterpret_cast<std::uint8_t*>(values.data()), 4 * values.size()};
    worker_side worker{links, plan, {.values = bytes, .gradients = {}}, false, 2};
    worker.open(round_kind::initial, 0);
    worker.push(segments().size(), bytes);
    do {
      worker.poll();
    } while (!worker.pushed());
    std::fill(values.begin(), values.end(), -1.0F);
    worker.close(0, true);
    do {
      worker.poll();
    } while (!worker.pulled());
    for (const segment& each : segments()) {
      const auto first = static_cast<std::size_t>(each.offset);
      check(std::equal(values.begin() + each.offset, values.begin() + each.offset + each.size,
                       before.begin() + static_cast<std::ptrdiff_t>(first)),
            "std::equal(values.begin() + each.offset, values.begin() + each.offset + each.size, before.begin() + "
            "static_cast<std::ptrdiff_t>(first))");
    }
    worker.open(round_kind::leave, 0);
    do {
      worker.poll();
    } while (!worker.pushed());
  });
}

BOOST_AUTO_TEST_CASE(values_that_are_not_ready_hold_up_no_others) {
  parallel::detail::server_client client;
  client.set_parts(3);
  const std::vector<std::size_t> order{1, 2, 0};
  const auto send_next = [&](std::span<const std::size_t> by) {
    const std::size_t part = client.next_due(by);
    client.due[part] = 0;
    ++client.begun;
    return part;
  };
  client.make_due(0, 0);
  BOOST_TEST(send_next(order) == 0U);
  client.make_due(2, 0);
  client.make_due(1, 0);
  BOOST_TEST(send_next(order) == 1U);
  BOOST_TEST(send_next(order) == 2U);
  client.queued = 0;
  client.begun = 0;
  client.make_due(2, 1);
  client.make_due(1, 1);
  BOOST_TEST(send_next({}) == 2U);
}

BOOST_AUTO_TEST_CASE(a_summary_says_what_a_server_has_done) {
  parallel::server_summary done{.variable_bytes = 13, .received_bytes = 26, .sent_bytes = 39, .updates = 6};
  done.staleness[0] = 4;
  BOOST_TEST(describe(done) ==
             "13 bytes of variables, 26 received, 39 sent, 6 updates; pushes of parts by staleness: 0: 4");
  done.staleness[parallel::staleness_bins - 1] = 2;
  done.dropped = 3;
  done.lost_workers = 1;
  BOOST_TEST(contains(describe(done), "by staleness: 0: 4, 63 or more: 2; pushes dropped: 3; workers lost: 1"));
}

BOOST_AUTO_TEST_CASE(a_step_of_some_workers_counts_for_all) {
  using namespace parallel::detail;
  const std::vector<segment> one{{.name = "dense.weights", .offset = 0, .size = 5}};
  const auto plan = parallel::make_server_plan(one, 4, roles_of(3, 1, false), {}, {});
  std::atomic<int> joined{0};
  std::atomic<bool> answered{false};
  gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
    gradus::comm::owned_link<gradus::comm::threads> channel{world.duplicate()};
    server_links links{channel, message_tag::count(plan.parts.size())};
    if (world.rank() == 2) {
      variables_of<float> store{plan, 0, one, 2, rule_of<gradus::optim::sgd>{{.momentum = 0, .weight_decay = 0}}};
      server_loop loop{links, plan, 0, {.backup_workers = 1}, store};
      while (!loop.done()) {
        loop.poll();
      }
      return;
    }
    std::vector<float> values(5, static_cast<float>(10 * world.rank()));
    const std::vector<float> gradients(5, 3.0F);
    const auto bytes = [](const std::vector<float>& of) {
      return std::span{reinterpret_cast<std::uint8_t*>(const_cast<float*>(of.data())), 4 * of.size()};
    };
    worker_side worker{links, plan, {.values = bytes(values), .gradients = bytes(gradients)}, false, 1};
    const auto finish = [&](double rate) {
      worker.close(rate, true);
      do {
        worker.poll();
      } while (!worker.pushed() || !worker.pulled());
    };
    worker.open(world.rank() == 0 ? round_kind::initial : round_kind::join, 0);
    if (world.rank() == 0) {
      worker.push(1, bytes(values));
    }
    finish(0);
    check(values == std::vector<float>(5, 0.0F), "values == std::vector<float>(5, 0.0F)");  // those of worker 0
    for (++joined; joined < 2;) {  // a step that waits for one worker must not come before the other's values
      worker.poll();
    }
    if (world.rank() == 0) {
      worker.open(round_kind::push, 0);
      worker.push(1, bytes(gradients));
      finish(0.5);
      check(values == std::vector<float>(5, -0.5F * 2 * 3),
            "values == std::vector<float>(5, -0.5F * 2 * 3)");  // one of two workers
      answered = true;
    }
    while (!answered) {
      worker.poll();
    }
    worker.open(round_kind::leave, 0);
    do {
      worker.poll();
    } while (!worker.pushed());
  });
}

BOOST_AUTO_TEST_SUITE_END()
