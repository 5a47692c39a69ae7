// SPDX-License-Identifier: BSL-1.0
//
// Ranks whose callbacks differ in what decides when they save learn it before the first step.
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <filesystem>
#include <string>

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/stepwise.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace train = gradus::train;

struct agreed_folder {
  std::string path = (std::filesystem::temp_directory_path() / "gradus_test_checkpoint_agreement").string();
  agreed_folder() { std::filesystem::remove_all(path); }
  ~agreed_folder() { std::filesystem::remove_all(path); }
};

/// The error of rank 1 when its checkpoints are these, and those of rank 0 are {"FOLDER", {.every = 2}}.
std::string told(const std::string& folder, const std::string& folder_of_last, const train::checkpoint_options& options,
                 bool in_steps = false) {
  const auto messages = comm::run_ranks(2, [&](comm::threads& world) -> std::string {
    world.set_time_limit(std::chrono::seconds{5});
    const auto images = gradus::data::make_synthetic({.examples = 64, .height = 4, .width = 4, .classes = 3});
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 8, .seed = 1}};
    gradus::nn::network<float, gradus::nhwc> net{device, {1, 4, 4}};
    net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 3}, net.input()));
    net.compile({.max_batch_size = 8, .seed = 1});
    train::trainer trainer{net, gradus::optim::sgd{}, world};
    const bool last = world.rank() == 1;
    train::checkpoints saved{last ? folder_of_last : folder, last ? options : train::checkpoint_options{.every = 2}};
    try {
      if (in_steps) {
        trainer.start(loader, {.learning_rate = 0.01}, saved);
        static_cast<void>(trainer.train_steps(4));
        trainer.finish();
      } else {
        trainer.fit(loader, {.epochs = 1, .learning_rate = 0.01}, saved);
      }
      return {};
    } catch (const gradus::configuration_error& failure) {
      return trainer.steps() == 0 ? failure.what() : "after a step";
    }
  });
  BOOST_TEST(messages[0] == messages[1]);
  return messages[1];
}

}  // namespace

BOOST_AUTO_TEST_SUITE(agreement_of_checkpoints)

BOOST_AUTO_TEST_CASE(ranks_that_save_alike_train) {
  const agreed_folder folder;
  BOOST_TEST(told(folder.path, folder.path, {.every = 2, .on_error = [](const std::string&) {}}).empty());
}

BOOST_AUTO_TEST_CASE(other_options_are_named_before_the_first_step) {
  const agreed_folder folder;
  const std::string other = told(folder.path, folder.path, {.every = 3});
  BOOST_TEST_CONTEXT(other) {
    BOOST_TEST(other.find("trainer.fit: expected the same callbacks on all ranks") == 0U);
    BOOST_TEST(other.find(".every = 2, ") < other.find("rank 0"));
    BOOST_TEST(other.find(".every = 3, ") < other.find("rank 1"));
  }
  BOOST_TEST(told(folder.path, folder.path, {.every = 2, .signals = false}).find(".signals = false") !=
             std::string::npos);
  BOOST_TEST(told(folder.path, folder.path, {.every = 2, .keep = 4}).find(".keep = 4") != std::string::npos);
  BOOST_TEST(told(folder.path, folder.path, {.every = 2, .best = train::best_epoch::loss}).find(".best = loss") !=
             std::string::npos);
  BOOST_TEST(told(folder.path, folder.path, {.every = 3}, true).find(".every = 3") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_save_is_named) {
  const agreed_folder folder;
  const std::string none = told(folder.path, "", {});
  BOOST_TEST_CONTEXT(none) {
    BOOST_TEST(none.find("none that ranks compare") != std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()
