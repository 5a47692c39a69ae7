// SPDX-License-Identifier: BSL-1.0
//
// Replays of an all-reduce against the closed forms of its collectives, against each other, and on random clusters.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::abs, std::log2
#include <cstddef>    // std::size_t
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/sim/data_parallel.hpp"
#include "sweep.hpp"
#include "workloads.hpp"

namespace {

namespace comm = gradus::comm;
namespace sim = gradus::sim;
using algorithm = gradus::comm::all_reduce_algorithm;
using gradus::index_t;
using gradus_test::simulated_cluster;
using gradus_test::simulated_workload;

constexpr index_t in_one_message = index_t{1} << 40;

sim::data_parallel reduced_by(algorithm chosen, index_t segment_bytes = index_t{1} << 20) {
  return {.gradients = {}, .rules = {{.algorithm = chosen}}, .segment_bytes = segment_bytes};
}

sim::replayed_step replayed(const sim::cluster& cluster, const sim::workload& work, const sim::data_parallel& how,
                            int ranks, const sim::replay_options& options = {}) {
  return sim::data_parallel_model{cluster, work, how, ranks, options}.replay(cluster, work, options);
}

/// Seconds of an all-reduce of n bytes behind a step of 2 ms, in one bucket.
double all_reduce_seconds(algorithm chosen, int ranks, index_t elements) {
  const sim::workload work = simulated_workload({elements}, 1e-3, 1e-3);
  sim::data_parallel how = reduced_by(chosen, in_one_message);
  how.gradients.bucket_bytes = 0;
  return replayed(simulated_cluster(), work, how, ranks).seconds - 2e-3;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simulated_data_parallel)

BOOST_AUTO_TEST_CASE(collectives_take_what_their_closed_forms_say) {
  const sim::cluster cluster = simulated_cluster();
  const double a = cluster.network.latency + 2 * cluster.message_seconds;
  const double b = 1 / cluster.network.bytes_per_second;
  const double c = 1 / cluster.adding;
  for (const index_t elements : {index_t{720720}, index_t{5765760}}) {
    const double n = 4.0 * static_cast<double>(elements);
    for (int p = 2; p <= 16; ++p) {
      const double share = (p - 1.0) / p * n;
      BOOST_TEST(all_reduce_seconds(algorithm::ring, p, elements) == 2 * (p - 1) * a + 2 * share * b + share * c,
                 boost::test_tools::tolerance(1e-4));
    }
    for (const int p : {2, 4, 8, 16}) {
      const double log2p = std::log2(p);
      const double share = (p - 1.0) / p * n;
      BOOST_TEST(
          all_reduce_seconds(algorithm::halving_doubling, p, elements) == 2 * log2p * a + 2 * share * b + share * c,
          boost::test_tools::tolerance(1e-4));
      BOOST_TEST(all_reduce_seconds(algorithm::binary_blocks, p, elements) ==
                     all_reduce_seconds(algorithm::halving_doubling, p, elements),
                 boost::test_tools::tolerance(1e-9));
      BOOST_TEST(all_reduce_seconds(algorithm::recursive_doubling, p, elements) == log2p * (a + n * b + n * c),
                 boost::test_tools::tolerance(1e-4));
      // Up a binomial tree and down again.
      BOOST_TEST(all_reduce_seconds(algorithm::tree, p, elements) >= 2 * log2p * (a + n * b));
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_do_the_same_stand_for_all) {
  const sim::workload work = simulated_workload({70001, 500003, 1234567, 99, 2000000, 31}, 2e-3, 3e-3, 1e-3);
  for (const int ranks_per_host : {1, 4}) {
    for (const int hosts_per_switch : {0, 2}) {
      for (const algorithm chosen : {algorithm::ring, algorithm::hierarchical_ring, algorithm::halving_doubling,
                                     algorithm::hierarchical_halving_doubling}) {
        sim::cluster cluster = simulated_cluster();
        cluster.ranks_per_host = ranks_per_host;
        cluster.hosts_per_switch = hosts_per_switch;
        cluster.oversubscription = hosts_per_switch == 0 ? 1 : 3;
        const bool exact = chosen == algorithm::ring;
        const auto folded =
            replayed(cluster, work, reduced_by(chosen), 16, {.most_messages = 0, .most_exact_messages = 0});
        const auto whole = replayed(cluster, work, reduced_by(chosen), 16, {.every_rank = true});
        BOOST_TEST(folded.simulated_ranks == ranks_per_host * std::max(1, hosts_per_switch));
        BOOST_TEST(whole.simulated_ranks == 16);
        BOOST_TEST((exact ? !folded.rough : true));
        BOOST_TEST(folded.seconds == whole.seconds, boost::test_tools::tolerance(exact ? 2e-3 : 0.1));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_slowest_rank_holds_up_all) {
  sim::workload work = simulated_workload({400000, 400000, 400000}, 5e-3, 5e-3, 1e-3);
  const double even = replayed(simulated_cluster(), work, reduced_by(algorithm::ring), 8).seconds;
  work.variation = {0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.2};
  const sim::replay_options many{.steps = 21, .every_rank = true};
  const auto whole = replayed(simulated_cluster(), work, reduced_by(algorithm::ring), 8, many);
  const auto folded =
      replayed(simulated_cluster(), work, reduced_by(algorithm::ring), 8, {.steps = 21, .most_messages = 0});
  BOOST_TEST(whole.seconds > 1.05 * even);
  BOOST_TEST(whole.shares.straggler > 0.02 * even);
  BOOST_TEST(folded.seconds == whole.seconds, boost::test_tools::tolerance(0.02));
}

BOOST_AUTO_TEST_CASE(another_topology_gives_another_step) {
  const sim::workload work = simulated_workload({3000000, 3000000, 3000000}, 1e-3, 1e-3);
  sim::cluster cluster = simulated_cluster();
  const double flat = replayed(cluster, work, reduced_by(algorithm::ring), 16).seconds;
  cluster.ranks_per_host = 4;
  const double shared = replayed(cluster, work, reduced_by(algorithm::halving_doubling), 16).seconds;
  const double levels = replayed(cluster, work, reduced_by(algorithm::hierarchical_ring), 16).seconds;
  BOOST_TEST(std::abs(shared - levels) > 0.01 * shared);
  // Four ranks of a host send whole arrays through one rail.
  BOOST_TEST(replayed(cluster, work, reduced_by(algorithm::recursive_doubling), 16).seconds > 2 * levels);
  cluster.rails = 2;
  BOOST_TEST(replayed(cluster, work, reduced_by(algorithm::halving_doubling), 16).seconds < 0.8 * shared);
  cluster = simulated_cluster();
  cluster.hosts_per_switch = 4;
  BOOST_TEST(replayed(cluster, work, reduced_by(algorithm::ring), 16).seconds == flat,
             boost::test_tools::tolerance(0.01));  // a ring passes each uplink once
  const double even = replayed(cluster, work, reduced_by(algorithm::halving_doubling), 16).seconds;
  cluster.oversubscription = 4;
  BOOST_TEST(replayed(cluster, work, reduced_by(algorithm::halving_doubling), 16).seconds > 1.2 * even);
}

BOOST_AUTO_TEST_CASE(processors_that_carry_transfers_compute_less) {
  const sim::workload work = simulated_workload(std::vector<index_t>(20, 500000), 2e-3, 4e-3);
  sim::data_parallel how = reduced_by(algorithm::ring);
  how.gradients.first_bucket_bytes = how.gradients.bucket_bytes = 1 << 20;
  sim::cluster cluster = simulated_cluster();
  const auto before = replayed(cluster, work, how, 4);
  BOOST_TEST(before.shares.stolen == 0);
  cluster.carried_bytes_per_second = 2e9;
  cluster.stolen_share = 1;
  const auto after = replayed(cluster, work, how, 4);
  // 1.5 times the gradients are sent and as many received; most of it happens behind backward.
  const double most = 2 * 1.5 * 40e6 / 2e9 + 0.75 * 40e6 / 5e9;
  BOOST_TEST(after.shares.stolen > 0.6 * most);
  BOOST_TEST(after.shares.stolen < 1.1 * most);
  BOOST_TEST(after.seconds > before.seconds + 0.5 * most);
}

BOOST_AUTO_TEST_CASE(overlap_and_credit_are_those_of_the_strategy) {
  const sim::workload work = simulated_workload(std::vector<index_t>(10, 1000000), 4e-3, 4e-3, 2e-3);
  sim::data_parallel how = reduced_by(algorithm::ring);
  how.gradients.first_bucket_bytes = how.gradients.bucket_bytes = 4000000;
  const double behind = replayed(simulated_cluster(), work, how, 4).seconds;
  how.gradients.overlap = false;
  const double after = replayed(simulated_cluster(), work, how, 4).seconds;
  how.gradients.overlap = true;
  how.gradients.overlap_forward = true;
  const double late = replayed(simulated_cluster(), work, how, 4, {.steps = 6}).seconds;
  const double communication = 1.5 * work.bytes() / 1.25e9;
  BOOST_TEST(behind < after - 0.5 * communication);
  BOOST_TEST(after > work.seconds() - work.update + communication);
  BOOST_TEST(late <= behind + 1e-9);
  how.gradients.overlap_forward = false;
  how.gradients.credit_bytes = 0;  // one at a time: the latency of each shows
  BOOST_TEST(replayed(simulated_cluster(), work, how, 4).seconds >= behind - 1e-9);
}

BOOST_AUTO_TEST_CASE(no_rank_waits_for_ever_whatever_the_plan) {
  gradus_test::sweep("no_rank_waits_for_ever_whatever_the_plan", 150, [](gradus_test::sweep_case& draw) {
    std::vector<index_t> sizes;
    const index_t layers = draw.between("layers", 1, 12);
    for (index_t i = 0; i < layers; ++i) {
      sizes.push_back(draw.between("size", 1, 200000));
    }
    const sim::workload work = simulated_workload(sizes, 1e-4, 2e-4, 1e-5);
    sim::cluster cluster = simulated_cluster();
    cluster.ranks_per_host = static_cast<int>(draw.between("ranks_per_host", 1, 4));
    cluster.rails = static_cast<int>(draw.between("rails", 1, 2));
    cluster.hosts_per_switch = static_cast<int>(draw.between("hosts_per_switch", 0, 3));
    cluster.oversubscription = static_cast<double>(draw.between("oversubscription", 1, 4));
    cluster.stolen_share = 0.5;
    sim::data_parallel how =
        reduced_by(static_cast<algorithm>(draw.between("algorithm", 0, 7)), draw.between("segment", 1000, 300000));
    how.rules[0].rings = how.rules[0].algorithm == algorithm::ring ? static_cast<int>(draw.between("rings", 1, 3)) : 1;
    how.gradients.bucket_bytes = draw.between("bucket", 0, 400000);
    how.gradients.first_bucket_bytes = draw.between("first", 0, 100000);
    how.gradients.partition_bytes = draw.between("partition", 0, 1) * draw.between("part", 20000, 200000);
    how.gradients.credit_bytes = draw.between("credit", 0, 500000);
    how.gradients.overlap = draw.between("overlap", 0, 3) != 0;
    how.gradients.overlap_forward = draw.between("late", 0, 1) != 0;
    const int ranks = static_cast<int>(draw.between("ranks", 1, 20));
    const auto seconds = [&] { return replayed(cluster, work, how, ranks, {.steps = 3}).seconds; };
    try {
      const double found = seconds();
      if (found < work.seconds() * (1 - 1e-9)) {
        draw.fail("a step is shorter than what it computes");
      }
      cluster.network.bytes_per_second *= 2;
      cluster.inside.bytes_per_second *= 2;
      const double faster = seconds();
      if (faster > found * 1.1) {
        draw.fail("twice the bandwidth is slower");  // by more than another order in a queue explains
      }
      cluster.network.latency = 0;
      cluster.inside.latency = 0;
      if (seconds() > faster * 1.1) {
        draw.fail("no latency is slower");
      }
    } catch (const gradus::error& failure) {
      draw.fail(failure.what());
    }
  });
}

BOOST_AUTO_TEST_CASE(what_makes_no_sense_is_refused) {
  const sim::workload work = simulated_workload({100, 200}, 1e-3, 1e-3);
  const auto refused = [&](const sim::cluster& cluster, const sim::workload& given, int ranks) {
    BOOST_CHECK_THROW(replayed(cluster, given, reduced_by(algorithm::ring), ranks), gradus::configuration_error);
  };
  refused(simulated_cluster(), work, 0);
  refused(simulated_cluster(), work, 1 << 20);
  for (double* (*const field)(sim::cluster&) :
       {+[](sim::cluster& c) { return &c.network.bytes_per_second; }, +[](sim::cluster& c) { return &c.adding; },
        +[](sim::cluster& c) { return &c.inside.bytes_per_second; }}) {
    for (const double value : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
      sim::cluster broken = simulated_cluster();
      *field(broken) = value;
      refused(broken, work, 2);
    }
  }
  sim::workload broken = work;
  broken.layers[0].forward = -1;
  refused(simulated_cluster(), broken, 2);
  broken = work;
  broken.layer_of_segment[0] = 7;
  refused(simulated_cluster(), broken, 2);
  broken = work;
  broken.segments[1].offset = 0;
  refused(simulated_cluster(), broken, 2);
  broken = work;
  broken.elements = 10;
  refused(simulated_cluster(), broken, 2);
  broken = work;
  broken.variation = {1, 0};
  refused(simulated_cluster(), broken, 2);
  sim::cluster other = simulated_cluster();
  const sim::data_parallel_model model{other, work, reduced_by(algorithm::ring), 4};
  other.ranks_per_host = 2;
  BOOST_CHECK_THROW(static_cast<void>(model.replay(other, work)), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
