// SPDX-License-Identifier: BSL-1.0
//
// A communicator that matches messages in the order in which they are begun, as those of GPUs do.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/subset.hpp"

namespace gradus_test {

/// Another communicator without its tags.
template <class Communicator>
class matched_by_order : public gradus::comm::forwarding<matched_by_order<Communicator>> {
 public:
  static constexpr std::string_view name = Communicator::name;
  template <class Element>
  static constexpr bool supports = Communicator::template supports<Element>;
  static constexpr bool matches_tags = false;

  explicit matched_by_order(Communicator base) : base_{std::move(base)} {}

  template <gradus::comm::transferable Element>
  [[nodiscard]] gradus::comm::request send(int peer, std::span<const Element> data, int /*tag*/) {
    return base_.send(peer, data, 0);
  }
  template <gradus::comm::transferable Element>
  [[nodiscard]] gradus::comm::request receive(int peer, std::span<Element> data, int /*tag*/) {
    return base_.receive(peer, data, 0);
  }
  [[nodiscard]] matched_by_order duplicate() { return matched_by_order{base_.duplicate()}; }
  [[nodiscard]] auto split(std::vector<int> ranks) {
    return matched_by_order<gradus::comm::split_of<Communicator>>{gradus::comm::split(base_, std::move(ranks))};
  }

 private:
  friend class gradus::comm::forwarding<matched_by_order>;

  [[nodiscard]] Communicator& inner() noexcept { return base_; }
  [[nodiscard]] const Communicator& inner() const noexcept { return base_; }

  Communicator base_;
};

}  // namespace gradus_test
