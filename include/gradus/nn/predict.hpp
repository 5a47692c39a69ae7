// SPDX-License-Identifier: BSL-1.0
//
// Scores and classes of any number of examples, without a trainer.
#pragma once

#include <algorithm>    // std::max, std::min
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <type_traits>  // std::remove_const_t
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/detail/network/use.hpp"
#include "gradus/nn/metric.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

namespace detail {

/// See predict. @param model  a network, or what runs one
template <class Element, class Layout, class Device, class Model, class Images, class ImagesDevice>
[[nodiscard]] image_tensor<Element, Layout, ImagesDevice> predict_with(
    Model& model, const image_view<Images, Layout, ImagesDevice>& images) {
  static_assert(std::same_as<Device, ImagesDevice> || has_host_memory<ImagesDevice>,
                "gradus: nn::predict takes images on the device of the network or in the memory of the host");
  constexpr bool copies = !has_host_memory<Device> && has_host_memory<ImagesDevice>;
  const auto use = use_of::begin(model, "predict");
  const index_t examples = images.extent(0);
  const image_extents all{examples, images.extent(1), images.extent(2), images.extent(3)};
  if (const image_extents expected = model.structure().batch_extents(0, examples); all != expected) {
    raise<shape_error>("predict", {"images of ", to_string(expected), ", the network's input"}, to_string(all),
                       "any number of images, each with the channels, rows and columns of the input");
  }
  model.structure().check_batch("predict", all, examples);
  Device& device = model.device();
  if constexpr (std::same_as<Device, ImagesDevice> && !has_host_memory<Device>) {
    if (&images.device() != &device) {
      raise<configuration_error>("predict", "images on the device of the network", "images on another device",
                                 "copy them with gradus::to(net.device(), images)");
    }
  }
  image_tensor<Element, Layout, ImagesDevice> result{images.device(), model.output_shape().batch(examples)};
  const index_t most = std::max(index_t{1}, std::min(examples, model.structure().examples_at_once()));
  const index_t in = image_extents{1, all.c, all.h, all.w}.size();
  const index_t out = model.output_shape().batch(1).size();
  image_tensor<Element, Layout, Device> staged{device, {copies ? most : 0, all.c, all.h, all.w}};
  for (index_t first = 0; first < examples; first += most) {
    const index_t count = std::min(most, examples - first);
    const Element* from = images.data() + first * in;
    if constexpr (copies) {
      device.copy_from_host(staged.data(), from, static_cast<std::size_t>(count * in) * sizeof(Element));
      from = staged.data();
    }
    const auto scores = model.forward({device, from, image_extents{count, all.c, all.h, all.w}});
    const std::size_t bytes = static_cast<std::size_t>(count * out) * sizeof(Element);
    if constexpr (has_host_memory<ImagesDevice>) {
      device.copy_to_host(result.data() + first * out, scores.data(), bytes);
    } else {
      device.copy(result.data() + first * out, scores.data(), bytes);
    }
  }
  return result;
}

}  // namespace detail

/// The scores of images, outside training, as a tensor of its own. Any number of images: the network computes as many
/// as it can at once. The scores are on the device of the images; a network on a GPU takes images in the memory of the
/// host too.
///
///   const auto scores = nn::predict(net, images);                            // (n, classes, 1, 1)
///   const std::vector<std::int32_t> classes = nn::predicted_labels(scores);  // n
///   const auto probabilities = evaluate(softmax<axis::c>(scores));           // gradus/tensor/activations.hpp
///
/// @param images  (n, channels, height, width), of the element type and the layout of the network
/// @throws shape_error when an image has another shape than the network's input
/// @throws configuration_error when the network is not compiled, or images on a GPU are on another one than the network
template <class Element, class Layout, class Device, class Images, class ImagesDevice>
requires std::same_as<std::remove_const_t<Images>, Element>
[[nodiscard]] image_tensor<Element, Layout, ImagesDevice> predict(
    network<Element, Layout, Device>& net, const image_view<Images, Layout, ImagesDevice>& images,
    error_location where = error_location::current()) {
  return at_call(where, [&] { return detail::predict_with<Element, Layout, Device>(net, images); });
}

/// The same for a tensor of images.
template <class Element, class Layout, class Device, class ImagesDevice>
[[nodiscard]] image_tensor<Element, Layout, ImagesDevice> predict(
    network<Element, Layout, Device>& net, const image_tensor<Element, Layout, ImagesDevice>& images,
    error_location where = error_location::current()) {
  return predict(net, images.view(), where);
}

/// The class with the largest score (the first of equals) of each example, or of each pixel in the order (n, h, w); -1
/// where a score is NaN.
/// @param scores  (n, classes, h, w) on any device
template <class Element, class Layout, class Device>
[[nodiscard]] std::vector<std::int32_t> predicted_labels(const image_view<Element, Layout, Device>& scores) {
  using number = std::remove_const_t<Element>;
  std::vector<std::int32_t> labels;
  const image_batch<const number, Device> all{scores};
  const index_t examples = scores.extent(0);
  labels.reserve(static_cast<std::size_t>(examples * scores.extent(2) * scores.extent(3)));
  metrics::batch one;
  for (index_t n = 0; n < examples; ++n) {
    one.assign(all, dense_strides<Layout, 4>(scores.extents()), targets<number, Device>{}, n, 1);
    for (index_t pixel = 0; pixel < one.pixels(); ++pixel) {
      labels.push_back(static_cast<std::int32_t>(metrics::predicted_class(one.scores(0, pixel))));
    }
  }
  return labels;
}

/// The same for a tensor of scores.
template <class Element, class Layout, class Device>
[[nodiscard]] std::vector<std::int32_t> predicted_labels(const image_tensor<Element, Layout, Device>& scores) {
  return predicted_labels(scores.view());
}

}  // namespace gradus::nn
