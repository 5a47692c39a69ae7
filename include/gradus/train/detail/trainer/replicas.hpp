// SPDX-License-Identifier: BSL-1.0
//
// Compares the parameters that several ranks have: replicas have equal bits.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint8_t, std::uint64_t
#include <cstring>      // std::memcpy
#include <span>         // std::as_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_cvref_t
#include <vector>       // std::vector

#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/nn/parameter.hpp"

namespace gradus::train::detail {

/// A hash of 16 bytes.
struct replica_hash {
  std::uint64_t low = 0x243f6a8885a308d3ULL;
  std::uint64_t high = 0x13198a2e03707344ULL;

  /// Takes another hash into account; the order counts.
  void add(const replica_hash& other) noexcept {
    low = gradus::detail::mix_bits(low ^ other.low) + other.high;
    high = gradus::detail::mix_bits(high ^ other.high) + other.low;
  }
  [[nodiscard]] bool operator==(const replica_hash&) const = default;
};

/// The hash of bytes. Each step of one of the four sums is a bijection of the sum and of the word that it takes, so
/// that a change of one word always changes the hash. It detects accidents, not forgeries.
[[nodiscard]] replica_hash hash_of_bytes(std::span<const std::byte> bytes) noexcept;

/// A parameter of a rank, and where its bytes are.
struct hashed_parameter {
  std::string_view name;
  std::size_t begin = 0;
  std::size_t bytes = 0;
  replica_hash hash = {};
};

/// A piece of a parameter, so that threads share the work evenly.
struct hashed_piece {
  std::size_t parameter = 0;
  std::span<const std::byte> bytes;
  replica_hash hash = {};
};

/// Compares the parameters of ranks.
class replicas {
 public:
  /// Computes the hashes of all parameters of this rank, trained and frozen.
  template <class Network>
  void take(Network& network) {
    const auto values = network.values();
    list(network.structure().parameters(), sizeof(*values.data()));
    auto& device = network.device();
    using device_type = std::remove_cvref_t<decltype(device)>;
    if constexpr (has_host_memory<device_type>) {
      cut(std::as_bytes(values));
    } else {
      copy_.resize(values.size_bytes());
      device.copy_to_host(copy_.data(), values.data(), copy_.size());
      cut(copy_);
    }
    const auto hash_pieces = [this](index_t begin, index_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        pieces_[i].hash = hash_of_bytes(pieces_[i].bytes);
      }
    };
    if constexpr (requires { device.parallel_for(index_t{0}, index_t{1}, hash_pieces); }) {
      device.parallel_for(static_cast<index_t>(pieces_.size()), 1, hash_pieces);
    } else {
      hash_pieces(0, static_cast<index_t>(pieces_.size()));
    }
    for (hashed_parameter& each : parameters_) {
      each.hash = {};
    }
    for (const hashed_piece& each : pieces_) {
      parameters_[each.parameter].hash.add(each.hash);
    }
  }

  /// The first parameter that is not the same on all ranks that have it. Called by all ranks, after take: they exchange
  /// 32 bytes each if all are equal.
  /// @return  the rank, the parameter and the ranks that it was compared with; empty if all are equal
  [[nodiscard]] std::string first_difference(comm::link& group) const;

 private:
  static constexpr std::size_t piece_bytes = 256 * 1024;

  void list(std::span<const nn::parameter_description* const> parameters, std::size_t element_bytes);
  void cut(std::span<const std::byte> values);

  /// The numbers of all ranks.
  [[nodiscard]] static std::vector<std::uint64_t> gathered(comm::link& group, std::span<const std::uint64_t> own) {
    std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(group.size()));
    group.all_gather({reinterpret_cast<const std::uint8_t*>(own.data()), own.size_bytes()},
                     {reinterpret_cast<std::uint8_t*>(all.data()), all.size() * sizeof(std::uint64_t)});
    return all;
  }

  /// Names the first parameter that is not the same everywhere, and the ranks that differ from most others: of as many
  /// ranks on both sides, those without the lowest one.
  /// @param most   parameters of a rank
  /// @param table  four numbers of each rank: equal first ones say that ranks have the same parameters
  [[nodiscard]] std::string describe_difference(comm::link& group, std::size_t most,
                                                std::span<const std::uint64_t> table) const;

  /// The name of a parameter of a rank, on all ranks.
  [[nodiscard]] std::string name_of(comm::link& group, std::size_t parameter, std::size_t rank) const;

  std::vector<hashed_parameter> parameters_;
  std::vector<hashed_piece> pieces_;
  std::vector<std::byte> copy_;  // of a device with memory of its own
};

}  // namespace gradus::train::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train::detail {

GRADUS_INLINE replica_hash hash_of_bytes(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t sums = 4;  // so that a multiplication need not wait for the one before
  constexpr std::uint64_t factor = 0x9e3779b97f4a7c15ULL;
  std::uint64_t sum[sums] = {bytes.size(), ~bytes.size(), bytes.size() + factor, factor};
  std::size_t at = 0;
  for (; at + sizeof(sum) <= bytes.size(); at += sizeof(sum)) {
    std::uint64_t words[sums];
    std::memcpy(words, bytes.data() + at, sizeof(words));
    for (std::size_t k = 0; k < sums; ++k) {
      const std::uint64_t next = (sum[k] ^ words[k]) * factor;
      sum[k] = next ^ (next >> 32U);
    }
  }
  if (at < bytes.size()) {
    std::uint64_t words[sums] = {};
    std::memcpy(words, bytes.data() + at, bytes.size() - at);
    for (std::size_t k = 0; k < sums; ++k) {
      sum[k] = (sum[k] ^ words[k]) * factor;
    }
  }
  replica_hash result;
  for (std::size_t k = 0; k < sums; k += 2) {
    result.add({sum[k], sum[k + 1]});
  }
  return result;
}

GRADUS_INLINE std::string replicas::first_difference(comm::link& group) const {
  replica_hash all;
  std::uint64_t names = parameters_.size();
  for (const hashed_parameter& each : parameters_) {
    all.add(each.hash);
    names = gradus::detail::mix_bits(names ^ gradus::detail::hash_text(each.name)) + each.bytes;
  }
  const std::uint64_t own[] = {names, all.low, all.high, parameters_.size()};
  const std::vector<std::uint64_t> table = gathered(group, own);
  const auto rank_data = [&](std::size_t rank) { return std::span{table}.subspan(4 * rank, 4); };
  const auto ranks = static_cast<std::size_t>(group.size());
  bool equal = true;
  std::size_t most = 0;  // parameters of a rank
  for (std::size_t r = 0; r < ranks; ++r) {
    most = std::max(most, static_cast<std::size_t>(rank_data(r)[3]));
    for (std::size_t s = 0; s < r; ++s) {
      equal = equal && (rank_data(r)[0] != rank_data(s)[0] ||
                        (rank_data(r)[1] == rank_data(s)[1] && rank_data(r)[2] == rank_data(s)[2]));
    }
  }
  return equal ? std::string{} : describe_difference(group, most, table);
}

GRADUS_INLINE void replicas::list(std::span<const nn::parameter_description* const> parameters,
                                  std::size_t element_bytes) {
  parameters_.clear();
  for (const nn::parameter_description* const each : parameters) {
    parameters_.push_back({.name = each->name,
                           .begin = static_cast<std::size_t>(each->offset) * element_bytes,
                           .bytes = static_cast<std::size_t>(each->shape.size()) * element_bytes});
  }
}

GRADUS_INLINE void replicas::cut(std::span<const std::byte> values) {
  pieces_.clear();
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const hashed_parameter& one = parameters_[p];
    for (std::size_t at = 0; at < one.bytes; at += piece_bytes) {
      pieces_.push_back(
          {.parameter = p, .bytes = values.subspan(one.begin + at, std::min(piece_bytes, one.bytes - at))});
    }
  }
}

GRADUS_INLINE std::string replicas::describe_difference(comm::link& group, std::size_t most,
                                                        std::span<const std::uint64_t> table) const {
  std::vector<std::uint64_t> own(2 * most);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    own[2 * p] = parameters_[p].hash.low;
    own[2 * p + 1] = parameters_[p].hash.high;
  }
  const std::vector<std::uint64_t> hashes = gathered(group, own);
  const auto ranks = static_cast<std::size_t>(group.size());
  for (std::size_t p = 0; p < most; ++p) {
    const auto hash_of = [&](std::size_t rank) {
      return replica_hash{hashes[2 * (rank * most + p)], hashes[2 * (rank * most + p) + 1]};
    };
    for (std::size_t first = 0; first < ranks; ++first) {
      std::vector<std::size_t> replicas_of_first;
      for (std::size_t r = first; r < ranks; ++r) {
        if (table[4 * r] == table[4 * first]) {
          replicas_of_first.push_back(r);
        }
      }
      std::size_t most_equal = 0;
      replica_hash usual;
      for (const std::size_t r : replicas_of_first) {
        std::size_t equal = 0;
        for (const std::size_t s : replicas_of_first) {
          equal += hash_of(r) == hash_of(s) ? 1U : 0U;
        }
        if (equal > most_equal) {
          most_equal = equal;
          usual = hash_of(r);
        }
      }
      std::string odd;
      std::string others;
      std::size_t first_odd = ranks;
      for (const std::size_t r : replicas_of_first) {
        const bool differs = hash_of(r) != usual;
        first_odd = differs ? std::min(first_odd, r) : first_odd;
        std::string& list = differs ? odd : others;
        append_text(list, {list.empty() ? "" : ", ", r});
      }
      if (first_odd < ranks) {
        return gradus::join(
            {"'", name_of(group, p, first_odd), "' of rank ", odd, " differs from that of rank ", others});
      }
    }
  }
  return "parameters with other names";
}

GRADUS_INLINE std::string replicas::name_of(comm::link& group, std::size_t parameter, std::size_t rank) const {
  char text[200] = {};
  if (static_cast<std::size_t>(group.rank()) == rank && parameter < parameters_.size()) {
    const std::string_view name = parameters_[parameter].name;
    std::memcpy(text, name.data(), std::min(name.size(), sizeof(text) - 1));
  }
  std::vector<char> all(sizeof(text) * static_cast<std::size_t>(group.size()));
  group.all_gather({reinterpret_cast<const std::uint8_t*>(text), sizeof(text)},
                   {reinterpret_cast<std::uint8_t*>(all.data()), all.size()});
  return std::string{all.data() + sizeof(text) * rank};
}

}  // namespace gradus::train::detail
#endif
