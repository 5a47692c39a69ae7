// SPDX-License-Identifier: BSL-1.0
//
// Metrics of a trainer: any number of ranks computes what one process does. Targets that do not fit the loss are found
// before the first step.
#include "gradus/train/metrics.hpp"
#include "gradus/comm/link_of.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/comm/link.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/random.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace nn = gradus::nn;
namespace data = gradus::data;
namespace metrics = gradus::metrics;
namespace train = gradus::train;
using gradus::index_t;

/// Random examples of 5 numbers, with classes, real targets far from 0, and weights.
struct measured_examples {
  index_t count;
  std::vector<float> x;
  std::vector<std::int32_t> labels;
  std::vector<float> y;
  std::vector<double> weights;

  explicit measured_examples(index_t examples) : count{examples} {
    const gradus::random_stream stream{9, "measured"};
    for (index_t i = 0; i < 5 * count; ++i) {
      x.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
    }
    for (index_t i = 0; i < count; ++i) {
      labels.push_back(static_cast<std::int32_t>(i * 7 % 6));
      weights.push_back(0.5 * static_cast<double>(i % 4));
      y.push_back(1000 + static_cast<float>(i % 5));
      y.push_back(x[static_cast<std::size_t>(i)]);
    }
  }
  [[nodiscard]] auto inputs() const { return data::examples_of(std::span{x}, {1, 5, 1, 1}); }
  [[nodiscard]] std::span<const double> chosen_weights(bool weighted) const {
    return weighted ? std::span<const double>{weights} : std::span<const double>{};
  }
  [[nodiscard]] auto classes(bool weighted) const {
    return data::in_memory(inputs(), data::examples_of(std::span{labels}, {1, 1, 1, 1}),
                           {.classes = 6, .weights = chosen_weights(weighted)});
  }
  [[nodiscard]] auto numbers(bool weighted) const {
    return data::in_memory(inputs(), data::examples_of(std::span{y}, {1, 2, 1, 1}),
                           {.weights = chosen_weights(weighted)});
  }
};

/// Boost.Test is for one thread: ranks throw, and the test fails.
void must(bool holds, const char* what) {
  if (!holds) {
    throw std::logic_error{what};
  }
}

/// Numbers that are exact, and numbers that are rounded.
struct measured_numbers {
  std::vector<double> exact;
  std::vector<double> rounded;
};

template <class Communicator>
measured_numbers measure_classes(Communicator& world, const measured_examples& examples, bool weighted,
                                 index_t micro_batch) {
  const auto set = examples.classes(weighted);
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {.channels = 5}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 6}, net.input()));
  net.compile({.max_batch_size = 10, .seed = 3, .micro_batch_size = micro_batch});
  data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = std::min(index_t{10}, examples.count)}};
  train::trainer trainer{net, gradus::optim::sgd{}, world};
  const auto [report, top1, top3, matrix, overlaps] =
      trainer.evaluate(loader, metrics::list{metrics::accuracy{}, metrics::top_k{3}, metrics::confusion_matrix{},
                                             metrics::intersection_over_union{}});
  must(report.examples == examples.count, "all examples");
  must(report.metrics.starts_with("accuracy 0.") && report.metrics.find(", top-3 0.") != std::string::npos &&
           report.metrics.find(", mean IoU 0.") != std::string::npos,
       "the text of the metrics");
  must(weighted || top1 == report.accuracy, "the accuracy of the report");
  const auto [again, alone] = trainer.evaluate(loader, metrics::top_k{3});
  must(alone == top3 && again.loss == report.loss, "the same again");
  measured_numbers result{{top1, top3, overlaps.mean}, {report.loss}};
  result.exact.insert(result.exact.end(), matrix.counts.begin(), matrix.counts.end());
  return result;
}

template <class Communicator>
measured_numbers measure_numbers(Communicator& world, const measured_examples& examples, bool weighted,
                                 index_t /*micro_batch*/) {
  const auto set = examples.numbers(weighted);
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float> net{device, {.channels = 5}};
  net.loss(nn::mean_squared_error{}, net.add("scores", nn::dense{.out_features = 2}, net.input()));
  net.compile({.max_batch_size = 10, .seed = 3});
  data::loader<float, gradus::nchw> loader{device, set, {.global_batch_size = std::min(index_t{10}, examples.count)}};
  train::trainer trainer{net, gradus::optim::sgd{}, world};
  const auto [report, absolute, squared, r2] = trainer.evaluate(
      loader, metrics::list{metrics::mean_absolute_error{}, metrics::mean_squared_error{}, metrics::r2{}});
  must(weighted || std::abs(squared - report.loss) < 1e-6 * report.loss, "the loss of the report");
  return {{}, {report.loss, absolute, squared, r2.per_output.at(0), r2.per_output.at(1), r2.mean}};
}

/// Calls check(what each rank computes, what one process computes).
template <class Measure>
void for_ranks(const Measure& measure,
               const std::function<void(const measured_numbers&, const measured_numbers&)>& check) {
  for (const index_t count : {23, 7, 1}) {
    const measured_examples examples{count};
    for (const bool weighted : {false, true}) {
      if (weighted && count == 1) {
        continue;  // its only example has the weight 0
      }
      gradus::comm::self alone;
      const measured_numbers expected = measure(alone, examples, weighted);
      for (const int ranks : {1, 2, 3, 4}) {
        std::mutex mutex;
        std::vector<measured_numbers> results;
        gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
          measured_numbers mine = measure(world, examples, weighted);
          const std::lock_guard lock{mutex};
          results.push_back(std::move(mine));
        });
        BOOST_TEST_CONTEXT(count << " examples, " << ranks << " ranks" << (weighted ? ", weighted" : "")) {
          for (const measured_numbers& each : results) {
            check(each, expected);
            BOOST_REQUIRE_EQUAL(each.rounded.size(), results[0].rounded.size());
            for (std::size_t i = 0; i < each.rounded.size(); ++i) {  // the same bits on all ranks
              BOOST_TEST((each.rounded[i] == results[0].rounded[i] ||
                          (each.rounded[i] != each.rounded[i] && results[0].rounded[i] != results[0].rounded[i])));
            }
          }
        }
      }
    }
  }
}

void check_measured(const measured_numbers& have, const measured_numbers& want) {
  BOOST_TEST(have.exact == want.exact, boost::test_tools::per_element());
  BOOST_REQUIRE_EQUAL(have.rounded.size(), want.rounded.size());
  for (std::size_t i = 0; i < want.rounded.size(); ++i) {
    if (want.rounded[i] == want.rounded[i]) {  // else NaN: too few examples
      BOOST_TEST(have.rounded[i] == want.rounded[i], boost::test_tools::tolerance(1e-6));
    } else {
      BOOST_TEST(have.rounded[i] != have.rounded[i]);
    }
  }
}

/// The message that each rank gets.
std::vector<std::string> messages_of_ranks(int ranks, const std::function<void(gradus::comm::threads&)>& body) {
  std::mutex mutex;
  std::vector<std::string> messages;
  gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
    std::string text = "no error";
    try {
      body(world);
    } catch (const std::exception& failure) {
      text = failure.what();
    }
    const std::lock_guard lock{mutex};
    messages.push_back(text);
  });
  return messages;
}

void expect_text(const std::string& message, const std::string& text) {
  BOOST_TEST(message.find(text) != std::string::npos, message);
}

/// Fits and evaluates a network on a data set; the message of both is the same but for the name of the call.
template <class Loss, class Set>
void expect_mismatch(const Loss& loss, index_t scores, const Set& set, const std::string& text, index_t channels = 5) {
  for (const bool fits : {true, false}) {
    const auto messages = messages_of_ranks(3, [&](gradus::comm::threads& world) {
      gradus::cpu device{{.intra_op_threads = 1}};
      nn::network<float> net{device, {.channels = channels}};
      net.loss(loss, net.add("scores", nn::dense{.out_features = scores}, net.input()));
      net.compile({.max_batch_size = 10});
      data::loader<float, gradus::nchw> loader{device, set, {.global_batch_size = 10}};
      train::trainer trainer{net, gradus::optim::sgd{}, world};
      int steps = 0;
      if (fits) {
        trainer.fit(loader, {.epochs = 1}, [&](const train::step_report&) { ++steps; });
      } else {
        (void)trainer.evaluate(loader);
      }
      must(steps == 0, "no step");
    });
    BOOST_TEST(messages.size() == 3U);
    for (const std::string& message : messages) {
      expect_text(message, (fits ? "trainer.fit: " : "trainer.evaluate: ") + text);
      expect_text(message, "[metrics.cpp:");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train_metrics)

BOOST_AUTO_TEST_CASE(class_metrics_of_ranks_are_those_of_one_process) {
  for (const index_t micro_batch : {0, 3}) {
    for_ranks([&](auto& world, const measured_examples& examples,
                  bool weighted) { return measure_classes(world, examples, weighted, micro_batch); },
              check_measured);
  }
}

BOOST_AUTO_TEST_CASE(number_metrics_of_ranks_are_those_of_one_process) {
  for_ranks([](auto& world, const measured_examples& examples,
               bool weighted) { return measure_numbers(world, examples, weighted, 0); },
            check_measured);
}

// The evaluations of a trainer that is made with an optimizer_step have them too.
BOOST_AUTO_TEST_CASE(a_trainer_of_parts_evaluates_metrics) {
  const measured_examples examples{20};
  const auto set = examples.classes(true);
  const auto messages = messages_of_ranks(2, [&](gradus::comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    nn::network<float> net{device, {.channels = 5}};
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 6}, net.input()));
    net.compile({.max_batch_size = 10});
    data::loader<float, gradus::nchw> loader{device, set, {.global_batch_size = 10}};
    const auto parameters = train::trained_parameters_of(net);
    gradus::optim::parameter_update_of<gradus::optim::sgd, float> rule{
        device, {}, static_cast<index_t>(parameters.values.size())};
    gradus::parallel::all_reduce::state<float> strategy{{}, world, parameters.flat()};
    gradus::comm::link_of all{world};
    train::optimizer_step_of<float> end{parameters, rule, strategy, all};
    end.start();
    train::trainer trainer{net, end, end.group()};
    const auto [report, top1, matrix] =
        trainer.evaluate(loader, metrics::list{metrics::accuracy{}, metrics::confusion_matrix{}});
    must(top1 == matrix.accuracy(), "the same accuracy");
    double total = 0;
    for (const double count : matrix.counts) {
      total += count;
    }
    must(total == 15.0, "the sum of the weights");
  });
  BOOST_TEST(messages == (std::vector<std::string>{"no error", "no error"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_callback_evaluates_metrics_and_progress_shows_them) {
  const measured_examples examples{20};
  const auto set = examples.classes(false);
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float> net{device, {.channels = 5}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 6}, net.input()));
  net.compile({.max_batch_size = 10});
  data::loader<float, gradus::nchw> loader{device, set, {.global_batch_size = 10}};
  train::trainer trainer{net, gradus::optim::sgd{}};
  train::evaluate_metrics measured{loader, metrics::list{metrics::top_k{2}, metrics::confusion_matrix{}}, 2};
  const train::evaluate_metrics one{loader, metrics::accuracy{}};
  static_assert(std::is_same_v<decltype(one)::results_type, std::tuple<metrics::result_t<metrics::accuracy>>>);
  BOOST_TEST(!measured.results().has_value());
  std::FILE* const file = std::tmpfile();
  BOOST_REQUIRE(file != nullptr);
  std::vector<bool> evaluated;
  trainer.fit(loader, {.epochs = 3, .learning_rate = 0.1}, measured,
              train::progress{{.output = file, .terminal = false}},
              [&](const train::epoch_report& epoch) { evaluated.push_back(epoch.evaluation.has_value()); });
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    text.push_back(static_cast<char>(c));
  }
  std::fclose(file);
  BOOST_TEST(evaluated == (std::vector<bool>{false, true, true}), boost::test_tools::per_element());
  expect_text(text, ", top-2 0.");
  BOOST_TEST(text.find("confusion") == std::string::npos, text);
  BOOST_REQUIRE(measured.results().has_value());
  const auto& [top2, matrix] = *measured.results();
  const auto [report, expected] = trainer.evaluate(loader, metrics::top_k{2});
  BOOST_TEST(top2 == expected);
  BOOST_TEST(matrix.accuracy() == report.accuracy);
  BOOST_CHECK_THROW((train::evaluate_metrics{loader, metrics::list{metrics::accuracy{}}, 0}),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(metrics_that_do_not_fit_are_refused_on_all_ranks) {
  const measured_examples examples{20};
  const auto numbers = examples.numbers(false);
  const auto run = [&](const auto& measure) {
    const auto messages = messages_of_ranks(3, [&](gradus::comm::threads& world) {
      gradus::cpu device{{.intra_op_threads = 1}};
      nn::network<float> net{device, {.channels = 5}};
      net.loss(nn::huber{}, net.add("scores", nn::dense{.out_features = 2}, net.input()));
      net.compile({.max_batch_size = 10});
      data::loader<float, gradus::nchw> loader{device, numbers, {.global_batch_size = 10}};
      train::trainer trainer{net, gradus::optim::sgd{}, world};
      measure(trainer, loader, world.rank());
    });
    return messages;
  };
  for (const std::string& message :
       run([](auto&trainer, auto&loader, int) { (void)trainer.evaluate(loader, metrics::accuracy{}); })) {
    expect_text(message,
                "accuracy: expected a class for each example, with scores of (2), got real numbers of (2, 1, "
                "1). Hint: with real targets use metrics::mean_absolute_error");
    expect_text(message, "[metrics.cpp:");
  }
  // Only rank 1 asks for a metric that does not fit: the others get its reason and do not wait for ever.
  for (const std::string& message : run([](auto&trainer, auto&loader, int rank) {
         if (rank == 1) {
           (void)trainer.evaluate(loader, metrics::top_k{2});
         } else {
           (void)trainer.evaluate(loader, metrics::r2{});
         }
       })) {
    expect_text(message, "top_k: expected a class for each example");
  }
  // Ranks with other metrics.
  for (const std::string& message : run([](auto&trainer, auto&loader, int rank) {
         if (rank == 1) {
           (void)trainer.evaluate(loader, metrics::mean_squared_error{});
         } else {
           (void)trainer.evaluate(loader, metrics::r2{});
         }
       })) {
    expect_text(message, "metrics");
    BOOST_TEST(message != "no error");
  }
}

BOOST_AUTO_TEST_CASE(targets_that_do_not_fit_the_loss_are_found_before_the_first_step) {
  const measured_examples examples{20};
  const auto classes = examples.classes(false);
  const auto numbers = examples.numbers(false);
  expect_mismatch(nn::softmax_cross_entropy{}, 6, numbers,
                  "expected a loader that gives a class for each example, as the loss softmax_cross_entropy reads it, "
                  "got a loader that gives real numbers of (2, 1, 1). Hint: end the network with a loss of real "
                  "targets (gradus/nn/losses.hpp)");
  expect_mismatch(nn::huber{}, 2, classes,
                  "expected a loader that gives real numbers of (2, 1, 1) for each example, as the loss huber reads "
                  "it, got a loader that gives a class. Hint: end the network with a loss of classes");
  expect_mismatch(nn::huber{}, 3, numbers,
                  "expected a loader that gives real numbers of (3, 1, 1) for each example, as the loss huber reads "
                  "it, got a loader that gives real numbers of (2, 1, 1). Hint: change the last layer");
  expect_mismatch(nn::softmax_cross_entropy{}, 4, classes,
                  "expected a loader with at most 4 classes, the scores that the loss softmax_cross_entropy reads, got "
                  "a data set with 6 classes");
  expect_mismatch(nn::softmax_cross_entropy{}, 6, classes,
                  "expected a loader with images of (4, 1, 1), the input of the network", 4);
}

BOOST_AUTO_TEST_SUITE_END()
