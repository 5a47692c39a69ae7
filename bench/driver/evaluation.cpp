// SPDX-License-Identifier: BSL-1.0
//
// --eval: how many labels of a data set the network of a checkpoint finds, and how fast.
#include "evaluation.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "gradus/checkpoint/search.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "measure.hpp"
#include "plan.hpp"
#include "training.hpp"
#include "update.hpp"

namespace driver {

namespace {

namespace metrics = gradus::metrics;
using evaluation_clock = std::chrono::steady_clock;

double seconds_since(evaluation_clock::time_point began) {
  return std::chrono::duration<double>(evaluation_clock::now() - began).count();
}

/// A text of rank 0, on all ranks. Called by all ranks.
std::string text_of_first_rank(gradus::comm::link& group, std::string text) {
  double size[] = {group.rank() == 0 ? static_cast<double>(text.size()) : 0.0};
  group.sum(size);
  text.resize(static_cast<std::size_t>(size[0]));
  if (!text.empty()) {
    group.broadcast(std::as_writable_bytes(std::span{text}), 0);
  }
  return text;
}

/// The newest checkpoint, by rank 0: others could find a newer one, which is written meanwhile.
struct evaluated_checkpoint {
  std::string path;  // empty: there is none
  std::int64_t step = -1;
  std::string report;  // of the search
};
evaluated_checkpoint newest_checkpoint(const std::string& folder, gradus::comm::link& group) {
  evaluated_checkpoint found;
  double step[] = {0};
  if (group.rank() == 0) {
    const gradus::io::checkpoint_report report = gradus::io::find_newest(folder);
    found = {report.path, report.step, gradus::io::to_string(report)};
    step[0] = static_cast<double>(report.step);
  }
  group.sum(step);
  found.step = static_cast<std::int64_t>(step[0]);
  found.path = text_of_first_rank(group, std::move(found.path));
  return found;
}

/// The lines of tf_cnn_benchmarks.
void print_evaluation(const evaluation_result& found, double images_per_second) {
  gradus::print_text(stdout, "Accuracy @ 1 = %.4f", found.top_1);
  if (found.top_5) {
    gradus::print_text(stdout, " Accuracy @ 5 = %.4f", *found.top_5);
  }
  if (found.mean_iou) {
    gradus::print_text(stdout, " Mean IoU = %.4f", *found.mean_iou);
  }
  constexpr const char* line = "----------------------------------------------------------------";
  gradus::print_text(stdout, " [%td examples]\ntotal_loss: %.3f\n%s\ntotal images/sec: %.2f\n%s\n", found.examples,
                     found.loss, line, images_per_second, line);
  std::fflush(stdout);
}

}  // namespace

score_counts::score_counts(const metrics::example_shape& shape) : first_{metrics::accuracy{}, shape} {
  if (shape.scores.channels > 5) {
    among_five_.emplace(metrics::top_k{5}, shape);
  }
  if (shape.pixels() > 1) {
    overlap_.emplace(metrics::intersection_over_union{}, shape);
  }
}

void score_counts::update(const metrics::batch& examples) {
  first_.update(examples);
  if (among_five_) {
    among_five_->update(examples);
  }
  if (overlap_) {
    overlap_->update(examples);
  }
}

void score_counts::combine(gradus::comm::link& group) {
  group.sum(examples_);
  group.sum(first_.sums());
  if (among_five_) {
    group.sum(among_five_->sums());
  }
  if (overlap_) {
    group.sum(overlap_->sums());
  }
}

evaluation_result score_counts::compute() const {
  evaluation_result found{.checkpoint = {},
                          .step = -1,
                          .examples = static_cast<index_t>(examples_[1]),
                          .loss = examples_[0] / examples_[1],
                          .top_1 = first_.compute()};
  if (among_five_) {
    found.top_5 = among_five_->compute();
  }
  if (overlap_) {
    found.mean_iou = overlap_->compute().mean;
  }
  return found;
}

settings with_evaluated_batches(settings chosen, index_t examples, int ranks) {
  const double batches_of_epoch =
      examples_of_epoch(chosen, examples) / static_cast<double>(chosen.batch_size_per_rank * ranks);
  double batches = chosen.eval_batches;
  if (chosen.eval_batches == 0 && (chosen.eval_epochs > 0 || !chosen.data_dir.empty())) {
    batches = std::ceil((chosen.eval_epochs > 0 ? chosen.eval_epochs : 1.0) * batches_of_epoch - 1e-6);
  }
  if (!(batches <= 1 << 24)) {
    throw std::invalid_argument{
        gradus::join({"--num-eval-epochs: expected at most ", 1 << 24, " batches, got ", batches})};
  }
  if (batches > 0) {
    chosen.batches = static_cast<int>(batches);
  }
  return chosen;
}

result measure_evaluation(const settings& chosen, ranks& all, training& trained, const input_set& input,
                          program::output_file& json) {
  gradus::comm::link& group = all.group();
  const auto wait_for_all = [&] {
    double none[] = {0};
    group.sum(none);
  };
  result found;
  describe_ranks(found, chosen, all, input);
  found.ranks = group.size();
  const bool prints = group.rank() == 0;
  if (prints) {
    print_header(chosen, found, input.size());
    std::fflush(stdout);
  }
  trained.compile_for_evaluation();
  const index_t global = chosen.batch_size_per_rank * group.size();
  for (std::string last;;) {
    const evaluated_checkpoint newest = newest_checkpoint(chosen.checkpoint_dir, group);
    if (newest.path.empty() && chosen.eval_interval <= 0) {
      throw std::invalid_argument{
          "--eval: expected a checkpoint in --checkpoint-dir '" + chosen.checkpoint_dir + "': " + newest.report +
          "; a training saves there with --checkpoint-dir, and --eval-interval-secs waits for it"};
    }
    if (newest.path != last) {
      last = newest.path;
      trained.load_weights(newest.path);
      if (prints) {
        std::printf("Checkpoint:  '%s', step %lld\n", gradus::printable(newest.path).c_str(),
                    static_cast<long long>(newest.step));
        std::fflush(stdout);
      }
      wait_for_all();
      std::vector<double> seconds;
      const auto began = evaluation_clock::now();
      auto batch_began = began;
      index_t shown = 0;
      auto shown_began = began;
      score_counts counts = trained.evaluate(chosen.batches, [&] {
        seconds.push_back(seconds_since(batch_began));
        batch_began = evaluation_clock::now();
        if (++shown == chosen.display_every) {
          if (prints) {
            gradus::print_text(stdout, "%zu\t%.1f examples/sec\n", seconds.size(),
                               static_cast<double>(global * shown) / seconds_since(shown_began));
            std::fflush(stdout);
          }
          shown = 0;
          shown_began = evaluation_clock::now();
        }
      });
      counts.combine(group);  // waits for all
      const double all_seconds = seconds_since(began);
      found.evaluation = counts.compute();
      found.evaluation->checkpoint = newest.path;
      found.evaluation->step = newest.step;
      found.loss = found.evaluation->loss;
      found.images_per_second = static_cast<double>(found.evaluation->examples) / all_seconds;
      found.repeats = {found.images_per_second};
      found.step = statistics_of(seconds);
      found.peak_memory_bytes = largest_peak_memory(group);
      if (prints) {
        print_evaluation(*found.evaluation, found.images_per_second);
        program::output_file later = json ? program::output_file{} : open_output("--json", chosen.json, chosen);
        (json ? json : later).write(json_text(found));
      }
    } else if (prints && newest.path.empty()) {
      std::printf("Checkpoint not found in '%s'\n", gradus::printable(chosen.checkpoint_dir).c_str());
      std::fflush(stdout);
    }
    if (chosen.eval_interval <= 0) {
      return found;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>{chosen.eval_interval});
  }
}

}  // namespace driver
