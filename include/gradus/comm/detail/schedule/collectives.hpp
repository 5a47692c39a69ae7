// SPDX-License-Identifier: BSL-1.0
//
// Collective algorithms over send and receive, as message schedules.
#pragma once

#include <bit>      // std::bit_floor
#include <cstddef>  // std::size_t
#include <numeric>  // std::gcd

#include "gradus/comm/detail/schedule/schedule.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

// Costs for p ranks and n bytes, with latency a, time b to send a byte and time c to combine one (R. Thakur, R.
// Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005):
//
//   ring                 2 (p-1) a          + 2 (p-1)/p n b + (p-1)/p n c
//   halving-doubling     2 log2(p) a        + 2 (p-1)/p n b + (p-1)/p n c      p a power of two
//   recursive doubling   log2(p) (a + n b + n c)                               p a power of two
namespace gradus::comm::detail {

/// Chunk `i` of `chunks` of a range; `i` is any integer, modulo `chunks`.
[[nodiscard]] inline element_range chunk_of(const element_range& whole, index_t chunks, index_t i) noexcept {
  i = ((i % chunks) + chunks) % chunks;
  return {whole.begin + part_bound(whole.size(), chunks, i), whole.begin + part_bound(whole.size(), chunks, i + 1)};
}

/// A ring through all positions of a group in steps of `stride`, which has no common divisor with their number.
struct ring_position {
  index_t position = 0;  ///< position of this rank along the ring
  int next = 0;          ///< the next rank
  int previous = 0;      ///< the previous rank
};

[[nodiscard]] ring_position position_on_ring(const rank_group& group, int stride) noexcept;

/// The strides of `rings` rings through `size` ranks that share as few links as possible.
[[nodiscard]] dynamic_array<int> ring_strides(int size, int rings);

/// Adds step `step` of p - 1 of the reduce phase of a ring: at the end, chunk position + 1 is complete on this rank.
inline void add_ring_reduce_step(schedule& plan, const ring_position& own, const element_range& whole, int ranks,
                                 int step) {
  plan.send(own.next, chunk_of(whole, ranks, own.position - step));
  plan.receive(own.previous, chunk_of(whole, ranks, own.position - step - 1), arrival::combine);
}

/// Adds step `step` of p - 1 of the gather phase: the rank has chunk position + `offset` and receives all others.
inline void add_ring_gather_step(schedule& plan, const ring_position& own, const element_range& whole, int ranks,
                                 int step, int offset) {
  plan.send(own.next, chunk_of(whole, ranks, own.position + offset - step));
  plan.receive(own.previous, chunk_of(whole, ranks, own.position + offset - step - 1), arrival::replace);
}

/// All-reduce over `rings` rings at the same time, each for its own part of the array. For any number of ranks and
/// elements. Chunk i of a ring is combined in the order of the positions i, i+1, ..., around the ring.
///
/// Reference: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
void add_ring_all_reduce(schedule& plan, const rank_group& group, const element_range& whole, int rings = 1);

/// At the end, the rank at position i of the group has chunk i of p reduced.
void add_ring_reduce_scatter(schedule& plan, const rank_group& group, const element_range& whole);

/// As add_ring_reduce_scatter, in the order of add_halving, for a power of two of ranks: a rank adds what its neighbor
/// has of the chunks whose numbers agree with its own in the lowest bit, then what the rank 2 away has of those that
/// agree in two bits, and so on.
void add_paired_reduce_scatter(schedule& plan, const rank_group& group, const element_range& whole);

/// At the begin, the rank at position i has chunk i of p; at the end all ranks have all chunks.
void add_ring_all_gather(schedule& plan, const rank_group& group, const element_range& whole);

/// The part of position `v` in a power of two after halving the range for the masks 1, 2, ... below `masks`.
[[nodiscard]] element_range halved(element_range range, int v, int masks) noexcept;

/// Reduce-scatter by halving among the positions [first, first + size) of a group; `size` is a power of two. Nearest
/// neighbors exchange the largest messages. At the end, position v has halved(whole, v, size) reduced.
void add_halving(schedule& plan, const rank_group& group, const element_range& whole, int first, int size);

/// All-gather by doubling: the reverse of add_halving.
void add_doubling(schedule& plan, const rank_group& group, const element_range& whole, int first, int size);

/// Folds any number of ranks p to a power of two q. Of the first 2 (p - q) ranks, the even ones send their whole array
/// to the odd ones, which call `function` with the remaining group; then the even ones receive the result.
template <class Function>
void with_folded_group(schedule& plan, const rank_group& group, const element_range& whole, const Function& function) {
  const int ranks = group.size();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const int folded = 2 * (ranks - power);
  dynamic_array<int> rest;
  int self = 0;
  for (int position = 0; position < ranks; ++position) {
    if (position >= folded || position % 2 == 1) {
      self = position == group.self ? static_cast<int>(rest.size()) : self;
      rest.push_back(group.rank(position));
    }
  }
  if (group.self >= folded) {
    function(rank_group{{rest.data(), rest.size()}, self});
  } else if (group.self % 2 == 0) {
    plan.send(group.rank(group.self + 1), whole);
    plan.receive(group.rank(group.self + 1), whole, arrival::replace);
  } else {
    const int partner = group.rank(group.self - 1);
    plan.receive(partner, whole, arrival::combine_after);
    function(rank_group{{rest.data(), rest.size()}, self});
    plan.send(partner, whole);
  }
}

/// All-reduce by halving and doubling; a number of ranks that is not a power of two is folded first.
///
/// Reference: R. Rabenseifner, Optimization of collective reduction operations, 2004.
inline void add_halving_doubling(schedule& plan, const rank_group& group, const element_range& whole) {
  with_folded_group(plan, group, whole, [&](const rank_group& power) {
    add_halving(plan, power, whole, 0, power.size());
    add_doubling(plan, power, whole, 0, power.size());
  });
}

/// All-reduce by halving and doubling in blocks of ranks: the powers of two that sum to the number of ranks. First a
/// reduce-scatter within each block. Each block's parts go to the owners of these parts in the next larger block, which
/// combine them; the results return the same way. At last an all-gather within each block.
///
/// Reference: P. Goyal et al., Accurate, large minibatch SGD: training ImageNet in 1 hour, 2017, section 4; the
/// algorithm is Rabenseifner's.
void add_binary_blocks(schedule& plan, const rank_group& group, const element_range& whole);

/// All-reduce of short arrays: ranks exchange whole arrays with ranks 1, 2, 4, ... away, and both compute the same
/// bits.
void add_recursive_doubling(schedule& plan, const rank_group& group, const element_range& whole);

/// Sends the range from position `root` down a binomial tree.
void add_tree_broadcast(schedule& plan, const rank_group& group, const element_range& whole, int root);

/// Combines up a binomial tree to position `root`; the final content of the other ranks' arrays is unspecified.
void add_tree_reduce(schedule& plan, const rank_group& group, const element_range& whole, int root);

/// Broadcast of long arrays: the root scatters chunks, which then travel around a ring.
void add_scattered_broadcast(schedule& plan, const rank_group& group, const element_range& whole, int root);

/// Reduce of long arrays: a reduce-scatter, then the root gathers the chunks.
void add_gathered_reduce(schedule& plan, const rank_group& group, const element_range& whole, int root);

/// In round k, every rank signals its arrival to the rank 2^k ahead and receives the signal of the rank 2^k behind.
///
/// Reference: D. Hensgen, R. Finkel, U. Manber, Two algorithms for barrier synchronization, 1988.
void add_dissemination_barrier(schedule& plan, const rank_group& group);

/// The ranks of each node, in the order of the ranks.
struct node_map {
  dynamic_array<dynamic_array<int>> nodes;
  int own_node = 0;
  int own_position = 0;  ///< position in its node

  /// True if all nodes have the same number of ranks.
  [[nodiscard]] bool even() const noexcept;
};

/// All-reduce in two levels. If all nodes have the same number of ranks: a reduce-scatter within the node; then one
/// all-reduce between nodes for each rank of a node, all at the same time, each for one part of the array; then an
/// all-gather within the node. Each rank sends 1/ranks of the bytes between nodes. Otherwise the first rank of each
/// node is its leader.
void add_hierarchical(schedule& plan, const node_map& map, const element_range& whole, bool ring_between);

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE ring_position position_on_ring(const rank_group& group, int stride) noexcept {
  const int size = group.size();
  ring_position own{.position = 0,
                    .next = group.rank((group.self + stride) % size),
                    .previous = group.rank((group.self + size - stride % size) % size)};
  for (int position = 0; position != group.self; position = (position + stride) % size) {
    ++own.position;
  }
  return own;
}

GRADUS_INLINE dynamic_array<int> ring_strides(int size, int rings) {
  dynamic_array<int> strides;
  for (int stride = 1; static_cast<int>(strides.size()) < rings; ++stride) {
    if (std::gcd(stride, size) == 1) {
      strides.push_back(size > 1 ? (stride - 1) % size + 1 : 1);
    }
  }
  return strides;
}

GRADUS_INLINE void add_ring_all_reduce(schedule& plan, const rank_group& group, const element_range& whole, int rings) {
  const int ranks = group.size();
  const dynamic_array<int> strides = ring_strides(ranks, rings);
  for (int half = 0; half < 2; ++half) {
    for (int step = 0; step < ranks - 1; ++step) {
      for (int ring = 0; ring < rings; ++ring) {
        const ring_position own = position_on_ring(group, strides[static_cast<std::size_t>(ring)]);
        const element_range slice = chunk_of(whole, rings, ring);
        if (half == 0) {
          add_ring_reduce_step(plan, own, slice, ranks, step);
        } else {
          add_ring_gather_step(plan, own, slice, ranks, step, 1);
        }
      }
    }
  }
}

GRADUS_INLINE void add_ring_reduce_scatter(schedule& plan, const rank_group& group, const element_range& whole) {
  const int ranks = group.size();
  ring_position own = position_on_ring(group, 1);
  own.position -= 1;  // so that chunk `self` is the last to arrive
  for (int step = 0; step < ranks - 1; ++step) {
    add_ring_reduce_step(plan, own, whole, ranks, step);
  }
}

GRADUS_INLINE void add_paired_reduce_scatter(schedule& plan, const rank_group& group, const element_range& whole) {
  const int ranks = group.size();
  for (int mask = 1; mask < ranks; mask *= 2) {
    const int peer = group.self ^ mask;
    for (int chunk = 0; chunk < ranks; ++chunk) {
      if ((chunk ^ peer) % (2 * mask) == 0) {
        plan.send(group.rank(peer), chunk_of(whole, ranks, chunk));
      }
    }
    for (int chunk = 0; chunk < ranks; ++chunk) {
      if ((chunk ^ group.self) % (2 * mask) == 0) {
        plan.receive(group.rank(peer), chunk_of(whole, ranks, chunk), arrival::combine);
      }
    }
  }
}

GRADUS_INLINE void add_ring_all_gather(schedule& plan, const rank_group& group, const element_range& whole) {
  const int ranks = group.size();
  const ring_position own = position_on_ring(group, 1);
  for (int step = 0; step < ranks - 1; ++step) {
    add_ring_gather_step(plan, own, whole, ranks, step, 0);
  }
}

GRADUS_INLINE element_range halved(element_range range, int v, int masks) noexcept {
  for (int mask = 1; mask < masks; mask *= 2) {
    const index_t middle = range.begin + range.size() / 2;
    (v & mask) == 0 ? range.end = middle : range.begin = middle;
  }
  return range;
}

GRADUS_INLINE void add_halving(schedule& plan, const rank_group& group, const element_range& whole, int first,
                               int size) {
  const int v = group.self - first;
  for (int mask = 1; mask < size; mask *= 2) {
    const int peer = group.rank(first + (v ^ mask));
    plan.send(peer, halved(whole, v ^ mask, 2 * mask));
    plan.receive(peer, halved(whole, v, 2 * mask), arrival::combine);
  }
}

GRADUS_INLINE void add_doubling(schedule& plan, const rank_group& group, const element_range& whole, int first,
                                int size) {
  const int v = group.self - first;
  for (int mask = size / 2; mask >= 1; mask /= 2) {
    const int peer = group.rank(first + (v ^ mask));
    plan.send(peer, halved(whole, v, 2 * mask));
    plan.receive(peer, halved(whole, v ^ mask, 2 * mask), arrival::replace);
  }
}

GRADUS_INLINE void add_binary_blocks(schedule& plan, const rank_group& group, const element_range& whole) {
  int first = 0;
  int size = static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size())));
  int larger_first = 0;
  int larger = 0;
  while (group.self >= first + size) {
    larger_first = first;
    larger = size;
    first += size;
    size = static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size() - first)));
  }
  const int v = group.self - first;
  const element_range own = halved(whole, v, size);
  const int smaller_first = first + size;
  const int smaller = smaller_first < group.size()
                          ? static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size() - smaller_first)))
                          : 0;
  add_halving(plan, group, whole, first, size);
  if (smaller > 0) {
    plan.receive(group.rank(smaller_first + v % smaller), own, arrival::combine);
  }
  // The positions in the larger block whose parts are inside this position's part have its low bits.
  for (int w = v; w < larger; w += size) {
    plan.send(group.rank(larger_first + w), halved(whole, w, larger));
  }
  for (int w = v; w < larger; w += size) {
    plan.receive(group.rank(larger_first + w), halved(whole, w, larger), arrival::replace);
  }
  if (smaller > 0) {
    plan.send(group.rank(smaller_first + v % smaller), own);
  }
  add_doubling(plan, group, whole, first, size);
}

GRADUS_INLINE void add_recursive_doubling(schedule& plan, const rank_group& group, const element_range& whole) {
  with_folded_group(plan, group, whole, [&](const rank_group& power) {
    for (int mask = 1; mask < power.size(); mask *= 2) {
      const int peer = power.self ^ mask;
      plan.send(power.rank(peer), whole);
      plan.receive(power.rank(peer), whole, peer < power.self ? arrival::combine_after : arrival::combine);
    }
  });
}

GRADUS_INLINE void add_tree_broadcast(schedule& plan, const rank_group& group, const element_range& whole, int root) {
  const int ranks = group.size();
  const int v = (group.self + ranks - root) % ranks;
  int mask = 1;
  for (; mask < ranks; mask *= 2) {
    if ((v & mask) != 0) {
      plan.receive(group.rank((v - mask + root) % ranks), whole, arrival::replace);
      break;
    }
  }
  for (mask /= 2; mask >= 1; mask /= 2) {
    if (v + mask < ranks) {
      plan.send(group.rank((v + mask + root) % ranks), whole);
    }
  }
}

GRADUS_INLINE void add_tree_reduce(schedule& plan, const rank_group& group, const element_range& whole, int root) {
  const int ranks = group.size();
  const int v = (group.self + ranks - root) % ranks;
  for (int mask = 1; mask < ranks; mask *= 2) {
    if ((v & mask) != 0) {
      plan.send(group.rank((v - mask + root) % ranks), whole);
      return;
    }
    if (v + mask < ranks) {
      plan.receive(group.rank((v + mask + root) % ranks), whole, arrival::combine);
    }
  }
}

GRADUS_INLINE void add_scattered_broadcast(schedule& plan, const rank_group& group, const element_range& whole,
                                           int root) {
  const int ranks = group.size();
  if (group.self == root) {
    for (int i = 1; i < ranks; ++i) {
      const int position = (root + i) % ranks;
      plan.send(group.rank(position), chunk_of(whole, ranks, position));
    }
  } else {
    plan.receive(group.rank(root), chunk_of(whole, ranks, group.self), arrival::replace);
  }
  add_ring_all_gather(plan, group, whole);
}

GRADUS_INLINE void add_gathered_reduce(schedule& plan, const rank_group& group, const element_range& whole, int root) {
  const int ranks = group.size();
  add_ring_reduce_scatter(plan, group, whole);
  if (group.self == root) {
    for (int i = 1; i < ranks; ++i) {
      const int position = (root + i) % ranks;
      plan.receive(group.rank(position), chunk_of(whole, ranks, position), arrival::replace);
    }
  } else {
    plan.send(group.rank(root), chunk_of(whole, ranks, group.self));
  }
}

GRADUS_INLINE void add_dissemination_barrier(schedule& plan, const rank_group& group) {
  const int ranks = group.size();
  for (int distance = 1; distance < ranks; distance *= 2) {
    plan.send_signal(group.rank((group.self + distance) % ranks));
    plan.receive_signal(group.rank((group.self + ranks - distance) % ranks));
  }
}

GRADUS_INLINE bool node_map::even() const noexcept {
  bool same = true;
  for (const auto& each : nodes) {
    same = same && each.size() == nodes[0].size();
  }
  return same;
}

GRADUS_INLINE void add_hierarchical(schedule& plan, const node_map& map, const element_range& whole,
                                    bool ring_between) {
  const auto& node = map.nodes[static_cast<std::size_t>(map.own_node)];
  const rank_group local{{node.data(), node.size()}, map.own_position};
  const auto between = [&](int position, const element_range& range) {
    dynamic_array<int> ranks;
    for (const auto& each : map.nodes) {
      ranks.push_back(each[static_cast<std::size_t>(position)]);
    }
    const rank_group across{{ranks.data(), ranks.size()}, map.own_node};
    if (ring_between) {
      add_ring_all_reduce(plan, across, range);
    } else {
      add_halving_doubling(plan, across, range);
    }
  };
  if (map.even()) {
    add_ring_reduce_scatter(plan, local, whole);
    between(map.own_position, chunk_of(whole, local.size(), map.own_position));
    add_ring_all_gather(plan, local, whole);
    return;
  }
  add_tree_reduce(plan, local, whole, 0);
  if (map.own_position == 0) {
    between(0, whole);
  }
  add_tree_broadcast(plan, local, whole, 0);
}

}  // namespace gradus::comm::detail
#endif
