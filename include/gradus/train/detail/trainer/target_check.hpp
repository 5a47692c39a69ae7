// SPDX-License-Identifier: BSL-1.0
//
// Compares what a loss reads with what a loader gives, before the first step.
#pragma once

#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/network/base.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/targets.hpp"

namespace gradus::train::detail {

/// What a network reads of an example, and what a loader gives.
struct example_check {
  std::string_view operation;  // of messages
  const nn::graph* network = nullptr;
  std::string_view loss;               // its kind
  nn::target_description needed = {};  // by the loss
  nn::target_description given = {};   // by the loader; its classes are those of the data set
  image_extents image = {};            // of the loader: (1, c, h, w)
  bool known = false;                  // false: the loader is the program's own and does not say what it gives
};

/// What to compare for a network and a loader. A loader that does not say what it gives is not compared: the first
/// batch is.
template <class Element, class Device, class Loader>
[[nodiscard]] example_check example_check_of(std::string_view operation,
                                             const nn::network_base<Element, Device>& network, const Loader& loader) {
  example_check check{.operation = operation,
                      .network = &network.structure(),
                      .loss = network.loss_kind(),
                      .needed = network.target_description()};
  if constexpr (requires {
                  loader.labels_per_example();
                  loader.target();
                  loader.classes();
                  loader.example();
                }) {
    const image_extents& target = loader.target();
    check.given = {.labels = loader.labels_per_example(),
                   .values = {target.c, target.h, target.w},
                   .classes = static_cast<index_t>(loader.classes())};
    check.image = loader.example();
    check.known = true;
  }
  return check;
}

/// What to change when a loss reads other targets than a loader gives.
[[nodiscard]] std::string_view hint_of_targets(const example_check& check) noexcept;

/// @throws configuration_error when the network has no loss
/// @throws shape_error when a loader gives other images or other targets than the network and its loss read
void require_examples(const example_check& check);

/// @param examples  of the largest batch that the loader gives this rank; 0: it does not say
/// @throws shape_error when the network was compiled for smaller batches
void require_batch_size(const example_check& check, index_t examples, int ranks);

}  // namespace gradus::train::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train::detail {

GRADUS_INLINE std::string_view hint_of_targets(const example_check& check) noexcept {
  if (check.needed == nn::target_description{.labels = 1} && check.loss != "softmax_cross_entropy") {
    // What a loss of the program reads unless it says more.
    return check.given.labels > 0
               ? "a loss of your own that reads a class for each pixel says so: override targets() and return "
                 "{.labels = height * width, .classes = channels} of the scores that infer has got"
               : "a loss of your own that reads real targets says so: override targets() and return {.labels = 0, "
                 ".values = scores} with the shape that infer has got, or use nn::loss_of (gradus/nn/losses.hpp)";
  }
  if ((check.needed.labels > 0) == (check.given.labels > 0)) {
    return "change the last layer, so that the scores have the shape of the targets, or the data set";
  }
  return check.needed.labels > 0
             ? "end the network with a loss of real targets (gradus/nn/losses.hpp), or give the data set classes: "
               "label or read_labels in place of read_target"
             : "end the network with a loss of classes, such as nn::softmax_cross_entropy, or give the data set real "
               "targets: target and read_target in place of label";
}

GRADUS_INLINE void require_examples(const example_check& check) {
  check.network->require_loss(check.operation);
  if (!check.known) {
    return;
  }
  if (const nn::value_shape& input = check.network->shape(0); check.image != input.batch(1)) {
    raise<shape_error>(
        check.operation,
        {"a loader with images of (", input.channels, ", ", input.height, ", ", input.width,
         "), the input of the network"},
        {"a data set with images of (", check.image.c, ", ", check.image.h, ", ", check.image.w, ")"},
        {"make the network for these images, nn::network<...> net{device, {.channels = ", check.image.c,
         ", .height = ", check.image.h, ", .width = ", check.image.w, "}}, or change the images of the data set"});
  }
  const nn::target_description& needed = check.needed;
  const nn::target_description& given = check.given;
  if (needed.labels != given.labels || (needed.values.channels > 0) != (given.values.channels > 0) ||
      (needed.values.channels > 0 && needed.values.batch(1) != given.values.batch(1))) {
    raise<shape_error>(
        check.operation,
        {"a loader that gives ", describe(needed), " for each example, as the loss ", check.loss, " reads it"},
        {"a loader that gives ", describe(given)}, hint_of_targets(check));
  }
  if (needed.classes > 0 && given.classes > needed.classes) {
    raise<shape_error>(
        check.operation,
        {"a loader with at most ", needed.classes, " classes, the scores that the loss ", check.loss, " reads"},
        {"a data set with ", given.classes, " classes"},
        {"the last layer needs one score for each class: compare its out_features with the data set. If the label ",
         given.classes - 1, " is no class, it is the ignored_label of the data set and of nn::softmax_cross_entropy"});
  }
}

GRADUS_INLINE void require_batch_size(const example_check& check, index_t examples, int ranks) {
  const index_t most = check.network->options().max_batch_size;
  if (examples > most) {
    raise<shape_error>(
        check.operation,
        {"a loader with batches of at most ", most, " examples on a rank, the network's max_batch_size"},
        {"batches of ", examples},
        {"net.compile({.max_batch_size = ", examples, ", .micro_batch_size = ", most,
         "}) computes them in parts, in little more memory; or give the loader a global_batch_size of at most ",
         most * ranks});
  }
}

}  // namespace gradus::train::detail
#endif
