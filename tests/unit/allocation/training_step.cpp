// SPDX-License-Identifier: BSL-1.0
//
// After compile a training step allocates nothing: this program counts every call of the allocation functions.
#include <boost/test/unit_test.hpp>

#include <atomic>  // std::atomic
#include <cerrno>
#include <cstddef>
#include <tuple>
#include <utility>

#include "../../support/branching_networks.hpp"
#include "../../support/network_checks.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/conformance/sanitizers.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/synchronized_statistics.hpp"
#include "gradus/train/optimizer_step.hpp"

#include "counter.hpp"

std::atomic<long> gradus_test::allocations{0};
using gradus_test::allocations;

#if !GRADUS_ADDRESS_SANITIZER && !GRADUS_THREAD_SANITIZER && defined(__GLIBC__)
#define GRADUS_TEST_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* pointer, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(pointer, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** pointer, std::size_t alignment, std::size_t bytes) {
  ++allocations;
  *pointer = __libc_memalign(alignment, bytes);
  return *pointer == nullptr ? ENOMEM : 0;
}
}
#endif

namespace nn = gradus::nn;
template <class Element, class Layout>
using batches = gradus_test::random_batch<Element, Layout>;
using batch_types = std::tuple<batches<float, gradus::nchw>, batches<float, gradus::nhwc>,
                               batches<gradus::bfloat16, gradus::nchw>, batches<gradus::bfloat16, gradus::nhwc>,
                               batches<gradus::float16, gradus::nchw>, batches<gradus::float16, gradus::nhwc>>;

BOOST_AUTO_TEST_SUITE(allocation)

#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
BOOST_AUTO_TEST_CASE(the_counter_counts) {
  const long before = allocations.load();
  std::vector<int> something(100);
  BOOST_TEST(something.size() == 100U);
  BOOST_TEST(allocations.load() > before);
}
#endif

BOOST_AUTO_TEST_CASE_TEMPLATE(a_training_step_allocates_nothing, Batch, batch_types) {
  gradus::cpu device{{.intra_op_threads = 2}};
  gradus::comm::self alone;
  gradus::parallel::synchronized_statistics one_rank{alone};
  using images = decltype(Batch::images);
  nn::network<typename images::value_type, typename images::layout_type> net{device, {1, 28, 28}};
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 32, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
  x = net.add("relu1", nn::relu{}, x);
  x = net.add("swish", nn::elementwise([](auto v) { return v * sigmoid(v); }), x);
  x = net.add("prelu", nn::prelu{}, x);
  x = net.add("norm1", nn::group_norm{.groups = 4}, x);
  x = net.add("norm2", nn::layer_norm{.axes = nn::norm_axes::channels}, x);
  x = net.add("norm3", nn::layer_norm{}, x);
  x = net.add("norm4", nn::synchronized_batch_norm{.group = &one_rank}, x);
  x = net.add("pool1", nn::max_pool2d{}, x);
  const nn::value branch = net.add("branch", nn::conv2d{.out_channels = 3}, x);
  x = net.add("concat", nn::concat{}, {x, branch});
  x = net.add("average", nn::average_pool2d{}, x);
  x = net.add("flatten", nn::flatten{}, x);
  x = net.add("dense1", nn::dense{.out_features = 100}, x);
  x = net.add("relu2", nn::relu{}, x);
  x = net.add("dropout", nn::dropout{}, x);
  x = net.add("scores", nn::dense{.out_features = 10}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = 16, .seed = 1});
  const Batch batch{device, {16, 1, 28, 28}, 10};
  (void)net.train_step(batch.images, batch.labels);
  const long before = allocations.load();
  for (std::uint64_t step = 1; step < 4; ++step) {
    (void)net.train_step(batch.images, batch.labels, {.step = step});
    (void)net.train_step(batch.images.view().slice(0, 5), std::span{batch.labels}.first(5),
                         {.step = step});  // the last batch
    (void)net.evaluate(batch.images, batch.labels);
  }
  BOOST_TEST(allocations.load() == before);
}

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_on_lanes_or_with_recomputation_allocates_nothing, Layout, layouts) {
  for (const auto& [recompute, lanes] : {std::pair{true, 1}, std::pair{false, 2}, std::pair{true, 3}}) {
    gradus::cpu device{{.intra_op_threads = 2, .inter_op_threads = lanes}};
    nn::network<float, Layout> net{device, {3, 13, 11}};
    gradus_test::build_branching(net);
    net.compile({.max_batch_size = 6, .seed = 1, .recompute = recompute, .parallel_branches = true});
    const gradus_test::random_batch<float, Layout> batch{device, {6, 3, 13, 11}, 5};
    (void)net.train_step(batch.images, batch.labels);
    const long before = allocations.load();
    for (int step = 0; step < 3; ++step) {
      (void)net.train_step(batch.images, batch.labels);
      (void)net.evaluate(batch.images, batch.labels);
    }
    BOOST_TEST(allocations.load() == before);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_with_frozen_layers_and_groups_allocates_nothing, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2, .inter_op_threads = 2}};
  nn::network<float, Layout> net{device, {3, 13, 11}};
  nn::value x = net.add("conv1", nn::conv2d{.out_channels = 6, .kernel = {3, 3}}, net.input());
  x = net.add("norm1", nn::batch_norm{}, x);
  const nn::value left = net.add("left", nn::conv2d{.out_channels = 4}, x);
  const nn::value right = net.add("right", nn::conv2d{.out_channels = 4}, x);
  x = net.add("sum", nn::add{}, {left, right});
  x = net.add("norm2", nn::batch_norm{}, x);
  x = net.add("prelu", nn::prelu{}, x);
  x = net.add("dropout", nn::dropout{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, x));
  net.freeze("left");
  net.freeze("norm?", {.evaluates = true});
  net.freeze("prelu");
  net.group("scores.*", {.learning_rate_factor = 10});
  net.group("*.bias", {.weight_decay = false});
  net.compile({.max_batch_size = 6, .seed = 1, .parallel_branches = true});
  const gradus_test::random_batch<float, Layout> batch{device, {6, 3, 13, 11}, 5};
  const auto parameters = gradus::train::trained_parameters_of(net);
  gradus::optim::parameter_update_of<gradus::optim::adam_w, float> rule{
      device, {}, static_cast<gradus::index_t>(parameters.values.size())};
  gradus::comm::self world;
  gradus::comm::link_of<gradus::comm::self> all{world};
  gradus::parallel::all_reduce::state<float> strategy{{}, world, parameters.flat()};
  gradus::train::optimizer_step_of<float> end{parameters, rule, strategy, all};
  end.start();
  const auto step = [&](std::uint64_t number) {
    (void)net.train_step(batch.images, batch.labels, {.step = number}, &end);
    end.update({0.01, number});
    end.complete_update();
  };
  step(0);
  const long before = allocations.load();
  for (std::uint64_t number = 1; number < 4; ++number) {
    step(number);
  }
  BOOST_TEST(allocations.load() == before);
}

BOOST_AUTO_TEST_SUITE_END()
