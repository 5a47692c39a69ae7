// SPDX-License-Identifier: BSL-1.0
//
// All-reduce of gradients that travel in fewer bits.
#pragma once

#include <algorithm>    // std::copy, std::min, std::transform
#include <cmath>        // std::abs, std::sqrt
#include <cstddef>      // std::byte, std::size_t
#include <limits>       // std::numeric_limits
#include <memory>       // std::unique_ptr
#include <numeric>      // std::accumulate
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v
#include <utility>      // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/detail/all_reduce/bucket_exchange.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel {

namespace detail {

/// Gradients rounded to `Wire` for the way, and back.
template <class Element, class Wire>
class rounded_gradients_on final : public gradient_channel {
 public:
  rounded_gradients_on(comm::any_communicator channel, std::span<Element> gradients)
      : channel_{std::move(channel)}, gradients_{gradients}, wire_values_(gradients.size()) {}

  comm::request reduce(index_t begin, index_t end) override {
    channel_.link().watch_copy(memory(begin, end), [&, this] { round(begin, end); });
    return comm::all_reduce(channel_, part(begin, end));
  }

  /// The memory of such a part that travels.
  [[nodiscard]] std::span<const std::byte> memory(index_t begin, index_t end) const noexcept {
    return std::as_bytes(std::span{wire_values_.data() + begin, static_cast<std::size_t>(end - begin)});
  }

  void arrived(index_t begin, index_t end) {
    channel_.link().watch_copy(memory(begin, end), [&, this] { widen_sums(begin, end); });
  }

  [[nodiscard]] std::string name() const {
    return gradus::join({channel_.link().properties().name, " in ", element_name<Wire>});
  }
  [[nodiscard]] comm::any_communicator& communicator() noexcept { return channel_; }

  /// Root of the sum of squares of what rounding took from this rank's gradients in the last step, over that of the
  /// gradients; infinite when a gradient is larger than `Wire` can hold.
  [[nodiscard]] double relative_error() const noexcept { return squares_ > 0 ? std::sqrt(error_ / squares_) : 0.0; }

  /// Sums over the ranks that were infinite or no numbers in the last step, as on all ranks.
  [[nodiscard]] std::size_t not_finite() const noexcept { return not_finite_; }

  /// "gradients in float16: relative error 2.1e-04, 0 sums not finite"
  [[nodiscard]] std::string summary() const {
    char error[32];
    format_text(error, sizeof(error), "%.1e", relative_error());
    return gradus::join({"gradients in ", element_name<Wire>, ": relative error ", static_cast<const char*>(error),
                         ", ", not_finite_, " sums not finite"});
  }

 private:
  static constexpr index_t block = 256;

  void widen_sums(index_t begin, index_t end) noexcept {
    if (arrived_ == gradients_.size()) {
      arrived_ = 0;
      not_finite_ = 0;
    }
    arrived_ += static_cast<std::size_t>(end - begin);
    for (index_t i = begin; i < end; i += block) {
      const auto first = static_cast<std::size_t>(i);
      const auto count = static_cast<std::size_t>(std::min(block, end - i));
      float sums[block] = {};
      to_float(wire_values_.data() + first, sums, count);
      std::size_t infinite = 0;
      for (const float each : sums) {
        infinite += std::abs(each) <= std::numeric_limits<float>::max() ? 0U : 1U;
      }
      not_finite_ += infinite;
      std::copy(sums, sums + count, gradients_.data() + first);
    }
  }

  static void to_wire(const float* source, Wire* target, std::size_t count) noexcept {
    if constexpr (std::is_same_v<Wire, float16>) {  // by instructions, where there are some
      narrow(source, target, count);
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        target[i] = Wire{source[i]};
      }
    }
  }

  static void to_float(const Wire* source, float* target, std::size_t count) noexcept {
    if constexpr (std::is_same_v<Wire, float16>) {
      widen(source, target, count);
    } else {
      std::copy(source, source + count, target);
    }
  }

  void round(index_t begin, index_t end) noexcept {
    if (sent_ == gradients_.size()) {  // the first part of a step, in whatever order they go
      sent_ = 0;
      squares_ = 0;
      error_ = 0;
    }
    sent_ += static_cast<std::size_t>(end - begin);
    for (index_t i = begin; i < end; i += block) {
      round_block(static_cast<std::size_t>(i), static_cast<std::size_t>(std::min(block, end - i)));
    }
  }

  /// @pre count <= block
  void round_block(std::size_t first, std::size_t count) noexcept {
    float values[block] = {};
    float rounded[block] = {};
    std::transform(gradients_.data() + first, gradients_.data() + first + count, values,
                   [](Element each) { return static_cast<float>(each); });
    to_wire(values, wire_values_.data() + first, count);
    to_float(wire_values_.data() + first, rounded, count);
    constexpr std::size_t lanes = 8;  // sums that do not wait for each other
    double squares[lanes] = {};
    double error[lanes] = {};
    for (std::size_t i = 0; i < static_cast<std::size_t>(block); i += lanes) {
      for (std::size_t k = 0; k < lanes; ++k) {
        const double value = values[i + k];
        const double lost = value - static_cast<double>(rounded[i + k]);
        squares[k] += value * value;
        error[k] += lost * lost;
      }
    }
    squares_ += std::accumulate(squares, squares + lanes, 0.0);
    error_ += std::accumulate(error, error + lanes, 0.0);
  }

  std::span<Wire> part(index_t begin, index_t end) noexcept {
    return {wire_values_.data() + begin, static_cast<std::size_t>(end - begin)};
  }

  comm::any_communicator channel_;
  std::span<Element> gradients_;
  dynamic_array<Wire> wire_values_;
  std::unique_ptr<comm::link_registration> registration_ =
      comm::register_memory(channel_, std::span{wire_values_.data(), wire_values_.size()});
  std::size_t sent_ = 0;     // elements of this step
  std::size_t arrived_ = 0;  // elements of this step
  std::size_t not_finite_ = 0;
  double squares_ = 0;
  double error_ = 0;
};

/// What a rank keeps of a compressed_all_reduce.
template <class Element, class Wire>
struct compressed_state {
  using type = all_reduce_state<Element, rounded_gradients_on<Element, Wire>>;
};

}  // namespace detail

/// As all_reduce, but gradients are rounded to 16 bits before they travel, and every partial sum on the way: half the
/// bytes of float. Not the update of one process any more, but close to it, and the same bits on all ranks;
/// state.channel().summary() says how close, after every step. Nothing is allocated in a step.
///
///   Wire      | relative error of a rounding | range
///   bfloat16  | 2^-9                         | that of float
///   float16      | 2^-12                        | up to 65504; below 6e-5 the error grows, below 3e-8 all is lost
///
/// Nothing is scaled or cut off, as in fp16_compress_hook of PyTorch's DistributedDataParallel and in Horovod's
/// Compression.fp16: in float16, what is larger than 65504 becomes infinite, and so do the sum and the update of that
/// parameter on all ranks, unless the loss is scaled (optim::update), which skips the step. not_finite() counts such
/// sums. Gradients are those of the mean over the examples of all ranks, so that their sum is no larger than they are.
/// For float16 include gradus/core/float16.hpp. In 8 bits with error feedback: gradus/parallel/int8_blocks.hpp.
///
/// @code
///   train::trainer trainer{net, optim::sgd{}, world, parallel::compressed_all_reduce<float16>{}};
///   trainer.fit(batches, {.epochs = 1});
///   std::puts(trainer.strategy<parallel::compressed_all_reduce<float16>>().channel().summary().c_str());
/// @endcode
template <class Wire = bfloat16>
struct compressed_all_reduce : all_reduce {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "compressed_all_reduce";
  /// Gradients are rounded on the way, which depends on the ranks.
  static constexpr bool sums_by_communicator = false;

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = typename detail::compressed_state<Element, Wire>::type;
};
static_assert(gradient_strategy<compressed_all_reduce<>>);

}  // namespace gradus::parallel
