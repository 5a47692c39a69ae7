// SPDX-License-Identifier: BSL-1.0
//
// Finds what a training wastes its time on. Like a program that was studied on a cluster ("Scaling TensorFlow over
// multiple EC2 GPU nodes", 2016), the first run evaluates too often, copies images that need not move, and reduces one
// number over the ranks in every step, which is really waiting; its trace says so in numbers. With --corrected a run
// without the waste follows:
//
//   find_the_waste --corrected --trace waste.json
//
// waste.json opens in https://ui.perfetto.dev and in gradus_report.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/core/output.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace trace = gradus::trace;
namespace train = gradus::train;

constexpr int ranks = 2;
constexpr gradus::index_t batch_size = 32;  // over all ranks

struct options {
  bool corrected = false;
  std::string trace;
  gradus::index_t examples = 2048;  // of training
};

/// What the program does beside training.
struct habits {
  int evaluate_every = 1;       // steps
  bool evaluate_alone = false;  // by rank 0, while the others wait
  int image_copies = 0;         // of all of them, in every step
  bool share_loss = false;      // in every step, for a display
};

/// Shows progress: rank 0 evaluates, alone if that is the habit.
template <class Trainer, class Loader>
class show_progress {
 public:
  show_progress(Trainer& trainer, Loader& test, trace::recorder& recorder, std::span<const float> images,
                const habits& chosen)
      : trainer_{&trainer}, test_{&test}, recorder_{&recorder}, images_{images}, habits_{chosen} {}

  void on_step(const train::step_report& step) {
    if (habits_.share_loss) {
      double loss[] = {step.local_loss};
      comm::all_reduce(trainer_->communicator(), loss).wait();
    }
    for (int copy = 0; copy < habits_.image_copies; ++copy) {
      trace::scope copying{*recorder_, trace::category::copy, "images"};
      copying.bytes(images_.size_bytes());
      kept_ = std::vector<float>(images_.begin(), images_.end());
    }
    if ((step.step + 1) % static_cast<std::uint64_t>(habits_.evaluate_every) != 0) {
      return;
    }
    if (!habits_.evaluate_alone) {
      accuracy_ = trainer_->evaluate(*test_).accuracy;
    } else if (trainer_->communicator().rank() == 0) {
      evaluate_alone();
    }
  }

  [[nodiscard]] double accuracy() const noexcept { return accuracy_; }

 private:
  void evaluate_alone() {
    const trace::scope evaluating{*recorder_, trace::category::evaluate, "evaluate"};
    gradus::index_t correct = 0;
    gradus::index_t examples = 0;
    test_->start_epoch(0);
    while (const auto* const batch = test_->next()) {
      correct += trainer_->network().evaluate(batch->images, batch->labels).correct;
      examples += batch->global_examples;
    }
    accuracy_ = static_cast<double>(correct) / static_cast<double>(examples);
  }

  Trainer* trainer_;
  Loader* test_;
  trace::recorder* recorder_;
  std::span<const float> images_;
  habits habits_;
  std::vector<float> kept_;
  double accuracy_ = 0;
};

struct outcome {
  std::vector<trace::breakdown> ranks;
  double accuracy = 0;
};

/// What one rank does: a training of one epoch. The result is rank 0's.
void run_rank(comm::threads& untraced, const options& chosen, const habits& how, const std::string& file,
              outcome& result) {
  const auto images = data::make_synthetic({.examples = chosen.examples});
  const auto test_images = data::make_synthetic({.examples = chosen.examples / 8, .first = chosen.examples});
  const std::vector<float> pixels(static_cast<std::size_t>(chosen.examples) * 28 * 28);

  trace::recorder recorder;
  auto world = trace::traced(untraced.duplicate(), recorder);  // this is what makes the program traced
  gradus::cpu device{{.intra_op_threads = 1}};
  const train::traced_set seen{recorder, images};  // and this lets the loader's thread be seen
  data::loader<float, gradus::nhwc> loader{device, seen, {.global_batch_size = batch_size, .seed = 1}};
  data::loader<float, gradus::nhwc> test{
      device, test_images, {.global_batch_size = batch_size / ranks, .shuffle = false}};
  gradus::nn::network<float, gradus::nhwc> net{device, {1, 28, 28}};
  gradus::models::mnist(net, {.hidden_features = 128});
  net.compile({.max_batch_size = batch_size / ranks, .seed = 1});
  train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world};
  show_progress progress{trainer, test, recorder, std::span<const float>{pixels}, how};
  trainer.fit(loader, {.epochs = 1, .learning_rate = 0.02}, progress);

  const trace::program_properties properties{
      .model = "mnist", .batch_size_per_rank = batch_size / ranks, .threads = device.threads()};
  const trace::timeline all =
      file.empty() ? trace::collect(recorder, world) : trace::write(file, recorder, world, properties);
  if (world.rank() == 0) {
    result = {trace::breakdown_of(all), progress.accuracy()};
  }
}

outcome run(const options& chosen, const habits& how, const std::string& file) {
  outcome result;
  comm::run_ranks(ranks, [&](comm::threads& world) { run_rank(world, chosen, how, file, result); });
  return result;
}

double images_per_second(const outcome& have) {
  return 1e3 * static_cast<double>(batch_size) / have.ranks.front().total;
}

void print(const char* title, const outcome& have) {
  struct row {
    const char* name;
    double trace::breakdown::*part;
  };
  constexpr row rows[] = {{"forward", &trace::breakdown::forward},   {"backward", &trace::breakdown::backward},
                          {"exchange", &trace::breakdown::exchange}, {"update", &trace::breakdown::update},
                          {"wait", &trace::breakdown::wait},         {"input", &trace::breakdown::input},
                          {"copy", &trace::breakdown::copy},         {"evaluate", &trace::breakdown::evaluate},
                          {"other", &trace::breakdown::other},       {"total", &trace::breakdown::total}};
  std::printf("%s, ms a step\n            ", title);
  for (std::size_t rank = 0; rank < have.ranks.size(); ++rank) {
    std::printf("         rank %zu", rank);
  }
  for (const row& each : rows) {
    std::printf("\n  %-10s", each.name);
    for (const trace::breakdown& parts : have.ranks) {
      std::printf("%9.3f %3.0f %%", parts.*each.part, 100 * parts.*each.part / parts.total);
    }
  }
  std::printf("\n  %.0f images/s, test accuracy %.3f\n", images_per_second(have), have.accuracy);
}

options parse(std::span<char*> arguments) {
  options chosen;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word{arguments[i]};
    if (word == "--corrected") {
      chosen.corrected = true;
    } else if (word == "--trace" && i + 1 < arguments.size()) {
      chosen.trace = arguments[++i];
    } else if (word == "--small") {
      chosen.examples = 256;
    } else {
      throw std::invalid_argument{"usage: find_the_waste [--corrected] [--trace FILE] [--small]"};
    }
  }
  return chosen;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const options chosen = parse({argv, static_cast<std::size_t>(argc)});
    const outcome waste =
        run(chosen, {.evaluate_every = 4, .evaluate_alone = true, .image_copies = 4, .share_loss = true}, chosen.trace);
    print("wasteful", waste);
    const trace::breakdown& first = waste.ranks.front();
    const trace::breakdown& last = waste.ranks.back();
    std::printf(
        "rank 0 spends %.0f %% of its time on evaluation and %.0f %% on copies; of rank %d's, %.0f %% is waiting, "
        "mostly for rank 0, which came last to collectives and made others wait %.3f ms a step\n",
        100 * first.evaluate / first.total, 100 * first.copy / first.total, ranks - 1, 100 * last.wait / last.total,
        first.made_ranks_wait);
    if (chosen.corrected) {
      const int steps = static_cast<int>(chosen.examples / batch_size);
      const outcome better = run(chosen, {.evaluate_every = steps},
                                 chosen.trace.empty() ? std::string{} : chosen.trace + ".corrected.json");
      print("corrected: one evaluation an epoch, by all ranks, no copies, no shared loss", better);
      std::printf("%.2f times as fast\n", images_per_second(better) / images_per_second(waste));
    }
    return gradus::close_output("find_the_waste", 0);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "find_the_waste: %s\n", failure.what());
    return 1;
  }
}
