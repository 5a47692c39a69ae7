// SPDX-License-Identifier: BSL-1.0
//
// The ends of a step for one communicator: included by one file for each, which compile side by side.
#pragma once

#include <stdexcept>
#include <utility>

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/parallel/hosts.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/roles.hpp"
#include "gradus/trace/timeline.hpp"
#include "servers.hpp"
#include "update.hpp"

namespace driver {

template <class Communicator>
class ranks_on final : public ranks {
 public:
  /// Called by all ranks.
  /// @param in_process  whether all ranks are in this process
  /// @throws gradus::configuration_error when there are not enough ranks for servers and workers
  ranks_on(Communicator& communicator, const settings& chosen, bool in_process)
      : communicator_{communicator}, chosen_{chosen}, in_process_{in_process}, group_{communicator} {
    if (uses_servers(chosen.update)) {
      roles_ = gradus::parallel::roles_of(communicator.size(), chosen.servers, chosen.colocate_servers);
    }
    if (chosen.update == variable_update::distributed_replicated) {
      const std::vector<std::string> hosts =
          gradus::parallel::gather_host_names(group_, gradus::trace::detail::host_name());
      node_of_rank_ = gradus::parallel::nodes_of(hosts);
    }
  }

  gradus::comm::any_group& group() override { return group_; }
  gradus::data::shard place() const override {
    if (chosen_.update == variable_update::independent) {
      return {.rank = 0, .ranks = 1};
    }
    return roles_.workers.empty() ? gradus::data::shard{.rank = communicator_.rank(), .ranks = communicator_.size()}
                                  : gradus::data::shard{.rank = roles_.worker_index(communicator_.rank()),
                                                        .ranks = static_cast<int>(roles_.workers.size())};
  }

  bool serve(const any_rule& rule) override {
    if (place().rank >= 0) {
      return false;
    }
    serve_to_the_end(communicator_, chosen_, node_of_rank_, rule);
    return true;
  }

  step_end make_step_end(gradus::cpu& device, trained_parameters trained, const any_rule& rule,
                         const transfer_plan& plan) override {
    switch (chosen_.update) {
      case variable_update::independent:
        return make_independent_end(device, std::move(trained), rule);
      case variable_update::parameter_server:
      case variable_update::distributed_replicated:
        return make_server_end(communicator_, chosen_, node_of_rank_, device, std::move(trained), rule, plan);
      case variable_update::model_averaging:
        return make_end(communicator_, device, std::move(trained), rule,
                        gradus::parallel::model_averaging{.every_steps = chosen_.average_every});
      case variable_update::replicated:
        if (!in_process_) {
          throw std::invalid_argument{
              "--variable-update: replicated is for ranks in one process (--ranks N); under mpiexec use all_reduce"};
        }
        break;
      case variable_update::all_reduce:
        break;
    }
    if (chosen_.all_reduce_spec.empty()) {
      return make_end(communicator_, device, std::move(trained), rule, plan.gradients,
                      &communicator_.recorder().spans());
    }
    collectives_ = std::make_unique<gradus::comm::collectives<Communicator>>(
        communicator_.duplicate(),
        gradus::comm::collectives_options{.all_reduce = gradus::comm::parse_all_reduce_spec(chosen_.all_reduce_spec)});
    return make_end(*collectives_, device, std::move(trained), rule, plan.gradients, &communicator_.recorder().spans());
  }

 private:
  Communicator& communicator_;
  const settings& chosen_;
  bool in_process_;
  gradus::comm::group_of<Communicator> group_;
  gradus::parallel::roles roles_;  // with servers
  std::vector<int> node_of_rank_;  // of distributed_replicated
  std::unique_ptr<gradus::comm::collectives<Communicator>> collectives_;
};

}  // namespace driver
