// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints of format 1 that the library wrote on 2026-11-29, in tests/golden/checkpoints: later versions read them.
// The disabled test `write` of this file writes new ones.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/checkpoint/reader.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"
#include "source_directory.hpp"
#include "state_runs.hpp"

namespace stored_checkpoints {

namespace comm = gradus::comm;
namespace io = gradus::io;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;

using net_type = gradus::nn::network<float, gradus::nhwc>;

[[nodiscard]] std::string folder_of(std::string_view name) {
  return path_in_tests("golden/checkpoints/" + std::string{name});
}

/// Makes a trainer of the files and calls body(trainer, loader).
template <class Rule, class Strategy, class Body>
void with_trainer(comm::threads& world, const Rule& rule, const Strategy& strategy, const Body& body) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  net_type net{device, {2, 9, 8}};
  gradus_test::build_network_with_statistics(net);
  net.freeze("conv1");
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, rule, world, strategy};
  body(trainer, loader);
}

/// Calls body(name, ranks, rule, strategy) for each file. The training was saved after step 5 of epoch 2.
template <class Body>
void for_each_file(const Body& body) {
  body("one_rank", 1, optim::sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}, parallel::all_reduce{});
  body("sharded", 3, optim::update{.rule = optim::adam{}, .max_norm = 1.0, .loss_scaling = {}},
       parallel::sharded_update{});
  body("averaging", 2, optim::adam{}, parallel::model_averaging{.every_steps = 3});
  body("reproducible", 2, optim::adam{}, parallel::reproducible{parallel::all_reduce{}, 4});
}

BOOST_AUTO_TEST_SUITE(checkpoint_files)

BOOST_AUTO_TEST_CASE(write, *boost::unit_test::disabled()) {
  for_each_file([](std::string_view name, int ranks, const auto& rule, const auto& strategy) {
    std::filesystem::remove_all(folder_of(name));
    comm::run_ranks(ranks, [&](comm::threads& world) {
      with_trainer(world, rule, strategy, [&](auto& trainer, auto& loader) {
        trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05},
                    train::checkpoints{folder_of(name), {.every = 12, .keep = 1, .signals = false}});
      });
      return 0;
    });
  });
}

// Each array that a rank has after the restore is the one of the file, to the bit, and so are the texts.
BOOST_AUTO_TEST_CASE(files_of_format_1_are_read) {
  for_each_file([](std::string_view name, int ranks, const auto& rule, const auto& strategy) {
    BOOST_TEST_CONTEXT(std::string{name}) {
      const io::checkpoint_reader file{folder_of(name) + "/step-000000012.safetensors"};
      BOOST_TEST(file.header().metadata.at("gradus.format") == "1");
      gradus_test::rank_states states{ranks};
      const auto steps = comm::run_ranks(ranks, [&](comm::threads& world) {
        std::uint64_t done = 0;
        with_trainer(world, rule, strategy, [&](auto& trainer, auto& /*loader*/) {
          (void)trainer.resume(folder_of(name));
          done = trainer.steps();
          train::capture(trainer, *states.of_rank[static_cast<std::size_t>(world.rank())]);
        });
        return done;
      });
      for (const std::uint64_t each : steps) {
        BOOST_TEST(each == 12U);
      }
      const train::state_parts now = states.all(ranks);
      BOOST_TEST(now.entries() == file.header().tensors.size());
      for (std::size_t i = 0; i < now.entries(); ++i) {
        const io::stored_array& entry = now.entry(i);
        const io::safetensors_entry* const stored = file.header().find(entry.name);
        BOOST_TEST_CONTEXT(entry.name) {
          BOOST_REQUIRE(stored != nullptr);
          BOOST_TEST(std::equal(entry.shape.begin(), entry.shape.end(), stored->shape.begin(), stored->shape.end()));
          std::vector<std::byte> before(static_cast<std::size_t>(stored->end - stored->begin));
          std::vector<std::byte> after(static_cast<std::size_t>(entry.elements() * entry.element_bytes()));
          file.read(*stored, 0, before);
          now.read(i, 0, after);
          BOOST_TEST((before == after));
        }
      }
      for (const auto& [key, text] : file.header().metadata) {
        const std::string_view property = std::string_view{key}.substr(key.starts_with("state.") ? 6 : 0);
        if (property.size() != key.size() && property != "gradus version" && property != "learning rate" &&
            property != "loader") {  // that of the next fit
          BOOST_TEST_CONTEXT(key) {
            BOOST_REQUIRE(now.property(property) != nullptr);
            BOOST_TEST(*now.property(property) == text);
          }
        }
      }
    }
  });
}

// What one number of ranks has saved, another one takes, and trains on.
BOOST_AUTO_TEST_CASE(another_number_of_ranks_goes_on_from_a_file_of_format_1) {
  for (const int ranks : {1, 2}) {
    const auto steps = comm::run_ranks(ranks, [&](comm::threads& world) {
      std::uint64_t done = 0;
      with_trainer(world, optim::update{.rule = optim::adam{}, .max_norm = 1.0, .loss_scaling = {}},
                   parallel::sharded_update{}, [&](auto& trainer, auto& loader) {
                     (void)trainer.resume(folder_of("sharded"));
                     trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
                     done = trainer.steps();
                   });
      return done;
    });
    BOOST_TEST(steps[0] == 14U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace stored_checkpoints
