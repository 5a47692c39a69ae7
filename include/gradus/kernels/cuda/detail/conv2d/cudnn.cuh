// SPDX-License-Identifier: BSL-1.0
//
// cuDNN: the handle of a device, descriptors as objects, errors, and the shape of images in cuDNN's terms.
#pragma once

#include <cudnn.h>  // cudnnHandle_t

#include <array>            // std::array
#include <cstddef>          // std::size_t
#include <limits>           // std::numeric_limits
#include <memory>           // std::unique_ptr
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view
#include <type_traits>      // std::is_same_v, std::remove_pointer_t

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"

namespace gradus::kernels::detail {

[[noreturn]] inline void throw_cudnn_error(cudnnStatus_t status, std::string_view call,
                                           const std::source_location& where) {
  char said[512] = {};
  cudnnGetLastErrorString(said, sizeof(said) - 1);
  gradus::raise<device_error>(call, cudnnGetErrorString(CUDNN_STATUS_SUCCESS),
                              {cudnnGetErrorString(status), said[0] == '\0' ? "" : ", ", said},
                              status == CUDNN_STATUS_NOT_INITIALIZED
                                  ? "cuDNN found no GPU and driver that it supports: nvidia-smi lists them"
                                  : "the failure may belong to earlier work on the device; CUDNN_LOGLEVEL_DBG=3 in the "
                                    "environment makes cuDNN print more",
                              where);
}

/// @throws device_error with the call, the reason and the source location unless a call of cuDNN succeeded
inline void check_cudnn(cudnnStatus_t status, std::string_view call,
                        const std::source_location& where = std::source_location::current()) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]] {
    throw_cudnn_error(status, call, where);
  }
}

template <class Element>
inline constexpr cudnnDataType_t cudnn_type = std::is_same_v<Element, double>     ? CUDNN_DATA_DOUBLE
                                              : std::is_same_v<Element, float>    ? CUDNN_DATA_FLOAT
                                              : std::is_same_v<Element, bfloat16> ? CUDNN_DATA_BFLOAT16
                                                                                  : CUDNN_DATA_HALF;

/// Extents and strides in cuDNN's order: n, c, h, w, in elements.
struct cudnn_shape {
  std::array<int, 4> extents{};
  std::array<int, 4> strides{};

  friend bool operator==(const cudnn_shape&, const cudnn_shape&) = default;
};

/// @throws shape_error when an extent or a stride does not fit an int
template <class Layout>
[[nodiscard]] cudnn_shape cudnn_shape_of(const image_extents& shape) {
  const extents<4> dense{shape};
  const auto strides = dense_strides<Layout, 4>(dense);
  cudnn_shape result;
  for (int axis = 0; axis < 4; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (dense[axis] > std::numeric_limits<int>::max() || strides[i] > std::numeric_limits<int>::max()) {
      gradus::raise<shape_error>("cudnn", "extents and strides of at most 2147483647 elements", to_string(shape),
                                 "train in micro-batches: set compile_options::micro_batch_size");
    }
    result.extents[i] = static_cast<int>(dense[axis]);
    result.strides[i] = static_cast<int>(strides[i]);
  }
  return result;
}

/// Owns a descriptor of cuDNN.
template <class Handle, cudnnStatus_t (*Create)(Handle*), cudnnStatus_t (*Destroy)(Handle)>
class cudnn_object {
 public:
  cudnn_object() {
    Handle handle = nullptr;
    check_cudnn(Create(&handle), "a descriptor of cuDNN");
    handle_.reset(handle);
  }
  [[nodiscard]] Handle get() const noexcept { return handle_.get(); }

 private:
  struct destroy {
    void operator()(Handle handle) const noexcept { static_cast<void>(Destroy(handle)); }
  };
  std::unique_ptr<std::remove_pointer_t<Handle>, destroy> handle_;
};

using cudnn_tensor = cudnn_object<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using cudnn_filter = cudnn_object<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using cudnn_convolution =
    cudnn_object<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor>;
using cudnn_activation =
    cudnn_object<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor>;

inline void set_tensor(const cudnn_tensor& tensor, cudnnDataType_t type, const cudnn_shape& shape) {
  check_cudnn(cudnnSetTensor4dDescriptorEx(tensor.get(), type, shape.extents[0], shape.extents[1], shape.extents[2],
                                           shape.extents[3], shape.strides[0], shape.strides[1], shape.strides[2],
                                           shape.strides[3]),
              "cudnnSetTensor4dDescriptorEx");
}

/// The memory order of weights.
template <class Layout>
[[nodiscard]] constexpr cudnnTensorFormat_t cudnn_format() noexcept {
  static_assert(std::is_same_v<Layout, nchw> || std::is_same_v<Layout, nhwc>,
                "gradus: convolutions of cuDNN take the layouts nchw and nhwc");
  return std::is_same_v<Layout, nchw> ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
}

/// A cuDNN handle on the stream of a device.
class cudnn {
 public:
  explicit cudnn(const cuda& device) {
    cudnnHandle_t handle = nullptr;
    check_cudnn(cudnnCreate(&handle), "cudnnCreate");
    handle_.reset(handle);
    check_cudnn(cudnnSetStream(handle, device.stream()), "cudnnSetStream");
  }

  [[nodiscard]] cudnnHandle_t handle() const noexcept { return handle_.get(); }

 private:
  struct destroy {
    void operator()(cudnnHandle_t handle) const noexcept { static_cast<void>(cudnnDestroy(handle)); }
  };
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, destroy> handle_;
};

}  // namespace gradus::kernels::detail
