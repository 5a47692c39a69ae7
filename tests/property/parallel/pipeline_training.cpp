// SPDX-License-Identifier: BSL-1.0
//
// Random networks trained in pipelines on thread ranks: the same bits as one process with the same micro-batches.
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "communicators_by_order.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/error.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/pipeline/network_layers.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "hybrid_training.hpp"
#include "reference/graph_text.hpp"
#include "reference/random_graphs.hpp"
#include "sweep.hpp"

namespace pipeline_training {

using namespace gradus_test;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using outcome = hybrid_outcome<float>;

/// What one case trains.
struct training {
  graph_spec graph;
  gradus::data::image_dataset dataset;
  parallel::hybrid pipeline;
  hybrid_setup how;
  bool nhwc = false;
  int rule = 0;
  bool by_order = false;  // messages are matched by their order
};

constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

/// The layers with which a stage may begin, without the first. Where layers share memory depends on the layout.
template <class Layout>
std::vector<std::string> first_layers_of(const training& what) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, Layout> net{device, what.graph.input};
  build(net, what.graph);
  std::vector<std::string> names;
  for (const parallel::pipeline_layer& layer : parallel::pipeline_layers(net, what.how.compile)) {
    if (layer.may_begin) {
      names.push_back(layer.name);
    }
  }
  names.erase(names.begin());
  return names;
}

training draw_case(sweep_case& random) {
  draws draw{random.bits()};
  graph_spec graph = graph_generator{draw.bits(), draw.between(4, 18)}.generate();
  const gradus::index_t classes = shapes_of(graph)->back().channels;
  const gradus::index_t batch = random.between("batch", 1, 12);
  const gradus::index_t examples = batch + random.between("more_examples", 0, batch);  // one or two steps
  const nn::value_shape image = graph.input;
  training what{.graph = std::move(graph),
                .dataset = gradus::data::make_synthetic({.examples = std::max(examples, classes),
                                                         .channels = image.channels,
                                                         .height = image.height,
                                                         .width = image.width,
                                                         .classes = static_cast<int>(classes),
                                                         .seed = draw.bits()}),
                .pipeline = {},
                .how = {}};
  what.how.batch_size = batch;
  what.how.epochs = 1;
  what.how.learning_rate = 0.01;
  what.how.compile = {.max_batch_size = batch + random.one_of("unused", {0, 0, 1, 3}), .seed = draw.bits()};
  what.how.compile.recompute = random.flip("recompute", 3);
  if (random.flip("optimizations", 4)) {
    what.how.compile.optimizations = {.fuse_activations = random.flip("fuse_activations"),
                                      .relu_in_place = random.flip("relu_in_place"),
                                      .fuse_sums = random.flip("fuse_sums"),
                                      .share_gradients = random.flip("share_gradients"),
                                      .reuse_memory = random.flip("reuse_memory")};
  }
  what.how.compiled_before = random.flip("compiled_before");
  if (!what.how.compiled_before) {
    what.pipeline.compile = what.how.compile;
  }
  what.nhwc = random.flip("nhwc");
  what.rule = static_cast<int>(random.between("rule", 0, 3));
  what.by_order = random.flip("by_order", 3);
  what.pipeline.micro_batches =
      static_cast<int>(random.between("micro_batches", 1, std::min<gradus::index_t>(batch + 1, 10)));
  what.pipeline.schedule = parallel::pipeline_rules[static_cast<std::size_t>(random.between("schedule", 0, 2))];
  what.how.compile.micro_batch_size = (what.how.compile.max_batch_size - 1) / what.pipeline.micro_batches + 1;
  std::vector<std::string> names =
      what.nhwc ? first_layers_of<gradus::nhwc>(what) : first_layers_of<gradus::nchw>(what);
  what.how.compile.micro_batch_size = 0;
  const auto most = static_cast<gradus::index_t>(names.size() + 1);
  what.pipeline.stages = static_cast<int>(
      random.between("stages", std::min<gradus::index_t>(2, most), std::min<gradus::index_t>(6, most)));
  if (what.pipeline.schedule == parallel::one_f_one_b) {
    what.pipeline.stages_per_rank = static_cast<int>(
        random.between("stages_per_rank", 1, std::min<gradus::index_t>(3, most / what.pipeline.stages)));
  }
  const auto cuts = static_cast<std::size_t>(what.pipeline.stages * what.pipeline.stages_per_rank - 1);
  while (names.size() > cuts) {
    names.erase(names.begin() + draw.between(0, static_cast<gradus::index_t>(names.size()) - 1));
  }
  for (const std::string& name : names) {
    random.note(name);
  }
  what.pipeline.first_layers = names;
  return what;
}

template <class Communicator, class Strategy>
outcome train_case(Communicator& world, const Strategy& strategy, const training& what, const hybrid_setup& how) {
  const auto with = [&]<class Layout>(const auto& rule) {
    return train_on_rank<Layout>(world, rule, strategy, how, what.dataset, [&](auto& net) { build(net, what.graph); });
  };
  const auto in_layout = [&](const auto& rule) {
    return what.nhwc ? with.template operator()<gradus::nhwc>(rule) : with.template operator()<gradus::nchw>(rule);
  };
  switch (what.rule) {
    case 0:
      return in_layout(momentum);
    case 1:
      return in_layout(optim::adam{});
    case 2:
      return in_layout(optim::update<optim::sgd>{.rule = momentum, .max_norm = 0.5});
    default:
      return in_layout(optim::update<optim::sgd>{
          .rule = momentum, .max_norm = 0.5, .clip_value = 0.25, .loss_scaling = {.initial = 1024}, .average = 0.9});
  }
}

/// The same bits, also of zeros and of what is not a number.
template <class Bits, class Number>
bool same_bits(const std::vector<Number>& a, const std::vector<Number>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](Number x, Number y) { return std::bit_cast<Bits>(x) == std::bit_cast<Bits>(y); });
}

/// What differs between the ranks of a pipeline and one process; empty if nothing does.
std::string difference_of(const std::vector<outcome>& ranks, const outcome& want) {
  const auto values = values_of_ranks(ranks);
  for (const auto& [name, elements] : want.values) {
    const auto found = values.find(name);
    if (found == values.end()) {
      return "no rank has " + name;
    }
    if (!same_bits<std::uint32_t>(found->second, elements)) {
      return "other bits of " + name;
    }
  }
  std::size_t held = 0;
  for (const outcome& rank : ranks) {
    held += rank.values.size();
    if (!same_bits<std::uint64_t>(rank.losses, want.losses)) {
      return "other losses";
    }
    if (!same_bits<std::uint64_t>(rank.norms, want.norms)) {
      return "other norms of gradients";
    }
    if (!same_bits<std::uint64_t>(std::vector{rank.evaluation_loss, rank.evaluation_accuracy},
                                  std::vector{want.evaluation_loss, want.evaluation_accuracy}) ||
        rank.evaluated != want.evaluated) {
      return "another evaluation";
    }
  }
  return held == want.values.size() ? std::string{} : "values that several ranks have";
}

BOOST_AUTO_TEST_SUITE(pipelines)

BOOST_AUTO_TEST_CASE(stages_have_the_optimizations_of_compile) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nchw> net{device, {2, 4, 4}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 2}, net.input());
  x = net.add("relu", nn::relu{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
  const nn::stage_cuts cuts{.first_layers = {0, 2}, .own = {0, 1}};
  net.compile_stages({.max_batch_size = 4}, cuts);
  BOOST_TEST(!net.plan().nodes[1].forward);
  net.compile_stages({.max_batch_size = 4, .optimizations = nn::plan_optimizations::none()}, cuts);
  BOOST_TEST(net.plan().nodes[1].forward);
}

// GRADUS_SWEEP_CASES=300 trains 300 networks; see sweep.hpp.
BOOST_AUTO_TEST_CASE(train_random_networks_to_the_bits_of_one_process) {
  sweep("train_random_networks_to_the_bits_of_one_process", 25, [](sweep_case& random) {
    const training what = draw_case(random);
    std::string wrong;
    outcome want;
    try {
      want = train_alone([&](auto& world, const auto& strategy,
                             const hybrid_setup& how) { return train_case(world, strategy, what, how); },
                         what.how, what.pipeline.micro_batches);
    } catch (const std::exception& failure) {
      random.fail("one process: " + std::string{failure.what()} + "\n" + to_cpp(what.graph));
      return;
    }
    try {
      wrong = difference_of(gradus::comm::run_ranks(what.pipeline.stages,
                                                    [&](auto& world) {
                                                      if (what.by_order) {
                                                        matched_by_order ordered{world.duplicate()};
                                                        return train_case(ordered, what.pipeline, what, what.how);
                                                      }
                                                      return train_case(world, what.pipeline, what, what.how);
                                                    }),
                            want);
    } catch (const std::exception& failure) {
      wrong = std::string{"the pipeline: "} + failure.what();
    }
    if (!wrong.empty()) {
      random.fail(wrong + ", " + std::string{what.pipeline.schedule.name} + "\n" + to_cpp(what.graph));
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace pipeline_training
