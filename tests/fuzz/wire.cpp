// SPDX-License-Identifier: BSL-1.0
//
// What a rank sends of its trace to rank 0, and the file that rank 0 makes of it.
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <memory>       // std::make_shared
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/trace/chrome.hpp"
#include "gradus/trace/detail/file/json.hpp"
#include "gradus/trace/timeline.hpp"

namespace {

class nowhere final : public gradus::trace::text_sink {
 public:
  void write(std::string_view /*text*/) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace trace = gradus::trace;
  const auto names = std::make_shared<trace::detail::name_table>();
  try {
    std::vector<trace::rank_timeline> ranks;
    ranks.push_back(trace::detail::unpack({data, size}, *names));
    const trace::timeline all{std::move(ranks), names};
    nowhere file;
    trace::write_chrome(file, all);
  } catch (const gradus::format_error&) {
  }
  return 0;
}
