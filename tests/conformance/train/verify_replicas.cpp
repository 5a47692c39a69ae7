// SPDX-License-Identifier: BSL-1.0
//
// Ranks whose parameters differ: found at the beginning of fit, and by train::verify_replicas.
#include "gradus/train/verify_replicas.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/training_runs.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/reproducible.hpp"

namespace {

namespace parallel = gradus::parallel;
namespace train = gradus::train;

/// Changes a bit of an element, which an update that is put off does not round away.
void flip(double& element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(bits));
  bits ^= std::uint64_t{1} << 30U;
  std::memcpy(&element, &bits, sizeof(bits));
}

/// Flips a bit of the last element of a parameter of one rank after a step.
struct flips_a_bit {
  int rank;
  std::uint64_t after;
  std::string parameter;

  template <class Trainer>
  void on_step(Trainer& trainer, const train::step_report& step) const {
    if (step.step + 1 == after) {  // else an update that is put off would write over the bit
      train::detail::trainer_access::parts_of(trainer).end->settle();
    }
    if (step.step + 1 == after && trainer.communicator().rank() == rank) {
      auto& net = trainer.network();
      const auto& own = net.find_parameter(parameter);
      const std::size_t at =
          static_cast<std::size_t>(own.value().data() - net.values().data() + own.value().size() - 1);
      flip(net.values()[at]);
    }
  }
};

/// What each rank throws. @param act  called with the trainer and a loader
template <class Strategy, class Act>
std::vector<std::string> messages(int ranks, const Strategy& strategy, const Act& act) {
  return gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) -> std::string {
    world.set_time_limit(std::chrono::seconds{20});
    gradus::cpu device{{.intra_op_threads = world.rank() == 0 ? 2 : 1}};
    gradus::data::loader<double, gradus::nhwc> loader{
        device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 3}};
    gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.freeze("conv1");
    net.compile({.max_batch_size = 8, .seed = 5});
    train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world, strategy};
    try {
      act(trainer, loader);
    } catch (const gradus::error& failure) {
      return failure.what();
    }
    return "";
  });
}

void require_text(const std::string& message, std::string_view part) {
  BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' is not in: " << message);
}

/// A bit that flips just before ranks are compared, after step 6 of every third.
template <class Strategy>
void check_found(int ranks, int rank, const Strategy& strategy, const std::string& parameter, std::string_view who) {
  for (const std::string& message : messages(ranks, strategy, [&](auto&trainer, auto&loader) {
         trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, flips_a_bit{rank, 6, parameter},
                     train::verify_replicas{.every = 3});
       })) {
    require_text(message, "verify_replicas after step 6");
    require_text(message, "'" + parameter + "' of rank " + std::string{who});
    require_text(message, "All were equal after step 3");
    require_text(message, "verify_replicas.cpp");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(replicas_of_ranks)

BOOST_AUTO_TEST_CASE(a_flipped_bit_is_found_under_every_strategy) {
  check_found(3, 2, parallel::all_reduce{}, "conv2.weight", "2 differs from that of rank 0, 1");
  check_found(3, 0, parallel::all_reduce{.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap_forward = true},
              "scores.bias", "0 differs from that of rank 1, 2");
  check_found(2, 1, parallel::all_reduce{}, "conv1.bias", "1 differs from that of rank 0");  // frozen
  check_found(3, 1, parallel::sharded_update{}, "conv2.bias", "1 differs from that of rank 0, 2");
  check_found(3, 1, parallel::parameter_server{.servers = 0, .colocate = true, .overlap_forward = true},
              "scores.weight", "1 differs from that of rank 0, 2");
  check_found(4, 3, parallel::reproducible{parallel::all_reduce{}}, "scores.bias",
              "3 differs from that of rank 0, 1, 2");
  check_found(4, 3, parallel::hybrid{.stages = 2, .micro_batches = 2}, "scores.weight",
              "3 differs from that of rank 1");
}

BOOST_AUTO_TEST_CASE(a_difference_that_stays_is_found_later) {
  for (const std::string& message : messages(3, parallel::all_reduce{}, [](auto&trainer, auto&loader) {
         trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, train::verify_replicas{.every = 5},
                     flips_a_bit{1, 6, "scores.weight"});
       })) {
    require_text(message, "verify_replicas after step 10");
    require_text(message, "of rank 1 differs");
    require_text(message, "All were equal after step 5");
  }
}

BOOST_AUTO_TEST_CASE(equal_ranks_and_ranks_with_weights_of_their_own_go_on) {
  const auto act = [](auto& trainer, auto& loader) {
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, train::verify_replicas{.every = 1});
    BOOST_TEST(trainer.steps() == 14U);
  };
  for (const int ranks : {1, 2, 3}) {
    for (const std::string& message : messages(ranks, parallel::all_reduce{.overlap_forward = true}, act)) {
      BOOST_TEST(message.empty(), message);
    }
    for (const std::string& message : messages(ranks, parallel::sharded_update{}, act)) {
      BOOST_TEST(message.empty(), message);
    }
    for (const std::string& message : messages(ranks, parallel::model_averaging{}, act)) {
      BOOST_TEST(message.empty(), message);
    }
  }
}

BOOST_AUTO_TEST_CASE(weights_that_are_changed_on_one_rank_are_refused_by_fit) {
  for (const std::string& message : messages(3, parallel::all_reduce{}, [](auto&trainer, auto&loader) {
         double& element = trainer.network().values()[7];
         const double before = element;
         if (trainer.communicator().rank() == 1) {
           flip(element);
         }
         std::string refused;
         try {
           trainer.fit(loader, {.epochs = 1, .learning_rate = 0.05});
         } catch (const gradus::configuration_error& failure) {
           refused = failure.what();
         }
         element = before;
         trainer.fit(loader, {.epochs = 1, .learning_rate = 0.05});  // a corrected call works
         gradus::raise<gradus::configuration_error>("test", "", refused);
       })) {
    require_text(message, "trainer.fit: expected the same values of parameters on all ranks");
    require_text(message, "of rank 1 differs from that of rank 0, 2");
    require_text(message, "load weights on all ranks");
  }
}

BOOST_AUTO_TEST_CASE(options_are_the_same_on_all_ranks) {
  for (const std::string& message : messages(2, parallel::all_reduce{}, [](auto&trainer, auto&loader) {
         trainer.fit(loader, {.epochs = 1},
                     train::verify_replicas{.every = trainer.communicator().rank() == 0 ? 2U : 3U});
       })) {
    require_text(message, "every");
  }
  for (const std::string& message : messages(2, parallel::all_reduce{}, [](auto&trainer, auto&loader) {
         trainer.fit(loader, {.epochs = 1}, train::verify_replicas{.every = 0});
       })) {
    require_text(message, "every of at least 1 step");
  }
}

// One bit anywhere changes the hash, and so does the order of elements.
BOOST_AUTO_TEST_CASE(hashes_see_every_bit) {
  std::vector<std::uint8_t> bytes(77);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 37);
  }
  const auto hash = [&](std::size_t size) {
    return train::detail::hash_of_bytes(std::as_bytes(std::span{bytes}.first(size)));
  };
  for (const std::size_t size : {1U, 7U, 8U, 31U, 32U, 33U, 64U, 77U}) {
    const auto whole = hash(size);
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      BOOST_TEST((hash(size) != whole));
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
    BOOST_TEST((hash(size) == whole));
    BOOST_TEST((hash(size) != hash(size - 1)));
  }
  const auto before = hash(64);
  std::swap_ranges(bytes.begin(), bytes.begin() + 32, bytes.begin() + 32);
  BOOST_TEST((hash(64) != before));
}

BOOST_AUTO_TEST_SUITE_END()
