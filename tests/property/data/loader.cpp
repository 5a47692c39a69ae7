// SPDX-License-Identifier: BSL-1.0
//
// What a loader gives is what the data set holds, in every layout, on any number of ranks.
#include "gradus/data/loader.hpp"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "example_sets.hpp"
#include "gradus/layout/layouts.hpp"

namespace data = gradus::data;
using gradus::index_t;

namespace {

/// Images innermost: the furthest from the order in which sets are read.
struct whcn {
  static constexpr std::array order{gradus::axis::w, gradus::axis::h, gradus::axis::c, gradus::axis::n};
  static constexpr std::string_view name = "whcn";
};

/// The rows of all images together: pixels of a row are adjacent, and yet an image is not in one piece.
struct hncw {
  static constexpr std::array order{gradus::axis::h, gradus::axis::n, gradus::axis::c, gradus::axis::w};
  static constexpr std::string_view name = "hncw";
};

/// The planes of all images together, channel after channel.
struct cnhw {
  static constexpr std::array order{gradus::axis::c, gradus::axis::n, gradus::axis::h, gradus::axis::w};
  static constexpr std::string_view name = "cnhw";
};

using elements_and_layouts =
    std::tuple<std::pair<float, gradus::nchw>, std::pair<float, gradus::nhwc>, std::pair<double, gradus::nhwc>>;

/// Whether every element of image n of the batch is that of the example.
template <class Batch>
bool holds(const Batch& batch, index_t n, index_t example) {
  const auto& images = batch.images;
  index_t k = 0;
  for (index_t c = 0; c < images.extent(1); ++c) {
    for (index_t h = 0; h < images.extent(2); ++h) {
      for (index_t w = 0; w < images.extent(3); ++w) {
        if (static_cast<double>(images(n, c, h, w)) != static_cast<double>(1000 * example + k++)) {
          return false;
        }
      }
    }
  }
  return batch.labels[static_cast<std::size_t>(n)] == example % 5;
}

/// Two epochs of all ranks against the sampler of one process.
template <class Element, class Layout>
void check_loaders(const gradus::image_extents& shape, index_t examples, index_t batch_size, int ranks) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const example_sets::numbered_set set{.examples = examples, .shape = shape};
  data::sampler expected{examples, {.global_batch_size = batch_size, .seed = 5}};
  std::vector<std::unique_ptr<data::loader<Element, Layout>>> loaders;
  for (int rank = 0; rank < ranks; ++rank) {
    loaders.push_back(std::make_unique<data::loader<Element, Layout>>(
        device, set,
        data::loader_options{.global_batch_size = batch_size, .seed = 5, .shard = {.rank = rank, .ranks = ranks}}));
    BOOST_TEST(loaders.back()->description() == loaders.front()->description());
  }
  for (const std::uint64_t epoch : {0U, 1U}) {
    expected.start_epoch(epoch);
    for (auto& loader : loaders) {
      loader->start_epoch(epoch);
    }
    for (index_t b = 0; b < expected.batches(); ++b) {
      const auto whole = expected.batch(b);
      std::size_t position = 0;
      for (auto& loader : loaders) {
        const auto* batch = loader->next();
        BOOST_REQUIRE(batch != nullptr);
        BOOST_TEST(batch->first_example == whole.first_example + position);
        BOOST_TEST(batch->global_examples == whole.global_examples);
        BOOST_TEST(batch->images.extent(0) == static_cast<index_t>(batch->labels.size()));
        BOOST_TEST(batch->images.extent(0) <= loader->local_batch_size());
        bool right = true;
        for (index_t n = 0; n < batch->images.extent(0); ++n) {
          right = right && holds(*batch, n, whole.examples[position++]);
        }
        BOOST_TEST(right);
      }
      BOOST_TEST(position == whole.examples.size());
    }
    for (auto& loader : loaders) {
      BOOST_TEST(loader->next() == nullptr);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loader)

BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_together_give_the_batches_of_one_process, Case, elements_and_layouts) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const auto& [examples, batch_size] : {std::pair<index_t, index_t>{23, 7}, {12, 4}, {9, 9}, {10, 2}, {3, 1}}) {
      BOOST_TEST_CONTEXT("ranks " << ranks << " examples " << examples << " batch " << batch_size) {
        check_loaders<typename Case::first_type, typename Case::second_type>({1, 3, 2, 4}, examples, batch_size, ranks);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(images_of_every_shape_arrive, Case, elements_and_layouts) {
  for (const gradus::image_extents& shape :
       {gradus::image_extents{1, 1, 1, 1}, {1, 1, 5, 3}, {1, 4, 1, 1}, {1, 2, 1, 3}, {1, 2, 3, 1}, {1, 1, 4, 1}}) {
    BOOST_TEST_CONTEXT("shape " << shape) {
      check_loaders<typename Case::first_type, typename Case::second_type>(shape, 11, 3, 2);
    }
  }
}

BOOST_AUTO_TEST_CASE(images_arrive_in_a_layout_of_the_users) {
  for (const gradus::image_extents& shape : {gradus::image_extents{1, 3, 2, 4}, {1, 1, 1, 1}, {1, 1, 3, 2}}) {
    check_loaders<float, whcn>(shape, 11, 4, 1);
    check_loaders<float, whcn>(shape, 11, 4, 3);
    check_loaders<float, hncw>(shape, 11, 4, 1);
    check_loaders<float, cnhw>(shape, 11, 4, 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()
