// SPDX-License-Identifier: BSL-1.0
//
// How cuDNN runs one pass of a convolution of one shape: descriptors, algorithm and workspace. Cached for each shape.
#pragma once

#include <cudnn.h>  // cudnnFindConvolutionForwardAlgorithmEx

#include <algorithm>        // std::min
#include <array>            // std::array
#include <cstddef>          // std::byte, std::size_t
#include <map>              // std::map
#include <memory>           // std::unique_ptr
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view
#include <utility>          // std::exchange

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/detail/conv2d/cudnn.cuh"

namespace gradus::kernels::detail {

/// One pass of a convolution, for elements of one type in one layout.
struct convolution_call {
  conv2d_geometry geometry;
  index_t batch = 0;
  pass which = pass::forward;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;

  using key_type = std::array<index_t, 20>;
  [[nodiscard]] key_type key() const noexcept {
    const conv2d_geometry& g = geometry;
    return {g.in_channels,
            g.in_height,
            g.in_width,
            g.out_channels,
            g.out_height,
            g.out_width,
            g.kernel_height,
            g.kernel_width,
            g.stride_height,
            g.stride_width,
            g.pad_top,
            g.pad_left,
            g.groups,
            g.dilation_height,
            g.dilation_width,
            static_cast<index_t>(g.algorithm),
            batch,
            static_cast<index_t>(which),
            static_cast<index_t>(type),
            static_cast<index_t>(format)};
  }

  [[nodiscard]] cudnn_shape shape(const image_extents& extents) const {
    return format == CUDNN_TENSOR_NCHW ? cudnn_shape_of<nchw>(extents) : cudnn_shape_of<nhwc>(extents);
  }
  [[nodiscard]] std::size_t element_bytes() const noexcept {
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
  }
};

/// True if cuDNN, whose padding is the same on both sides, gives exactly the output extents of the geometry.
[[nodiscard]] inline bool pads_like_cudnn(const conv2d_geometry& g) noexcept {
  const auto outputs = [](index_t in, index_t pad, index_t reach, index_t stride) {
    const index_t room = in + 2 * pad - reach;
    return room < 0 ? index_t{0} : room / stride + 1;
  };
  return outputs(g.in_height, g.pad_top, g.reach_height(), g.stride_height) == g.out_height &&
         outputs(g.in_width, g.pad_left, g.reach_width(), g.stride_width) == g.out_width;
}

/// The extents of explicitly padded images: without rows and columns that no kernel position covers.
[[nodiscard]] inline image_extents padded_input(const conv2d_geometry& g, index_t batch) noexcept {
  return {batch, g.in_channels, (g.out_height - 1) * g.stride_height + g.reach_height(),
          (g.out_width - 1) * g.stride_width + g.reach_width()};
}

[[nodiscard]] constexpr std::string_view name_of(pass which) noexcept {
  return which == pass::forward         ? "conv2d_forward"
         : which == pass::backward_data ? "conv2d_backward_data"
                                        : "conv2d_backward_weights";
}

/// Whether an algorithm of cuDNN adds up the terms of every result.
[[nodiscard]] constexpr bool is_direct(cudnnConvolutionFwdAlgo_t algorithm) noexcept {
  return algorithm != CUDNN_CONVOLUTION_FWD_ALGO_FFT && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING &&
         algorithm != CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED;
}
[[nodiscard]] constexpr bool is_direct(cudnnConvolutionBwdDataAlgo_t algorithm) noexcept {
  return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 || algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
}
[[nodiscard]] constexpr bool is_direct(cudnnConvolutionBwdFilterAlgo_t algorithm) noexcept {
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 || algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 ||
         algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3;
}

/// Rounds up, so that memory after it is aligned.
[[nodiscard]] constexpr std::size_t aligned_bytes(std::size_t bytes) noexcept {
  return (bytes + 255) / 256 * 256;
}

/// Descriptors and the algorithm of one pass.
class convolution_plan {
 public:
  convolution_plan(const cuda& device, const convolution_call& call)
      : call_{call},
        padded_{!pads_like_cudnn(call.geometry)},
        keeps_float_{call.type == CUDNN_DATA_FLOAT && !device.options().allow_tf32} {
    const conv2d_geometry& g = call.geometry;
    set_tensor(input_, call.type, call.shape(input_extents()));
    set_tensor(output_, call.type, call.shape(g.output(call.batch)));
    set_tensor(bias_, call.type,
               cudnn_shape{{1, static_cast<int>(g.out_channels), 1, 1}, {static_cast<int>(g.out_channels), 1, 1, 1}});
    const image_extents w = g.weights();
    check_cudnn(cudnnSetFilter4dDescriptor(weights_.get(), call.type, call.format, static_cast<int>(w.n),
                                           static_cast<int>(w.c), static_cast<int>(w.h), static_cast<int>(w.w)),
                "cudnnSetFilter4dDescriptor");
    check_cudnn(
        cudnnSetConvolution2dDescriptor(convolution_.get(), padded_ ? 0 : static_cast<int>(g.pad_top),
                                        padded_ ? 0 : static_cast<int>(g.pad_left), static_cast<int>(g.stride_height),
                                        static_cast<int>(g.stride_width), static_cast<int>(g.dilation_height),
                                        static_cast<int>(g.dilation_width), CUDNN_CROSS_CORRELATION,
                                        call.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
    check_cudnn(cudnnSetConvolutionGroupCount(convolution_.get(), static_cast<int>(g.groups)),
                "cudnnSetConvolutionGroupCount");
    set_math(keeps_float_                                                       ? CUDNN_FMA_MATH
             : call.type == CUDNN_DATA_BFLOAT16 || call.type == CUDNN_DATA_HALF ? CUDNN_TENSOR_OP_MATH
                                                                                : CUDNN_DEFAULT_MATH);
    check_cudnn(cudnnSetActivationDescriptor(identity_.get(), CUDNN_ACTIVATION_IDENTITY, CUDNN_PROPAGATE_NAN, 0),
                "cudnnSetActivationDescriptor");
    check_cudnn(cudnnSetActivationDescriptor(relu_.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0),
                "cudnnSetActivationDescriptor");
  }

  /// Measures the algorithms that need at most `limit` bytes of workspace and chooses the fastest. Allocates memory for
  /// the measurement; if there is too little, it uses cuDNN's heuristics instead.
  void measure(cuda& device, std::size_t limit) {
    const conv2d_geometry& g = call_.geometry;
    dynamic_array<scratch> memory;
    try {
      const std::size_t one = call_.element_bytes();
      for (const std::size_t bytes :
           {static_cast<std::size_t>(input_extents().size()) * one, static_cast<std::size_t>(g.weights().size()) * one,
            static_cast<std::size_t>(g.output(call_.batch).size()) * one, limit}) {
        memory.push_back(scratch{device, bytes});
      }
    } catch (const device_error&) {
      ask(device, limit);
      return;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      device.fill_zero(memory[i].data(), memory[i].bytes());
    }
    choose(device, limit, [&](cudnnHandle_t handle, int most, int* count, auto* results) {
      return find(handle, memory[0].data(), memory[1].data(), memory[2].data(), memory[3].data(), limit, most, count,
                  results);
    });
  }

  /// Chooses the algorithm that cuDNN's heuristics rank first among those with at most `limit` bytes of workspace.
  void ask(cuda& device, std::size_t limit) {
    choose(device, limit, [&](cudnnHandle_t handle, int most, int* count, auto* results) {
      return rules(handle, most, count, results);
    });
  }

  /// True if cuDNN cannot pad this geometry, so that it receives padded images.
  [[nodiscard]] bool padded() const noexcept { return padded_; }
  [[nodiscard]] image_extents input_extents() const noexcept {
    return padded_ ? padded_input(call_.geometry, call_.batch) : call_.geometry.input(call_.batch);
  }
  /// Bytes of the padded images; 0 if cuDNN pads.
  [[nodiscard]] std::size_t padded_bytes() const {
    return padded_ ? aligned_bytes(static_cast<std::size_t>(input_extents().size()) * call_.element_bytes()) : 0;
  }
  /// Bytes of the algorithm's workspace.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_; }

  template <class Scalar>
  void forward(cudnnHandle_t handle, const void* x, const void* w, void* y, bool accumulate, void* workspace) const {
    const Scalar one = 1;
    const Scalar old = accumulate ? 1 : 0;
    check_cudnn(cudnnConvolutionForward(handle, &one, input_.get(), x, weights_.get(), w, convolution_.get(),
                                        static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_), workspace, workspace_, &old,
                                        output_.get(), y),
                "cudnnConvolutionForward");
  }

  /// y = act(x * w + bias + residual) in one call. Returns false and does nothing if cuDNN has no such call for this
  /// shape.
  template <class Scalar>
  [[nodiscard]] bool forward_fused(cudnnHandle_t handle, const void* x, const void* w, const void* bias,
                                   const void* residual, const activation& act, void* y, void* workspace) {
    const bool relu = act == activation::relu;
    if (!relu && act != activation::identity) {
      return false;
    }
    if (not_fused_ || (!relu && algorithm_ != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)) {
      return false;  // cuDNN offers the identity only with that algorithm
    }
    const Scalar one = 1;
    const Scalar zero = 0;
    const cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
        handle, &one, input_.get(), x, weights_.get(), w, convolution_.get(),
        static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_), workspace, workspace_, residual == nullptr ? &zero : &one,
        output_.get(), residual == nullptr ? y : residual, bias_.get(), bias, relu ? relu_.get() : identity_.get(),
        output_.get(), y);
    if (status == CUDNN_STATUS_SUCCESS) {
      return true;
    }
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM ||
        CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) {
      not_fused_ = true;
      return false;
    }
    throw_cudnn_error(status, "cudnnConvolutionBiasActivationForward", std::source_location::current());
  }

  template <class Scalar>
  void backward_data(cudnnHandle_t handle, const void* dy, const void* w, void* dx, bool accumulate,
                     void* workspace) const {
    const Scalar one = 1;
    const Scalar old = accumulate ? 1 : 0;
    check_cudnn(cudnnConvolutionBackwardData(handle, &one, weights_.get(), w, output_.get(), dy, convolution_.get(),
                                             static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm_), workspace,
                                             workspace_, &old, input_.get(), dx),
                "cudnnConvolutionBackwardData");
  }

  template <class Scalar>
  void backward_weights(cudnnHandle_t handle, const void* x, const void* dy, void* dw, void* workspace) const {
    const Scalar one = 1;
    const Scalar zero = 0;
    check_cudnn(cudnnConvolutionBackwardFilter(handle, &one, input_.get(), x, output_.get(), dy, convolution_.get(),
                                               static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm_), workspace,
                                               workspace_, &zero, weights_.get(), dw),
                "cudnnConvolutionBackwardFilter");
  }

 private:
  class scratch {
   public:
    scratch(cuda& device, std::size_t bytes) : device_{&device}, bytes_{bytes}, data_{device.allocate(bytes)} {}
    scratch(scratch&& other) noexcept
        : device_{other.device_}, bytes_{other.bytes_}, data_{std::exchange(other.data_, nullptr)} {}
    scratch& operator=(scratch&&) = delete;
    ~scratch() {
      if (data_ != nullptr) {
        device_->deallocate(data_, bytes_);
      }
    }
    [[nodiscard]] void* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

   private:
    cuda* device_;
    std::size_t bytes_;
    void* data_;
  };

  void set_math(cudnnMathType_t math) {
    check_cudnn(cudnnSetConvolutionMathType(convolution_.get(), math), "cudnnSetConvolutionMathType");
  }

  // Each of the three passes has its own functions and result types.

  cudnnStatus_t find(cudnnHandle_t handle, void* x, void* w, void* y, void* workspace, std::size_t bytes, int most,
                     int* count, cudnnConvolutionFwdAlgoPerf_t* results) const {
    return cudnnFindConvolutionForwardAlgorithmEx(handle, input_.get(), x, weights_.get(), w, convolution_.get(),
                                                  output_.get(), y, most, count, results, workspace, bytes);
  }
  cudnnStatus_t find(cudnnHandle_t handle, void* x, void* w, void* y, void* workspace, std::size_t bytes, int most,
                     int* count, cudnnConvolutionBwdDataAlgoPerf_t* results) const {
    return cudnnFindConvolutionBackwardDataAlgorithmEx(handle, weights_.get(), w, output_.get(), y, convolution_.get(),
                                                       input_.get(), x, most, count, results, workspace, bytes);
  }
  cudnnStatus_t find(cudnnHandle_t handle, void* x, void* w, void* y, void* workspace, std::size_t bytes, int most,
                     int* count, cudnnConvolutionBwdFilterAlgoPerf_t* results) const {
    return cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, input_.get(), x, output_.get(), y, convolution_.get(),
                                                         weights_.get(), w, most, count, results, workspace, bytes);
  }
  cudnnStatus_t rules(cudnnHandle_t handle, int most, int* count, cudnnConvolutionFwdAlgoPerf_t* results) const {
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, input_.get(), weights_.get(), convolution_.get(),
                                                  output_.get(), most, count, results);
  }
  cudnnStatus_t rules(cudnnHandle_t handle, int most, int* count, cudnnConvolutionBwdDataAlgoPerf_t* results) const {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, weights_.get(), output_.get(), convolution_.get(),
                                                       input_.get(), most, count, results);
  }
  cudnnStatus_t rules(cudnnHandle_t handle, int most, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* results) const {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, input_.get(), output_.get(), convolution_.get(),
                                                         weights_.get(), most, count, results);
  }

  template <class Offer>
  void choose(cuda& device, std::size_t limit, const Offer& offer) {
    switch (call_.which) {
      case pass::forward:
        return choose_of<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT>(device, limit, offer);
      case pass::backward_data:
        return choose_of<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT>(device, limit,
                                                                                                   offer);
      case pass::backward_weights:
        return choose_of<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT>(device, limit,
                                                                                                       offer);
    }
  }

  /// Chooses the first permitted result; cuDNN sorts them by speed.
  template <class Result, int Algorithms, class Offer>
  void choose_of(cuda& device, std::size_t limit, const Offer& offer) {
    constexpr int most = 2 * Algorithms;  // with and without tensor cores
    std::array<Result, static_cast<std::size_t>(most)> results{};
    int count = 0;
    device.activate();
    check_cudnn(offer(device.context<cudnn>().handle(), most, &count, results.data()), name_of(call_.which));
    for (int i = 0; i < count; ++i) {
      const Result& one = results[static_cast<std::size_t>(i)];
      if (one.status == CUDNN_STATUS_SUCCESS && one.memory <= limit &&
          (one.determinism == CUDNN_DETERMINISTIC || !device.options().deterministic) &&
          (call_.geometry.algorithm == convolution_algorithm::automatic || is_direct(one.algo))) {
        algorithm_ = static_cast<int>(one.algo);
        workspace_ = one.memory;
        if (!keeps_float_) {
          set_math(one.mathType);
        }
        return;
      }
    }
    gradus::raise<device_error>(
        name_of(call_.which), {"an algorithm of cuDNN with at most ", limit, " bytes of workspace"},
        {"none among ", count, " for ", to_string(call_.geometry.input(call_.batch)), " and weights ",
         to_string(call_.geometry.weights())},
        "raise cuda_options::convolution_workspace, or allow algorithms that are not deterministic");
  }

  convolution_call call_;
  bool padded_;
  bool keeps_float_;  // no TF32
  cudnn_tensor input_;
  cudnn_tensor output_;
  cudnn_tensor bias_;
  cudnn_filter weights_;
  cudnn_convolution convolution_;
  cudnn_activation identity_;
  cudnn_activation relu_;
  int algorithm_ = 0;
  std::size_t workspace_ = 0;
  bool not_fused_ = false;  // cuDNN has refused the fused call
};

/// The convolution plans of a device, one for each shape.
class convolution_plans {
 public:
  explicit convolution_plans(const cuda&) {}

  /// The plan for a network that is being compiled; measured if the device's options say so.
  convolution_plan& prepare(cuda& device, const convolution_call& call) {
    std::unique_ptr<convolution_plan>& entry = plans_[call.key()];
    if (entry == nullptr) {
      auto plan = std::make_unique<convolution_plan>(device, call);
      const std::size_t limit = device.options().convolution_workspace;
      device.options().benchmark ? plan->measure(device, limit) : plan->ask(device, limit);
      entry = std::move(plan);
    }
    return *entry;
  }

  /// The plan of a shape with at most `room` bytes for padded images and the algorithm. For a shape that was not
  /// prepared, such as a smaller batch, cuDNN's heuristics choose.
  convolution_plan& get(cuda& device, const convolution_call& call, std::size_t room) {
    std::unique_ptr<convolution_plan>& entry = plans_[call.key()];
    if (entry == nullptr) {
      auto plan = std::make_unique<convolution_plan>(device, call);
      plan->ask(device, room - std::min(room, plan->padded_bytes()));
      entry = std::move(plan);
    } else if (entry->padded_bytes() + entry->workspace_bytes() > room) {
      entry->ask(device, room - std::min(room, entry->padded_bytes()));
    }
    return *entry;
  }

 private:
  std::map<convolution_call::key_type, std::unique_ptr<convolution_plan>> plans_;
};

}  // namespace gradus::kernels::detail
