// SPDX-License-Identifier: BSL-1.0
//
// Scopes are announced to a profiler, in pairs; NVTX takes them without one that listens.
#include "gradus/trace/nvtx.hpp"

#include <boost/test/unit_test.hpp>

#include <string>  // std::string

#include "gradus/trace/recorder.hpp"

namespace trace = gradus::trace;

namespace {

std::string& announced() {
  static std::string text;
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_nvtx)

BOOST_AUTO_TEST_CASE(ranges_are_nested_as_scopes_are) {
  trace::recorder recorder{
      {.ranges = {.push = [](const char* title) noexcept { announced().append("<").append(title); },
                  .pop = []() noexcept { announced().append(">"); }}}};
  {
    const trace::scope outer{recorder, trace::category::evaluate, "outer"};
    const trace::scope inner{recorder, trace::category::copy, "inner"};
  }
  recorder.enable(false);
  { const trace::scope off{recorder, trace::category::copy, "off"}; }
  BOOST_TEST(announced() == "<outer<inner>>");
}

BOOST_AUTO_TEST_CASE(nvtx_is_called) {
  trace::recorder recorder{{.ranges = trace::nvtx_ranges()}};
  { const trace::scope one{recorder, trace::category::copy, "one"}; }
  BOOST_TEST(recorder.read().spans.size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
