// SPDX-License-Identifier: BSL-1.0
//
// How much a step changes the weights, relative to the weights: a callback that measures some steps.
#pragma once

#include <cmath>        // std::sqrt
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <functional>   // std::function
#include <limits>       // std::numeric_limits
#include <optional>     // std::nullopt, std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/train/detail/state/parameter_table.hpp"
#include "gradus/train/detail/state/plan.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// Euclidean norms of some weights w and of what a step has added to them.
struct update_norms {
  std::string name = {};  ///< of the parameter ("conv1.weight"); empty: of all that are trained
  double weight = 0;      ///< |w| before the step
  double update = 0;      ///< |w after the step - w before it|

  /// update / weight. 0 where nothing has changed; infinite where weights that were all 0 have changed, as biases do in
  /// the first step.
  [[nodiscard]] double ratio() const noexcept {
    if (update == 0) {
      return 0;
    }
    return weight == 0 ? std::numeric_limits<double>::infinity() : update / weight;
  }
};

/// A measured step.
struct update_ratio_report {
  std::uint64_t step = 0;                ///< step_report::step
  update_norms all;                      ///< of all parameters that are trained, together
  std::vector<update_norms> parameters;  ///< of each, in the order of network::parameters(): the last layer first
};

/// The report as a table: a line for all parameters, and one for each.
[[nodiscard]] inline std::string to_string(const update_ratio_report& report) {
  std::string text;
  const auto append_line = [&](const char* indent, const update_norms& norms, const std::string& name) {
    char numbers[100];
    format_text(numbers, sizeof(numbers), "%sratio %8.2e = %8.2e / %8.2e  ", indent, norms.ratio(), norms.update,
                norms.weight);
    append_text(text, {numbers, name, "\n"});
  };
  append_line("", report.all, gradus::join({"step ", report.step}));
  for (const update_norms& each : report.parameters) {
    append_line("  ", each, each.name);
  }
  return text;
}

/// Options of train::update_ratio. `every` is the same on all ranks.
struct update_ratio_options {
  std::uint64_t every = 100;  ///< measures each step whose number, from 1, is a multiple of this; at least 1
  /// Called after each measured step, on all ranks; null: see update_ratio::last.
  std::function<void(const update_ratio_report&)> on_measured = {};
};

/// A callback that measures the ratio of the update to the weights, |w' - w| / |w|, in some steps: about 1e-3 is usual
/// for a learning rate that fits (Karpathy, CS231n: "Neural networks part 3", ratio of weights:updates). The update is
/// what the step does to the weights, with momentum, weight decay and clipping.
///
///   train::update_ratio ratios{{.every = 100, .on_measured = [](const train::update_ratio_report& report) {
///                                 std::fputs(train::to_string(report).c_str(), stdout);
///                               }}};
///   trainer.fit(loader, {.epochs = 10}, ratios);
///
/// The weights are those that the rule updates: in float where the network has 16 bits, and without frozen layers. With
/// strategies that keep the weights of all ranks the same, all ranks measure the same bits, and those of one process up
/// to rounding. With model_averaging and servers that are not synchronous, each rank measures its own weights.
///
/// It copies the weights before a measured step, and reads both afterwards, with sums in double: on a GPU the weights
/// are copied to the host twice. An update that is put off (overlap_forward) is completed at once after a measured step
/// and the step before; values that are staged (parameter_server::staged) arrive there, as for a checkpoint. Other
/// steps cost nothing, and no step but the first measured one allocates memory. A step that begins a fit is not
/// measured: `every = 1` begins with the second.
class update_ratio {
 public:
  /// @throws configuration_error if options.every is 0
  explicit update_ratio(update_ratio_options options = {}, error_location where = error_location::current())
      : options_{std::move(options)}, where_{where} {
    if (options_.every == 0) {
      raise<configuration_error>("update_ratio", "every of at least 1 step", {options_.every}, {}, where);
    }
  }

  /// The last measured step of this object, the same on all ranks; null before there is one.
  [[nodiscard]] const update_ratio_report* last() const noexcept { return measured_ ? &report_ : nullptr; }

  /// The weights may have changed since the last fit.
  void on_start(const run_information& /*run*/) {
    copied_for_ = std::nullopt;
    compared_ = false;
  }

  /// Measures the step, or copies the weights for the next one.
  /// @throws configuration_error if ranks have another `every`
  template <class Trainer>
  void on_step(Trainer& trainer, const step_report& step) {
    if (!compared_) {
      compare(trainer);
    }
    const bool measures = copied_for_ == step.step;
    const bool copies = (step.step + 2) % options_.every == 0;
    if (!measures && !copies) {
      return;
    }
    const auto training = detail::trainer_access::parts_of(trainer);
    training.end->settle();
    if (measures) {
      measure(training, step.step);
    }
    if (copies) {
      take_copy(training, before_);
      copied_for_ = step.step + 1;
    }
  }

 private:
  template <class Trainer>
  void compare(Trainer& trainer) {
    const auto training = detail::trainer_access::parts_of(trainer);
    const comm::property properties[] = {{"every", gradus::join({options_.every})}};
    at_call(where_, [&] { comm::require_agreement(*training.group, "update_ratio", properties); });
    compared_ = true;
  }

  template <class Parts>
  static void take_copy(const Parts& training, std::vector<std::byte>& to) {
    const auto values = training.end->parameters().values;
    to.resize(values.size_bytes());
    training.network->device().copy_to_host(to.data(), values.data(), to.size());
  }

  template <class Parts>
  void measure(const Parts& training, std::uint64_t step) {
    using element = typename Parts::element;
    using device = std::remove_cvref_t<decltype(training.network->device())>;
    const auto& parameters = training.end->parameters();
    const element* after = parameters.values.data();
    if constexpr (!has_host_memory<device>) {
      take_copy(training, after_);
      after = reinterpret_cast<const element*>(after_.data());
    }
    const auto* const before = reinterpret_cast<const element*>(before_.data());
    detail::parameter_table squares;
    for (const optim::segment& own : parameters.flat().segments) {
      double weight = 0;
      double update = 0;
      for (index_t i = own.offset; i < own.offset + own.size; ++i) {
        const auto old = static_cast<double>(before[i]);
        const double change = static_cast<double>(after[i]) - old;
        weight += old * old;
        update += change * change;
      }
      squares.names.push_back(own.name);
      squares.numbers.push_back(weight);
      squares.numbers.push_back(update);
    }
    squares = detail::table_of_network(training, std::move(squares), 2);
    report_.parameters.resize(squares.names.size());
    double weights = 0;
    double updates = 0;
    for (std::size_t k = 0; k < squares.names.size(); ++k) {
      const double weight = squares.numbers[2 * k];
      const double update = squares.numbers[2 * k + 1];
      report_.parameters[k] = {.name = squares.names[k], .weight = std::sqrt(weight), .update = std::sqrt(update)};
      weights += weight;
      updates += update;
    }
    report_.step = step;
    report_.all.weight = std::sqrt(weights);
    report_.all.update = std::sqrt(updates);
    measured_ = true;
    if (options_.on_measured) {
      options_.on_measured(report_);
    }
  }

  update_ratio_options options_;
  error_location where_;
  bool compared_ = false;                    // the options, between ranks
  bool measured_ = false;                    // a step
  std::optional<std::uint64_t> copied_for_;  // the step before which before_ was copied
  std::vector<std::byte> before_;
  std::vector<std::byte> after_;  // on a GPU
  update_ratio_report report_;
};

}  // namespace gradus::train
