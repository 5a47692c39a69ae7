// SPDX-License-Identifier: BSL-1.0
//
// Layers ask a device for the overloads that the concepts of kernels name, and for no more.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel_archetype.hpp"

#include "gradus/comm/self.hpp"
#include "gradus/conformance/layers.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/kernels/device_kernels.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/parallel/synchronized_statistics.hpp"

namespace {

namespace kernels = gradus::kernels;

template <class Device, class Element>
constexpr bool both_layouts =
    kernels::explain_kernels<Device, Element, gradus::nchw>() &&
    kernels::explain_kernels<Device, Element, gradus::nhwc>() &&
    kernels::explain_group_norm<Device, Element, gradus::nchw>() &&
    kernels::explain_group_norm<Device, Element, gradus::nhwc>() &&
    kernels::explain_synchronized_batch_norm<Device, Element, gradus::nchw>() &&
    kernels::explain_synchronized_batch_norm<Device, Element, gradus::nhwc>() &&
    kernels::has_kernels<Device, Element, gradus::nchw>&& kernels::has_kernels<Device, Element, gradus::nhwc>;

template <class Device>
constexpr bool all_elements = both_layouts<Device, double>&& both_layouts<Device, float>&&
    both_layouts<Device, gradus::bfloat16>&& both_layouts<Device, gradus::float16>;

static_assert(all_elements<gradus::cpu>);
static_assert(all_elements<archetypes::kernel_device>);

// What is not required.
static_assert(!kernels::has_deferred_loss_sums<archetypes::kernel_device>);
static_assert(!kernels::has_loss_scale_use<archetypes::kernel_device>);
static_assert(!kernels::has_loss_scale_application<archetypes::kernel_device, float>);

// A device without kernels has none of them.
static_assert(!kernels::has_elementwise<archetypes::device, float>);
static_assert(!kernels::has_conv2d<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_matmul<archetypes::device, float>);
static_assert(!kernels::has_max_pool2d<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_average_pool2d<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_batch_norm<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_synchronized_batch_norm<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_group_norm<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_local_response_norm<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_dropout<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_copy_channels<archetypes::device, float, gradus::nchw>);
static_assert(!kernels::has_softmax_cross_entropy<archetypes::device, float>);

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_layers)

BOOST_AUTO_TEST_CASE(layers_run_on_the_required_overloads_only) {
  archetypes::kernel_device device;
  for (const gradus::conformance::result& each : gradus::conformance::check_layers<float, gradus::nhwc>(device)) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
  using gradus::conformance::require_layer_contract;
  const std::vector<gradus::nn::value_shape> image{{4, 5, 7}};
  BOOST_CHECK_NO_THROW(
      (require_layer_contract<float, gradus::nhwc>(device, gradus::nn::group_norm{.groups = 2}, image)));
  BOOST_CHECK_NO_THROW((require_layer_contract<float, gradus::nhwc>(device, gradus::nn::layer_norm{}, image)));
  gradus::comm::self alone;
  gradus::parallel::synchronized_statistics statistics{alone};
  BOOST_CHECK_NO_THROW((require_layer_contract<float, gradus::nhwc>(
      device, gradus::nn::synchronized_batch_norm{.group = &statistics}, image)));
}

BOOST_AUTO_TEST_CASE(networks_train_on_the_required_overloads_only) {
  namespace nn = gradus::nn;
  const auto losses = [](auto& device) {
    nn::network<float, gradus::nhwc, std::remove_reference_t<decltype(device)>> net{device, {3, 6, 6}};
    nn::value x = net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, net.input());
    x = net.add("relu", nn::relu{}, x);
    x = net.add("scores", nn::dense{.out_features = 2}, x);
    net.loss(nn::softmax_cross_entropy{}, x);
    net.compile({.max_batch_size = 2, .seed = 1});
    gradus::tensor<float, 4, gradus::nhwc, std::remove_reference_t<decltype(device)>> images{device, {2, 3, 6, 6}};
    for (gradus::index_t i = 0; i < images.size(); ++i) {
      images.data()[i] = static_cast<float>(i % 7) / 7;
    }
    const std::int32_t labels[]{0, 1};
    const double loss = net.train_step(images, labels).loss;
    return std::pair{loss, std::vector<float>(net.gradients().begin(), net.gradients().end())};
  };
  gradus::cpu host{{.intra_op_threads = 1}};
  archetypes::kernel_device device;
  BOOST_TEST((losses(host) == losses(device)));
}

BOOST_AUTO_TEST_SUITE_END()
