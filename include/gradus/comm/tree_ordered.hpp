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
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/self.hpp"
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
class tree_ordered : public forwarding<tree_ordered<Communicator>> {
  static_assert(explain_communicator<Communicator>());

 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = Communicator::name;
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>&& Communicator::template supports<Element>;

  /// Called by all ranks. Messages of sums use a duplicate of the communicator.
  /// @throws configuration_error unless the number of ranks is a power of two
  explicit tree_ordered(Communicator base, error_location where = error_location::current())
      : sums_{sums_over(std::move(base), where)} {}

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, tree_ordered&> tree_ordered(Argument&& world) : tree_ordered{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// The underlying communicator.
  [[nodiscard]] Communicator& base() noexcept { return sums_.base(); }
  /// The recorder of the underlying communicator, if it has one.
  [[nodiscard]] auto& recorder() noexcept requires requires(Communicator& base) { base.recorder(); }
  { return sums_.base().recorder(); }

  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) { sums_.set_time_limit(limit); }

  /// Begins an all-reduce; see comm::all_reduce.
  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element> data, reduction operation) {
    return sums_.all_reduce(data, operation);
  }
  /// Begins a reduce-scatter; see comm::reduce_scatter.
  template <transferable Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation) {
    return sums_.reduce_scatter(input, output, operation);
  }

  /// As makes_windows.
  template <transferable Element>
  requires makes_windows<Communicator, Element>
  [[nodiscard]] auto make_window(std::span<Element> data) { return sums_.base().make_window(data); }

  /// Adds elements [begin, end) of the contributions of all ranks, for those that reach each other's memory. Calls
  /// store(i, sums, count) with the sums [i, i + count).
  /// @param source  source(rank) is the rank's contribution; `store` may overwrite it
  /// @pre ranks <= 2^16, a power of two
  template <transferable Element, class Source, class Store>
  static void add_contributions(int ranks, index_t begin, index_t end, const Source& source, const Store& store) {
    constexpr index_t block = detail::reduction_block<Element>;
    for (index_t i = begin; i < end; i += block) {
      const index_t count = std::min(block, end - i);
      const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Element);
      Element sums[17][std::size_t{block}];  // of 1, 2, 4, ... neighbors
      std::size_t level = 0;
      for (unsigned rank = 0; rank < static_cast<unsigned>(ranks); ++rank) {
        Element values[std::size_t{block}] = {};
        std::memcpy(values, source(static_cast<int>(rank)) + i, bytes);
        level = 0;
        for (unsigned complete = rank; complete % 2 == 1; complete /= 2, ++level) {
          for (index_t k = 0; k < block; ++k) {
            values[k] = detail::sum_of{}(sums[level][k], values[k]);
          }
        }
        std::memcpy(sums[level], values, sizeof(values));
      }
      store(i, static_cast<const Element*>(sums[level]), count);
    }
  }

  /// A communicator of the same ranks and options with separate messages. Called by all ranks.
  [[nodiscard]] tree_ordered duplicate() { return tree_ordered{sums_.base().duplicate()}; }

 private:
  friend class forwarding<tree_ordered>;

  [[nodiscard]] Communicator& inner() noexcept { return sums_.base(); }
  [[nodiscard]] const Communicator& inner() const noexcept { return const_cast<tree_ordered*>(this)->sums_.base(); }

  static collectives<Communicator> sums_over(Communicator base, error_location where) {
    if (!std::has_single_bit(static_cast<unsigned>(base.size()))) {
      raise<configuration_error>("comm::tree_ordered", "1, 2, 4, 8 or another power of two of ranks", {base.size()}, {},
                                 where);
    }
    collectives_options options;
    if constexpr (requires { std::vector<all_reduce_rule>{base.options().all_reduce}; }) {
      options.all_reduce = base.options().all_reduce;
    }
    options.all_reduce = detail::in_tree_order(std::move(options.all_reduce));
    options.scatter_in_pairs = true;
    return collectives<Communicator>{std::move(base), std::move(options)};
  }

  collectives<Communicator> sums_;
};
static_assert(communicator<tree_ordered<self>>);

}  // namespace gradus::comm
