// SPDX-License-Identifier: BSL-1.0
//
// Takes the whole state of a training, and gives it back: the heart of checkpoints.
#pragma once

#include <algorithm>    // std::copy, std::fill
#include <cmath>        // std::floor
#include <cstddef>      // std::byte, std::ptrdiff_t, std::size_t
#include <cstdint>      // std::uint64_t, std::uint8_t
#include <cstring>      // std::memcpy, std::memset
#include <exception>    // std::exception
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_reference_t

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/exact_sum.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/streamed_copy.hpp"
#include "gradus/core/text.hpp"
#include "gradus/core/version.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/io/stored_array.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/tensor/instances.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"
#include "gradus/train/detail/state/agree.hpp"
#include "gradus/train/detail/state/check.hpp"
#include "gradus/train/detail/state/plan.hpp"
#include "gradus/train/detail/state/restorer.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus::train {

/// How strict train::restore is.
struct restore_options {
  /// The update rule has the hyper-parameters of the state; false: it is of the same kind only.
  bool same_rule_options = true;
  /// The layers and the loss have the kinds, inputs and options of the state; false: only the names and shapes of
  /// parameters are compared, for a training that goes on with another loss, or other options of its layers.
  bool same_layers = true;
  /// The loader of the next fit gives the data set, batches and seed of the state; false, at the end of an epoch: it
  /// may give others.
  bool same_loader = true;
};

namespace detail {

/// The texts that stay the same.
template <class Network>
void take_constant_properties(const training_parts<Network>& training, training_state& state) {
  const std::string strategy = training.end->strategy().describe();
  state.set_property("format", state_format);
  state.set_property("gradus version", version);
  state.set_property("element", element_name<typename Network::element_type>);
  state.set_property("layout", Network::layout_type::name);
  state.set_property("rule", training.end->rule().name());
  state.set_property("rule options", training.end->rule().description());
  state.set_property("strategy", std::string_view{strategy}.substr(0, strategy.find_first_of(" \n")));
  state.set_property("ranks", join({training.group->size()}));
  state.set_property("seed", join({training.network->seed()}));
  state.set_property("layers", training.network->describe_options());
  if (training.workers != nullptr) {
    state.set_property("virtual workers", join({training.workers->all}));
  }
}

/// The texts of this moment.
template <class Network>
void take_properties(const training_parts<Network>& training, training_state& state, std::uint64_t server_updates) {
  loop& progress = *training.progress;
  const training_position& position = progress.position();
  state.set_property("epoch", join({position.epochs}));
  state.set_property("step in epoch", join({position.step_in_epoch}));
  state.set_property("steps", join({position.steps}));
  state.set_property("examples", join({position.examples}));
  // Whole microseconds are a short text.
  state.set_property("seconds of epoch", join({std::floor(position.seconds * 1e6) / 1e6}));
  state.set_property("loader", progress.loader());
  state.set_property("learning rate", progress.learning_rate());
  if (const auto scale = training.end->rule().report()) {
    state.set_property("loss scale", join({scale->scale}));
  }
  std::string counters;
  for (const std::uint64_t each : training.end->strategy().counters()) {
    append_text(counters, {counters.empty() ? "" : " ", each});
  }
  state.set_property("strategy counters", counters);
  state.set_property("server updates", join({server_updates}));
  for (const callback_state::entry& each : progress.callbacks().entries()) {
    state.set_property(join({"callback ", each.name}), text_of_numbers(each.numbers));
  }
}

/// The exact loss of the epoch so far, and which virtual workers had examples, of all ranks: sums of whole numbers,
/// which are the same on any number of ranks. At the end of an epoch all are 0.
template <class Network>
void take_worker_numbers(const training_parts<Network>& training, std::span<double> numbers) {
  std::fill(numbers.begin(), numbers.end(), 0.0);
  if (!training.workers_within_epoch()) {
    return;
  }
  worker_epoch& epoch = *training.workers;
  epoch.loss.write(numbers.template first<exact_sum::numbers>());
  const auto first = exact_sum::numbers + static_cast<std::size_t>(training.group->rank() * training.workers_of_rank());
  std::copy(epoch.trained.begin(), epoch.trained.end(), numbers.begin() + static_cast<std::ptrdiff_t>(first));
  if (training.group->size() > 1) {
    training.group->sum(numbers);
  }
}

template <class Network>
void take_state(const training_parts<Network>& training, training_state& state) {
  using element = typename training_parts<Network>::element;
  comm::link& group = *training.group;
  parallel::strategy<element>& strategy = training.end->strategy();
  const bool on_servers = training.on_servers();
  const bool asks_servers = on_servers && group.rank() == 0;
  const std::size_t flat_bytes = asks_servers ? training.end->parameters().values.size_bytes() : 0;
  training.end->settle();
  strategy.gather_state();
  if (state_access::made_for(state) != training.progress->identity()) {
    state_access::made_for(state) = 0;
    plan_state(training, state);
    state_access::finish(state, flat_bytes);
    take_constant_properties(training, state);
    state_access::made_for(state) = training.progress->identity();
  }
  dynamic_array<double>& sums = state_access::sums_of(state);
  const double(&own)[4] = training.progress->position().epoch.values;
  const auto of_ranks = static_cast<std::size_t>(group.size()) * 4;
  group.all_gather({reinterpret_cast<const std::uint8_t*>(own), sizeof(own)},
                   {reinterpret_cast<std::uint8_t*>(sums.data()), of_ranks * sizeof(double)});
  if (training.workers != nullptr) {
    take_worker_numbers(training, {sums.data() + of_ranks, sums.size() - of_ranks});
  }
  std::uint64_t server_updates = 0;
  if (on_servers) {  // all workers have met: no push is under way until they meet again
    if (asks_servers) {
      auto& servers = servers_of(strategy);
      for (std::size_t k = 0; k < state_access::flat_buffers(state, flat_bytes); ++k) {
        servers.fetch_from_servers(k, {reinterpret_cast<element*>(state_access::flat(state, k, flat_bytes)),
                                       training.end->parameters().values.size()});
      }
      server_updates = servers.updates_of_servers();
    }
    meet(group);
  }
  [[maybe_unused]] auto& device = training.network->device();
  for (std::size_t i = 0; i < state.entries(); ++i) {
    const io::stored_array& one = state.arrays()[i];
    const std::size_t bytes = one.memory.size();
    const array_origin& from = state_access::origins_of(state)[i];
    if (bytes == 0 || state_access::is_flat(state, i, flat_bytes)) {
      continue;
    }
    auto* const to = const_cast<std::byte*>(one.memory.data());
    if (from.kind == state_kind::worker_buffers) {
      if (training.workers_within_epoch()) {
        const auto own_worker = static_cast<std::size_t>(from.copy_of % training.workers_of_rank());
        std::memcpy(to, training.workers->statistics.data() + own_worker * bytes, bytes);
      } else {
        std::memset(to, 0, bytes);
      }
      continue;
    }
    const std::byte* const source = from.memory + one.covered().begin * one.element_bytes();
    if (from.kind == state_kind::sums || from.kind == state_kind::worker_numbers || from.kind == state_kind::strategy) {
      std::memcpy(to, source, bytes);
    } else if constexpr (has_host_memory<typename Network::device_type>) {
      streamed_copy(to, source, bytes);
    } else {
      device.copy_to_host(to, source, bytes);
    }
  }
  take_properties(training, state, server_updates);
}

}  // namespace detail

/// Takes the state of a training: values, the state of the update rule, buffers, and how far it has come, so that
/// train::restore in another process makes the very steps that follow here. Called by all ranks that train, between
/// steps: in on_step, in on_epoch or outside of fit, in all at the same step. In on_epoch the callback that calls it
/// comes last: what callbacks behind it do with the epoch is not in the state.
///
/// It copies memory once; with a state that has been captured before it allocates nothing of any size. Where ranks
/// update parts (sharded_update), they first fetch the state of the rule from each other. Where servers update, the
/// first worker asks them. With parameter_server::staged, values that are under way arrive: the training goes on as the
/// one that is restored. Parameter servers that do not wait for all workers are asked when no worker is within a step.
///
/// @code
///   train::training_state state;
///   trainer.fit(loader, {.epochs = 5}, [&](const train::step_report& step) {
///     if (step.step % 1000 == 999) {
///       train::capture(trainer, state);
///     }
///   });
/// @endcode
///
/// @param state  its earlier content is replaced, except for properties of other names
/// @throws configuration_error when a buffer of the rule has elements of an unknown type, or while the averages of the
///         weights are in their place (trainer.swap_average)
/// @throws communication_error if a rank fails or does not call it
template <class Trainer>
void capture(Trainer& trainer, training_state& state, error_location where = error_location::current()) {
  at_call(where, [&] {
    const auto training = detail::trainer_access::parts_of(trainer);
    training.progress->require_weights("train::capture", where);
    try {
      detail::take_state(training, state);
    } catch (const std::exception& failure) {
      training.group->fail(failure.what());  // so that no rank waits for this one
      throw;
    }
  });
}

/// Makes a trainer go on from a state. Called by all ranks that train, outside of fit. The trainer has a network that
/// is compiled with the same layers and seed, and an update rule of the same kind.
///
/// The next fit continues the epoch from the step at which the state was taken: its options.epochs counts from the
/// beginning of the training, as those of the fit that was interrupted, and callbacks with a state get it. (A fit whose
/// epochs have all been done returns at once.) trainer.steps() counts on.
///
/// On as many ranks, with the same strategy and layout, every following step is that of the undisturbed training, to
/// the bit. Another number of ranks, layout, device or strategy continues with the same examples and the same values;
/// sums are rounded in another order. What does not fit then: running statistics are those of rank 0, sums of the epoch
/// so far count once, and ranks that trained each by itself (model_averaging) go on from the mean of their values and
/// of the rule's state. What a strategy keeps (the outer optimizer of model_averaging, what was lost by rounding to 8
/// bits) goes to the same strategy, on any number of ranks; any other begins anew. Reproducible training
/// (parallel::reproducible) goes on to the bit on any number of ranks and by any of its strategies, with as many
/// virtual workers; a state of the end of an epoch takes another number of them too.
///
/// If a rank cannot use or read the state, all ranks throw, and nothing has changed.
///
/// @param source  a training_state, the states of all ranks (state_parts), or a file; all ranks give the same
/// @throws shape_error with the names of arrays that are missing, unexpected or of another shape
/// @throws configuration_error for another rule, its hyper-parameters, another seed, or the first layer that differs (a
///         state that an earlier version wrote has no options of layers, or none at all), or if reproducible training
///         is to go on within an epoch of a training with another number of virtual workers, or none
/// @throws format_error if the source is no state of a training
template <class Trainer>
void restore(Trainer& trainer, const state_source& source, const restore_options& options = {},
             error_location where = error_location::current()) {
  at_call(where, [&] {
    const auto training = detail::trainer_access::parts_of(trainer);
    using network = std::remove_reference_t<decltype(*training.network)>;
    detail::restorer<network> work{training, source, options.same_rule_options, options.same_layers,
                                   options.same_loader};
    detail::all_or_none(*training.group, detail::restoring, [&] { work.check(); });
    try {
      work.settle();
      detail::all_or_none(*training.group, detail::restoring, [&] { work.read(); });
    } catch (const communication_error& failure) {
      training.group->fail(failure.what());
      throw;
    }
    try {
      work.write();
    } catch (const std::exception& failure) {
      training.group->fail(failure.what());
      throw;
    }
  });
}

}  // namespace gradus::train

#ifdef GRADUS_HAS_INSTANCES
#define GRADUS_DETAIL_STATE(instance, layout, element, name)                                             \
  instance(void gradus::train::capture(name<::gradus::nn::network<element, layout, ::gradus::cpu>>&,     \
                                       ::gradus::train::training_state&, ::gradus::error_location))      \
      instance(void gradus::train::restore(name<::gradus::nn::network<element, layout, ::gradus::cpu>>&, \
                                           const ::gradus::train::state_source&,                         \
                                           const ::gradus::train::restore_options&, ::gradus::error_location))
GRADUS_EACH_LAYOUT(GRADUS_DETAIL_STATE, ::gradus::train::trainer)
#endif
