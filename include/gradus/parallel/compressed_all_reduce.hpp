// SPDX-License-Identifier: BSL-1.0
//
// All-reduce of gradients that travel in 16 bits.
// Module: parallel. Depends on: optim, comm.
#pragma once

#include <cmath>        // std::sqrt
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/communicator.hpp"                // all_reduce
#include "gradus/comm/detail/watch_copy.hpp"           // watch_copy
#include "gradus/core/bfloat16.hpp"                    // bfloat16
#include "gradus/core/index.hpp"                       // index_t
#include "gradus/core/text.hpp"                        // text
#include "gradus/core/vector.hpp"                      // vector
#include "gradus/parallel/all_reduce.hpp"              // all_reduce, all_reduce_state
#include "gradus/parallel/detail/bucket_exchange.hpp"  // gradient_channel
#include "gradus/parallel/synchronization.hpp"         // synchronization

namespace gradus::parallel {

namespace detail {

/// Gradients rounded to bfloat16 for the way, and back.
template <class Element, class Communicator>
class rounded_gradients_on final : public gradient_channel {
  static_assert(Communicator::template supports<bfloat16>, "gradus: this communicator cannot send bfloat16");

 public:
  rounded_gradients_on(Communicator channel, std::span<Element> gradients)
      : channel_{std::move(channel)}, gradients_{gradients}, travelling_(gradients.size()) {}

  comm::request all_reduce(index_t begin, index_t end) override {
    round(begin, end);
    return comm::all_reduce(channel_, part(begin, end));
  }

  /// The memory of such a part that travels.
  [[nodiscard]] std::span<const std::byte> memory(index_t begin, index_t end) const noexcept {
    return std::as_bytes(std::span{travelling_.data() + begin, static_cast<std::size_t>(end - begin)});
  }

  void arrived(index_t begin, index_t end) noexcept {
    [[maybe_unused]] const auto seen = comm::detail::watch_copy(channel_, memory(begin, end));
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      gradients_[i] = static_cast<Element>(static_cast<float>(travelling_[i]));
    }
  }

  [[nodiscard]] std::string name() const { return gradus::detail::text({Communicator::name, " in bfloat16"}); }
  [[nodiscard]] Communicator& communicator() noexcept { return channel_; }

  /// Root of the sum of squares of what rounding took from this rank's gradients in the last step, over that of the
  /// gradients.
  [[nodiscard]] double relative_error() const noexcept { return squares_ > 0 ? std::sqrt(error_ / squares_) : 0.0; }

 private:
  std::span<bfloat16> part(index_t begin, index_t end) noexcept {
    return {travelling_.data() + begin, static_cast<std::size_t>(end - begin)};
  }

  void round(index_t begin, index_t end) {
    [[maybe_unused]] const auto seen = comm::detail::watch_copy(channel_, memory(begin, end));
    double squares = 0;
    double error = 0;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const auto value = static_cast<float>(gradients_[i]);
      travelling_[i] = bfloat16{value};
      const float lost = value - static_cast<float>(travelling_[i]);
      squares += static_cast<double>(value) * static_cast<double>(value);
      error += static_cast<double>(lost) * static_cast<double>(lost);
    }
    // The buckets of a step begin with the first elements or in an order of their own; the sums are of one step each.
    if (sent_ == gradients_.size()) {
      sent_ = 0;
      squares_ = 0;
      error_ = 0;
    }
    sent_ += static_cast<std::size_t>(end - begin);
    squares_ += squares;
    error_ += error;
  }

  Communicator channel_;
  std::span<Element> gradients_;
  gradus::detail::vector<bfloat16> travelling_;
  std::size_t sent_ = 0;  // elements of this step
  double squares_ = 0;
  double error_ = 0;
};

}  // namespace detail

/// As all_reduce, but gradients are rounded to bfloat16 before they travel, and every partial sum on the way: half the
/// bytes of float, for a relative error of about 2^-9 a rounding. Not the update of one process any more, but close to
/// it; state.channel().relative_error() says how close. All ranks get the same bits.
struct compressed_all_reduce : all_reduce {
  static constexpr std::string_view name = "compressed_all_reduce";

  template <class Element, class Communicator>
  using state = detail::all_reduce_state<Element, Communicator, detail::rounded_gradients_on<Element, Communicator>>;
};
static_assert(synchronization<compressed_all_reduce>);

}  // namespace gradus::parallel
