// SPDX-License-Identifier: BSL-1.0
//
// Checks of the arguments of a communication: one function each for all communicators and element types.
#pragma once

#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uintptr_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view

#include "gradus/comm/call.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm::detail {

/// The communicator's properties for checks.
struct caller {
  std::string_view name;
  int rank;
  int size;

  template <class Communicator>
  explicit caller(const Communicator& communicator) noexcept
      : name{name_of(communicator)}, rank{communicator.rank()}, size{communicator.size()} {}

  /// The name of a communicator in messages, also where its type does not tell.
  template <class Communicator>
  [[nodiscard]] static std::string_view name_of(const Communicator& communicator) noexcept {
    if constexpr (requires { communicator.link().properties(); }) {
      return communicator.size() == 0 ? Communicator::name : communicator.link().properties().name;
    } else {
      return Communicator::name;
    }
  }
};

inline void require_open(const caller& by, std::string_view operation, const std::source_location& where) {
  if (by.size <= 0) {
    raise<configuration_error>(operation, "an open communicator", "one that was moved from",
                               "use the communicator that it was moved to", where);
  }
}

void require_peer(const caller& by, std::string_view operation, int peer, int tag, const std::source_location& where);

void require_root(const caller& by, std::string_view operation, int root, const std::source_location& where);

/// A span of elements, with its name for messages.
struct named_span {
  std::string_view name;
  std::size_t elements;
  std::span<const std::byte> bytes;

  template <class Element>
  named_span(std::string_view called, std::span<const Element> data) noexcept
      : name{called}, elements{data.size()}, bytes{std::as_bytes(data)} {}
};

/// Checks that `whole` has size() parts of the size of `block`, and that `block` is this rank's part of it or separate
/// from it.
void require_blocks(const caller& by, std::string_view operation, const named_span& block, const named_span& whole,
                    const std::source_location& where);

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE void require_peer(const caller& by, std::string_view operation, int peer, int tag,
                                const std::source_location& where) {
  require_open(by, operation, where);
  if (peer < 0 || peer >= by.size || peer == by.rank) {
    raise<configuration_error>(operation, {"another rank of the ", by.size, " of communicator '", by.name, "'"},
                               {"rank ", peer, " on rank ", by.rank},
                               "ranks are counted from 0, and no rank sends to itself", where);
  }
  if (tag < 0 || tag > largest_tag) {
    raise<configuration_error>(operation, {"a tag from 0 to ", largest_tag}, {tag}, {}, where);
  }
}

GRADUS_INLINE void require_root(const caller& by, std::string_view operation, int root,
                                const std::source_location& where) {
  require_open(by, operation, where);
  if (root < 0 || root >= by.size) {
    raise<configuration_error>(operation, {"a root from 0 to ", by.size - 1}, {root}, "ranks are counted from 0",
                               where);
  }
}

GRADUS_INLINE void require_blocks(const caller& by, std::string_view operation, const named_span& block,
                                  const named_span& whole, const std::source_location& where) {
  require_open(by, operation, where);
  const auto ranks = static_cast<std::size_t>(by.size);
  if (whole.elements / ranks != block.elements || whole.elements % ranks != 0) {
    raise<shape_error>(
        operation,
        {whole.name, " of ", ranks, " blocks (one for each rank) of the ", block.elements, " elements of ", block.name},
        {whole.elements, " elements"}, "make the size a multiple of the number of ranks, with zeros at the end", where);
  }
  const auto first = reinterpret_cast<std::uintptr_t>(block.bytes.data());
  const auto whole_first = reinterpret_cast<std::uintptr_t>(whole.bytes.data());
  const std::uintptr_t own = whole_first + static_cast<std::size_t>(by.rank) * block.bytes.size();
  const bool apart =
      block.bytes.empty() || first >= whole_first + whole.bytes.size() || first + block.bytes.size() <= whole_first;
  if (!apart && first != own) {
    raise<shape_error>(operation,
                       {block.name, " that is block ", by.rank, " of ", whole.name, " or does not overlap it"},
                       "spans that overlap otherwise", {}, where);
  }
}

}  // namespace gradus::comm::detail
#endif
