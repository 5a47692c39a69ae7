// SPDX-License-Identifier: BSL-1.0
//
// A loss that is not finite because of the data: the input, target or weight is named, in every way of training.
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace nn = gradus::nn;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// 16 examples of 2 numbers with a target, one of which may be spoiled.
struct few_examples {
  std::vector<float> inputs = std::vector<float>(32, 0.5F);
  std::vector<float> targets = std::vector<float>(16, 1.0F);
};

/// What the ranks say when they train on the examples, in their order, in batches of 8.
template <class... Strategy>
std::vector<std::string> messages_of_training(int ranks, gradus::data::shard (*shard_of)(int, int),
                                              const few_examples& examples, double learning_rate,
                                              const Strategy&... strategy) {
  return gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) -> std::string {
    gradus::cpu device{{.intra_op_threads = 1}};
    const auto set = gradus::data::in_memory(gradus::data::examples_of(examples.inputs, {1, 2, 1, 1}),
                                             gradus::data::examples_of(examples.targets));
    gradus::data::loader<float, gradus::nchw> loader{
        device, set, {.global_batch_size = 8, .shuffle = false, .shard = shard_of(world.rank(), world.size())}};
    nn::network<float, gradus::nchw> net{device, {.channels = 2}};
    nn::value x = net.add("hidden", nn::dense{.out_features = 3}, net.input());
    x = net.add("output", nn::dense{.out_features = 1}, x);
    net.loss(nn::mean_squared_error{}, x);
    net.compile({.max_batch_size = 8, .seed = 1, .micro_batch_size = 2});
    gradus::train::trainer trainer{net, gradus::optim::sgd{}, world, strategy...};
    try {
      trainer.fit(loader, {.epochs = 2, .learning_rate = learning_rate});
    } catch (const gradus::numeric_error& failure) {
      return failure.what();
    } catch (const gradus::error& failure) {
      return failure.what();  // of a rank that another one has stopped
    }
    return "no error";
  });
}

gradus::data::shard shard_of_rank(int rank, int ranks) {
  return {.rank = rank, .ranks = ranks};
}
gradus::data::shard nested_shard(int rank, int ranks) {
  return {.rank = rank, .ranks = ranks, .nested = true};
}
gradus::data::shard all_examples(int, int) {
  return {};
}

void require_one_with(const std::vector<std::string>& messages, const std::string& part) {
  bool found = false;
  std::string all;
  for (const std::string& message : messages) {
    BOOST_TEST(message.find("smaller learning rate") == std::string::npos, message);
    found = found || message.find(part) != std::string::npos;
    all += message + "\n";
  }
  BOOST_TEST(found, "'" << part << "' is not in: " << all);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(not_finite)

// Example 13 is at position 5 of the second batch.
BOOST_AUTO_TEST_CASE(a_target_that_is_not_finite_is_named) {
  few_examples spoiled;
  spoiled.targets[13] = not_a_number;
  const std::string target = "first not finite: the target of example ";
  const std::string position = "it is at position 13 in the order of the epoch";
  const auto alone = messages_of_training(1, shard_of_rank, spoiled, 0.01);
  require_one_with(alone, "training step 1 (epoch 1, rank 0): expected a finite loss, got nan, " + target +
                              "5 of the batch on this rank. Hint: correct the data, or leave the example out: " +
                              position + ", both counted from 0. The learning rate is not the cause");
  for (const std::string& part : {target + "1 ", position}) {
    require_one_with(messages_of_training(2, shard_of_rank, spoiled, 0.01), part);
    require_one_with(
        messages_of_training(2, nested_shard, spoiled, 0.01, gradus::parallel::reproducible<>{.virtual_workers = 4}),
        part);
  }
  for (const std::string& part : {target + "5 ", position}) {
    require_one_with(messages_of_training(2, all_examples, spoiled, 0.01, gradus::parallel::hybrid{.stages = 2}), part);
  }
}

BOOST_AUTO_TEST_CASE(an_input_that_is_not_finite_is_named) {
  few_examples spoiled;
  spoiled.inputs[2 * 13 + 1] = std::numeric_limits<float>::infinity();
  const std::string input = "first not finite: the input of example ";
  require_one_with(messages_of_training(1, shard_of_rank, spoiled, 0.01), input + "5 of the batch");
  require_one_with(
      messages_of_training(2, nested_shard, spoiled, 0.01, gradus::parallel::reproducible<>{.virtual_workers = 4}),
      input + "1 of the batch");
  require_one_with(messages_of_training(2, all_examples, spoiled, 0.01, gradus::parallel::hybrid{.stages = 2}),
                   input + "5 of the batch");
}

BOOST_AUTO_TEST_CASE(the_learning_rate_is_named_where_the_data_is_finite) {
  const auto messages = messages_of_training(1, shard_of_rank, {}, 1e30);
  BOOST_TEST(messages[0].find("Hint: a smaller learning rate than 1e+30, or a warm-up. All inputs and targets") !=
                 std::string::npos,
             messages[0]);
}

// What is not finite in the batch of one rank makes the parameters of all ranks so, and may be found by the others
// first.
BOOST_AUTO_TEST_CASE(a_rank_says_nothing_of_the_batches_of_the_others) {
  std::string all;
  for (const std::string& message : messages_of_training(2, shard_of_rank, {}, 1e30)) {
    all += message + "\n";
  }
  for (const char* const part : {"Or the batch of another rank had a number that is not finite",
                                 "All inputs and targets of the batch of this rank are finite"}) {
    BOOST_TEST(all.find(part) != std::string::npos, all);
  }
  BOOST_TEST(all.find("of the batch are finite") == std::string::npos, all);
}

// Numbers that the network is given by hand.
BOOST_AUTO_TEST_CASE(targets_and_weights_are_looked_at_where_they_are_given) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nchw> net{device, {.channels = 2}};
  net.loss(nn::mean_squared_error{}, net.add("output", nn::dense{.out_features = 2}, net.input()));
  net.compile({.max_batch_size = 3, .seed = 1});
  gradus::tensor<float, 4, gradus::nchw> images{device, {3, 2, 1, 1}};
  gradus::tensor<float, 4, gradus::nchw> values{device, {3, 2, 1, 1}};
  std::vector<float> weights(3, 1.0F);
  for (gradus::index_t i = 0; i < 6; ++i) {
    images.data()[i] = values.data()[i] = 1;
  }
  nn::targets<float, gradus::cpu> targets{values.view()};
  targets.weights = weights;
  BOOST_TEST(net.find_non_finite(images.view(), targets, {}).where.empty());
  BOOST_TEST(net.find_non_finite(images.view(), targets, {}).example == -1);
  weights[1] = not_a_number;
  BOOST_TEST(net.find_non_finite(images.view(), targets, {}).where == "the weight");
  BOOST_TEST(net.find_non_finite(images.view(), targets, {}).example == 1);
  values.data()[5] = not_a_number;
  BOOST_TEST(net.find_non_finite(images.view(), targets, {}).where == "the target");
  BOOST_TEST(net.find_non_finite(images.view(), targets, {}).example == 2);
  images.data()[1] = not_a_number;
  BOOST_TEST(net.find_non_finite(images.view(), targets, {}).where == "the input");
  BOOST_TEST(net.find_non_finite(images.view(), {}).example == 0);
  targets.weights = targets.weights.first(2);
  BOOST_CHECK_THROW((void)net.find_non_finite(images.view(), targets, {}), gradus::shape_error);
}

BOOST_AUTO_TEST_SUITE_END()
