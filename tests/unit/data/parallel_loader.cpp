// SPDX-License-Identifier: BSL-1.0
//
// The loader with several readers: the same batches as with one, whatever the layout and element.
#include "gradus/data/parallel_loader.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "example_sets.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/layout/layouts.hpp"
#include "idx_files.hpp"

namespace data = gradus::data;
using example_sets::device;
using example_sets::numbered_set;
using example_sets::watched_set;
using gradus::configuration_error;
using gradus::index_t;
using idx_files::message_of;

namespace {

/// Labels and elements of all batches of two epochs.
template <class Loader>
std::vector<float> contents(Loader& loader) {
  std::vector<float> all;
  for (const std::uint64_t epoch : {0U, 1U}) {
    loader.start_epoch(epoch);
    while (const auto* batch = loader.next()) {
      all.push_back(static_cast<float>(batch->first_example));
      all.insert(all.end(), batch->labels.begin(), batch->labels.end());
      for (index_t k = 0; k < batch->images.size(); ++k) {
        all.push_back(static_cast<float>(batch->images.data()[k]));
      }
    }
  }
  return all;
}

template <class Element, class Layout>
void compare(int threads) {
  const numbered_set set{.examples = 23, .shape = {1, 3, 4, 5}};
  const data::loader_options options{.global_batch_size = 8, .seed = 5, .shard = {.rank = 1, .ranks = 2}};
  data::loader<Element, Layout> one{device(), set, options};
  data::parallel_loader<Element, Layout> several{device(), set, options, {.threads = threads}};
  BOOST_TEST(one.description() == several.description());
  BOOST_TEST(contents(one) == contents(several), boost::test_tools::per_element());
}

/// Element 0 says the epoch.
struct set_of_epochs : numbered_set {
  using numbered_set::read;
  void read(index_t i, std::uint64_t epoch, float* planes) const {
    read(i, planes);
    planes[0] = static_cast<float>(epoch);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel_loader)

BOOST_AUTO_TEST_CASE(gives_the_batches_of_one_reader) {
  for (const int threads : {1, 3, 16}) {
    compare<float, gradus::nchw>(threads);
    compare<float, gradus::nhwc>(threads);
  }
  compare<gradus::bfloat16, gradus::nhwc>(3);
}

BOOST_AUTO_TEST_CASE(asks_for_the_form_of_the_epoch) {
  const set_of_epochs set{{.examples = 4, .shape = {1, 1, 2, 2}}};
  for (const bool augment : {true, false}) {
    data::parallel_loader<float, gradus::nchw> loader{
        device(), set, {.global_batch_size = 4, .shuffle = false}, {.threads = 2, .augment = augment}};
    for (const std::uint64_t epoch : {0U, 7U}) {
      loader.start_epoch(epoch);
      const auto* const batch = loader.next();
      BOOST_TEST(batch->images.data()[4] == (augment ? static_cast<float>(epoch) : 1000.0F));
    }
  }
}

// The rest of an epoch is the same when its first batches are left out, which are not read.
BOOST_AUTO_TEST_CASE(an_epoch_can_begin_at_any_batch) {
  const watched_set set{23};
  const data::loader_options options{
      .global_batch_size = 4, .seed = 5, .shard = {.rank = 1, .ranks = 2}, .prefetch = 1};
  data::loader<float, gradus::nhwc> whole{device(), set, options};
  data::loader<float, gradus::nhwc> later{device(), set, options};
  data::parallel_loader<float, gradus::nhwc> parallel{device(), set, options, {.threads = 2}};
  for (index_t first = 0; first <= whole.steps_per_epoch(); ++first) {
    for (const std::uint64_t epoch : {0U, 3U}) {
      whole.start_epoch(epoch);
      index_t left = 0;
      for (index_t b = 0; b < whole.steps_per_epoch(); ++b) {
        left += whole.next()->images.extent(0) * (b < first ? 0 : 1);
      }
      const index_t before = set.reads;
      later.start_epoch(epoch, first);
      while (later.next() != nullptr) {
      }
      BOOST_TEST(set.reads - before == left);
      later.start_epoch(epoch + 1);  // given up
      later.start_epoch(epoch, first);
      parallel.start_epoch(epoch, first);
      whole.start_epoch(epoch);
      for (index_t b = 0; b < whole.steps_per_epoch(); ++b) {
        const auto* const wanted = whole.next();
        if (b >= first) {
          for (const auto* const batch : {later.next(), parallel.next()}) {
            BOOST_REQUIRE(batch != nullptr);
            BOOST_TEST(batch->first_example == wanted->first_example);
            BOOST_TEST(batch->global_examples == wanted->global_examples);
            BOOST_TEST(std::ranges::equal(batch->labels, wanted->labels));
            BOOST_TEST(
                std::equal(batch->images.data(), batch->images.data() + batch->images.size(), wanted->images.data()));
          }
        }
      }
      BOOST_TEST(later.next() == nullptr);
      BOOST_TEST(parallel.next() == nullptr);
    }
  }
  for (const index_t first : {-1, 7}) {
    GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] { later.start_epoch(0, first); }),
                         {"loader.start_epoch: expected a first batch from 0 to 6", "parallel_loader.cpp"});
  }
}

BOOST_AUTO_TEST_CASE(failures_of_readers_reach_the_consumer) {
  watched_set set{20};
  set.bad_example = 13;
  data::parallel_loader<float, gradus::nchw> loader{
      device(), set, {.global_batch_size = 8, .shuffle = false}, {.threads = 4}};
  loader.start_epoch(0);
  BOOST_TEST(loader.next() != nullptr);
  BOOST_TEST(message_of<std::runtime_error>([&] { (void)loader.next(); }) == "the disk is gone");
  set.bad_example = -1;
  loader.start_epoch(1);
  BOOST_TEST(loader.next()->labels.size() == 8U);
  for (const int threads : {0, 257}) {
    GRADUS_CHECK_MESSAGE(message_of<configuration_error>([&] {
                           const data::parallel_loader<float, gradus::nchw> other{
                               device(), set, {.global_batch_size = 8}, {.threads = threads}};
                         }),
                         {"parallel_loader: expected threads from 1 to 256"});
  }
}

BOOST_AUTO_TEST_SUITE_END()
