// SPDX-License-Identifier: BSL-1.0
//
// Runs the messages of pipelines without computing: each stage's memory has versions in place of numbers, and each pass
// must find the versions that it would find in one process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/stage_plan.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "pipeline/layer_accesses.hpp"
#include "reference/random_graphs.hpp"

namespace gradus_test {

/// What a pipeline does wrong.
class pipeline_mistake : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The memory of one stage in units of memory_plan::alignment, which all offsets are multiples of.
class simulated_memory {
 public:
  /// What a unit has.
  using content = std::uint64_t;
  static constexpr content nothing = 0;   ///< never written
  static constexpr content arriving = 1;  ///< a message may write it at any time
  static constexpr content mixed = 2;     ///< not one content

  /// Consecutive units.
  struct range {
    std::size_t first = 0;
    std::size_t count = 0;
  };

  explicit simulated_memory(std::size_t bytes) : contents_(units_of(bytes)), sends_(contents_.size()) {}

  [[nodiscard]] static std::size_t units_of(std::size_t bytes) {
    constexpr std::size_t alignment = gradus::nn::memory_plan::alignment;
    return (bytes + alignment - 1) / alignment;
  }
  [[nodiscard]] bool has(const range& units) const { return units.first + units.count <= contents_.size(); }

  [[nodiscard]] content of(const range& units) const {
    const content result = contents_[units.first];
    for (std::size_t k = 1; k < units.count; ++k) {
      if (contents_[units.first + k] != result) {
        return mixed;
      }
    }
    return result;
  }
  /// @return whether no message uses the memory
  [[nodiscard]] bool write(const range& units, content what) {
    bool free = true;
    for (std::size_t k = units.first; k < units.first + units.count; ++k) {
      free = free && sends_[k] == 0 && contents_[k] != arriving;
      contents_[k] = what;
    }
    return free;
  }
  /// The message has arrived.
  void arrive(const range& units, content what) {
    std::fill_n(contents_.begin() + static_cast<std::ptrdiff_t>(units.first), units.count, what);
  }
  void count_sends(const range& units, int change) {
    for (std::size_t k = units.first; k < units.first + units.count; ++k) {
      sends_[k] += change;
    }
  }
  [[nodiscard]] bool is_sent(const range& units) const {
    const auto first = sends_.begin() + static_cast<std::ptrdiff_t>(units.first);
    return std::any_of(first, first + static_cast<std::ptrdiff_t>(units.count), [](int count) { return count != 0; });
  }

 private:
  std::vector<content> contents_;
  std::vector<int> sends_;  // messages that read each unit
};

/// One step of a pipeline, training or evaluation.
struct checked_step {
  const gradus::parallel::pipeline_schedule* schedule = nullptr;  ///< null: an evaluation
  int micro_batches = 1;
};

/// The stages of all ranks, and the messages between them.
///
/// Ranks run in a random order. A message is received at any time between the beginning of its receive and the end of
/// the wait for it, and is read at any time between the beginning of its send and the end of the wait for that. A send
/// ends with its receive, as where a communicator has no buffers; or at once, where it has.
class message_checker {
  using plan_type = gradus::nn::execution_plan;
  using stage_plan = gradus::nn::stage_plan;
  using transfer_type = gradus::nn::stage_transfer;
  using pass_kind = gradus::parallel::pipeline_pass;
  using content = simulated_memory::content;
  using range = simulated_memory::range;
  using kind = memory_name::kind;

 public:
  /// @param plans    of all stages, stage s on rank s mod ranks
  /// @param depths   those with which they were made
  message_checker(const gradus::nn::graph_description& graph, const plan_type& whole,
                  const std::vector<stage_plan>& plans, const std::vector<gradus::nn::stage_depth>& depths, int ranks,
                  draws& draw)
      : graph_{graph}, whole_{whole}, accesses_{graph, whole}, ranks_(static_cast<std::size_t>(ranks)), draw_{draw} {
    bytes_of_slot_.resize(whole.slots.size());
    bytes_of_slot_[0] = graph.input_bytes;
    for (std::size_t i = 0; i < whole.nodes.size(); ++i) {
      std::size_t& bytes = bytes_of_slot_[whole.slot_of_value[i + 1]];
      bytes = std::max(bytes, graph.nodes[i].output_bytes);
    }
    for (std::size_t s = 0; s < plans.size(); ++s) {
      stages_.emplace_back(s, plans[s], depths[s]);
      check_regions(stages_.back());
    }
    has_buffers_ = draw.chance(30);
  }

  /// Runs steps one after another; ranks do not wait for each other between them.
  /// @throws pipeline_mistake
  void run(const std::vector<checked_step>& steps) {
    for (std::size_t number = 0; number < steps.size(); ++number) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        steps[number].schedule != nullptr ? add_training(r, steps[number], number)
                                          : add_evaluation(r, steps[number], number);
      }
    }
    std::vector<std::size_t> running(ranks_.size());
    for (std::size_t r = 0; r < running.size(); ++r) {
      running[r] = r;
    }
    std::size_t blocked = 0;
    while (!running.empty()) {
      const std::size_t k = static_cast<std::size_t>(draw_.between(0, static_cast<index_t>(running.size()) - 1));
      rank& each = ranks_[running[k]];
      bool moved = false;
      // A rank runs on for a while, so that some are far ahead of others.
      for (index_t turns = draw_.one_of({1, 5, 50}); turns > 0 && each.next < each.program.size(); --turns) {
        if (!each.program[each.next]()) {
          break;
        }
        ++each.next;
        moved = true;
      }
      if (each.next == each.program.size()) {
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(k));
      }
      blocked = moved ? 0 : blocked + 1;
      if (blocked > ranks_.size() && no_rank_moves(running)) {
        throw pipeline_mistake("ranks wait for each other: " + waiting(running));
      }
    }
    for (const auto& [key, queue] : unmatched_) {
      if (!queue.sends.empty() || !queue.receives.empty()) {
        throw pipeline_mistake("a message without its other end, tag " + std::to_string(std::get<2>(key)));
      }
    }
    for (const stage& each : stages_) {
      for (const auto& [name, used] : each.received) {
        if (!used) {
          throw pipeline_mistake(text(each) + "nothing reads " + text(name) + ", which it receives");
        }
      }
    }
  }

  /// The most micro-batches that a stage had under way.
  [[nodiscard]] int most_stored(std::size_t of_stage) const { return stages_[of_stage].most_stored; }

 private:
  /// One end of a message.
  struct message_end {
    bool done = false;  // waited for
    bool matched = false;
    bool sends = false;
    std::size_t stage = 0;
    memory_name name;
    int micro_batch = 0;
    range units;
    bool in_arena = true;  // false: the batch
    content what = simulated_memory::nothing;
  };
  using message = std::shared_ptr<message_end>;
  using message_table = std::vector<std::vector<message>>;  // of each transfer and micro-batch; null: none

  struct stage {
    stage(std::size_t which, const stage_plan& planned, const gradus::nn::stage_depth& with)
        : number{which}, plan{&planned}, depth{with}, memory{planned.plan.arena_bytes} {}

    std::size_t number;
    const stage_plan* plan;
    gradus::nn::stage_depth depth;
    simulated_memory memory;
    message_table values_in, values_out, gradients_in, gradients_out;
    std::map<memory_name, bool> received;  // whether a pass has read it since
    std::vector<int> gradients_of;         // of each layer's parameters: the next micro-batch
    int next_values = 0;
    int next_gradients = 0;
    int forwards = 0;
    int backward = 0;
    int done = 0;
    int most_stored = 0;
    std::size_t step = 0;
    int count = 0;  // micro-batches of the step
  };

  struct rank {
    std::vector<std::function<bool()>> program;  // each returns whether it is done
    std::size_t next = 0;
  };

  struct ends {
    std::deque<message> sends;
    std::deque<message> receives;
  };

  // ---- memory

  /// Copies of regions do not overlap.
  void check_regions(const stage& own) const {
    std::size_t end = 0;
    for (const auto& region : own.plan->regions) {
      if (region.begin < end || region.copies == 0) {
        throw pipeline_mistake(text(own) + "regions overlap");
      }
      end = region.begin + region.copies * region.bytes;
    }
    if (end > own.plan->plan.arena_bytes) {
      throw pipeline_mistake(text(own) + "an arena that is too small");
    }
  }

  [[nodiscard]] std::size_t bytes_of(const memory_name& name) const {
    return name.what == kind::state ? graph_.nodes[name.of].state_bytes : bytes_of_slot_[name.of];
  }

  /// Where a stage has a memory for a micro-batch.
  [[nodiscard]] range units_of(const stage& own, const memory_name& name, int m, bool forward) const {
    const plan_type& plan = own.plan->plan;
    const std::size_t offset = name.what == kind::state      ? plan.nodes[name.of].state_offset
                               : name.what == kind::gradient ? plan.slots[name.of].gradient_offset
                               : forward                     ? plan.slots[name.of].value_offset
                                                             : plan.slots[name.of].backward_offset;
    if (offset == plan_type::none) {
      throw pipeline_mistake(text(own) + "no memory for " + text(name));
    }
    const std::size_t bytes = bytes_of(name);
    for (const auto& region : own.plan->regions) {
      if (offset >= region.begin && offset + bytes <= region.begin + region.bytes) {
        const std::size_t at = offset + static_cast<std::size_t>(m) % region.copies * region.bytes;
        const range units{at / gradus::nn::memory_plan::alignment, simulated_memory::units_of(bytes)};
        if (at % gradus::nn::memory_plan::alignment != 0 || !own.memory.has(units)) {
          break;
        }
        return units;
      }
    }
    throw pipeline_mistake(text(own) + text(name) + " is not in a region");
  }

  /// The images, of which the first stage has no copy.
  [[nodiscard]] static bool is_batch(const stage& own, const memory_name& name) {
    return own.number == 0 && name == memory_name{kind::value, 0};
  }

  [[nodiscard]] static content content_of(const stage& own, const memory_name& name, int m, std::uint32_t version) {
    const content which = 3 * name.of + static_cast<content>(name.what);
    return (((which << 14U | version) << 12U | static_cast<content>(m)) << 8U | own.step) << 2U | 3U;
  }

  void require(const stage& own, const memory_access& access, int m, bool forward) {
    if (is_batch(own, access.memory)) {
      return;
    }
    const content have = own.memory.of(units_of(own, access.memory, m, forward));
    if (have != content_of(own, access.memory, m, access.version)) {
      throw pipeline_mistake(text(own) + "micro-batch " + std::to_string(m) + " reads " + text(access.memory) +
                             (have == simulated_memory::nothing    ? ", which is not there"
                              : have == simulated_memory::arriving ? ", which a message may be writing"
                                                                   : ", where other data is"));
    }
  }

  void run_group(stage& own, const access_group& group, int m, bool forward) {
    for (const memory_access& each : group) {
      if (!each.writes) {
        require(own, each, m, forward);
        if (const auto found = own.received.find(each.memory); found != own.received.end()) {
          found->second = true;
        }
      }
    }
    for (const memory_access& each : group) {
      if (each.writes &&
          !own.memory.write(units_of(own, each.memory, m, forward), content_of(own, each.memory, m, each.version))) {
        throw pipeline_mistake(text(own) + "micro-batch " + std::to_string(m) + " writes " + text(each.memory) +
                               ", which a message uses");
      }
    }
    // All of it is there: what is written at the same time is elsewhere.
    for (const memory_access& each : group) {
      const memory_access* last = &each;
      for (const memory_access& other : group) {
        last = other.writes && other.memory == each.memory ? &other : last;
      }
      require(own, *last, m, forward);
    }
  }

  // ---- passes

  void run_forward(stage& own, int m) {
    for (std::size_t i = own.plan->first; i < own.plan->end; ++i) {
      for (const access_group& group : accesses_.forward(i)) {
        run_group(own, group, m, true);
      }
    }
    own.most_stored = std::max(own.most_stored, ++own.forwards - own.done);
  }

  [[nodiscard]] bool is_last(const stage& own) const { return own.plan->end == graph_.nodes.size(); }

  void run_backward(stage& own, int m, bool whole) {
    if (is_last(own)) {
      for (const access_group& group : accesses_.loss()) {
        run_group(own, group, m, true);
      }
    }
    const plan_type& plan = own.plan->plan;
    for (std::size_t i = own.plan->end; i-- > own.plan->first;) {
      if (!plan.nodes[i].backward) {
        continue;
      }
      for (std::size_t k = 0; k < plan.nodes[i].recompute_count; ++k) {
        run_again(own, plan.recomputed[plan.nodes[i].recompute_first + k], m);
      }
      for (const access_group& group : accesses_.backward(i)) {
        run_group(own, group, m, false);
      }
      if (whole || own.plan->later_weights[i] == 0) {
        add_gradients(own, i, m);
      }
    }
  }
  /// A forward pass in backward: it repeats its output from its state.
  void run_again(stage& own, std::size_t i, int m) {
    if (i < own.plan->first || i >= own.plan->end) {
      throw pipeline_mistake(text(own) + "recomputes layer " + std::to_string(i));
    }
    for (access_group group : accesses_.forward(i)) {
      for (memory_access& each : group) {
        each.writes = each.writes && each.memory.what != kind::state;
      }
      run_group(own, group, m, false);
    }
  }
  void run_weights(stage& own, int m) {
    for (std::size_t i = own.plan->end; i-- > own.plan->first;) {
      if (own.plan->later_weights[i] != 0) {
        run_group(own, accesses_.weights(i), m, false);
        add_gradients(own, i, m);
      }
    }
  }
  /// The gradients of parameters are added in the order of micro-batches.
  void add_gradients(stage& own, std::size_t layer, int m) {
    if (own.gradients_of[layer]++ != m) {
      throw pipeline_mistake(text(own) + "gradients of layer " + std::to_string(layer) + " in another order");
    }
  }
  void require_gradients(const stage& own) const {
    for (std::size_t i = own.plan->first; i < own.plan->end; ++i) {
      if (own.gradients_of[i] != (whole_.nodes[i].backward ? own.count : 0)) {
        throw pipeline_mistake(text(own) + "not all gradients of layer " + std::to_string(i));
      }
    }
  }

  // ---- messages

  [[nodiscard]] std::size_t rank_of(std::size_t stage_number) const { return stage_number % ranks_.size(); }
  [[nodiscard]] bool same_rank(const stage& own, const transfer_type& transfer) const {
    return rank_of(own.number) == rank_of(transfer.peer);
  }
  [[nodiscard]] memory_name name_of(const transfer_type& transfer, bool values) const {
    return values ? memory_name{kind::value, transfer.slot}
                  : memory_name{kind::gradient, whole_.slots[transfer.slot].gradient_of};
  }

  void post(message& handle, stage& own, const transfer_type& transfer, int m, bool values, bool sends) {
    handle = std::make_shared<message_end>();
    message_end& end = *handle;
    end.sends = sends;
    end.stage = own.number;
    end.name = name_of(transfer, values);
    end.micro_batch = m;
    end.in_arena = !is_batch(own, end.name);
    if (end.in_arena) {
      end.units = units_of(own, end.name, m, true);
    }
    if (sends) {
      end.what = end.in_arena ? own.memory.of(end.units) : content_of(own, end.name, m, 0);
      if (end.what <= simulated_memory::mixed) {
        throw pipeline_mistake(text(own) + "sends " + text(end.name) + ", which is not there");
      }
      if (end.in_arena) {
        own.memory.count_sends(end.units, 1);
      }
    } else if (!end.in_arena || !own.memory.write(end.units, simulated_memory::arriving)) {
      throw pipeline_mistake(text(own) + "receives " + text(end.name) + " where a message is under way");
    }
    const std::size_t here = rank_of(own.number);
    const std::size_t there = rank_of(transfer.peer);
    ends& queue = unmatched_[{sends ? here : there, sends ? there : here,
                              static_cast<int>(2 * transfer.number) + (values ? 0 : 1)}];
    (sends ? queue.sends : queue.receives).push_back(handle);
    if (!queue.sends.empty() && !queue.receives.empty()) {
      const message from_handle = queue.sends.front();
      const message to_handle = queue.receives.front();
      queue.sends.pop_front();
      queue.receives.pop_front();
      message_end& from = *from_handle;
      message_end& to = *to_handle;
      if (from.name != to.name || from.micro_batch != to.micro_batch) {
        throw pipeline_mistake(text(stages_[to.stage]) + "receives " + text(from.name) + " of micro-batch " +
                               std::to_string(from.micro_batch) + " in place of " + text(to.name) + " of micro-batch " +
                               std::to_string(to.micro_batch));
      }
      from.matched = to.matched = true;
      to.what = from.what;
    }
  }

  /// @return whether the message has ended
  bool wait(const message& handle) {
    if (handle == nullptr || handle->done) {
      return true;
    }
    message_end& end = *handle;
    if (!end.matched && !(end.sends && has_buffers_)) {
      return false;
    }
    stage& own = stages_[end.stage];
    end.done = true;
    if (end.sends && end.in_arena) {
      if (own.memory.of(end.units) != end.what) {
        throw pipeline_mistake(text(own) + text(end.name) + " has changed while it was sent");
      }
      own.memory.count_sends(end.units, -1);
    } else if (!end.sends) {
      own.memory.arrive(end.units, end.what);
      own.received.emplace(end.name, false);
    }
    return true;
  }
  /// A test may see the end of a message later.
  bool test(const message& end) { return end == nullptr || end->done || (draw_.chance(50) && wait(end)); }

  bool receive_values(stage& own, int needed) {
    const int copies = static_cast<int>(own.plan->value_copies);
    while (own.next_values < own.count && own.next_values < own.done + copies) {
      const int m = own.next_values;
      for (std::size_t t = 0; m >= copies && t < own.plan->values_out.size(); ++t) {
        const message& before = own.values_out[t][static_cast<std::size_t>(m - copies)];
        if (m > needed && !test(before)) {
          return true;
        }
        if (!wait(before)) {
          return false;
        }
      }
      for (std::size_t t = 0; t < own.plan->values_in.size(); ++t) {
        if (!same_rank(own, own.plan->values_in[t])) {
          post(own.values_in[t][static_cast<std::size_t>(m)], own, own.plan->values_in[t], m, true, false);
        }
      }
      ++own.next_values;
    }
    return true;
  }
  bool receive_gradients(stage& own, int needed) {
    const int copies = static_cast<int>(own.plan->gradient_copies);
    int freed = own.done;
    for (const transfer_type& transfer : own.plan->gradients_out) {
      if (same_rank(own, transfer)) {
        freed = std::min(freed, stages_[transfer.peer].backward);
      }
    }
    while (own.next_gradients < own.count && own.next_gradients < freed + copies) {
      const int m = own.next_gradients;
      for (std::size_t t = 0; m >= copies && t < own.plan->gradients_out.size(); ++t) {
        const message& before = own.gradients_out[t][static_cast<std::size_t>(m - copies)];
        if (m > needed && !test(before)) {
          return true;
        }
        if (!wait(before)) {
          return false;
        }
      }
      for (std::size_t t = 0; t < own.plan->gradients_in.size(); ++t) {
        if (!same_rank(own, own.plan->gradients_in[t])) {
          post(own.gradients_in[t][static_cast<std::size_t>(m)], own, own.plan->gradients_in[t], m, false, false);
        }
      }
      ++own.next_gradients;
    }
    return true;
  }

  /// Between two stages of a rank.
  void copy(stage& own, const transfer_type& transfer, int m, bool values) {
    stage& from = stages_[transfer.peer];
    const memory_name name = name_of(transfer, values);
    const content what =
        is_batch(from, name) ? content_of(from, name, m, 0) : from.memory.of(units_of(from, name, m, true));
    if (what <= simulated_memory::mixed) {
      throw pipeline_mistake(text(own) + "copies " + text(name) + ", which is not there");
    }
    if (!own.memory.write(units_of(own, name, m, true), what)) {
      throw pipeline_mistake(text(own) + "copies " + text(name) + " to where a message is under way");
    }
    own.received.emplace(name, false);
  }

  // ---- programs of ranks, as parallel::pipeline_runner has them

  template <class Action>
  void always(std::size_t r, const Action& action) {
    ranks_[r].program.emplace_back([action] {
      action();
      return true;
    });
  }
  void later(std::size_t r, std::function<bool()> action) { ranks_[r].program.push_back(std::move(action)); }

  void begin(std::size_t r, int count, std::size_t number) {
    always(r, [this, r, count, number] {
      for (std::size_t s = r; s < stages_.size(); s += ranks_.size()) {
        stage& own = stages_[s];
        own.next_values = own.next_gradients = own.forwards = own.backward = own.done = 0;
        own.step = number;
        own.count = count;
        own.gradients_of.assign(graph_.nodes.size(), 0);
        const auto sized = [&](message_table& table, std::size_t transfers) {
          table.assign(transfers, std::vector<message>(static_cast<std::size_t>(count)));
        };
        sized(own.values_in, own.plan->values_in.size());
        sized(own.values_out, own.plan->values_out.size());
        sized(own.gradients_in, own.plan->gradients_in.size());
        sized(own.gradients_out, own.plan->gradients_out.size());
      }
    });
  }
  void receive_more(std::size_t r, bool gradients) {
    for (std::size_t s = r; s < stages_.size(); s += ranks_.size()) {
      stage& own = stages_[s];
      later(r, [this, &own] { return receive_values(own, -1); });
      if (gradients) {
        later(r, [this, &own] { return receive_gradients(own, -1); });
      }
    }
  }
  void wait_for_values(std::size_t r, stage& own, int m) {
    const auto at = static_cast<std::size_t>(m);
    later(r, [this, &own, m] { return receive_values(own, m); });
    for (std::size_t t = 0; t < own.plan->values_in.size(); ++t) {
      if (same_rank(own, own.plan->values_in[t])) {
        always(r, [this, &own, t, m] { copy(own, own.plan->values_in[t], m, true); });
      }
      later(r, [this, &own, t, at] { return wait(own.values_in[t][at]); });
    }
    const std::size_t stored = own.depth.stored;
    for (std::size_t t = 0; at >= stored && t < own.plan->values_out.size(); ++t) {
      later(r, [this, &own, t, at, stored] { return wait(own.values_out[t][at - stored]); });
    }
  }
  void wait_for_gradients(std::size_t r, stage& own, int m) {
    const auto at = static_cast<std::size_t>(m);
    later(r, [this, &own, m] { return receive_gradients(own, m); });
    for (std::size_t t = 0; t < own.plan->gradients_in.size(); ++t) {
      if (same_rank(own, own.plan->gradients_in[t])) {
        always(r, [this, &own, t, m] { copy(own, own.plan->gradients_in[t], m, false); });
      }
      later(r, [this, &own, t, at] { return wait(own.gradients_in[t][at]); });
    }
    const std::size_t copies = own.plan->gradient_copies;
    for (std::size_t t = 0; at >= copies && t < own.plan->gradients_out.size(); ++t) {
      later(r, [this, &own, t, at, copies] { return wait(own.gradients_out[t][at - copies]); });
    }
  }
  void send(std::size_t r, stage& own, int m, bool values) {
    const auto& transfers = values ? own.plan->values_out : own.plan->gradients_out;
    for (std::size_t t = 0; t < transfers.size(); ++t) {
      if (!same_rank(own, transfers[t])) {
        always(r, [this, &own, &transfers, t, m, values] {
          message_table& table = values ? own.values_out : own.gradients_out;
          post(table[t][static_cast<std::size_t>(m)], own, transfers[t], m, values, true);
        });
      }
    }
  }
  void end(std::size_t r, bool trains) {
    for (std::size_t s = r; s < stages_.size(); s += ranks_.size()) {
      stage& own = stages_[s];
      later(r, [this, &own] {
        for (message_table* const table : {&own.values_out, &own.gradients_out}) {
          for (auto& of_transfer : *table) {
            for (const message& each : of_transfer) {
              if (!wait(each)) {
                return false;
              }
            }
          }
        }
        return true;
      });
      always(r, [this, &own, trains] {
        for (const message_table* const table : {&own.values_in, &own.gradients_in}) {
          for (const auto& of_transfer : *table) {
            for (const message& each : of_transfer) {
              if (each != nullptr && !each->done) {
                throw pipeline_mistake(text(own) + "a receive that nothing waits for");
              }
            }
          }
        }
        if (trains) {
          require_gradients(own);
        }
      });
    }
  }

  void add_training(std::size_t r, const checked_step& step, std::size_t number) {
    begin(r, step.micro_batches, number);
    receive_more(r, true);
    for (const auto& action : step.schedule->of_rank(static_cast<int>(r))) {
      stage& own = stages_[static_cast<std::size_t>(action.stage)];
      const int m = action.micro_batch;
      switch (action.pass) {
        case pass_kind::forward:
          wait_for_values(r, own, m);
          always(r, [this, &own, m] { run_forward(own, m); });
          send(r, own, m, true);
          break;
        case pass_kind::backward:
        case pass_kind::input_gradients: {
          const bool whole = action.pass == pass_kind::backward;
          wait_for_gradients(r, own, m);
          always(r, [this, &own, m, whole] { run_backward(own, m, whole); });
          send(r, own, m, false);
          always(r, [&own, whole] {
            ++own.backward;
            own.done += whole ? 1 : 0;
          });
          break;
        }
        case pass_kind::weight_gradients:
          always(r, [this, &own, m] {
            run_weights(own, m);
            ++own.done;
          });
          break;
      }
      receive_more(r, true);
    }
    end(r, true);
  }

  void add_evaluation(std::size_t r, const checked_step& step, std::size_t number) {
    begin(r, step.micro_batches, number);
    receive_more(r, false);
    for (int m = 0; m < step.micro_batches; ++m) {
      for (std::size_t s = r; s < stages_.size(); s += ranks_.size()) {
        stage& own = stages_[s];
        wait_for_values(r, own, m);
        always(r, [this, &own, m] { run_forward(own, m); });
        send(r, own, m, true);
        always(r, [this, &own, m] {
          if (is_last(own)) {
            run_group(own, {accesses_.loss().front().front()}, m, true);
          }
        });
      }
      for (std::size_t s = r; s < stages_.size(); s += ranks_.size()) {
        always(r, [this, s] { ++stages_[s].done; });
      }
      receive_more(r, false);
    }
    end(r, false);
  }

  // ---- the end

  /// Tries each rank once more.
  bool no_rank_moves(const std::vector<std::size_t>& running) {
    for (const std::size_t r : running) {
      rank& each = ranks_[r];
      if (each.next == each.program.size()) {
        return false;
      }
      if (each.program[each.next]()) {
        ++each.next;
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] std::string waiting(const std::vector<std::size_t>& running) const {
    std::ostringstream out;
    for (const std::size_t r : running) {
      out << "rank " << r << " at " << ranks_[r].next << " of " << ranks_[r].program.size() << "; ";
    }
    return out.str();
  }
  [[nodiscard]] static std::string text(const stage& own) {
    return "step " + std::to_string(own.step) + ", stage " + std::to_string(own.number) + ": ";
  }
  [[nodiscard]] static std::string text(const memory_name& name) {
    return (name.what == kind::value      ? "the value of slot "
            : name.what == kind::gradient ? "the gradient of slot "
                                          : "the state of layer ") +
           std::to_string(name.of);
  }

  const gradus::nn::graph_description& graph_;
  const plan_type& whole_;
  network_accesses accesses_;
  std::vector<std::size_t> bytes_of_slot_;
  std::deque<stage> stages_;
  std::vector<rank> ranks_;
  std::map<std::tuple<std::size_t, std::size_t, int>, ends> unmatched_;  // by the ranks from and to, and the tag
  draws& draw_;
  bool has_buffers_ = false;
};

}  // namespace gradus_test
