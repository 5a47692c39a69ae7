// SPDX-License-Identifier: BSL-1.0
//
// Extents: construction, products that overflow, text, and the named extents of image batches.
#include <gradus/core/extents.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

using gradus::extents;
using gradus::image_extents;
using gradus::index_t;

namespace {

constexpr index_t largest = std::numeric_limits<index_t>::max();

/// True when the call throws Error with every one of the texts in its message.
template <class Error, class Call>
void require_error(const Call& call, std::initializer_list<std::string_view> texts) {
  BOOST_CHECK_EXCEPTION(call(), Error, [&](const Error& caught) {
    const std::string_view message = caught.what();
    bool all = true;
    for (const std::string_view text : texts) {
      if (message.find(text) == std::string_view::npos) {
        BOOST_TEST_MESSAGE("no '" << text << "' in: " << message);
        all = false;
      }
    }
    return all;
  });
}

template <class Value>
std::string streamed(const Value& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(core_extents)

BOOST_AUTO_TEST_CASE(image_extents_have_numbered_axes_too) {
  constexpr gradus::image_extents shape{2, 3, 5, 7};
  constexpr extents<4> same_extents{std::array<index_t, 4>{2, 3, 5, 7}};
  const extents<4> same = shape;
  for (int axis = 0; axis < 4; ++axis) {
    BOOST_TEST(shape[axis] == same[axis]);
  }
  static_assert(extents<4>{2, 3, 5, 7}.n == 2 && extents<4>{2, 3, 5, 7}.c == 3);
  static_assert(extents<4>{2, 3, 5, 7}.h == 5 && extents<4>{2, 3, 5, 7}.w == 7);
  static_assert(extents<4>{2, 3, 5, 7}.values() == std::array<index_t, 4>{2, 3, 5, 7});
  static_assert(extents<4>{2, 3, 5, 7} == same_extents && extents<4>{2, 3, 5, 8} != same_extents);
  BOOST_TEST((same.n == 2 && same.c == 3 && same.h == 5 && same.w == 7));
}

BOOST_AUTO_TEST_CASE(values_are_kept_in_order) {
  constexpr extents<3> shape{2, 3, 5};
  static_assert(extents<3>::rank == 3);
  static_assert(shape[0] == 2 && shape[1] == 3 && shape[2] == 5);
  static_assert(shape.size() == 30);
  static_assert(shape.values() == std::array<index_t, 3>{2, 3, 5});
  static_assert(extents<3>{std::array<index_t, 3>{2, 3, 5}} == shape);
  BOOST_TEST(streamed(shape) == "(2, 3, 5)");
  BOOST_TEST(to_string(shape) == "(2, 3, 5)");
}

BOOST_AUTO_TEST_CASE(default_is_empty_and_rank_0_is_one_element) {
  static_assert(extents<2>{}.size() == 0);
  static_assert(extents<0>{}.size() == 1);
  BOOST_TEST(to_string(extents<0>{}) == "()");
  BOOST_TEST(to_string(extents<1>{7}) == "(7)");
}

BOOST_AUTO_TEST_CASE(comparison_sees_every_axis) {
  BOOST_CHECK((extents<2>{3, 4} == extents<2>{3, 4}));
  BOOST_CHECK((extents<2>{3, 4} != extents<2>{4, 3}));
  BOOST_CHECK((extents<2>{3, 4} != extents<2>{3, 5}));
}

BOOST_AUTO_TEST_CASE(wrong_number_of_values) {
  require_error<gradus::shape_error>([] { (void)extents<2>{1, 2, 3}; }, {"extents: expected 2 values, got 3."});
  require_error<gradus::shape_error>([] { (void)extents<4>{1}; }, {"expected 4 values, got 1."});
}

BOOST_AUTO_TEST_CASE(negative_values) {
  require_error<gradus::shape_error>([] { (void)extents<2>{1, -2}; }, {"at least 0, got -2."});
  require_error<gradus::shape_error>([] { (void)extents<1>{std::array<index_t, 1>{-1}}; }, {"at least 0, got -1."});
  require_error<gradus::shape_error>([] { (void)extents<4>{image_extents{1, 1, -7, 1}}; }, {"at least 0, got -7."});
}

BOOST_AUTO_TEST_CASE(size_that_does_not_fit) {
  BOOST_TEST((extents<2>{largest, 1}.size()) == largest);
  BOOST_TEST((extents<2>{largest / 2, 2}.size()) == largest - 1);
  require_error<gradus::shape_error>([] { (void)extents<2>{largest / 2 + 1, 2}.size(); }, {"fits 64 bits", "larger"});
  require_error<gradus::shape_error>([] { (void)extents<3>{largest, largest, largest}.size(); }, {"fits 64 bits"});
  require_error<gradus::shape_error>([] { (void)image_extents{1, largest, 1, 2}.size(); }, {"fits 64 bits"});
}

BOOST_AUTO_TEST_CASE(no_elements_fit_whatever_comes_after) {
  BOOST_TEST((extents<3>{0, largest, largest}.size()) == 0);
  BOOST_TEST((image_extents{0, largest, largest, largest}.size()) == 0);
}

BOOST_AUTO_TEST_CASE(image_extents_name_the_axes) {
  constexpr image_extents batch{2, 3, 5, 7};
  static_assert(batch.n == 2 && batch.c == 3 && batch.h == 5 && batch.w == 7);
  static_assert(batch.size() == 210);
  static_assert(image_extents{}.size() == 0);
  static_assert(extents<4>{batch} == extents<4>{2, 3, 5, 7});
  static_assert(image_extents{extents<4>{2, 3, 5, 7}} == batch);
  BOOST_CHECK((image_extents{2, 3, 5, 7} == batch));
  BOOST_CHECK((image_extents{2, 3, 7, 5} != batch));
  BOOST_TEST(streamed(batch) == "(2, 3, 5, 7)");
  BOOST_TEST(to_string(batch) == "(2, 3, 5, 7)");
}

BOOST_AUTO_TEST_CASE(an_index_is_signed) {
  static_assert(std::is_signed_v<index_t>);
  static_assert(sizeof(index_t) == 8);
}

BOOST_AUTO_TEST_SUITE_END()
