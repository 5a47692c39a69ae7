// SPDX-License-Identifier: BSL-1.0
//
// Examples that vary from epoch to epoch: every loader gives images and targets of the same variant.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <vector>

#include "gradus/data/loader.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/layout/layouts.hpp"

namespace {

namespace data = gradus::data;
using gradus::index_t;

constexpr index_t example_count = 11;

/// Four pixels, of which one that depends on the example and the epoch is 1.
template <class Number>
void write(index_t i, std::uint64_t epoch, Number* to) {
  for (std::uint64_t w = 0; w < 4; ++w) {
    to[w] = (static_cast<std::uint64_t>(i) + epoch + w) % 4 == 0 ? Number{1} : Number{0};
  }
}

struct varied_images {
  [[nodiscard]] index_t size() const { return example_count; }
  [[nodiscard]] gradus::image_extents example() const { return {1, 1, 1, 4}; }
  [[nodiscard]] std::uint64_t hash() const { return 1; }
  void read(index_t i, float* planes) const { write(i, 0, planes); }
  void read(index_t i, std::uint64_t epoch, float* planes) const { write(i, epoch, planes); }
};

struct with_maps : varied_images {
  [[nodiscard]] int classes() const { return 2; }
  [[nodiscard]] gradus::image_extents label_map() const { return {1, 1, 1, 4}; }
  void read_labels(index_t i, std::int32_t* labels) const { write(i, 0, labels); }
  void read_labels(index_t i, std::uint64_t epoch, std::int32_t* labels) const { write(i, epoch, labels); }
};

struct with_numbers : varied_images {
  [[nodiscard]] gradus::image_extents target() const { return {1, 1, 1, 4}; }
  void read_target(index_t i, float* planes) const { write(i, 0, planes); }
  void read_target(index_t i, std::uint64_t epoch, float* planes) const { write(i, epoch, planes); }
};

/// A class that stays, and numbers that vary.
struct with_both : with_numbers {
  [[nodiscard]] int classes() const { return 2; }
  [[nodiscard]] std::int32_t label(index_t /*i*/) const { return 1; }
};

/// What the batches of an epoch have at the pixels, the labels and the targets.
struct epoch_contents {
  std::vector<float> images;
  std::vector<float> labels;
  std::vector<float> targets;
};

template <class Loader>
epoch_contents of_epoch(Loader& loader, std::uint64_t epoch) {
  epoch_contents all;
  loader.start_epoch(epoch);
  while (const auto* const batch = loader.next()) {
    all.images.insert(all.images.end(), batch->images.data(), batch->images.data() + batch->images.size());
    all.labels.insert(all.labels.end(), batch->labels.begin(), batch->labels.end());
    all.targets.insert(all.targets.end(), batch->targets.data(), batch->targets.data() + batch->targets.size());
  }
  return all;
}

std::vector<float> pixels(std::uint64_t epoch) {
  std::vector<float> all(4 * example_count);
  for (index_t i = 0; i < example_count; ++i) {
    write(i, epoch, all.data() + 4 * i);
  }
  return all;
}

/// @param look  called with the contents and the pixels that are expected
template <class Set, class Look>
void check_loaders(const Look& look) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const Set set;
  const auto check = [&](auto&& loader, bool varies) {
    for (const std::uint64_t epoch : {0U, 1U, 2U, 7U, 1U}) {
      BOOST_TEST_CONTEXT("epoch " << epoch) {
        const epoch_contents have = of_epoch(loader, epoch);
        const std::vector<float> want = pixels(varies ? epoch : 0);
        BOOST_TEST((have.images == want));
        look(have, want);
      }
    }
  };
  for (const bool varies : {true, false}) {
    const data::loader_options options{.global_batch_size = 4, .shuffle = false, .augment = varies};
    check(data::loader<float, gradus::nchw>{device, set, options}, varies);
    check(data::parallel_loader<float, gradus::nchw>{device, set, options, {.threads = 3}}, varies);
    check(
        data::parallel_loader<float, gradus::nchw>{
            device, set, {.global_batch_size = 4, .shuffle = false}, {.threads = 3, .augment = varies}},
        varies);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(augmentation)

BOOST_AUTO_TEST_CASE(label_maps_follow_the_images) {
  check_loaders<with_maps>([](const epoch_contents& have, const auto& want) { BOOST_TEST((have.labels == want)); });
}

BOOST_AUTO_TEST_CASE(real_targets_follow_the_images) {
  check_loaders<with_numbers>([](const epoch_contents& have, const auto& want) { BOOST_TEST((have.targets == want)); });
}

BOOST_AUTO_TEST_CASE(a_class_stays_where_numbers_vary) {
  check_loaders<with_both>([](const epoch_contents& have, const auto& want) {
    BOOST_TEST((have.targets == want));
    BOOST_TEST((have.labels == std::vector<float>(example_count, 1.0F)));
  });
}

BOOST_AUTO_TEST_SUITE_END()
