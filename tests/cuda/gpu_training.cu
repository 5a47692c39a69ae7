// SPDX-License-Identifier: BSL-1.0
//
// Training on a GPU: as on the CPU, on one rank and on several, step by step and as a recorded graph.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradus/comm/cuda_staging.cuh"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/cuda_loader.cuh"
#include "gradus/kernels/cuda.cuh"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/train/recorded_network.cuh"
#include "gradus/train/recorded_step.cuh"
#include "training_runs.hpp"

namespace gpu_training {
/// In a translation unit of its own: nvcc does not compile the kernels of the CPU.
gradus_test::training_result on_cpu();
}  // namespace gpu_training

namespace {

namespace comm = gradus::comm;
using gradus_test::training_result;

training_result on_one_gpu() {
  gradus::cuda device;
  comm::self self;
  return gradus_test::run_training_on<gradus::nhwc, float>(device, self);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(training_on_a_gpu)

BOOST_AUTO_TEST_CASE(a_gpu_trains_as_the_cpu_does) {
  const training_result expected = gpu_training::on_cpu();
  const training_result computed = on_one_gpu();
  BOOST_CHECK_SMALL(gradus_test::largest_difference(computed.weights, expected.weights), 1e-2);
  BOOST_CHECK_SMALL(gradus_test::largest_difference(computed.losses, expected.losses), 1e-3);
}

BOOST_AUTO_TEST_CASE(two_runs_have_the_same_bits) {
  BOOST_CHECK(on_one_gpu().weights == on_one_gpu().weights);
}

BOOST_AUTO_TEST_CASE(ranks_that_share_a_gpu_train_as_one) {
  const training_result one = on_one_gpu();
  const auto ranks = comm::run_ranks(2, [](comm::threads& world) {
    gradus::cuda device;
    comm::staged_on_cuda<comm::threads> staged{world.duplicate(), device};
    return gradus_test::run_training_on<gradus::nhwc, float>(device, staged);
  });
  for (const training_result& each : ranks) {
    BOOST_CHECK_SMALL(gradus_test::largest_difference(each.weights, one.weights), 1e-2);
    BOOST_CHECK(each.weights == ranks.front().weights);
  }
}

BOOST_AUTO_TEST_CASE(a_trainer_that_launches_recorded_steps_has_the_same_bits) {
  const training_result plain = on_one_gpu();
  gradus::cuda device;
  comm::self self;
  bool recorded = false;
  const training_result launched = gradus_test::run_training_on<gradus::nhwc, float>(
      device, self, {}, gradus::parallel::all_reduce{}, {.rank = 0, .ranks = 1},
      [&](auto& trainer) { recorded = trainer.network().recorded(); },
      [](auto& net) { return gradus::train::recorded_network{net}; });
  BOOST_CHECK(recorded);
  BOOST_CHECK(launched.weights == plain.weights);
  BOOST_CHECK(launched.losses == plain.losses);
}

BOOST_AUTO_TEST_CASE(a_recorded_step_has_the_bits_of_an_ordinary_one) {
  using network = gradus::nn::network<float, gradus::nhwc, gradus::cuda>;
  gradus::cuda device;
  gradus::data::loader<float, gradus::nhwc, gradus::cuda> loader{
      device, gradus_test::small_dataset(), {.batch_size = 8, .seed = 5}};
  const auto make = [&](network& net) {
    gradus_test::build_training_network(net);
    net.freeze({.batch_size = 8, .seed = 11});
  };
  network plain{device, {2, 9, 8}};
  network recorded{device, {2, 9, 8}};
  make(plain);
  make(recorded);
  const gradus::optim::sgd rule{.momentum = 0.9};
  const auto segments = gradus::train::detail::trained_parameters_of(plain).segments;
  gradus::optim::sgd::state<float, gradus::cuda> state{device, rule,
                                                       static_cast<gradus::index_t>(plain.values().size())};
  gradus::train::recorded_step step{recorded, rule};
  std::uint64_t number = 0;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    loader.start_epoch(epoch);
    while (const auto* batch = loader.next()) {
      const double rate = 0.1 / static_cast<double>(1 + number);
      const gradus::nn::step_options place{
          .step = number++, .first_example = batch->first_example, .global_examples = batch->global_examples};
      const auto expected = plain.train_step(batch->images, batch->labels, place);
      state.update(device, {segments.data(), segments.size()}, plain.values().data(), plain.gradients().data(), rate);
      const auto sums = step(batch->images, batch->labels, rate, place);
      BOOST_CHECK_EQUAL(sums.loss, expected.loss);
      BOOST_CHECK_EQUAL(sums.correct, expected.correct);
    }
  }
  BOOST_CHECK(step.recorded());
  const auto values_of = [&](network& net) {
    std::vector<float> values(net.values().size());
    device.copy_to_host(values.data(), net.values().data(), net.values().size_bytes());
    return values;
  };
  BOOST_CHECK(values_of(plain) == values_of(recorded));
}

BOOST_AUTO_TEST_SUITE_END()
