// SPDX-License-Identifier: BSL-1.0
//
// Learning rates as functions of the epoch: the concept of a schedule, and a class that stores any schedule.
#pragma once

#include <concepts>     // std::convertible_to, std::copy_constructible, std::invocable, std::same_as
#include <memory>       // std::make_shared, std::shared_ptr
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::decay_t, std::is_function_v, std::remove_cvref_t, std::remove_pointer_t
#include <utility>      // std::forward, std::move

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/training_time.hpp"

namespace gradus::optim {

namespace detail {

inline void require_rate(std::string_view schedule_name, std::string_view option, double rate) {
  if (!(rate >= 0.0) || !is_finite(rate)) {
    raise<configuration_error>(schedule_name, {"a finite ", option, " of at least 0"}, {rate},
                               "rates between 0.0001 and 1 are usual for sgd");
  }
}

inline void require_epochs(std::string_view schedule_name, double epochs) {
  if (!(epochs > 0.0) || !is_finite(epochs)) {
    raise<configuration_error>(schedule_name, "a finite number of epochs above 0", {epochs});
  }
}

}  // namespace detail

namespace detail {

/// A function, or an object that has one call operator or can be called with an epoch.
template <class Schedule>
concept may_be_schedule =
    std::is_function_v<std::remove_pointer_t<Schedule>> || std::invocable<Schedule&, double> || requires {
  &Schedule::operator();
};

}  // namespace detail

/// A constant learning rate.
struct constant {
  /// The learning rate, at least 0.
  double rate = 0.01;

  /// Returns `rate` for every epoch.
  [[nodiscard]] double operator()(double /*epoch*/) const noexcept { return rate; }
  /// @throws configuration_error if the rate is negative or not finite
  void check() const { detail::require_rate("constant", "rate", rate); }
  /// A text that identifies this schedule.
  [[nodiscard]] std::string description() const { return detail::describe("constant", {rate}); }
};

/// A learning rate as a function of training time.
///
/// A type Schedule models `learning_rate_schedule` when it is copy constructible and, for a `const Schedule& schedule`,
///   1. `schedule(epoch)` returns the learning rate as a double; `epoch` is the number of passes over the training set
///      so far, with its fraction: 2.5 is the middle of the third epoch. Equal epochs give equal rates.
/// Optional: `schedule.at(time)` returns the rate at a training_time, where the rate depends on whole steps: a training
/// calls it in place of schedule(time.epoch()). `schedule.check()` throws configuration_error for invalid values;
/// `schedule.description()` returns a text that identifies the schedule, which ranks compare before the first step. An
/// optional member that cannot be called for a `const Schedule&` does not compile.
template <class Schedule>
concept learning_rate_schedule = std::copy_constructible<Schedule> && requires(const Schedule& schedule, double epoch) {
  { schedule(epoch) } -> std::convertible_to<double>;
};

/// An optional member of `learning_rate_schedule`: schedule.check().
template <class Schedule>
concept has_schedule_check = requires(const Schedule& schedule) {
  schedule.check();
};
/// An optional member of `learning_rate_schedule`: schedule.description(), a text.
template <class Schedule>
concept has_schedule_description = requires(const Schedule& schedule) {
  std::string{schedule.description()};
};

/// An optional member of `learning_rate_schedule`: schedule.at(time), a rate.
template <class Schedule>
concept has_schedule_at = requires(const Schedule& schedule, const training_time& time) {
  { schedule.at(time) } -> std::convertible_to<double>;
};

/// True if Schedule has one member that is called `at`, whatever it is; false if it is overloaded.
template <class Schedule>
concept names_schedule_at = requires {
  &Schedule::at;
};
/// True if Schedule has one member that is called `check`, whatever it is; false if it is overloaded.
template <class Schedule>
concept names_schedule_check = requires {
  &Schedule::check;
};
/// True if Schedule has one member that is called `description`, whatever it is; false if it is overloaded.
template <class Schedule>
concept names_schedule_description = requires {
  &Schedule::description;
};

/// Says which requirement of `learning_rate_schedule` the type Schedule misses, or which optional member would never be
/// called. Always true when it compiles.
template <class Schedule>
consteval bool explain_learning_rate_schedule() {
  static_assert(std::copy_constructible<Schedule>, "gradus: not a learning-rate schedule: it must be copyable");
  static_assert(std::invocable<Schedule&, double>,
                "gradus: not a learning-rate schedule: it is called with the number of passes over the training set so "
                "far, and with nothing else: write [](double epoch) { return 0.1 / (1 + epoch); }");
  static_assert(!std::invocable<Schedule&, double> || std::invocable<const Schedule&, double>,
                "gradus: not a learning-rate schedule: equal epochs give equal rates, so it must be callable as a "
                "constant: write double operator()(double epoch) const, or a lambda that is not mutable");
  static_assert(!std::invocable<const Schedule&, double> || learning_rate_schedule<Schedule>,
                "gradus: not a learning-rate schedule: it must return the learning rate, a double");
  static_assert(!names_schedule_at<Schedule> || has_schedule_at<Schedule>,
                "gradus: the at of the learning-rate schedule would never be called: write double at(const "
                "optim::training_time& time) const;");
  static_assert(!names_schedule_check<Schedule> || has_schedule_check<Schedule>,
                "gradus: the check of the learning-rate schedule would never be called: write void check() const;");
  static_assert(!names_schedule_description<Schedule> || has_schedule_description<Schedule>,
                "gradus: the description of the learning-rate schedule would never be called: write std::string "
                "description() const;");
  return true;
}

/// A value that stores any learning-rate schedule: `schedule rate = cosine{.initial = 0.1, .epochs = 90};`
class schedule {
 public:
  /// @throws configuration_error if the schedule's own check() does
  template <class Schedule>
  requires(!std::same_as<std::remove_cvref_t<Schedule>, schedule> &&
           learning_rate_schedule<std::remove_cvref_t<Schedule>>)
      schedule(Schedule&& rates, error_location where = error_location::current())
      : self_{at_call(where, [&] { return make(std::forward<Schedule>(rates)); })} {}

  /// Any other function or object does not compile.
  template <class Schedule>
  requires(!std::same_as<std::remove_cvref_t<Schedule>, schedule> &&
           !learning_rate_schedule<std::remove_cvref_t<Schedule>> && !std::convertible_to<Schedule, double> &&
           detail::may_be_schedule<std::remove_cvref_t<Schedule>>) schedule(Schedule&& /*rates*/) {
    static_assert(explain_learning_rate_schedule<std::decay_t<Schedule>>());
  }

  /// A constant learning rate. @throws configuration_error if it is negative or not finite
  schedule(double rate, error_location where = error_location::current()) : schedule{constant{rate}, where} {}

  /// The learning rate after `epoch` passes over the training set.
  [[nodiscard]] double operator()(double epoch) const { return self_->rate(epoch); }
  /// The learning rate of the step that comes next.
  [[nodiscard]] double at(const training_time& time) const { return self_->rate_at(time); }

  /// A text that identifies this schedule; "user-defined" if the type has no description.
  [[nodiscard]] std::string description() const { return self_->description(); }

 private:
  struct base {
    base() = default;
    base(const base&) = delete;
    base& operator=(const base&) = delete;
    virtual ~base() = default;
    [[nodiscard]] virtual double rate(double epoch) const = 0;
    [[nodiscard]] virtual double rate_at(const training_time& time) const = 0;
    [[nodiscard]] virtual std::string description() const = 0;
  };

  template <class Schedule>
  struct holder final : base {
    explicit holder(Schedule rates) : rates_{std::move(rates)} {}
    [[nodiscard]] double rate(double epoch) const override { return static_cast<double>(rates_(epoch)); }
    [[nodiscard]] double rate_at(const training_time& time) const override {
      if constexpr (has_schedule_at<Schedule>) {
        return static_cast<double>(rates_.at(time));
      } else {
        return rate(time.epoch());
      }
    }
    [[nodiscard]] std::string description() const override {
      if constexpr (has_schedule_description<Schedule>) {
        return std::string{rates_.description()};
      } else {
        return "user-defined";
      }
    }
    Schedule rates_;
  };

  template <class Schedule>
  static std::shared_ptr<const base> make(Schedule&& rates) {
    using kept = std::remove_cvref_t<Schedule>;
    static_assert(explain_learning_rate_schedule<kept>());
    if constexpr (has_schedule_check<kept>) {
      rates.check();
    }
    return std::make_shared<const holder<kept>>(std::forward<Schedule>(rates));
  }

  std::shared_ptr<const base> self_;  // immutable, so copies share it
};
static_assert(learning_rate_schedule<schedule>);

}  // namespace gradus::optim
