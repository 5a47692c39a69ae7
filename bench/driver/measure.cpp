// SPDX-License-Identifier: BSL-1.0
//
// One measurement on all ranks, and its text.
#include "measure.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <locale>
#include <stdexcept>
#include <utility>

#include "evaluation.hpp"
#include "gradus/comm/agreement.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/train/traced.hpp"
#include "plan.hpp"
#include "saves.hpp"
#include "training.hpp"
#include "watch.hpp"

namespace driver {

namespace {

/// The most memory that this process has used.
std::uint64_t peak_memory_bytes() {
  std::ifstream status{"/proc/self/status"};
  status.imbue(std::locale::classic());
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      std::uint64_t kilobytes = 0;
      status >> kilobytes;
      return 1024 * kilobytes;
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024 * static_cast<std::uint64_t>(usage.ru_maxrss);
}

/// The ranks that train: how many copies of the network there are, and which rank has the loss of the first one.
struct trained_copies {
  int count = 1;
  int rank_of_loss = 0;
};

/// Prints the steps of rank 0, and times all of them between two moments when all ranks have come.
class printing_watch final : public step_watch {
 public:
  printing_watch(gradus::train::optimizer_step& end, const settings& chosen, gradus::comm::link& group,
                 const trained_copies& copies, saves_of_rank& saves)
      : step_watch{end, static_cast<std::size_t>(chosen.warmup_batches),
                   static_cast<std::size_t>(chosen.batches) * static_cast<std::size_t>(chosen.repeats)},
        chosen_{chosen},
        group_{group},
        copies_{copies},
        saves_{saves} {}

  /// The loss of the last step, on all ranks. Called by all ranks.
  [[nodiscard]] double last_loss() {
    double loss[] = {group_.rank() == copies_.rank_of_loss ? steps().back().loss : 0.0};
    if (copies_.rank_of_loss != 0) {
      group_.sum(loss);
    }
    return loss[0];
  }

  /// Images a second of all ranks, of each repeat.
  [[nodiscard]] const std::vector<double>& totals() const noexcept { return totals_; }
  [[nodiscard]] const std::optional<gradus::optim::loss_scale_report>& loss_scale() const noexcept {
    return loss_scale_;
  }
  [[nodiscard]] const std::optional<gradus::optim::gradient_norm_report>& norms() const noexcept {
    return gradient_norm_;
  }

 private:
  void warming_up() override { print("Running warm up\n"); }
  void warmed_up() override {
    print("Done warm up\nStep\tImg/sec\ttotal_loss\n");
    kept_before_ = steps().size();
    wait_for_all();
    began_ = std::chrono::steady_clock::now();
  }

  void ended(std::size_t step) override {
    if (step == 0) {
      seconds_.clear();
    }
    seconds_.push_back(steps().back().step);
    const bool shown = step == 0 || (step + 1) % static_cast<std::size_t>(chosen_.display_every) == 0;
    if (!shown || (group_.rank() != 0 && copies_.rank_of_loss == 0)) {
      return;
    }
    const double loss = last_loss();
    if (group_.rank() == 0) {
      const speed now = speed_of(chosen_.batch_size_per_rank, seconds_);
      gradus::print_text(stdout, "%zu\timages/sec: %.1f +/- %.1f (jitter = %.1f)\t%.3f\n", step + 1, now.mean,
                         now.uncertainty, now.jitter, loss);
      std::fflush(stdout);
    }
  }

  void end_epoch_of_kept(gradus::train::epoch_report& report) override {
    loss_scale_ = report.loss_scale;
    gradient_norm_ = report.gradient_norm;
    read_marks_of_last();
    saves_.wait();  // what a save costs counts to its end
    wait_for_all();
    const double images = static_cast<double>(steps().size() - kept_before_) *
                          static_cast<double>(chosen_.batch_size_per_rank) * static_cast<double>(copies_.count);
    totals_.push_back(images / std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count());
    if (group_.rank() == 0) {
      constexpr const char* line = "----------------------------------------------------------------";
      gradus::print_text(stdout, "%s\ntotal images/sec: %.2f\n%s\n", line, totals_.back(), line);
      std::fflush(stdout);
    }
  }

  void wait_for_all() {
    double none[] = {0};
    group_.sum(none);
  }
  void print(const char* text) const {
    if (group_.rank() == 0) {
      std::fputs(text, stdout);
      std::fflush(stdout);
    }
  }

  const settings& chosen_;
  gradus::comm::link& group_;
  trained_copies copies_;
  saves_of_rank& saves_;
  std::size_t kept_before_ = 0;  // steps, of earlier repeats
  std::vector<double> seconds_;
  std::vector<double> totals_;
  std::optional<gradus::optim::loss_scale_report> loss_scale_;
  std::optional<gradus::optim::gradient_norm_report> gradient_norm_;
  std::chrono::steady_clock::time_point began_;
};

/// The mean times of a step over all ranks. A rank waits in a step until the last one has come as far as it has itself:
/// what it stood still beyond that went into communication.
breakdown mean_phases(const std::vector<step_times>& steps, gradus::comm::link& group) {
  std::vector<double> busy;
  for (const step_times& each : steps) {
    busy.push_back(each.input + each.forward + each.backward);
  }
  const std::vector<double> of_all = gather(group, busy);
  std::vector<double> sums(phase_names.size());
  const auto sum = [&](phase which) -> double& { return sums[static_cast<std::size_t>(which)]; };
  for (std::size_t k = 0; k < steps.size(); ++k) {
    double last = 0;
    for (std::size_t at = k; at < of_all.size(); at += steps.size()) {
      last = std::max(last, of_all[at]);
    }
    const double exchange = std::max(steps[k].exchange, 0.0);
    const double wait = std::min(last - busy[k], exchange);
    sum(phase::forward) += steps[k].forward;
    sum(phase::backward) += steps[k].backward;
    sum(phase::update) += steps[k].update;
    sum(phase::communicate) += exchange - wait;
    sum(phase::wait) += wait;
    sum(phase::input) += steps[k].input;
  }
  const std::vector<double> sums_of_all = gather(group, sums);  // where ranks train apart a sum would be a rank's own
  breakdown mean{};                                             // without copies to a GPU: they go on beside the work
  for (std::size_t i = 0; i < sums_of_all.size(); ++i) {
    mean[i % mean.size()] += sums_of_all[i] / static_cast<double>(steps.size()) / group.size();
  }
  return mean;
}

/// What the options say, without a warm-up.
/// @param repeats  in an epoch of the data: the trainer's epochs are the repeats
gradus::optim::schedule main_schedule_of(const settings& chosen, double repeats) {
  namespace optim = gradus::optim;
  const double rate = chosen.learning_rate;
  const double epochs = chosen.repeats;
  if (!chosen.piecewise_rates.empty()) {
    optim::piecewise steps{.rates = chosen.piecewise_rates, .boundaries = {}};
    for (const double each : chosen.piecewise_boundaries) {
      steps.boundaries.push_back(each * repeats);
    }
    return steps;
  }
  if (chosen.epochs_per_decay > 0) {
    return optim::exponential{.initial = rate,
                              .factor = chosen.decay_factor,
                              .every = chosen.epochs_per_decay * repeats,
                              .minimum = chosen.minimum_rate};
  }
  const std::string& name = chosen.learning_rate_schedule;
  if (name == "linear" || name == "polynomial") {
    return optim::polynomial{.initial = rate, .epochs = epochs, .power = name == "linear" ? 1.0 : 2.0};
  }
  if (name == "cosine") {
    return optim::cosine{.initial = rate, .epochs = epochs};
  }
  if (name == "one_cycle") {
    return optim::one_cycle{.maximum = rate, .epochs = epochs};
  }
  return rate;
}

gradus::optim::schedule schedule_of(const settings& chosen, double repeats) {
  gradus::optim::schedule after = main_schedule_of(chosen, repeats);
  if (chosen.warmup_epochs <= 0) {
    return after;
  }
  return gradus::optim::warm_up{.start = 0, .epochs = chosen.warmup_epochs * repeats, .then = std::move(after)};
}

void print_phases(const breakdown& phases) {
  std::printf("breakdown of a step [ms]:");
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    gradus::print_text(stdout, "%s %s %.2f", i == 0 ? "" : ",", phase_names[i], 1e3 * phases[i]);
  }
  std::printf("\n");
}

/// Of this rank's saves; nothing without checkpoints.
std::optional<save_statistics> cost_of(const saves_of_rank& saves) {
  if (saves.folder().empty()) {
    return {};
  }
  save_statistics all;
  std::vector<double> waits;
  std::vector<double> snapshots;
  std::vector<double> behind;
  for (const gradus::train::checkpoint_cost& each : saves.costs()) {
    all.failed += each.save.error.empty() ? 0 : 1;
    all.bytes = std::max(all.bytes, each.save.bytes);
    waits.push_back(each.wait);
    snapshots.push_back(each.snapshot);
    behind.push_back(each.save.seconds);
  }
  all.count = static_cast<int>(waits.size());
  all.wait = statistics_of(waits);
  all.snapshot = statistics_of(snapshots);
  all.save = statistics_of(behind);
  return all;
}

void print_saves(const save_statistics& all, const std::string& folder) {
  gradus::print_text(
      stdout,
      "checkpoints: %d in '%s', %d failed, %llu bytes each; a step waited %.2f ms for the copy and %.2f ms for the "
      "save before, a save took %.2f ms (medians)\n",
      all.count - all.failed, gradus::printable(folder).c_str(), all.failed, static_cast<unsigned long long>(all.bytes),
      1e3 * all.snapshot.median, 1e3 * all.wait.median, 1e3 * all.save.median);
}

/// Each rank computes batches by itself. Called by all ranks.
result measure_inference(const settings& chosen, ranks& all, training& trained, const input_set& input,
                         program::output_file& json) {
  gradus::comm::link& group = all.group();
  result found;
  describe_ranks(found, chosen, all, input);
  found.ranks = group.size();
  if (group.rank() == 0) {
    print_header(chosen, found, input.size());
    std::fputs("Running warm up\n", stdout);
    std::fflush(stdout);
  }
  std::vector<double> seconds = trained.infer(chosen.warmup_batches + chosen.batches * chosen.repeats);
  seconds.erase(seconds.begin(), seconds.begin() + chosen.warmup_batches);
  const std::vector<double> of_all = gather(group, seconds);
  found.step = statistics_of(of_all);
  found.latency = latency_of(of_all);
  // Ranks do not wait for each other: their rates add up.
  const auto count = static_cast<std::size_t>(chosen.batches);
  for (int repeat = 0; repeat < chosen.repeats; ++repeat) {
    double rate = 0;
    for (std::size_t first = static_cast<std::size_t>(repeat) * count; first < of_all.size(); first += seconds.size()) {
      double time = 0;
      for (std::size_t i = first; i < first + count; ++i) {
        time += of_all[i];
      }
      rate += static_cast<double>(count) * static_cast<double>(chosen.batch_size_per_rank) / time;
    }
    found.repeats.push_back(rate);
  }
  found.images_per_second = statistics_of(found.repeats).median;
  found.phases[static_cast<std::size_t>(phase::forward)] = found.step.mean;
  found.peak_memory_bytes = largest_peak_memory(group);
  if (group.rank() == 0) {
    constexpr const char* line = "----------------------------------------------------------------";
    gradus::print_text(stdout, "Done warm up\n%s\ntotal images/sec: %.2f\n%s\n", line, found.images_per_second, line);
    gradus::print_text(
        stdout, "latency of a batch [ms]: median %.3f, 90 %% %.3f, 95 %% %.3f, 99 %% %.3f, largest %.3f, of %zu\n",
        1e3 * found.latency->median, 1e3 * found.latency->p90, 1e3 * found.latency->p95, 1e3 * found.latency->p99,
        1e3 * found.latency->largest, of_all.size());
    json.write(json_text(found));
  }
  return found;
}

}  // namespace

std::vector<double> gather(gradus::comm::link& group, const std::vector<double>& own) {
  std::vector<double> all(own.size() * static_cast<std::size_t>(group.size()));
  const auto bytes = [](auto& values) { return std::as_bytes(std::span{values}).size(); };
  group.all_gather({reinterpret_cast<const std::uint8_t*>(own.data()), bytes(own)},
                   {reinterpret_cast<std::uint8_t*>(all.data()), bytes(all)});
  return all;
}

std::uint64_t largest_peak_memory(gradus::comm::link& group) {
  const std::vector<double> peaks = gather(group, {static_cast<double>(peak_memory_bytes())});
  return static_cast<std::uint64_t>(*std::max_element(peaks.begin(), peaks.end()));
}

void describe_ranks(result& found, const settings& chosen, const ranks& all, const input_set& input) {
  found.model = chosen.model;
  found.batch_size = chosen.batch_size_per_rank;
  found.threads = all.device().threads();
  found.device = chosen.device;
  found.precision = chosen.precision;
  found.winograd = chosen.winograd;
  found.flush_denormals = chosen.flush_denormals;
  found.data_format = chosen.nhwc ? "NHWC" : "NCHW";
  found.variable_update = name_of(chosen.update);
  found.micro_batches = chosen.micro_batches;
  found.dataset = input.name();
  found.optimizer = chosen.optimizer;
}

void require_same_options(const settings& given, gradus::comm::link& group) {
  const settings chosen = completed(given);
  const auto number = [](auto value) { return gradus::join({value}); };
  const auto exactly = [](double value) {
    char digits[40];
    return std::string{digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
  };
  std::string cuts;
  for (const std::string& each : chosen.stage_cuts) {
    cuts += (cuts.empty() ? "" : ",") + each;
  }
  const gradus::comm::property properties[] = {{"model", chosen.model},
                                               {"batch size", number(chosen.batch_size_per_rank)},
                                               {"seed", number(chosen.seed)},
                                               {"variable update", name_of(chosen.update)},
                                               {"all-reduce spec", chosen.all_reduce_spec},
                                               {"order", name_of(chosen.order)},
                                               {"servers", number(chosen.servers)},
                                               {"colocated servers", number(int{chosen.colocate_servers})},
                                               {"server mode", chosen.server_mode},
                                               {"placement", chosen.placement},
                                               {"steps between averages", number(chosen.average_every)},
                                               {"outer optimizer", chosen.outer_optimizer},
                                               {"outer learning rate", number(chosen.outer_learning_rate)},
                                               {"outer momentum", number(chosen.outer_momentum)},
                                               {"compression", chosen.compression},
                                               {"stages", number(chosen.stages)},
                                               {"stages of a rank", number(chosen.stages_per_rank)},
                                               {"micro-batches", number(chosen.micro_batches)},
                                               {"schedule", chosen.schedule},
                                               {"stage cuts", cuts},
                                               {"layer times", chosen.layer_times},
                                               {"memory limit", number(chosen.memory_limit)},
                                               {"image size", number(chosen.image_size)},
                                               {"trace file", chosen.trace_file},
                                               {"checkpoint folder", chosen.checkpoint_dir},
                                               {"steps between checkpoints", number(chosen.checkpoint_every)},
                                               {"resuming", number(int{chosen.resume})},
                                               {"device", chosen.device},
                                               {"precision", chosen.precision},
                                               {"winograd", number(int{chosen.winograd})},
                                               {"flushed denormals", number(int{chosen.flush_denormals})},
                                               {"captured step", number(int{chosen.capture_step})},
                                               {"optimizer", chosen.optimizer},
                                               {"learning rate", exactly(chosen.learning_rate)},
                                               {"learning-rate schedule", schedule_of(chosen, 1).description()},
                                               {"epochs", exactly(chosen.epochs)},
                                               {"inference", number(int{chosen.forward_only})},
                                               {"evaluation", number(int{chosen.eval})},
                                               {"batches of an evaluation", number(chosen.eval_batches)},
                                               {"epochs of an evaluation", exactly(chosen.eval_epochs)},
                                               {"seconds between evaluations", exactly(chosen.eval_interval)},
                                               {"cached sample", number(int{chosen.repeat_cached_sample})},
                                               {"staleness bound", number(chosen.staleness_bound)},
                                               {"backup workers", number(chosen.backup_workers)},
                                               {"staged values", number(int{chosen.staged})},
                                               {"messages under way", number(chosen.messages_under_way)},
                                               {"parts per server", number(chosen.parts_per_server)},
                                               {"warm-up batches", number(chosen.warmup_batches)},
                                               {"batches", number(chosen.batches)},
                                               {"repeats", number(chosen.repeats)},
                                               {"steps between lines", number(chosen.display_every)},
                                               {"bucket kilobytes", number(chosen.bucket_kilobytes)}};
  gradus::comm::require_agreement(group, "gradus_bench", properties);
}

result measure(const settings& given, ranks& all, gradus::trace::recorder& recorder) {
  settings chosen = completed(given);
  if (all.shard().rank < 0) {
    recorder.enable(!chosen.trace_file.empty());  // a server does not know when the others begin to measure
  }
  if (all.serve()) {
    return {};
  }
  // Independent ranks do what each would do alone, on images of its own.
  const bool alone = chosen.update == variable_update::independent;
  const gradus::data::shard shard = all.shard();
  batches plan{.of_rank = chosen.batch_size_per_rank,
               .rank = shard.rank,
               .ranks = shard.ranks,
               .steps = index_t{chosen.warmup_batches} + chosen.batches};
  chosen.seed += alone ? static_cast<std::uint64_t>(all.group().rank()) : 0;

  const bool several = alone || chosen.update == variable_update::hybrid;  // ranks with the number 0
  const bool writes = shard.rank == 0 && (!several || all.group().rank() == 0);
  program::output_file json = writes ? open_output("--json", chosen.json, chosen) : program::output_file{};
  const std::unique_ptr<input_set> input = open_input(chosen, model_of(chosen), plan.global());
  if (chosen.eval) {
    chosen = with_evaluated_batches(std::move(chosen), input->size(), plan.ranks);
    const std::unique_ptr<training> evaluated = all.device().make_training(chosen, *input, plan, recorder);
    return measure_evaluation(chosen, all, *evaluated, *input, json);
  }
  const double epoch = examples_of_epoch(chosen, input->size()) / static_cast<double>(plan.global());  // in steps
  if (chosen.epochs > 0) {
    const double steps = std::ceil(chosen.epochs * epoch - 1e-6);
    if (!(steps <= 1 << 24)) {
      throw std::invalid_argument{gradus::join({"--num-epochs: expected at most ", 1 << 24, " steps, got ", steps})};
    }
    chosen.batches = std::max(1, static_cast<int>(steps));
    plan.steps = index_t{chosen.warmup_batches} + chosen.batches;
  }
  const std::unique_ptr<training> trained = all.device().make_training(chosen, *input, plan, recorder);
  if (chosen.forward_only) {
    return measure_inference(chosen, all, *trained, *input, json);
  }
  result found;
  trained_copies copies;
  if (chosen.update == variable_update::hybrid) {
    found.pipeline = properties_of(chosen, all.compile_stages(*trained).stages.step.bubble);
    copies = {.count = shard.ranks, .rank_of_loss = chosen.stages - 1};
  } else {
    trained->compile();
  }
  const bool profiled = chosen.order != transfer_order::none && shard.ranks > 1;
  gradus::parallel::step_profile profile = profiled ? trained->profile(5) : gradus::parallel::step_profile{};
  profile.link.bytes_per_second = chosen.link_bytes_per_second;
  const transfer_plan transfers = plan_transfers(chosen, trained->structure(), profile, all.group());

  const std::unique_ptr<step_parts> parts = all.make_optimizer_step(trained->parameters(), transfers);
  gradus::comm::link& group = alone ? all.group() : parts->end->group();

  if (!found.pipeline) {
    copies.count = group.size();
  }
  describe_ranks(found, chosen, all, *input);
  found.ranks = group.size();
  if (group.rank() == 0) {
    print_header(chosen, found, input->size());
  }
  const gradus::comm::property same[] = {{"network", trained->structure().describe()},
                                         {"data format", found.data_format},
                                         {"update rule", parts->updates->description()},
                                         {"strategy", parts->strategy->describe()}};
  gradus::comm::require_agreement(group, "gradus_bench", same);
  gradus::train::name_transfer_buffers(recorder, parts->strategy->transfer_buffers());
  parts->end->start();

  const bool traced = !chosen.trace_file.empty();
  saves_of_rank saves{chosen, checkpoint_folder(chosen, all.group().rank(), all.group().size())};
  all.write_behind(saves.callback());
  printing_watch watch{*parts->end, chosen, group, copies, saves};
  watch.attach(parts->timer.seconds(), {.marks = all.device().marks(),
                                        .layers = trained->structure().nodes().size(),
                                        .in_stages = found.pipeline.has_value()});
  trained->fit(parts->end->group(), watch, saves, chosen.repeats,
               schedule_of(chosen, epoch / static_cast<double>(plan.steps)), traced ? &recorder : nullptr);

  std::vector<double> seconds;
  for (const step_times& each : watch.steps()) {
    seconds.push_back(each.step);
  }
  found.step = statistics_of(gather(group, seconds));
  found.phases = mean_phases(watch.steps(), group);
  found.repeats = watch.totals();
  found.images_per_second = statistics_of(found.repeats).median;
  found.loss = watch.last_loss();
  if (found.pipeline) {
    const auto of = [&](phase which) { return found.phases[static_cast<std::size_t>(which)]; };
    const double waits = of(phase::communicate) + of(phase::wait);
    found.pipeline->measured_bubble =
        waits / (waits + of(phase::forward) + of(phase::backward) + of(phase::update) + of(phase::input));
  }
  found.loss_scale = watch.loss_scale();
  found.gradient_norm = watch.norms();
  found.saves = cost_of(saves);
  found.peak_memory_bytes = largest_peak_memory(group);
  for (const std::string& problem : input->problems()) {  // every rank has met others
    if (group.size() > 1) {
      std::fprintf(stderr, "rank %d: skipped: %s\n", group.rank(), gradus::printable(problem).c_str());
    } else {
      std::fprintf(stderr, "skipped: %s\n", gradus::printable(problem).c_str());
    }
  }
  const std::vector<double> fullest = gather(group, {static_cast<double>(all.device().peak_memory())});
  found.peak_device_memory_bytes = static_cast<std::uint64_t>(*std::max_element(fullest.begin(), fullest.end()));
  if (group.rank() == 0) {
    print_phases(found.phases);
    if (found.pipeline) {
      gradus::print_text(stdout, "bubble: %.1f %% of a step, the mean over all ranks; predicted %.1f %%\n",
                         100 * found.pipeline->measured_bubble, 100 * found.pipeline->bubble);
    }
    if (found.loss_scale) {
      gradus::print_text(stdout, "loss scale: %g, %td steps skipped\n", found.loss_scale->scale,
                         found.loss_scale->skipped_steps);
    }
    if (found.gradient_norm) {
      gradus::print_text(stdout, "gradient norm: mean %g, largest %g, %td of %td steps clipped\n",
                         found.gradient_norm->mean, found.gradient_norm->largest, found.gradient_norm->clipped_steps,
                         found.gradient_norm->steps);
    }
    if (found.saves) {
      print_saves(*found.saves, saves.folder());
    }
    json.write(json_text(found));
  }
  return found;
}

}  // namespace driver
