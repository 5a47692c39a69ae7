// SPDX-License-Identifier: BSL-1.0
//
// What a GPU computes, computed on the host by Thrust's OpenMP backend; and a machine without a GPU.
#include <boost/test/unit_test.hpp>
#include <string>

#include "expression_checks.hpp"
#include "gradus/device/cuda.cuh"
#include "thrust_host.hpp"

struct devices {
  gradus::cpu host{{.intra_op_threads = 1}};
  thrust_host device;
  ~devices() { BOOST_TEST(device.blocks() == 0); }
};

BOOST_AUTO_TEST_SUITE(thrust_on_the_host)

BOOST_FIXTURE_TEST_CASE(elementwise, devices) {
  expression_checks::elementwise<float, gradus::nhwc>(host, device);
}

BOOST_FIXTURE_TEST_CASE(reductions, devices) {
  expression_checks::reductions<double, gradus::nchw>(host, device);
}

BOOST_FIXTURE_TEST_CASE(long_reductions, devices) {
  expression_checks::long_reductions(host, device);
}

BOOST_FIXTURE_TEST_CASE(ties, devices) {
  expression_checks::ties(host, device);
}

BOOST_FIXTURE_TEST_CASE(assignments, devices) {
  expression_checks::assignments(host, device);
}

BOOST_FIXTURE_TEST_CASE(gradients, devices) {
  expression_checks::gradients(host, device);
}

BOOST_FIXTURE_TEST_CASE(rearranging, devices) {
  expression_checks::rearranging<gradus::nhwc>(host, device);
  expression_checks::rearranging<gradus::nchw>(host, device);
}

BOOST_FIXTURE_TEST_CASE(shapes_that_differ, devices) {
  const gradus::tensor<float, 1, gradus::row_major, thrust_host> x{device, {3}};
  gradus::tensor<float, 1> y{host, {4}};
  BOOST_CHECK_THROW(gradus::copy(y, x), gradus::shape_error);
  BOOST_CHECK_THROW(static_cast<void>(gradus::max(x.view().slice(0, 0))), gradus::shape_error);
}

BOOST_AUTO_TEST_SUITE_END()

// With a GPU the same calls name a card that no machine has.
BOOST_AUTO_TEST_CASE(a_machine_without_a_gpu) {
  const int count = gradus::cuda_device_count();
  const auto text = [&]() -> std::string {
    try {
      const gradus::cuda device{{.device = count}};
    } catch (const gradus::device_error& failure) {
      return failure.what();
    }
    return "nothing was thrown";
  }();
  BOOST_TEST_CONTEXT(text) {
    if (count == 0) {
      BOOST_TEST(text.starts_with("cuda: no CUDA device was found: expected an NVIDIA GPU and its driver, got "));
      BOOST_TEST(text.find("from cudaGetDeviceCount. Hint: check that nvidia-smi") != std::string::npos);
      BOOST_CHECK_THROW(gradus::pinned_memory{64}, gradus::device_error);
    } else {
      BOOST_TEST(text.starts_with("cuda: expected a device from 0 to "));
    }
    BOOST_TEST(text.find("[host.cpp:") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_failed_call_says_what_and_why) {
  try {
    gradus::check_cuda(cudaErrorMemoryAllocation, "cudaMallocFromPoolAsync");
    BOOST_TEST(false, "nothing was thrown");
  } catch (const gradus::device_error& failure) {
    BOOST_TEST(failure.message() ==
               "cudaMallocFromPoolAsync: expected memory on the device, got cudaErrorMemoryAllocation (out of memory). "
               "Hint: use a smaller batch or a smaller network.");
    BOOST_TEST(std::string{failure.what()}.find("[host.cpp:") != std::string::npos);
  }
}
