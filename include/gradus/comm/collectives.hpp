// SPDX-License-Identifier: BSL-1.0
//
// Collective algorithms of the library on top of the messages of any communicator.
#pragma once

#include <bit>              // std::has_single_bit
#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::same_as
#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint64_t, std::uint8_t
#include <cstring>          // std::memcmp, std::memcpy
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view
#include <utility>          // std::as_const, std::move
#include <vector>           // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/collectives_options.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/request/checks.hpp"
#include "gradus/comm/detail/schedule/book.hpp"
#include "gradus/comm/detail/schedule/message_collectives.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/host_name.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"

namespace gradus::comm {

/// Replaces the collectives of another communicator by algorithms over its send and receive. So the algorithm is known
/// and does not depend on that communicator's collectives.
///
///   collective     | algorithm
///   all_reduce     | by size: ring, halving-doubling, recursive doubling, hierarchical, ...; see all_reduce_algorithm
///   reduce_scatter | ring
///   all_gather     | ring
///   broadcast      | binomial tree; long arrays: scatter and ring
///   reduce         | binomial tree; long arrays: ring reduce-scatter and gather
///   barrier        | dissemination
///
/// For a given number of ranks and elements, the result is the same bits on all ranks and in every run. A collective
/// makes progress while its rank waits for or tests a collective of the same object. After the first of its size it
/// allocates nothing. If the base is a comm::recorded, its recorder receives the collectives and their messages.
///
/// @code
///   comm::collectives world{comm::mpi{environment}, {.all_reduce = comm::parse_all_reduce_spec("xring")}};
///   comm::all_reduce(world, gradients).wait();
/// @endcode
template <class Communicator>
class collectives : public forwarding<collectives<Communicator>> {
  static_assert(explain_communicator<Communicator>());

 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "collectives";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>&& Communicator::template supports<Element>;

  /// Called by all ranks. Messages of collectives use a duplicate of the communicator.
  /// @throws configuration_error if options are invalid or differ between ranks
  explicit collectives(Communicator base, collectives_options options = {})
      : base_{std::move(base)}, options_{std::move(options)} {
    detail::require_options(base_, "comm::collectives", options_);
    if (options_.scatter_in_pairs && !std::has_single_bit(static_cast<unsigned>(base_.size()))) {
      raise<configuration_error>("comm::collectives", "a power of two of ranks to add in pairs", {base_.size()});
    }
    dynamic_array<int> ranks;
    for (int rank = 0; rank < base_.size(); ++rank) {
      ranks.push_back(rank);
    }
    own_ = std::make_unique<detail::message_collectives>(
        own_link(base_.duplicate()), detail::schedule_book{std::move(ranks), base_.rank(), options_.node_of_rank},
        options_.segment_bytes);
  }

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, collectives&> collectives(Argument&& world) : collectives{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// The options of the constructor.
  [[nodiscard]] const collectives_options& options() const noexcept { return options_; }
  /// The underlying communicator.
  [[nodiscard]] Communicator& base() noexcept { return base_; }
  /// The recorder of the underlying communicator, if it has one.
  [[nodiscard]] auto& recorder() noexcept requires requires(Communicator& base) { base.recorder(); }
  { return base_.recorder(); }

  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    base_.set_time_limit(limit);
    own_->set_time_limit(limit);
  }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    if (base_.size() == 1 || one.what.kind == call_kind::send || one.what.kind == call_kind::receive ||
        (one.what.kind == call_kind::all_reduce &&
         choose(options_.all_reduce, one.what.count, one.element->bytes).algorithm == all_reduce_algorithm::native)) {
      return comm::begin(base_, one);
    }
    return own_->begin(one, options_, base_.time_limit());
  }

  /// Reduces the arrays of all ranks to rank `root`. On other ranks `output` is unchanged and may be empty.
  template <transferable Element>
  [[nodiscard]] request reduce(std::span<const Element> input, std::span<Element> output, int root, reduction operation,
                               std::source_location where = std::source_location::current()) {
    const detail::caller by{*this};
    detail::require_root(by, "reduce", root, where);
    if (base_.rank() == root && output.size() != input.size()) {
      raise<shape_error>("comm::collectives.reduce", {"an output of ", input.size(), " elements"}, {output.size()}, {},
                         where);
    }
    return at_call(where, [&, this] {
      if (base_.size() == 1) {
        if (!input.empty() && output.data() != input.data()) {
          std::memcpy(output.data(), input.data(), input.size_bytes());
        }
        return base_.broadcast(output, 0);
      }
      return own_->reduce({.what = {.kind = call_kind::broadcast,
                                    .operation = operation,
                                    .peer = root,
                                    .count = static_cast<index_t>(input.size()),
                                    .element = element_name<Element>},
                           .input = input.data(),
                           .output = output.data(),
                           .element = &element_type_of<Element>},
                          base_.time_limit());
    });
  }

  /// A communicator of the same ranks and options with separate messages. Called by all ranks.
  [[nodiscard]] collectives duplicate() { return collectives{base_.duplicate(), options_}; }

 private:
  friend class forwarding<collectives>;

  [[nodiscard]] Communicator& inner() noexcept { return base_; }
  [[nodiscard]] const Communicator& inner() const noexcept { return base_; }

  Communicator base_;
  collectives_options options_;
  std::unique_ptr<detail::message_collectives> own_;
};
static_assert(communicator<collectives<self>>);

/// A number for each rank, the same for ranks with the same text `node`. Called by all ranks.
[[nodiscard]] std::vector<int> nodes_of_ranks(any_communicator communicator, std::string_view node = host_name());

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE std::vector<int> nodes_of_ranks(any_communicator communicator, std::string_view node) {
  const std::uint64_t own = gradus::detail::hash_text(node);
  std::vector<std::uint8_t> bytes(sizeof(own) * static_cast<std::size_t>(communicator.size()));
  std::uint8_t mine[sizeof(own)];
  std::memcpy(mine, &own, sizeof(own));
  comm::all_gather(communicator, std::span{std::as_const(mine)}, bytes).wait();
  std::vector<int> nodes(static_cast<std::size_t>(communicator.size()));
  int count = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i] = -1;
    for (std::size_t j = 0; j < i && nodes[i] < 0; ++j) {
      if (std::memcmp(&bytes[sizeof(own) * i], &bytes[sizeof(own) * j], sizeof(own)) == 0) {
        nodes[i] = nodes[j];
      }
    }
    if (nodes[i] < 0) {
      nodes[i] = count++;
    }
  }
  return nodes;
}

}  // namespace gradus::comm
#endif
