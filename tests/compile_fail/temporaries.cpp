// SPDX-License-Identifier: BSL-1.0
//
// What keeps a reference to an argument refuses a temporary, and a const object that it would change.
// EXPECT_ERROR(device): gradus: a temporary is gone after this statement: name it on the line before
// EXPECT_ERROR(const_device): gradus: a const object, but it changes
// EXPECT_ERROR(to): gradus: a temporary is gone after this statement: name it on the line before
// EXPECT_ERROR(loader_set): gradus: a temporary data set: name it on the line before
// EXPECT_ERROR(split): gradus: a temporary data set: name it on the line before
// EXPECT_ERROR(weights): gradus: the data set keeps a reference to its weights, but a temporary
// EXPECT_ERROR(numbers): gradus: the writer refers to the numbers, but a temporary
// EXPECT_ERROR(evaluate_every): gradus: a temporary is gone after this statement: name it on the line before
// EXPECT_ERROR(trainer): gradus: a temporary is gone after this statement: name it on the line before
// EXPECT_ERROR(communicator): gradus: the third argument is a communicator with a name, not const
// EXPECT_ERROR(start): gradus: a temporary is gone after this statement: name it on the line before
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_constructible_v
#include <utility>      // std::declval, std::move
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
namespace metrics = gradus::metrics;
namespace nn = gradus::nn;
namespace trace = gradus::trace;
namespace train = gradus::train;
using gradus::cpu;
using gradus::optim::sgd;
using images = data::image_dataset;
using loader = data::loader<float, gradus::nchw>;
using network = nn::network<float>;
using parallel_loader = data::parallel_loader<float, gradus::nchw>;
using ranks = gradus::comm::threads;

struct decoder {
  static constexpr std::string_view dataset_name = "images";
};

// Each line refuses a temporary; the twin fails if one is accepted.

template <class Made, class... Arguments>
inline constexpr bool made_of = std::is_constructible_v<Made, Arguments...>;
/// The first argument needs a name, and may be const if Kept is.
template <class Made, class Kept, class... Others>
inline constexpr bool keeps = made_of<Made, Kept&, Others...> && !made_of<Made, Kept, Others...> &&
                              (std::is_const_v<Kept> || !made_of<Made, const Kept&, Others...>);

static_assert(keeps<gradus::borrowed<cpu>, cpu> && keeps<gradus::borrowed<const images>, const images>);
static_assert(!made_of<gradus::borrowed<const images>, images>);
static_assert(keeps<gradus::tensor<float, 1>, cpu, gradus::extents<1>>);
static_assert(keeps<gradus::tensor_view<float, 1>, cpu, float*, gradus::extents<1>>);
static_assert(keeps<network, cpu, nn::value_shape>);
static_assert(keeps<nn::inference_session<float>, network> && keeps<nn::inference_session<float>, network, cpu&>);
static_assert(made_of<nn::inference_session<float>, network&, cpu&>);
static_assert(!made_of<nn::inference_session<float>, network&, cpu>);
static_assert(keeps<loader, cpu, images&, data::loader_options>);
static_assert(keeps<parallel_loader, cpu, images&, data::loader_options>);
static_assert(!made_of<loader, cpu&, images, data::loader_options>);
static_assert(!made_of<parallel_loader, cpu&, images, data::loader_options>);
static_assert(!made_of<parallel_loader, cpu&, images, data::loader_options, data::reader_options>);
static_assert(keeps<data::decoded_dataset<decoder>, const data::class_folders>);  // derives from encoded_images
static_assert(!made_of<data::decoded_dataset<decoder>, data::class_folders>);
static_assert(keeps<data::subset<images>, const images, std::vector<gradus::index_t>>);
static_assert(!made_of<data::subset<images>, images, std::vector<gradus::index_t>>);
static_assert(keeps<train::traced_set<images>, trace::recorder, const images&>);
static_assert(!made_of<train::traced_set<images>, trace::recorder&, images>);
static_assert(keeps<train::evaluate_every<loader>, loader>);
static_assert(keeps<train::evaluate_metrics<loader, metrics::list<metrics::accuracy>>, loader, metrics::accuracy>);
static_assert(
    keeps<train::evaluate_metrics<loader, metrics::list<metrics::accuracy>>, loader, metrics::list<metrics::accuracy>>);
static_assert(keeps<train::trainer<network>, network, sgd> && keeps<train::trainer<network>, network, sgd, ranks&>);
static_assert(!made_of<train::trainer<network>, network&, sgd, ranks>);
static_assert(!made_of<train::trainer<network>, network&, sgd, const ranks&>);
template <class Set>
concept can_split = requires {
  data::random_split(std::declval<Set>(), {0.5, 0.5});
};
template <class Set>
concept can_split_by_span = requires(std::span<const double> shares) {
  data::random_split(std::declval<Set>(), shares);
};
static_assert(can_split<images&> && can_split<const images&> && !can_split<images>);
static_assert(can_split_by_span<images&> && can_split_by_span<const images&> && !can_split_by_span<images>);
template <class Recorder>
concept can_trace = requires(ranks all, Recorder recorder) {
  trace::traced(std::move(all), std::declval<Recorder>());
};
static_assert(can_trace<trace::recorder&> && !can_trace<trace::recorder>);

const metrics::list all{metrics::accuracy{}};
const sgd rule;

void use(cpu& device, const cpu& const_device, network& net, gradus::comm::self& world,
         const gradus::tensor<float, 1>& values, const images& set, loader& batches, trace::recorder& recorder,
         train::trainer<network>& trainer) {
#if defined(GRADUS_TEST_GOOD_TWIN)
  const nn::inference_session session{net};
  const nn::inference_session session_on_device{net, device, {}};
  const gradus::tensor_view view{device, values.data(), gradus::extents<1>{3}};
  const auto copied = gradus::to(device, gradus::tensor<float, 1>{device, {3}});
  const loader other_batches{device, set, {.global_batch_size = 1}};
  const parallel_loader parallel{device, set, {.global_batch_size = 1}, {.threads = 2}};
  const data::subset part{set, {0}};
  const auto parts = data::random_split(set, {0.5, 0.5});
  const train::traced_set traced{recorder, set};
  const train::evaluate_every each{batches, 2};
  const train::evaluate_metrics measured{batches, all};
  const train::evaluate_metrics measured_one{batches, metrics::accuracy{}, 2};
  const train::trainer other{net, rule};
  const train::trainer on_ranks{net, rule, world};
  trainer.start(batches, {});
#elif defined(GRADUS_TEST_CASE_DEVICE)
  const gradus::tensor<float, 1> x{gradus::cpu{}, {3}};
#elif defined(GRADUS_TEST_CASE_CONST_DEVICE)
  const gradus::tensor<float, 1> x{const_device, {3}};
#elif defined(GRADUS_TEST_CASE_TO)
  static_cast<void>(gradus::to(gradus::cpu{}, values));
#elif defined(GRADUS_TEST_CASE_LOADER_SET)
  const loader other{device, data::make_synthetic(), {.global_batch_size = 1}};
#elif defined(GRADUS_TEST_CASE_SPLIT)
  static_cast<void>(data::random_split(data::make_synthetic(), {0.5, 0.5}));
#elif defined(GRADUS_TEST_CASE_WEIGHTS)
  const data::example_weights weights{std::vector<float>(3)};
#elif defined(GRADUS_TEST_CASE_NUMBERS)
  io::safetensors_writer{}.add("x", std::vector<float>(3), {3});
#elif defined(GRADUS_TEST_CASE_EVALUATE_EVERY)
  const train::evaluate_every callback{std::move(batches)};
#elif defined(GRADUS_TEST_CASE_TRAINER)
  const train::trainer other{std::move(net), rule};
#elif defined(GRADUS_TEST_CASE_COMMUNICATOR)
  const train::trainer other{net, rule, gradus::comm::self{}};
#elif defined(GRADUS_TEST_CASE_START)
  trainer.start(std::move(batches), {});
#endif
}
