// SPDX-License-Identifier: BSL-1.0
//
// A training over a traced communicator: the same numbers with and without recording, every layer, transfer, wait and
// batch in the file, and nothing allocated in a step.
#include <boost/test/unit_test.hpp>

#include <cmath>    // std::abs
#include <cstdio>   // std::remove
#include <fstream>  // std::ifstream
#include <string>   // std::string
#include <vector>   // std::vector

#include "../../support/trace_checks.hpp"
#include "../../support/training_runs.hpp"
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GRADUS_TEST_COUNTS_ALLOCATIONS
#include "../../support/count_allocations.hpp"
#endif
#include "gradus/comm/threads.hpp"
#include "gradus/train/traced.hpp"

namespace {

namespace comm = gradus::comm;
namespace trace = gradus::trace;
namespace train = gradus::train;

constexpr int ranks = 2;
constexpr int steps = 14;  // of two epochs

struct result {
  std::vector<float> weights;
  long allocations = 0;  // by all ranks in the steps of the second epoch but the first and the last
  std::vector<trace::breakdown> parts;
};

struct allocation_watch {
  result* to;
  long before = 0;
  void on_step([[maybe_unused]] const train::step_report& step) {
#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
    if (step.epoch == 1 && step.step_in_epoch == 0) {
      before = allocations.load();
    } else if (step.epoch == 1 && step.step_in_epoch + 2 == step.steps_per_epoch) {
      to->allocations = allocations.load() - before;
    }
#endif
  }
};

/// What rank 0 has after two epochs.
template <class Communicator, class Set>
void train_on(Communicator& world, const Set& set, bool late, result& have) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{
      device, set, {.batch_size = 8, .seed = 3, .shard = {.rank = world.rank(), .ranks = world.size()}}};
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.freeze({.batch_size = loader.local_batch_size(), .seed = 5});
  train::trainer trainer{
      net, gradus::optim::sgd{.momentum = 0.9}, world,
      gradus::parallel::all_reduce{.bucket_bytes = 1000, .first_bucket_bytes = 1000, .overlap_forward = late}};
  result unused;
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.1}, allocation_watch{world.rank() == 0 ? &have : &unused},
              train::evaluate_every{loader, 2});
  if (world.rank() == 0) {
    have.weights.assign(net.values().begin(), net.values().end());
  }
}

/// @param file  where the trace goes; empty: nothing is recorded
result run(const std::string& file, bool late) {
  result have;
  comm::run_ranks(ranks, [&](comm::threads& world) {
    trace::recorder recorder{{.capacity = 4096, .enabled = !file.empty()}};
    auto traced = trace::traced(world.duplicate(), recorder);
    const train::traced_set set{recorder, gradus_test::small_dataset()};
    train_on(traced, set, late, have);
    if (file.empty()) {
      return;
    }
    const auto all = trace::write(file, recorder, traced, {.model = "small", .batch_size = 4, .threads = 1});
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
  BOOST_TEST(have.allocations == 0);
  BOOST_TEST(plain.allocations == 0);
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
    BOOST_TEST(count(rank, "forward", "conv2") == steps);
    BOOST_TEST(count(rank, "backward", "conv1") == steps);
    BOOST_TEST(count(rank, "update", "update") == steps);
    BOOST_TEST(count(rank, "input", "input") == steps);
    BOOST_TEST(count(rank, "communicate", "all_reduce gradients 0") == steps);
    BOOST_TEST(count(rank, "communicate", "all_reduce gradients 1") == steps);
    BOOST_TEST(count(rank, "wait", "wait gradients 0") <= steps);
    BOOST_TEST(count(rank, "evaluate", "evaluate") == 1);
    BOOST_TEST(spans.at({rank, 3}).size() >= static_cast<std::size_t>(steps));  // the loader's thread
    int told_apart = 0;
    for (const auto& [place, of_place] : spans) {
      for (const auto& one : of_place) {
        told_apart += place.first == rank && one.args.contains("all_arrived_us") ? 1 : 0;
      }
    }
    BOOST_TEST(told_apart > 2 * steps);
    // The phases of a step fill it.
    const trace::breakdown& parts = have.parts.at(static_cast<std::size_t>(rank));
    BOOST_TEST(parts.steps == steps);
    const double sum = parts.forward + parts.backward + parts.update + parts.wait + parts.input + parts.copy +
                       parts.evaluate + parts.log + parts.other;
    BOOST_TEST(sum == parts.total, boost::test_tools::tolerance(1e-9));
    BOOST_TEST((parts.forward > 0 && parts.backward > 0 && parts.update > 0 && parts.communicate > 0));
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

BOOST_AUTO_TEST_SUITE_END()
