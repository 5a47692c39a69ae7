// SPDX-License-Identifier: BSL-1.0
//
// A data set that is spread over ranks: each of them has examples of its own.
#pragma once

#include <algorithm>  // std::max
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::int64_t, std::uint64_t
#include <exception>  // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <optional>   // std::optional
#include <span>       // std::span
#include <utility>    // std::forward, std::move
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/sampler.hpp"

namespace gradus::data {

namespace detail {

/// What a rank says of its examples, as numbers that travel.
struct part_properties {
  enum : std::size_t {
    valid,
    n,
    c,
    h,
    w,
    target_c,
    target_h,
    target_w,
    classes,
    weighted,
    ignores,
    ignored,
    hash,
    count
  };
  std::array<std::int64_t, count> values{};

  [[nodiscard]] std::int64_t& operator[](std::size_t i) noexcept { return values[i]; }
  [[nodiscard]] std::int64_t operator[](std::size_t i) const noexcept { return values[i]; }
};

/// The parts of all ranks, together.
struct spread_properties {
  held_examples held;
  index_t size = 0;
  image_extents example{1, 0, 0, 0};
  image_extents target{1, 0, 0, 0};
  int classes = 0;
  bool weighted = false;
  std::uint64_t hash = 0;
};

/// @throws configuration_error, shape_error on all ranks when a rank has refused its examples, or ranks differ
[[nodiscard]] inline spread_properties together(std::span<const part_properties> all, int rank, error_location where) {
  spread_properties result;
  result.held.of = {.rank = rank, .ranks = static_cast<int>(all.size())};
  const part_properties* first = nullptr;  // that has examples
  for (std::size_t r = 0; r < all.size(); ++r) {
    const part_properties& one = all[r];
    if (one[part_properties::valid] == 0) {
      raise<configuration_error>("data::distributed", "examples of each rank that fit together",
                                 {"others, or none that fit, on rank ", r}, "rank's own error says what is wrong",
                                 where);
    }
    if (static_cast<int>(r) == rank) {
      result.held.begin = result.size;
      result.held.count = one[part_properties::n];
    }
    result.size += one[part_properties::n];
    result.held.most = std::max<index_t>(result.held.most, one[part_properties::n]);
    result.classes = std::max(result.classes, static_cast<int>(one[part_properties::classes]));
    result.weighted = result.weighted || one[part_properties::weighted] != 0;
    result.hash += static_cast<std::uint64_t>(one[part_properties::hash]);
    if (one[part_properties::n] == 0) {
      continue;
    }
    for (std::size_t k = part_properties::c; first != nullptr && k <= part_properties::ignored; ++k) {
      if (k != part_properties::classes && k != part_properties::weighted && one[k] != (*first)[k]) {
        raise<shape_error>("data::distributed", "inputs and targets of one shape, and one ignored label, on all ranks",
                           {"rank ",
                            r,
                            " has inputs of ",
                            one[part_properties::c],
                            "x",
                            one[part_properties::h],
                            "x",
                            one[part_properties::w],
                            " and targets of ",
                            one[part_properties::target_c],
                            "x",
                            one[part_properties::target_h],
                            "x",
                            one[part_properties::target_w],
                            ", and rank ",
                            first - all.data(),
                            " inputs of ",
                            (*first)[part_properties::c],
                            "x",
                            (*first)[part_properties::h],
                            "x",
                            (*first)[part_properties::w],
                            " and targets of ",
                            (*first)[part_properties::target_c],
                            "x",
                            (*first)[part_properties::target_h],
                            "x",
                            (*first)[part_properties::target_w]},
                           {}, where);
      }
    }
    first = first == nullptr ? &one : first;
  }
  if (first == nullptr) {
    raise<configuration_error>("data::distributed", "a set of at least 1 example", "no examples on any rank", {},
                               where);
  }
  result.example = {1, (*first)[part_properties::c], (*first)[part_properties::h], (*first)[part_properties::w]};
  result.target = {1, (*first)[part_properties::target_c], (*first)[part_properties::target_h],
                   (*first)[part_properties::target_w]};
  return result;
}

}  // namespace detail

/// A data set in memory that is spread over ranks; data::distributed makes it. Its examples are those of all ranks, in
/// the order of the ranks. A rank reads only its own. It is immutable; any number of threads may read it.
template <class Input, class Target>
class distributed_dataset {
  using part_type = in_memory_dataset<Input, Target>;
  static constexpr bool has_classes = detail::has_label_maps<part_type>;

 public:
  /// As distributed.
  template <class Communicator, class Make>
  distributed_dataset(Communicator& world, const Make& make, error_location where) {
    detail::part_properties own;
    std::exception_ptr refused;
    try {
      part_.emplace(make());
      own = properties_of(*part_);
    } catch (const error&) {
      refused = std::current_exception();
    }
    std::vector<std::int64_t> numbers(own.values.size() * static_cast<std::size_t>(world.size()));
    gather(world, own, numbers);
    if (refused) {
      std::rethrow_exception(refused);
    }
    all_ = detail::together(parts_of(numbers), world.rank(), where);
    // Of each example and its number: the same, however the examples are spread.
    own[detail::part_properties::hash] = static_cast<std::int64_t>(hash_of_own());
    gather(world, own, numbers);
    all_ = detail::together(parts_of(numbers), world.rank(), where);
  }

  /// The number of examples of all ranks.
  [[nodiscard]] index_t size() const noexcept { return all_.size; }
  /// What this rank has of them.
  [[nodiscard]] const held_examples& held() const noexcept { return all_.held; }
  /// The extents of an input: (1, c, h, w).
  [[nodiscard]] image_extents example() const noexcept { return all_.example; }
  /// A hash of all examples, which is the same for the same examples on any number of ranks.
  [[nodiscard]] std::uint64_t hash() const noexcept { return all_.hash; }
  /// Writes input i, plane after plane. @pre this rank has it
  template <class Element>
  void read(index_t i, Element* planes) const noexcept {
    part_->read(i - all_.held.begin, planes);
  }
  /// The number of classes, over all ranks.
  [[nodiscard]] int classes() const noexcept requires(has_classes) { return all_.classes; }
  /// The extents of the labels of an example: (1, 1, 1, 1) for a class, (1, 1, h, w) for a class for each pixel.
  [[nodiscard]] image_extents label_map() const noexcept requires(has_classes) { return all_.target; }
  /// Writes the labels of example i, row after row. @pre this rank has it
  void read_labels(index_t i, std::int32_t* labels) const noexcept requires(has_classes) {
    part_->read_labels(i - all_.held.begin, labels);
  }
  /// The label that is no class, if there is one.
  [[nodiscard]] std::optional<std::int32_t> ignored_label() const noexcept requires(has_classes) {
    return part_->ignored_label();
  }
  /// The extents of a target: (1, c, h, w).
  [[nodiscard]] image_extents target() const noexcept requires(!has_classes) { return all_.target; }
  /// Writes target i, plane after plane. @pre this rank has it
  template <class Element>
  requires(!has_classes) void read_target(index_t i, Element* planes) const noexcept {
    part_->read_target(i - all_.held.begin, planes);
  }
  /// True if a rank has weights; examples of others then weigh 1.
  [[nodiscard]] bool weighted() const noexcept { return all_.weighted; }
  /// The weight of example i. @pre this rank has it
  [[nodiscard]] double weight(index_t i) const noexcept { return part_->weight(i - all_.held.begin); }

 private:
  [[nodiscard]] static detail::part_properties properties_of(const part_type& part) {
    using properties = detail::part_properties;
    properties own;
    image_extents target{1, 0, 0, 0};
    own[properties::valid] = 1;
    own[properties::n] = part.size();
    own[properties::c] = part.example().c;
    own[properties::h] = part.example().h;
    own[properties::w] = part.example().w;
    own[properties::weighted] = part.weighted() ? 1 : 0;
    if constexpr (has_classes) {
      target = part.label_map();
      own[properties::classes] = part.classes();
      own[properties::ignores] = part.ignored_label().has_value() ? 1 : 0;
      own[properties::ignored] = part.ignored_label().value_or(0);
    } else {
      target = part.target();
    }
    own[properties::target_c] = target.c;
    own[properties::target_h] = target.h;
    own[properties::target_w] = target.w;
    return own;
  }

  template <class Communicator>
  static void gather(Communicator& world, const detail::part_properties& own, std::span<std::int64_t> numbers) {
    world.all_gather(std::span<const std::int64_t>{own.values}, numbers).wait();
  }

  [[nodiscard]] static std::vector<detail::part_properties> parts_of(std::span<const std::int64_t> numbers) {
    std::vector<detail::part_properties> parts(numbers.size() / detail::part_properties::count);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      parts[i / detail::part_properties::count][i % detail::part_properties::count] = numbers[i];
    }
    return parts;
  }

  [[nodiscard]] std::uint64_t hash_of_own() const noexcept {
    std::uint64_t sum = 0;
    for (index_t i = 0; i < part_->size(); ++i) {
      sum += gradus::detail::mix_bits(part_->hash(i) ^
                                      gradus::detail::mix_bits(static_cast<std::uint64_t>(all_.held.begin + i)));
    }
    return sum;
  }

  std::optional<part_type> part_;
  detail::spread_properties all_;
};

/// A data set of which each rank brings its own examples: any number of them, also none. Called by all ranks of the
/// communicator, which is the trainer's. Arguments as in_memory; the arrays must outlive the data set.
///
/// @code
///   const auto set = data::distributed(world, inputs, targets);  // of this rank
///   data::loader<float, nhwc> loader{device, set, {.global_batch_size = 64}};
/// @endcode
///
/// The set is that of all examples in the order of the ranks. Batches are drawn over all of them, and each rank
/// computes what it has of a batch: a step makes the update of one process that has all examples, except that dropout
/// draws other numbers. The same holds for evaluations and metrics. Loaders of other sets divide a batch evenly; here
/// the shares vary, and up to min(global_batch_size, the examples of the largest rank) are on one rank: compile the
/// network for that number, or give a smaller micro_batch_size too. A checkpoint goes on with the same examples in the
/// same order, on any number of ranks.
/// @throws shape_error, configuration_error as in_memory, and when ranks have other shapes; then on all ranks
/// @throws communication_error if a rank fails or does not call it in time
template <class Communicator, class Inputs, class Targets>
[[nodiscard]] auto distributed(Communicator& world, Inputs&& inputs, Targets&& targets,
                               const in_memory_options& options = {},
                               error_location where = error_location::current()) {
  const auto make = [&] {
    return in_memory(std::forward<Inputs>(inputs), std::forward<Targets>(targets), options, where);
  };
  using part = decltype(make());
  return [&]<class Input, class Target>(const in_memory_dataset<Input, Target>* /*type*/) {
    return distributed_dataset<Input, Target>{world, make, where};
  }(static_cast<const part*>(nullptr));
}

}  // namespace gradus::data
