// SPDX-License-Identifier: BSL-1.0
//
// In which order the transfers of a step should go: TIC, TAC, the order of the layers, a random order.
#pragma once

#include <algorithm>  // std::equal, std::fill, std::merge, std::sort
#include <bit>        // std::countr_zero
#include <cmath>      // std::frexp, std::ldexp, std::llround
#include <compare>    // operator<=>
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int64_t, std::uint64_t
#include <limits>     // std::numeric_limits
#include <numeric>    // std::iota
#include <span>       // std::span
#include <utility>    // std::swap
#include <vector>     // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"

namespace gradus::parallel {

/// The priority of each transfer of a step_graph: the smallest goes first; transfers with the same go in any order.
using transfer_priorities = std::vector<std::size_t>;

namespace detail {

/// Times are counted in whole ticks, so that sums do not depend on the order in which they are formed: all ranks, and
/// any way to compute a priority, find the same ties.
using ticks = std::int64_t;
inline constexpr ticks never = std::numeric_limits<ticks>::max();

/// What TAC compares, lexicographically.
///
/// With P the time of the computations that only this transfer unlocks, M its own time, and M+ the least communication
/// that unlocks a computation which waits for it and others, the paper puts A before B if min(P_B, M_A) < min(P_A,
/// M_B), and if these are equal the one with the smaller M+. That is no strict weak order: ties are not transitive. The
/// inequality is Johnson's rule for two machines ("Optimal two- and three-stage production schedules with setup times
/// included", 1954), which has this key: first those with P > M, the shortest first; then the others, the one with the
/// longest computation first.
struct transfer_key {
  int part;          ///< 0: P > M, 1: others
  ticks within;      ///< part 0: M; part 1: -P
  ticks impending;   ///< M+; never when no computation waits for this transfer and others
  std::size_t need;  ///< the position of the first computation that waits for it

  friend constexpr auto operator<=>(const transfer_key&, const transfer_key&) = default;
};

[[nodiscard]] constexpr transfer_key make_transfer_key(ticks unlocked, ticks own, ticks impending,
                                                       std::size_t need) noexcept {
  return unlocked > own ? transfer_key{0, own, impending, need} : transfer_key{1, -unlocked, impending, need};
}

/// Which outstanding transfers each computation waits for, and the properties that follow from it.
///
/// Computations that wait for the same transfers count as one: in a network, all layers up to the next one with
/// parameters. A set is kept as bits; when a transfer is taken out only the sets with it change, and these keep their
/// order among each other, so that one merge puts all into the order of M+ again.
class outstanding_transfers {
 public:
  /// @param with_times  false: a transfer takes 1, a computation 0 (TIC)
  outstanding_transfers(const step_graph& graph, bool with_times)
      : words_{(graph.transfers() + 63) / 64},
        own_(graph.transfers(), 1),
        unlocked_(graph.transfers(), 0),
        impending_(graph.transfers(), never),
        need_(graph.transfers(), step_graph::none),
        left_(words_, 0) {
    const int exponent = with_times ? tick_exponent(graph) : 0;
    const auto to_ticks = [&](double seconds) {
      return with_times ? static_cast<ticks>(std::llround(std::ldexp(seconds, exponent))) : 0;
    };
    for (std::size_t r = 0; r < graph.transfers(); ++r) {
      if (with_times) {
        own_[r] = to_ticks(graph.transfer(r).seconds);
      }
      left_[r / 64] |= std::uint64_t{1} << (r % 64);
    }
    find_sets(graph, to_ticks);
    for (std::size_t s = 0; s < sets(); ++s) {
      order_.push_back(s);
    }
    std::sort(order_.begin(), order_.end(),
              [this](std::size_t a, std::size_t b) { return sum_[a] != sum_[b] ? sum_[a] < sum_[b] : a < b; });
    find_impending();
  }

  /// Different sets of transfers that computations wait for.
  [[nodiscard]] std::size_t sets() const noexcept { return sum_.size(); }
  /// M+ of a transfer.
  [[nodiscard]] ticks impending(std::size_t r) const noexcept { return impending_[r]; }
  /// The position of the first computation that waits for it; step_graph::none when none does.
  [[nodiscard]] std::size_t need(std::size_t r) const noexcept { return need_[r]; }
  [[nodiscard]] transfer_key key(std::size_t r) const noexcept {
    return make_transfer_key(unlocked_[r], own_[r], impending_[r], need_[r]);
  }

  /// The outstanding transfer with the smallest key; of equal ones the first. @pre there is one
  [[nodiscard]] std::size_t best() const noexcept {
    std::size_t chosen = step_graph::none;
    transfer_key smallest{};
    for (std::size_t w = 0; w < words_; ++w) {
      for (std::uint64_t bits = left_[w]; bits != 0; bits &= bits - 1) {
        const std::size_t r = 64 * w + static_cast<std::size_t>(std::countr_zero(bits));
        const transfer_key candidate = key(r);
        if (chosen == step_graph::none || candidate < smallest) {
          chosen = r;
          smallest = candidate;
        }
      }
    }
    return chosen;
  }

  /// The transfer has been ordered: computations no longer wait for it.
  void remove(std::size_t r) {
    const std::size_t word = r / 64;
    const std::uint64_t bit = std::uint64_t{1} << (r % 64);
    left_[word] &= ~bit;
    changed_.clear();
    unchanged_.clear();
    for (const std::size_t s : order_) {
      std::uint64_t* const bits = set(s);
      if ((bits[word] & bit) == 0) {
        unchanged_.push_back(s);
        continue;
      }
      bits[word] &= ~bit;
      sum_[s] -= own_[r];
      --count_[s];
      if (count_[s] == 1) {
        unlocked_[first(s)] += seconds_[s];
      }
      if (count_[s] > 1) {
        changed_.push_back(s);
      }
    }
    order_ = dynamic_array<std::size_t>(changed_.size() + unchanged_.size());
    std::merge(changed_.begin(), changed_.end(), unchanged_.begin(), unchanged_.end(), order_.begin(),
               [this](std::size_t a, std::size_t b) { return sum_[a] < sum_[b]; });
    find_impending();
  }

 private:
  /// The sum of all times is below 2^52 ticks and a tick is a power of two: few-digit times are exact.
  static int tick_exponent(const step_graph& graph) {
    double total = 0;
    for (const step_graph::operation& each : graph.operations()) {
      total += each.seconds;
    }
    int exponent = 0;
    std::frexp(total, &exponent);
    return 52 - exponent;
  }

  [[nodiscard]] std::uint64_t* set(std::size_t s) noexcept { return bits_.data() + s * words_; }

  /// The only member of a set of one.
  [[nodiscard]] std::size_t first(std::size_t s) noexcept {
    std::size_t w = 0;
    while (set(s)[w] == 0) {
      ++w;
    }
    return 64 * w + static_cast<std::size_t>(std::countr_zero(set(s)[w]));
  }

  template <class ToTicks>
  void find_sets(const step_graph& graph, const ToTicks& to_ticks) {
    const std::span<const step_graph::operation> operations = graph.operations();
    // Every operation's set, as the number of a set in `known`: the layers of a network share few.
    dynamic_array<std::uint64_t> known;
    dynamic_array<std::uint64_t> hashes;
    dynamic_array<std::size_t> set_of(operations.size(), 0);
    dynamic_array<std::uint64_t> united(words_, 0);
    dynamic_array<ticks> seconds;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const step_graph::operation& each = operations[i];
      std::fill(united.begin(), united.end(), 0);
      if (each.transfer != step_graph::none) {
        united[each.transfer / 64] |= std::uint64_t{1} << (each.transfer % 64);
      }
      for (const std::size_t input : each.inputs) {
        const std::size_t transfer = operations[input].transfer;
        if (transfer != step_graph::none && need_[transfer] == step_graph::none) {
          need_[transfer] = i;
        }
        for (std::size_t w = 0; w < words_; ++w) {
          united[w] |= known[set_of[input] * words_ + w];
        }
      }
      std::uint64_t hash = 0;
      for (const std::uint64_t word : united) {
        hash = gradus::detail::mix_bits(hash ^ word);
      }
      std::size_t s = hashes.size();
      while (s > 0 &&
             (hashes[s - 1] != hash || !std::equal(united.begin(), united.end(), known.begin() + (s - 1) * words_))) {
        --s;  // from the last: a layer mostly shares the set of the one before it
      }
      if (s == 0) {
        hashes.push_back(hash);
        seconds.push_back(0);
        for (const std::uint64_t word : united) {
          known.push_back(word);
        }
        s = hashes.size();
      }
      set_of[i] = s - 1;
      if (each.transfer == step_graph::none) {
        seconds[s - 1] += to_ticks(each.seconds);
        used_.push_back(s - 1);
      }
    }
    keep_used(known, seconds);
  }

  /// Keeps the sets of computations: of one transfer their time, of several the sets themselves.
  void keep_used(const dynamic_array<std::uint64_t>& known, const dynamic_array<ticks>& seconds) {
    std::sort(used_.begin(), used_.end());
    for (std::size_t k = 0; k < used_.size(); ++k) {
      const std::size_t s = used_[k];
      if (k > 0 && used_[k - 1] == s) {
        continue;
      }
      std::size_t count = 0;
      std::size_t member = 0;
      ticks sum = 0;
      for (std::size_t w = 0; w < words_; ++w) {
        for (std::uint64_t bits = known[s * words_ + w]; bits != 0; bits &= bits - 1) {
          member = 64 * w + static_cast<std::size_t>(std::countr_zero(bits));
          sum += own_[member];
          ++count;
        }
      }
      if (count == 1) {
        unlocked_[member] += seconds[s];
      } else if (count > 1) {
        for (std::size_t w = 0; w < words_; ++w) {
          bits_.push_back(known[s * words_ + w]);
        }
        sum_.push_back(sum);
        count_.push_back(count);
        seconds_.push_back(seconds[s]);
      }
    }
  }

  /// M+: the smallest sum of a set of several that the transfer is in; the sets come by rising sums.
  void find_impending() {
    std::fill(impending_.begin(), impending_.end(), never);
    dynamic_array<std::uint64_t> open{left_};
    for (const std::size_t s : order_) {
      const std::uint64_t* const bits = set(s);
      for (std::size_t w = 0; w < words_; ++w) {
        for (std::uint64_t fresh = bits[w] & open[w]; fresh != 0; fresh &= fresh - 1) {
          impending_[64 * w + static_cast<std::size_t>(std::countr_zero(fresh))] = sum_[s];
        }
        open[w] &= ~bits[w];
      }
    }
  }

  std::size_t words_;
  // Of transfers.
  dynamic_array<ticks> own_;        // M
  dynamic_array<ticks> unlocked_;   // P
  dynamic_array<ticks> impending_;  // M+
  dynamic_array<std::size_t> need_;
  dynamic_array<std::uint64_t> left_;  // outstanding ones
  // Of sets of several transfers that computations wait for.
  dynamic_array<std::uint64_t> bits_;  // words_ a set
  dynamic_array<ticks> sum_;           // of M
  dynamic_array<std::size_t> count_;
  dynamic_array<ticks> seconds_;      // of the computations
  dynamic_array<std::size_t> order_;  // by rising sum; those that still have several transfers
  // Kept for their memory.
  dynamic_array<std::size_t> used_;
  dynamic_array<std::size_t> changed_;
  dynamic_array<std::size_t> unchanged_;
};

/// 0, 1, 2, ...: the transfers as they are counted.
inline dynamic_array<std::size_t> numbers_up_to(std::size_t count) {
  dynamic_array<std::size_t> result(count, 0);
  std::iota(result.begin(), result.end(), std::size_t{0});
  return result;
}

}  // namespace detail

/// Options of tic.
struct tic_options {
  /// Transfers that the paper's TIC gives the same number are told apart by the first computation that waits for them,
  /// then by their own number: all priorities are different. An extension; the paper sends ties in any order.
  bool break_ties = false;
};

/// Timing-independent communication scheduling (the paper's algorithm 2): the priorities of a graph when nothing is
/// known of times.
///
/// M+ of a transfer is the least number of transfers that let a computation begin which waits for it and others.
/// Transfers are ranked by M+; those with the same M+ share the rank of the first of them, and those that no
/// computation waits for together with others come last.
///
/// @returns  one priority a transfer
inline transfer_priorities tic(const step_graph& graph, const tic_options& options = {}) {
  const detail::outstanding_transfers properties{graph, false};
  dynamic_array<std::size_t> sorted = detail::numbers_up_to(graph.transfers());
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    if (properties.impending(a) != properties.impending(b)) {
      return properties.impending(a) < properties.impending(b);
    }
    return options.break_ties && properties.need(a) != properties.need(b) ? properties.need(a) < properties.need(b)
                                                                          : a < b;
  });
  transfer_priorities result(graph.transfers());
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    const bool tie =
        k > 0 && !options.break_ties && properties.impending(sorted[k]) == properties.impending(sorted[k - 1]);
    result[sorted[k]] = tie ? result[sorted[k - 1]] : k;
  }
  return result;
}

/// Timing-aware communication scheduling (the paper's algorithm 3): takes, again and again, the transfer that hides
/// most communication behind computation, given those before it. For independent pairs of a transfer and its
/// computation the order is optimal. What the paper leaves open, or is equal, goes by the first computation that waits
/// for it, then by number.
///
/// @returns  one priority a transfer: 0, 1, ..., each once
/// Complexity: with R transfers and S different sets of transfers that computations wait for, R * S * R/64 steps: 2 ms
/// for the 467 parameters of ResNet-152.
inline transfer_priorities tac(const step_graph& graph) {
  detail::outstanding_transfers outstanding{graph, true};
  transfer_priorities result(graph.transfers());
  for (std::size_t k = 0; k < result.size(); ++k) {
    const std::size_t chosen = outstanding.best();
    result[chosen] = k;
    outstanding.remove(chosen);
  }
  return result;
}

/// The transfers in the order in which computations come that wait for them: the order of the layers, for a network.
/// @returns  one priority a transfer: 0, 1, ..., each once
inline transfer_priorities layer_order(const step_graph& graph) {
  const detail::outstanding_transfers properties{graph, false};
  dynamic_array<std::size_t> sorted = detail::numbers_up_to(graph.transfers());
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    return properties.need(a) != properties.need(b) ? properties.need(a) < properties.need(b) : a < b;
  });
  transfer_priorities result(graph.transfers());
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    result[sorted[k]] = k;
  }
  return result;
}

/// Any order, as without scheduling; the same for the same seed.
/// @returns  one priority a transfer: 0, 1, ..., each once
inline transfer_priorities random_order(std::size_t transfers, std::uint64_t seed) {
  transfer_priorities result(transfers);
  std::iota(result.begin(), result.end(), std::size_t{0});
  const random_stream numbers{seed, "order of transfers"};
  for (std::size_t k = transfers; k > 1; --k) {
    std::swap(result[k - 1], result[numbers.below(k, k)]);
  }
  return result;
}

/// The priorities of the transfers of forward_graph in the order of network.trained_parameters(). A gradient has the
/// priority of its parameter: the next forward pass waits for it.
/// @throws configuration_error when they are not those of the network
inline transfer_priorities priorities_of_parameters(const nn::graph& network, const transfer_priorities& priorities) {
  const std::vector<std::size_t> parameters = parameters_of_transfers(network);
  if (parameters.size() != priorities.size()) {
    raise<configuration_error>("priorities_of_parameters",
                               {"one priority for each of ", parameters.size(), " parameters"}, {priorities.size()});
  }
  transfer_priorities result(priorities.size());
  for (std::size_t k = 0; k < priorities.size(); ++k) {
    result[parameters[k]] = priorities[k];
  }
  return result;
}

}  // namespace gradus::parallel
