// SPDX-License-Identifier: BSL-1.0
//
// From figures to words: what costs so much time that it is worth a sentence.
#include <algorithm>  // std::sort, std::max, std::max_element

#include "advice.hpp"
#include "analysis.hpp"
#include "format.hpp"

namespace gradus::report::detail {
namespace {

// From these parts on something is worth a sentence: of the step, or of the run.
constexpr double least_of_step = 0.05;
constexpr double least_evaluate = 0.10;
constexpr double least_copy = 0.03;
constexpr double least_log = 0.02;
constexpr double least_idle = 0.05;
constexpr double least_not_recorded = 0.10;
constexpr double sole_cause = 2.0;       // waiting for a rank against that for the mean of the others
constexpr double slower_rank = 1.15;     // mean computing time against the median rank
constexpr double slow_steps = 1.25;      // 95th percentile against the median
constexpr double slow_first_step = 3.0;  // against the median
constexpr double busy_server = 1.4;      // bytes of a rank against the mean rank
constexpr std::size_t enough_steps = 20;

class judge_of {
 public:
  judge_of(const trace& from, const std::vector<activity_line>& lines, analysis& result) : lines_{lines}, all_{result} {
    ranks_ = static_cast<double>(from.ranks);
    step_time_ = all_.sum(&rank_figures::step_time);
    all_run_ = all_.run * ranks_;
    steps_part_ = all_run_ > 0 ? std::min(1.0, step_time_ / all_run_) : 0;
    for (const rank_figures& each : all_.ranks) {
      steps_ += static_cast<double>(each.steps);
    }
  }

  void judge() {
    if (all_run_ > 0) {
      if (step_time_ > 0) {
        waiting_for_ranks();
        waiting_for_data();
        input();
        steps_differ();
        not_recorded();
      }
      copies();
      evaluation();
      log();
      idle();
      busiest_server();
    }
    std::stable_sort(all_.verdicts.begin(), all_.verdicts.end(),
                     [](const verdict& a, const verdict& b) { return a.share > b.share; });
    if (all_.verdicts.empty()) {
      nothing();
    }
    for (verdict& each : all_.verdicts) {
      each.sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(each.sentence[0])));
    }
  }

 private:
  verdict& add(const char* kind, double share_of_run, std::string sentence, std::string advice) {
    verdict next;
    next.kind = kind;
    next.share = share_of_run;
    next.sentence = std::move(sentence);
    next.advice = std::move(advice);
    all_.verdicts.push_back(std::move(next));
    return all_.verdicts.back();
  }
  static void figure(verdict& of_it, std::string name, double value, std::string unit) {
    of_it.figures.push_back({std::move(name), value, std::move(unit)});
  }
  /// Milliseconds of a mean step, from a sum over all ranks and steps.
  double a_step(double sum) const { return steps_ > 0 ? sum / steps_ / 1e3 : 0; }

  /// The longest moment of an activity on any rank, as the example.
  void show_longest(verdict& of_it, activity which) const {
    for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
      for (const activity_line::piece& each : lines_[rank].pieces()) {
        if (each.what == which && each.end - each.begin > of_it.end - of_it.begin) {
          of_it.rank = static_cast<int>(rank);
          of_it.begin = each.begin;
          of_it.end = each.end;
        }
      }
    }
  }

  void waiting_for_ranks() {
    double rest = 0;
    const double all_make_wait = all_.sum(&rank_figures::makes_wait);
    for (const blame& each : all_.blames) {
      // Where ranks wait for each other alike, none of them is the cause.
      const rank_figures& its = all_.ranks[static_cast<std::size_t>(each.rank)];
      const double others_make_wait = (all_make_wait - its.makes_wait) / std::max(1.0, ranks_ - 1);
      if (each.share < least_of_step || its.makes_wait < sole_cause * others_make_wait) {
        rest += each.total;
        continue;
      }
      const std::string rank = std::to_string(each.rank);
      verdict& next =
          add("wait_for_rank", each.total / all_run_,
              format_share(each.share) + " of the step is waiting for rank " + rank + where_it_is(each.cause),
              advice_for(each.cause));
      blamed_.emplace_back(each.rank, each.cause);
      figure(next, "waiting for rank " + rank + ", mean of the other ranks", all_.step_time.mean / 1e3 * each.share,
             "ms a step");
      figure(next, "share of the other ranks' steps", 100 * each.share, "%");
      if (its.was_last > 0) {
        figure(next, "collectives that rank " + rank + " was last at", static_cast<double>(its.was_last), "");
      }
      const double its_steps = static_cast<double>(its.steps), others = steps_ - its_steps;
      if (its_steps > 0 && others > 0) {
        const std::string what{activity_names[static_cast<std::size_t>(each.cause)]};
        const double its_time = of(its.in_run, each.cause), all_time = all_.sum_in_run(each.cause);
        figure(next, what + " of rank " + rank, its_time / its_steps / 1e3, "ms a step");
        figure(next, what + " of the other ranks, mean", (all_time - its_time) / others / 1e3, "ms a step");
      }
      next.rank = each.example_rank;
      next.begin = each.example_begin;
      next.end = each.example_end;
    }
    if (rest / step_time_ >= least_of_step) {
      verdict& next = add("wait_for_ranks", rest / all_run_,
                          format_share(rest / step_time_) +
                              " of the step is waiting for ranks that arrive later, now one and now another",
                          "Ranks take turns in being slow: pin threads to processors, and look for other programs on "
                          "the hosts.");
      figure(next, "waiting for ranks, mean of all ranks", a_step(rest), "ms a step");
      show_longest(next, activity::wait);
    }
  }

  void waiting_for_data() {
    const double data = all_.sum(&rank_figures::waits_for_data);
    const double communicate = all_.sum(&rank_figures::communicate);
    const double hidden = all_.sum(&rank_figures::hidden);
    const double bytes = total_bytes();
    if (data / step_time_ >= least_of_step) {
      verdict& next = add("transfer", data / all_run_,
                          format_share(data / step_time_) + " of the step is waiting for data that are on their way, " +
                              format_bytes(bytes / std::max(1.0, steps_)) + " a step and rank; " +
                              format_share(communicate > 0 ? hidden / communicate : 0) +
                              " of communication is hidden behind compute",
                          "Larger batches a rank, gradients in 16 bits, another all-reduce, smaller first buckets or a "
                          "faster network make it less.");
      figure(next, "waiting for data", a_step(data), "ms a step");
      figure(next, "communication", a_step(communicate), "ms a step");
      figure(next, "communication hidden behind compute", a_step(hidden), "ms a step");
      figure(next, "bytes of a rank", bytes / std::max(1.0, steps_), "bytes a step");
      show_longest(next, activity::wait);
    }
    const double exchange = all_.sum_in_steps(activity::exchange);
    if (exchange / step_time_ >= least_of_step) {
      verdict& next = add("exchange", exchange / all_run_,
                          format_share(exchange / step_time_) +
                              " of the step is the exchange's work on the program's own thread: it begins transfers, "
                              "adds up and copies",
                          one_pipeline() ? "Larger micro-batches, or fewer stages with more threads each make it less."
                                         : "Fewer ranks with more threads each, gradients in 16 bits, or averages at "
                                           "longer intervals make it less.");
      figure(next, "work of the exchange", a_step(exchange), "ms a step");
      figure(next, "waiting, beside it", a_step(all_.sum_in_steps(activity::wait)), "ms a step");
      show_longest(next, activity::exchange);
    }
    const double told = data + all_.sum(&rank_figures::waits_for_rank) + all_.sum(&rank_figures::waits_for_stages);
    const double waits = all_.sum_in_steps(activity::wait) + all_.sum_in_steps(activity::communicate);
    if ((waits - told) / step_time_ >= least_of_step) {
      verdict& next = add("wait", (waits - told) / all_run_,
                          format_share((waits - told) / step_time_) +
                              " of the step is waiting while no transfer of the rank is recorded",
                          "Look at what is awaited there: other threads, or transfers that were not recorded.");
      figure(next, "waiting", a_step(waits), "ms a step");
      figure(next, "waiting during recorded transfers", a_step(told), "ms a step");
      show_longest(next, activity::wait);
    }
  }

  /// All messages are those between stages.
  bool one_pipeline() const { return !all_.pipeline.empty() && all_.pipeline.replicas == 1; }

  /// What collectives were given and what was sent, where these are not the messages of those collectives.
  double total_bytes() const {
    double bytes = 0;
    for (const rank_figures& each : all_.ranks) {
      bytes += static_cast<double>(std::max(each.collective_bytes, each.sent_bytes));
    }
    return bytes;
  }

  void input() {
    const double total = all_.sum_in_steps(activity::input);
    double worst_share = 0;
    std::size_t worst = 0;
    for (std::size_t rank = 0; rank < all_.ranks.size(); ++rank) {
      const rank_figures& its = all_.ranks[rank];
      const double share = its.step_time > 0 ? of(its.in_steps, activity::input) / its.step_time : 0;
      if (share > worst_share) {
        worst_share = share;
        worst = rank;
      }
    }
    const double share = total / step_time_;
    if (share < least_of_step) {
      return;
    }
    const bool one = all_.ranks.size() > 1 && worst_share > 1.5 * share;
    verdict& next =
        add("input", total / all_run_,
            format_share(share) + " of the step is waiting for input" +
                (one ? ", on rank " + std::to_string(worst) + " " + format_share(worst_share) : ""),
            "More loader threads, smaller images on disk, or a packed file make it less; run with synthetic "
            "data to see what is left.");
    figure(next, "waiting for input, mean of all ranks", a_step(total), "ms a step");
    figure(next, "share on rank " + std::to_string(worst) + ", the most", 100 * worst_share, "%");
    figure(next, "the loader works in the background", a_step(all_.sum(&rank_figures::loads)), "ms a step");
    show_longest(next, activity::input);
  }

  void copies() {
    const double time = all_.sum_in_run(activity::copy);
    if (time / all_run_ < least_copy) {
      return;
    }
    double bytes = 0;
    for (const rank_figures& each : all_.ranks) {
      bytes += static_cast<double>(each.copied_bytes);
    }
    const double steps = std::max(1.0, steps_);
    const bool in_steps = of_steps(activity::copy) >= 0.5 * time && step_time_ > 0;
    verdict& next = add(
        "copy", time / all_run_,
        "copies" + (bytes > 0 ? " of " + format_bytes(bytes / steps) + (steps_ > 0 ? " a step" : "") : "") + " take " +
            (in_steps ? format_share(of_steps(activity::copy) / step_time_) + " of the step"
                      : format_share(time / all_run_) + " of the run"),
        advice_for(activity::copy));
    figure(next, "copied", bytes / steps, "bytes a step and rank");
    figure(next, "copies that stop compute", time / steps / 1e3, "ms a step");
    figure(next, "all copies", all_.sum(&rank_figures::copies) / steps / 1e3, "ms a step");
    show_longest(next, activity::copy);
  }
  double of_steps(activity which) const { return all_.sum_in_steps(which); }

  void evaluation() {
    const double time = all_.sum_in_run(activity::evaluate);
    const double share = time / all_run_;
    if (share < least_evaluate) {
      return;
    }
    std::int64_t most = 0;
    double count = 0;
    for (const rank_figures& each : all_.ranks) {
      most = std::max(most, each.evaluations);
      count += static_cast<double>(each.evaluations);
    }
    const double mean = count > 0 ? time / count : 0;
    const double steps = all_.step_time.median > 0 ? mean / all_.step_time.median : 0;
    verdict& next =
        add("evaluate", share,
            "evaluation takes " + format_share(share) + " of the run (" + format_count(most, "evaluation") + " of " +
                format_time(mean) + (steps > 0 ? ", as long as " + format_number(steps) + " steps" : "") +
                "): evaluate less often",
            "");
    figure(next, "evaluation, mean of all ranks", time / ranks_ / 1e6, "s");
    figure(next, "the run", all_.run / 1e6, "s");
    figure(next, "evaluations", static_cast<double>(most), "");
    figure(next, "one evaluation", mean / 1e3, "ms");
    figure(next, "median step", all_.step_time.median / 1e3, "ms");
    show_longest(next, activity::evaluate);
  }

  void log() {
    const double time = all_.sum_in_run(activity::log);
    if (time / all_run_ >= least_log) {
      verdict& next = add("log", time / all_run_,
                          "logging takes " + format_share(time / all_run_) + " of the run: log less often", "");
      figure(next, "logging, mean of all ranks", time / ranks_ / 1e6, "s");
      figure(next, "the run", all_.run / 1e6, "s");
      show_longest(next, activity::log);
    }
  }

  /// Servers, which have no steps, may well do nothing.
  void idle() {
    double time = 0, run = 0;
    for (const rank_figures& each : all_.ranks) {
      if (each.steps > 0) {
        time += of(each.in_run, activity::idle);
        run += all_.run;
      }
    }
    if (run > 0 && time / run >= least_idle) {
      verdict& next = add("idle", time / all_run_,
                          "in " + format_share(time / run) + " of the run nothing is recorded between the steps",
                          "Record what the program does there, or look for work that the trace does not see.");
      figure(next, "between steps", time / run * all_.run / 1e6, "s");
      figure(next, "the run", all_.run / 1e6, "s");
      show_longest(next, activity::idle);
    }
  }

  void not_recorded() {
    const double time = of_steps(activity::other);
    if (time / step_time_ < least_not_recorded) {
      return;
    }
    verdict& next =
        add("other", time / all_run_,
            "for " + format_share(time / step_time_) + " of the step nothing is recorded but the step itself", "");
    figure(next, "not recorded", a_step(time), "ms a step");
    show_longest(next, activity::other);
  }

  static double computes(const rank_figures& its) {
    const double time =
        of(its.in_steps, activity::forward) + of(its.in_steps, activity::backward) + of(its.in_steps, activity::update);
    return its.steps > 0 ? time / static_cast<double>(its.steps) : 0;
  }

  /// Steps of different ranks, the first step, and slow ones. That stages differ is a cause of the bubble.
  void steps_differ() {
    std::vector<double> computing, times;
    for (const rank_figures& each : all_.ranks) {
      computing.push_back(computes(each));
    }
    const auto slowest =
        static_cast<std::size_t>(std::max_element(computing.begin(), computing.end()) - computing.begin());
    const double typical = distribution_of(computing).median;
    const auto is_blamed = [&](const std::pair<int, activity>& each) {
      return each.first == static_cast<int>(slowest) &&
             (each.second == activity::forward || each.second == activity::backward || each.second == activity::update);
    };
    if (typical > 0 && computing[slowest] > slower_rank * typical && all_.pipeline.ranks_of_replica <= 1 &&
        std::none_of(blamed_.begin(), blamed_.end(), is_blamed)) {
      verdict& next = add("slow_rank", 0,
                          "rank " + std::to_string(slowest) + " computes " +
                              format_share(computing[slowest] / typical - 1) + " longer than the median rank",
                          advice_for(activity::forward));
      figure(next, "compute of rank " + std::to_string(slowest), computing[slowest] / 1e3, "ms a step");
      figure(next, "compute of the median rank", typical / 1e3, "ms a step");
    }

    // The first step of each rank warms up caches and memory and is looked at alone.
    const step_figures* first = nullptr;
    const step_figures* longest = nullptr;
    int rank = -1;
    for (const step_figures& each : all_.steps) {
      if (each.rank != rank) {
        rank = each.rank;
        if (first == nullptr || each.end - each.begin > first->end - first->begin) {
          first = &each;
        }
        continue;
      }
      times.push_back(each.end - each.begin);
      if (longest == nullptr || each.end - each.begin > longest->end - longest->begin) {
        longest = &each;
      }
    }
    const distribution rest = distribution_of(times);
    const double first_time = first != nullptr ? first->end - first->begin : 0;
    if (rest.count >= 3 && first_time > slow_first_step * rest.median &&
        (first_time - rest.median) / all_.run >= 0.02) {
      verdict& next = add("first_step", (first_time - rest.median) / all_.run,
                          "the first step takes " + format_number(first_time / rest.median) + " times the median step",
                          "Leave it out of measurements: it warms up memory, caches and connections.");
      figure(next, "first step", first_time / 1e3, "ms");
      figure(next, "median of the others", rest.median / 1e3, "ms");
      show(next, *first);
    }
    if (rest.count >= enough_steps && rest.p95 > slow_steps * rest.median) {
      slow_ones(rest, *longest);
    }
  }

  static void show(verdict& of_it, const step_figures& step) {
    of_it.rank = step.rank;
    of_it.begin = step.begin;
    of_it.end = step.end;
  }

  void slow_ones(const distribution& rest, const step_figures& longest) {
    times slow{}, usual{};
    double slow_count = 0, usual_count = 0;
    int rank = -1;
    for (const step_figures& each : all_.steps) {
      const double time = each.end - each.begin;
      if (each.rank != rank || (time > rest.median && time < rest.p95)) {
        rank = each.rank;
        continue;
      }
      const times its = lines_[static_cast<std::size_t>(each.rank)].between(each.begin, each.end);
      (time >= rest.p95 ? slow_count : usual_count) += 1;
      for (std::size_t i = 0; i < activity_count; ++i) {
        (time >= rest.p95 ? slow : usual)[i] += its[i];
      }
    }
    std::size_t most = 0;
    double most_extra = 0;
    for (std::size_t i = 0; i < activity_count; ++i) {
      const double extra = slow[i] / std::max(1.0, slow_count) - usual[i] / std::max(1.0, usual_count);
      if (extra > most_extra) {
        most_extra = extra;
        most = i;
      }
    }
    verdict& next = add("slow_steps", std::max(0.0, (rest.mean - rest.median) / rest.mean) * steps_part_,
                        "1 step in 20 takes " + format_number(rest.p95 / rest.median) +
                            " times the median or more; most of its extra time is " + std::string{activity_names[most]},
                        "");
    figure(next, "median step", rest.median / 1e3, "ms");
    figure(next, "95th percentile", rest.p95 / 1e3, "ms");
    figure(next, "longest step, number " + std::to_string(longest.step) + " of rank " + std::to_string(longest.rank),
           (longest.end - longest.begin) / 1e3, "ms");
    figure(next, "more " + std::string{activity_names[most]} + " in slow steps", most_extra / 1e3, "ms a step");
    show(next, longest);
  }

  /// In a pipeline the ranks in the middle have two neighbours.
  void busiest_server() {
    if (all_.ranks.size() < 3 || all_.links.empty() || all_.pipeline.ranks_of_replica > 1) {
      return;
    }
    double total = 0, most = 0;
    std::size_t busiest = 0;
    for (std::size_t rank = 0; rank < all_.ranks.size(); ++rank) {
      const double bytes =
          static_cast<double>(all_.ranks[rank].sent_bytes) + static_cast<double>(all_.ranks[rank].received_bytes);
      total += bytes;
      if (bytes > most) {
        most = bytes;
        busiest = rank;
      }
    }
    if (most < busy_server * total / ranks_) {
      return;
    }
    // Every message counts at both of its ends.
    verdict& next = add("busy_server", 0,
                        "rank " + std::to_string(busiest) + " sends or receives " + format_share(2 * most / total) +
                            " of all bytes between pairs of ranks",
                        "Spread the parameters over more servers, or use an all-reduce.");
    figure(next, "bytes of rank " + std::to_string(busiest), most, "bytes");
    figure(next, "bytes of the mean rank", total / ranks_, "bytes");
  }

  void nothing() {
    const double compute = of_steps(activity::forward) + of_steps(activity::backward) + of_steps(activity::update);
    verdict& next =
        add("fine", 0,
            step_time_ > 0 ? "nothing stands out: " + format_share(compute / step_time_) + " of the step is compute"
                           : "the trace has no steps to judge",
            step_time_ > 0 ? "" : "Record training steps: spans of the category step on track 0.");
    if (step_time_ > 0) {
      figure(next, "compute", a_step(compute), "ms a step");
      figure(next, "step", a_step(step_time_), "ms");
    }
  }

  const std::vector<activity_line>& lines_;
  analysis& all_;
  double ranks_ = 0, step_time_ = 0, all_run_ = 0, steps_part_ = 0, steps_ = 0;
  std::vector<std::pair<int, activity>> blamed_;
};

}  // namespace

void judge(const trace& from, const std::vector<activity_line>& lines, analysis& result) {
  judge_pipeline(from, result);
  judge_of{from, lines, result}.judge();
  caution(from, result);
}

}  // namespace gradus::report::detail
