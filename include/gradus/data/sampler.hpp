// SPDX-License-Identifier: BSL-1.0
//
// The order of the examples of an epoch, its batches, and the shard of each rank.
#pragma once

#include <algorithm>  // std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <span>       // std::span
#include <utility>    // std::swap
#include <vector>     // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"

namespace gradus::data {

/// One of `ranks` shards of every batch.
struct shard {
  int rank = 0;   ///< in [0, ranks)
  int ranks = 1;  ///< at least 1
  /// How an uneven batch is divided: false, the first ranks have one example more; true, shares of 2n ranks are parts
  /// of those of n ranks, as reproducible training needs them.
  bool nested = false;

  /// True if all members are equal.
  friend constexpr bool operator==(const shard&, const shard&) noexcept = default;
};

/// `count` consecutive indices from `begin` on.
struct share {
  index_t begin = 0;  ///< the first index
  index_t count = 0;  ///< number of indices

  /// True if all members are equal.
  friend constexpr bool operator==(const share&, const share&) noexcept = default;
};

/// The indices of one rank among `total`: consecutive, in the order of the ranks, with sizes that differ by at most one
/// (the first total % ranks ranks have one more). Empty for the last ranks if total < ranks. Where the shard is nested,
/// share i ends at index total * (i + 1) / ranks, rounded down.
/// @pre total >= 0, 0 <= part.rank < part.ranks
[[nodiscard]] constexpr share share_of(index_t total, const shard& part) noexcept {
  if (part.nested) {
    const index_t begin = total * part.rank / part.ranks;
    return {begin, total * (part.rank + 1) / part.ranks - begin};
  }
  const index_t each = total / part.ranks;
  const index_t more = total % part.ranks;
  const index_t rank = part.rank;
  return {rank * each + std::min(rank, more), each + (rank < more ? 1 : 0)};
}

/// The examples that this rank has of a set that is spread over ranks: see data::distributed.
struct held_examples {
  index_t begin = 0;                         ///< number of the first one, in the order of the ranks
  index_t count = 0;                         ///< number of them; may be 0
  index_t most = 0;                          ///< the largest count of a rank
  data::shard of = {.rank = 0, .ranks = 0};  ///< this rank among those that have the set; 0 ranks: each of them has all

  /// True if the set is spread over ranks.
  [[nodiscard]] constexpr bool spread() const noexcept { return of.ranks > 0; }
};

/// How a set is divided into batches.
struct sampler_options {
  index_t global_batch_size = 0;  ///< examples of a batch over all ranks; all of the set if it has fewer
  bool shuffle = true;            ///< true: a new order for each epoch; false: the order of the set
  std::uint64_t seed = 0;         ///< of the random orders
  data::shard shard = {};         ///< the shard of this rank
  bool drop_last = false;         ///< leave out the last batch of an epoch if it is smaller than the others
  held_examples held = {};        ///< what this rank has, if it does not have all
};

/// One rank's shard of a batch.
struct sample {
  std::span<const index_t> examples;  ///< indices in the set of this rank's examples; may be empty
  /// Position of the first of them in the order of the epoch, in which the batches of a set that is spread over ranks
  /// are in the order of the ranks.
  std::uint64_t first_example = 0;
  index_t global_examples = 0;  ///< examples of the batch over all ranks
};

/// The order of the examples of an epoch.
///
/// With shuffle it is a permutation by the method of Fisher and Yates (Durstenfeld 1964) from random numbers that are a
/// function of (seed, epoch): the same on all ranks and for any number of ranks. Batch b of G examples has the
/// positions [b * G, (b + 1) * G) of that order, and each rank has its `share_of` it. So each epoch uses every example
/// of the set once, on one rank, except those that drop_last leaves out. The shards of all ranks together are the batch
/// of a single process. Of a set that is spread over ranks, a rank's shard is what it has of the batch.
class sampler {
 public:
  /// @throws configuration_error if the set is empty, the batch size is below 1, or with drop_last above the size of
  /// the set, or the shard is invalid
  sampler(index_t examples, const sampler_options& options);

  /// Changes the shard of every batch. @pre 0 <= part.rank < part.ranks
  void take_shard(const shard& part) noexcept { options_.shard = part; }

  /// Draws the order of an epoch; before the first call it is that of epoch 0. Allocates nothing.
  void start_epoch(std::uint64_t epoch) noexcept {
    if (options_.shuffle && epoch != epoch_) {
      draw_order(epoch);
    }
  }

  /// This rank's shard of batch b of the epoch. The indices are valid until the next start_epoch.
  /// @pre 0 <= b < batches()
  [[nodiscard]] sample batch(index_t b) const noexcept;

  /// Batches of an epoch.
  [[nodiscard]] index_t batches() const noexcept {
    const auto examples = static_cast<index_t>(order_.size());
    return examples / options_.global_batch_size +
           (!options_.drop_last && examples % options_.global_batch_size != 0 ? 1 : 0);
  }

  /// Examples of an epoch, over all ranks.
  [[nodiscard]] index_t examples() const noexcept {
    return std::min(batches() * options_.global_batch_size, static_cast<index_t>(order_.size()));
  }

  /// The largest number of examples of a rank in a batch: ceil(global_batch_size / ranks), the same on all ranks. Of a
  /// set that is spread over ranks, all of a batch may be on one of them.
  [[nodiscard]] index_t largest_share() const noexcept {
    if (options_.held.spread()) {
      return std::min(options_.global_batch_size, options_.held.most);
    }
    return share_of(options_.global_batch_size, {.rank = 0, .ranks = options_.shard.ranks}).count;
  }

  /// The options; the shard is the current one.
  [[nodiscard]] const sampler_options& options() const noexcept { return options_; }

 private:
  /// What this rank has of a batch.
  struct held_batch {
    std::size_t first = 0;  // in own_
    std::size_t count = 0;
    index_t before = 0;  // examples of the batch on ranks before this one
  };

  void draw_order(std::uint64_t epoch) noexcept;

  void shuffle(std::uint64_t epoch) noexcept;

  /// Of a set that is spread over ranks: what this rank has of each batch, in the order of the batch.
  void find_own() noexcept;

  static void check(index_t examples, const sampler_options& options);

  sampler_options options_;
  std::vector<index_t> order_;
  std::uint64_t epoch_ = 0;
  // Of a set that is spread over ranks.
  std::vector<index_t> own_;
  std::vector<held_batch> of_batch_;
};

}  // namespace gradus::data

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::data {

GRADUS_INLINE_CONSTRUCTOR sampler::sampler(index_t examples, const sampler_options& options) : options_{options} {
  check(examples, options);
  options_.global_batch_size = std::min(options_.global_batch_size, examples);
  order_ = std::vector<index_t>(static_cast<std::size_t>(examples));
  if (options.held.spread()) {
    own_.reserve(static_cast<std::size_t>(options.held.count));
    of_batch_ = std::vector<held_batch>(static_cast<std::size_t>(batches()));
  }
  draw_order(0);
}

GRADUS_INLINE sample sampler::batch(index_t b) const noexcept {
  const index_t begin = b * options_.global_batch_size;
  const index_t global = std::min(options_.global_batch_size, static_cast<index_t>(order_.size()) - begin);
  if (options_.held.spread()) {
    const held_batch& held = of_batch_[static_cast<std::size_t>(b)];
    return {std::span<const index_t>{own_}.subspan(held.first, held.count),
            static_cast<std::uint64_t>(begin + held.before), global};
  }
  const share mine = share_of(global, options_.shard);
  const std::span<const index_t> order{order_};
  return {order.subspan(static_cast<std::size_t>(begin + mine.begin), static_cast<std::size_t>(mine.count)),
          static_cast<std::uint64_t>(begin + mine.begin), global};
}

GRADUS_INLINE void sampler::draw_order(std::uint64_t epoch) noexcept {
  epoch_ = epoch;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    order_[i] = static_cast<index_t>(i);
  }
  if (options_.shuffle) {
    shuffle(epoch);
  }
  find_own();
}

GRADUS_INLINE void sampler::shuffle(std::uint64_t epoch) noexcept {
  const random_stream stream{random_stream{options_.seed, "shuffle"}.bits(epoch), "order"};
  for (std::uint64_t i = order_.size() - 1; i > 0; --i) {
    const std::uint64_t j = stream.below(i + 1, i);
    std::swap(order_[i], order_[j]);
  }
}

GRADUS_INLINE void sampler::find_own() noexcept {
  const held_examples& held = options_.held;
  own_.clear();
  for (std::size_t b = 0; b < of_batch_.size(); ++b) {
    const auto size = static_cast<std::size_t>(options_.global_batch_size);
    held_batch& one = of_batch_[b] = {.first = own_.size()};
    for (std::size_t i = b * size; i < std::min((b + 1) * size, order_.size()); ++i) {
      one.before += order_[i] < held.begin ? 1 : 0;
      if (order_[i] >= held.begin && order_[i] < held.begin + held.count) {
        own_.push_back(order_[i]);
      }
    }
    one.count = own_.size() - one.first;
  }
}

GRADUS_INLINE void sampler::check(index_t examples, const sampler_options& options) {
  if (examples < 1) {
    raise<configuration_error>("loader", "a set of at least 1 example", "an empty set");
  }
  if (options.global_batch_size < 1) {
    raise<configuration_error>("loader", "a global_batch_size of at least 1", {options.global_batch_size});
  }
  if (options.drop_last && options.global_batch_size > examples) {
    raise<configuration_error>(
        "loader", {"a global_batch_size of at most ", examples, ", the size of the set, with drop_last"},
        {options.global_batch_size}, "an epoch would have no batch: use a smaller one, or drop_last = false");
  }
  if (options.shard.ranks < 1) {
    raise<configuration_error>("loader", "shard.ranks of at least 1", {options.shard.ranks});
  }
  if (options.shard.rank < 0 || options.shard.rank >= options.shard.ranks) {
    raise<configuration_error>("loader", {"a shard.rank from 0 to ", options.shard.ranks - 1}, {options.shard.rank});
  }
}

}  // namespace gradus::data
#endif
