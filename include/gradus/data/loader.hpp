// SPDX-License-Identifier: BSL-1.0
//
// The loader: batches of a data set, prepared ahead by a separate thread.
#pragma once

#include <concepts>  // std::same_as
#include <cstdint>   // std::int32_t, std::uint64_t
#include <memory>    // std::addressof
#include <span>      // std::span

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/data/detail/loader/batch_memory.hpp"
#include "gradus/data/detail/loader/loader_base.hpp"
#include "gradus/data/loader_options.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::data {

/// One rank's shard of a batch. The loader owns the memory, which is on the device.
template <class Element, class Layout, class Device = cpu>
struct batch {
  image_view<const Element, Layout, Device> images;  ///< (n, c, h, w); n may be 0
  std::span<const std::int32_t> labels = {};         ///< n labels in [0, classes), or n * h * w
  /// Real targets (n, c, h, w); empty where the data set has none.
  image_view<const parameter_element_t<Element>, Layout, Device> targets;
  std::span<const parameter_element_t<Element>> weights = {};  ///< n weights, or empty
  std::uint64_t first_example = 0;  ///< position of the first image in the order of the epoch
  index_t global_examples = 0;      ///< examples of the batch over all ranks
};

namespace detail {

/// The batches of a loader in their layout. @tparam Filled  fills them; depends only on the element type
template <class Element, class Layout, class Filled>
class laid_out : public Filled {
  static_assert(explain_network_element<Element>());
  static_assert(explain_layout_policy<Layout>());

 public:
  using element_type = Element;
  using layout_type = Layout;
  using batch_type = data::batch<Element, Layout>;

  /// The next batch of the epoch, or nullptr after the last. It is valid until the next call of next or start_epoch.
  /// @throws configuration_error if no epoch was started
  /// @throws format_error if the data set returns a label that is out of range
  /// @throws the exception of the data set if reading failed; again in every call, until an epoch is started
  [[nodiscard]] const batch_type* next(error_location where = error_location::current()) {
    const filled_batch<Element>* const filled = at_call(where, [&, this] { return this->next_filled(); });
    if (filled == nullptr) {
      return nullptr;
    }
    given_ = {.images = {this->device(), filled->images, filled->shape},
              .labels = filled->labels,
              .targets = {this->device(), filled->targets, filled->target_shape},
              .weights = filled->weights,
              .first_example = filled->first_example,
              .global_examples = filled->global_examples};
    return std::addressof(given_);
  }

 protected:
  using Filled::Filled;

 private:
  batch_type given_{.images = {this->device(), nullptr, {}}, .targets = {this->device(), nullptr, {}}};
};

}  // namespace detail

/// Yields the examples of a data set in batches of images of float, double, bfloat16 or float16, for any number of
/// epochs.
///
///   data::loader<float, nhwc> loader{device, images, {.global_batch_size = 64, .seed = 1}};
///   loader.start_epoch(0);
///   while (const auto* batch = loader.next()) { ... batch->images, batch->labels ... }
///
/// A separate thread shuffles, converts and normalizes ahead; nothing is allocated after construction. See `sampler`
/// for the order of the examples and the shard of each rank. A loader is used by one thread at a time. The device and
/// the data set must outlive it.
template <class Element, class Layout, class Device = cpu>
class loader final : public detail::laid_out<Element, Layout, detail::batch_memory<Element>> {
  static_assert(
      std::same_as<Device, cpu>,
      "gradus: a loader yields batches on a gradus::cpu, or on a gradus::cuda of gradus/data/cuda_loader.cuh");

 public:
  /// @throws configuration_error if the set is empty or options are invalid
  /// @throws device_error if there is not enough memory
  template <class Dataset>
  loader(borrowed<cpu> device, const Dataset& set, const loader_options& options,
         error_location where = error_location::current()) try
      : detail
    ::laid_out<Element, Layout, detail::batch_memory<Element>>{device, set, options, &dense_strides<Layout, 4>} {}
  catch (error& failure) {
    failure.location_at_call(where);
  }
  template <class Dataset>
  loader(borrowed<cpu>, const Dataset&&,  // gradus: a temporary data set: name it on the line before
         const loader_options&) = delete;
};

}  // namespace gradus::data
