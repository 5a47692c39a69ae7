// SPDX-License-Identifier: BSL-1.0
//
// Sweeps: many cases, each drawn from a seed and an index, which a failure names in a form that can be run again alone.
#pragma once

#include <signal.h>
#include <unistd.h>
#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>

#include "gradus/conformance/sanitizers.hpp"
#include "gradus/core/index.hpp"
#include "guarded_array.hpp"

#if GRADUS_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

// Environment variables control all sweeps of a program (name one with --run_test):
//
//   GRADUS_SWEEP_CASES=N  N cases of each sweep in place of the number that the suite runs
//   GRADUS_SWEEP_SEED=N   other cases: the suite's seed is 1
//   GRADUS_SWEEP_INDEX=N  only case N, as a failure prints it
//   GRADUS_SWEEP_PRINT=1  the number of cases, the seed and the time of each sweep

namespace gradus_test {

namespace detail {

/// What the end of the program writes: the case that runs, as it has been drawn so far.
struct running_case {
  std::array<char, 2048> text{};
  std::size_t size = 0;

  void append(std::string_view more) noexcept {
    const std::size_t count = more.size() < text.size() - size ? more.size() : text.size() - size;
    std::memcpy(text.data() + size, more.data(), count);
    size += count;
  }
  void write() const noexcept {
    const std::string_view before = "\nthe case that ran: ";
    static_cast<void>(!::write(STDERR_FILENO, before.data(), before.size()));
    static_cast<void>(!::write(STDERR_FILENO, text.data(), size));
    static_cast<void>(!::write(STDERR_FILENO, "\n", 1));
  }
};
inline running_case the_case;
inline void write_the_case() noexcept {
  if (the_case.size > 0) {
    the_case.write();
  }
}

inline std::array<struct sigaction, 2> handlers_before;
inline void on_fatal_signal(int which) noexcept {
  the_case.write();
  // The instruction is run again when this returns, and what handled the signal before has the last word.
  ::sigaction(which, &handlers_before[which == SIGSEGV ? 0 : 1], nullptr);
}

/// While it lives, SIGSEGV and SIGBUS, and the end by a sanitizer, write the case that runs.
struct case_writer {
  case_writer() {
    struct sigaction action {};
    action.sa_handler = on_fatal_signal;
    action.sa_flags = SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, handlers_before.data());
    ::sigaction(SIGBUS, &action, handlers_before.data() + 1);
#if GRADUS_ADDRESS_SANITIZER
    __sanitizer_set_death_callback(write_the_case);
#endif
  }
  ~case_writer() {
    ::sigaction(SIGSEGV, handlers_before.data(), nullptr);
    ::sigaction(SIGBUS, handlers_before.data() + 1, nullptr);
#if GRADUS_ADDRESS_SANITIZER
    __sanitizer_set_death_callback(nullptr);
#endif
    the_case.size = 0;
  }
  case_writer(const case_writer&) = delete;
  case_writer& operator=(const case_writer&) = delete;
};

[[nodiscard]] inline std::uint64_t sweep_number(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace detail

/// One case of a sweep. What is drawn with a name becomes a part of the case's text.
class sweep_case {
 public:
  sweep_case(std::string_view sweep, std::uint64_t seed, std::uint64_t index)
      : state_{(seed << 40U) ^ index ^ 0x5851f42d4c957f2dU} {
    detail::the_case.size = 0;
    detail::the_case.append("GRADUS_SWEEP_SEED=");
    append(static_cast<index_t>(seed));
    detail::the_case.append(" GRADUS_SWEEP_INDEX=");
    append(static_cast<index_t>(index));
    detail::the_case.append(" --run_test=*/");
    detail::the_case.append(sweep);
    detail::the_case.append(":");
  }

  using index_t = gradus::index_t;

  /// 64 bits (splitmix64), without a name.
  [[nodiscard]] std::uint64_t bits() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// In [0, count), without a name.
  [[nodiscard]] index_t below(index_t count) noexcept {
    return static_cast<index_t>((bits() >> 32U) * static_cast<std::uint64_t>(count) >> 32U);
  }
  /// Whether something happens that does so once in `count` times, without a name.
  [[nodiscard]] bool once_in(index_t count) noexcept { return below(count) == 0; }

  /// In [least, most].
  index_t between(std::string_view name, index_t least, index_t most) {
    return note(name, least + below(most - least + 1));
  }
  /// One of the numbers.
  index_t one_of(std::string_view name, std::initializer_list<index_t> numbers) {
    return note(name, numbers.begin()[below(static_cast<index_t>(numbers.size()))]);
  }
  /// True once in `count` times.
  bool flip(std::string_view name, index_t count = 2) { return note(name, once_in(count) ? 1 : 0) != 0; }

  /// Adds a number to the text, and returns it.
  index_t note(std::string_view name, index_t value) {
    detail::the_case.append(" ");
    detail::the_case.append(name);
    detail::the_case.append(" ");
    append(value);
    return value;
  }
  void note(std::string_view words) {
    detail::the_case.append(" ");
    detail::the_case.append(words);
  }

  /// A multiple of 1/8 in [-4, 4], without a name: the sums and products of some thousand of them are exact in float,
  /// and bfloat16 and float16 hold each.
  [[nodiscard]] double value() noexcept { return static_cast<double>(below(65) - 32) / 8; }

  /// `size` elements, all bits set, that begin or end at an inaccessible page.
  /// @param alignment  of the first one, in bytes; 0: that of the type
  template <class Element>
  [[nodiscard]] guarded_array<Element> array(index_t size, std::size_t alignment = 0) {
    return guarded_array<Element>{static_cast<std::size_t>(size), once_in(3) ? guarded_end::front : guarded_end::back,
                                  alignment == 0 ? alignof(Element) : alignment};
  }

  void fail(std::string_view what) {
    ++failures_;
    BOOST_ERROR(std::string{what} + "\n" + text());
  }
  /// Of this case.
  [[nodiscard]] int failures() const noexcept { return failures_; }
  [[nodiscard]] std::string text() const { return {detail::the_case.text.data(), detail::the_case.size}; }

 private:
  static void append(index_t value) {
    std::array<char, 24> digits{};
    const int count = std::snprintf(digits.data(), digits.size(), "%lld", static_cast<long long>(value));
    detail::the_case.append({digits.data(), static_cast<std::size_t>(count)});
  }

  std::uint64_t state_;
  int failures_ = 0;
};

/// Calls body(case) for `cases` cases (half of them under AddressSanitizer), or those that the environment asks for. A
/// sweep ends with its fifth case that fails.
/// @param name  of the Boost test case
template <class Body>
void sweep(std::string_view name, std::uint64_t cases, const Body& body) {
#if GRADUS_ADDRESS_SANITIZER
  cases /= 2;
#endif
  const std::uint64_t seed = detail::sweep_number("GRADUS_SWEEP_SEED", 1);
  std::uint64_t begin = 0;
  std::uint64_t end = detail::sweep_number("GRADUS_SWEEP_CASES", cases);
  if (std::getenv("GRADUS_SWEEP_INDEX") != nullptr) {
    begin = detail::sweep_number("GRADUS_SWEEP_INDEX", 0);
    end = begin + 1;
  }
  const detail::case_writer writer;
  const auto start = std::chrono::steady_clock::now();
  int failed = 0;
  std::uint64_t index = begin;
  for (; index < end && failed < 5; ++index) {
    sweep_case one{name, seed, index};
    body(one);
    failed += one.failures() > 0 ? 1 : 0;
  }
  BOOST_TEST(failed == 0);
  if (std::getenv("GRADUS_SWEEP_PRINT") != nullptr) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%-20.*s %9llu cases, seed %llu, %8.1f s, %d failed\n", static_cast<int>(name.size()), name.data(),
                static_cast<unsigned long long>(index - begin), static_cast<unsigned long long>(seed), took.count(),
                failed);
    std::fflush(stdout);
  }
}

}  // namespace gradus_test

#if GRADUS_ADDRESS_SANITIZER
/// UndefinedBehaviorSanitizer calls it before it reports; AddressSanitizer's callback is none of its own.
extern "C" __attribute__((used, visibility("default"))) inline void __ubsan_on_report() {
  gradus_test::detail::write_the_case();
}
#endif
