// SPDX-License-Identifier: BSL-1.0
//
// Layers that run in parallel: which ones may, and how the streams of a device run them.
#pragma once

#include <algorithm>  // std::fill, std::max, std::max_element, std::min, std::min_element
#include <atomic>     // std::atomic
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint32_t
#include <memory>     // std::make_shared, std::shared_ptr
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/device/thread_pool.hpp"
#include "gradus/nn/detail/network/region_runner.hpp"
#include "gradus/nn/plan/execution_plan.hpp"

namespace gradus::nn {

namespace detail {

/// Finds the regions of a plan whose branches are worth running in parallel; see stream_schedule.
class stream_planner {
 public:
  /// @param gradient_of  for each slot: the slot whose gradient memory it uses
  stream_planner(const graph_description& graph, const execution_plan& plan, std::span<const std::size_t> gradient_of,
                 std::size_t streams);

  stream_schedule build();

 private:
  /// Step `from` must come before another one. If `data` is false, only the order of their writes matters.
  struct edge {
    std::size_t from = 0;
    bool data = false;
  };

  /// A step's access to the memory of a value or gradient.
  struct access {
    std::size_t time = 0;
    bool write = false;
    std::size_t previous = 0;  // the access before this one to the same memory
  };

  [[nodiscard]] bool runs(std::size_t time) const {
    return time < count_ ? plan_.nodes[time].forward : time > count_ && plan_.nodes[2 * count_ - time].backward;
  }

  // Memory has indices: values in the forward pass, values in the backward pass, gradients.
  [[nodiscard]] std::size_t value(std::size_t v, bool backward) const {
    return plan_.slot_of_value[v] + (backward ? plan_.slots.size() : 0);
  }
  [[nodiscard]] std::size_t gradient(std::size_t v) const {
    return 2 * plan_.slots.size() + gradient_of_[plan_.slot_of_value[v]];
  }

  void add(std::size_t time, std::size_t memory, bool write);

  void add_reads(std::size_t time, std::size_t node, bool backward);

  void add_forward(std::size_t time) {
    add_reads(time, time, false);
    add(time, value(time + 1, false), true);
  }

  void add_backward(std::size_t time);

  [[nodiscard]] std::size_t branch_of(std::size_t time) const {
    while (branch_[time] != time) {
      time = branch_[time];
    }
    return time;
  }

  /// Joins two branches under the earlier of their first steps. Returns true if they were different.
  bool join(std::size_t a, std::size_t b) {
    a = branch_of(a);
    b = branch_of(b);
    branch_[std::max(a, b)] = std::min(a, b);
    return a != b;
  }

  /// Finds regions in [first, end). A region ends at the step that joins several branches into one.
  void find_regions(std::size_t first, std::size_t end);

  /// Puts the branches of [first, end) into the schedule if running them in parallel is worth it; returns whether it
  /// is.
  bool take_region(std::size_t first, std::size_t end);

  const graph_description& graph_;
  const execution_plan& plan_;
  std::span<const std::size_t> gradient_of_;
  std::size_t count_;
  stream_schedule schedule_;
  dynamic_array<double> busy_;              // work of each stream
  dynamic_array<access> accesses_;          // in the order of time
  dynamic_array<std::size_t> last_access_;  // of each memory
  dynamic_array<edge> edges_;               // in the order of the later step
  dynamic_array<std::size_t> first_edge_;   // index of the first edge to each step
  dynamic_array<std::size_t> branch_;       // for each step in a region: an earlier one of its branch, or itself
};

inline stream_schedule plan_streams(const graph_description& graph, const execution_plan& plan,
                                    std::span<const std::size_t> gradient_of, std::size_t streams) {
  return stream_planner{graph, plan, gradient_of, streams}.build();
}

/// Runs the branches of a region. Streams take branches in order, and a step waits only for steps of branches that were
/// taken before it, so every wait ends for any number of threads.
class stream_runner final : public region_runner {
 public:
  explicit stream_runner(const execution_plan& plan);

 private:
  void run(const stream_schedule::region& region, pass_steps& steps);

  void take_branches(std::size_t stream);

  void run_step(const stream_schedule::step& step, std::size_t stream);

  void finish(std::size_t time) noexcept {
    done_[time].store(round_, std::memory_order_release);
    done_[time].notify_all();
  }

  const execution_plan& plan_;
  dynamic_array<std::atomic<std::uint32_t>> done_;  // for each step: the last round in which it ran
  std::uint32_t round_ = 0;
  const stream_schedule::region* region_ = nullptr;
  pass_steps* steps_ = nullptr;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
};

[[nodiscard]] inline std::shared_ptr<region_runner> make_stream_runner(const execution_plan& plan) {
  return std::make_shared<stream_runner>(plan);
}

}  // namespace detail

/// The option to run independent branches of a network, such as those of an Inception module, in parallel on the
/// streams of the device (cpu_options::inter_op_threads): true or false. Has no effect without streams.
///
/// Only programs that set the option compile the code that plans and runs branches.
struct branch_parallelism {
  branch_parallelism() = default;
  /// True: branches run in parallel.
  branch_parallelism(bool wanted) noexcept
      : plan{wanted ? &detail::plan_streams : nullptr}, make_runner{wanted ? &detail::make_stream_runner : nullptr} {}

  stream_rule plan = nullptr;  ///< null: layers run one after another
  /// Makes the object that runs the regions; null: layers run one after another.
  std::shared_ptr<detail::region_runner> (*make_runner)(const execution_plan& plan) = nullptr;
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE_CONSTRUCTOR stream_planner::stream_planner(const graph_description& graph, const execution_plan& plan,
                                                         std::span<const std::size_t> gradient_of, std::size_t streams)
    : graph_{graph},
      plan_{plan},
      gradient_of_{gradient_of},
      count_{graph.nodes.size()},
      busy_(streams),
      last_access_(3 * plan.slots.size(), execution_plan::none),
      first_edge_(2 * count_ + 2),
      branch_(2 * count_ + 1) {}

GRADUS_INLINE stream_schedule stream_planner::build() {
  for (std::size_t time = 0; time <= 2 * count_; ++time) {
    first_edge_[time] = edges_.size();
    if (runs(time)) {
      time < count_ ? add_forward(time) : add_backward(time);
    }
  }
  first_edge_.back() = edges_.size();
  find_regions(0, count_);
  find_regions(count_ + 1, 2 * count_ + 1);
  schedule_.branches.push_back(schedule_.steps.size());
  return std::move(schedule_);
}

GRADUS_INLINE void stream_planner::add(std::size_t time, std::size_t memory, bool write) {
  // A recomputed value is written by its first reader, so even reads must be ordered.
  const bool again = memory >= plan_.slots.size() && memory < 2 * plan_.slots.size();
  for (std::size_t a = last_access_[memory]; a != execution_plan::none; a = accesses_[a].previous) {
    if (accesses_[a].time != time && (write || accesses_[a].write)) {
      edges_.push_back({accesses_[a].time, accesses_[a].write && !write && !again});
    }
  }
  accesses_.push_back({time, write, last_access_[memory]});
  last_access_[memory] = accesses_.size() - 1;
}

GRADUS_INLINE void stream_planner::add_reads(std::size_t time, std::size_t node, bool backward) {
  for (const std::size_t v : graph_.nodes[node].inputs) {
    add(time, value(v, backward), false);
  }
  if (plan_.nodes[node].residual != execution_plan::none) {
    add(time, value(plan_.nodes[node].residual, backward), false);
  }
}

GRADUS_INLINE void stream_planner::add_backward(std::size_t time) {
  const std::size_t i = 2 * count_ - time;
  const execution_plan::node& node = plan_.nodes[i];
  for (std::size_t k = node.recompute_first; k < node.recompute_first + node.recompute_count; ++k) {
    add_reads(time, plan_.recomputed[k], true);
    add(time, value(plan_.recomputed[k] + 1, true), true);
  }
  add_reads(time, i, true);
  add(time, value(i + 1, true), false);
  add(time, gradient(i + 1), false);
  const auto writes = [&, this](const execution_plan::gradient_target& target, std::size_t v) {
    if (target.write != execution_plan::duty::none || target.mask != execution_plan::duty::none) {
      add(time, gradient(v), true);
    }
  };
  for (std::size_t k = 0; k < node.targets.size(); ++k) {
    writes(node.targets[k], graph_.nodes[i].inputs[k]);
  }
  if (node.residual != execution_plan::none) {
    writes(node.residual_target, node.residual);
  }
}

GRADUS_INLINE void stream_planner::find_regions(std::size_t first, std::size_t end) {
  while (first < end) {
    std::size_t branches = 0;
    std::size_t most = 0;
    std::size_t time = first;
    for (; time < end; ++time) {
      branch_[time] = time;
      if (!runs(time)) {
        continue;
      }
      ++branches;
      for (std::size_t e = first_edge_[time]; e < first_edge_[time + 1]; ++e) {
        if (edges_[e].data && edges_[e].from >= first && join(edges_[e].from, time)) {
          --branches;
        }
      }
      if (branches == 1 && most > 1) {
        break;
      }
      most = std::max(most, branches);
    }
    first = most > 1 && take_region(first, time) ? time : first + 1;
  }
}

GRADUS_INLINE bool stream_planner::take_region(std::size_t first, std::size_t end) {
  for (std::size_t time = first; time < end; ++time) {
    branch_[time] = time;
  }
  // A branch waits only for earlier branches: branches that would wait for a later one are joined.
  for (bool again = true; again;) {
    again = false;
    for (std::size_t time = first; time < end; ++time) {
      for (std::size_t e = first_edge_[time]; e < first_edge_[time + 1] && runs(time); ++e) {
        const std::size_t from = edges_[e].from;
        if (from >= first && (edges_[e].data || branch_of(from) > branch_of(time))) {
          again = join(from, time) || again;
        }
      }
    }
  }
  std::fill(busy_.begin(), busy_.end(), 0.0);
  double all = 0;
  for (std::size_t head = first; head < end; ++head) {
    double work = 0;
    for (std::size_t time = head; time < end; ++time) {
      if (runs(time) && branch_of(time) == head) {
        work += time < count_ ? graph_.nodes[time].work : 2 * graph_.nodes[2 * count_ - time].work;
      }
    }
    *std::min_element(busy_.begin(), busy_.end()) += work;  // the first free stream takes the next branch
    all += work;
  }
  // An operation that runs by itself uses the threads of all streams. Separate streams use them slightly better.
  if (*std::max_element(busy_.begin(), busy_.end()) > 0.75 * all) {
    return false;
  }
  stream_schedule::region region{.first_time = first, .last_time = end - 1};
  region.first_branch = schedule_.branches.size();
  for (std::size_t head = first; head < end; ++head) {
    if (!runs(head) || branch_of(head) != head) {
      continue;
    }
    ++region.branches;
    schedule_.branches.push_back(schedule_.steps.size());
    for (std::size_t time = head; time < end; ++time) {
      if (runs(time) && branch_of(time) == head) {
        schedule_.steps.push_back({.time = time, .first_wait = schedule_.waits.size()});
        for (std::size_t e = first_edge_[time]; e < first_edge_[time + 1]; ++e) {
          if (edges_[e].from >= first && branch_of(edges_[e].from) != head) {
            schedule_.waits.push_back(edges_[e].from);
            ++schedule_.steps.back().waits;
          }
        }
      }
    }
  }
  schedule_.regions.push_back(region);
  return true;
}

GRADUS_INLINE_CONSTRUCTOR stream_runner::stream_runner(const execution_plan& plan)
    : region_runner{[](region_runner& self, const stream_schedule::region& region, pass_steps& steps) {
        static_cast<stream_runner&>(self).run(region, steps);
      }},
      plan_{plan},
      done_(2 * plan.nodes.size() + 1) {}

GRADUS_INLINE void stream_runner::run(const stream_schedule::region& region, pass_steps& steps) {
  ++round_;
  region_ = &region;
  steps_ = &steps;
  next_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  steps.on_all_streams([](void* self, std::size_t stream) { static_cast<stream_runner*>(self)->take_branches(stream); },
                       this);
}

GRADUS_INLINE void stream_runner::take_branches(std::size_t stream) {
  for (;;) {
    const std::size_t branch = next_.fetch_add(1, std::memory_order_relaxed);
    if (branch >= region_->branches || failed_.load(std::memory_order_relaxed)) {
      return;
    }
    const std::size_t* const begins = plan_.streams.branches.data() + region_->first_branch + branch;
    std::size_t step = begins[0];
    try {
      for (; step < begins[1]; ++step) {
        run_step(plan_.streams.steps[step], stream);
      }
    } catch (...) {
      failed_.store(true, std::memory_order_release);
      for (; step < begins[1]; ++step) {  // so that no other step waits for ever
        finish(plan_.streams.steps[step].time);
      }
      throw;
    }
  }
}

GRADUS_INLINE void stream_runner::run_step(const stream_schedule::step& step, std::size_t stream) {
  for (std::size_t w = step.first_wait; w < step.first_wait + step.waits; ++w) {
    spin_then_sleep(done_[plan_.streams.waits[w]], [&, this](std::uint32_t seen) { return seen == round_; });
  }
  if (!failed_.load(std::memory_order_acquire)) {
    const std::size_t count = plan_.nodes.size();
    steps_->run(step.time < count ? step.time : 2 * count - step.time, stream);
  }
  finish(step.time);
}

}  // namespace gradus::nn::detail
#endif
