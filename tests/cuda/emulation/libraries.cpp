// SPDX-License-Identifier: BSL-1.0
//
// The functions of cuBLAS and cuDNN that gradus calls, by their definitions: terms in order, in double precision.
#include <cublas_v2.h>
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "emulation.hpp"

struct cublasContext {
  cudaStream_t stream;
};
struct cudnnContext {
  cudaStream_t stream;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  std::array<int, 4> extents;
  std::array<int, 4> strides;
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  std::array<int, 4> extents;

  [[nodiscard]] cudnnTensorStruct tensor() const {
    const auto [k, c, h, w] = extents;
    return {type, extents,
            format == CUDNN_TENSOR_NCHW ? std::array{c * h * w, h * w, w, 1} : std::array{c * h * w, 1, w * c, c}};
  }
};
struct cudnnConvolutionStruct {
  int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
  cudnnDataType_t compute;
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode;
};

namespace {

double get(const void* from, cudnnDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return static_cast<const double*>(from)[i];
    case CUDNN_DATA_FLOAT:
      return static_cast<double>(static_cast<const float*>(from)[i]);
    case CUDNN_DATA_BFLOAT16:
      return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]));
    default:
      return static_cast<double>(__half2float(static_cast<const __half*>(from)[i]));
  }
}
void set(void* to, cudnnDataType_t type, std::int64_t i, double value) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      static_cast<double*>(to)[i] = value;
      break;
    case CUDNN_DATA_FLOAT:
      static_cast<float*>(to)[i] = static_cast<float>(value);
      break;
    case CUDNN_DATA_BFLOAT16:
      static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(static_cast<float>(value));
      break;
    default:
      static_cast<__half*>(to)[i] = __float2half_rn(static_cast<float>(value));
  }
}
cudnnDataType_t type_of(cudaDataType_t type) {
  return type == CUDA_R_64F    ? CUDNN_DATA_DOUBLE
         : type == CUDA_R_32F  ? CUDNN_DATA_FLOAT
         : type == CUDA_R_16BF ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_HALF;
}
/// Factors are float, or double where it is computed in double precision.
double factor(const void* at, bool wide) {
  return get(at, wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT, 0);
}

void gemm(cudaStream_t stream, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, double alpha,
          const void* a, cudnnDataType_t a_type, int lda, const void* b, cudnnDataType_t b_type, int ldb, double beta,
          void* c, cudnnDataType_t c_type, int ldc) {
  emulation::enqueue(stream, [=] {
    // op(A) by rows and op(B) by columns
    std::vector<double> rows(static_cast<std::size_t>(m) * static_cast<std::size_t>(k));
    std::vector<double> columns(static_cast<std::size_t>(n) * static_cast<std::size_t>(k));
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t i = 0; i < m; ++i) {
        rows[static_cast<std::size_t>(i * k + l)] = get(a, a_type, op_a == CUBLAS_OP_N ? i + l * lda : l + i * lda);
      }
      for (std::int64_t j = 0; j < n; ++j) {
        columns[static_cast<std::size_t>(j * k + l)] = get(b, b_type, op_b == CUBLAS_OP_N ? l + j * ldb : j + l * ldb);
      }
    }
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          sum += rows[static_cast<std::size_t>(i * k + l)] * columns[static_cast<std::size_t>(j * k + l)];
        }
        set(c, c_type, i + j * ldc, alpha * sum + (beta == 0 ? 0 : beta * get(c, c_type, i + j * ldc)));
      }
    }
  });
}

std::int64_t offset(const cudnnTensorStruct& tensor, int n, int c, int h, int w) {
  const std::array<std::int64_t, 4> s{tensor.strides[0], tensor.strides[1], tensor.strides[2], tensor.strides[3]};
  return n * s[0] + c * s[1] + h * s[2] + w * s[3];
}

template <class Body>
void for_each_coordinate(const cudnnTensorStruct& tensor, const Body& body) {
  for (int n = 0; n < tensor.extents[0]; ++n) {
    for (int c = 0; c < tensor.extents[1]; ++c) {
      for (int h = 0; h < tensor.extents[2]; ++h) {
        for (int w = 0; w < tensor.extents[3]; ++w) {
          body(n, c, h, w);
        }
      }
    }
  }
}

/// The shapes of a convolution.
struct convolution {
  cudnnTensorStruct x, w, y;
  cudnnConvolutionStruct how;

  [[nodiscard]] bool fits() const {
    const auto outputs = [](int in, int pad, int kernel, int stride, int dilation) {
      return (in + 2 * pad - ((kernel - 1) * dilation + 1)) / stride + 1;
    };
    return x.type == w.type && x.type == y.type && x.extents[0] == y.extents[0] && w.extents[0] == y.extents[1] &&
           w.extents[1] * how.groups == x.extents[1] && w.extents[0] % how.groups == 0 &&
           outputs(x.extents[2], how.pad_h, w.extents[2], how.stride_h, how.dilation_h) == y.extents[2] &&
           outputs(x.extents[3], how.pad_w, w.extents[3], how.stride_w, how.dilation_w) == y.extents[3] &&
           how.compute == (x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  }
  [[nodiscard]] bool wide() const { return how.compute == CUDNN_DATA_DOUBLE; }

  /// Calls visit with the offsets in x, w and y of every product of the sums.
  template <class Visit>
  void visit_products(const Visit& visit) const {
    const int per_group = w.extents[0] / how.groups;
    const int channels = w.extents[1];
    const std::int64_t step_x = x.strides[1];
    const std::int64_t step_w = w.strides[1];
    for_each_coordinate(y, [&](int n, int k, int p, int q) {
      const auto at_y = static_cast<std::size_t>(offset(y, n, k, p, q));
      for (int r = 0; r < w.extents[2]; ++r) {
        const int row = p * how.stride_h - how.pad_h + r * how.dilation_h;
        for (int s = 0; s < w.extents[3]; ++s) {
          const int column = q * how.stride_w - how.pad_w + s * how.dilation_w;
          if (row < 0 || row >= x.extents[2] || column < 0 || column >= x.extents[3]) {
            continue;
          }
          std::int64_t at_x = offset(x, n, k / per_group * channels, row, column);
          std::int64_t at_w = offset(w, k, 0, r, s);
          for (int c = 0; c < channels; ++c, at_x += step_x, at_w += step_w) {
            visit(static_cast<std::size_t>(at_x), static_cast<std::size_t>(at_w), at_y);
          }
        }
      }
    });
  }
};

std::int64_t span_of(const cudnnTensorStruct& tensor) {
  return offset(tensor, tensor.extents[0] - 1, tensor.extents[1] - 1, tensor.extents[2] - 1, tensor.extents[3] - 1) + 1;
}

/// to = alpha * sums + beta * to
void store(const cudnnTensorStruct& tensor, const std::vector<double>& sums, double alpha, double beta, void* to) {
  for_each_coordinate(tensor, [&](int n, int c, int h, int w) {
    const std::int64_t i = offset(tensor, n, c, h, w);
    set(to, tensor.type, i,
        alpha * sums[static_cast<std::size_t>(i)] + (beta == 0 ? 0 : beta * get(to, tensor.type, i)));
  });
}

std::vector<double> zeros(const cudnnTensorStruct& tensor) {
  return std::vector<double>(static_cast<std::size_t>(span_of(tensor)));
}

/// All elements, in their places.
std::vector<double> read(const cudnnTensorStruct& tensor, const void* from) {
  auto values = zeros(tensor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = get(from, tensor.type, static_cast<std::int64_t>(i));
  }
  return values;
}

std::vector<double> forward_sums(const convolution& shape, const void* x, const void* w) {
  auto sums = zeros(shape.y);
  const auto images = read(shape.x, x);
  const auto weights = read(shape.w, w);
  shape.visit_products(
      [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) { sums[at_y] += images[at_x] * weights[at_w]; });
  return sums;
}

/// What an algorithm may do with its workspace.
void spoil(void* workspace, std::size_t bytes) {
  if (bytes != 0) {
    std::memset(workspace, 0xFF, std::min(bytes, std::size_t{1} << 20U));
  }
}

/// Two algorithms: a faster one that needs memory and is not deterministic, and one of `other` bytes.
template <class Result, class Algorithm>
cudnnStatus_t offer(Algorithm first, Algorithm second, int most, int* count, Result* results) {
  *count = std::min(most, 2);
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].algo = i == 0 ? first : second;
    results[i].status = CUDNN_STATUS_SUCCESS;
    results[i].time = static_cast<float>(i + 1);
    results[i].memory = i == 0 ? 4096 : 1000;
    results[i].determinism = i == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    results[i].mathType = CUDNN_DEFAULT_MATH;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t bad(bool wrong) {
  return wrong ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

// cuBLAS

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusName(cublasStatus_t) {
  return "CUBLAS_STATUS";
}
const char* cublasGetStatusString(cublasStatus_t) {
  return "an error of the emulation";
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                              int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                              const float* beta, float* c, int ldc) {
  gemm(handle->stream, op_a, op_b, m, n, k, static_cast<double>(*alpha), a, CUDNN_DATA_FLOAT, lda, b, CUDNN_DATA_FLOAT,
       ldb, static_cast<double>(*beta), c, CUDNN_DATA_FLOAT, ldc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                              int k, const double* alpha, const double* a, int lda, const double* b, int ldb,
                              const double* beta, double* c, int ldc) {
  gemm(handle->stream, op_a, op_b, m, n, k, *alpha, a, CUDNN_DATA_DOUBLE, lda, b, CUDNN_DATA_DOUBLE, ldb, *beta, c,
       CUDNN_DATA_DOUBLE, ldc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  const bool offered = wide ? a_type == CUDA_R_64F && c_type == CUDA_R_64F : c_type == a_type || c_type == CUDA_R_32F;
  if (a_type != b_type || !offered || lda < std::max(1, op_a == CUBLAS_OP_N ? m : k) ||
      ldb < std::max(1, op_b == CUBLAS_OP_N ? k : n) || ldc < std::max(1, m)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  gemm(handle->stream, op_a, op_b, m, n, k, factor(alpha, wide), a, type_of(a_type), lda, b, type_of(b_type), ldb,
       factor(beta, wide), c, type_of(c_type), ldc);
  return CUBLAS_STATUS_SUCCESS;
}

// cuDNN

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "an error of the emulation";
}
void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  std::memset(text, 0, std::min<std::size_t>(bytes, 1));
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) {
  *made = new cudnnTensorStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t one) {
  delete one;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t one, cudnnDataType_t type, int n, int c, int h,
                                           int w, int n_stride, int c_stride, int h_stride, int w_stride) {
  *one = {type, {n, c, h, w}, {n_stride, c_stride, h_stride, w_stride}};
  return bad(n <= 0 || c <= 0 || h <= 0 || w <= 0 || n_stride <= 0 || c_stride <= 0 || h_stride <= 0 || w_stride <= 0);
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* made) {
  *made = new cudnnFilterStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t one) {
  delete one;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t one, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
  *one = {type, format, {k, c, h, w}};
  return bad(k <= 0 || c <= 0 || h <= 0 || w <= 0);
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* made) {
  *made = new cudnnConvolutionStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t one) {
  delete one;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t one, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  *one = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, compute};
  return bad(pad_h < 0 || pad_w < 0 || stride_h <= 0 || stride_w <= 0 || dilation_h <= 0 || dilation_w <= 0 ||
             mode != CUDNN_CROSS_CORRELATION);
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t one, int groups) {
  one->groups = groups;
  return bad(groups <= 0);
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t one, cudnnMathType_t math) {
  one->math = math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* made) {
  *made = new cudnnActivationStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t one) {
  delete one;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t one, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
  one->mode = mode;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t, const void*,
                                                     const cudnnFilterDescriptor_t, const void*,
                                                     const cudnnConvolutionDescriptor_t, const cudnnTensorDescriptor_t,
                                                     void*, const int most, int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* results, void* workspace,
                                                     std::size_t bytes) {
  if (const cudaError_t status = cudaStreamSynchronize(handle->stream); status != cudaSuccess) {
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  spoil(workspace, bytes);
  return offer(CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, most, count, results);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t handle, const cudnnFilterDescriptor_t,
                                                          const void*, const cudnnTensorDescriptor_t, const void*,
                                                          const cudnnConvolutionDescriptor_t,
                                                          const cudnnTensorDescriptor_t, void*, const int most,
                                                          int* count, cudnnConvolutionBwdDataAlgoPerf_t* results,
                                                          void* workspace, std::size_t bytes) {
  if (const cudaError_t status = cudaStreamSynchronize(handle->stream); status != cudaSuccess) {
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  spoil(workspace, bytes);
  return offer(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, most, count, results);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t,
                                                            const void*, const cudnnTensorDescriptor_t, const void*,
                                                            const cudnnConvolutionDescriptor_t,
                                                            const cudnnFilterDescriptor_t, void*, const int most,
                                                            int* count, cudnnConvolutionBwdFilterAlgoPerf_t* results,
                                                            void* workspace, std::size_t bytes) {
  if (const cudaError_t status = cudaStreamSynchronize(handle->stream); status != cudaSuccess) {
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  spoil(workspace, bytes);
  return offer(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, most, count, results);
}
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                     const cudnnFilterDescriptor_t, const cudnnConvolutionDescriptor_t,
                                                     const cudnnTensorDescriptor_t, const int most, int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return offer(CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, most, count, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t,
                                                          const cudnnTensorDescriptor_t,
                                                          const cudnnConvolutionDescriptor_t,
                                                          const cudnnTensorDescriptor_t, const int most, int* count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return offer(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, most, count, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                            const cudnnTensorDescriptor_t,
                                                            const cudnnConvolutionDescriptor_t,
                                                            const cudnnFilterDescriptor_t, const int most, int* count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return offer(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, most, count, results);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_shape,
                                      const void* x, const cudnnFilterDescriptor_t w_shape, const void* w,
                                      const cudnnConvolutionDescriptor_t how, cudnnConvolutionFwdAlgo_t,
                                      void* workspace, std::size_t bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_shape, void* y) {
  const convolution shape{*x_shape, w_shape->tensor(), *y_shape, *how};
  if (!shape.fits()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  emulation::enqueue(handle->stream, [=, a = factor(alpha, shape.wide()), b = factor(beta, shape.wide())] {
    spoil(workspace, bytes);
    store(shape.y, forward_sums(shape, x, w), a, b, y);
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_shape, const void* x,
    const cudnnFilterDescriptor_t w_shape, const void* w, const cudnnConvolutionDescriptor_t how,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t bytes, const void* beta,
    const cudnnTensorDescriptor_t z_shape, const void* z, const cudnnTensorDescriptor_t bias_shape, const void* bias,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y_shape, void* y) {
  const convolution shape{*x_shape, w_shape->tensor(), *y_shape, *how};
  if (!shape.fits() || z_shape->extents != y_shape->extents || bias_shape->extents[1] != y_shape->extents[1]) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (activation->mode == CUDNN_ACTIVATION_IDENTITY && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  emulation::enqueue(handle->stream, [=, a = factor(alpha, shape.wide()), b = factor(beta, shape.wide()),
                                      relu = activation->mode == CUDNN_ACTIVATION_RELU] {
    spoil(workspace, bytes);
    auto sums = forward_sums(shape, x, w);
    for_each_coordinate(shape.y, [&](int n, int c, int h, int column) {
      const std::int64_t i = offset(shape.y, n, c, h, column);
      double& sum = sums[static_cast<std::size_t>(i)];
      sum = a * sum + (b == 0 ? 0 : b * get(z, shape.y.type, i)) + get(bias, shape.y.type, c);
      sum = relu && sum < 0 ? 0 : sum;
    });
    store(shape.y, sums, 1, 0, y);
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_shape, const void* w,
                                           const cudnnTensorDescriptor_t dy_shape, const void* dy,
                                           const cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdDataAlgo_t,
                                           void* workspace, std::size_t bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_shape, void* dx) {
  const convolution shape{*dx_shape, w_shape->tensor(), *dy_shape, *how};
  if (!shape.fits()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  emulation::enqueue(handle->stream, [=, a = factor(alpha, shape.wide()), b = factor(beta, shape.wide())] {
    spoil(workspace, bytes);
    auto sums = zeros(shape.x);
    const auto slopes = read(shape.y, dy);
    const auto weights = read(shape.w, w);
    shape.visit_products(
        [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) { sums[at_x] += slopes[at_y] * weights[at_w]; });
    store(shape.x, sums, a, b, dx);
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_shape, const void* x,
                                             const cudnnTensorDescriptor_t dy_shape, const void* dy,
                                             const cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdFilterAlgo_t,
                                             void* workspace, std::size_t bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_shape, void* dw) {
  const convolution shape{*x_shape, dw_shape->tensor(), *dy_shape, *how};
  if (!shape.fits()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  emulation::enqueue(handle->stream, [=, a = factor(alpha, shape.wide()), b = factor(beta, shape.wide())] {
    spoil(workspace, bytes);
    auto sums = zeros(shape.w);
    const auto images = read(shape.x, x);
    const auto slopes = read(shape.y, dy);
    shape.visit_products(
        [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) { sums[at_w] += images[at_x] * slopes[at_y]; });
    store(shape.w, sums, a, b, dw);
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
