// SPDX-License-Identifier: BSL-1.0
//
// The arguments of fit and of loaders, checked so that all ranks throw if one does. Compiled once, as the loop is.
#pragma once

#include <exception>    // std::exception
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/train/detail/trainer/target_check.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train::detail {

/// The property that begins what fit compares between ranks: arguments that it takes.
inline constexpr const char* valid_arguments = "valid ones";

/// This rank refuses arguments: it takes part in the comparison that the other ranks make next, so that they throw an
/// error with its reason, and the communicator goes on working.
inline void refuse(comm::link& group, std::string_view operation, std::span<const comm::property> reason) {
  try {
    comm::require_agreement(group, operation, reason);
  } catch (const error&) {  // this rank throws its own
  }
}

/// The same for the arguments of fit.
inline void refuse_fit(comm::link& group, std::string_view reason) {
  const comm::property properties[] = {{"arguments", std::string{reason}}};
  refuse(group, "trainer.fit", properties);
}

/// The other ranks get the reason, wherever they are.
inline void fail_all(comm::link& group, std::string_view reason) {
  group.fail(reason);
}

/// Calls body(). If it throws, the other ranks throw too.
/// @param refuse  gives them the reason
template <class Body>
void check_on_all(comm::link& group, void (*refuse)(comm::link&, std::string_view), error_location where,
                  const Body& body) {
  try {
    at_call(where, body);
  } catch (const std::exception& failure) {
    refuse(group, failure.what());  // so that no rank waits for this one
    throw;
  }
}

/// Compares what the loader gives with what the network reads, and calls take(loader, part) with the part of each batch
/// that belongs to this rank. It returns the largest number of examples of this rank, or 0.
/// @param refuse  gives the other ranks the reason of an error
void take_shard(comm::link& group, void (*refuse)(comm::link&, std::string_view), const example_check& check,
                index_t (*take)(void* loader, const data::shard& part), void* loader, const data::shard& part,
                error_location where);

/// The parameters of a rank, which other ranks have too.
class any_replicas {
 public:
  /// Called by all ranks. @return  which parameter differs on which ranks; empty if all are equal
  [[nodiscard]] virtual std::string first_difference(comm::link& group) = 0;

 protected:
  ~any_replicas() = default;
};

/// What a training is about: some epochs of a data set, with a learning rate.
struct fit_properties {
  run_information run;
  const optim::schedule& learning_rate;
  const std::string& loader;  // its description
  error_location where;
  any_replicas* replicas = nullptr;  // to compare before the first step
};

/// @param averages  in place of the weights, as trainer.swap_average leaves them
/// @throws configuration_error if it is true
void require_own_weights(std::string_view operation, bool averages, error_location where);

/// @param averages   in place of the weights
/// @param agreement  what the callbacks of all ranks have in common
/// @throws configuration_error when options make no sense, ranks differ, or the network has the averages of its weights
void require_same_fit(comm::link& group, const fit_properties& fit, bool averages, const std::string& agreement);

}  // namespace gradus::train::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train::detail {

GRADUS_COLD GRADUS_INLINE void take_shard(comm::link& group, void (*refuse)(comm::link&, std::string_view),
                                          const example_check& check,
                                          index_t (*take)(void* loader, const data::shard& part), void* loader,
                                          const data::shard& part, error_location where) {
  check_on_all(group, refuse, where, [&] {
    require_examples(check);
    const index_t examples = take(loader, part);
    require_batch_size(check, part.nested ? 0 : examples, part.ranks);
  });
}

GRADUS_INLINE void require_own_weights(std::string_view operation, bool averages, error_location where) {
  if (averages) {
    raise<configuration_error>(operation, "the weights that are trained", "their averages in their place",
                               "call trainer.swap_average() a second time, which brings the weights back", where);
  }
}

GRADUS_INLINE void require_same_fit(comm::link& group, const fit_properties& fit, bool averages,
                                    const std::string& agreement) {
  check_on_all(group, refuse_fit, fit.where, [&] {
    if (fit.run.epochs < 0) {
      raise<configuration_error>("trainer.fit", "epochs of at least 0", {fit.run.epochs});
    }
    require_own_weights("trainer.fit", averages, fit.where);
  });
  const comm::property properties[] = {{"arguments", valid_arguments},
                                       {"epochs", gradus::join({fit.run.epochs})},
                                       {"learning rate", fit.learning_rate.description()},
                                       {"loader", fit.loader},
                                       {"callbacks", agreement.empty() ? "none that ranks compare" : agreement}};
  comm::require_agreement(group, "trainer.fit", properties);
}

}  // namespace gradus::train::detail
#endif
