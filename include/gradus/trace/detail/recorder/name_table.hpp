// SPDX-License-Identifier: BSL-1.0
//
// Stores the names of a trace that are not literals.
#pragma once

#include <functional>   // std::less
#include <set>          // std::set
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace::detail {

/// Stores equal texts once, at addresses that do not change.
class name_table {
 public:
  [[nodiscard]] name intern(std::string_view text) {
    auto found = texts_.find(text);
    if (found == texts_.end()) {
      found = texts_.emplace(text).first;
    }
    return {name::interned{}, found->c_str()};
  }

 private:
  std::set<std::string, std::less<>> texts_;
};

}  // namespace gradus::trace::detail
