// SPDX-License-Identifier: BSL-1.0
//
// What is said of the bubble of a training in stages.
#include <algorithm>  // std::find_if, std::max_element, std::min
#include <string>     // std::string

#include "analysis.hpp"
#include "format.hpp"

namespace gradus::report::detail {
namespace {

constexpr double least_bubble = 0.05;  // of the step, from which on it is worth a sentence

/// "1, 4 and 7"
std::string list_of(const std::vector<int>& numbers) {
  std::string result;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    result += (i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ") + std::to_string(numbers[i]);
  }
  return result;
}

class bubble_judge {
 public:
  bubble_judge(const trace& from, analysis& result) : pipeline_{result.pipeline}, all_{result} {
    all_run_ = all_.run * static_cast<double>(from.ranks);
    batch_size_ = from.batch_size;
    for (const stage_figures& each : pipeline_.stages) {
      mean_ += each.both() / static_cast<double>(pipeline_.stages.size());
    }
    slowest_ = &*std::max_element(pipeline_.stages.begin(), pipeline_.stages.end(),
                                  [](const stage_figures& a, const stage_figures& b) { return a.both() < b.both(); });
    const auto its_stage = [&, this](const stage_figures& each) {
      return std::find(each.ranks.begin(), each.ranks.end(), pipeline_.example_rank) != each.ranks.end();
    };
    stage_ = &*std::find_if(pipeline_.stages.begin(), pipeline_.stages.end(), its_stage);
    rank_ = &*std::find_if(pipeline_.ranks.begin(), pipeline_.ranks.end(),
                           [&, this](const stage_rank_figures& each) { return each.rank == pipeline_.example_rank; });
  }

  void judge() {
    const bubble_figures& its = pipeline_.worst_bubble;
    const double standing = all_.sum(&rank_figures::waits_for_stages);
    if (its.all < least_bubble || all_run_ <= 0) {
      return;
    }
    verdict next;
    next.kind = "bubble";
    next.share = standing / all_run_;
    const std::string name = name_of_rank();
    next.sentence = format_share(its.all) + " of " + name + " is bubble";
    figure(next, "bubble of " + name, its.all);
    if (!pipeline_.explained()) {
      next.sentence += ", in which it waits for messages of other stages";
      next.advice = "More micro-batches, stages that take the same time, or faster transfers make it less.";
    } else {
      figure(next, "filling and draining", its.filling);
      figure(next, "unequal stages", its.unequal);
      figure(next, "transfers and the rest", its.rest);
      next.figures.push_back({"micro-batches of a step", static_cast<double>(pipeline_.micro_batches), ""});
      if (its.filling >= std::max(its.unequal, its.rest)) {
        next.sentence += part(its.filling) + "filling and draining the pipeline";
        blame_filling(next);
      } else if (its.unequal >= its.rest) {
        next.sentence += part(its.unequal) + "waiting for longer stages";
        blame_stage(next);
      } else {
        next.sentence += part(its.rest) + "transfers and other delays";
        blame_transfers(next);
      }
    }
    next.rank = pipeline_.example_rank;
    next.begin = pipeline_.example_begin;
    next.end = pipeline_.example_end;
    all_.verdicts.push_back(std::move(next));
  }

 private:
  std::string name_of_rank() const {
    if (rank_->stages.size() == 1) {
      return "stage " + std::to_string(stage_->stage);
    }
    const std::vector<int>& ranks = stage_->ranks;
    return (ranks.size() > 1 ? "ranks " : "rank ") + list_of(ranks) + " with stages " + list_of(rank_->stages);
  }
  std::string part(double of_it) const {
    return of_it >= 0.5 * pipeline_.worst_bubble.all ? ", most of it " : ", the largest part of it ";
  }
  /// From a part of the step to milliseconds.
  void figure(verdict& of_it, std::string name, double share) const {
    const double step = rank_->steps > 0 ? rank_->step_time / static_cast<double>(rank_->steps) : 0;
    of_it.figures.push_back({std::move(name), share * step / 1e3, "ms a step"});
  }

  void blame_filling(verdict& of_it) const {
    if (!pipeline_.predictions.empty() && pipeline_.predictions.back().bubble < pipeline_.worst_bubble.all) {
      const pipeline_figures::prediction& best = pipeline_.predictions.back();
      of_it.sentence +=
          ": " + std::to_string(best.micro_batches) + " micro-batches would make it " + format_share(best.bubble);
      for (const pipeline_figures::prediction& each : pipeline_.predictions) {
        of_it.figures.push_back({"bubble with " + std::to_string(each.micro_batches) + " micro-batches, predicted",
                                 100 * each.bubble, "%"});
      }
      of_it.advice = "More micro-batches make each pass smaller: stop where the layers become inefficient.";
    } else if (batch_size_ > 0 && 2 * pipeline_.micro_batches > batch_size_) {
      of_it.advice = "A larger batch can be cut into more micro-batches.";
    } else {
      of_it.advice = "More micro-batches make it less.";
    }
    if (pipeline_.worst_bubble.unequal >= 0.25 * pipeline_.worst_bubble.all) {
      of_it.advice += " Other cuts help, too: " + longest_stage() + ".";
    }
    if (!pipeline_.splits_backward && pipeline_.stages_per_rank == 1) {
      of_it.advice += " The schedule zero_bubble fills gaps with gradients of weights.";
    }
  }

  std::string longest_stage() const {
    return "stage " + std::to_string(slowest_->stage) + " takes " +
           format_share(mean_ > 0 ? slowest_->both() / mean_ - 1 : 0) + " longer than the mean";
  }

  void blame_stage(verdict& of_it) const {
    const std::string stage = "stage " + std::to_string(slowest_->stage);
    of_it.sentence += ": " + longest_stage();
    of_it.figures.push_back({stage + ", both passes of a micro-batch", slowest_->both() / 1e3, "ms"});
    of_it.figures.push_back({"mean stage, both passes of a micro-batch", mean_ / 1e3, "ms"});
    of_it.advice =
        "Cut the network by measured times (the option layer_times), elsewhere (first_layers), or into more stages of "
        "fewer layers, some of them on the "
        "same rank.";
  }

  /// The cut at which this rank's messages are under way longest.
  void blame_transfers(verdict& of_it) const {
    const auto position = static_cast<int>(pipeline_.worst);
    const cut_figures* most = nullptr;
    for (const cut_figures& each : pipeline_.cuts) {
      if ((each.first == position || each.second == position) && (most == nullptr || each.time > most->time)) {
        most = &each;
      }
    }
    if (most != nullptr) {
      const bool by_stage = pipeline_.stages_per_rank == 1;
      const std::string ends = std::string{by_stage ? "stages " : "ranks "} + std::to_string(most->first) + " and " +
                               std::to_string(most->second) + (by_stage ? "" : " of a replica");
      of_it.sentence +=
          ": " + format_bytes(most->bytes) + " a step cross the cut between " + ends + " in " + format_time(most->time);
      of_it.figures.push_back({"messages between " + ends, most->messages, "a step"});
      of_it.figures.push_back({"bytes between " + ends, most->bytes, "bytes a step"});
      of_it.figures.push_back({"these messages are under way for", most->time / 1e3, "ms a step"});
    }
    of_it.advice =
        "Cut the network where fewer bytes cross, or give neighbouring stages a faster link. If messages are fast, "
        "look "
        "for a stage whose update or sum of gradients takes long, and give each rank processors of its own: what one "
        "stage does late the others wait for.";
  }

  const pipeline_figures& pipeline_;
  analysis& all_;
  double all_run_ = 0, mean_ = 0;
  std::int64_t batch_size_ = 0;
  const stage_figures* slowest_ = nullptr;
  const stage_figures* stage_ = nullptr;      // the first one of the position with the largest bubble
  const stage_rank_figures* rank_ = nullptr;  // its first rank
};

}  // namespace

void judge_pipeline(const trace& from, analysis& result) {
  if (!result.pipeline.empty()) {
    bubble_judge{from, result}.judge();
  }
}

}  // namespace gradus::report::detail
