// SPDX-License-Identifier: BSL-1.0
//
// All that keep a reference to an argument refuse a temporary, and a const object if they change it.
// EXPECT_ERROR(tensor): gradus: this argument is a temporary
// EXPECT_ERROR(const_device): gradus: this argument is const
// EXPECT_ERROR(view): gradus: this argument is a temporary
// EXPECT_ERROR(deduced_view): gradus: this argument is a temporary
// EXPECT_ERROR(to): gradus: this argument is a temporary
// EXPECT_ERROR(to_const): gradus: this argument is const
// EXPECT_ERROR(network): gradus: this argument is a temporary
// EXPECT_ERROR(session): gradus: this argument is a temporary
// EXPECT_ERROR(session_of_const): gradus: this argument is const
// EXPECT_ERROR(session_device): gradus: this argument is a temporary
// EXPECT_ERROR(loader_device): gradus: this argument is a temporary
// EXPECT_ERROR(loader_set): gradus: this argument is a temporary
// EXPECT_ERROR(parallel_loader_device): gradus: this argument is a temporary
// EXPECT_ERROR(parallel_loader_set): gradus: this argument is a temporary
// EXPECT_ERROR(encoded): gradus: this argument is a temporary
// EXPECT_ERROR(subset): gradus: this argument is a temporary
// EXPECT_ERROR(split): gradus: this argument is a temporary
// EXPECT_ERROR(weights): gradus: the data set keeps a reference to its weights, but a temporary
// EXPECT_ERROR(numbers): gradus: the writer refers to the numbers, but a temporary
// EXPECT_ERROR(recorder): gradus: this argument is a temporary
// EXPECT_ERROR(traced_set): gradus: this argument is a temporary
// EXPECT_ERROR(traced_set_recorder): gradus: this argument is a temporary
// EXPECT_ERROR(evaluate_every): gradus: this argument is a temporary
// EXPECT_ERROR(evaluate_metrics): gradus: this argument is a temporary
// EXPECT_ERROR(evaluate_metric): gradus: this argument is a temporary
// EXPECT_ERROR(trainer): gradus: this argument is a temporary
// EXPECT_ERROR(trainer_of_const): gradus: this argument is const
// EXPECT_ERROR(trainer_on_ranks): gradus: this argument is a temporary
// EXPECT_ERROR(communicator): gradus: this argument is a temporary
// EXPECT_ERROR(const_communicator): gradus: this argument is const
// EXPECT_ERROR(start): gradus: this argument is a temporary
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/decoded_dataset.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/data/random_split.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/nn/inference_session.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/tensor/copy.hpp"
#include "gradus/train/metrics.hpp"
#include "gradus/train/stepwise.hpp"
#include "gradus/train/traced.hpp"

namespace data = gradus::data;
namespace io = gradus::io;
namespace nn = gradus::nn;
namespace trace = gradus::trace;
namespace train = gradus::train;
using network = nn::network<float>;
using loader = data::loader<float, gradus::nchw>;
using parallel_loader = data::parallel_loader<float, gradus::nchw>;

struct decoder {
  static constexpr std::string_view dataset_name = "images";
};

const gradus::metrics::list all{gradus::metrics::accuracy{}};
const gradus::optim::sgd rule;

void use(gradus::cpu& device, const gradus::cpu& const_device, network& net, const network& const_net,
         gradus::comm::self& world, const gradus::comm::self& const_world, gradus::comm::threads ranks,
         const gradus::tensor<float, 1>& values, const data::image_dataset& images, loader& batches,
         trace::recorder& recorder, train::trainer<network>& trainer) {
#if defined(GRADUS_TEST_GOOD_TWIN)
  const network own{device, {1, 8, 8}};
  const nn::inference_session session{net};
  const nn::inference_session session_on_device{net, device, {}};
  const gradus::tensor<float, 1> x{device, {3}};
  const gradus::tensor_view view{device, values.data(), gradus::extents<1>{3}};
  const auto copied = gradus::to(device, gradus::tensor<float, 1>{device, {3}});
  const loader other_batches{device, images, {.global_batch_size = 1}};
  const parallel_loader parallel{device, images, {.global_batch_size = 1}, {.threads = 2}};
  const data::class_folders files{"flowers"};
  const data::decoded_dataset<decoder> decoded{files};
  const data::subset part{images, {0}};
  const auto parts = data::random_split(images, {0.5, 0.5});
  const auto traced = trace::traced(std::move(ranks), recorder);
  const train::traced_set set{recorder, images};
  const train::evaluate_every each{batches, 2};
  const train::evaluate_metrics measured{batches, all};
  const train::evaluate_metrics measured_one{batches, gradus::metrics::accuracy{}, 2};
  const train::trainer other{net, rule};
  const train::trainer on_ranks{net, rule, world};
  trainer.start(batches, {});
#elif defined(GRADUS_TEST_CASE_TENSOR)
  const gradus::tensor<float, 1> x{gradus::cpu{}, {3}};
#elif defined(GRADUS_TEST_CASE_CONST_DEVICE)
  const gradus::tensor<float, 1> x{const_device, {3}};
#elif defined(GRADUS_TEST_CASE_VIEW)
  const gradus::tensor_view<const float, 1> x{gradus::cpu{}, values.data(), {3}};
#elif defined(GRADUS_TEST_CASE_DEDUCED_VIEW)
  const gradus::tensor_view x{gradus::cpu{}, values.data(), gradus::extents<1>{3}};
#elif defined(GRADUS_TEST_CASE_TO)
  static_cast<void>(gradus::to(gradus::cpu{}, values));
#elif defined(GRADUS_TEST_CASE_TO_CONST)
  static_cast<void>(gradus::to(const_device, values));
#elif defined(GRADUS_TEST_CASE_NETWORK)
  const network other{gradus::cpu{}, {1, 8, 8}};
#elif defined(GRADUS_TEST_CASE_SESSION)
  const nn::inference_session session{network{device, {1, 8, 8}}};
#elif defined(GRADUS_TEST_CASE_SESSION_OF_CONST)
  const nn::inference_session session{const_net};
#elif defined(GRADUS_TEST_CASE_SESSION_DEVICE)
  const nn::inference_session session{net, gradus::cpu{}};
#elif defined(GRADUS_TEST_CASE_LOADER_DEVICE)
  const loader other{gradus::cpu{}, images, {.global_batch_size = 1}};
#elif defined(GRADUS_TEST_CASE_LOADER_SET)
  const loader other{device, data::make_synthetic(), {.global_batch_size = 1}};
#elif defined(GRADUS_TEST_CASE_PARALLEL_LOADER_DEVICE)
  const parallel_loader other{gradus::cpu{}, images, {.global_batch_size = 1}};
#elif defined(GRADUS_TEST_CASE_PARALLEL_LOADER_SET)
  const parallel_loader other{device, data::make_synthetic(), {.global_batch_size = 1}};
#elif defined(GRADUS_TEST_CASE_ENCODED)
  const data::decoded_dataset<decoder> set{data::class_folders{"flowers"}};
#elif defined(GRADUS_TEST_CASE_SUBSET)
  const data::subset part{data::make_synthetic(), {0}};
#elif defined(GRADUS_TEST_CASE_SPLIT)
  static_cast<void>(data::random_split(data::make_synthetic(), {0.5, 0.5}));
#elif defined(GRADUS_TEST_CASE_WEIGHTS)
  const data::example_weights weights{std::vector<float>(3)};
#elif defined(GRADUS_TEST_CASE_NUMBERS)
  io::safetensors_writer{}.add("x", std::vector<float>(3), {3});
#elif defined(GRADUS_TEST_CASE_RECORDER)
  auto traced = trace::traced(std::move(ranks), trace::recorder{});
#elif defined(GRADUS_TEST_CASE_TRACED_SET)
  const train::traced_set set{recorder, data::make_synthetic()};
#elif defined(GRADUS_TEST_CASE_TRACED_SET_RECORDER)
  const train::traced_set set{trace::recorder{}, images};
#elif defined(GRADUS_TEST_CASE_EVALUATE_EVERY)
  const train::evaluate_every callback{std::move(batches)};
#elif defined(GRADUS_TEST_CASE_EVALUATE_METRICS)
  const train::evaluate_metrics callback{std::move(batches), all};
#elif defined(GRADUS_TEST_CASE_EVALUATE_METRIC)
  const train::evaluate_metrics callback{std::move(batches), gradus::metrics::accuracy{}};
#elif defined(GRADUS_TEST_CASE_TRAINER)
  const train::trainer other{std::move(net), rule};
#elif defined(GRADUS_TEST_CASE_TRAINER_OF_CONST)
  const train::trainer other{const_net, rule};
#elif defined(GRADUS_TEST_CASE_TRAINER_ON_RANKS)
  const train::trainer other{std::move(net), rule, world};
#elif defined(GRADUS_TEST_CASE_COMMUNICATOR)
  const train::trainer other{net, rule, gradus::comm::self{}};
#elif defined(GRADUS_TEST_CASE_CONST_COMMUNICATOR)
  const train::trainer other{net, rule, const_world};
#elif defined(GRADUS_TEST_CASE_START)
  trainer.start(std::move(batches), {});
#endif
}
