// SPDX-License-Identifier: BSL-1.0
//
// Errors: what the message says, that it names the caller, and the hierarchy.
#include <gradus/core/error.hpp>
#include <gradus/core/extents.hpp>

#include <boost/test/unit_test.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

using all_errors = std::tuple<gradus::error, gradus::shape_error, gradus::format_error, gradus::device_error,
                              gradus::communication_error, gradus::configuration_error, gradus::numeric_error>;

BOOST_AUTO_TEST_SUITE(core_error)

BOOST_AUTO_TEST_CASE_TEMPLATE(the_message_has_all_parts, Error, all_errors) {
  const auto line = std::to_string(__LINE__ + 1);
  const Error failure{"dense.forward", "784 features", "shape (32, 28, 28)", "flatten the images"};
  BOOST_TEST(std::string{failure.what()} ==
             "dense.forward: expected 784 features, got shape (32, 28, 28). Hint: flatten the images. [error.cpp:" +
                 line + "]");
  BOOST_TEST(failure.message() ==
             "dense.forward: expected 784 features, got shape (32, 28, 28). Hint: flatten the images.");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(empty_parts_are_left_out, Error, all_errors) {
  BOOST_TEST(Error("read", "", "the file is not there").message() == "read: the file is not there.");
  BOOST_TEST(Error("read", "a header", "").message() == "read: expected a header.");
  BOOST_TEST(Error("read", "", "").message() == "read.");
  BOOST_TEST(Error("read", "", "", "look again").message() == "read. Hint: look again.");
}

BOOST_AUTO_TEST_CASE(full_stops_are_not_doubled) {
  BOOST_TEST(gradus::error("a", "", "it broke.").message() == "a: it broke.");
  BOOST_TEST(gradus::error("a", "", "it broke", "mend it.").message() == "a: it broke. Hint: mend it.");
}

BOOST_AUTO_TEST_CASE(the_location_has_only_the_name_of_the_file) {
  const std::string text{gradus::error("a", "b", "c").what()};
  BOOST_TEST(text.find('/') == std::string::npos);
  BOOST_TEST(text.find("[error.cpp:") != std::string::npos);
}

/// Extents are checked by the library, which knows only its own line.
[[nodiscard]] gradus::shape_error of_library() {
  try {
    static_cast<void>(gradus::extents<1>{-1});
  } catch (const gradus::shape_error& failure) {
    return failure;
  }
  throw std::logic_error{"no error"};
}

BOOST_AUTO_TEST_CASE(a_line_of_the_library_gives_way_to_the_call) {
  gradus::shape_error failure = of_library();
  BOOST_TEST(failure.location().in_library());
  BOOST_TEST(std::string{failure.what()}.find("[extents.hpp:") != std::string::npos);
  const std::string message{failure.message()};
  const gradus::error_location own = gradus::error_location::current();
  BOOST_TEST(!own.in_library());
  const gradus::error_location of_header = failure.location();
  failure.location_at_call(of_header);
  BOOST_TEST(failure.location().in_library());
  failure.location_at_call(own);
  BOOST_TEST(failure.what() == message + " [error.cpp:" + std::to_string(own.line()) + "]");
  BOOST_TEST(failure.message() == message);
  failure.location_at_call(gradus::error_location::current());
  BOOST_TEST(failure.location().line() == own.line());  // it was a line of the program already
}

/// A class of the library whose constructor fails at the location of its caller.
struct refuses_all {
  explicit refuses_all(int number, gradus::error_location where = gradus::error_location::current()) {
    gradus::raise<gradus::shape_error>("refuses_all [1]", "", {number}, {}, where);
  }
};

// The line in which the standard library calls a constructor says nothing about the program.
BOOST_AUTO_TEST_CASE(a_line_of_the_standard_library_is_not_shown) {
  const auto refused = [](const auto& make) {
    try {
      make();
    } catch (const gradus::shape_error& failure) {
      return failure;
    }
    throw std::logic_error{"no error"};
  };
  const gradus::shape_error shown = refused([] { refuses_all{3}; });
  BOOST_TEST(std::string{shown.what()}.find(" [error.cpp:") != std::string::npos);
  BOOST_TEST(!shown.location().in_standard_library());
  for (gradus::shape_error failure : {refused([] { static_cast<void>(std::make_unique<refuses_all>(3)); }),
                                      refused([] { static_cast<void>(std::make_shared<refuses_all>(3)); }),
                                      refused([] { std::optional<refuses_all>{}.emplace(3); }),
                                      refused([] { std::vector<refuses_all>{}.emplace_back(3); })}) {
    BOOST_TEST(failure.location().in_standard_library());
    BOOST_TEST(failure.what() == "refuses_all [1]: 3.");
    BOOST_TEST(failure.message() == "refuses_all [1]: 3.");
    const auto own = gradus::error_location::current();
    failure.location_at_call(own);
    BOOST_TEST(failure.what() == "refuses_all [1]: 3. [error.cpp:" + std::to_string(own.line()) + "]");
    BOOST_TEST(failure.message() == "refuses_all [1]: 3.");
  }
  // A constructor that finds the mistake in a line of the library says neither.
  gradus::shape_error failure = of_library();
  const std::string message{failure.message()};
  const gradus::error_location of_vector = refused([] { std::vector<refuses_all>{}.emplace_back(3); }).location();
  failure.location_at_call(of_vector);
  BOOST_TEST(failure.what() == message);
}

BOOST_AUTO_TEST_CASE(at_call_returns_what_the_function_returns_or_locates_its_error) {
  BOOST_TEST(gradus::at_call(gradus::error_location::current(), [] { return 3; }) == 3);
  const auto own = gradus::error_location::current();
  try {
    gradus::at_call(own, [] { throw of_library(); });
    BOOST_ERROR("no error");
  } catch (const gradus::shape_error& failure) {
    BOOST_TEST(failure.location().line() == own.line());
  }
  BOOST_CHECK_THROW(gradus::at_call(own, [] { throw std::logic_error{"another"}; }), std::logic_error);
}

BOOST_AUTO_TEST_CASE(names_of_files_do_not_command_the_terminal) {
  const gradus::format_error failure{"open 'a\x1b]0;title\a\x7f.jpg'", "a file", {"none\n\tat \xc2\x9b", "31m"}};
  const std::string message = failure.what();
  BOOST_TEST(message.starts_with("open 'a\\x1b]0;title\\x07\\x7f.jpg': expected a file, got none\n\tat \\x9b31m."));
  BOOST_TEST(gradus::printable("gr\u00fc\u00dfe, \u20ac \xff") == "gr\u00fc\u00dfe, \u20ac \xff");
  BOOST_TEST(gradus::printable("\xc2") == "\xc2");
}

BOOST_AUTO_TEST_CASE(a_message_can_have_brackets_of_its_own) {
  BOOST_TEST(gradus::error("a", "", "layer [3] of [4]").message() == "a: layer [3] of [4].");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(every_error_is_caught_as_error_and_as_runtime_error, Error, all_errors) {
  static_assert(std::is_base_of_v<gradus::error, Error>);
  BOOST_CHECK_THROW(throw Error("a", "b", "c"), gradus::error);
  BOOST_CHECK_THROW(throw Error("a", "b", "c"), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(kinds_are_told_apart) {
  static_assert(!std::is_base_of_v<gradus::shape_error, gradus::format_error>);
  static_assert(!std::is_base_of_v<gradus::format_error, gradus::shape_error>);
  static_assert(!std::is_base_of_v<gradus::device_error, gradus::communication_error>);
  static_assert(!std::is_base_of_v<gradus::configuration_error, gradus::numeric_error>);
}

BOOST_AUTO_TEST_SUITE_END()
