// SPDX-License-Identifier: BSL-1.0
//
// The norms of the gradients: a callback that measures some steps, under every strategy and update rule.
#pragma once

#include <cmath>        // std::sqrt
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <functional>   // std::function
#include <optional>     // std::nullopt, std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <type_traits>  // std::is_same_v, std::remove_cvref_t
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/gradient_norm.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/train/detail/state/parameter_table.hpp"
#include "gradus/train/detail/state/plan.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

/// The Euclidean norm of the gradient of a parameter.
struct parameter_gradient_norm {
  std::string name = {};  ///< of the parameter: "conv1.weight"
  double norm = 0;        ///< |dL/dw|
};

/// A measured step.
struct gradient_norms_report {
  std::uint64_t step = 0;  ///< step_report::step
  double all = 0;          ///< of the gradients of all parameters that are trained, together
  std::vector<parameter_gradient_norm>
      parameters;  ///< of each, in the order of network::parameters(): last layer first
};

/// The report as a table: a line for all parameters, and one for each.
[[nodiscard]] inline std::string to_string(const gradient_norms_report& report) {
  std::string text;
  const auto append_line = [&](const char* indent, double norm, const std::string& name) {
    char number[50];
    format_text(number, sizeof(number), "%sgradient norm %8.2e  ", indent, norm);
    append_text(text, {number, name, "\n"});
  };
  append_line("", report.all, gradus::join({"step ", report.step}));
  for (const parameter_gradient_norm& each : report.parameters) {
    append_line("  ", each.norm, each.name);
  }
  return text;
}

/// Options of train::gradient_norms. `every` is the same on all ranks.
struct gradient_norms_options {
  std::uint64_t every = 100;  ///< measures each step whose number, from 1, is a multiple of this; at least 1
  /// Called after each measured step, on all ranks; null: see gradient_norms::last.
  std::function<void(const gradient_norms_report&)> on_measured = {};
};

/// A callback that measures the norm of the gradients in some steps, whether or not the update rule clips by it.
///
///   train::gradient_norms norms{{.every = 100, .on_measured = [](const train::gradient_norms_report& report) {
///                                  std::fputs(train::to_string(report).c_str(), stdout);
///                                }}};
///   trainer.fit(loader, {.epochs = 10}, norms);
///
/// The gradient is the one that the update used, that of the mean loss over the global batch, before it is clipped and
/// without weight decay. Gradients of a loss that is scaled are divided by the scale; in a step that is
/// skipped the norm is infinite or NaN. Frozen layers are left out. Which gradient it is depends on the strategy:
///
///   strategy                                        | norm of the gradient of the mean loss over
///   all_reduce, sharded_update, reproducible        | the global batch; the same bits on all ranks
///   compressed_all_reduce                           | likewise, of the sums as they were rounded
///   hybrid                                          | likewise, of all stages
///   synchronous parameter_server,                   | likewise
///     distributed_replicated                        |
///   model_averaging                                 | this rank's examples; the global batch in synchronous steps
///   servers that are asynchronous, of bounded       | this worker's own examples, of its own push: servers make an
///     staleness, of the mode compat, or with backup |   update of it, or drop it where there are backup workers; with
///     workers                                       |   distributed_replicated those of its node
///
/// The last two take the ranks' shares of a batch as equal. A strategy of the program that updates parts or on servers
/// overrides strategy::gather_gradients; otherwise the first measured step throws.
///
/// A measured step reads the gradients once, with sums in double. Where a rank does not have the sums of all, it gets
/// them: with sharded_update over messages by one gathering, with synchronous servers as it pulls values, with hybrid
/// by a sum of one number of each parameter. On a GPU the gradients are copied to the host. An update that is put off
/// (overlap_forward) is completed at once, and staged values arrive, as for a checkpoint. Other steps cost nothing.
/// Where the loss is scaled a step that begins a fit is not measured.
class gradient_norms {
 public:
  /// @throws configuration_error if options.every is 0
  explicit gradient_norms(gradient_norms_options options = {}, error_location where = error_location::current())
      : options_{std::move(options)}, where_{where} {
    if (options_.every == 0) {
      raise<configuration_error>("gradient_norms", "every of at least 1 step", {options_.every}, {}, where);
    }
  }

  /// The last measured step of this object; null before there is one.
  [[nodiscard]] const gradient_norms_report* last() const noexcept { return measured_ ? &report_ : nullptr; }

  /// The scale of the loss may have changed since the last fit.
  void on_start(const run_information& /*run*/) {
    scaled_step_ = std::nullopt;
    compared_ = false;
  }

  /// Measures the step, or notes the scale of the next one's loss.
  /// @throws configuration_error if ranks have another `every`, or the strategy cannot give the gradients
  template <class Trainer>
  void on_step(Trainer& trainer, const step_report& step) {
    const auto training = detail::trainer_access::parts_of(trainer);
    if (!compared_) {
      const comm::property properties[] = {{"every", gradus::join({options_.every})}};
      at_call(where_, [&] { comm::require_agreement(*training.group, "gradient_norms", properties); });
      compared_ = true;
    }
    auto& rule = training.end->rule();
    if ((step.step + 1) % options_.every == 0 && (!rule.scales_loss() || scaled_step_ == step.step)) {
      at_call(where_, [&, this] { this->measure(training, step.step); });
    }
    if (rule.scales_loss() && (step.step + 2) % options_.every == 0) {  // the scale is that of the next step
      scale_ = rule.report()->scale;
      scaled_step_ = step.step + 1;
    }
  }

 private:
  template <class Parts>
  void measure(const Parts& training, std::uint64_t step) {
    using element = typename Parts::element;
    using device = std::remove_cvref_t<decltype(training.network->device())>;
    training.end->settle();
    const double factor = training.end->strategy().gather_gradients() / scale_;
    const auto parameters = training.end->parameters().flat();
    detail::parameter_table squares;
    if constexpr (std::is_same_v<device, cpu>) {
      squares = squares_of<element>(training.network->device(), parameters.segments, parameters.gradients.data());
    } else {
      const element* gradients = parameters.gradients.data();
      if constexpr (!has_host_memory<device>) {
        copy_.resize(parameters.gradients.size_bytes());
        training.network->device().copy_to_host(copy_.data(), gradients, copy_.size());
        gradients = reinterpret_cast<const element*>(copy_.data());
      }
      cpu host{{.intra_op_threads = 1}};
      squares = squares_of<element>(host, parameters.segments, gradients);
    }
    squares = detail::table_of_network(training, std::move(squares), 1);
    report_.step = step;
    report_.parameters.resize(squares.names.size());
    double all = 0;
    for (std::size_t k = 0; k < squares.names.size(); ++k) {
      report_.parameters[k] = {.name = squares.names[k], .norm = std::sqrt(squares.numbers[k]) * factor};
      all += squares.numbers[k];
    }
    report_.all = std::sqrt(all) * factor;
    measured_ = true;
    if (options_.on_measured) {
      options_.on_measured(report_);
    }
  }

  template <class Element>
  static detail::parameter_table squares_of(cpu& device, std::span<const optim::segment> segments,
                                            const Element* gradients) {
    detail::parameter_table squares;
    for (std::size_t k = 0; k < segments.size(); ++k) {
      squares.names.push_back(segments[k].name);
      double sum = 0;
      optim::add_squares(device, segments.subspan(k, 1), gradients, &sum);
      squares.numbers.push_back(sum);
    }
    return squares;
  }

  gradient_norms_options options_;
  error_location where_;
  bool compared_ = false;                     // the options, between ranks
  bool measured_ = false;                     // a step
  double scale_ = 1;                          // of the loss of the step
  std::optional<std::uint64_t> scaled_step_;  // whose loss has this scale
  std::vector<std::byte> copy_;               // on a GPU
  gradient_norms_report report_;
};

}  // namespace gradus::train
