// SPDX-License-Identifier: BSL-1.0
//
// Gives a state back to a training: first all of it is read, then the training changes.
#pragma once

#include <bit>           // std::bit_cast
#include <charconv>      // std::from_chars
#include <cstddef>       // std::byte, std::size_t
#include <cstdint>       // std::uint64_t, std::uint8_t
#include <cstring>       // std::memcpy
#include <limits>        // std::numeric_limits
#include <span>          // std::span
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::errc
#include <utility>       // std::move
#include <vector>        // std::vector

#include "gradus/comm/link.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/exact_sum.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/element_type.hpp"
#include "gradus/io/stored_array.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"
#include "gradus/train/detail/state/agree.hpp"
#include "gradus/train/detail/state/check.hpp"
#include "gradus/train/detail/state/plan.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus::train::detail {

/// The bits of numbers, in decimal digits: exact, infinite ones too.
[[nodiscard]] inline std::string text_of_numbers(std::span<const double> numbers) {
  std::string text;
  for (const double each : numbers) {
    append_text(text, {text.empty() ? "" : " ", std::bit_cast<std::uint64_t>(each)});
  }
  return text;
}

/// Whole numbers with spaces between them.
/// @throws format_error when it is something else
[[nodiscard]] inline std::vector<std::uint64_t> numbers_of_text(std::string_view text) {
  std::vector<std::uint64_t> numbers;
  while (!text.empty()) {
    std::uint64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{}) {
      raise<format_error>(restoring, "numbers with spaces between them", {"'", text, "'"});
    }
    numbers.push_back(value);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    text.remove_prefix(text.empty() ? 0 : 1);
  }
  return numbers;
}

/// The servers of a strategy. @throws configuration_error if there are none that the library knows
template <class Element>
[[nodiscard]] parallel::server_strategy<Element>& servers_of(parallel::strategy<Element>& strategy) {
  auto* const servers = dynamic_cast<parallel::server_strategy<Element>*>(&strategy);
  if (servers == nullptr) {
    raise<configuration_error>("train::capture", "a parallel::server_strategy where another rank updates",
                               "another strategy", "derive it from parallel::server_strategy");
  }
  return *servers;
}

/// One use of train::restore.
template <class Network>
class restorer {
  using element = typename training_parts<Network>::element;

 public:
  restorer(const training_parts<Network>& training, const state_source& source, bool same_rule_options,
           bool same_layers, bool same_loader)
      : training_{&training},
        source_{&source},
        same_rule_options_{same_rule_options},
        same_layers_{same_layers},
        same_loader_{same_loader},
        group_{training.group} {}

  /// @throws shape_error, configuration_error, format_error when the state is not one of this training
  void check() {
    if (training_->progress->running()) {
      raise<configuration_error>(restoring, "a trainer outside of fit", "a call within a callback",
                                 "stop the fit first: let on_epoch return train::flow::stop");
    }
    require_property(*source_, "format", state_format, "it was written by another version of the library");
    optim::parameter_update<element>& rule = training_->end->rule();
    require_property(*source_, "rule", rule.name(), "make the trainer with the update rule of the state");
    if (same_rule_options_) {
      require_property(*source_, "rule options", rule.description(),
                       "{.same_rule_options = false} takes the state of a rule with other hyper-parameters");
    }
    plan_state(*training_, wanted_);
    require_arrays(*source_, wanted_);
    if (same_layers_) {
      require_layers(*source_, training_->network->describe_options());
    }
    require_property(*source_, "seed", join({training_->network->seed()}),
                     "compile the network with this seed: the random numbers of its layers follow from it");
    position_ = {.steps = number_of(*source_, "steps"),
                 .examples = number_of(*source_, "examples"),
                 .epochs = static_cast<int>(number_of(*source_, "epoch", 0, most_of<int>)),
                 .step_in_epoch = static_cast<index_t>(number_of(*source_, "step in epoch", 0, most_of<index_t>)),
                 .epoch = {},
                 .seconds = read_number(property_of(*source_, "seconds of epoch")).value_or(0)};
    if (!same_loader_ && position_.step_in_epoch != 0) {
      raise<configuration_error>(restoring, "a state of the end of an epoch, for another loader",
                                 {"one of step ", position_.step_in_epoch, " of an epoch"});
    }
    workers_within_epoch_ = training_->workers != nullptr && position_.step_in_epoch != 0;
    if (workers_within_epoch_) {
      const std::string* const workers = source_->property("virtual workers");
      const std::string own = join({training_->workers->all});
      if (workers == nullptr || *workers != own) {
        raise<configuration_error>(restoring,
                                   {"within an epoch, a state of reproducible training with ", own,
                                    own == "1" ? " virtual worker" : " virtual workers"},
                                   {workers == nullptr ? std::string{"none"} : *workers, ", after step ",
                                    position_.step_in_epoch, " of an epoch"},
                                   "choose as many virtual_workers, or take a state of the end of an epoch");
      }
    }
    ranks_ = static_cast<int>(number_of(*source_, "ranks", 1, most_of<int>));
    loader_ = same_loader_ ? property_of(*source_, "loader") : std::string{};
    const std::vector<std::uint64_t> counters = numbers_of_text(property_of(*source_, "strategy counters"));
    own_counters_ = counters.size() == training_->end->strategy().counters().size();
    counters_ = counters;
    const std::string_view strategy = property_of(*source_, "strategy");
    server_updates_ = number_of(*source_, "server updates");
    if (server_updates_ == 0) {
      server_updates_ = position_.steps;
    }
    own_counters_ = own_counters_ && training_->end->strategy().describe().starts_with(strategy);
    for (std::size_t i = 0; i < wanted_.entries(); ++i) {
      if (origin_of(i).kind == state_kind::strategy) {
        keeps_ = true;
        kept_ = kept_ || source_->find(wanted_.entry(i).name) != source_->entries();
      }
    }
    own_counters_ = own_counters_ && kept_ == keeps_;
    read_callbacks();
  }

  /// What is under way arrives. Called by all ranks.
  void settle() {
    training_->end->settle();
    training_->end->strategy().gather_state();
  }

  /// Reads all arrays to memory of this object. @throws what the source throws
  void read() {
    for (std::size_t i = 0; i < wanted_.entries(); ++i) {
      const io::stored_array& one = wanted_.entry(i);
      const array_origin& to = origin_of(i);
      if (to.memory == nullptr && !training_->on_servers() && to.kind != state_kind::worker_buffers) {
        continue;  // a stage of another rank
      }
      switch (to.kind) {
        case state_kind::value:
        case state_kind::rule:
        case state_kind::rule_number:
          // Servers get the state of the rule from the first worker.
          if (to.copy_of == 0 && (to.kind == state_kind::value || !training_->on_servers() || group_->rank() == 0)) {
            read_shared(i);
          }
          break;
        case state_kind::buffer:
          read_one(i, one.name);
          break;
        case state_kind::buffers_of_rank:
          if (to.copy_of == group_->rank() && same_ranks()) {
            // A training in other stages has others.
            const std::size_t found = source_->find(one.name);
            if (found != source_->entries() && same_form(source_->entry(found), one)) {
              read_one(i, one.name);
            }
          }
          break;
        case state_kind::strategy:
          read_strategy(i);
          break;
        case state_kind::sums:
          read_sums();
          break;
        case state_kind::worker_numbers:
          if (workers_within_epoch_) {
            read_worker_numbers(one);
          }
          break;
        case state_kind::worker_buffers:
          if (workers_within_epoch_ && to.copy_of / training_->workers_of_rank() == group_->rank()) {
            read_worker_buffers(one, to.copy_of % training_->workers_of_rank());
          }
          break;
      }
    }
  }

  /// The training changes. Called by all ranks.
  void write() {
    auto& device = training_->network->device();
    dynamic_array<std::byte> memory;
    dynamic_array<dynamic_array<element>> flat;
    const bool to_servers = training_->on_servers() && group_->rank() == 0;
    for (const staged& each : staged_) {
      const io::stored_array& one = wanted_.entry(each.array);
      const array_origin& to = origin_of(each.array);
      const std::byte* data = each.logical.data();
      if (!one.in_order()) {
        memory = dynamic_array<std::byte>(each.logical.size());
        one.write_in_memory_order({data, each.logical.size()}, memory.data());
        data = memory.data();
      }
      if (to.kind == state_kind::strategy) {
        std::memcpy(to.memory, data, each.logical.size());
      } else if (to.memory != nullptr) {
        device.copy_from_host(to.memory, data, each.logical.size());
      }
      if (to_servers && one_of_servers(to)) {
        while (flat.size() <= to.buffer) {
          flat.push_back(dynamic_array<element>(training_->end->parameters().values.size()));
        }
        std::memcpy(flat[to.buffer].data() + to.offset, data, each.logical.size());
      }
    }
    for (std::size_t k = 0; k < flat.size(); ++k) {
      servers_of(training_->end->strategy()).store_on_servers(k, {flat[k].data(), flat[k].size()}, server_updates_);
    }
    const std::span<std::uint64_t> counters = training_->end->strategy().counters();
    for (std::size_t k = 0; k < counters.size(); ++k) {
      counters[k] = own_counters_ ? counters_[k] : 0;
    }
    if (workers_within_epoch_) {
      epoch_.all = training_->workers->all;
      *training_->workers = std::move(epoch_);
    }
    training_->progress->go_to(position_, loader_, std::move(callbacks_));
    meet(*group_);
  }

 private:
  template <class Number>
  static constexpr auto most_of = static_cast<std::uint64_t>(std::numeric_limits<Number>::max());

  /// An array that has been read, in its logical order.
  struct staged {
    std::size_t array = 0;  // index among those that are wanted
    dynamic_array<std::byte> logical;
  };

  [[nodiscard]] const array_origin& origin_of(std::size_t i) const noexcept {
    return state_access::origins_of(wanted_)[i];
  }
  [[nodiscard]] bool same_ranks() const noexcept { return ranks_ == group_->size(); }

  [[nodiscard]] bool one_of_servers(const array_origin& to) const noexcept {
    return to.kind == state_kind::rule ||
           (to.kind == state_kind::value &&
            to.offset < static_cast<index_t>(training_->end->parameters().values.size()));
  }

  [[nodiscard]] dynamic_array<std::byte> bytes_of(const io::stored_array& one, const std::string& name) const {
    const std::size_t i = index_of(*source_, name, one);
    dynamic_array<std::byte> bytes(static_cast<std::size_t>(one.elements() * one.element_bytes()));
    source_->read(i, 0, {bytes.data(), bytes.size()});
    return bytes;
  }

  void read_one(std::size_t i, const std::string& name) {
    staged_.push_back({.array = i, .logical = bytes_of(wanted_.entry(i), name)});
  }

  /// What ranks have in common, or each has for itself.
  void read_shared(std::size_t i) {
    const io::stored_array& one = wanted_.entry(i);
    const std::string own = name_of_copy(one.name, group_->rank());
    const bool copies = ranks_ > 1 && source_->find(name_of_copy(one.name, 1)) != source_->entries();
    if (!copies) {
      read_one(i, one.name);
    } else if (same_ranks() && training_->end->strategy().ranks_differ() && kept_ == keeps_) {
      read_one(i, own);
    } else if (origin_of(i).kind == state_kind::rule_number || one.element_bytes() < 4) {
      read_one(i, one.name);
    } else {
      read_sum(i, one.name, name_of_copy, ranks_);
    }
  }

  /// What a strategy keeps: all 0 after another strategy. What each rank had is shared by other ranks.
  void read_strategy(std::size_t i) {
    const io::stored_array& one = wanted_.entry(i);
    const bool of_rank = origin_of(i).owner >= 0;
    if (of_rank && origin_of(i).copy_of != group_->rank()) {
      return;
    }
    if (!kept_) {
      staged_.push_back(
          {.array = i,
           .logical = dynamic_array<std::byte>(static_cast<std::size_t>(one.elements() * one.element_bytes()))});
    } else if (!of_rank || same_ranks()) {
      read_one(i, one.name);
    } else {
      read_sum(i, std::string_view{one.name}.substr(one.name.find(strategy_prefix)), name_of_strategy_copy,
               group_->size());
    }
  }

  /// Of the copies of all ranks that have made the state: their sum, divided.
  void read_sum(std::size_t i, std::string_view name, std::string (*name_of)(std::string_view, int), int divisor) {
    const io::stored_array& one = wanted_.entry(i);
    const auto element_bytes = static_cast<std::size_t>(one.element_bytes());  // 4 or 8
    dynamic_array<double> sum(static_cast<std::size_t>(one.elements()));
    dynamic_array<std::byte> bytes;
    for (int rank = 0; rank < ranks_; ++rank) {
      bytes = bytes_of(one, name_of(name, rank));
      for (std::size_t k = 0; k < sum.size(); ++k) {
        float narrow = 0;
        double wide = 0;
        std::memcpy(element_bytes == 4 ? static_cast<void*>(&narrow) : &wide, bytes.data() + k * element_bytes,
                    element_bytes);
        sum[k] += wide + static_cast<double>(narrow);
      }
    }
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const double wide = sum[k] / divisor;
      const auto narrow = static_cast<float>(wide);
      std::memcpy(bytes.data() + k * element_bytes, element_bytes == 4 ? static_cast<const void*>(&narrow) : &wide,
                  element_bytes);
    }
    staged_.push_back({.array = i, .logical = std::move(bytes)});
  }

  /// @param sums  loss, right answers, examples and labels of each rank
  /// @throws format_error unless all but the losses count something
  static void require_counts(std::span<const double> sums) {
    constexpr double most = 9007199254740992;  // 2^53: all whole numbers up to it are doubles
    double total = 0;
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const bool is_loss = k % 4 == 0;
      total += is_loss ? 0 : sums[k];
      if (!is_loss && !(sums[k] >= 0 && total <= most)) {
        raise<format_error>(restoring, "numbers of right answers, examples and labels in 'trainer.sums'", {sums[k]},
                            "the state is damaged");
      }
    }
  }

  /// Each rank goes on with its own sums; on another number of ranks, the first one with those of all.
  void read_sums() {
    const io::stored_array wanted{.name = "trainer.sums", .type = io::element_type::f64, .shape = {ranks_, 4}};
    const std::size_t i = index_of(*source_, wanted.name, wanted);
    dynamic_array<double> all(static_cast<std::size_t>(ranks_) * 4);  // no more than the source has
    source_->read(i, 0, {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(double)});
    require_counts({all.data(), all.size()});
    for (int rank = 0; rank < ranks_; ++rank) {
      if (same_ranks() ? rank == group_->rank() : group_->rank() == 0) {
        for (std::size_t k = 0; k < 4; ++k) {
          position_.epoch.values[k] += all[static_cast<std::size_t>(rank) * 4 + k];
        }
      }
    }
  }

  /// The loss of all ranks goes on with the first one, as their sums do.
  void read_worker_numbers(const io::stored_array& one) {
    const dynamic_array<std::byte> bytes = bytes_of(one, one.name);
    dynamic_array<double> numbers(static_cast<std::size_t>(one.elements()));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    if (group_->rank() == 0) {
      epoch_.loss.read(std::span<const double, exact_sum::numbers>{numbers.data(), exact_sum::numbers});
    }
    const int own = training_->workers_of_rank();
    epoch_.trained = dynamic_array<std::uint8_t>(static_cast<std::size_t>(own));
    for (int worker = 0; worker < own; ++worker) {
      const auto global = static_cast<std::size_t>(group_->rank() * own + worker);
      epoch_.trained[static_cast<std::size_t>(worker)] = numbers[exact_sum::numbers + global] != 0 ? 1 : 0;
    }
  }

  /// @param worker  of this rank
  void read_worker_buffers(const io::stored_array& one, int worker) {
    const dynamic_array<std::byte> bytes = bytes_of(one, one.name);
    if (!epoch_.began) {
      epoch_.statistics =
          dynamic_array<std::byte>(bytes.size() * static_cast<std::size_t>(training_->workers_of_rank()));
      epoch_.began = true;
    }
    std::memcpy(epoch_.statistics.data() + bytes.size() * static_cast<std::size_t>(worker), bytes.data(), bytes.size());
  }

  void read_callbacks() {
    constexpr std::string_view prefix = "callback ";
    for (const std::string& name : source_->properties_with(prefix)) {
      std::vector<double> numbers;
      for (const std::uint64_t bits : numbers_of_text(property_of(*source_, name))) {
        numbers.push_back(std::bit_cast<double>(bits));
      }
      callbacks_.append({.name = name.substr(prefix.size()), .numbers = std::move(numbers)});
    }
  }

  const training_parts<Network>* training_;
  const state_source* source_;
  bool same_rule_options_;
  bool same_layers_;
  bool same_loader_;
  comm::link* group_;
  training_state wanted_;
  training_position position_;
  int ranks_ = 1;  // of the state
  std::string loader_;
  callback_state callbacks_;
  std::vector<std::uint64_t> counters_;  // of the strategy
  bool own_counters_ = false;            // they are those of the same strategy
  bool keeps_ = false;                   // the strategy of this training keeps more, in memory
  bool kept_ = false;                    // so does that of the state
  std::uint64_t server_updates_ = 0;
  bool workers_within_epoch_ = false;  // the state has what virtual workers have in the course of an epoch
  worker_epoch epoch_;                 // that
  dynamic_array<staged> staged_;
};

}  // namespace gradus::train::detail
