// SPDX-License-Identifier: BSL-1.0
//
// Weights that ranks have trained together, in a file: that of one process.
#include <boost/test/unit_test.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../support/hybrid_training.hpp"
#include "../../support/waiting.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/weights.hpp"

namespace weights_of_trainings {

namespace nn = gradus::nn;
namespace io = gradus::io;
namespace parallel = gradus::parallel;
namespace train = gradus::train;

constexpr gradus::optim::sgd momentum{.momentum = 0.9};

/// On a thread of a rank.
void require(bool holds, const std::string& otherwise) {
  if (!holds) {
    throw std::logic_error{otherwise};
  }
}

std::string content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

struct nothing {
  void operator()(const train::step_report& /*step*/) const {}
};

/// Saves after the third step.
struct saver {
  std::string path;

  template <class Trainer>
  void on_step(Trainer& trainer, const train::step_report& step) const {
    if (step.step == 2) {
      train::save_weights(trainer, path);
    }
  }
};

/// Trains, and calls use(trainer, network) at the end.
template <class Layout, class Communicator, class Strategy, class Use, class Callback = nothing>
void with_trained(Communicator& world, const Strategy& strategy, gradus::index_t micro_batch_size, const Use& use,
                  const Callback& callback = {}) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto& dataset = gradus_test::dataset_for_pipelines();
  gradus::data::loader<float, Layout> loader{device, dataset, {.global_batch_size = 12, .seed = 11}};
  nn::network<float, Layout> net{device, {2, 9, 8}};
  gradus_test::build_network_with_skips(net);
  net.freeze("block1_conv1");
  net.compile({.max_batch_size = 12, .seed = 3, .micro_batch_size = micro_batch_size});
  train::trainer trainer{net, momentum, world, strategy};
  trainer.fit(loader, {.epochs = 1, .learning_rate = 0.05}, callback);
  use(trainer, net);
}

/// The file of one process.
template <class Layout>
std::string content_of_one_process(const io::save_weights_options& options = {}) {
  gradus::comm::self process;
  with_trained<Layout>(process, parallel::all_reduce{}, 3, [&](auto& trainer, auto& net) {
    io::save_weights(net, "weights_of_one", options);
    train::save_weights(trainer, "weights_of_one_trainer", options);
  });
  BOOST_TEST((content_of("weights_of_one") == content_of("weights_of_one_trainer")));
  std::remove("weights_of_one_trainer");
  return content_of("weights_of_one");
}

BOOST_AUTO_TEST_SUITE(weights_of_a_training)

BOOST_AUTO_TEST_CASE(stages_save_the_file_of_one_process) {
  for (const bool small : {false, true}) {
    io::save_weights_options options;
    if (small) {
      options = {.type = io::element_type::bf16, .rename = {{"block0_", "first."}}};
    }
    const std::string want = content_of_one_process<gradus::nhwc>(options);
    for (const parallel::hybrid& how :
         {parallel::hybrid{.stages = 4, .micro_batches = 4}, parallel::hybrid{.stages = 1, .micro_batches = 4},
          parallel::hybrid{.stages = 2, .micro_batches = 4, .stages_per_rank = 2}}) {
      gradus::comm::run_ranks(how.stages, [&](auto& world) {
        with_trained<gradus::nhwc>(world, how, 0, [&](auto& trainer, auto& /*net*/) {
          train::save_weights(trainer, "weights_of_stages", options);
        });
      });
      BOOST_TEST((content_of("weights_of_stages") == want), how.stages << " ranks");
      std::remove("weights_of_stages");
    }
  }
  std::remove("weights_of_one");
}

BOOST_AUTO_TEST_CASE(other_strategies_and_replicas_save_what_they_have) {
  const auto check = [](int ranks, const auto& strategy) {
    gradus::comm::run_ranks(ranks, [&](auto& world) {
      with_trained<gradus::nchw>(world, strategy, 0, [&](auto& trainer, auto& net) {
        train::save_weights(trainer, "weights_of_ranks");
        // Read back on all ranks, in stages too: nothing is missing, and nothing changes.
        const std::vector<float> before{net.values().begin(), net.values().end()};
        for (float& each : net.values()) {
          each = 0;
        }
        const io::load_weights_report report = io::load_weights(net, "weights_of_ranks");
        require(report.complete(), "differences: " + report.differences());
        require(report.loaded.size() == net.parameters().size() + net.buffers().size(), "not all are loaded");
        const std::vector<float> after{net.values().begin(), net.values().end()};
        require(before == after, "other weights");
        gradus::comm::barrier(world).wait();
      });
    });
    std::remove("weights_of_ranks");
  };
  check(3, parallel::all_reduce{.overlap_forward = true});
  check(2, parallel::sharded_update{});
  check(4, parallel::hybrid{.stages = 2, .micro_batches = 2});
}

BOOST_AUTO_TEST_CASE(updates_that_are_put_off_are_in_the_file) {
  std::vector<std::string> contents;
  for (const bool late : {false, true}) {
    gradus::comm::run_ranks(2, [&](auto& world) {
      with_trained<gradus::nhwc>(
          world, parallel::all_reduce{.overlap_forward = late}, 0, [](auto& /*trainer*/, auto& /*net*/) {},
          saver{"weights_of_a_step"});
    });
    contents.push_back(content_of("weights_of_a_step"));
    std::remove("weights_of_a_step");
  }
  BOOST_TEST((contents[0] == contents[1]));
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_written_is_an_error_on_all_ranks) {
  const std::string want = content_of_one_process<gradus::nhwc>();
  std::remove("weights_of_one");
  gradus::comm::run_ranks(3, [&](auto& world) {
    with_trained<gradus::nhwc>(
        world, parallel::hybrid{.stages = 3, .micro_batches = 4}, 0, [&](auto& trainer, auto& net) {
          std::string error;
          try {
            train::save_weights(trainer, "no_such_folder/weights");
          } catch (const gradus::error& failure) {
            error = failure.what();
          }
          require(gradus_test::contains(error, "no_such_folder/weights"), error);
          error.clear();
          try {
            io::save_weights(net, "weights_of_a_rank");
          } catch (const gradus::configuration_error& failure) {
            error = failure.what();
          }
          require(gradus_test::contains(error, "one in 3 stages, of which this rank has 1"), error);
          require(gradus_test::contains(error, "train::save_weights"), error);
          train::save_weights(trainer, "weights_after_errors");  // the ranks go on working
        });
  });
  BOOST_TEST((content_of("weights_after_errors") == want));
  std::remove("weights_after_errors");
}

BOOST_AUTO_TEST_CASE(patterns_may_fit_weights_of_other_ranks_only) {
  static_cast<void>(content_of_one_process<gradus::nhwc>());
  gradus::comm::run_ranks(2, [&](auto& world) {
    with_trained<gradus::nhwc>(world,
                               parallel::hybrid{.stages = 2, .micro_batches = 4, .first_layers = {"block1_conv1"}}, 0,
                               [&](auto& /*trainer*/, auto& net) {
                                 const auto report = io::load_weights(net, "weights_of_one", {.only = "block0_*"});
                                 require(report.loaded.empty() == (world.rank() == 1), "loaded by another rank");
                                 std::string error;
                                 try {
                                   io::load_weights(net, "weights_of_one", {.only = "block7_*"});
                                 } catch (const gradus::configuration_error& failure) {
                                   error = failure.what();
                                 }
                                 require(gradus_test::contains(error, "block7_*"), error);
                               });
  });
  std::remove("weights_of_one");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace weights_of_trainings
