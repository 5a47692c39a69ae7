// SPDX-License-Identifier: BSL-1.0
//
// A compressed trace is the plain one, compressed.
#include "gradus/trace/gzip.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>      // std::uint8_t
#include <cstdio>       // std::remove
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/comm/self.hpp"
#include "gradus/data/byte_source.hpp"
#include "gradus/data/gzip.hpp"

namespace trace = gradus::trace;

namespace {

std::string content(gradus::data::byte_source& from) {
  std::vector<std::uint8_t> bytes(1 << 20);
  const std::size_t size = from.read(bytes);
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_gzip)

BOOST_AUTO_TEST_CASE(it_inflates_to_the_same_text) {
  gradus::comm::self alone;
  trace::recorder recorder;
  for (int i = 0; i < 1000; ++i) {
    const trace::scope one{recorder, trace::category::log, "repeated"};
  }
  const trace::timeline plain = trace::write("trace_gzip_test.json", recorder, alone);
  {
    trace::gzip_sink out{"trace_gzip_test.json.gz"};
    trace::write_chrome(out, plain);
    out.close();
  }
  gradus::data::file_source text{"trace_gzip_test.json"};
  gradus::data::gzip_source inflated{"trace_gzip_test.json.gz"};
  gradus::data::file_source compressed{"trace_gzip_test.json.gz"};
  const std::string want = content(text);
  BOOST_TEST((content(inflated) == want));
  BOOST_TEST(10 * content(compressed).size() < 3 * want.size());
  std::remove("trace_gzip_test.json");
  std::remove("trace_gzip_test.json.gz");
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_made_is_named) {
  gradus::comm::self alone;
  trace::recorder recorder;
  BOOST_CHECK_EXCEPTION(trace::write_gzip("/nonexistent/trace.gz", recorder, alone), gradus::format_error,
                        [](const gradus::format_error& failure) {
                          return std::string_view{failure.what()}.find("/nonexistent/trace.gz") !=
                                 std::string_view::npos;
                        });
}

BOOST_AUTO_TEST_CASE(the_reason_of_the_system_is_said) {
  const auto message = [](const char* path) -> std::string {
    try {
      trace::gzip_sink out{path};
      out.write(std::string(100, 'x'));
      out.close();
    } catch (const gradus::format_error& failure) {
      return failure.what();
    }
    return "no error";
  };
  BOOST_TEST(message("/nonexistent/trace.gz").find("got No such file or directory") != std::string::npos);
  BOOST_TEST(message("/dev/full").find("got No space left on device") != std::string::npos, message("/dev/full"));
}

BOOST_AUTO_TEST_SUITE_END()
