// SPDX-License-Identifier: BSL-1.0
//
// Packing of properties, and the words about ranks and times. What ranks do with them: tests/conformance/comm.
#include <boost/test/unit_test.hpp>

#include <algorithm>        // std::copy
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::ptrdiff_t, std::size_t
#include <cstdint>          // std::uint8_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move
#include <vector>           // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/version.hpp"

namespace comm = gradus::comm;
using namespace std::string_literals;

namespace {

/// Two ranks, of which the other one says what rank 0 says with one text replaced by another of the same length.
class echo final : public comm::forwarding_link {
 public:
  /// @param any  not used
  echo(comm::link& any, std::string from, std::string to)
      : forwarding_link{any, 0, 2}, from_{std::move(from)}, to_{std::move(to)} {}

  void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output, std::source_location) override {
    std::copy(input.begin(), input.end(), output.begin());
    std::string other{input.begin(), input.end()};
    if (gathered_++ == 0) {
      other[0] ^= 1;  // the hash
    } else if (const std::size_t at = other.find(from_); at != std::string::npos) {
      other.replace(at, from_.size(), to_);
    }
    std::copy(other.begin(), other.end(), output.begin() + static_cast<std::ptrdiff_t>(input.size()));
  }
  void broadcast(std::span<std::byte>, int, std::source_location) override {}
  void sum(std::span<double>, std::source_location) override {}
  void fail(std::string_view) noexcept override {}

 private:
  std::string from_;
  std::string to_;
  int gathered_ = 0;
};

/// The message of two ranks that differ in one text.
std::string message_of_difference(const std::string& from, const std::string& to, const comm::property& one) {
  comm::self alone;
  comm::link_of any{alone};
  echo group{any, from, to};
  try {
    comm::require_agreement(static_cast<comm::link&>(group), "options", {&one, 1});
  } catch (const gradus::configuration_error& failure) {
    return std::string{failure.message()};
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_agreement)

BOOST_AUTO_TEST_CASE(ranks_of_another_version_get_an_error) {
  const std::string own{gradus::version};
  const std::string other(own.size(), '9');
  BOOST_TEST(message_of_difference(own, other, {"seed", "1"}) ==
             "options: expected the same version of gradus on all ranks, got " + own + " on rank 0; " + other +
                 " on rank 1. Hint: start all ranks with the same program, options and data.");
}

BOOST_AUTO_TEST_CASE(an_empty_value_has_words) {
  const std::vector<std::string> messages = comm::run_ranks(2, [](comm::threads& world) -> std::string {
    try {
      comm::require_agreement(world, "options", {{"file", world.rank() == 0 ? "" : "x"}});
    } catch (const gradus::configuration_error& failure) {
      return failure.what();
    }
    return "no error";
  });
  for (const std::string& each : messages) {
    BOOST_TEST(each.find("the same file on all ranks, got an empty text on rank 0; x on rank 1.") != std::string::npos,
               each);
  }
}

BOOST_AUTO_TEST_CASE(any_text_can_be_packed) {
  const std::vector<comm::property> properties{
      {"", ""}, {"a:1", "12:34\n"}, {"zero"s + '\0' + "byte", "\xff\x80"}, {"7", ""}};
  const auto copy = comm::detail::unpack(comm::detail::pack(properties));
  BOOST_REQUIRE_EQUAL(copy.size(), properties.size());
  for (std::size_t i = 0; i < properties.size(); ++i) {
    BOOST_TEST(copy[i].name == properties[i].name);
    BOOST_TEST(copy[i].value == properties[i].value);
  }
  BOOST_TEST(comm::detail::unpack("").empty());
}

BOOST_AUTO_TEST_CASE(ranks_in_words) {
  using comm::ranks_text;
  BOOST_TEST(ranks_text({3}) == "rank 3");
  BOOST_TEST(ranks_text({0, 1}) == "ranks 0, 1");
  BOOST_TEST(ranks_text({0, 2, 3, 4, 9}) == "ranks 0, 2-4, 9");
}

BOOST_AUTO_TEST_CASE(times_in_words) {
  using comm::seconds_text;
  using std::chrono::milliseconds;
  BOOST_TEST(seconds_text(milliseconds{600000}) == "600 s");
  BOOST_TEST(seconds_text(milliseconds{1}) == "0.001 s");
  BOOST_TEST(seconds_text(milliseconds{2050}) == "2.05 s");
  BOOST_TEST(seconds_text(milliseconds{150}) == "0.15 s");
}

BOOST_AUTO_TEST_SUITE_END()
