// SPDX-License-Identifier: BSL-1.0
//
// The learning-rate schedules of the library.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cmath>        // std::ceil, std::cos, std::pow
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <numbers>      // std::numbers::pi
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/optim/training_time.hpp"

namespace gradus::optim {

/// rates[i] from boundaries[i - 1] (or the start) to boundaries[i] (or the end); boundaries are in epochs.
struct piecewise {
  std::vector<double> rates;       ///< one more than boundaries, each at least 0
  std::vector<double> boundaries;  ///< in epochs, increasing

  /// The learning rate at this epoch.
  [[nodiscard]] double operator()(double epoch) const noexcept {
    return rate([epoch](double boundary) { return epoch >= boundary; });
  }
  /// The learning rate of the next step.
  [[nodiscard]] double at(const training_time& time) const noexcept {
    return rate([&time](double boundary) { return time.reached(boundary); });
  }
  /// @throws configuration_error if there is not one rate more than boundaries, or boundaries do not increase
  void check() const;
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const;

 private:
  template <class Reached>
  [[nodiscard]] double rate(const Reached& reached) const noexcept {
    std::size_t i = 0;
    while (i < boundaries.size() && reached(boundaries[i])) {
      ++i;
    }
    return rates[i];
  }
};

/// `initial`, multiplied by `factor` at each boundary (in epochs), as in most published recipes.
struct steps {
  double initial = 0.1;                           ///< the rate before the first boundary
  double factor = 0.1;                            ///< factor at each boundary
  std::vector<double> boundaries = {30, 60, 80};  ///< in epochs

  /// The learning rate at this epoch.
  [[nodiscard]] double operator()(double epoch) const noexcept {
    return rate([epoch](double boundary) { return epoch >= boundary; });
  }
  /// The learning rate of the next step.
  [[nodiscard]] double at(const training_time& time) const noexcept {
    return rate([&time](double boundary) { return time.reached(boundary); });
  }
  /// @throws configuration_error if a value is negative or not finite
  void check() const;
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const;

 private:
  template <class Reached>
  [[nodiscard]] double rate(const Reached& reached) const noexcept {
    double result = initial;
    for (const double boundary : boundaries) {
      result *= reached(boundary) ? factor : 1.0;
    }
    return result;
  }
};

/// Half a cosine from `initial` at epoch 0 to `final` at `epochs`, then `final` (Loshchilov, Hutter 2017, equation 5,
/// without restarts).
struct cosine {
  double initial = 0.1;  ///< the rate at epoch 0
  double epochs = 90;    ///< length of the cosine
  double final = 0;      ///< the rate from then on

  /// The learning rate at this epoch.
  [[nodiscard]] double operator()(double epoch) const noexcept {
    const double done = std::min(epoch / epochs, 1.0);
    return final + (initial - final) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  }
  /// @throws configuration_error if a value is invalid
  void check() const {
    detail::require_rate("cosine", "initial rate", initial);
    detail::require_rate("cosine", "final rate", final);
    detail::require_epochs("cosine", epochs);
  }
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const { return detail::describe("cosine", {initial, epochs, final}); }
};

/// final + (initial - final) * (1 - epoch / epochs)^power, and `final` after `epochs`. Power 1 is a straight line.
struct polynomial {
  double initial = 0.1;  ///< the rate at epoch 0
  double epochs = 90;    ///< length of the curve
  double power = 2;      ///< 1: a straight line
  double final = 0;      ///< the rate from then on

  /// The learning rate at this epoch.
  [[nodiscard]] double operator()(double epoch) const noexcept {
    const double left = 1.0 - std::min(epoch / epochs, 1.0);
    return final + (initial - final) * std::pow(left, power);
  }
  /// @throws configuration_error if a value is invalid
  void check() const;
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const {
    return detail::describe("polynomial", {initial, epochs, power, final});
  }
};

/// initial * factor^(epoch / every), at least `minimum`; with `staircase` the exponent is rounded down.
struct exponential {
  double initial = 0.1;   ///< the rate at epoch 0
  double factor = 0.94;   ///< factor for each `every` epochs
  double every = 1;       ///< epochs
  double minimum = 0;     ///< lower limit of the rate
  bool staircase = true;  ///< round the exponent down

  /// The learning rate at this epoch.
  [[nodiscard]] double operator()(double epoch) const noexcept {
    return rate(staircase ? training_time::whole_times(epoch, every) : epoch / every);
  }
  /// The learning rate of the next step.
  [[nodiscard]] double at(const training_time& time) const noexcept {
    return rate(staircase ? time.times(every) : static_cast<double>(time.step) / time.steps_of(every));
  }
  /// @throws configuration_error if a value is invalid
  void check() const {
    detail::require_rate("exponential", "initial rate", initial);
    detail::require_rate("exponential", "factor", factor);
    detail::require_rate("exponential", "minimum rate", minimum);
    detail::require_epochs("exponential", every);
  }
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const {
    return detail::describe("exponential", {initial, factor, every, minimum, staircase ? 1.0 : 0.0});
  }

 private:
  [[nodiscard]] double rate(double exponent) const noexcept {
    return std::max(minimum, initial * std::pow(factor, exponent));
  }
};

/// How one_cycle goes from one rate to the next.
enum class annealing : unsigned char { cosine, linear };

/// One cycle: from maximum / div_factor up to `maximum`, and down to maximum / div_factor / final_div_factor; then that
/// rate. In a training the last step of `epochs` has the last rate, and the last step of the rise the maximum: the
/// rates of OneCycleLR with total_steps = epochs * steps_per_epoch, step by step. Smith, Topin: "Super-convergence",
/// 2018; with two phases and a cosine as in fastai and torch.optim.lr_scheduler.OneCycleLR, whose defaults these are.
struct one_cycle {
  double maximum = 0.1;                  ///< the rate at rising * epochs
  double epochs = 30;                    ///< length of the cycle
  double rising = 0.3;                   ///< in (0, 1): share of the cycle in which the rate rises
  double div_factor = 25;                ///< above 0: maximum / rate at epoch 0
  double final_div_factor = 1e4;         ///< above 0: rate at epoch 0 / rate at the end
  annealing anneal = annealing::cosine;  ///< half a cosine, or a straight line, from each rate to the next
  /// Smith's form: falls to the rate of epoch 0 as long as it rises, and then to the last rate; `rising` is below 0.5
  bool three_phase = false;

  /// The learning rate at this epoch.
  [[nodiscard]] double operator()(double epoch) const noexcept {
    const double peak = rising * epochs;
    return rate(epoch, peak, 2 * peak, epochs);
  }
  /// The learning rate of the next step.
  [[nodiscard]] double at(const training_time& time) const noexcept {
    const double all = time.steps_of(epochs);
    const double peak = rising * all;
    return rate(static_cast<double>(time.step), peak - 1, 2 * peak - 2, all - 1);
  }
  /// @throws configuration_error if a value is invalid
  void check() const;
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const {
    return detail::describe("one_cycle", {maximum, epochs, rising, div_factor, final_div_factor,
                                          anneal == annealing::linear ? 1.0 : 0.0, three_phase ? 1.0 : 0.0});
  }

 private:
  /// @param peak  when the rate is the maximum; `back` when it is the first one again, where there are three phases
  [[nodiscard]] double rate(double now, double peak, double back, double end) const noexcept;
  [[nodiscard]] double between(double from, double to, double done) const noexcept {
    const double share = std::min(done, 1.0);
    return anneal == annealing::linear ? from + (to - from) * share
                                       : to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
  }
};

/// A straight line from `start` at epoch 0 to then(epochs) at `epochs`, and `then` after that. Epochs count from the
/// start of training, also for `then`.
///
/// Goyal et al. 2017 (section 2.2): for k times the batch of a reference recipe with rate r, start at r and warm up
/// over 5 epochs to k * r. A start of 0 is usual too.
struct warm_up {
  double start = 0;     ///< the rate at epoch 0
  double epochs = 5;    ///< length of the warm-up
  schedule then = 0.1;  ///< the schedule after the warm-up

  /// The learning rate at this epoch.
  [[nodiscard]] double operator()(double epoch) const {
    if (epoch >= epochs) {
      return then(epoch);
    }
    return start + (then(epochs) - start) * (epoch / epochs);
  }
  /// The learning rate of the next step.
  [[nodiscard]] double at(const training_time& time) const;
  /// @throws configuration_error if a value is invalid
  void check() const {
    detail::require_rate("warm_up", "start rate", start);
    detail::require_epochs("warm_up", epochs);
  }
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const {
    return gradus::join({detail::describe("warm_up", {start, epochs}), " then ", then.description()});
  }
};

/// The rate for `batch` images, proportional to the rate `reference` that is right for `reference_batch` images (Goyal
/// et al. 2017, section 2.1). Rates above the reference need a warm-up.
[[nodiscard]] double linearly_scaled(double reference, double reference_batch, double batch,
                                     error_location where = error_location::current());

}  // namespace gradus::optim

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::optim {

GRADUS_INLINE void piecewise::check() const {
  if (rates.size() != boundaries.size() + 1) {
    raise<configuration_error>("piecewise", "one rate more than boundaries",
                               {rates.size(), " rates and ", boundaries.size(), " boundaries"},
                               "rates[i] holds before boundaries[i], and the last rate after the last boundary");
  }
  for (const double rate : rates) {
    detail::require_rate("piecewise", "rate", rate);
  }
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    if (!(boundaries[i] > (i == 0 ? 0.0 : boundaries[i - 1])) || !is_finite(boundaries[i])) {
      raise<configuration_error>("piecewise", "boundaries above 0 that increase", {boundaries[i]});
    }
  }
}

GRADUS_INLINE std::string piecewise::description() const {
  std::string text = detail::describe("piecewise", {rates.front()});
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    text += detail::describe(" then", {boundaries[i], rates[i + 1]});
  }
  return text;
}

GRADUS_INLINE void steps::check() const {
  detail::require_rate("steps", "initial rate", initial);
  detail::require_rate("steps", "factor", factor);
  for (const double boundary : boundaries) {
    detail::require_epochs("steps", boundary);
  }
}

GRADUS_INLINE std::string steps::description() const {
  std::string text = detail::describe("steps", {initial, factor});
  for (const double boundary : boundaries) {
    text += detail::describe(" at", {boundary});
  }
  return text;
}

GRADUS_INLINE void polynomial::check() const {
  detail::require_rate("polynomial", "initial rate", initial);
  detail::require_rate("polynomial", "final rate", final);
  detail::require_epochs("polynomial", epochs);
  if (!(power > 0.0) || !is_finite(power)) {
    raise<configuration_error>("polynomial", "a finite power above 0", {power});
  }
}

GRADUS_INLINE void one_cycle::check() const {
  detail::require_rate("one_cycle", "maximum rate", maximum);
  detail::require_epochs("one_cycle", epochs);
  if (!(rising > 0.0) || !(rising < (three_phase ? 0.5 : 1.0))) {
    raise<configuration_error>("one_cycle", "a rising share above 0 and below 1, or 0.5 with three_phase",
                               {"rising = ", rising}, "0.3 is the usual value");
  }
  for (const double factor : {div_factor, final_div_factor}) {
    if (!(factor > 0.0) || !is_finite(factor)) {
      raise<configuration_error>("one_cycle", "a finite div_factor and final_div_factor above 0", {factor},
                                 "25 and 10000 are the usual values");
    }
  }
}

GRADUS_INLINE double one_cycle::rate(double now, double peak, double back, double end) const noexcept {
  const double first = maximum / div_factor;
  const double last = first / final_div_factor;
  if (now >= end) {
    return last;
  }
  if (now < peak) {
    return between(first, maximum, now / peak);
  }
  if (!three_phase) {
    return between(maximum, last, (now - peak) / (end - peak));
  }
  return now < back ? between(maximum, first, (now - peak) / (back - peak))
                    : between(first, last, (now - back) / (end - back));
}

GRADUS_INLINE double warm_up::at(const training_time& time) const {
  const double end = time.steps_of(epochs);
  if (static_cast<double>(time.step) >= end) {
    return then.at(time);
  }
  const double reached =
      then.at({.step = static_cast<std::uint64_t>(std::ceil(end)), .steps_per_epoch = time.steps_per_epoch});
  return start + (reached - start) * (static_cast<double>(time.step) / end);
}

GRADUS_INLINE double linearly_scaled(double reference, double reference_batch, double batch, error_location where) {
  return at_call(where, [&] {
    detail::require_rate("linearly_scaled", "reference rate", reference);
    if (!(reference_batch > 0.0) || !(batch > 0.0)) {
      raise<configuration_error>("linearly_scaled", "batches above 0", {reference_batch, " and ", batch});
    }
    return reference * batch / reference_batch;
  });
}

}  // namespace gradus::optim
#endif
