// SPDX-License-Identifier: BSL-1.0
//
// A program over traced communicators: a training has the same numbers with and without recording, every layer,
// transfer, wait, copy and batch is in the file, and nothing is allocated in a step; messages have arrows.
#include <boost/test/unit_test.hpp>

#include <cstdio>   // std::remove
#include <fstream>  // std::ifstream
#include <string>   // std::string
#include <vector>   // std::vector

#include "../../support/allocation_count.hpp"
#include "../../support/trace_checks.hpp"
#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
#include "../../support/count_allocations.hpp"
#endif
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/layers/relu.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace trace = gradus::trace;
namespace train = gradus::train;

constexpr int ranks = 2;
constexpr int epochs = 3;
constexpr int steps = 7 * epochs;
/// The thread of each rank that moves buckets forward gets its ring when it first sees the end of a transfer, in any
/// step.
constexpr long allocations_of_rings = 2 * ranks;

struct result {
  std::vector<float> weights;
  /// By all ranks in the steps of an epoch but the first and the last, in the epochs after the first.
  long allocations = 0;
  std::vector<trace::breakdown> parts;
};

/// What rank 0 has after the epochs. Gradients travel in 16 bits, so that there are copies.
template <class Communicator, class Set, class Rule>
void train_on(Communicator& world, const Set& set, bool late, const Rule& rule, result& have) {
  namespace data = gradus::data;
  namespace nn = gradus::nn;
  gradus::cpu device{{.intra_op_threads = 1}};
  const data::loader_options batches{
      .global_batch_size = 8, .seed = 3, .shard = {.rank = world.rank(), .ranks = world.size()}};
  data::loader<float, gradus::nhwc> loader{device, set, batches};
  data::parallel_loader<float, gradus::nhwc> evaluated{device, set, batches, {.threads = 2}};
  nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  nn::value x = net.add("hidden", nn::dense{.out_features = 5}, net.input());
  x = net.add("relu", nn::relu{}, x);
  x = net.add("scores", nn::dense{.out_features = 4}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = loader.local_batch_size(), .seed = 5});
  gradus::parallel::compressed_all_reduce<> compressed;
  compressed.bucket_bytes = 100;
  compressed.first_bucket_bytes = 100;
  compressed.overlap_forward = late;
  train::trainer trainer{net, rule, world, compressed};
  long unused = 0;
  trainer.fit(loader, {.epochs = epochs, .learning_rate = 0.1},
              allocation_watch{.to = world.rank() == 0 ? &have.allocations : &unused},
              train::evaluate_every{evaluated, epochs});
  if (world.rank() == 0) {
    have.weights.assign(net.values().begin(), net.values().end());
  }
}

/// @param file  where the trace goes; empty: nothing is recorded
template <class Rule = gradus::optim::sgd>
result run(const std::string& file, bool late, const Rule& rule = {.momentum = 0.9}) {
  result have;
  const auto examples =
      gradus::data::make_synthetic({.examples = 53, .channels = 2, .height = 9, .width = 8, .classes = 4, .seed = 3});
  comm::run_ranks(ranks, [&](comm::threads& world) {
    trace::recorder recorder{{.capacity = 4096, .enabled = !file.empty()}};
    auto traced = trace::traced(world.duplicate(), recorder);
    const train::traced_set set{recorder, examples};
    train_on(traced, set, late, rule, have);
    if (file.empty()) {
      return;
    }
    const auto all = trace::write(file, recorder, traced, {.model = "small", .batch_size_per_rank = 4, .threads = 1});
    if (world.rank() == 0) {
      have.parts = trace::breakdown_of(all);
    }
  });
  return have;
}

nlohmann::json read(const std::string& file) {
  std::ifstream in{file};
  auto have = nlohmann::json::parse(in);
  std::remove(file.c_str());
  return have;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_training)

BOOST_AUTO_TEST_CASE(everything_a_step_does_is_there) {
  const result plain = run({}, false);
  const result have = run("trace_training_test.json", false);
  BOOST_TEST((have.weights == plain.weights));
#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
  BOOST_TEST(have.allocations <= allocations_of_rings);
  BOOST_TEST(plain.allocations == 0);
#endif
  const auto file = read("trace_training_test.json");
  BOOST_TEST(gradus_test::first_complaint(file) == "");
  const auto spans = gradus_test::spans_of(file);
  const auto count = [&](int rank, const char* category, const char* name) {
    return gradus_test::count_spans(spans, rank, category, name);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    BOOST_TEST(count(rank, "step", "step") == steps);
    BOOST_TEST(count(rank, "forward", "forward") == steps);
    BOOST_TEST(count(rank, "backward", "backward") == steps);
    BOOST_TEST(count(rank, "forward", "scores") == steps);
    BOOST_TEST(count(rank, "backward", "hidden") == steps);
    BOOST_TEST(count(rank, "update", "update") == 3 * steps);  // of each bucket
    BOOST_TEST(count(rank, "exchange", "exchange") >= steps);
    BOOST_TEST(count(rank, "input", "input") == steps);
    BOOST_TEST(count(rank, "communicate", "all_reduce gradients 0") == steps);
    BOOST_TEST(count(rank, "communicate", "all_reduce gradients 1") == steps);
    BOOST_TEST(count(rank, "wait", "wait gradients 0") <= steps);
    BOOST_TEST(count(rank, "evaluate", "evaluate") == 1);
    BOOST_TEST(count(rank, "copy", "copy gradients 1") == 2 * steps);  // rounded, and back
    BOOST_TEST(count(rank, "input", "batch") >= steps + 7);            // by the threads of both loaders
    BOOST_TEST(count(rank, "input", "read") >= 7);                     // of the one of which several read
    int beside = 0;
    for (const auto& [track, of_track] : spans) {
      beside += track.first == rank && track.second % 8 == 3 ? static_cast<int>(of_track.size()) : 0;
    }
    BOOST_TEST(beside == count(rank, "input", "batch") + count(rank, "input", "read"));
    int told_apart = 0;
    for (const auto& [track, of_track] : spans) {
      for (const auto& one : of_track) {
        told_apart += track.first == rank && one.args.contains("all_arrived_us") ? 1 : 0;
      }
    }
    BOOST_TEST(told_apart > 2 * steps);
    // The phases of a step fill it.
    const trace::breakdown& parts = have.parts.at(static_cast<std::size_t>(rank));
    BOOST_TEST(parts.steps == steps);
    const double sum = parts.forward + parts.backward + parts.exchange + parts.update + parts.wait + parts.input +
                       parts.copy + parts.evaluate + parts.log + parts.other;
    BOOST_TEST(sum == parts.total, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(
        (parts.forward > 0 && parts.backward > 0 && parts.exchange > 0 && parts.update > 0 && parts.communicate > 0));
  }
}

BOOST_AUTO_TEST_CASE(updates_behind_forward_are_seen_there) {
  const result have = run("trace_training_late_test.json", true);
  BOOST_TEST((have.weights == run({}, true).weights));
  const auto file = read("trace_training_late_test.json");
  BOOST_TEST(gradus_test::first_complaint(file) == "");
  const auto spans = gradus_test::spans_of(file);
  BOOST_TEST(gradus_test::count_spans(spans, 0, "update") > steps);
}

// The scale reaches the network through the recording, and updates are not put off with it.
BOOST_AUTO_TEST_CASE(a_scaled_loss_changes_no_bit_and_allocates_nothing) {
  const result plain = run({}, false);
  const gradus::optim::update<gradus::optim::sgd> rule{.rule = {.momentum = 0.9},
                                                       .loss_scaling = {.initial = 1024, .growth_interval = 5}};
  const result have = run("trace_training_scaled_test.json", true, rule);
  BOOST_TEST((have.weights == plain.weights));
#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
  BOOST_TEST(have.allocations <= allocations_of_rings);
#endif
  const auto file = read("trace_training_scaled_test.json");
  BOOST_TEST(gradus_test::first_complaint(file) == "");
  BOOST_TEST(gradus_test::count_spans(gradus_test::spans_of(file), 0, "update") == 3 * steps);  // of each bucket
}

BOOST_AUTO_TEST_CASE(ranks_exchange_messages_and_write_one_file) {
  const std::string file = "trace_chrome_test.json";
  comm::run_ranks(3, [&](comm::threads& world) {
    trace::recorder recorder;
    auto seen = trace::traced(world.duplicate(), recorder);
    auto other = seen.duplicate();
    std::vector<float> values(100);
    recorder.name_memory(std::as_bytes(std::span{values}), "values");
    for (int round = 0; round < 5; ++round) {
      const int next = (world.rank() + 1) % 3;
      const int before = (world.rank() + 2) % 3;
      std::vector<float> received(100);
      auto receive = comm::receive(seen, before, received, 3);
      comm::send(seen, next, values, 3).wait();
      receive.wait();
      comm::all_reduce(other, values).wait();
    }
    trace::write(file, recorder, seen);
  });
  const auto have = read(file);
  BOOST_TEST(gradus_test::first_complaint(have) == "");
  const auto spans = gradus_test::spans_of(have);
  int arrows = 0;
  for (const auto& event : have.at("traceEvents")) {
    arrows += event.at("ph") == "f" ? 1 : 0;
  }
  BOOST_TEST(arrows == 15);
  for (int rank = 0; rank < 3; ++rank) {
    BOOST_TEST(gradus_test::count_spans(spans, rank, "communicate", "all_reduce values") == 5);
    BOOST_TEST(gradus_test::count_spans(spans, rank, "communicate", "send values") == 5);
    BOOST_TEST(gradus_test::count_spans(spans, rank, "wait", "wait values") == 10);
  }
}

// Only their messages pass the communicator that is traced, and none of these is waited for.
BOOST_AUTO_TEST_CASE(collectives_of_messages_are_seen_and_waited_for) {
  const std::string file = "trace_collectives_test.json";
  comm::run_ranks(3, [&](comm::threads& world) {
    trace::recorder recorder;
    auto seen = trace::traced(world.duplicate(), recorder);
    comm::collectives<decltype(seen)> all{seen.duplicate(), {.all_reduce = comm::parse_all_reduce_spec("ring")}};
    std::vector<float> values(100);
    recorder.name_memory(std::as_bytes(std::span{values}), "values");
    for (int round = 0; round < 5; ++round) {
      comm::all_reduce(all, values).wait();
    }
    comm::barrier(all).wait();
    trace::write(file, recorder, seen);
  });
  const auto have = read(file);
  BOOST_TEST(gradus_test::first_complaint(have) == "");
  const auto spans = gradus_test::spans_of(have);
  for (int rank = 0; rank < 3; ++rank) {
    BOOST_TEST(gradus_test::count_spans(spans, rank, "communicate", "all_reduce values") == 5);
    BOOST_TEST(gradus_test::count_spans(spans, rank, "communicate", "send values") == 5 * 4);
    BOOST_TEST(gradus_test::count_spans(spans, rank, "wait", "wait values") == 5);
    BOOST_TEST(gradus_test::count_spans(spans, rank, "wait", "wait barrier") == 1);
    int told = 0;
    for (const auto& [track, of_track] : spans) {
      for (const auto& one : of_track) {
        told += track.first == rank && one.name == "all_reduce values" && one.args.contains("all_arrived_us") ? 1 : 0;
      }
    }
    BOOST_TEST(told == 5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
