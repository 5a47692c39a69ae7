// SPDX-License-Identifier: BSL-1.0
//
// Denormal numbers and rounding on the threads of a device, and what the calling thread has set for itself.
#include "gradus/core/floating_point.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cfenv>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gradus/data/loader.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

using gradus::index_t;
using control = gradus::detail::floating_point_register;

/// What the processor makes of a denormal result, of a denormal operand, and of a sum that has to be rounded.
struct arithmetic {
  bool flushes_results = false;
  bool flushes_operands = false;
  bool rounds_up = false;

  friend bool operator==(const arithmetic&, const arithmetic&) = default;
};

[[nodiscard]] arithmetic arithmetic_here() {
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float denormal = std::numeric_limits<float>::denorm_min();
  volatile float half = 0.5F;
  volatile float large = 0x1p60F;
  volatile float one = 1.0F;
  volatile float tiny = 0x1p-60F;
  return {.flushes_results = smallest * half == 0.0F,
          .flushes_operands = denormal * large == 0.0F,
          .rounds_up = one + tiny > 1.0F};
}

[[nodiscard]] boost::test_tools::assertion_result can_flush(boost::unit_test::test_unit_id /*id*/) {
  return gradus::can_flush_denormals;
}

constexpr arithmetic kept{};
constexpr arithmetic flushed{.flushes_results = true, .flushes_operands = true};

/// From construction to destruction, this thread rounds up and keeps or flushes denormal numbers.
class set_by_hand {
 public:
  explicit set_by_hand(bool flush) : numbers_{flush} { std::fesetround(FE_UPWARD); }
  set_by_hand(const set_by_hand&) = delete;
  set_by_hand& operator=(const set_by_hand&) = delete;
  ~set_by_hand() { std::fesetround(FE_TONEAREST); }

 private:
  gradus::floating_point_scope numbers_;
};

/// A data set of one pixel an example, which computes where it is read.
struct computed_set {
  std::atomic<int>* wrong;
  arithmetic expected;

  [[nodiscard]] index_t size() const { return 12; }
  [[nodiscard]] gradus::image_extents example() const { return {1, 1, 1, 1}; }
  [[nodiscard]] int classes() const { return 2; }
  [[nodiscard]] std::uint64_t hash() const { return 1; }
  void read(index_t /*i*/, float* planes) const {
    *wrong += arithmetic_here() == expected ? 0 : 1;
    *planes = 1;
  }
  [[nodiscard]] std::int32_t label(index_t /*i*/) const { return 0; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(floating_point)

BOOST_AUTO_TEST_CASE(a_scope_sets_and_restores, *boost::unit_test::precondition(can_flush)) {
  const auto before = control::read() & ~control::status;
  {
    const gradus::floating_point_scope flush{true};
    BOOST_TEST((arithmetic_here() == flushed));
    BOOST_TEST(gradus::flushes_denormals());
    {
      const gradus::floating_point_scope keep{false};
      BOOST_TEST((arithmetic_here() == kept));
      BOOST_TEST(!gradus::flushes_denormals());
    }
    BOOST_TEST((arithmetic_here() == flushed));
  }
  BOOST_TEST((arithmetic_here() == kept));
  BOOST_TEST((control::read() & ~control::status) == before);
}

BOOST_AUTO_TEST_CASE(exceptions_that_have_occurred_stay_noted) {
  std::feclearexcept(FE_ALL_EXCEPT);
  {
    const gradus::floating_point_scope flush{true};
    volatile double zero = 0;
    volatile double infinite = 1 / zero;
    static_cast<void>(infinite);
  }
  BOOST_TEST(std::fetestexcept(FE_DIVBYZERO) != 0);
  std::feclearexcept(FE_ALL_EXCEPT);
}

BOOST_AUTO_TEST_CASE(all_threads_of_a_device_do_the_same, *boost::unit_test::precondition(can_flush)) {
  for (const bool flush : {false, true}) {
    for (const bool by_hand : {false, true}) {
      // The workers of a device inherit what the thread has set that makes them.
      const set_by_hand around{by_hand};
      for (int threads = 1; threads <= 4; ++threads) {
        gradus::cpu device{{.intra_op_threads = threads, .flush_denormals = flush}};
        BOOST_TEST(device.flush_denormals() == flush);
        const auto before = control::read() & ~control::status;
        const arithmetic own = arithmetic_here();
        std::atomic<int> wrong{0};
        const auto check = [&] { wrong += arithmetic_here() == (flush ? flushed : kept) ? 0 : 1; };
        for (int repeat = 0; repeat < 20; ++repeat) {
          device.parallel_for(64, 1, [&](index_t, index_t) { check(); });
        }
        device.parallel_for(64, 64, [&](index_t, index_t) { check(); });  // one piece
        device.parallel_tasks(1, [&](index_t) { check(); });
        device.parallel_tasks(8, [&](index_t) { device.parallel_tasks(2, [&](index_t) { check(); }); });
        BOOST_CHECK_THROW(device.parallel_tasks(4, [&](index_t) { throw std::runtime_error{"task"}; }),
                          std::runtime_error);
        BOOST_TEST(wrong == 0);
        BOOST_TEST((arithmetic_here() == own));
        BOOST_TEST((control::read() & ~control::status) == before);
      }
      gradus::cpu streams{{.intra_op_threads = 1, .inter_op_threads = 3, .flush_denormals = flush}};
      std::atomic<int> wrong{0};
      streams.parallel_streams([&](index_t i) {
        streams.stream(static_cast<std::size_t>(i)).parallel_for(4, 1, [&](index_t, index_t) {
          wrong += arithmetic_here() == (flush ? flushed : kept) ? 0 : 1;
        });
      });
      BOOST_TEST(wrong == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(two_devices_of_one_program_have_their_own_settings, *boost::unit_test::precondition(can_flush)) {
  gradus::cpu keeps{{.intra_op_threads = 2}};
  gradus::cpu flushes{{.intra_op_threads = 2, .flush_denormals = true}};
  std::atomic<int> wrong{0};
  keeps.parallel_tasks(8, [&](index_t) {
    flushes.parallel_tasks(2, [&](index_t) { wrong += arithmetic_here() == flushed ? 0 : 1; });
    wrong += arithmetic_here() == kept ? 0 : 1;
  });
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(expressions_flush_or_keep, *boost::unit_test::precondition(can_flush)) {
  for (const bool by_hand : {false, true}) {
    const set_by_hand around{by_hand};
    for (const bool flush : {false, true}) {
      gradus::cpu device{{.intra_op_threads = 2, .flush_denormals = flush}};
      for (const index_t count : {index_t{3}, index_t{40000}}) {
        gradus::tensor<float, 1, gradus::row_major, gradus::cpu> x{device, {count}};
        for (index_t i = 0; i < count; ++i) {
          x(i) = 0x1p-130F;
        }
        gradus::tensor<float, 1, gradus::row_major, gradus::cpu> y{device, {count}};
        y = x * 0x1p100F;
        BOOST_TEST(y(count - 1) == (flush ? 0.0F : 0x1p-30F));
        const float total = gradus::sum(x * 0x1p100F).value();
        BOOST_TEST((total > 0) == !flush);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(loaders_compute_as_their_device, *boost::unit_test::precondition(can_flush)) {
  for (const bool by_hand : {false, true}) {
    const set_by_hand around{by_hand};
    for (const bool flush : {false, true}) {
      gradus::cpu device{{.intra_op_threads = 1, .flush_denormals = flush}};
      std::atomic<int> wrong{0};
      const computed_set set{&wrong, flush ? flushed : kept};
      gradus::data::loader<float, gradus::nhwc> one{device, set, {.global_batch_size = 4}};
      gradus::data::parallel_loader<float, gradus::nhwc> several{device, set, {.global_batch_size = 4}, {.threads = 3}};
      one.start_epoch(0);
      while (one.next() != nullptr) {
      }
      several.start_epoch(0);
      while (several.next() != nullptr) {
      }
      BOOST_TEST(wrong == 0);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
