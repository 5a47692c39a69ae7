// SPDX-License-Identifier: BSL-1.0
//
// The reader of gradus_report, its analysis and its page.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <string>   // std::string

#include "analysis.hpp"
#include "figures.hpp"
#include "input.hpp"
#include "page.hpp"
#include "trace.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const gradus::report::trace read = gradus::report::read_trace(gradus_fuzz::text_of(data, size), "input");
    const gradus::report::analysis figures = gradus::report::analyse(read);
    static_cast<void>(gradus::report::page(read, figures, "input"));
    static_cast<void>(gradus::report::figures_csv(read, figures));
  } catch (const gradus::report::report_error&) {
  }
  return 0;
}
