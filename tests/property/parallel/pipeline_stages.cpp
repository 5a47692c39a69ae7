// SPDX-License-Identifier: BSL-1.0
//
// Cuts into stages against all cuts there are, on random networks with skip connections.
#include "gradus/pipeline/stages.hpp"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"
#include "idx_files.hpp"

namespace {

namespace cutting = gradus::parallel;
using cutting::pipeline_layer;
using cutting::pipeline_stages;
using cutting::stage_options;

constexpr double no_cut = std::numeric_limits<double>::infinity();

/// Whole numbers from a generator, so that sums of times are exact.
class stage_numbers {
 public:
  explicit stage_numbers(std::uint64_t seed) : stream_{seed, "stages"} {}
  std::size_t below(std::size_t bound) { return stream_.bits(next_++) % bound; }

 private:
  gradus::random_stream stream_;
  std::uint64_t next_ = 0;
};

std::vector<pipeline_layer> random_network(stage_numbers& random, std::size_t count) {
  std::vector<pipeline_layer> layers;
  for (std::size_t i = 0; i < count; ++i) {
    pipeline_layer& each = layers.emplace_back();
    each.name = "layer" + std::to_string(i);
    each.inputs = {i};
    if (random.below(3) == 0) {
      each.inputs.push_back(random.below(i + 1));
    }
    each.forward = static_cast<double>(random.below(5));
    each.input_gradients = static_cast<double>(random.below(5));
    each.weight_gradients = static_cast<double>(random.below(5));
    each.state_bytes = random.below(50);
    each.stored_bytes = random.below(20);
    each.output_bytes = 1 + random.below(16);
  }
  return layers;
}

/// The bytes at a cut by definition: outputs of layers before it, and the input, that a layer behind it reads.
std::size_t bytes_at(const std::vector<pipeline_layer>& layers, std::size_t cut, std::size_t input_bytes) {
  std::size_t bytes = 0;
  for (std::size_t value = 0; value <= cut; ++value) {
    const bool read =
        std::any_of(layers.begin() + static_cast<std::ptrdiff_t>(cut), layers.end(), [&](const auto& each) {
          return std::find(each.inputs.begin(), each.inputs.end(), value) != each.inputs.end();
        });
    bytes += !read ? 0 : value == 0 ? input_bytes : layers[value - 1].output_bytes;
  }
  return bytes;
}

/// What some cuts lead to, by definition.
struct outcome {
  double longest = 0;
  std::size_t bytes = 0;
  std::size_t memory = 0;  // of the stage that needs most
};

outcome outcome_of(const std::vector<pipeline_layer>& layers, const std::vector<std::size_t>& cuts,
                   const std::vector<int>& stored, const stage_options& options) {
  outcome result;
  for (std::size_t s = 0; s <= cuts.size(); ++s) {
    const std::size_t first = s == 0 ? 0 : cuts[s - 1];
    const std::size_t end = s == cuts.size() ? layers.size() : cuts[s];
    double time = 0;
    std::size_t state = 0;
    std::size_t kept = s == 0 ? 0 : bytes_at(layers, first, options.input_bytes);
    for (std::size_t i = first; i < end; ++i) {
      time += layers[i].forward + layers[i].input_gradients + layers[i].weight_gradients;
      state += layers[i].state_bytes;
      kept += layers[i].stored_bytes;
    }
    result.longest = std::max(result.longest, time);
    result.memory = std::max(result.memory, state + static_cast<std::size_t>(stored[s]) * kept);
    if (s < cuts.size()) {
      const std::size_t bytes = bytes_at(layers, end, options.input_bytes);
      result.bytes += bytes;
      result.longest =
          std::max(result.longest, options.transfer_latency + static_cast<double>(bytes) / options.bytes_per_time);
    }
  }
  return result;
}

/// Calls visit with all ways to cut `count` layers into `stages` stages.
void for_all_cuts(std::size_t count, std::size_t stages,
                  const std::function<void(const std::vector<std::size_t>&)>& visit) {
  std::vector<std::size_t> cuts;
  const std::function<void(std::size_t)> add = [&](std::size_t least) {
    if (cuts.size() + 1 == stages) {
      visit(cuts);
      return;
    }
    for (std::size_t cut = least; cut < count; ++cut) {
      cuts.push_back(cut);
      add(cut + 1);
      cuts.pop_back();
    }
  };
  add(1);
}

std::vector<std::size_t> cuts_of(const pipeline_stages& found) {
  std::vector<std::size_t> cuts;
  for (std::size_t s = 1; s < found.stages.size(); ++s) {
    cuts.push_back(found.stages[s].first);
  }
  return cuts;
}

template <class Action>
std::string message_of_stages(Action&& action) {
  return idx_files::message_of<gradus::configuration_error>(action);
}

bool has_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pipeline_stages_suite)

BOOST_AUTO_TEST_CASE(cuts_are_the_best_of_all) {
  stage_numbers random{11};
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 2 + random.below(9);
    const auto layers = random_network(random, count);
    const int ranks = static_cast<int>(1 + random.below(std::min<std::size_t>(count, 4)));
    const int micro_batches = static_cast<int>(1 + random.below(6));
    const auto schedule = random.below(2) == 0 ? cutting::gpipe_schedule(ranks, micro_batches)
                                               : cutting::one_f_one_b_schedule(ranks, micro_batches);
    const std::array<double, 3> rates{0.5, 2.0, no_cut};
    const stage_options options{
        .input_bytes = random.below(10),
        .memory_limit = random.below(2) == 0 ? 100 + random.below(400) : std::numeric_limits<std::size_t>::max(),
        .transfer_latency = static_cast<double>(random.below(3)),
        .bytes_per_time = rates[random.below(rates.size())],
        .tolerance = random.below(2) == 0 ? 0 : 0.25};
    const std::vector<int> stored = cutting::simulate_schedule(schedule).stored;

    std::vector<outcome> allowed;
    for_all_cuts(count, stored.size(), [&](const auto& cuts) {
      const outcome each = outcome_of(layers, cuts, stored, options);
      if (each.memory <= options.memory_limit) {
        allowed.push_back(each);
      }
    });
    double longest = no_cut;
    for (const outcome& each : allowed) {
      longest = std::min(longest, each.longest);
    }
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (const outcome& each : allowed) {
      if (each.longest <= longest * (1 + options.tolerance)) {
        fewest = std::min(fewest, each.bytes);
      }
    }

    if (allowed.empty()) {
      ++refused;
      BOOST_TEST(has_text(message_of_stages([&] { cutting::cut_into_stages(layers, schedule, options); }),
                          "choose more stages"));
      continue;
    }
    const pipeline_stages found = cutting::cut_into_stages(layers, schedule, options);
    const outcome mine = outcome_of(layers, cuts_of(found), stored, options);
    BOOST_TEST(mine.longest <= longest * (1 + options.tolerance));
    BOOST_TEST(mine.bytes == fewest);
    std::size_t memory = 0;
    std::size_t sent = 0;
    for (const auto& each : found.stages) {
      memory = std::max(memory, each.memory_bytes);
      sent += each.sent_bytes;
      std::size_t of_values = 0;
      for (const std::size_t value : each.sent_values) {
        of_values += value == 0 ? options.input_bytes : layers[value - 1].output_bytes;
      }
      BOOST_TEST(of_values == each.sent_bytes);
    }
    BOOST_TEST(memory == mine.memory);
    BOOST_TEST(sent == mine.bytes);
    BOOST_TEST(found.step.makespan * ranks * (1 - found.step.bubble) == found.serial_time(micro_batches),
               boost::test_tools::tolerance(1e-9));
  }
  BOOST_TEST(refused > 10);
  BOOST_TEST(refused < 200);
}

BOOST_AUTO_TEST_CASE(the_fewest_stages_that_fit) {
  stage_numbers random{5};
  const auto layers = random_network(random, 10);
  const auto one_f_one_b = [](int stages) { return cutting::one_f_one_b_schedule(stages, 4); };
  std::optional<pipeline_stages> before;
  for (std::size_t limit = 50; limit < 2000; limit += 50) {
    const auto found = cutting::fewest_stages(layers, one_f_one_b, {.memory_limit = limit});
    BOOST_TEST(!(before && !found));
    if (found) {
      BOOST_TEST((!before || found->stages.size() <= before->stages.size()));
      if (found->stages.size() > 1) {
        const auto schedule = one_f_one_b(static_cast<int>(found->stages.size()) - 1);
        BOOST_CHECK_THROW(cutting::cut_into_stages(layers, schedule, {.memory_limit = limit}),
                          gradus::configuration_error);
      }
    }
    before = found;
  }
  BOOST_TEST_REQUIRE(before.has_value());
  BOOST_TEST(before->stages.size() == 1U);
}

BOOST_AUTO_TEST_CASE(cuts_by_name) {
  stage_numbers random{3};
  const auto layers = random_network(random, 6);
  const auto schedule = cutting::one_f_one_b_schedule(3, 4);
  const std::vector<std::string> names{"layer2", "layer5"};
  const pipeline_stages cut = cutting::cut_at(layers, schedule, names);
  BOOST_TEST(cuts_of(cut) == (std::vector<std::size_t>{2, 5}), boost::test_tools::per_element());
  BOOST_TEST(has_text(cutting::stages_text(layers, cut), "stage 1: 'layer2' to 'layer4' (3 layers), "));

  const auto refused = [&](std::vector<std::string> given) {
    return message_of_stages([&] { cutting::cut_at(layers, schedule, given); });
  };
  BOOST_TEST(has_text(refused({"layer2"}), "expected 2 names, the first layers of all stages but the first, got 1"));
  BOOST_TEST(has_text(refused({"layer2", "other"}), "'other'"));
  BOOST_TEST(has_text(refused({"layer2", "layer2"}), "'layer2', which is layer 2"));
  BOOST_TEST(has_text(refused({"layer0", "layer2"}), "'layer0', which is layer 0"));
  const auto two = std::span{layers}.first(2);
  BOOST_TEST(has_text(message_of_stages([&] { cutting::cut_into_stages(two, schedule); }), "choose fewer stages"));
  auto wrong = layers;
  wrong[1].inputs = {4};
  BOOST_TEST(has_text(message_of_stages([&] { cutting::cut_into_stages(wrong, schedule); }), "values 0 to 1"));
  wrong = layers;
  wrong[1].forward = -1;
  BOOST_TEST(has_text(message_of_stages([&] { cutting::cut_into_stages(wrong, schedule); }), "times of at least 0"));
  BOOST_TEST(has_text(message_of_stages([&] { cutting::cut_into_stages(layers, schedule, {.tolerance = -1}); }),
                      "a tolerance and a latency of at least 0"));
}

BOOST_AUTO_TEST_CASE(times_of_stages_may_differ) {
  const auto schedule = cutting::gpipe_schedule(2, 3);
  const std::vector<cutting::pipeline_costs> costs{{1, 1, 1, 0.5}, {2, 2, 2, 0}};
  // Stage 1 is the longer one: it begins at 1.5 and never waits; then the last gradients go back.
  BOOST_TEST(cutting::simulate_schedule(schedule, costs).makespan == 1.5 + 3 * 6 + 0.5 + 2);
  BOOST_TEST(has_text(message_of_stages([&] { cutting::simulate_schedule(schedule, std::span{costs}.first(1)); }),
                      "the times of 2 stages"));
}

BOOST_AUTO_TEST_SUITE_END()
