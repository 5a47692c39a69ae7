// SPDX-License-Identifier: BSL-1.0
//
// Descriptions of networks, predictions with their intervals, and systems that are fitted to rows.
#include <boost/test/unit_test.hpp>

#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::pair
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/sim/calibration.hpp"
#include "gradus/sim/data_parallel.hpp"
#include "gradus/sim/network_text.hpp"
#include "gradus/sim/prediction.hpp"
#include "gradus/sim/server_training.hpp"
#include "gradus/sim/timeline.hpp"
#include "gradus/trace/span.hpp"
#include "gradus/trace/timeline.hpp"
#include "workloads.hpp"

namespace {

namespace sim = gradus::sim;
using gradus::index_t;
using gradus_test::simulated_cluster;
using gradus_test::simulated_workload;

sim::replay_function ring_of(int ranks) {
  return [ranks](const sim::cluster& cluster, const sim::workload& work) {
    return sim::data_parallel_model{cluster, work, {}, ranks}.replay(cluster, work);
  };
}

/// Images a second of a system with these constants, as the replay has it.
double measured_on(double bytes_per_second, double step, const sim::workload& work, const sim::measured_row& row) {
  sim::workload scaled = work;
  for (sim::layer_times& each : scaled.layers) {
    each.forward *= step / work.seconds();
    each.backward *= step / work.seconds();
  }
  const sim::cluster cluster{.network = {.bytes_per_second = bytes_per_second, .latency = 50e-6},
                             .message_seconds = 50e-6};
  const double images = static_cast<double>(work.batch_size_per_rank) * row.devices;
  if (row.all_reduce) {
    const sim::data_parallel_model model{cluster, scaled, {.rules = {{.algorithm = *row.all_reduce}}}, row.workers};
    return images / model.replay(cluster, scaled, {.steps = 3}).seconds;
  }
  sim::server_training how = row.how;
  how.colocate = how.servers <= row.workers;
  how.applies_as_they_come = true;
  how.window = 2;
  for (std::size_t i = work.segments.size(); i > 0; --i) {
    how.pull_priorities.push_back(i - 1);
  }
  const int ranks = how.colocate ? row.workers : row.workers + how.servers;
  return images / sim::replay_servers(cluster, scaled, how, ranks, {.steps = 3}).seconds;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simulated_predictions)

BOOST_AUTO_TEST_CASE(networks_are_read_as_people_write_them) {
  const auto plain = sim::read_network("10Gbit/s 25us");
  BOOST_TEST(plain.description.network.bytes_per_second == 1.25e9);
  BOOST_TEST(plain.description.network.latency == 25e-6, boost::test_tools::tolerance(1e-12));
  const auto scientific = sim::read_network("1.5e+00Gbit/s 1.39E3us message 5e-1us");
  BOOST_TEST(scientific.description.network.bytes_per_second == 1.875e8);
  BOOST_TEST(scientific.description.network.latency == 1.39e-3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(scientific.description.message_seconds == 5e-7, boost::test_tools::tolerance(1e-12));
  const auto rich = sim::read_network(
      "# measured on the cluster\n"
      "117MB/s, 0.1ms; inside 5GB/s 1us\n"
      "message 3us adding 2GB/s carried 900MB/s stolen 0.5 poll 200us  # of the bucket thread\n"
      "rails 2 switch 16 hosts oversubscription 4 uncertain 3%");
  const sim::cluster& found = rich.description;
  BOOST_TEST(found.network.bytes_per_second == 117e6);
  BOOST_TEST(found.network.latency == 1e-4, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(found.inside.bytes_per_second == 5e9);
  BOOST_TEST(found.message_seconds == 3e-6, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(found.adding == 2e9);
  BOOST_TEST(found.carried_bytes_per_second == 900e6);
  BOOST_TEST(found.stolen_share == 0.5);
  BOOST_TEST(found.poll_seconds == 2e-4, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(found.rails == 2);
  BOOST_TEST(found.hosts_per_switch == 16);
  BOOST_TEST(found.oversubscription == 4);
  BOOST_TEST(rich.uncertainty == 0.03, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(networks_that_make_no_sense_are_refused) {
  for (const std::string_view text : {"",
                                      "10Gbit/s",
                                      "25us",
                                      "10Gbit/s 25us 5us",
                                      "fast 25us",
                                      "10 Gbit/s 25us",
                                      "-10Gbit/s 25us",
                                      "0Gbit/s 25us",
                                      "1e400Gbit/s 25us",
                                      "1eGbit/s 25us",
                                      "1e+Gbit/s 25us",
                                      "10Gbit/s 1e2e3us",
                                      "10Gbit/s 25e1",
                                      "10Gbit/s 25us rails 0",
                                      "10Gbit/s 25us rails 1.5",
                                      "10Gbit/s 25us rails",
                                      "10Gbit/s 25us "
                                      "stolen 2",
                                      "10Gbit/s 25us uncertain 10",
                                      "10Gbit/s 25us inside 5GB/s",
                                      "10Gbit/s 25us oversubscription 0.5",
                                      "10Gbit/s 25us switch nan",
                                      "..Gbit/s 25us",
                                      "10Gbit/s 25us\x01\xff",
                                      "10Gbit/s 1.2.3us"}) {
    BOOST_CHECK_THROW(static_cast<void>(sim::read_network(text)), gradus::error);
  }
  BOOST_CHECK_THROW(static_cast<void>(sim::read_network(std::string(100000, '9') + "Gbit/s 1us")), gradus::error);
}

BOOST_AUTO_TEST_CASE(an_interval_has_its_center_and_names_what_is_uncertain) {
  const sim::workload work = simulated_workload({3000000, 3000000, 3000000}, 2e-3, 4e-3);
  const auto of = [&](double bandwidth, int ranks) {
    return sim::predict(ranks, ranks, 8.0 * ranks, simulated_cluster(), work,
                        {.bandwidth = bandwidth, .calibrated_ranks = 4}, ring_of(ranks));
  };
  const auto found = of(0.2, 4);
  BOOST_TEST(found.least < found.images_per_second);
  BOOST_TEST(found.images_per_second < found.most);
  BOOST_TEST(found.images_per_second == 32 / found.step.seconds, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(std::string{found.influences.front().input} == "bandwidth");
  BOOST_TEST(!found.influences.front().measurement.empty());
  BOOST_TEST(!found.beyond);
  BOOST_TEST(found.efficiency < 1);
  BOOST_TEST(found.efficiency > 0.2);
  const auto surer = of(0.0005, 4);
  BOOST_TEST(surer.most - surer.least < found.most - found.least);
  BOOST_TEST(std::string{surer.influences.front().input} != "bandwidth");
  const auto larger = of(0.0005, 64);
  BOOST_TEST(larger.beyond);
  BOOST_TEST((larger.most - larger.least) / larger.images_per_second >
             (surer.most - surer.least) / surer.images_per_second);
}

BOOST_AUTO_TEST_CASE(a_simulated_step_is_a_timeline) {
  const sim::workload work = simulated_workload({300000, 300000}, 2e-3, 4e-3, 1e-3);
  const auto step = sim::data_parallel_model{simulated_cluster(), work, {}, 4}.replay(simulated_cluster(), work,
                                                                                      {.steps = 2, .spans = true});
  const gradus::trace::timeline all = sim::timeline_of(step, simulated_cluster());
  BOOST_TEST(all.ranks().size() == 4);
  double computing = 0;
  int transfers = 0;
  for (const auto& rank : all.ranks()) {
    for (const gradus::trace::span& one : rank.spans) {
      BOOST_TEST(one.end >= one.begin);
      computing += one.what == gradus::trace::category::forward || one.what == gradus::trace::category::backward
                       ? static_cast<double>(one.end - one.begin)
                       : 0;
      if (one.is_collective()) {
        ++transfers;
        BOOST_TEST(all.all_arrived(one).has_value());
      }
    }
  }
  BOOST_TEST(computing == 4 * 2 * 12e6, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(transfers > 0);
}

BOOST_AUTO_TEST_CASE(a_system_that_was_replayed_is_found_again) {
  std::vector<index_t> sizes(12, 250000);
  sizes[11] = 2050048;
  sim::workload work = simulated_workload(sizes, 1, 2);
  work.batch_size_per_rank = 64;
  std::vector<sim::measured_row> rows;
  for (const auto& [workers, servers] : {std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 4}, std::pair{16, 4}}) {
    sim::measured_row row{.devices = workers, .workers = workers};
    row.how.servers = servers;
    row.how.placed.policy = gradus::parallel::placement_policy::greedy;
    row.images_per_second = measured_on(400e6, 0.3, work, row);
    rows.push_back(row);
  }
  const sim::calibration fitted{work, rows};
  const auto constants = fitted.constants();
  BOOST_TEST(constants.step_seconds == 0.3, boost::test_tools::tolerance(0.05));
  BOOST_TEST(constants.least_bytes_per_second <= 400e6 * 1.25);
  BOOST_TEST(constants.most_bytes_per_second >= 400e6 / 1.25);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {  // without the last one the bandwidth is not determined
    const auto rate = fitted.without(i);
    BOOST_TEST(rate.least <= rows[i].images_per_second);
    BOOST_TEST(rate.most >= rows[i].images_per_second);
    BOOST_TEST(rate.images_per_second == rows[i].images_per_second, boost::test_tools::tolerance(0.06));
  }
  const auto last = fitted.without(3);
  BOOST_TEST(last.least <= rows[3].images_per_second);
  BOOST_TEST(last.most >= rows[3].images_per_second);
  BOOST_TEST((last.most - last.least) / last.images_per_second > 0.1);
  BOOST_TEST(last.bandwidth_matters > 1.05);
  BOOST_TEST(last.beyond);
  // What an all-reduce would do on this system.
  for (const int workers : {2, 16}) {
    const sim::measured_row ring{
        .devices = workers, .workers = workers, .all_reduce = gradus::comm::all_reduce_algorithm::ring};
    const double rate = fitted.predict(ring).images_per_second;
    BOOST_TEST(rate == measured_on(400e6, 0.3, work, ring), boost::test_tools::tolerance(0.06));
    BOOST_TEST((workers == 2 || rate > 1.2 * fitted.predict(rows[3]).images_per_second));
  }
  BOOST_CHECK_THROW((sim::calibration{work, {}}), gradus::configuration_error);
  rows[0].devices = 3;
  rows[0].workers = 2;
  BOOST_CHECK_THROW((sim::calibration{work, rows}), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
