// SPDX-License-Identifier: BSL-1.0
//
// The loader for a GPU: copies a batch while the device computes with the previous one.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::int32_t, std::uint64_t
#include <cstring>  // std::memcpy
#include <memory>   // std::addressof

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_memory.cuh"
#include "gradus/device/cuda_stream.cuh"
#include "gradus/tensor/tensor.hpp"

namespace gradus::data {

namespace detail {

/// The host device of a loader, as a base class that is constructed before the others.
struct loader_host {
  cpu host{{.intra_op_threads = 1}};
};

/// Batches on a GPU, prepared by Base, a loader of the host.
///
/// Its memory is pinned, and a separate stream copies batches ahead into one of two slots: while the device works on a
/// batch, the next one arrives. next() does not wait for the device's work on the last batch, only for that on the
/// batch before it.
template <class Element, class Layout, class Base>
class cuda_batches : private loader_host, public Base {
  using base = Base;

 public:
  using element_type = Element;
  using layout_type = Layout;
  using batch_type = data::batch<Element, Layout, cuda>;

  /// @throws configuration_error if the set is empty or options are invalid
  /// @throws device_error if there is not enough memory, or it cannot be pinned
  template <class Dataset, class... Reading>
  cuda_batches(cuda& device, const Dataset& set, const loader_options& options, const Reading&... reading)
      : base{this->host, set, options, &dense_strides<Layout, 4>, reading...},
        device_{&device},
        set_{std::addressof(set)},
        wait_for_copy_{waiting_of<Dataset>()},
        pinned_images_{
            is_large() ? gradus::detail::pinned_range{this->images_memory().data(), this->images_memory().size_bytes()}
                       : gradus::detail::pinned_range{}},
        staged_images_{is_large() ? 0 : this->images_memory().size_bytes() / this->slots()},
        staged_targets_{this->label_bytes() + this->target_bytes() + this->weight_bytes()},
        images_{device, {device_slots, static_cast<index_t>(this->images_memory().size() / this->slots())}},
        labels_{device, {device_slots, static_cast<index_t>(this->label_bytes() / sizeof(std::int32_t))}},
        targets_{device, {device_slots, static_cast<index_t>(this->target_bytes() / sizeof(number))}},
        weights_{device, {device_slots, static_cast<index_t>(this->weight_bytes() / sizeof(number))}} {
    device.synchronize();  // makes the memory valid for both streams
  }

  ~cuda_batches() { abandon(); }

  /// As start_epoch of the host's loader.
  void start_epoch(std::uint64_t epoch, index_t first = 0, error_location where = error_location::current()) {
    abandon();
    base::start_epoch(epoch, first, where);
  }

  /// The next batch of the epoch, or nullptr after the last. Work that is submitted to the device from now on can read
  /// it. It is valid until the next call of next or start_epoch.
  /// @throws the exceptions of next of the host's loader
  /// @throws device_error if a copy, or earlier work of the device, failed
  [[nodiscard]] const batch_type* next(error_location where = error_location::current()) {
    return at_call(where, [&] { return advance(); });
  }

 private:
  using number = parameter_element_t<Element>;
  static constexpr index_t device_slots = 2;

  const batch_type* advance() {
    device_->activate();
    if (!on_the_way_) {
      copy_next();
    }
    if (!on_the_way_) {
      return nullptr;
    }
    on_the_way_ = false;
    const cuda_event& copied = copied_[slot_];
    check_cuda(cudaStreamWaitEvent(device_->stream(), copied.get(), 0), "cudaStreamWaitEvent");
    given_ = {.images = {*device_, images_at(slot_), copying_.shape},
              .labels = {slot_of(labels_), copying_.labels.size()},
              .targets = {*device_, copying_.targets == nullptr ? nullptr : slot_of(targets_), copying_.target_shape},
              .weights = {slot_of(weights_), copying_.weights.size()},
              .first_example = copying_.first_example,
              .global_examples = copying_.global_examples};
    // The other slot is free when the device is done with the batch before, and all work on that batch has been
    // submitted.
    used_.record(device_->stream());
    copies_.wait(used_);
    slot_ = 1 - slot_;
    wait_for_copy_(*this, copied);  // then the host's memory of this batch is free
    try {
      copy_next();
    } catch (const error&) {
      // The current batch is valid; the next call fails in the same way.
    }
    return std::addressof(given_);
  }

  /// Large host memory is pinned in place, because cpu allocates whole pages for it. Small memory shares pages with
  /// other memory, which may be pinned too; then batches are copied to memory that is pinned.
  [[nodiscard]] bool is_large() noexcept { return this->images_memory().size_bytes() >= std::size_t{2} << 20U; }

  using wait_function = void (*)(const cuda_batches& self, const cuda_event& copied);

  /// The wait function of a data set with watch_copy(bytes), which measures how long the caller waits for a copy.
  template <class Dataset>
  [[nodiscard]] static wait_function waiting_of() noexcept {
    return [](const cuda_batches& self, const cuda_event& copied) {
      if constexpr (requires(const Dataset& told) { told.watch_copy(std::size_t{}); }) {
        const auto bytes = static_cast<std::size_t>(self.copying_.shape.size()) * sizeof(Element);
        [[maybe_unused]] const auto seen = static_cast<const Dataset*>(self.set_)->watch_copy(bytes);
        copied.synchronize();
      } else {
        copied.synchronize();
      }
    };
  }

  [[nodiscard]] Element* images_at(std::size_t slot) noexcept {
    return images_.data() + static_cast<index_t>(slot) * images_.extent(1);
  }
  /// The part of an array that belongs to slot_.
  template <class Any>
  [[nodiscard]] Any* slot_of(tensor<Any, 2, row_major, cuda>& array) const noexcept {
    return array.data() + static_cast<index_t>(slot_) * array.extent(1);
  }

  /// Begins to copy the next batch of the host, if there is one, to the free slot.
  void copy_next() {
    const detail::filled_batch<Element>* const filled = this->next_filled();
    if (filled == nullptr) {
      return;
    }
    copying_ = *filled;
    const auto bytes = static_cast<std::size_t>(filled->shape.size()) * sizeof(Element);
    if (bytes != 0) {  // no copy from the staged memory is under way now
      if (!is_large()) {
        std::memcpy(staged_images_.data(), filled->images, bytes);
      }
      copy(images_at(slot_), is_large() ? filled->images : staged_images_.data(), bytes);
      auto* staged = static_cast<std::byte*>(staged_targets_.data());
      const auto stage = [&](void* to_device, const void* from, std::size_t size) {
        if (size != 0) {
          std::memcpy(staged, from, size);
          copy(to_device, staged, size);
          staged += size;
        }
      };
      stage(slot_of(labels_), filled->labels.data(), filled->labels.size_bytes());
      stage(slot_of(targets_), filled->targets, static_cast<std::size_t>(filled->target_shape.size()) * sizeof(number));
      stage(slot_of(weights_), filled->weights.data(), filled->weights.size_bytes());
    }
    copied_[slot_].record(copies_.get());
    on_the_way_ = true;
  }
  void copy(void* to_device, const void* from_host, std::size_t bytes) const {
    check_cuda(cudaMemcpyAsync(to_device, from_host, bytes, cudaMemcpyHostToDevice, copies_.get()), "cudaMemcpyAsync");
  }

  /// Returns when no copy is under way.
  void abandon() noexcept {
    static_cast<void>(cudaStreamSynchronize(copies_.get()));
    on_the_way_ = false;
  }

  cuda* device_;
  const void* set_;
  wait_function wait_for_copy_;
  gradus::detail::pinned_range pinned_images_;
  pinned_memory staged_images_;
  pinned_memory staged_targets_;                     // labels, real targets and weights of a batch
  tensor<Element, 2, row_major, cuda> images_;       // (slots, elements of the largest batch and padding)
  tensor<std::int32_t, 2, row_major, cuda> labels_;  // (slots, labels of the largest batch)
  tensor<number, 2, row_major, cuda> targets_;       // (slots, real targets of the largest batch)
  tensor<number, 2, row_major, cuda> weights_;       // (slots, weights of the largest batch)
  cuda_stream copies_;
  std::array<cuda_event, device_slots> copied_;  // for each slot: its batch is copied
  cuda_event used_;                              // the device's work on the previous slot is done
  detail::filled_batch<Element> copying_;        // the batch under way to slot_
  bool on_the_way_ = false;
  std::size_t slot_ = 0;
  batch_type given_{.images = {*device_, nullptr, {}}, .targets = {*device_, nullptr, {}}};
};

}  // namespace detail

/// A loader with its batches, images and labels, on a GPU:
///
///   data::loader<float, nhwc, gradus::cuda> loader{gpu, images, {.global_batch_size = 64, .seed = 1}};
///
/// It works as the loader of the host, and copies ahead; see detail::cuda_batches.
template <class Element, class Layout>
class loader<Element, Layout, cuda> final
    : public detail::cuda_batches<Element, Layout, detail::batch_memory<Element>> {
  using base = detail::cuda_batches<Element, Layout, detail::batch_memory<Element>>;

 public:
  /// The same as the loader of the host.
  template <class Dataset>
  loader(borrowed<cuda> device, const Dataset& set, const loader_options& options,
         error_location where = error_location::current()) try
      : base{device, set, options} {
  } catch (error& failure) {
    failure.location_at_call(where);
  }
  template <class Dataset>
  loader(borrowed<cuda>, const Dataset&&,  // gradus: a temporary data set: name it on the line before
         const loader_options&) = delete;
};

/// The same for a parallel_loader:
///
///   data::parallel_loader<float, nhwc, gradus::cuda> loader{gpu, photographs, {.global_batch_size = 64},
///                                                           {.threads = 8}};
template <class Element, class Layout>
class parallel_loader<Element, Layout, cuda> final
    : public detail::cuda_batches<Element, Layout, detail::parallel_batches<Element>> {
  using base = detail::cuda_batches<Element, Layout, detail::parallel_batches<Element>>;

 public:
  /// The same as the loader, and as parallel_loader of the host.
  template <class Dataset>
  parallel_loader(borrowed<cuda> device, const Dataset& set, const loader_options& options,
                  const reader_options& reading = {}, error_location where = error_location::current()) try
      : base{device, set, options, reading} {
  } catch (error& failure) {
    failure.location_at_call(where);
  }
  template <class Dataset>
  parallel_loader(borrowed<cuda>, const Dataset&&,  // gradus: a temporary data set: name it on the line before
                  const loader_options&, const reader_options& = {}) = delete;
};

}  // namespace gradus::data
