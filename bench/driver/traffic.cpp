// SPDX-License-Identifier: BSL-1.0
//
// --memory-traffic: the bytes of a step by its execution plan, their lower bound, and the rate of each pass compared
// with that of a copy.
#include "traffic.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/plan/memory_traffic.hpp"
#include "gradus/simd/isa.hpp"
#include "input.hpp"
#include "plan.hpp"
#include "rules.hpp"
#include "training.hpp"

namespace driver {

namespace {

namespace nn = gradus::nn;
using clock = std::chrono::steady_clock;

/// One pass of a layer, or a sum of passes.
struct traffic_row {
  std::string layer;
  std::string kind;
  std::string pass;
  nn::pass_bytes bytes;
  double seconds = 0;  // 0: not measured

  [[nodiscard]] double per_second() const {
    return seconds > 0 ? static_cast<double>(bytes.run.total()) / seconds : 0.0;
  }
  traffic_row& operator+=(const traffic_row& other) {
    bytes += other.bytes;
    seconds += other.seconds;
    return *this;
  }
};

struct traffic_table {
  std::vector<traffic_row> rows;
  double copy_rate = 0;  // bytes a second that a copy reads and writes; 0: not measured
};

template <class Body>
double shortest_seconds(int calls, const Body& body) {
  double best = 0;
  for (int i = 0; i < calls; ++i) {
    const auto began = clock::now();
    body();
    const double took = std::chrono::duration<double>(clock::now() - began).count();
    best = i == 0 ? took : std::min(best, took);
  }
  return best;
}

/// Bytes a second that a copy on the threads of a device reads and writes, of arrays that no cache holds. The best of
/// short parts: other work on the machine only takes time.
double copy_rate_of(gradus::cpu& device) {
  constexpr std::size_t bytes = std::size_t{1} << 28U;
  constexpr index_t piece = index_t{1} << 20;
  constexpr index_t pieces_of_part = 16;
  std::vector<unsigned char> from(bytes, 1);
  std::vector<unsigned char> to(bytes, 0);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    for (index_t first = 0; first < static_cast<index_t>(bytes) / piece; first += pieces_of_part) {
      const double seconds = shortest_seconds(1, [&] {
        device.parallel_for(pieces_of_part, 1, [&](index_t begin, index_t end) {
          for (index_t i = first + begin; i < first + end; ++i) {  // short copies use the stores that kernels use
            std::memcpy(to.data() + i * piece, from.data() + i * piece, static_cast<std::size_t>(piece));
          }
        });
      });
      best = std::max(best, 2 * static_cast<double>(pieces_of_part * piece) / seconds);
    }
  }
  return best;
}

/// The bytes of the update rule's state for each parameter.
std::size_t state_bytes_of(const settings& chosen, gradus::cpu& device) {
  constexpr index_t sample = 61;  // parameters: no other buffer of a rule has that size
  const std::unique_ptr<rule> updates = make_rule(chosen, device, sample);
  if (!updates->elementwise()) {
    throw std::invalid_argument{"--memory-traffic: expected an update rule of single elements, got --optimizer " +
                                chosen.optimizer + ", which also passes over the parameters for their norms"};
  }
  std::size_t bytes = 0;
  for (const gradus::optim::state_buffer& each : updates->buffers()) {
    bytes += each.elements == sample ? each.bytes.size() / static_cast<std::size_t>(sample) : 0;
  }
  return bytes;
}

traffic_table measure_traffic(const settings& chosen, gradus::cpu& device) {
  const batches plan{.of_rank = chosen.batch_size_per_rank, .rank = 0, .ranks = 1, .steps = 1};
  const std::unique_ptr<input_set> input = open_input(chosen, model_of(chosen), plan.global());
  gradus::trace::recorder unused{{.capacity = 1, .enabled = false}};
  const std::unique_ptr<training> trained = make_training(chosen, device, *input, plan, unused);
  const nn::memory_forecast planned = trained->forecast();
  const std::size_t state = state_bytes_of(chosen, device);
  const std::size_t norm = chosen.clip_norm ? sizeof(float) : 0;  // the gradients are read for it first
  const nn::graph& net = trained->structure();
  const nn::memory_traffic step = nn::count_traffic(
      net, planned.plan, planned.layers,
      {.examples = chosen.batch_size_per_rank,
       .element_bytes = chosen.precision == "bf16" ? 2U : 4U,
       .target_bytes =
           static_cast<std::size_t>(chosen.batch_size_per_rank * input->label_map().size()) * sizeof(std::int32_t),
       .update_read_bytes = 2 * sizeof(float) + norm + state,
       .update_written_bytes = sizeof(float) + state});
  traffic_table result;
  gradus::parallel::step_profile times;
  double update_seconds = 0;
  if (!chosen.dry_run) {
    trained->compile();
    times = trained->profile(std::min(chosen.batches, 5));
    const trained_parameters all = trained->parameters();
    const std::unique_ptr<rule> updates = make_rule(chosen, device, static_cast<index_t>(all.values.size()));
    update_seconds = shortest_seconds(5, [&] {
      updates->run_step({all.segments.data(), all.segments.size()}, all.values.data(), all.gradients.data(),
                        gradus::optim::update_step{0.0});
    });
    result.copy_rate = copy_rate_of(device);
  }
  const double update_bytes = static_cast<double>(step.of_layers().update.run.total());
  const auto append = [&](std::size_t i, const char* pass, const nn::pass_bytes& bytes, double seconds) {
    if (bytes.run.total() != 0) {
      const nn::graph::node& n = net.nodes()[i];
      result.rows.push_back({n.name, std::string{n.layer->kind()}, pass, bytes, seconds});
    }
  };
  for (std::size_t i = 0; i < step.layers.size(); ++i) {
    const bool timed = i < times.layers.size();
    append(i, "forward", step.layers[i].forward, timed ? times.layers[i].forward : 0);
    append(i, "backward", step.layers[i].backward, timed ? times.layers[i].backward : 0);
    // One pass over all parameters: a layer has its share of the time.
    const nn::pass_bytes& update = step.layers[i].update;
    append(i, "update", update, update_seconds * static_cast<double>(update.run.total()) / std::max(1.0, update_bytes));
  }
  result.rows.push_back({"loss", "loss", "loss", step.loss, 0});
  return result;
}

/// The sums of the rows that agree in something, in the order of the first of each.
template <class Name>
std::vector<traffic_row> sums_by(const std::vector<traffic_row>& rows, const Name& name) {
  std::vector<traffic_row> sums;
  std::map<std::string, std::size_t> found;
  for (const traffic_row& each : rows) {
    const std::string key = name(each);
    if (const auto [at, is_new] = found.try_emplace(key, sums.size()); is_new) {
      sums.push_back({"", each.kind, each.pass, each.bytes, each.seconds});
    } else {
      sums[at->second] += each;
    }
  }
  return sums;
}

void print_row(const traffic_row& row, index_t images, double copy_rate, int name_width) {
  const auto mega = [](std::size_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  gradus::print_text(
      stdout, "%-*s %-18s %-8s %10.3f %10.3f %10.3f %6.2f %10.4f", name_width, row.layer.c_str(), row.kind.c_str(),
      row.pass.c_str(), mega(row.bytes.run.read), mega(row.bytes.run.written), mega(row.bytes.least.total()),
      static_cast<double>(row.bytes.run.total()) / std::max(1.0, static_cast<double>(row.bytes.least.total())),
      mega(row.bytes.run.total()) / static_cast<double>(images));
  if (row.seconds > 0) {
    gradus::print_text(stdout, " %9.3f %8.2f %6.0f", 1e3 * row.seconds, 1e-9 * row.per_second(),
                       100 * row.per_second() / copy_rate);
  }
  std::printf("\n");
}

traffic_row total_of(const traffic_table& table) {
  traffic_row total{"step", "all", "all", {}, 0};
  for (const traffic_row& each : table.rows) {
    total += each;
  }
  return total;
}

void print_table(const traffic_table& table, index_t images) {
  int name_width = 8;
  for (const traffic_row& each : table.rows) {
    name_width = std::max(name_width, static_cast<int>(each.layer.size()));
  }
  std::printf("%-*s %-18s %-8s %10s %10s %10s %6s %10s%s\n", name_width, "layer", "kind", "pass", "read MB",
              "written MB", "bound MB", "ratio", "MB/image", table.copy_rate > 0 ? "        ms     GB/s % copy" : "");
  for (const traffic_row& each : table.rows) {
    print_row(each, images, table.copy_rate, name_width);
  }
  std::printf("----------\n");
  for (const traffic_row& each :
       sums_by(table.rows, [](const traffic_row& row) { return row.kind + ", " + row.pass; })) {
    print_row(each, images, table.copy_rate, name_width);
  }
  std::printf("----------\n");
  for (traffic_row each : sums_by(table.rows, [](const traffic_row& row) { return row.pass; })) {
    each.kind = "all";
    print_row(each, images, table.copy_rate, name_width);
  }
  print_row(total_of(table), images, table.copy_rate, name_width);
  if (table.copy_rate > 0) {
    gradus::print_text(stdout, "copy:        %.2f GB/s read and written\n", 1e-9 * table.copy_rate);
  }
}

nlohmann::ordered_json json_of(const traffic_row& row) {
  nlohmann::ordered_json all{{"layer", row.layer},
                             {"kind", row.kind},
                             {"pass", row.pass},
                             {"read_bytes", row.bytes.run.read},
                             {"written_bytes", row.bytes.run.written},
                             {"least_read_bytes", row.bytes.least.read},
                             {"least_written_bytes", row.bytes.least.written}};
  if (row.seconds > 0) {
    all["ms"] = 1e3 * row.seconds;
    all["bytes_per_second"] = row.per_second();
  }
  return all;
}

std::string json_text(const settings& chosen, const traffic_table& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const traffic_row& each : table.rows) {
    rows.push_back(json_of(each));
  }
  const traffic_row total = total_of(table);
  const auto images = static_cast<double>(chosen.batch_size_per_rank);
  nlohmann::ordered_json all{{"model", chosen.model},
                             {"batch_size", chosen.batch_size_per_rank},
                             {"threads", chosen.threads},
                             {"precision", chosen.precision},
                             {"data_format", chosen.nhwc ? "NHWC" : "NCHW"},
                             {"optimizer", chosen.optimizer},
                             {"instruction_set", std::string{name_of(gradus::kernels::current_instruction_set())}},
                             {"memory_traffic", rows},
                             {"step", json_of(total)},
                             {"bytes_per_image", static_cast<double>(total.bytes.run.total()) / images},
                             {"least_bytes_per_image", static_cast<double>(total.bytes.least.total()) / images}};
  if (table.copy_rate > 0) {
    all["copy_bytes_per_second"] = table.copy_rate;
  }
  return all.dump(2) + '\n';
}

}  // namespace

void show_memory_traffic(const settings& given) {
  settings chosen = completed(given);
  chosen.threads = chosen.threads > 0 ? chosen.threads : gradus::available_processors();
  program::output_file json = open_output("--json", chosen.json, chosen);
  gradus::cpu device{{.intra_op_threads = chosen.threads, .flush_denormals = chosen.flush_denormals}};
  const traffic_table table = measure_traffic(chosen, device);
  std::printf("memory traffic of a step: %s, %td images, %s, %s, %s, %d threads, %s\n", chosen.model.c_str(),
              chosen.batch_size_per_rank, chosen.precision.c_str(), chosen.nhwc ? "NHWC" : "NCHW",
              chosen.optimizer.c_str(), chosen.threads,
              std::string{name_of(gradus::kernels::current_instruction_set())}.c_str());
  print_table(table, chosen.batch_size_per_rank);
  json.write(json_text(chosen, table));
}

}  // namespace driver
