// SPDX-License-Identifier: BSL-1.0
//
// The variables of one server: values, optimizer state, and the gradients that have come.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t, std::uint8_t
#include <cstring>      // std::memcpy
#include <limits>       // std::numeric_limits
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/reduction.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parameter_server/plan.hpp"

namespace gradus::parallel::detail {

/// What the server's loop does with variables, whatever their elements and the update rule are. Parts are counted on
/// this server, in the order of the plan.
class variable_store {
 public:
  virtual ~variable_store() = default;

  [[nodiscard]] virtual std::span<std::uint8_t> values(std::size_t part) noexcept = 0;
  /// Where a worker's gradient of a part arrives.
  [[nodiscard]] virtual std::span<std::uint8_t> incoming(std::size_t worker, std::size_t part) noexcept = 0;
  /// One optimizer step with scale * (the sum of the contributors' gradients, in the order of the workers).
  virtual void update(std::size_t part, std::span<const std::uint8_t> contributes, double scale, double rate) = 0;

  /// Whether a step needs all gradients: then it is add_up() of all parts, use_totals(), and update_added_up() of all.
  [[nodiscard]] virtual bool needs_all_gradients() const noexcept = 0;
  /// Adds the contributors' gradients.
  virtual void add_up(std::size_t part, std::span<const std::uint8_t> contributes) = 0;
  /// parameter_update::totals of the parts that have been added up, which servers add up and write back before
  /// use_totals.
  [[nodiscard]] virtual std::span<double> totals() noexcept = 0;
  virtual void use_totals() = 0;
  virtual void update_added_up(std::size_t part, double rate) = 0;

  /// The number of the buffer of the sums of gradients.
  static constexpr std::size_t gradient_sums = std::numeric_limits<std::size_t>::max();
  /// A part of a buffer of the state: of 0 the values, then of those of optim::buffers_of_parameters. Of
  /// `gradient_sums` what the last update was made with.
  /// @throws configuration_error if there is none, or its elements are not those of the values
  [[nodiscard]] virtual std::span<std::uint8_t> buffer(std::size_t number, std::size_t part) = 0;
  /// Updates of each part, with those before set_updates. @pre no part is ahead of the others
  [[nodiscard]] virtual std::uint64_t updates() const noexcept = 0;
  virtual void set_updates(std::uint64_t count) noexcept = 0;
};

/// @tparam Element  of values and gradients
template <class Element>
class variables_of final : public variable_store {
 public:
  /// @param rule      of which the server makes its own state
  /// @param pairwise  gradients are added as parameter_server::pairwise_sums says
  /// @param flush_denormals  as the workers' devices
  variables_of(const parameter_server_plan& plan, int server, std::span<const optim::segment> segments,
               std::size_t workers, const optim::parameter_update<Element>& rule, bool pairwise = false,
               bool flush_denormals = false)
      : pairwise_{pairwise},
        device_{{.intra_op_threads = 1, .flush_denormals = flush_denormals}},
        elements_{plan.elements_of(server)},
        values_(static_cast<std::size_t>(elements_)),
        sum_(static_cast<std::size_t>(elements_)),
        incoming_(workers * static_cast<std::size_t>(elements_)),
        rule_{rule.with_state_on(device_, elements_)},
        names_{optim::buffers_of_parameters(rule)} {
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      const server_part& part = plan.parts[i];
      if (part.server != server) {
        continue;
      }
      if (!rule.elementwise() && part.size != segments[part.segment].size) {
        raise<configuration_error>("parallel::parameter_server",
                                   {"whole parameters for the update rule '", rule.name(), "'"},
                                   {"the part ", plan.names[i]}, "choose another placement than partitioned");
      }
      optim::segment& own = parts_.emplace_back(segments[part.segment]);
      own.name = plan.names[i];
      own.offset = part.server_offset;
      own.size = part.size;
    }
    updates_ = dynamic_array<std::uint64_t>(parts_.size());
  }

  std::span<std::uint8_t> values(std::size_t part) noexcept override { return bytes(values_.data(), part); }

  std::span<std::uint8_t> incoming(std::size_t worker, std::size_t part) noexcept override {
    return bytes(incoming_of(worker), part);
  }

  void update(std::size_t part, std::span<const std::uint8_t> contributes, double scale, double rate) override {
    const optim::segment& own = parts_[part];
    sum_up(own, contributes);
    if (scale != 1.0) {
      Element* const sum = sum_.data() + own.offset;
      for (index_t i = 0; i < own.size; ++i) {
        sum[i] = static_cast<Element>(static_cast<double>(sum[i]) * scale);
      }
    }
    rule_->update(std::span{&own, 1}, values_.data(), sum_.data(), {rate, updates_[part]++});
  }

  [[nodiscard]] bool needs_all_gradients() const noexcept override { return rule_->needs_all_gradients(); }
  void add_up(std::size_t part, std::span<const std::uint8_t> contributes) override {
    sum_up(parts_[part], contributes);
    rule_->test(std::span{&parts_[part], 1}, sum_.data());
  }
  [[nodiscard]] std::span<double> totals() noexcept override { return rule_->totals(); }
  void use_totals() override { rule_->use_totals(); }
  void update_added_up(std::size_t part, double rate) override {
    rule_->update(std::span{&parts_[part], 1}, values_.data(), sum_.data(), {rate, updates_[part]++});
  }

  [[nodiscard]] std::span<std::uint8_t> buffer(std::size_t number, std::size_t part) override {
    if (number == 0) {
      return values(part);
    }
    if (number == gradient_sums) {
      return bytes(sum_.data(), part);
    }
    for (const optim::state_buffer& each : rule_->buffers()) {
      if (number <= names_.size() && each.name == names_[number - 1] && each.elements == elements_ &&
          each.bytes.size() == values_.size() * sizeof(Element)) {
        return bytes(reinterpret_cast<Element*>(each.bytes.data()), part);
      }
    }
    raise<configuration_error>("parallel::parameter_server",
                               {"buffers of the elements of the parameters in the update rule '", rule_->name(), "'"},
                               "others", "the state of such a rule cannot be stored with parameter servers");
  }
  [[nodiscard]] std::uint64_t updates() const noexcept override { return updates_.empty() ? 0 : updates_.front(); }
  void set_updates(std::uint64_t count) noexcept override {
    for (std::uint64_t& each : updates_) {
      each = count;
    }
  }

 private:
  void sum_up(const optim::segment& own, std::span<const std::uint8_t> contributes) {
    Element* const sum = sum_.data() + own.offset;
    if (pairwise_) {
      sum_up_in_pairs(own, contributes.size());
      return;
    }
    bool first = true;
    for (std::size_t worker = 0; worker < contributes.size(); ++worker) {
      if (contributes[worker] == 0) {
        continue;
      }
      const Element* const gradient = incoming_of(worker) + own.offset;
      if (first) {
        std::memcpy(sum, gradient, static_cast<std::size_t>(own.size) * sizeof(Element));
        first = false;
      } else {
        comm::detail::accumulate(comm::reduction::sum, sum, gradient, own.size);
      }
    }
  }

  /// Of all workers, whose gradients are overwritten by sums of neighbors.
  void sum_up_in_pairs(const optim::segment& own, std::size_t workers) {
    for (std::size_t apart = 1; apart < workers; apart *= 2) {
      for (std::size_t worker = 0; worker + apart < workers; worker += 2 * apart) {
        comm::detail::accumulate(comm::reduction::sum, incoming_of(worker) + own.offset,
                                 incoming_of(worker + apart) + own.offset, own.size);
      }
    }
    std::memcpy(sum_.data() + own.offset, incoming_of(0) + own.offset,
                static_cast<std::size_t>(own.size) * sizeof(Element));
  }

  [[nodiscard]] Element* incoming_of(std::size_t worker) noexcept {
    return incoming_.data() + worker * static_cast<std::size_t>(elements_);
  }
  [[nodiscard]] std::span<std::uint8_t> bytes(Element* buffer, std::size_t part) noexcept {
    const optim::segment& own = parts_[part];
    return {reinterpret_cast<std::uint8_t*>(buffer + own.offset), static_cast<std::size_t>(own.size) * sizeof(Element)};
  }

  bool pairwise_;
  cpu device_;
  index_t elements_;
  dynamic_array<Element> values_;    // (elements)
  dynamic_array<Element> sum_;       // (elements)
  dynamic_array<Element> incoming_;  // (workers, elements)
  dynamic_array<optim::segment> parts_;
  dynamic_array<std::uint64_t> updates_;  // of each part
  std::unique_ptr<optim::parameter_update<Element>> rule_;
  dynamic_array<std::string> names_;  // of its buffers with an element for each value
};

}  // namespace gradus::parallel::detail
