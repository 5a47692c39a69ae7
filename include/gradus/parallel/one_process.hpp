// SPDX-License-Identifier: BSL-1.0
//
// The strategy of a training in one process: there is nothing to bring together.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/any_communicator.hpp"
#include "gradus/core/error.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel {

/// The gradients of the process are those of the update. The strategy of trainers over comm::self unless they are given
/// another one; any other strategy does the same there, and can do more.
struct one_process {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "one_process";

  /// What the process does with its gradients; see gradient_strategy.
  template <class Element>
  class state final : public strategy<Element> {
   public:
    /// @throws configuration_error if there are several ranks
    state(const one_process& /*options*/, const comm::any_communicator& ranks,
          const flat_parameters<Element>& parameters)
        : parameters_{parameters} {
      if (ranks.size() != 1) {
        raise<configuration_error>("parallel::one_process", "one rank", {ranks.size(), " ranks"},
                                   "train with parallel::all_reduce");
      }
    }

    /// Nothing to make equal.
    void start() override {}
    /// Calls update(segments) for all parameters.
    void finish(const update_call& update) override { update(parameters_.segments); }
    [[nodiscard]] std::string describe() const override { return std::string{name}; }

   private:
    flat_parameters<Element> parameters_;
  };
};
static_assert(gradient_strategy<one_process>);

}  // namespace gradus::parallel

GRADUS_COMPILED_STRATEGY(::gradus::parallel::one_process)
