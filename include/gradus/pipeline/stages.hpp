// SPDX-License-Identifier: BSL-1.0
//
// Cuts a network into the stages of a pipeline: the stages, their memory and what passes between them.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <limits>     // std::numeric_limits
#include <optional>   // std::optional
#include <queue>      // std::priority_queue
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"

namespace gradus::parallel {

/// A layer, for the decision where to cut. Times are seconds, or any other unit, of one micro-batch.
struct pipeline_layer {
  std::string name;                 ///< for messages and for cuts by name
  std::vector<std::size_t> inputs;  ///< values that it reads: 0 the network's input, i + 1 the output of layer i
  double forward = 0;               ///< time of forward
  double input_gradients = 0;       ///< time of the first half of backward
  double weight_gradients = 0;      ///< time of the second half of backward
  std::size_t state_bytes = 0;      ///< parameters, their gradients, the state of the update rule, buffers
  std::size_t stored_bytes = 0;     ///< what backward needs of a micro-batch
  std::size_t output_bytes = 0;     ///< the output for a micro-batch
  bool may_begin = true;            ///< a stage may begin with it
};

/// Options of cut_into_stages.
struct stage_options {
  std::size_t input_bytes = 0;  ///< the network's input for a micro-batch, where layers of later stages read it
  /// What a rank may hold, in bytes. Where a rank has several stages, each may take an equal part.
  std::size_t memory_limit = std::numeric_limits<std::size_t>::max();
  double transfer_latency = 0;                                      ///< time of the smallest transfer
  double bytes_per_time = std::numeric_limits<double>::infinity();  ///< rate of a transfer between two stages
  /// The longest stage may take this share more than the best cuts allow, for fewer bytes at the cuts.
  double tolerance = 0.02;
};

/// A stage of a pipeline: layers that follow each other.
struct pipeline_stage {
  std::size_t first = 0;                 ///< its first layer
  std::size_t end = 0;                   ///< the layer after its last one
  pipeline_costs costs;                  ///< its passes of one micro-batch, and the transfer to the next stage
  std::size_t state_bytes = 0;           ///< parameters, gradients, state of the update rule, buffers
  std::size_t stored_bytes = 0;          ///< of one micro-batch: what its backward needs, with the values it receives
  int stored = 0;                        ///< most micro-batches whose values it stores at a time
  std::size_t memory_bytes = 0;          ///< state_bytes + stored x stored_bytes
  std::vector<std::size_t> sent_values;  ///< what the next stage gets of a micro-batch; also values of earlier stages
  std::size_t sent_bytes = 0;            ///< of one micro-batch
};

/// A network cut into stages, with the step that follows from it.
struct pipeline_stages {
  std::vector<pipeline_stage> stages;  ///< in the order of the layers
  simulated_pipeline step;             ///< the schedule with the times of these stages

  /// The time of the step without any wait: all passes of all micro-batches, on one rank.
  [[nodiscard]] double serial_time(int micro_batches) const noexcept {
    double time = 0;
    for (const pipeline_stage& each : stages) {
      time += each.costs.of(pipeline_pass::forward) + each.costs.of(pipeline_pass::backward);
    }
    return time * micro_batches;
  }
};

namespace detail {

[[nodiscard]] inline double megabytes(std::size_t bytes) noexcept {
  return static_cast<double>(bytes) / 1e6;
}

/// Sums over neighbouring layers, and the bytes that pass between two of them.
class stage_sums {
 public:
  stage_sums(std::span<const pipeline_layer> layers, const stage_options& options)
      : times_(layers.size() + 1), state_(layers.size() + 1), stored_(layers.size() + 1), live_(layers.size() + 1) {
    std::vector<std::size_t> last(layers.size() + 1);  // the last layer that reads a value
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const pipeline_layer& each = layers[i];
      for (const double time : {each.forward, each.input_gradients, each.weight_gradients}) {
        if (!is_finite(time) || time < 0) {
          raise<configuration_error>({"cut_into_stages, layer '", each.name, "'"}, "times of at least 0", {time});
        }
      }
      times_[i + 1] = times_[i] + each.forward + each.input_gradients + each.weight_gradients;
      state_[i + 1] = state_[i] + each.state_bytes;
      stored_[i + 1] = stored_[i] + each.stored_bytes;
      for (const std::size_t value : each.inputs) {
        if (value > i) {
          raise<configuration_error>({"cut_into_stages, layer '", each.name, "'"},
                                     {"inputs among the values 0 to ", i, " of the layers before it"}, {value});
        }
        last[value] = i;
      }
    }
    // Value v exists before layer v, and passes every cut up to the last layer that reads it.
    std::vector<std::size_t> ended(layers.size() + 2);  // bytes of the values that no longer pass a cut
    for (std::size_t value = 0; value < layers.size(); ++value) {
      if (const std::size_t begin = std::max<std::size_t>(value, 1); begin <= last[value]) {
        const std::size_t bytes = value == 0 ? options.input_bytes : layers[value - 1].output_bytes;
        live_[begin] += bytes;
        ended[last[value] + 1] += bytes;
      }
    }
    for (std::size_t cut = 1; cut < live_.size(); ++cut) {
      live_[cut] += live_[cut - 1] - ended[cut];
    }
    last_ = std::move(last);
  }

  [[nodiscard]] double time(std::size_t first, std::size_t end) const noexcept { return times_[end] - times_[first]; }
  [[nodiscard]] std::size_t state(std::size_t first, std::size_t end) const noexcept {
    return state_[end] - state_[first];
  }
  /// Without the values that the stage receives.
  [[nodiscard]] std::size_t stored(std::size_t first, std::size_t end) const noexcept {
    return stored_[end] - stored_[first];
  }
  /// The bytes that pass from layer cut - 1 and those before it to layer cut and those behind it.
  [[nodiscard]] std::size_t live(std::size_t cut) const noexcept { return live_[cut]; }
  /// The values of live(cut).
  [[nodiscard]] std::vector<std::size_t> live_values(std::size_t cut) const {
    std::vector<std::size_t> values;
    for (std::size_t value = 0; value <= cut && cut < live_.size() - 1; ++value) {
      if (last_[value] >= cut) {
        values.push_back(value);
      }
    }
    return values;
  }

 private:
  std::vector<double> times_;
  std::vector<std::size_t> state_;
  std::vector<std::size_t> stored_;
  std::vector<std::size_t> live_;
  std::vector<std::size_t> last_;
};

/// Finds the cuts, by dynamic programming over the end of each stage.
class stage_cutter {
 public:
  stage_cutter(std::span<const pipeline_layer> layers, const pipeline_schedule& schedule, const stage_options& options)
      : layers_{layers},
        schedule_{schedule},
        options_{options},
        sums_{layers, options},
        stored_{simulate_schedule(schedule).stored} {
    if (!is_finite(options.tolerance) || options.tolerance < 0 || !is_finite(options.transfer_latency) ||
        options.transfer_latency < 0 || !(options.bytes_per_time > 0)) {
      raise<configuration_error>("cut_into_stages",
                                 "a tolerance and a latency of at least 0, and a rate of transfers above 0",
                                 {options.tolerance, ", ", options.transfer_latency, " and ", options.bytes_per_time});
    }
    if (layers.size() < stored_.size()) {
      raise<configuration_error>("cut_into_stages", {"at least as many layers as stages, ", stored_.size()},
                                 {layers.size()}, "choose fewer stages");
    }
  }

  /// The first layers of all stages but the first; nothing if no cuts keep within the limit of memory.
  [[nodiscard]] std::optional<std::vector<std::size_t>> find() {
    const double longest = shortest_longest();
    if (longest == infinite) {
      return {};
    }
    return fewest_bytes(longest * (1 + options_.tolerance));
  }

  /// The stages of given cuts.
  [[nodiscard]] pipeline_stages stages_of(const std::vector<std::size_t>& cuts) const {
    pipeline_stages result;
    std::vector<pipeline_costs> costs;
    for (std::size_t s = 0; s < stored_.size(); ++s) {
      pipeline_stage& stage = result.stages.emplace_back();
      stage.first = s == 0 ? 0 : cuts[s - 1];
      stage.end = s == cuts.size() ? layers_.size() : cuts[s];
      stage.costs = {0, 0, 0, s == cuts.size() ? 0.0 : transfer(stage.end)};
      for (std::size_t i = stage.first; i < stage.end; ++i) {
        stage.costs.forward += layers_[i].forward;
        stage.costs.input_gradients += layers_[i].input_gradients;
        stage.costs.weight_gradients += layers_[i].weight_gradients;
      }
      stage.state_bytes = sums_.state(stage.first, stage.end);
      stage.stored_bytes = sums_.stored(stage.first, stage.end) + (s == 0 ? 0 : sums_.live(stage.first));
      stage.stored = stored_[s];
      stage.memory_bytes = memory(s, stage.first, stage.end);
      stage.sent_values = sums_.live_values(stage.end);
      stage.sent_bytes = s == cuts.size() ? 0 : sums_.live(stage.end);
      costs.push_back(stage.costs);
    }
    result.step = simulate_schedule(schedule_, costs);
    return result;
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  static constexpr std::size_t unreachable = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] double transfer(std::size_t cut) const noexcept {
    return options_.transfer_latency + static_cast<double>(sums_.live(cut)) / options_.bytes_per_time;
  }
  [[nodiscard]] std::size_t memory(std::size_t stage, std::size_t first, std::size_t end) const noexcept {
    const std::size_t received = stage == 0 ? 0 : sums_.live(first);
    return sums_.state(first, end) + static_cast<std::size_t>(stored_[stage]) * (sums_.stored(first, end) + received);
  }
  [[nodiscard]] bool fits(std::size_t stage, std::size_t first, std::size_t end) const noexcept {
    const auto stages_of_rank = static_cast<std::size_t>(schedule_.stages() / schedule_.ranks());
    return memory(stage, first, end) <= options_.memory_limit / stages_of_rank;
  }

  /// Whether a stage fits a rank and takes at most `longest`. Then all stages in it that begin with the same layer do.
  [[nodiscard]] bool allowed(std::size_t stage, std::size_t first, std::size_t end, double longest) const noexcept {
    return sums_.time(first, end) <= longest && fits(stage, first, end);
  }

  /// The layer after the longest allowed stage that begins with layer `first`; `first` if there is none.
  [[nodiscard]] std::size_t longest_end(std::size_t stage, std::size_t first, double longest) const noexcept {
    std::size_t end = first;
    for (std::size_t beyond = layers_.size() + 1; end + 1 < beyond;) {
      const std::size_t middle = end + (beyond - end) / 2;
      (allowed(stage, first, middle, longest) ? end : beyond) = middle;
    }
    return end;
  }

  /// Whether the stages so far may end before layer `end`. @param last  they are all stages
  [[nodiscard]] bool may_end(std::size_t end, bool last, double longest) const noexcept {
    return last ? end == layers_.size() : end < layers_.size() && layers_[end].may_begin && transfer(end) <= longest;
  }

  /// Whether there are cuts whose stages and transfers take at most `longest`, and fit.
  [[nodiscard]] bool possible(double longest) const {
    std::vector<unsigned char> before(layers_.size() + 1);  // whether stages end there
    before[0] = 1;
    for (std::size_t s = 0; s < stored_.size(); ++s) {
      std::vector<unsigned char> reached(layers_.size() + 1);
      std::size_t farthest = 0;  // end of an allowed stage that begins with one of the layers so far
      for (std::size_t end = s + 1; end <= layers_.size(); ++end) {
        if (const std::size_t first = end - 1; before[first] != 0) {
          farthest = std::max(farthest, first);
          while (farthest < layers_.size() && allowed(s, first, farthest + 1, longest)) {
            ++farthest;
          }
        }
        reached[end] = end <= farthest && may_end(end, s + 1 == stored_.size(), longest) ? 1 : 0;
      }
      before = std::move(reached);
    }
    return before.back() != 0;
  }

  /// The time of the longest stage or transfer, the shortest that any cuts allow: the step cannot be shorter than
  /// micro_batches times that. Found by bisection, down to neighboring numbers.
  [[nodiscard]] double shortest_longest() const {
    double enough = sums_.time(0, layers_.size());
    for (std::size_t cut = 1; cut < layers_.size(); ++cut) {
      enough = std::max(enough, transfer(cut));
    }
    if (!possible(enough)) {
      return infinite;
    }
    double short_of = 0;
    if (possible(short_of)) {
      return short_of;
    }
    for (;;) {
      const double middle = short_of + (enough - short_of) / 2;
      if (middle <= short_of || middle >= enough) {
        return enough;
      }
      (possible(middle) ? enough : short_of) = middle;
    }
  }

  /// The cuts with the fewest bytes among those whose stages and transfers take at most `longest`.
  [[nodiscard]] std::vector<std::size_t> fewest_bytes(double longest) const {
    struct beginning {
      std::size_t bytes = 0;  // at the cuts so far
      std::size_t first = 0;
      std::size_t end = 0;  // the farthest end of a stage that begins there

      /// Of the one to take: the fewest bytes, and among equal ones the last.
      bool operator<(const beginning& other) const noexcept {
        return bytes != other.bytes ? bytes > other.bytes : first < other.first;
      }
    };
    const std::size_t count = layers_.size() + 1;
    std::vector<std::size_t> before(count, unreachable);
    before[0] = 0;
    std::vector<std::vector<std::size_t>> firsts;  // of the last stage so far, by the layer after it
    for (std::size_t s = 0; s < stored_.size(); ++s) {
      std::vector<std::size_t> best(count, unreachable);
      std::vector<std::size_t>& from = firsts.emplace_back(count);
      std::priority_queue<beginning> open;
      for (std::size_t end = s + 1; end < count; ++end) {
        if (const std::size_t first = end - 1; before[first] != unreachable) {
          open.push({before[first], first, longest_end(s, first, longest)});
        }
        while (!open.empty() && open.top().end < end) {
          open.pop();
        }
        const bool last = s + 1 == stored_.size();
        if (!open.empty() && may_end(end, last, longest)) {
          best[end] = open.top().bytes + (last ? 0 : sums_.live(end));
          from[end] = open.top().first;
        }
      }
      before = std::move(best);
    }
    std::vector<std::size_t> cuts(stored_.size() - 1);
    std::size_t end = layers_.size();
    for (std::size_t s = stored_.size(); s-- > 1;) {
      end = firsts[s][end];
      cuts[s - 1] = end;
    }
    return cuts;
  }

  std::span<const pipeline_layer> layers_;
  const pipeline_schedule& schedule_;
  const stage_options& options_;
  stage_sums sums_;
  std::vector<int> stored_;  // micro-batches, by stage
};

}  // namespace detail

/// Cuts a network into the stages of a schedule, at layers that may begin one. Among all cuts that keep each rank
/// within the limit of memory, the longest stage (or transfer between two stages, if that takes longer) is the shortest
/// there is, within the tolerance, and the bytes at the cuts are the fewest. A value that skips stages passes through
/// all of them, and counts at every cut. Takes time in proportion to the numbers of stages and of layers.
/// @throws configuration_error when a time is negative, a layer reads a value of a later one, there are fewer layers
///         than stages, or no cuts keep within the limit of memory
inline pipeline_stages cut_into_stages(std::span<const pipeline_layer> layers, const pipeline_schedule& schedule,
                                       const stage_options& options = {}) {
  detail::stage_cutter cutter{layers, schedule, options};
  const auto cuts = cutter.find();
  if (!cuts) {
    raise<configuration_error>("cut_into_stages",
                               {"cuts with which every rank keeps within ", options.memory_limit, " bytes (stages: ",
                                schedule.stages(), ", micro-batches: ", schedule.micro_batches(), ")"},
                               {"a network that needs more wherever it is cut"},
                               "choose more stages, smaller micro-batches or a larger memory_limit");
  }
  return cutter.stages_of(*cuts);
}

/// Cuts a network before the layers of the given names, in the order of the network.
/// @param names  the first layers of all stages but the first
/// @throws configuration_error as cut_into_stages, and when a name is not there, or there are not stages() - 1 names in
///         the order of the layers; memory_limit is not looked at
inline pipeline_stages cut_at(std::span<const pipeline_layer> layers, const pipeline_schedule& schedule,
                              std::span<const std::string> names, const stage_options& options = {}) {
  const detail::stage_cutter cutter{layers, schedule, options};
  if (names.size() + 1 != static_cast<std::size_t>(schedule.stages())) {
    raise<configuration_error>(
        "cut_at", {schedule.stages() - 1, " names, the first layers of all stages but the first"}, {names.size()});
  }
  std::vector<std::size_t> cuts;
  for (const std::string& name : names) {
    std::size_t layer = 0;
    while (layer < layers.size() && layers[layer].name != name) {
      ++layer;
    }
    if (layer == layers.size()) {
      raise<configuration_error>("cut_at", "names of layers", {"'", printable(name), "'"});
    }
    if (!layers[layer].may_begin) {
      raise<configuration_error>("cut_at", "names of layers with which a stage may begin",
                                 {"'", name, "', which overwrites the output of a layer before it"},
                                 "cut before that layer");
    }
    if (layer <= (cuts.empty() ? 0 : cuts.back())) {
      raise<configuration_error>("cut_at", "names in the order of the layers, none of them the first layer",
                                 {"'", name, "', which is layer ", layer, " of the network"});
    }
    cuts.push_back(layer);
  }
  return cutter.stages_of(cuts);
}

/// The fewest stages, one a rank, that keep within the limit of memory.
/// @param schedule_of  the schedule of a number of stages
/// @param most         the largest number that is tried
/// @return             the stages, or nothing if even `most` stages need more
/// @throws configuration_error as cut_into_stages
template <class ScheduleOf>
std::optional<pipeline_stages> fewest_stages(std::span<const pipeline_layer> layers, ScheduleOf&& schedule_of,
                                             const stage_options& options, int most = 256) {
  for (int stages = 1; stages <= most && static_cast<std::size_t>(stages) <= layers.size(); ++stages) {
    const pipeline_schedule schedule = schedule_of(stages);
    detail::stage_cutter cutter{layers, schedule, options};
    if (const auto cuts = cutter.find()) {
      return cutter.stages_of(*cuts);
    }
  }
  return {};
}

/// For people: a line for each stage with its layers, its share of the time, its memory and what it sends, then the
/// waits.
inline std::string stages_text(std::span<const pipeline_layer> layers, const pipeline_stages& cut) {
  std::string text;
  const auto append_number = [&](double number, const char* unit) {
    char digits[40];
    format_text(digits, sizeof(digits), number < 10 ? "%.2f%s" : "%.1f%s", number, unit);
    text += digits;
  };
  const double all = cut.serial_time(1);
  for (std::size_t s = 0; s < cut.stages.size(); ++s) {
    const pipeline_stage& each = cut.stages[s];
    const std::size_t count = each.end - each.first;
    const double time = each.costs.of(pipeline_pass::forward) + each.costs.of(pipeline_pass::backward);
    append_text(text, {"stage ", s, ": '", layers[each.first].name, "' to '", layers[each.end - 1].name, "' (", count,
                       count == 1 ? " layer), " : " layers), "});
    append_number(all > 0 ? 100 * time / all : 0.0, " % of the time, ");
    append_number(detail::megabytes(each.memory_bytes), " MB: ");
    append_number(detail::megabytes(each.state_bytes), " MB of state and ");
    append_text(text, {each.stored, each.stored == 1 ? " micro-batch of " : " micro-batches of "});
    append_number(detail::megabytes(each.stored_bytes), " MB");
    if (s + 1 < cut.stages.size()) {
      text += ", sends ";
      append_number(detail::megabytes(each.sent_bytes), " MB");
    }
    text += '\n';
  }
  text += "ranks wait for ";
  append_number(100 * cut.step.bubble, " % of a step\n");
  return text;
}

}  // namespace gradus::parallel
