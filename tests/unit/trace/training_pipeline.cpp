// SPDX-License-Identifier: BSL-1.0
//
// A traced training in stages: the same numbers as without recording, nothing is allocated in a step, and the file has
// every pass of the schedule in its order, with its waits outside, and the names of what crosses the cuts.
#include <boost/test/unit_test.hpp>

#include <cstdio>   // std::remove
#include <fstream>  // std::ifstream
#include <map>      // std::map
#include <string>   // std::string
#include <utility>  // std::pair
#include <vector>   // std::vector

#include "../../support/allocation_count.hpp"
#include "../../support/trace_checks.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/layers/relu.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"

namespace trace_training_pipeline_tests {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
namespace trace = gradus::trace;
namespace train = gradus::train;

constexpr int micro_batches = 3;
constexpr int epochs = 3;
constexpr int steps_per_epoch = 6;

struct result {
  std::vector<std::vector<float>> weights;  // of each rank
  long allocations = 0;                     // by all ranks in the steps that repeat earlier ones
};

/// @param file  where the trace goes; empty: nothing is recorded
result run(int ranks, const parallel::hybrid& options, const std::string& file) {
  namespace data = gradus::data;
  namespace nn = gradus::nn;
  const auto examples = data::make_synthetic(
      {.examples = 12 * steps_per_epoch, .channels = 2, .height = 5, .width = 4, .classes = 4, .seed = 3});
  result have;
  have.weights.resize(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::threads& world) {
    trace::recorder recorder{{.capacity = 16384, .enabled = !file.empty()}};
    auto traced = trace::traced(world.duplicate(), recorder);
    gradus::cpu device{{.intra_op_threads = 1}};
    data::loader<float, gradus::nhwc> loader{device, examples, {.global_batch_size = 12, .seed = 3}};
    nn::network<float, gradus::nhwc> net{device, {2, 5, 4}};
    nn::value x = net.input();
    for (const char* const each : {"first", "second", "third"}) {
      x = net.add(std::string{each} + "_relu", nn::relu{}, net.add(each, nn::dense{.out_features = 6}, x));
    }
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 4}, x));
    net.compile({.max_batch_size = 12 * options.stages / ranks, .seed = 5});
    train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, traced, options};
    long unused = 0;
    trainer.fit(loader, {.epochs = epochs, .learning_rate = 0.1},
                allocation_watch{.to = world.rank() == 0 ? &have.allocations : &unused});
    have.weights[static_cast<std::size_t>(world.rank())].assign(net.values().begin(), net.values().end());
    if (!file.empty()) {
      trace::write(file, recorder, traced, {.model = "small"});
    }
  });
  return have;
}

/// The passes of a rank in a step, by their time.
std::vector<parallel::pipeline_action> passes_of(const gradus_test::traced_spans& spans, int rank, int step) {
  const std::map<std::string, parallel::pipeline_pass> names{
      {"forward", parallel::pipeline_pass::forward},
      {"backward", parallel::pipeline_pass::backward},
      {"gradients of inputs", parallel::pipeline_pass::input_gradients},
      {"gradients of weights", parallel::pipeline_pass::weight_gradients}};
  std::vector<parallel::pipeline_action> passes;
  for (const gradus_test::traced_span& one : spans.at({rank, 0})) {
    if (one.args.contains("stage") && one.args.at("step").get<int>() == step) {
      passes.push_back({names.at(one.name), one.args.at("stage").get<int>(), one.args.at("micro_batch").get<int>()});
      BOOST_TEST(one.category == (one.name == "forward" ? "forward" : "backward"));
    }
  }
  return passes;
}

BOOST_AUTO_TEST_SUITE(trace_training_pipeline)

BOOST_AUTO_TEST_CASE(every_pass_is_there_in_the_order_of_the_schedule) {
  const std::string file = "trace_training_pipeline_test.json";
  for (const parallel::pipeline_rule& rule : {parallel::gpipe, parallel::one_f_one_b, parallel::zero_bubble}) {
    const int stages_per_rank = rule.name == parallel::one_f_one_b.name ? 2 : 1;
    const parallel::hybrid options{.stages = 2,
                                   .micro_batches = micro_batches,
                                   .schedule = rule,
                                   .stages_per_rank = stages_per_rank,
                                   .first_layers = stages_per_rank == 1
                                                       ? std::vector<std::string>{"third"}
                                                       : std::vector<std::string>{"second", "third", "scores"}};
    const result plain = run(4, options, {});
    const result have = run(4, options, file);
    BOOST_TEST((have.weights == plain.weights));
    std::ifstream in{file};
    const auto trace = nlohmann::json::parse(in);
    std::remove(file.c_str());
    BOOST_TEST(gradus_test::first_complaint(trace) == "");
    const auto spans = gradus_test::spans_of(trace);
    const parallel::pipeline_schedule schedule = rule.make(2, micro_batches, stages_per_rank);
    for (int rank = 0; rank < 4; ++rank) {  // ranks 2 and 3 are a replica of 0 and 1
      for (int step = 0; step < epochs * steps_per_epoch; ++step) {
        BOOST_TEST((passes_of(spans, rank, step) == schedule.of_rank(rank % 2)));
      }
      BOOST_TEST(gradus_test::count_spans(spans, rank, "step", "step") == epochs * steps_per_epoch);
      int layers = 0;
      int outside = 0;
      int nameless = 0;
      for (const auto& [track, of_track] : spans) {
        for (const gradus_test::traced_span& one : of_track) {
          const bool own = track.first == rank;
          const bool message = one.args.contains("step") && one.args.contains("operation") &&
                               (one.args.at("operation") == "send" || one.args.at("operation") == "receive");
          layers += own && track.second % 8 == 1 && one.category == "forward" ? 1 : 0;
          nameless += own && message && !one.args.contains("bucket") ? 1 : 0;
          if (own && one.category == "wait") {
            for (const gradus_test::traced_span& pass : spans.at({rank, 0})) {
              outside += pass.args.contains("stage") && pass.begin < one.begin && one.end < pass.end ? 1 : 0;
            }
          }
        }
      }
      BOOST_TEST(layers > 0);
      BOOST_TEST(outside == 0);  // a rank waits between passes
      BOOST_TEST(nameless == 0);
    }
    // What crosses the last cut, and its gradient on the way back, in one replica.
    const int messages = epochs * steps_per_epoch * micro_batches;
    const std::string of_cut = stages_per_rank == 1 ? "second_relu" : "third_relu";
    int sent = 0;
    int back = 0;
    for (const char* const operation : {"send", "receive"}) {
      for (int rank = 0; rank < 2; ++rank) {
        sent += gradus_test::count_spans(spans, rank, "communicate",
                                         std::string{operation} + " values of '" + of_cut + "'");
        back += gradus_test::count_spans(spans, rank, "communicate",
                                         std::string{operation} + " gradients of '" + of_cut + "'");
      }
    }
    BOOST_TEST(sent == 2 * messages);
    BOOST_TEST(back == 2 * messages);
  }
}

#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
// In one replica. Sums over several add tags to a table until each was used once.
BOOST_AUTO_TEST_CASE(steps_allocate_nothing) {
  const std::string file = "trace_training_pipeline_test.json";
  for (const parallel::pipeline_rule& rule : {parallel::gpipe, parallel::one_f_one_b, parallel::zero_bubble}) {
    const parallel::hybrid options{.stages = 2, .micro_batches = micro_batches, .schedule = rule};
    BOOST_TEST(run(2, options, {}).allocations == 0);
    BOOST_TEST(run(2, options, file).allocations == 0);
    std::remove(file.c_str());
  }
}
#endif

BOOST_AUTO_TEST_SUITE_END()

}  // namespace trace_training_pipeline_tests
