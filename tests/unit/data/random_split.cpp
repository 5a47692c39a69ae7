// SPDX-License-Identifier: BSL-1.0
//
// Parts of a data set: disjoint, complete, reproducible, with the targets and variations of the set.
#include "gradus/data/random_split.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>    // std::abs, std::nan
#include <cstddef>  // std::size_t
#include <cstdint>  // std::int32_t, std::uint64_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "gradus/data/detail/split/draw.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/layout/layouts.hpp"

namespace {

namespace data = gradus::data;
using gradus::index_t;

/// Example i is the number i, plus 1000 times the epoch where it varies; its class is i % 10 below 3, else 0.
struct split_example_set {
  index_t count = 0;
  [[nodiscard]] index_t size() const { return count; }
  [[nodiscard]] gradus::image_extents example() const { return {1, 1, 1, 1}; }
  [[nodiscard]] std::uint64_t hash() const { return 7; }
  [[nodiscard]] int classes() const { return 3; }
  [[nodiscard]] std::int32_t label(index_t i) const { return i % 10 < 3 ? static_cast<std::int32_t>(i % 10) : 0; }
  void read(index_t i, float* planes) const { *planes = static_cast<float>(i); }
  void read(index_t i, std::uint64_t epoch, float* planes) const {
    *planes = static_cast<float>(i) + 1000 * static_cast<float>(epoch);
  }
  [[nodiscard]] double weight(index_t i) const { return static_cast<double>(i) / 2; }
};
static_assert(data::dataset<data::subset<split_example_set>, float>);

/// Real targets and label maps that follow the image, without classes of examples.
struct mapped_set {
  [[nodiscard]] index_t size() const { return 6; }
  [[nodiscard]] gradus::image_extents example() const { return {1, 1, 1, 1}; }
  [[nodiscard]] std::uint64_t hash() const { return 8; }
  void read(index_t i, float* planes) const { *planes = static_cast<float>(i); }
  void read(index_t i, std::uint64_t epoch, float* planes) const {
    *planes = static_cast<float>(i + 10 * index_t(epoch));
  }
  [[nodiscard]] gradus::image_extents target() const { return {1, 1, 1, 1}; }
  void read_target(index_t i, float* planes) const { *planes = static_cast<float>(-i); }
  void read_target(index_t i, std::uint64_t epoch, float* planes) const {
    *planes = static_cast<float>(-i - 10 * index_t(epoch));
  }
};
static_assert(data::dataset<data::subset<mapped_set>, float>);
static_assert(data::explain_dataset<data::subset<mapped_set>, float>());

std::vector<index_t> examples_in(const data::subset<split_example_set>& part) {
  return {part.examples().begin(), part.examples().end()};
}

std::string split_says(const auto& set, const std::vector<double>& shares, const data::split_options& options = {}) {
  try {
    (void)data::random_split(set, shares, options);
  } catch (const gradus::configuration_error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(random_splits)

BOOST_AUTO_TEST_CASE(parts_are_disjoint_and_complete) {
  for (const index_t count : {10, 11, 12, 99, 1000}) {
    const split_example_set set{count};
    const auto parts = data::random_split(set, {0.5, 0.3, 0.2}, {.seed = 3});
    std::vector<int> seen(static_cast<std::size_t>(count));
    index_t total = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const double share = std::vector<double>{0.5, 0.3, 0.2}[k];
      BOOST_TEST(std::abs(static_cast<double>(parts[k].size()) - share * static_cast<double>(count)) < 1);
      total += parts[k].size();
      for (const index_t i : parts[k].examples()) {
        BOOST_TEST_REQUIRE(++seen[static_cast<std::size_t>(i)] == 1);
      }
    }
    BOOST_TEST(total == count);
  }
  const split_example_set hundred{100};
  BOOST_TEST(data::random_split(hundred, {0.29, 0.71})[0].size() == 29);
}

BOOST_AUTO_TEST_CASE(the_seed_decides) {
  const split_example_set set{100};
  const auto draw = [&](std::uint64_t seed) {
    return examples_in(data::random_split(set, {0.5, 0.5}, {.seed = seed})[0]);
  };
  BOOST_TEST(draw(1) == draw(1), boost::test_tools::per_element());
  BOOST_TEST((draw(1) != draw(2)));
  const auto parts = data::random_split(set, {0.5, 0.5});
  BOOST_TEST(parts[0].hash() != parts[1].hash());
  BOOST_TEST(parts[0].hash() == data::random_split(set, {0.5, 0.5})[0].hash());
  // Not the first half: about half of the part comes from it.
  index_t low = 0;
  for (const index_t i : draw(1)) {
    low += i < 50 ? 1 : 0;
  }
  BOOST_TEST((low > 10 && low < 40), "low " << low);
}

BOOST_AUTO_TEST_CASE(stratified_parts_have_their_share_of_each_class) {
  const split_example_set set{200};  // classes of 160, 20 and 20 examples
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto parts = data::random_split(set, {0.75, 0.25}, {.seed = seed, .stratified = true});
    std::vector<int> counts(3);
    for (index_t i = 0; i < parts[1].size(); ++i) {
      ++counts[static_cast<std::size_t>(parts[1].label(i))];
    }
    BOOST_TEST(counts == (std::vector<int>{40, 5, 5}), boost::test_tools::per_element());
  }
}

// Sets in memory give a class as a label map of one pixel.
BOOST_AUTO_TEST_CASE(sets_in_memory_are_stratified) {
  std::vector<float> numbers(40);
  std::vector<std::int32_t> labels(40);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = i % 4 == 0 ? 1 : 0;
  }
  const auto set = data::in_memory(numbers, labels);
  const auto parts = data::random_split(set, {0.5, 0.5}, {.stratified = true});
  std::int32_t ones = 0;
  for (index_t i = 0; i < parts[0].size(); ++i) {
    std::int32_t label = -1;
    parts[0].read_labels(i, &label);
    ones += label;
  }
  BOOST_TEST(parts[0].size() == 20);
  BOOST_TEST(ones == 5);
}

// Classes that are too small to be cut leave the sizes of the parts as they are.
BOOST_AUTO_TEST_CASE(small_classes_do_not_change_the_sizes) {
  const std::vector<double> shares{0.8, 0.2};
  std::vector<std::int32_t> labels(100);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int32_t>(i);
  }
  const auto parts = data::detail::draw_parts(100, labels, shares, 1);
  BOOST_TEST(parts[0].size() == 80U);
  BOOST_TEST(parts[1].size() == 20U);
}

BOOST_AUTO_TEST_CASE(a_part_is_read_as_the_set) {
  const split_example_set set{20};
  const data::subset part{set, {7, 3, 3, 12}};
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nchw> loader{device, part, {.global_batch_size = 4, .shuffle = false}};
  for (const int epoch : {0, 2}) {
    loader.start_epoch(static_cast<std::uint64_t>(epoch));
    const auto* const batch = loader.next();
    BOOST_TEST_REQUIRE(batch != nullptr);
    const std::vector<float> images{batch->images.data(), batch->images.data() + 4};
    const auto offset = static_cast<float>(1000 * epoch);
    BOOST_TEST(images == (std::vector<float>{7 + offset, 3 + offset, 3 + offset, 12 + offset}),
               boost::test_tools::per_element());
    BOOST_TEST(batch->labels[3] == 2);
    BOOST_TEST(batch->weights[0] == 3.5F);
  }
  const mapped_set maps;
  const data::subset mapped{maps, {5, 1}};
  float target = 0;
  mapped.read_target(0, std::uint64_t{2}, &target);
  BOOST_TEST(target == -25);
  mapped.read_target(1, &target);
  BOOST_TEST(target == -1);
}

BOOST_AUTO_TEST_CASE(impossible_parts_are_refused) {
  const split_example_set set{10};
  BOOST_TEST(split_says(set, {0.8, 0.2}) == "");
  BOOST_TEST(split_says(set, {0.8, 0.1}).find("shares with the sum 1, got 0.9") != std::string::npos);
  BOOST_TEST(split_says(set, {1.2, -0.2}).find("shares above 0, at most 1, got 1.2") != std::string::npos);
  BOOST_TEST(split_says(set, {std::nan(""), 0.5}).find("shares above 0") != std::string::npos);
  BOOST_TEST(split_says(set, {}).find("sum 1") != std::string::npos);
  BOOST_TEST(split_says(split_example_set{1}, {0.5, 0.5}).find("none in part 1 of 1 examples") != std::string::npos);
  BOOST_TEST(split_says(mapped_set{}, {0.5, 0.5}, {.stratified = true}).find("class for each example") !=
             std::string::npos);
  BOOST_CHECK_THROW((data::subset{set, {3, 10}}), gradus::configuration_error);
  BOOST_CHECK_THROW((data::subset{set, {-1}}), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
