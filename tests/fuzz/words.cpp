// SPDX-License-Identifier: BSL-1.0
//
// Texts that say how ranks work together: all-reduce rules, lists of hosts, lists of the parameters that servers hold.
// A list that is read and written gives the same when it is read again.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <cstdlib>  // std::abort
#include <span>     // std::span
#include <string>   // std::string

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/parameter_server/detail/protocol/segment_list.hpp"
#include "gradus/parameter_server/roles.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = gradus_fuzz::text_of(data, size);
  try {
    const auto rules = gradus::comm::parse_all_reduce_spec(text);
    gradus::comm::require_all_reduce_rules(rules);
    static_cast<void>(gradus::comm::describe(rules));
  } catch (const gradus::format_error&) {
  }
  try {
    const gradus::parallel::host_list hosts = gradus::parallel::parse_host_list(text);
    static_cast<void>(gradus::parallel::roles_of(hosts, hosts.workers));
  } catch (const gradus::format_error&) {
  } catch (const gradus::configuration_error&) {
  }
  try {
    namespace detail = gradus::parallel::detail;
    const auto packed = [](const detail::segment_list& all) {
      return detail::pack({all.segments.data(), all.segments.size()},
                          {all.pull_priorities.data(), all.pull_priorities.size()});
    };
    const std::string once = packed(detail::unpack_segments(text));
    if (packed(detail::unpack_segments(once)) != once) {
      std::abort();
    }
  } catch (const gradus::format_error&) {
  }
  return 0;
}
