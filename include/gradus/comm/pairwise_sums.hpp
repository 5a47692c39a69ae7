// SPDX-License-Identifier: BSL-1.0
//
// Sums over ranks in the order of one binary tree, whatever the algorithm.
#pragma once

#include <algorithm>    // std::min
#include <bit>          // std::has_single_bit
#include <chrono>       // std::chrono::milliseconds
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <cstring>      // std::memcpy
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

namespace detail {

/// The rules for sums in the order of the tree: the algorithms that add neighbors first stay, halving-doubling is in
/// the place of the others, whose order depends on the number of ranks or is not known.
[[nodiscard]] inline std::vector<all_reduce_rule> in_tree_order(std::vector<all_reduce_rule> rules) {
  for (all_reduce_rule& each : rules) {
    switch (each.algorithm) {
      case all_reduce_algorithm::halving_doubling:
      case all_reduce_algorithm::binary_blocks:
      case all_reduce_algorithm::recursive_doubling:
      case all_reduce_algorithm::tree:
        break;
      case all_reduce_algorithm::native:
      case all_reduce_algorithm::ring:
      case all_reduce_algorithm::hierarchical_ring:
      case all_reduce_algorithm::hierarchical_halving_doubling:
        each.algorithm = all_reduce_algorithm::halving_doubling;
        each.rings = 1;
        break;
    }
  }
  return rules;
}

/// The rules of a comm::collectives; null of other communicators.
template <class Communicator>
[[nodiscard]] const std::vector<all_reduce_rule>* rules_of([[maybe_unused]] const Communicator& base) noexcept {
  if constexpr (requires { base.link().properties(); }) {
    return base.link().properties().all_reduce_rules;
  } else if constexpr (requires { &base.options().all_reduce; }) {
    return &base.options().all_reduce;
  } else {
    return nullptr;
  }
}

}  // namespace detail

/// Replaces the sums of another communicator by sums in the order of one binary tree over the ranks: neighbors first,
///
///   ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
///
/// So the sum of 8 numbers has the same bits on 8 ranks with one of them each, and on fewer ranks that each have added
/// theirs in the same way. The number of ranks is a power of two.
///
///   collective     | algorithm
///   all_reduce     | recursive doubling up to 16 KB, then halving-doubling; of comm::collectives its own rules, with
///                  | halving-doubling for those whose order of additions is another one
///   reduce_scatter | exchange of chunks with ranks 1, 2, 4, ... away
///   others         | those of the other communicator
///
/// Halving-doubling sends as many bytes as a ring, most of them to the next rank. Products are computed in the same
/// order. Used by parallel::reproducible.
template <class Communicator>
class pairwise_sums : public forwarding<pairwise_sums<Communicator>> {
  static_assert(explain_communicator<Communicator>());

 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = Communicator::name;
  /// Sums are in the order of the tree.
  static constexpr bool sums_in_tree = true;
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>&& Communicator::template supports<Element>;

  /// Called by all ranks. Messages of sums use a duplicate of the communicator.
  /// @throws configuration_error unless the number of ranks is a power of two
  explicit pairwise_sums(Communicator base, error_location where = error_location::current())
      : sums_{sums_over(std::move(base), where)} {}

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, pairwise_sums&> pairwise_sums(Argument&& world) : pairwise_sums{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// The underlying communicator.
  [[nodiscard]] Communicator& base() noexcept { return sums_.base(); }
  /// The recorder of the underlying communicator, if it has one.
  [[nodiscard]] auto& recorder() noexcept requires requires(Communicator& base) { base.recorder(); }
  { return sums_.base().recorder(); }

  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) { sums_.set_time_limit(limit); }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    const bool sums = one.what.kind == call_kind::all_reduce || one.what.kind == call_kind::reduce_scatter;
    return sums ? sums_.begin(one) : comm::begin(sums_.base(), one);
  }

  /// As makes_windows.
  template <transferable Element>
  requires makes_windows<Communicator, Element>
  [[nodiscard]] auto make_window(std::span<Element> data) { return sums_.base().make_window(data); }

  /// A communicator of the same ranks and options with separate messages. Called by all ranks.
  [[nodiscard]] pairwise_sums duplicate() { return pairwise_sums{sums_.base().duplicate()}; }

 private:
  friend class forwarding<pairwise_sums>;

  [[nodiscard]] Communicator& inner() noexcept { return sums_.base(); }
  [[nodiscard]] const Communicator& inner() const noexcept { return const_cast<pairwise_sums*>(this)->sums_.base(); }

  static collectives<Communicator> sums_over(Communicator base, error_location where) {
    if (!std::has_single_bit(static_cast<unsigned>(base.size()))) {
      raise<configuration_error>("comm::pairwise_sums", "1, 2, 4, 8 or another power of two of ranks", {base.size()},
                                 {}, where);
    }
    collectives_options options;
    if (const std::vector<all_reduce_rule>* const rules = detail::rules_of(base)) {
      options.all_reduce = *rules;
    }
    options.all_reduce = detail::in_tree_order(std::move(options.all_reduce));
    options.scatter_in_pairs = true;
    return collectives<Communicator>{std::move(base), std::move(options)};
  }

  collectives<Communicator> sums_;
};
static_assert(communicator<pairwise_sums<self>>);

/// A link whose sums are those of pairwise_sums, and which is otherwise the link that it is made of.
class pairwise_sums_link final : private detail::communicator_of_link<pairwise_sums<any_communicator>>,
                                 public forwarding_link {
 public:
  /// Called by all ranks. @throws configuration_error unless the number of ranks is a power of two
  explicit pairwise_sums_link(any_communicator base, error_location where = error_location::current())
      : communicator_of_link{pairwise_sums<any_communicator>{std::move(base), where}},
        forwarding_link{own.base().link(), in_tree(own.base().link().properties())} {}

  [[nodiscard]] request begin(const transfer& one) override { return own.begin(one); }
  void set_time_limit(std::chrono::milliseconds limit) override { own.set_time_limit(limit); }
  [[nodiscard]] std::unique_ptr<link> duplicate() override {
    return std::make_unique<pairwise_sums_link>(own.base().duplicate());
  }

 private:
  [[nodiscard]] static link_properties in_tree(link_properties of) noexcept {
    of.sums_in_tree = true;
    return of;
  }
};

}  // namespace gradus::comm
