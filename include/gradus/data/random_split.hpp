// SPDX-License-Identifier: BSL-1.0
//
// Parts of a data set: subset, and random_split, which draws them.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t, std::uint64_t
#include <span>         // std::span
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/detail/loader/hash.hpp"
#include "gradus/data/detail/split/draw.hpp"

namespace gradus::data {

/// Some examples of a data set, in an order of its own: a data set with the same kinds of targets, weights and
/// variations from epoch to epoch. Example i is example examples[i] of the set. PyTorch: torch.utils.data.Subset.
///
/// Training may vary its examples while validation reads plain ones of the same set: loader_options::augment.
/// The data set must outlive it, and it the loader.
template <class Dataset>
class subset {
 public:
  /// @param examples  numbers of examples of `set`, in any order, also several times
  /// @throws configuration_error for a number that is not in [0, set.size())
  subset(borrowed<const Dataset> set, std::vector<index_t> examples, error_location where = error_location::current())
      : set_{&set.get()}, examples_{std::move(examples)} {
    at_call(where, [&, this] { detail::require_examples(examples_, static_cast<index_t>(set_->size())); });
  }

  /// The numbers in the whole set of the examples of this part.
  [[nodiscard]] std::span<const index_t> examples() const noexcept { return examples_; }

  /// The number of examples.
  [[nodiscard]] index_t size() const noexcept { return static_cast<index_t>(examples_.size()); }
  /// The extents of one example: (1, c, h, w).
  [[nodiscard]] image_extents example() const { return set_->example(); }
  /// A hash of the whole set and of which examples are in this part.
  [[nodiscard]] std::uint64_t hash() const {
    return detail::hash_bytes(
        {reinterpret_cast<const std::uint8_t*>(examples_.data()), examples_.size() * sizeof(index_t)},
        static_cast<std::uint64_t>(set_->hash()));
  }
  /// Writes the c * h * w elements of example i to `planes`, as the data set does.
  template <class Element>
  requires requires(const Dataset& set, index_t i, Element* planes) { set.read(i, planes); }
  void read(index_t i, Element* planes) const { set_->read(at(i), planes); }
  /// The same for an epoch, of a data set whose examples depend on it, such as random crops.
  template <class Element>
  requires requires(const Dataset& set, index_t i, std::uint64_t epoch, Element* planes) { set.read(i, epoch, planes); }
  void read(index_t i, std::uint64_t epoch, Element* planes) const { set_->read(at(i), epoch, planes); }

  /// The conversion to numbers, of a data set that tells it.
  [[nodiscard]] const normalization& values() const requires requires(const Dataset& set) { set.values(); }
  { return set_->values(); }

  // The targets of the data set (data::dataset), of the kinds that it has.

  /// The number of classes: that of the whole set.
  [[nodiscard]] int classes() const requires requires(const Dataset& set) { set.classes(); }
  { return static_cast<int>(set_->classes()); }
  /// The label of example i, in [0, classes).
  [[nodiscard]] std::int32_t label(index_t i) const requires requires(const Dataset& set) { set.label(i); }
  { return set_->label(at(i)); }
  /// The extents of the labels of an example: (1, 1, h, w).
  [[nodiscard]] image_extents label_map() const requires requires(const Dataset& set) { set.label_map(); }
  { return set_->label_map(); }
  /// Writes the labels of example i to the pointer, row after row. Where they depend on the epoch, it comes before it.
  template <class... Where>
  requires requires(const Dataset& set, index_t i, Where... where) { set.read_labels(i, where...); }
  void read_labels(index_t i, Where... where) const { set_->read_labels(at(i), where...); }
  /// The label that is no class.
  [[nodiscard]] auto ignored_label() const requires requires(const Dataset& set) { set.ignored_label(); }
  { return set_->ignored_label(); }
  /// The extents of a real target: (1, c, h, w).
  [[nodiscard]] image_extents target() const requires requires(const Dataset& set) { set.target(); }
  { return set_->target(); }
  /// Writes target i to the pointer, plane after plane. Where it depends on the epoch, that comes before the pointer.
  template <class... Where>
  requires requires(const Dataset& set, index_t i, Where... where) { set.read_target(i, where...); }
  void read_target(index_t i, Where... where) const { set_->read_target(at(i), where...); }
  /// True if examples have weights.
  [[nodiscard]] bool weighted() const requires requires(const Dataset& set) { set.weighted(); }
  { return set_->weighted(); }
  /// The weight of example i.
  [[nodiscard]] double weight(index_t i) const requires requires(const Dataset& set) { set.weight(i); }
  { return static_cast<double>(set_->weight(at(i))); }
  /// What the set's own member returns: the loader's thread calls it before it prepares a batch.
  [[nodiscard]] auto watch_batch() const requires requires(const Dataset& set) { set.watch_batch(); }
  { return set_->watch_batch(); }
  /// What the set's own member returns: each thread calls it that reads examples of a batch.
  [[nodiscard]] auto watch_reader() const requires requires(const Dataset& set) { set.watch_reader(); }
  { return set_->watch_reader(); }

 private:
  [[nodiscard]] index_t at(index_t i) const noexcept { return examples_[static_cast<std::size_t>(i)]; }

  const Dataset* set_;
  std::vector<index_t> examples_;
};

template <class Dataset>
subset(Dataset&&, std::vector<index_t>, error_location = error_location::current())
    -> subset<std::remove_cvref_t<Dataset>>;

/// Options of random_split.
struct split_options {
  std::uint64_t seed = 0;   ///< equal seeds give equal parts; the same on all ranks
  bool stratified = false;  ///< each part has its share of every class; of a set with a class for each example
};

/// Draws disjoint parts of a data set, which together are the whole set. The set must outlive them.
///
/// @code
///   const auto parts = data::random_split(set, {0.8, 0.2}, {.seed = 1});
///   data::loader<float, nhwc> training{device, parts[0], {.global_batch_size = 64}};
///   data::loader<float, nhwc> validation{device, parts[1], {.global_batch_size = 64, .shuffle = false,
///                                                           .augment = false}};
/// @endcode
///
/// Each part keeps the order of the set. A part has floor(share * size) examples, and one more where it lacks most of
/// its share (PyTorch: torch.utils.data.random_split). With .stratified the same holds for the examples of each class
/// (sklearn: train_test_split with stratify).
/// @param shares  of each part: above 0, with the sum 1
/// @throws configuration_error for other shares, for a part without examples, or to stratify a set that
///         has not one class for each example
template <class Dataset>
[[nodiscard]] std::vector<subset<Dataset>> random_split(const Dataset& set, std::span<const double> shares,
                                                        const split_options& options = {},
                                                        error_location where = error_location::current()) {
  return at_call(where, [&] {
    const auto size = static_cast<index_t>(set.size());
    std::vector<std::int32_t> labels;
    if (options.stratified) {
      labels.resize(static_cast<std::size_t>(size));
      if constexpr (detail::has_label_maps<Dataset>) {
        detail::require_one_label(set.label_map());
        for (index_t i = 0; i < size; ++i) {
          set.read_labels(i, &labels[static_cast<std::size_t>(i)]);
        }
      } else if constexpr (detail::has_labels<Dataset>) {
        for (index_t i = 0; i < size; ++i) {
          labels[static_cast<std::size_t>(i)] = set.label(i);
        }
      } else {
        detail::require_one_label({});
      }
    }
    std::vector<subset<Dataset>> parts;
    for (std::vector<index_t>& examples : detail::draw_parts(size, labels, shares, options.seed)) {
      parts.emplace_back(set, std::move(examples));
    }
    return parts;
  });
}
/// The same for shares in braces.
template <class Dataset>
[[nodiscard]] std::vector<subset<Dataset>> random_split(const Dataset& set, const std::vector<double>& shares,
                                                        const split_options& options = {},
                                                        error_location where = error_location::current()) {
  return random_split(set, std::span<const double>{shares}, options, where);
}
template <class Dataset>
void random_split(const Dataset&&,  // gradus: a temporary data set: name it on the line before
                  const std::vector<double>&, const split_options& = {}) = delete;
template <class Dataset>
void random_split(const Dataset&&,  // gradus: a temporary data set: name it on the line before
                  std::span<const double>, const split_options& = {}) = delete;

}  // namespace gradus::data
