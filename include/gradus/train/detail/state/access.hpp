// SPDX-License-Identifier: BSL-1.0
//
// What states, checkpoints and reports reach of a trainer.
#pragma once

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/execution.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/trainer.hpp"

namespace gradus::train::detail {

/// The parts of a trainer that have a state.
template <class Network>
struct training_parts {
  using element = parameter_element_t<typename Network::element_type>;

  Network* network;
  loop* progress;
  optimizer_step_of<element>* end;
  comm::link* group;
  worker_epoch* workers = nullptr;  // of reproducible training

  /// The epoch so far of virtual workers is a part of the state.
  [[nodiscard]] bool workers_within_epoch() const {
    return workers != nullptr && progress->position().step_in_epoch != 0;
  }
  /// Virtual workers of a rank.
  [[nodiscard]] int workers_of_rank() const { return workers->all / group->size(); }
  [[nodiscard]] bool on_servers() const { return end->strategy().scope() == parallel::update_scope::on_servers; }
};

struct trainer_access {
  /// @throws configuration_error for an optimizer_step of the program's own
  template <class Network>
  [[nodiscard]] static training_parts<Network> parts_of(trainer<Network>& of) {
    using end_type = optimizer_step_of<typename training_parts<Network>::element>;
    auto* const end = dynamic_cast<end_type*>(&of.end_->innermost());
    if (end == nullptr) {
      raise<configuration_error>("train::capture", "a trainer with a train::optimizer_step_of",
                                 "one with another optimizer_step",
                                 "its rule and strategy are not known; train::forwarding_step stands in front of an "
                                 "optimizer_step_of");
    }
    return {&of.network(), &of.loop_, end, of.group_, of.execution().workers()};
  }
  template <class Network>
  [[nodiscard]] static execution<Network>& execution_of(trainer<Network>& of) noexcept {
    return of.execution();
  }
  /// The communicator; null where the trainer was made with an optimizer_step.
  template <class Network>
  [[nodiscard]] static comm::any_communicator* communicator_of(trainer<Network>& of) noexcept {
    return of.own_ == nullptr ? nullptr : &of.own_->ranks;
  }
};

}  // namespace gradus::train::detail
