// SPDX-License-Identifier: BSL-1.0
//
// Synchronous data parallelism in which every rank updates a part of the parameters and hands it to the others.
#pragma once

#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::as_bytes, std::as_writable_bytes, std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <type_traits>      // std::conditional_t
#include <utility>          // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/parallel/detail/all_reduce/bucket_exchange.hpp"
#include "gradus/parallel/detail/sharded_update/parameter_blocks.hpp"
#include "gradus/parallel/detail/sharded_update/shared_memory_update.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel {

namespace detail {

template <class Element>
class scattered_update;

}  // namespace detail

/// As all_reduce, but each rank sums and updates only its shard of the parameters, and sends the new values to the
/// others (S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, stage 1;
/// Y. Xu et al., Automatic cross-replica sharding of weight update in data-parallel training, 2020). The weights are
/// those of all_reduce.
///
/// Where ranks reach each other's memory (communicators with windows: comm::threads, comm::mpi_shared) a step goes
/// through the parameters once, and two ranks read and write some 60 % of what all_reduce and the updates of both do:
/// it is what trainers there do unless told otherwise. After it all ranks have the sums of the gradients and the
/// values, and trainer::update_state fetches what others have made of the rule's state: nothing differs from
/// all_reduce. A trace has the barriers before and after the pass, and no buckets.
///
/// With other communicators a bucket's gradients are reduced and scattered behind backward, and its values gathered
/// after the update: the same bytes travel as in an all-reduce by a ring, but half of them are not hidden, and
/// all_reduce is faster over a network. After a step gradients are sums only in this rank's shard. So is the state of
/// the rule, until the end of the epoch, when all ranks get the state of all: callbacks of epochs may write
/// checkpoints.
///
/// An update that needs all gradients, because it clips by their norm or scales the loss, takes one more sum over the
/// ranks, of two numbers, before the first parameter changes. Rules that need whole parameters (lars) are refused at
/// compile time.
///
/// @code
///   train::trainer trainer{net, optim::sgd{}, world, parallel::sharded_update{}};
/// @endcode
struct sharded_update {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "sharded_update";
  /// Gradients come together by sums of the communicator only: parallel::reproducible takes it.
  static constexpr bool sums_by_communicator = true;

  /// As all_reduce::bucket_bytes, where buckets travel.
  index_t bucket_bytes = 25 * 1024 * 1024;
  /// As all_reduce::first_bucket_bytes, where buckets travel.
  index_t first_bucket_bytes = 1024 * 1024;
  /// As all_reduce::overlap, where buckets travel.
  bool overlap = true;

  /// @throws configuration_error when options make no sense
  void check() const {
    if (bucket_bytes < 0 || first_bucket_bytes < 0) {
      raise<configuration_error>("parallel::sharded_update", "bucket_bytes and first_bucket_bytes of at least 0",
                                 {bucket_bytes, " and ", first_bucket_bytes});
    }
  }

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = partial_strategy<Element>;
  /// Makes it: in shared memory where ranks reach each other's. Called by all ranks.
  /// @throws configuration_error when options make no sense
  template <class Element>
  [[nodiscard]] static std::unique_ptr<state<Element>> make(const sharded_update& options, comm::any_communicator ranks,
                                                            const flat_parameters<Element>& parameters) {
    if (ranks.link().properties().makes_windows) {
      return std::make_unique<detail::shared_memory_update<Element>>(options, std::move(ranks), parameters);
    }
    return std::make_unique<detail::scattered_update<Element>>(options, std::move(ranks), parameters);
  }
  /// What it makes over a communicator of a known type: a trainer compiles only this one.
  template <class Element, class Communicator>
  using state_over = std::conditional_t<comm::makes_windows<Communicator, std::uint8_t>,
                                        detail::shared_memory_update<Element>, detail::scattered_update<Element>>;
};

namespace detail {

/// Sums blocks of the gradients.
template <class Element>
class gradient_blocks_on final : public gradient_channel {
 public:
  gradient_blocks_on(comm::any_communicator channel, std::span<Element> gradients)
      : channel_{std::move(channel)}, gradients_{gradients} {}

  comm::request reduce(index_t begin, index_t end) override {
    const parameter_blocks blocks{begin, end, channel_.size(), sizeof(Element)};
    return comm::reduce_scatter(channel_, part(begin, blocks.rest),
                                part(blocks.first_of(channel_.rank()), blocks.first_of(channel_.rank() + 1)));
  }

  [[nodiscard]] std::span<Element> part(index_t begin, index_t end) const noexcept {
    return gradients_.subspan(as_size(begin), as_size(end - begin));
  }
  [[nodiscard]] comm::any_communicator& communicator() noexcept { return channel_; }

 private:
  comm::any_communicator channel_;
  std::span<Element> gradients_;
};

/// A sharded update by messages, bucket by bucket.
template <class Element>
class scattered_update final : public partial_strategy<Element> {
 public:
  /// Called by all ranks: gradients and values travel on duplicates of the communicator.
  /// @throws configuration_error when options make no sense
  scattered_update(const sharded_update& options, comm::any_communicator communicator,
                   const flat_parameters<Element>& parameters)
      : channel_{communicator.duplicate(), parameters.gradients},
        values_{communicator.duplicate()},
        parameters_{parameters} {
    options.check();
    if (values_.size() == 1) {
      return;
    }
    exchange_ = make_exchange({.bucket_bytes = options.bucket_bytes,
                               .first_bucket_bytes = options.first_bucket_bytes,
                               .overlap = options.overlap},
                              channel_, parameters.segments, static_cast<index_t>(parameters.gradients.size()),
                              sizeof(Element), parameters.flush_denormals, communicator.one_thread());
    for (const bucket& each : exchange_->buckets()) {
      const parameter_blocks blocks{each.begin, each.end, values_.size(), sizeof(Element)};
      const auto within = parameters.segments.subspan(each.first_segment, each.segments);
      first_own_.push_back(own_.size());
      append_pieces(own_, within, blocks.first_of(values_.rank()), blocks.first_of(values_.rank() + 1), each.size());
      first_rest_.push_back(own_.size());
      append_pieces(own_, within, blocks.rest, blocks.end,
                    each.size());  // every rank updates what is behind the blocks
      blocks_.push_back(blocks);
    }
    first_own_.push_back(own_.size());
    gathers_ = dynamic_array<comm::request>(blocks_.size());
  }

  ~scattered_update() override = default;

  void use(optim::parameter_update<Element>& update) override { rule_ = &update; }

  /// Makes the values those of rank 0.
  void start() override { comm::broadcast(values_, parameters_.values, 0).wait(); }

  /// The buckets that are complete begin to travel.
  void gradients_ready(std::size_t /*first*/, std::size_t count) override {
    if (exchange_ != nullptr) {
      exchange_->segments_ready(count);
    }
  }

  /// Calls update(segments) for this rank's part of each bucket as its sums arrive, and brings the values together.
  void finish(const update_call& update) override {
    const bool needs_all = rule_ != nullptr && rule_->needs_all_gradients();
    if (exchange_ == nullptr) {
      if (needs_all) {
        rule_->test(parameters_.segments, parameters_.gradients.data());
        rule_->use_totals();
      }
      update(parameters_.segments);
      return;
    }
    while (exchange_->waits_for(0, parameters_.segments.size())) {
      const bucket& next = exchange_->wait_next();
      const auto number = static_cast<std::size_t>(&next - exchange_->buckets().data());
      const parameter_blocks& blocks = blocks_[number];
      if (blocks.rest < blocks.end) {
        comm::all_reduce(values_, channel_.part(blocks.rest, blocks.end)).wait();
      }
      if (needs_all) {  // all ranks have the sums behind the blocks: the last one counts them
        const bool last = values_.rank() + 1 == values_.size();
        rule_->test(own(number, last ? first_own_[number + 1] : first_rest_[number]), parameters_.gradients.data());
      } else {
        update_bucket(number, update);
      }
    }
    if (needs_all) {
      comm::all_reduce(values_, rule_->totals()).wait();
      rule_->use_totals();
      for (std::size_t number = 0; number < blocks_.size(); ++number) {
        update_bucket(number, update);
      }
    }
    for (std::size_t number = 0; number < gathers_.size(); ++number) {
      try {
        gathers_[number].wait();
      } catch (error& failure) {
        failure.add_context(parallel::describe(exchange_->buckets(), number, parameters_.segments),
                            std::source_location::current());
        throw;
      }
    }
    whole_ = false;
  }

  /// The state of the rule becomes whole on all ranks, if there was a step. Called by all of them.
  void gather_state() override {
    if (!whole_ && rule_ != nullptr) {
      for (const optim::state_buffer& each : rule_->buffers()) {
        if (each.elements == static_cast<index_t>(parameters_.values.size())) {
          for (const parameter_blocks& blocks : blocks_) {
            gather_blocks(values_.link(), blocks, each);
          }
        }
      }
      whole_ = true;
    }
  }

  /// Every rank gets the sums of all shards: as many bytes as values travel in a step.
  [[nodiscard]] double gather_gradients() override {
    const optim::state_buffer all{.name = "gradients",
                                  .bytes = std::as_writable_bytes(parameters_.gradients),
                                  .elements = static_cast<index_t>(parameters_.gradients.size())};
    for (const parameter_blocks& blocks : blocks_) {
      gather_blocks(values_.link(), blocks, all);
    }
    return 1;
  }

  /// The buckets, by their numbers.
  [[nodiscard]] dynamic_array<transfer_buffer> transfer_buffers() const override {
    dynamic_array<transfer_buffer> result;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      result.push_back({.name = gradus::join({"gradients ", i}),
                        .bytes = std::as_bytes(channel_.part(blocks_[i].begin, blocks_[i].end))});
    }
    return result;
  }

  /// The plan: the buckets.
  [[nodiscard]] std::string describe() const override {
    return describe_plan(sharded_update::name, values_.link().properties().name, exchange_.get(), parameters_.segments);
  }

  [[nodiscard]] bool sums_totals() const noexcept override { return true; }

 private:
  /// What this rank updates of a bucket, to element `end` of the list.
  [[nodiscard]] std::span<const optim::segment> own(std::size_t number, std::size_t end) const noexcept {
    return {own_.data() + first_own_[number], end - first_own_[number]};
  }

  void update_bucket(std::size_t number, const update_call& update) {
    const parameter_blocks& blocks = blocks_[number];
    update(own(number, first_own_[number + 1]));
    gathers_[number] =
        comm::all_gather(values_, values_of(blocks.first_of(values_.rank()), blocks.first_of(values_.rank() + 1)),
                         values_of(blocks.begin, blocks.rest));
  }

  [[nodiscard]] std::span<Element> values_of(index_t begin, index_t end) const noexcept {
    return parameters_.values.subspan(as_size(begin), as_size(end - begin));
  }

  gradient_blocks_on<Element> channel_;
  comm::any_communicator values_;
  flat_parameters<Element> parameters_;
  optim::parameter_update<Element>* rule_ = nullptr;
  std::unique_ptr<bucket_exchange> exchange_;
  dynamic_array<parameter_blocks> blocks_;  // of each bucket
  dynamic_array<optim::segment> own_;       // what this rank updates, bucket by bucket
  dynamic_array<std::size_t> first_own_;    // of each bucket, and where the last one ends
  dynamic_array<std::size_t> first_rest_;   // of each bucket: the first that all ranks update
  dynamic_array<comm::request> gathers_;    // of each bucket
  bool whole_ = true;                       // the rule's state, on this rank
};

}  // namespace detail

static_assert(gradient_strategy<sharded_update>);

}  // namespace gradus::parallel

GRADUS_COMPILED_STRATEGY(::gradus::parallel::sharded_update)
