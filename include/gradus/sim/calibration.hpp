// SPDX-License-Identifier: BSL-1.0
//
// Fits the constants of a system with parameter servers to measured rows, and predicts rows that were not measured.
#pragma once

#include <algorithm>  // std::max, std::min, std::sort
#include <array>      // std::array
#include <cmath>      // std::exp, std::log2, std::pow
#include <cstddef>    // std::size_t
#include <optional>   // std::optional
#include <span>       // std::span
#include <utility>    // std::move, std::pair
#include <vector>     // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/data_parallel.hpp"
#include "gradus/sim/data_parallel_options.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/server_training.hpp"
#include "gradus/sim/server_training_options.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim {

/// A measurement, or what is asked for if images_per_second is 0.
struct measured_row {
  int devices = 1;               ///< GPUs or processors that compute, all together
  int workers = 1;               ///< hosts with these devices; each pushes one sum of the gradients of its devices
  server_training how{};         ///< servers and placement; as many servers as workers or fewer are beside workers
  double images_per_second = 0;  ///< of all devices
  /// Workers that reduce their sums by this algorithm of comm::collectives, without servers and their barrier.
  std::optional<comm::all_reduce_algorithm> all_reduce{};
};

/// Images a second, with the interval of nine tenths of the systems that are compatible with the measurements.
struct calibrated_rate {
  double images_per_second = 0;  ///< the weighted median
  double least = 0;              ///< lower end of the interval
  double most = 0;               ///< upper end
  bool beyond = false;           ///< more workers, or more bytes of a server, than in any row
  /// How much the rate of a link decides: the step at the lower end of the fitted bandwidth over that at the upper end.
  double bandwidth_matters = 1;
};

/// Constants of a system.
struct system_constants {
  double step_seconds = 0;            ///< of one device that exchanges nothing
  double bytes_per_second = 0;        ///< of the link of a host
  double least_bytes_per_second = 0;  ///< lower end of the compatible ones
  double most_bytes_per_second = 0;   ///< upper end: the largest tried if rows are not bound by communication
  double spread = 0;                  ///< standard deviation of a step's computing time, relative
  double worker_seconds = 0;          ///< of a step, for each worker: the barrier
};

/// A system with unknown constants: seconds of a step of one device, bandwidth, cost of a message, spread of computing,
/// and cost of the barrier. Servers send the values of the first layers first and share their links evenly. A grid of
/// all of them is replayed once; each point weighs as much as it explains the rows, with errors of 1.5 % each, and as
/// its constants are usual. So what the rows do not determine stays uncertain.
class calibration {
 public:
  /// @param work   the network with the batch of one device; only the relations of its times are used
  /// @param rows   measured; those that are asked for later may be among them with images_per_second 0
  /// @throws configuration_error for rows that make no sense, and without a measured one
  calibration(workload work, std::vector<measured_row> rows) : work_{std::move(work)}, rows_{std::move(rows)} {
    work_.check();
    double fastest = 0;  // images a second of a device
    for (const measured_row& each : rows_) {
      require(each);
      fastest = std::max(fastest, each.images_per_second / each.devices);
    }
    if (!(fastest > 0)) {
      raise<configuration_error>("sim::calibration", "at least one row with images a second", {rows_.size(), " rows"});
    }
    reference_ = static_cast<double>(work_.batch_size_per_rank) / fastest;
    for (const measured_row& each : rows_) {
      replays_.push_back(replay_of(each));
    }
  }

  /// The rows of the constructor.
  [[nodiscard]] std::span<const measured_row> rows() const noexcept { return rows_; }

  /// The images a second of one of the rows, from all other measured ones: leave-one-out.
  [[nodiscard]] calibrated_rate without(std::size_t row) const { return rate_of(rows_[row], replays_[row], row); }

  /// The images a second of any row, from all measured ones.
  [[nodiscard]] calibrated_rate predict(const measured_row& asked) const {
    require(asked);
    return rate_of(asked, replay_of(asked), rows_.size());
  }

  /// The constants that explain all rows, with the interval of the bandwidth.
  [[nodiscard]] system_constants constants() const {
    std::vector<std::pair<double, double>> fitted;
    double best = 0;
    system_constants found;
    for_each_point([&, this](const point& at) {
      const double weight = weight_of(at, rows_.size());
      fitted.emplace_back(bandwidth_of(at.bandwidth), weight);
      if (weight > best) {
        best = weight;
        found = {.step_seconds = reference_ * (1 + at.longer),
                 .bytes_per_second = bandwidth_of(at.bandwidth),
                 .spread = at.spread,
                 .worker_seconds = at.barrier};
      }
    });
    found.least_bytes_per_second = quantile(fitted, 0.05);
    found.most_bytes_per_second = quantile(fitted, 0.95);
    return found;
  }

 private:
  static constexpr int bandwidths = 13;
  static constexpr std::array<double, 3> messages{10e-6, 50e-6, 200e-6};
  static constexpr std::array<double, 7> spreads{0, 0.005, 0.01, 0.02, 0.03, 0.045, 0.065};
  static constexpr std::array<double, 6> barriers{0, 0.1e-3, 0.3e-3, 0.7e-3, 1.5e-3, 3e-3};

  /// A system.
  struct point {
    int bandwidth = 0;
    std::size_t message = 0;
    double spread = 0;
    double barrier = 0;
    double longer = 0;  // than the reference, relative
  };

  /// The steps of a row for each bandwidth and cost of a message: seconds at the reference, and their change with it.
  struct table {
    std::array<std::array<std::pair<double, double>, messages.size()>, bandwidths> of;
  };

  /// 40 MB/s to 15 GB/s.
  [[nodiscard]] static double bandwidth_of(int number) noexcept { return 40e6 * std::pow(1.64, number); }

  /// The mean of the largest of n normal deviations, for n = 1, 2, 4, ...
  [[nodiscard]] static double largest_of(int ranks) noexcept {
    constexpr std::array<double, 13> known{0,     0.564, 1.029, 1.424, 1.766, 2.07, 2.343,
                                           2.592, 2.822, 3.037, 3.239, 3.43,  3.611};
    const double at = std::min(std::log2(static_cast<double>(ranks)), 11.999);
    const auto low = static_cast<std::size_t>(at);
    return known[low] + (at - static_cast<double>(low)) * (known[low + 1] - known[low]);
  }

  static void require(const measured_row& each) {
    if (each.devices < 1 || each.workers < 1 || each.devices % each.workers != 0 || each.how.servers < 1 ||
        each.devices > 65536 || each.how.servers > 65536 || !is_finite(each.images_per_second) ||
        each.images_per_second < 0) {
      raise<configuration_error>("sim::calibration",
                                 "rows with workers, as many devices each, servers, and images a second",
                                 {each.devices, " devices, ", each.workers, " workers, ", each.how.servers,
                                  " servers, ", each.images_per_second, " images/s"});
    }
  }

  template <class Visit>
  static void for_each_point(const Visit& visit) {
    for (int bandwidth = 0; bandwidth < bandwidths; ++bandwidth) {
      for (std::size_t message = 0; message < messages.size(); ++message) {
        for (const double spread : spreads) {
          for (const double barrier : barriers) {
            for (int percent = -8; percent <= 2; ++percent) {
              visit(point{bandwidth, message, spread, barrier, 0.01 * percent});
            }
          }
        }
      }
    }
  }

  [[nodiscard]] table replay_of(const measured_row& row) const {
    if (row.all_reduce) {
      const data_parallel_model model{{}, work_, {.rules = {{.algorithm = *row.all_reduce}}}, row.workers};
      return table_of(
          [&](const cluster& of, const workload& work) { return model.replay(of, work, {.steps = 2}).seconds; });
    }
    server_training how = row.how;
    how.colocate = how.servers <= row.workers;
    how.applies_as_they_come = how.mode == parallel::server_mode::synchronous;
    how.window = 2;  // connections share a link evenly
    how.pull_priorities.clear();
    for (std::size_t i = work_.segments.size(); i > 0; --i) {
      how.pull_priorities.push_back(i - 1);  // the first layers come first
    }
    const int ranks = how.colocate ? row.workers : row.workers + how.servers;
    return table_of([&](const cluster& of, const workload& work) {
      return replay_servers(of, work, how, ranks, {.steps = 2}).seconds;
    });
  }

  /// @param replay  the seconds of a step of a workload on a cluster
  template <class Replay>
  [[nodiscard]] table table_of(const Replay& replay) const {
    table found{};
    for (int bandwidth = 0; bandwidth < bandwidths; ++bandwidth) {
      double change = 0;
      for (std::size_t message = 0; message < messages.size(); ++message) {
        const cluster of{.network = {.bytes_per_second = bandwidth_of(bandwidth), .latency = 50e-6},
                         .message_seconds = messages[message]};
        const auto seconds = [&, this](double step) {
          workload scaled = work_;
          const double by = step / work_.seconds();
          for (layer_times& each : scaled.layers) {
            each.forward *= by;
            each.backward *= by;
          }
          scaled.update *= by;
          scaled.other *= by;
          return replay(of, scaled);
        };
        const double at_reference = seconds(reference_);
        if (message == 0) {  // messages hardly change how a longer step changes the whole
          change = (seconds(0.95 * reference_) - at_reference) / -0.05;
        }
        found.of[static_cast<std::size_t>(bandwidth)][message] = {at_reference, change};
      }
    }
    return found;
  }

  [[nodiscard]] double seconds_of(const point& at, const measured_row& row, const table& replays) const noexcept {
    const auto& [seconds, change] = replays.of[static_cast<std::size_t>(at.bandwidth)][at.message];
    return seconds + change * at.longer + at.spread * reference_ * largest_of(row.workers) +
           (row.all_reduce ? 0 : at.barrier * (row.workers - 1));
  }

  [[nodiscard]] double images_of(const measured_row& row) const noexcept {
    return static_cast<double>(work_.batch_size_per_rank) * row.devices;
  }

  /// How much a system explains the rows but one.
  [[nodiscard]] double weight_of(const point& at, std::size_t left_out) const noexcept {
    double errors = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (i != left_out && rows_[i].images_per_second > 0) {
        const double error =
            seconds_of(at, rows_[i], replays_[i]) * rows_[i].images_per_second / images_of(rows_[i]) - 1;
        errors += error * error / (0.015 * 0.015);
      }
    }
    // What is usual: a spread of 2 %, a barrier of half a millisecond for each worker.
    const double unusual = at.spread * at.spread / (0.03 * 0.03) + at.barrier * at.barrier / (1.5e-3 * 1.5e-3);
    return std::exp(-0.5 * (errors + unusual));
  }

  /// The value with this share of the weight below it.
  [[nodiscard]] static double quantile(std::vector<std::pair<double, double>>& values, double share) {
    std::sort(values.begin(), values.end());
    double all = 0;
    for (const auto& each : values) {
      all += each.second;
    }
    double below = 0;
    for (const auto& each : values) {
      below += each.second;
      if (below >= share * all) {
        return each.first;
      }
    }
    return values.empty() ? 0 : values.back().first;
  }

  [[nodiscard]] calibrated_rate rate_of(const measured_row& asked, const table& replays, std::size_t left_out) const {
    std::vector<std::pair<double, double>> rates;
    std::vector<std::pair<double, double>> compatible;
    for_each_point([&, this](const point& at) {
      const double weight = weight_of(at, left_out);
      if (weight > 0) {
        rates.emplace_back(images_of(asked) / seconds_of(at, asked, replays), weight);
        compatible.emplace_back(static_cast<double>(at.bandwidth), weight);
      }
    });
    constexpr double of_model = 0.025;
    calibrated_rate found{.images_per_second = quantile(rates, 0.5),
                          .least = quantile(rates, 0.05) * (1 - of_model),
                          .most = quantile(rates, 0.95) * (1 + of_model)};
    const auto low = static_cast<std::size_t>(quantile(compatible, 0.05));
    const auto high = static_cast<std::size_t>(quantile(compatible, 0.95));
    found.bandwidth_matters = replays.of[low][1].first / replays.of[high][1].first;
    found.beyond = true;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      found.beyond =
          found.beyond && (i == left_out || !(rows_[i].images_per_second > 0) || rows_[i].workers < asked.workers);
    }
    return found;
  }

  workload work_;
  std::vector<measured_row> rows_;
  double reference_ = 0;  // seconds of a step of the fastest device
  std::vector<table> replays_;
};

}  // namespace gradus::sim
