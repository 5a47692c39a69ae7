// SPDX-License-Identifier: BSL-1.0
//
// gradus_bench predict --calibrate: constants of systems from measured rows, and rows that were not measured.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/sim/calibration.hpp"
#include "input.hpp"
#include "predictions.hpp"

namespace driver {

namespace {

namespace parallel = gradus::parallel;
namespace sim = gradus::sim;
using nlohmann::json;

/// The rows of a system, and what each is called.
struct system_rows {
  std::vector<sim::measured_row> rows;
  std::vector<std::string> names;
};

[[noreturn]] void refuse(const settings& chosen, const std::string& why) {
  throw std::invalid_argument{"--calibrate: '" + gradus::printable(chosen.calibrate) + "': " + gradus::printable(why)};
}

json read_json(const settings& chosen) {
  std::ifstream file{chosen.calibrate, std::ios::binary};
  if (!file) {
    refuse(chosen, "cannot be read");
  }
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (text.size() > (1U << 22U)) {
    refuse(chosen, "expected a file of rows, got " + std::to_string(text.size()) + " bytes");
  }
  try {
    return json::parse(text);
  } catch (const json::exception& failure) {
    refuse(chosen, std::string{"expected JSON: "} + failure.what());
  }
}

/// A whole number of a row. @param otherwise  if the row has none; 0: it must have one
int whole_of(const settings& chosen, const json& row, const char* field, int otherwise) {
  const auto found = row.find(field);
  if (found == row.end() && otherwise > 0) {
    return otherwise;
  }
  if (found == row.end() || !found->is_number_integer() || found->get<std::int64_t>() < 1 ||
      found->get<std::int64_t>() > 65536) {
    refuse(chosen, std::string{"expected rows with '"} + field + "' from 1 to 65536, got " + row.dump().substr(0, 200));
  }
  return found->get<int>();
}

std::string text_of(const settings& chosen, const json& row, const char* field, const char* otherwise) {
  const auto found = row.find(field);
  if (found == row.end()) {
    return otherwise;
  }
  if (!found->is_string()) {
    refuse(chosen, std::string{"expected a text as '"} + field + "', got " + found->dump().substr(0, 200));
  }
  return found->get<std::string>();
}

sim::measured_row row_of(const settings& chosen, const json& row) {
  sim::measured_row one{.devices = whole_of(chosen, row, "devices", 0)};
  const int of_worker = whole_of(chosen, row, "devices_per_worker", 1);
  if (one.devices % of_worker != 0) {
    refuse(chosen, "expected 'devices' that 'devices_per_worker' divides, got " + row.dump().substr(0, 200));
  }
  one.workers = one.devices / of_worker;
  if (row.contains("strategy")) {
    const std::string strategy = text_of(chosen, row, "strategy", "");
    one.all_reduce = all_reduce_algorithm_of(strategy);
    if (!one.all_reduce) {
      refuse(chosen, "expected a strategy such as ring, or rows with 'servers', got " + strategy);
    }
  }
  one.how.servers = whole_of(chosen, row, "servers", one.all_reduce ? 1 : 0);
  const std::string mode = text_of(chosen, row, "mode", "parameter_server");
  if (mode != "parameter_server" && mode != "distributed_replicated") {
    refuse(chosen, "expected the mode parameter_server or distributed_replicated, got " + mode);
  }
  const std::string placement = text_of(chosen, row, "placement", "greedy");  // whole variables, by bytes
  one.how.placed.policy = parallel::placement_policy::greedy;
  bool known = false;
  for (const auto policy : {parallel::placement_policy::round_robin, parallel::placement_policy::greedy,
                            parallel::placement_policy::longest_first, parallel::placement_policy::partitioned}) {
    if (placement == name_of(policy)) {
      one.how.placed.policy = policy;
      known = true;
    }
  }
  if (!known) {
    refuse(chosen, "expected the placement round_robin, greedy, longest_first or partitioned, got " + placement);
  }
  if (const auto found = row.find("images_per_second"); found != row.end() && !found->is_null()) {
    if (!found->is_number() || !(found->get<double>() > 0) || !(found->get<double>() < 1e12)) {
      refuse(chosen, "expected 'images_per_second' above 0, or none for a row that is asked, got " +
                         found->dump().substr(0, 200));
    }
    one.images_per_second = found->get<double>();
  }
  return one;
}

std::string name_of_row(const sim::measured_row& row) {
  const std::string devices = std::to_string(row.devices) + " on " + std::to_string(row.workers) + ", ";
  return row.all_reduce
             ? devices + std::string{name_of(*row.all_reduce)}
             : devices + std::to_string(row.how.servers) + " servers, " + std::string{name_of(row.how.placed.policy)};
}

nlohmann::ordered_json json_of(const sim::measured_row& row, const sim::calibrated_rate& rate) {
  nlohmann::ordered_json one{{"devices", row.devices},
                             {"workers", row.workers},
                             {"servers", row.all_reduce ? 0 : row.how.servers},
                             {"strategy", row.all_reduce ? name_of(*row.all_reduce) : "parameter_server"},
                             {"images_per_second", rate.images_per_second},
                             {"least", rate.least},
                             {"most", rate.most},
                             {"beyond_calibrated_range", rate.beyond}};
  if (row.images_per_second > 0) {
    one["measured"] = row.images_per_second;
    one["error"] = rate.images_per_second / row.images_per_second - 1;
  }
  return one;
}

}  // namespace

void calibrate(const settings& chosen, const sim::workload& work) {
  const json all = read_json(chosen);
  const auto list = all.is_object() ? all.find("rows") : all.end();
  if (!all.is_object() || list == all.end() || !list->is_array() || list->empty() || list->size() > 1000) {
    refuse(chosen, "expected an object with 1 to 1000 'rows'");
  }
  program::output_file output = open_output("--json", chosen.json, chosen);
  output.require_not(chosen.calibrate);
  std::map<std::string, system_rows> systems;
  std::vector<std::string> order;
  for (const json& each : *list) {
    if (!each.is_object()) {
      refuse(chosen, "expected objects as rows, got " + each.dump().substr(0, 200));
    }
    const std::string name = text_of(chosen, each, "system", "the system");
    if (systems.find(name) == systems.end()) {
      order.push_back(name);
    }
    systems[name].rows.push_back(row_of(chosen, each));
  }
  nlohmann::ordered_json found = nlohmann::ordered_json::array();
  for (const std::string& name : order) {
    const std::vector<sim::measured_row>& rows = systems[name].rows;
    const sim::calibration fitted{work, rows};
    const sim::system_constants constants = fitted.constants();
    gradus::print_text(stdout,
                       "%s: a step of %.1f ms on one device, links of %.0f MB/s (%.0f to %.0f), computing varies by "
                       "%.1f %%\n%-36s %10s %10s  %-22s %8s\n",
                       gradus::printable(name).c_str(), 1e3 * constants.step_seconds, 1e-6 * constants.bytes_per_second,
                       1e-6 * constants.least_bytes_per_second, 1e-6 * constants.most_bytes_per_second,
                       100 * constants.spread, "devices and workers", "measured", "predicted", "interval", "error");
    nlohmann::ordered_json of_system = nlohmann::ordered_json::array();
    double matters = 1;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool measured = rows[i].images_per_second > 0;
      const sim::calibrated_rate rate = fitted.without(i);
      matters = std::max(matters, rate.bandwidth_matters);
      gradus::print_text(stdout, "%-36s ", name_of_row(rows[i]).c_str());
      if (measured) {
        gradus::print_text(stdout, "%10.2f %10.2f  %9.2f to %-9.2f %7.1f%%%s\n", rows[i].images_per_second,
                           rate.images_per_second, rate.least, rate.most,
                           100 * (rate.images_per_second / rows[i].images_per_second - 1),
                           rate.beyond ? "  beyond the calibrated range" : "");
      } else {
        gradus::print_text(stdout, "%10s %10.2f  %9.2f to %-9.2f %8s%s\n", "asked", rate.images_per_second, rate.least,
                           rate.most, "", rate.beyond ? "  beyond the calibrated range" : "");
      }
      of_system.push_back(json_of(rows[i], rate));
    }
    if (matters > 1.05) {
      gradus::print_text(stdout,
                         "the rate of a link is not determined by all rows: it decides %.0f %% of a step; measure it "
                         "between two hosts, or a row with more workers for each server\n",
                         100 * (matters - 1));
    }
    found.push_back({{"system", name},
                     {"step_ms", 1e3 * constants.step_seconds},
                     {"link_bytes_per_second", constants.bytes_per_second},
                     {"least_link_bytes_per_second", constants.least_bytes_per_second},
                     {"most_link_bytes_per_second", constants.most_bytes_per_second},
                     {"rows", std::move(of_system)}});
  }
  output.write(nlohmann::ordered_json{{"model", chosen.model}, {"systems", std::move(found)}}.dump(2) + '\n');
}

}  // namespace driver
