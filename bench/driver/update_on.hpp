// SPDX-License-Identifier: BSL-1.0
//
// The ends of a step for one communicator: included by one file for each, which compile side by side.
#pragma once

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "update.hpp"

namespace driver {

template <class Communicator>
class ranks_on final : public ranks {
 public:
  /// @param in_process  whether all ranks are in this process
  ranks_on(Communicator& communicator, const settings& chosen, bool in_process)
      : communicator_{communicator}, chosen_{chosen}, in_process_{in_process}, group_{communicator} {}

  gradus::comm::any_group& group() override { return group_; }

  step_end make_step_end(gradus::cpu& device, trained_parameters trained, const any_rule& rule,
                         const gradus::parallel::all_reduce& plan) override {
    switch (chosen_.update) {
      case variable_update::independent:
        return make(alone_, device, std::move(trained), rule, plan);
      case variable_update::replicated:
        if (!in_process_) {
          throw std::invalid_argument{
              "--variable-update: replicated is for ranks in one process (--ranks N); under mpiexec use all_reduce"};
        }
        [[fallthrough]];
      case variable_update::all_reduce:
        if (!chosen_.all_reduce_spec.empty()) {
          collectives_ = std::make_unique<gradus::comm::collectives<Communicator>>(
              communicator_.duplicate(),
              gradus::comm::collectives_options{.all_reduce =
                                                    gradus::comm::parse_all_reduce_spec(chosen_.all_reduce_spec)});
          return make(*collectives_, device, std::move(trained), rule, plan);
        }
        return make(communicator_, device, std::move(trained), rule, plan);
      case variable_update::parameter_server:
      case variable_update::distributed_replicated:
      case variable_update::model_averaging:
        break;
    }
    throw std::invalid_argument{std::string{"--variable-update: "} + name_of(chosen_.update) +
                                " is not in this gradus_bench"};
  }

 private:
  template <class Chosen, class Synchronization>
  static step_end make(Chosen& communicator, gradus::cpu& device, trained_parameters trained, const any_rule& rule,
                       const Synchronization& options) {
    using update = gradus::train::detail::step_update<float, gradus::cpu, any_rule, Chosen, Synchronization>;
    auto* const made = new update{device, std::move(trained), rule, communicator, options};
    step_end result{{made, [](gradus::train::detail::synchronized_update* end) { delete static_cast<update*>(end); }},
                    made->description()};
    made->start();
    return result;
  }

  Communicator& communicator_;
  const settings& chosen_;
  bool in_process_;
  gradus::comm::group_of<Communicator> group_;
  gradus::comm::self alone_;
  std::unique_ptr<gradus::comm::collectives<Communicator>> collectives_;
};

}  // namespace driver
