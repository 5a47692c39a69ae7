// SPDX-License-Identifier: BSL-1.0
//
// Training over MPI reaches the weights of one process, with the library's all-reduce and around a ring, in both
// layouts; ranks that disagree get an error that says so.
#include <cmath>
#include <gradus/comm/collectives.hpp>
#include <gradus/comm/mpi_shared.hpp>
#include <gradus/comm/self.hpp>
#include <gradus/optim/parameter_update.hpp>
#include <gradus/parallel/compressed_all_reduce.hpp>
#include <gradus/parallel/int8_blocks.hpp>
#include <gradus/parallel/sharded_update.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../support/synchronized_training.hpp"
#include "../support/training_runs.hpp"
#include "communicators_mpi.hpp"

namespace {

namespace comm = gradus::comm;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error{what};
  }
}

template <class Layout, class Communicator>
void require_one_meaning(Communicator& world, const std::string& name) {
  comm::self alone;
  const auto want = gradus_test::run_training<Layout>(alone);
  const auto have = gradus_test::run_training<Layout>(world);
  const double difference = gradus_test::largest_difference(have.weights, want.weights);
  require(difference < 1e-9, name + ": weights differ from those of one process by " + std::to_string(difference));
  require(gradus_test::largest_difference(have.losses, want.losses) < 1e-10, name + ": losses differ");
  require(have.accuracy == want.accuracy, name + ": accuracies differ");
  const auto sharded = gradus_test::run_training_with<Layout>(
      world, {}, gradus::parallel::sharded_update{.bucket_bytes = 1000, .first_bucket_bytes = 100},
      {.rank = world.rank(), .ranks = world.size()});
  const double apart = gradus_test::largest_difference(sharded.weights, want.weights);
  require(apart < 1e-9,
          name + ": weights of a sharded update differ from those of one process by " + std::to_string(apart));
  require(sharded.accuracy == want.accuracy, name + ": accuracies of a sharded update differ");
}

/// Buckets that end anywhere in a page; those of the small network are too short to be reduced in place.
void require_sums_of_long_gradients(comm::mpi_shared& world, bool rounded) {
  const std::vector<gradus::optim::segment> segments{{.name = "c", .offset = 0, .size = 50001},
                                                     {.name = "b", .offset = 50004, .size = 30000},
                                                     {.name = "a", .offset = 80004, .size = 70007}};
  std::vector<float> values(150011);
  std::vector<float> gradients(values.size());
  const auto run = [&](auto options) {
    typename decltype(options)::template state<float> strategy{options, world, {values, gradients, segments}};
    strategy.start();
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        gradients[i] = static_cast<float>((i + static_cast<std::size_t>(world.rank()) * 7) % 64);
      }
      strategy.gradients_ready(0, 1);
      strategy.gradients_ready(1, 2);
      strategy.finish([](std::span<const gradus::optim::segment> /*ready*/) {});
      for (const gradus::optim::segment& each : segments) {
        for (auto i = static_cast<std::size_t>(each.offset); i < static_cast<std::size_t>(each.offset + each.size);
             ++i) {
          float want = 0;
          for (std::size_t rank = 0; rank < static_cast<std::size_t>(world.size()); ++rank) {
            want += static_cast<float>((i + rank * 7) % 64);
          }
          require(gradients[i] == want, "gradient " + std::to_string(i) + " of step " + std::to_string(step));
        }
      }
    }
  };
  if (rounded) {  // exact in bfloat16 for so small numbers
    run(gradus::parallel::compressed_all_reduce<>{{.bucket_bytes = 200000, .first_bucket_bytes = 1}});
  } else {
    run(gradus::parallel::all_reduce{.bucket_bytes = 200000, .first_bucket_bytes = 1});
  }
}

/// In 8 bits: the same bits on all ranks; after some steps what has arrived is all but a rounding.
template <class Communicator>
void require_sums_in_8_bits(Communicator& world, const std::string& name) {
  const std::vector<gradus::optim::segment> segments{{.name = "b", .offset = 0, .size = 30001},
                                                     {.name = "a", .offset = 30001, .size = 70007}};
  constexpr std::size_t elements = 100008;
  std::vector<float> values(elements);
  std::vector<float> gradients(elements);
  using compressed = gradus::parallel::compressed_all_reduce<gradus::parallel::int8_blocks>;
  const compressed options{{.bucket_bytes = 1, .first_bucket_bytes = 1, .partition_bytes = 40000}};
  const auto strategy = gradus::parallel::make_strategy<float>(
      options, world, gradus::parallel::flat_parameters<float>{values, gradients, segments});
  strategy->start();
  std::vector<double> missing(elements);
  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < elements; ++i) {
      for (int rank = 0; rank < world.size(); ++rank) {
        const float each = std::sin(static_cast<float>(i) + static_cast<float>(7 * step + 1000 * rank));
        missing[i] += static_cast<double>(each);
        gradients[i] = rank == world.rank() ? each : gradients[i];
      }
    }
    strategy->gradients_ready(0, 1);
    strategy->gradients_ready(1, 1);
    strategy->finish([](std::span<const gradus::optim::segment> /*ready*/) {});
    std::vector<float> of_first = gradients;
    comm::broadcast(world, of_first, 0).wait();
    require(of_first == gradients, name + ": sums in 8 bits differ from those of rank 0");
    for (std::size_t i = 0; i < elements; ++i) {
      missing[i] -= static_cast<double>(gradients[i]);
      require(std::abs(missing[i]) < 2.2 * world.size() / 254,
              name + ": gradient " + std::to_string(i) + " in 8 bits after step " + std::to_string(step));
    }
  }
}

/// Steps of parameters of many pages, on each rank elsewhere in a page.
template <class Options>
std::vector<float> values_after_steps(comm::mpi_shared& world, const Options& options, std::size_t shift) {
  const std::vector<gradus::optim::segment> segments{{.name = "c", .offset = 0, .size = 50001},
                                                     {.name = "b", .offset = 50016, .size = 5, .decay = false},
                                                     {.name = "a", .offset = 50032, .size = 70007}};
  constexpr std::size_t elements = 120048;
  std::vector<float> memory(2 * (elements + shift));
  const std::span<float> values = std::span{memory}.subspan(shift, elements);
  const std::span<float> gradients = std::span{memory}.subspan(elements + 2 * shift, elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<float>(i % 17) - 8.0F * static_cast<float>(world.rank());  // start makes them rank 0's
  }
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::optim::parameter_update_of<gradus::optim::sgd, float> rule{
      device, {.momentum = 0.9, .weight_decay = 0.01}, static_cast<gradus::index_t>(elements)};
  const auto made = gradus::parallel::make_strategy<float>(options, world, {values, gradients, segments});
  gradus::parallel::strategy<float>& strategy = *made;
  strategy.use(rule);
  std::vector<float> result;
  const auto add_velocities = [&] {
    rule.state().visit_buffers([&](std::string_view, const float* data, gradus::index_t count) {
      result.insert(result.end(), data, data + count);
    });
  };
  strategy.start();
  for (int step = 0; step < 3; ++step) {
    for (std::size_t number = 0; number < segments.size(); ++number) {
      for (gradus::index_t i = segments[number].offset; i < segments[number].offset + segments[number].size; ++i) {
        gradients[static_cast<std::size_t>(i)] =
            static_cast<float>(std::sin(static_cast<double>(i) + 7 * step + 1000 * world.rank()));
      }
      strategy.gradients_ready(number, 1);
    }
    strategy.finish([&](std::span<const gradus::optim::segment> ready) {
      rule.update(ready, values.data(), gradients.data(), 0.1);
    });
    if (step == 1 && world.rank() == 0) {  // the others go on
      strategy.fetch_state();
      add_velocities();
    }
  }
  strategy.gather_state();
  add_velocities();
  result.insert(result.end(), values.begin(), values.end());
  result.insert(result.end(), gradients.begin(), gradients.end());
  return result;
}

/// Blocks, and the pages at the ends of both arrays, which ranks do not share.
void require_sharded_updates_in_shared_memory(comm::mpi_shared& world) {
  static_assert(comm::makes_windows<comm::mpi_shared, float> && !comm::makes_windows<comm::mpi, float>);
  using network = gradus::nn::network<float, gradus::nhwc>;
  using sgd = gradus::optim::sgd;
  static_assert(std::is_same_v<gradus::train::default_strategy<network, sgd, comm::mpi_shared>,
                               gradus::parallel::sharded_update>);
  static_assert(std::is_same_v<gradus::train::default_strategy<network, sgd, comm::mpi>, gradus::parallel::all_reduce>);
  const auto shift = static_cast<std::size_t>(16 * world.rank());
  const std::vector<float> want = values_after_steps(world, gradus::parallel::all_reduce{}, shift);
  for (const std::size_t each : {std::size_t{0}, shift, 512 + 3 * shift}) {
    require(values_after_steps(world, gradus::parallel::sharded_update{}, each) == want,
            "values, gradients and velocities of a sharded update in shared memory");
  }
}

/// Batches of 8, whose last one has 5 examples, and of 4, whose last one has 1: some ranks have none.
template <class Communicator>
void require_synchronized_statistics(Communicator& world, const std::string& name) {
  namespace synchronized = gradus_test::synchronized;
  for (const gradus::index_t batch : {8, 4}) {
    const synchronized::way how{.global_batch = batch};
    const auto want = synchronized::one_process<gradus::nhwc>(how);
    gradus::parallel::synchronized_statistics statistics{world};
    const auto have =
        synchronized::train<gradus::nhwc>(world, gradus::nn::synchronized_batch_norm{.group = &statistics}, how);
    require(gradus_test::largest_difference(have.weights, want.weights) < 1e-9,
            name + ": weights with synchronized batch normalization");
    require(gradus_test::largest_difference(have.statistics, want.statistics) < 1e-9,
            name + ": running statistics of synchronized batch normalization");
    require(gradus_test::largest_difference(have.losses, want.losses) < 1e-9,
            name + ": losses with synchronized batch normalization");
  }
}

void require_disagreement_is_named(comm::mpi& world) {
  if (world.size() == 1) {
    return;
  }
  try {
    gradus_test::run_training<gradus::nchw>(world, {.seed = world.rank() == 1 ? 5U : 4U});
  } catch (const gradus::error& failure) {
    const std::string message = failure.what();
    require(message.find("seed") != std::string::npos && message.find("rank 1") != std::string::npos,
            "the message does not name the seed and rank 1: " + message);
    return;
  }
  throw std::runtime_error{"ranks with other seeds were not refused"};
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  return communicator_tests::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    require_one_meaning<gradus::nhwc>(world, "mpi, nhwc");
    require_one_meaning<gradus::nchw>(world, "mpi, nchw");
    comm::collectives around{world.duplicate(), {.all_reduce = comm::parse_all_reduce_spec("ring")}};
    require_one_meaning<gradus::nhwc>(around, "ring over mpi");
    comm::mpi_shared shared{environment};
    require_one_meaning<gradus::nhwc>(shared, "shared memory");
    require_synchronized_statistics(world, "mpi");
    require_synchronized_statistics(shared, "shared memory");
    require_sums_of_long_gradients(shared, false);
    require_sums_of_long_gradients(shared, true);
    require_sums_in_8_bits(world, "mpi");
    require_sums_in_8_bits(around, "ring over mpi");
    require_sums_in_8_bits(shared, "shared memory");
    require_sharded_updates_in_shared_memory(shared);
    comm::mpi_shared without_windows{environment, {.segment_bytes = 5000}};
    require_sharded_updates_in_shared_memory(without_windows);
    require_disagreement_is_named(world);
    if (world.rank() == 0) {
      std::printf("passed: one meaning\n");
    }
  });
}
