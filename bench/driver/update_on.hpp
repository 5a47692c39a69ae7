// SPDX-License-Identifier: BSL-1.0
//
// The ends of a step for one communicator: included by one file for each, which compile side by side.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/hybrid.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/parameter_server/hosts.hpp"
#include "gradus/parallel/parameter_server/roles.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/trace/timeline.hpp"
#include "gradus/trace/transfers.hpp"
#include "servers_on.hpp"
#include "update.hpp"

namespace driver {

/// The functions of a device that a rank needs besides those that the library requires.
template <class Device>
struct device_of;

template <>
struct device_of<gradus::cpu> {
  static std::unique_ptr<training> make_training(const settings& chosen, gradus::cpu& device, const input_set& input,
                                                 const batches& plan, gradus::trace::recorder& recorder) {
    return driver::make_training(chosen, device, input, plan, recorder);
  }
  static std::unique_ptr<device_marks> make_marks(gradus::cpu& /*device*/) { return nullptr; }
  static int threads(const gradus::cpu& device) { return device.threads(); }
  static std::uint64_t peak_memory(const gradus::cpu& /*device*/) { return 0; }
};

/// Ranks that reduce in levels have one algorithm, and take part in no mode with servers.
template <class Communicator>
inline constexpr bool in_levels = false;

/// With a device that is not a cpu, ranks sum their gradients or share their updates, by the communicator's own
/// collectives, or are independent.
template <class Communicator, class Device, class Hosts>
class ranks_on final : public ranks {
  static constexpr bool on_host = std::is_same_v<Device, gradus::cpu>;
  static constexpr bool has_servers = on_host && !in_levels<Communicator>;

 public:
  /// Called by all ranks.
  /// @param world       the same ranks, for memory of the host
  /// @param in_process  whether all ranks are in this process
  /// @throws gradus::configuration_error when there are not enough ranks for servers and workers
  ranks_on(Communicator& communicator, Hosts& world, Device& device, const settings& chosen, bool in_process)
      : communicator_{communicator},
        world_{world},
        device_{device},
        chosen_{chosen},
        in_process_{in_process},
        group_{communicator},
        marks_{device_of<Device>::make_marks(device)} {
    if (uses_servers(chosen.update)) {
      roles_ = gradus::parallel::roles_of(communicator.size(), chosen.servers, chosen.colocate_servers);
    }
    if (chosen.update == variable_update::hybrid) {
      require_whole_replicas(chosen, communicator.size());
    }
    if (chosen.update == variable_update::distributed_replicated) {
      node_of_rank_ = gradus::comm::nodes_of_ranks(communicator);
    }
  }

  gradus::comm::link& group() override { return group_; }
  gradus::data::shard shard() const override {
    if (chosen_.update == variable_update::independent) {
      return {.rank = 0, .ranks = 1};
    }
    if (chosen_.update == variable_update::hybrid) {
      return {.rank = communicator_.rank() / chosen_.stages, .ranks = communicator_.size() / chosen_.stages};
    }
    return roles_.workers.empty() ? gradus::data::shard{.rank = communicator_.rank(), .ranks = communicator_.size()}
                                  : gradus::data::shard{.rank = roles_.worker_index(communicator_.rank()),
                                                        .ranks = static_cast<int>(roles_.workers.size())};
  }

  bool serve() override {
    if (shard().rank >= 0) {
      return false;
    }
    if constexpr (has_servers) {
      serve_to_the_end(communicator_, chosen_, node_of_rank_, *make_rule(chosen_, device_, 0));
    }
    return true;
  }

  std::unique_ptr<training> make_training(const settings& chosen, const input_set& input, const batches& plan,
                                          gradus::trace::recorder& recorder) override {
    return device_of<Device>::make_training(chosen, device_, input, plan, recorder);
  }

  gradus::parallel::network_stages compile_stages(training& trained) override {
    return trained.compile_stages(pipeline_options(chosen_), communicator_);
  }

  std::unique_ptr<step_parts> make_optimizer_step(trained_parameters trained, const transfer_plan& plan) override {
    const auto end_with = [&](auto& communicator, gradus::comm::link& all, const auto& strategy) {
      return make_end(communicator, all, device_, std::move(trained), chosen_, strategy);
    };
    if (chosen_.update == variable_update::independent) {
      gradus::trace::recorder& recorder = communicator_.recorder().spans();
      alone_ = std::make_unique<alone>(gradus::comm::self{}, std::make_shared<gradus::trace::transfers>(recorder));
      group_alone_.emplace(*alone_);
      return end_with(*alone_, *group_alone_, gradus::parallel::all_reduce{});
    }
    if (chosen_.update == variable_update::replicated && !in_process_) {
      throw std::invalid_argument{
          "--variable-update: replicated is for ranks in one process (--ranks N); under mpiexec use all_reduce"};
    }
    if constexpr (has_servers) {
      if (uses_servers(chosen_.update)) {
        return with_servers(chosen_, node_of_rank_, plan.pull_priorities,
                            [&](const auto& options) { return end_with(communicator_, group_, options); });
      }
      if (!chosen_.all_reduce_spec.empty() && chosen_.all_reduce_spec != levels_spec) {  // one rank has no levels
        collectives_ = std::make_unique<gradus::comm::collectives<Communicator>>(
            communicator_.duplicate(), gradus::comm::collectives_options{
                                           .all_reduce = gradus::comm::parse_all_reduce_spec(chosen_.all_reduce_spec),
                                           .node_of_rank = gradus::comm::nodes_of_ranks(communicator_)});
        return end_with(*collectives_, group_, plan.gradients);
      }
    }
    if constexpr (on_host && !in_levels<Communicator>) {
      if (chosen_.update == variable_update::compressed_all_reduce) {
        if (chosen_.compression == "int8") {
          using gradus::parallel::int8_blocks;
          return end_with(communicator_, group_, gradus::parallel::compressed_all_reduce<int8_blocks>{plan.gradients});
        }
        if (chosen_.compression == "float16") {
          return end_with(communicator_, group_,
                          gradus::parallel::compressed_all_reduce<gradus::float16>{plan.gradients});
        }
        return end_with(communicator_, group_, gradus::parallel::compressed_all_reduce<>{plan.gradients});
      }
    }
    if (chosen_.update == variable_update::hybrid) {
      gradus::parallel::hybrid options = pipeline_options(chosen_);
      options.gradients = plan.gradients;
      return end_with(communicator_, group_, options);
    }
    if constexpr (on_host) {
      if (chosen_.update == variable_update::model_averaging) {
        return end_with(communicator_, group_, averaging_of(chosen_));
      }
    }
    if (chosen_.update == variable_update::sharded_update) {
      return end_with(communicator_, group_,
                      gradus::parallel::sharded_update{.bucket_bytes = plan.gradients.bucket_bytes,
                                                       .first_bucket_bytes = plan.gradients.first_bucket_bytes});
    }
    return end_with(communicator_, group_, plan.gradients);
  }

  void write_behind(gradus::train::checkpoints& saves) override {
    if (chosen_.update == variable_update::independent) {
      saves.write_behind(self_);
    } else {
      saves.write_behind(world_);
    }
  }

  int threads() const override { return device_of<Device>::threads(device_); }
  device_marks* marks() override { return marks_.get(); }
  std::uint64_t peak_device_memory() const override { return device_of<Device>::peak_memory(device_); }

 private:
  using alone = gradus::comm::recorded<gradus::comm::self, gradus::trace::transfers>;

  Communicator& communicator_;
  Hosts& world_;
  Device& device_;
  const settings& chosen_;
  bool in_process_;
  gradus::comm::link_of<Communicator> group_;
  gradus::parallel::roles roles_;                                         // with servers
  std::vector<int> node_of_rank_;                                         // of distributed_replicated
  std::unique_ptr<gradus::comm::collectives<Communicator>> collectives_;  // on the host
  gradus::comm::self self_;                                               // of an independent rank
  std::unique_ptr<alone> alone_;                                          // of an independent rank
  std::optional<gradus::comm::link_of<alone>> group_alone_;               // likewise
  std::unique_ptr<device_marks> marks_;
};

}  // namespace driver
