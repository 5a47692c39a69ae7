// SPDX-License-Identifier: BSL-1.0
//
// The loader as a program sees it: epochs, interruptions, failures, limits.
#include "gradus/data/loader.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "example_sets.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/layout/layouts.hpp"
#include "idx_files.hpp"

namespace data = gradus::data;
using example_sets::device;
using example_sets::numbered_set;
using example_sets::watched_set;
using gradus::configuration_error;
using gradus::format_error;
using gradus::index_t;
using idx_files::message_of;
using loader_type = data::loader<float, gradus::nhwc>;
using loader_layouts = std::tuple<gradus::nchw, gradus::nhwc>;

namespace {

std::string message_of_options(const data::loader_options& options, index_t examples = 10) {
  const numbered_set set{.examples = examples};
  return message_of<configuration_error>([&] { const loader_type loader{device(), set, options}; });
}

index_t count_rest(loader_type& loader) {
  index_t images = 0;
  while (const auto* batch = loader.next()) {
    images += batch->images.extent(0);
  }
  return images;
}

/// How many reads there were when there were `expected` and the producer had time to make more.
index_t reads_after_waiting(const std::atomic<index_t>& reads, index_t expected) {
  for (int attempt = 0; attempt < 1000 && reads < expected; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  return reads;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loader)

BOOST_AUTO_TEST_CASE(says_what_an_epoch_is) {
  const numbered_set set{.examples = 10, .shape = {1, 2, 3, 4}};
  const data::shard part{.rank = 2, .ranks = 3};
  loader_type all{device(), set, {.global_batch_size = 4, .shard = part}};
  BOOST_TEST(all.steps_per_epoch() == 3);
  BOOST_TEST(all.examples_per_epoch() == 10);
  BOOST_TEST(all.local_batch_size() == 2);
  BOOST_TEST(all.ranks() == 3);
  BOOST_TEST(all.classes() == 5);
  BOOST_TEST(all.example() == gradus::image_extents(1, 2, 3, 4));
  loader_type full{device(), set, {.global_batch_size = 4, .shard = part, .drop_last = true}};
  BOOST_TEST(full.steps_per_epoch() == 2);
  BOOST_TEST(full.examples_per_epoch() == 8);
}

template <class Element, class Layout>
void check_rounded_images() {
  const auto set = data::make_synthetic({.examples = 11, .channels = 3, .height = 4, .width = 5, .classes = 4});
  data::loader<float, Layout> wide{device(), set, {.global_batch_size = 4, .seed = 3}};
  data::loader<Element, Layout> narrow{device(), set, {.global_batch_size = 4, .seed = 3}};
  wide.start_epoch(2);
  narrow.start_epoch(2);
  index_t images = 0;
  index_t wrong = 0;
  while (const auto* expected = wide.next()) {
    const auto* batch = narrow.next();
    BOOST_REQUIRE(batch != nullptr);
    BOOST_REQUIRE(batch->images.extents() == expected->images.extents());
    BOOST_TEST(std::ranges::equal(batch->labels, expected->labels));
    for (index_t i = 0; i < batch->images.size(); ++i) {
      wrong += batch->images.data()[i].bits() != Element{expected->images.data()[i]}.bits();
    }
    images += batch->images.extent(0);
  }
  BOOST_TEST(images == 11);
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(images_of_sixteen_bits_are_those_of_float_rounded, Layout, loader_layouts) {
  check_rounded_images<gradus::bfloat16, Layout>();
  check_rounded_images<gradus::float16, Layout>();
}

BOOST_AUTO_TEST_CASE(the_description_names_what_ranks_must_agree_on) {
  const auto description = [](const data::loader_options& options, index_t examples = 10) {
    const numbered_set set{.examples = examples};
    return loader_type{device(), set, options}.description();
  };
  const data::loader_options base{.global_batch_size = 4, .seed = 3, .shard = {.rank = 0, .ranks = 2}};
  const std::string text = description(base);
  GRADUS_CHECK_MESSAGE(text, {"10 examples of 1x1x1 in 5 classes (content 000000000000000a)",
                              "batches of 4, shuffled with seed 3, shared by 2 ranks"});
  const auto changed = [&](auto change) {
    data::loader_options options = base;
    change(options);
    return description(options) != text;
  };
  BOOST_TEST(!changed([](auto& o) { o.shard.rank = 1; }));
  BOOST_TEST(!changed([](auto& o) { o.prefetch = 5; }));
  BOOST_TEST(changed([](auto& o) { o.global_batch_size = 5; }));
  BOOST_TEST(changed([](auto& o) { o.seed = 4; }));
  BOOST_TEST(changed([](auto& o) { o.shuffle = false; }));
  BOOST_TEST(changed([](auto& o) { o.drop_last = true; }));
  BOOST_TEST(changed([](auto& o) { o.shard.ranks = 3; }));
  BOOST_TEST(description(base, 11) != text);
}

BOOST_AUTO_TEST_CASE(a_part_is_taken_from_the_next_epoch_on) {
  const numbered_set set{.examples = 10};
  loader_type loader{device(), set, {.global_batch_size = 4, .shuffle = false}};
  const auto sizes = [&] {
    std::vector<index_t> result;
    loader.start_epoch(0);
    while (const auto* const batch = loader.next()) {
      BOOST_TEST(batch->global_examples == (result.size() == 2 ? 2 : 4));
      result.push_back(static_cast<index_t>(batch->labels.size()));
    }
    return result;
  };
  const std::vector<index_t> whole{4, 4, 2};
  const std::vector<index_t> third{1, 1, 0};
  BOOST_TEST(sizes() == whole, boost::test_tools::per_element());
  loader.take_shard({.rank = 2, .ranks = 3});
  BOOST_TEST(loader.ranks() == 3);
  BOOST_TEST(loader.local_batch_size() == 2);
  BOOST_TEST(sizes() == third, boost::test_tools::per_element());
  loader.take_shard({.rank = 0, .ranks = 1});
  BOOST_TEST(sizes() == whole, boost::test_tools::per_element());
  loader_type made_for_one{device(), set, {.global_batch_size = 4, .shard = {.rank = 1, .ranks = 2}}};
  made_for_one.take_shard({.rank = 1, .ranks = 2});
  BOOST_CHECK_THROW(made_for_one.take_shard({.rank = 0, .ranks = 2}), gradus::configuration_error);
  BOOST_CHECK_THROW(loader.take_shard({.rank = 2, .ranks = 2}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(an_epoch_ends_and_another_begins) {
  const numbered_set set{.examples = 10};
  loader_type loader{device(), set, {.global_batch_size = 4}};
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    BOOST_TEST(count_rest(loader) == 10);
    BOOST_TEST(loader.next() == nullptr);
    BOOST_TEST(loader.next() == nullptr);
  }
  BOOST_TEST(loader.wait_seconds() >= 0.0);
}

BOOST_AUTO_TEST_CASE(an_epoch_must_be_started) {
  const numbered_set set{.examples = 10};
  loader_type loader{device(), set, {.global_batch_size = 4}};
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] { (void)loader.next(); }),
                       {"loader.next", "expected an epoch", "got none", "Hint: call start_epoch(0) first"});
}

BOOST_AUTO_TEST_CASE(an_epoch_can_be_left_at_any_time) {
  const numbered_set set{.examples = 60};
  data::sampler expected{60, {.global_batch_size = 4, .seed = 2}};
  loader_type loader{device(), set, {.global_batch_size = 4, .seed = 2}};
  for (int round = 0; round < 200; ++round) {
    const auto epoch = static_cast<std::uint64_t>(round % 7);
    expected.start_epoch(epoch);
    loader.start_epoch(epoch);
    for (index_t b = 0; b < round % 5; ++b) {
      const auto* batch = loader.next();
      BOOST_REQUIRE(batch != nullptr);
      for (index_t n = 0; n < 4; ++n) {
        BOOST_REQUIRE(batch->images(n, 0, 0, 0) ==
                      static_cast<float>(1000 * expected.batch(b).examples[static_cast<std::size_t>(n)]));
      }
    }
  }
  loader.start_epoch(1);
  BOOST_TEST(count_rest(loader) == 60);
}

BOOST_AUTO_TEST_CASE(a_loader_can_go_at_any_time) {
  const numbered_set set{.examples = 60};
  for (int round = 0; round < 60; ++round) {
    loader_type loader{device(), set, {.global_batch_size = 4, .prefetch = 1 + round % 3}};
    for (int epoch = 0; epoch < round % 4; ++epoch) {
      loader.start_epoch(static_cast<std::uint64_t>(epoch));
      for (int b = 0; b < round % 17; ++b) {
        (void)loader.next();
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(no_more_than_the_ring_is_prepared_and_the_batch_in_use_stays) {
  const watched_set set{100};
  for (const int prefetch : {1, 2, 5}) {
    set.reads = 0;
    loader_type loader{device(), set, {.global_batch_size = 2, .seed = 1, .prefetch = prefetch}};
    BOOST_TEST(reads_after_waiting(set.reads, 0) == 0);  // no epoch has started yet
    loader.start_epoch(0);
    BOOST_TEST(reads_after_waiting(set.reads, 2 * (prefetch + 1)) == 2 * (prefetch + 1));
    const auto* batch = loader.next();
    const float first = batch->images(0, 0, 0, 0);
    const float second = batch->images(1, 0, 0, 0);
    BOOST_TEST(reads_after_waiting(set.reads, 2 * (prefetch + 1)) == 2 * (prefetch + 1));
    BOOST_TEST(batch->images(0, 0, 0, 0) == first);
    BOOST_TEST(batch->images(1, 0, 0, 0) == second);
    BOOST_TEST(loader.next() != nullptr);
    BOOST_TEST(reads_after_waiting(set.reads, 2 * (prefetch + 2)) == 2 * (prefetch + 2));
  }
}

BOOST_AUTO_TEST_CASE(a_failure_of_the_set_arrives_after_the_batches_before_it) {
  watched_set set{20};
  set.bad_example = 13;
  loader_type loader{device(), set, {.global_batch_size = 4, .shuffle = false}};
  for (int round = 0; round < 2; ++round) {
    loader.start_epoch(0);
    for (int b = 0; b < 3; ++b) {
      BOOST_TEST(loader.next() != nullptr);
    }
    BOOST_TEST(message_of<std::runtime_error>([&] { (void)loader.next(); }) == "the disk is gone");
    BOOST_TEST(message_of<std::runtime_error>([&] { (void)loader.next(); }) == "the disk is gone");
  }
  set.bad_example = -1;
  loader.start_epoch(0);
  BOOST_TEST(count_rest(loader) == 20);
}

BOOST_AUTO_TEST_CASE(says_that_a_set_gives_a_label_out_of_range) {
  const numbered_set set{.examples = 20, .class_count = 4};
  loader_type loader{device(), set, {.global_batch_size = 20, .shuffle = false}};
  loader.start_epoch(0);
  GRADUS_CHECK_MESSAGE(message_of<format_error>([&] { (void)loader.next(); }),
                       {"loader", "expected labels from 0 to 3", "got label 4 of example 4"});
}

BOOST_AUTO_TEST_CASE(a_rank_without_examples_gets_empty_batches) {
  const numbered_set set{.examples = 5, .shape = {1, 2, 3, 4}};
  loader_type loader{device(), set, {.global_batch_size = 2, .shard = {.rank = 3, .ranks = 4}}};
  loader.start_epoch(0);
  for (index_t b = 0; b < 3; ++b) {
    const auto* batch = loader.next();
    BOOST_REQUIRE(batch != nullptr);
    BOOST_TEST(batch->images.extents() == gradus::extents<4>({0, 2, 3, 4}));
    BOOST_TEST(batch->labels.empty());
    BOOST_TEST(batch->global_examples == (b == 2 ? 1 : 2));
  }
  BOOST_TEST(loader.next() == nullptr);
}

BOOST_AUTO_TEST_CASE(says_that_the_batch_size_makes_no_sense) {
  GRADUS_CHECK_MESSAGE(message_of_options({}), {"loader", "expected a global_batch_size of at least 1", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = -3}),
                       {"expected a global_batch_size of at least 1", "got -3"});
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = 11, .drop_last = true}),
                       {"loader", "expected a global_batch_size of at most 10, the size of the set, with drop_last",
                        "got 11", "Hint: an epoch would have no batch"});
}

BOOST_AUTO_TEST_CASE(a_batch_larger_than_the_set_is_the_set) {
  for (const index_t size : {index_t{11}, std::numeric_limits<index_t>::max()}) {
    gradus::cpu device{{.intra_op_threads = 1}};
    const auto set = gradus::data::make_synthetic({.examples = 10, .channels = 2, .height = 3, .width = 4});
    gradus::data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = size}};
    BOOST_TEST(loader.steps_per_epoch() == 1);
    BOOST_TEST(loader.examples_per_epoch() == 10);
    BOOST_TEST(loader.local_batch_size() == 10);
    for (const std::uint64_t epoch : {0U, 1U}) {
      loader.start_epoch(epoch);
      const auto* batch = loader.next();
      BOOST_REQUIRE(batch != nullptr);
      BOOST_TEST(batch->global_examples == 10);
      BOOST_TEST(batch->images.extent(0) == 10);
      BOOST_TEST(loader.next() == nullptr);
    }
    const gradus::data::sampler second{10, {.global_batch_size = size, .shard = {1, 3}}};
    BOOST_TEST(second.largest_share() == 4);
  }
}

BOOST_AUTO_TEST_CASE(says_that_the_shard_makes_no_sense) {
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = 2, .shard = {.rank = 1, .ranks = 0}}),
                       {"loader", "expected shard.ranks of at least 1", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = 2, .shard = {.rank = 3, .ranks = 3}}),
                       {"expected a shard.rank from 0 to 2", "got 3"});
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = 2, .shard = {.rank = -1, .ranks = 3}}),
                       {"expected a shard.rank from 0 to 2", "got -1"});
}

BOOST_AUTO_TEST_CASE(says_that_the_set_or_the_prefetch_makes_no_sense) {
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = 1}, 0),
                       {"loader", "expected a set of at least 1 example", "got an empty set"});
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = 1, .prefetch = 0}),
                       {"loader", "expected a prefetch from 1 to 1024 batches", "got 0"});
  GRADUS_CHECK_MESSAGE(message_of_options({.global_batch_size = 1, .prefetch = -1}), {"expected a prefetch", "got -1"});
  const numbered_set flat{.examples = 3, .shape = {1, 1, 0, 2}};
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] {
                         const loader_type loader{device(), flat, {.global_batch_size = 1}};
                       }),
                       {"loader", "expected images of at least one channel, row and column", "got (1, 1, 0, 2)"});
  const numbered_set classless{.examples = 3, .class_count = 0};
  GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] {
                         const loader_type loader{device(), classless, {.global_batch_size = 1}};
                       }),
                       {"loader", "expected classes of at least 1", "got 0 classes"});
}

BOOST_AUTO_TEST_CASE(images_in_memory_are_normalized) {
  const data::image_dataset images{{2, 2, 1, 1}, {10, 20, 30, 40}, {1, 0}, 2, {.scale = 1, .mean = {10, 0}}};
  loader_type loader{device(), images, {.global_batch_size = 2, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_REQUIRE(batch != nullptr);
  BOOST_TEST(batch->images(0, 0, 0, 0) == 0.0F);
  BOOST_TEST(batch->images(0, 1, 0, 0) == 20.0F);
  BOOST_TEST(batch->images(1, 0, 0, 0) == 20.0F);
  BOOST_TEST(batch->images(1, 1, 0, 0) == 40.0F);
  BOOST_TEST(batch->labels[0] == 1);
}

BOOST_AUTO_TEST_SUITE_END()
