// SPDX-License-Identifier: BSL-1.0
//
// A callback that compares the parameters of all ranks: it finds memory that has changed by itself.
#pragma once

#include <cstdint>   // std::uint64_t
#include <memory>    // std::make_shared, std::shared_ptr
#include <optional>  // std::nullopt, std::optional
#include <string>    // std::string

#include "gradus/comm/agreement.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/train/detail/state/plan.hpp"
#include "gradus/train/detail/trainer/replicas.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

namespace detail {

/// What verify_replicas remembers.
struct verified_replicas {
  replicas own = {};
  bool compared = false;                         // the options, between ranks
  std::optional<std::uint64_t> last_equal = {};  // steps after which all ranks were equal
};

}  // namespace detail

/// A callback that compares the parameters of all ranks in some steps. Ranks that train together have equal bits of
/// each parameter by construction, so a difference is an error of memory, of a processor or of a network that nothing
/// has noticed, or a program that changes weights on one rank.
///
///   trainer.fit(loader, {.epochs = 90}, train::verify_replicas{.every = 100}, train::checkpoints{"saves"});
///
/// Each rank computes a hash of 16 bytes of all its parameters, frozen ones too, and the ranks exchange 32 bytes. Only
/// if they differ, they exchange the hashes of all parameters, and all ranks throw a numeric_error that names the first
/// parameter, the ranks whose value is not that of most ranks, and the last step after which all were equal. In stages
/// of a network the replicas of each stage are compared. Nothing is compared, and nothing is wrong, where ranks have
/// values of their own: with model_averaging, and with servers that are not synchronous.
///
/// A hash reads the parameters once, on all threads of a CPU. From a GPU the parameters are copied first. An update
/// that is put off (overlap_forward) is completed at once in a compared step. Strategies that hand out values replace
/// wrong ones, or hand them out: with sharded_update and servers a wrong value is found only if it is there when ranks
/// compare.
struct verify_replicas {
  /// Compares after each step whose number, from 1, is a multiple of this; at least 1 and the same on all ranks.
  std::uint64_t every = 100;
  /// The line that messages name.
  error_location where = error_location::current();
  /// What has been compared; copies of the callback share it.
  std::shared_ptr<detail::verified_replicas> seen = std::make_shared<detail::verified_replicas>();

  /// fit has compared the parameters.
  void on_start(const run_information& /*run*/) {
    seen->compared = false;
    seen->last_equal = std::nullopt;
  }

  /// Compares after some steps.
  /// @throws configuration_error if `every` is 0 or not the same on all ranks
  /// @throws numeric_error on all ranks if a parameter differs
  template <class Trainer>
  void on_step(Trainer& trainer, const step_report& step) {
    const auto training = detail::trainer_access::parts_of(trainer);
    if (!seen->compared) {
      compare_options(*training.group);
    }
    if ((step.step + 1) % every != 0 || training.group->size() == 1 || !training.end->strategy().replicates()) {
      return;
    }
    training.end->settle();
    seen->own.take(*training.network);
    if (const std::string difference = seen->own.first_difference(*training.group); !difference.empty()) {
      raise_difference(difference, step.step + 1);
    }
    seen->last_equal = step.step + 1;
  }

 private:
  void compare_options(comm::link& group) {
    const comm::property properties[] = {{"every", gradus::join({every})}};
    at_call(where, [&, this] {
      comm::require_agreement(group, "verify_replicas", properties);
      if (every == 0) {
        raise<configuration_error>("verify_replicas", "every of at least 1 step", {every});
      }
    });
    seen->compared = true;
  }

  [[noreturn]] void raise_difference(const std::string& difference, std::uint64_t steps) const {
    const std::string equal = seen->last_equal ? gradus::join({"after step ", *seen->last_equal, ", the last compared"})
                                               : std::string{"at the beginning of fit"};
    raise<numeric_error>(
        gradus::join({"verify_replicas after step ", steps}), "equal bits of each parameter on all ranks", difference,
        gradus::join({"a rank has computed or stored something wrong: have its memory tested. All were equal ", equal,
                      ": a checkpoint from before is right, trainer.resume(folder) restores it on all ranks. A later "
                      "one has the values of rank 0 for all ranks, and is wrong if rank 0 is"}),
        where);
  }
};

}  // namespace gradus::train
