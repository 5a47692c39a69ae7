// SPDX-License-Identifier: BSL-1.0
//
// The array that the library keeps its own things in.
#include "gradus/core/dynamic_array.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

using gradus::dynamic_array;

namespace {

/// Counts what lives, and throws when the third is made.
struct counted {
  static inline int alive = 0;
  static inline int made = 0;
  static inline int throw_at = -1;

  counted() { make(); }
  counted(const counted& other) : value{other.value} { make(); }
  counted(counted&& other) noexcept : value{std::exchange(other.value, -1)} { ++alive; }
  counted& operator=(counted other) noexcept {
    value = other.value;
    return *this;
  }
  ~counted() { --alive; }

  int value = 0;

 private:
  static void make() {
    if (made++ == throw_at) {
      throw std::runtime_error{"no more"};
    }
    ++alive;
  }
};

struct alignas(256) wide {
  int value = 7;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(core_vector)

BOOST_AUTO_TEST_CASE(grows_and_keeps_its_elements) {
  dynamic_array<std::string> texts;
  BOOST_TEST(texts.empty());
  for (int i = 0; i < 100; ++i) {
    texts.push_back("a text that is too long for the small buffer " + std::to_string(i));
  }
  BOOST_TEST(texts.size() == 100);
  for (std::size_t i = 0; i < 100; ++i) {
    BOOST_TEST(texts[i] == "a text that is too long for the small buffer " + std::to_string(i));
  }
  for (int i = 0; i < 100; ++i) {
    texts.push_back(texts.front());  // an element of its own, while it grows
  }
  BOOST_TEST(texts.back() == texts.front());
  texts.pop_back();
  BOOST_TEST(texts.size() == 199);
  BOOST_CHECK_THROW((void)texts.at(199), std::out_of_range);
  BOOST_TEST(texts.at(198) == texts.front());
}

BOOST_AUTO_TEST_CASE(inserts_in_order) {
  dynamic_array<int> numbers{1, 3};
  BOOST_TEST(*numbers.insert(numbers.begin() + 1, 2) == 2);
  BOOST_TEST(*numbers.insert(numbers.begin(), 0) == 0);
  BOOST_TEST(*numbers.insert(numbers.end(), 4) == 4);
  const std::span<const int> all{numbers};
  BOOST_TEST(all.size() == 5);
  for (int i = 0; i < 5; ++i) {
    BOOST_TEST(all[static_cast<std::size_t>(i)] == i);
  }
}

BOOST_AUTO_TEST_CASE(copies_moves_and_swaps) {
  dynamic_array<std::string> first(3, "three times");
  dynamic_array<std::string> second = first;
  second[1] = "changed";
  BOOST_TEST(first[1] == "three times");
  dynamic_array<std::string> third = std::move(second);
  BOOST_TEST(second.empty());  // NOLINT: a vector that was moved from is empty
  BOOST_TEST(third[1] == "changed");
  first = std::move(third);
  BOOST_TEST(first[1] == "changed");
  first = dynamic_array<std::string>{};
  BOOST_TEST(first.empty());
}

BOOST_AUTO_TEST_CASE(holds_what_cannot_move_and_what_needs_alignment) {
  dynamic_array<std::atomic<bool>> flags(5);
  flags[4] = true;
  BOOST_TEST(!flags[0]);
  BOOST_TEST(flags[4]);
  dynamic_array<wide> wides(3);
  for (const wide& each : wides) {
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(&each) % alignof(wide) == 0);
    BOOST_TEST(each.value == 7);
  }
  dynamic_array<std::unique_ptr<int>> owners;
  for (int i = 0; i < 20; ++i) {
    owners.push_back(std::make_unique<int>(i));
  }
  BOOST_TEST(*owners[13] == 13);
}

BOOST_AUTO_TEST_CASE(destroys_what_it_made_even_if_a_constructor_throws) {
  counted::alive = 0;
  {
    dynamic_array<counted> some(4);
    some.push_back(counted{});
    BOOST_TEST(counted::alive == 5);
    some.clear();
    BOOST_TEST(counted::alive == 0);
  }
  counted::made = 0;
  counted::throw_at = 2;
  BOOST_CHECK_THROW(dynamic_array<counted>(4), std::runtime_error);
  BOOST_TEST(counted::alive == 0);
  counted::throw_at = -1;
  {
    const dynamic_array<counted> whole(4);
    counted::made = 0;
    counted::throw_at = 2;
    BOOST_CHECK_THROW(dynamic_array<counted>{whole}, std::runtime_error);
    counted::throw_at = -1;
    BOOST_TEST(counted::alive == 4);
  }
  BOOST_TEST(counted::alive == 0);
}

BOOST_AUTO_TEST_CASE(refuses_sizes_that_are_no_sizes) {
  BOOST_CHECK_THROW(dynamic_array<double>(static_cast<std::size_t>(-1)), std::bad_alloc);
}

BOOST_AUTO_TEST_SUITE_END()
