// SPDX-License-Identifier: BSL-1.0
//
// An update rule that clips by the norm of gradients, around which the squares are summed without rounding.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/exact_sum.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/loss_scale_report.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"

namespace gradus::parallel::detail {

/// Passes all calls on, but sums squares itself: the sum does not depend on who adds which parts of the gradients, nor
/// on the order. Ranks and servers exchange exact_sum::numbers + 1 numbers.
template <class Element>
class exact_norm final : public optim::parameter_update<Element> {
  using base = optim::parameter_update<Element>;

 public:
  /// @pre rule.clips_norm(); the rule outlives it
  explicit exact_norm(base& rule) noexcept : rule_{&rule} {}
  explicit exact_norm(std::unique_ptr<base> rule) noexcept : rule_{rule.get()}, own_{std::move(rule)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return rule_->name(); }
  [[nodiscard]] std::string description() const override { return rule_->description(); }
  [[nodiscard]] bool elementwise() const noexcept override { return rule_->elementwise(); }
  void update(std::span<const optim::segment> segments, Element* values, const Element* gradients,
              const optim::update_step& step) override {
    rule_->update(segments, values, gradients, step);
  }
  [[nodiscard]] dynamic_array<optim::state_buffer> buffers() override { return rule_->buffers(); }
  [[nodiscard]] std::unique_ptr<base> with_state_on(cpu& device, index_t elements) const override {
    return std::make_unique<exact_norm>(rule_->with_state_on(device, elements));
  }

  [[nodiscard]] bool needs_all_gradients() const noexcept override { return true; }
  /// Adds the squares of the gradients of `segments`, in double precision.
  void test(std::span<const optim::segment> segments, const Element* gradients) override {
    constexpr index_t most_in_one_thread = index_t{1} << 12U;
    changed_ = true;
    if (rule_->scales_loss()) {
      rule_->test(segments, gradients);  // for gradients that are not finite; its sum of squares is not used
    }
    for (const optim::segment& each : segments) {
      const Element* const first = gradients + each.offset;
      if (each.size <= most_in_one_thread) {
        add(sums_[0], first, each.size);
        continue;
      }
      const auto pieces = static_cast<index_t>(sums_.size());
      rule_->parallel_for(pieces, 1, [&, this](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
          const index_t from = each.size * i / pieces;
          add(sums_[static_cast<std::size_t>(i)], first + from, each.size * (i + 1) / pieces - from);
        }
      });
    }
  }

  /// The sum of squares, and what the rule has found that is not finite.
  [[nodiscard]] std::span<double> totals() noexcept override {
    if (changed_) {
      exact_sum all;
      for (const exact_sum& each : sums_) {
        all.add(each);
      }
      all.write(std::span{numbers_}.template first<exact_sum::numbers>());
      numbers_.back() = rule_->totals().front();
      changed_ = false;
    }
    return numbers_;
  }
  void use_totals() override {
    exact_sum all;
    all.read(std::span<const double>{totals()}.template first<exact_sum::numbers>());
    rule_->totals().front() = numbers_.back();
    rule_->totals().back() = all.value();
    sums_ = {};
    numbers_ = {};
    rule_->use_totals();
  }

  [[nodiscard]] bool scales_loss() const noexcept override { return rule_->scales_loss(); }
  [[nodiscard]] loss_scale scale() const noexcept override { return rule_->scale(); }
  [[nodiscard]] std::optional<optim::loss_scale_report> report() override { return rule_->report(); }
  [[nodiscard]] bool clips_norm() const noexcept override { return true; }
  [[nodiscard]] std::optional<double> gradient_norm() const noexcept override { return rule_->gradient_norm(); }
  [[nodiscard]] std::optional<optim::gradient_norm_report> take_norm_report() override {
    return rule_->take_norm_report();
  }

  void swap_average(std::span<Element> values) override { rule_->swap_average(values); }
  [[nodiscard]] base& innermost() noexcept override { return rule_->innermost(); }

  [[nodiscard]] int threads() const override { return rule_->threads(); }

 private:
  using typename base::piece_function;

  void run_pieces(index_t count, index_t grain, const void* body, piece_function call) override {
    rule_->parallel_for(count, grain, [=](index_t begin, index_t end) { call(body, begin, end); });
  }

  static void add(exact_sum& to, const Element* gradients, index_t count) noexcept {
    for (index_t i = 0; i < count; ++i) {
      const auto gradient = static_cast<double>(gradients[i]);
      to.add(gradient * gradient);
    }
  }

  base* rule_;
  std::unique_ptr<base> own_;
  std::array<exact_sum, 8> sums_{};  // of threads
  std::array<double, exact_sum::numbers + 1> numbers_{};
  bool changed_ = false;
};

}  // namespace gradus::parallel::detail
