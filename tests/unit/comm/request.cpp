// SPDX-License-Identifier: BSL-1.0
//
// A request calls its operation as promised, whatever becomes of the request.
#include <boost/test/unit_test.hpp>

#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <utility>    // std::move

#include "gradus/comm/request.hpp"

namespace {

namespace comm = gradus::comm;

/// Writes down what is asked of it.
class recorder final : public comm::operation {
 public:
  std::string calls;
  int tests_until_complete = 0;
  bool fails = false;

  bool test(const std::source_location&) override {
    calls += 't';
    if (fails) {
      throw std::runtime_error{"lost"};
    }
    return tests_until_complete-- <= 0;
  }
  void wait(const std::source_location&) override {
    calls += 'w';
    if (fails) {
      throw std::runtime_error{"lost"};
    }
  }
  void abandon(bool unwinding) noexcept override { calls += unwinding ? 'u' : 'a'; }
  void release() noexcept override { calls += 'r'; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_request)

BOOST_AUTO_TEST_CASE(an_empty_request_is_complete) {
  comm::request nothing;
  BOOST_TEST(nothing.test());
  nothing.wait();
  nothing.cancel();
}

BOOST_AUTO_TEST_CASE(wait_releases_once) {
  recorder operation;
  {
    comm::request pending{operation};
    pending.wait();
    pending.wait();
    BOOST_TEST(pending.test());
  }
  BOOST_TEST(operation.calls == "wr");
}

BOOST_AUTO_TEST_CASE(test_releases_when_complete) {
  recorder operation;
  operation.tests_until_complete = 2;
  {
    comm::request pending{operation};
    BOOST_TEST(!pending.test());
    BOOST_TEST(!pending.test());
    BOOST_TEST(pending.test());
    BOOST_TEST(pending.test());
  }
  BOOST_TEST(operation.calls == "tttr");
}

BOOST_AUTO_TEST_CASE(a_failure_is_thrown_once_and_ends_the_request) {
  recorder waited;
  waited.fails = true;
  comm::request first{waited};
  BOOST_CHECK_THROW(first.wait(), std::runtime_error);
  BOOST_TEST(first.test());
  BOOST_TEST(waited.calls == "wr");

  recorder tested;
  tested.fails = true;
  comm::request second{tested};
  BOOST_CHECK_THROW(static_cast<void>(second.test()), std::runtime_error);
  second.wait();
  BOOST_TEST(tested.calls == "tr");
}

BOOST_AUTO_TEST_CASE(an_unfinished_request_is_abandoned) {
  recorder dropped;
  recorder replaced;
  recorder moved;
  recorder cancelled;
  {
    const comm::request pending{dropped};
    comm::request target{replaced};
    comm::request source{moved};
    target = std::move(source);
    BOOST_TEST(replaced.calls == "ar");
    BOOST_TEST(moved.calls == "");
    BOOST_TEST(source.test());  // NOLINT(bugprone-use-after-move)
    comm::request taken_back{cancelled};
    taken_back.cancel();
    BOOST_TEST(cancelled.calls == "ur");
  }
  BOOST_TEST(dropped.calls == "ar");
  BOOST_TEST(moved.calls == "ar");
}

BOOST_AUTO_TEST_CASE(unwinding_does_not_wait) {
  recorder operation;
  try {
    const comm::request pending{operation};
    throw std::runtime_error{"elsewhere"};
  } catch (const std::runtime_error&) {
  }
  BOOST_TEST(operation.calls == "ur");
}

BOOST_AUTO_TEST_SUITE_END()
