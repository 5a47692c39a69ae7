// SPDX-License-Identifier: BSL-1.0
//
// Forward passes of one network on several threads, which share its weights.
#pragma once

#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_const_t

#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/detail/network/layer_execution.hpp"
#include "gradus/nn/detail/network/use.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/inference_options.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// A network that is compiled for inference, with memory of its own for values and workspace. Sessions of one network
/// read the same weights, and each may be used by another thread at the same time.
///
///   net.compile_for_inference({.max_batch_size = 8});
///   // In each thread:
///   cpu device{{.intra_op_threads = 1}};
///   nn::inference_session session{net, device};
///   const auto scores = session.forward(images);
///
/// The network outlives its sessions and is not moved or compiled again while they exist: compile_for_inference throws
/// then, and so does a session that has lost its network. No thread changes the weights while a session runs. Behind
/// such a change, as by io::load_weights, the first session that runs computes the folded and prepared weights anew,
/// as network::forward does; network::update_weights says when they are computed.
///
/// Threads: one thread at a time may call a session, others get a configuration_error. It uses the threads of its
/// device. Sessions on one `cpu` share its threads: while one session uses them, the others compute on the threads that
/// call them. On a GPU each session has a device of its own for the same GPU.
template <class Element, class Layout = nchw, class Device = cpu>
class inference_session {
 public:
  using element_type = Element;  ///< of images and scores
  using layout_type = Layout;    ///< of images
  using device_type = Device;    ///< runs the layers
  /// Batches and scores.
  using const_view = image_view<const Element, Layout, Device>;

  /// A session on the device of the network.
  /// @throws configuration_error unless the network is compiled for inference, or when options.memory is too small
  /// @throws device_error when there is too little memory
  explicit inference_session(borrowed<network<Element, Layout, Device>> net, const session_options& options = {},
                             error_location where = error_location::current())
      : inference_session{net, net.get().device(), options, where} {}

  /// A session on a device of its own, which outlives it.
  inference_session(borrowed<network<Element, Layout, Device>> net, borrowed<Device> device,
                    const session_options& options = {}, error_location where = error_location::current())
      : network_{&net.get()}, graph_{&network_->structure()}, execution_{device} {
    at_call(where, [&, this] {
      if (!network_->inference()) {
        raise<configuration_error>(
            "inference_session", "a network that is compiled for inference",
            network_->compiled() ? "one that is compiled for training" : "one that is not compiled",
            "call compile_for_inference({.max_batch_size = ...}) first");
      }
      execution_ = network_->execution_of_session(device, options.memory);
      there_ = network_->sessions_.join();
    });
  }

  /// The scores of a batch, as network::forward. The view is valid until this session runs again. Allocates nothing.
  /// @throws shape_error when the shape differs, or the batch is larger than max_batch_size
  /// @throws configuration_error while another thread runs this session, or when the network was moved or destroyed
  const_view forward(const const_view& images, error_location where = error_location::current()) {
    return at_call(where, [&, this] {
      const auto use = detail::use_of::begin(*this, "inference_session.forward");
      const floating_point_scope arithmetic{flushes_denormals_on(device())};
      detail::session_link::require_there("inference_session.forward", there_);
      const detail::readers_or_writer::reading weights = network_->current_weights();
      graph_->check_batch("inference_session.forward", images.extents(), graph_->examples_at_once());
      const image_batch<const Element, Device> scores = execution_.score(*graph_, images);
      return const_view{device(), scores.data(), scores.extents()};
    });
  }

  /// The device that runs the layers.
  [[nodiscard]] Device& device() const noexcept { return execution_.device(); }
  /// The graph of the network.
  [[nodiscard]] const graph& structure() const noexcept { return *graph_; }
  /// The largest batch, in examples.
  [[nodiscard]] index_t max_batch_size() const noexcept { return graph_->options().max_batch_size; }
  /// The shape of one example of the input.
  [[nodiscard]] const value_shape& input_shape() const noexcept { return graph_->shape(0); }
  /// The shape of one example of the scores.
  [[nodiscard]] const value_shape& output_shape() const { return graph_->shape(graph_->scores()); }
  /// Bytes that the session has allocated: values and workspace, without the weights.
  [[nodiscard]] std::size_t memory_bytes() const { return execution_.memory()->bytes(); }

 private:
  friend struct detail::use_of;

  compiled_network<Element, Device>* network_;
  const graph* graph_;
  detail::layer_execution<Element, Device> execution_;
  detail::session_link::there there_;
  detail::single_use in_use_;
};

template <class Element, class Layout, class Device>
inference_session(const network<Element, Layout, Device>&, const session_options& = {},
                  error_location = error_location::current()) -> inference_session<Element, Layout, Device>;
template <class Element, class Layout, class Device>
inference_session(const network<Element, Layout, Device>&, const Device&, const session_options& = {},
                  error_location = error_location::current()) -> inference_session<Element, Layout, Device>;

/// The scores of any number of images, as predict for a network.
template <class Element, class Layout, class Device, class Images, class ImagesDevice>
requires std::same_as<std::remove_const_t<Images>, Element>
[[nodiscard]] image_tensor<Element, Layout, ImagesDevice> predict(
    inference_session<Element, Layout, Device>& session, const image_view<Images, Layout, ImagesDevice>& images,
    error_location where = error_location::current()) {
  return at_call(where, [&] { return detail::predict_with<Element, Layout, Device>(session, images); });
}

/// The same for a tensor of images.
template <class Element, class Layout, class Device, class ImagesDevice>
[[nodiscard]] image_tensor<Element, Layout, ImagesDevice> predict(
    inference_session<Element, Layout, Device>& session, const image_tensor<Element, Layout, ImagesDevice>& images,
    error_location where = error_location::current()) {
  return predict(session, images.view(), where);
}

}  // namespace gradus::nn
