// SPDX-License-Identifier: BSL-1.0
//
// Metrics of a trainer's evaluations, over all ranks: trainer.evaluate(loader, metrics::top_k{5}).
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <concepts>     // std::convertible_to, std::same_as
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <cstring>      // std::memcpy
#include <exception>    // std::exception
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <tuple>        // std::apply, std::get, std::tuple, std::tuple_cat
#include <type_traits>  // std::is_convertible_v, std::remove_reference_t
#include <utility>      // std::index_sequence, std::make_index_sequence, std::move
#include <vector>       // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/core/text.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/metric.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network/base.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train {

namespace detail {

/// The state of a metric without its type.
class any_metric {
 public:
  any_metric() = default;
  any_metric(const any_metric&) = delete;
  any_metric& operator=(const any_metric&) = delete;

  virtual void update(const metrics::batch& examples) = 0;
  [[nodiscard]] virtual std::span<double> sums() = 0;
  /// Whether sums of ranks are merged by `merge`; else they are added up.
  [[nodiscard]] virtual bool merges() const noexcept = 0;
  virtual void merge(std::span<const double> others) = 0;

 protected:
  ~any_metric() = default;
};

/// What a state is made of, as one argument.
template <class Metric>
struct metric_arguments {
  const Metric& options;
  const metrics::example_shape& shape;
};

template <metrics::metric Metric>
class metric_of final : public any_metric {
 public:
  explicit metric_of(const metric_arguments<Metric>& made_of) : state_(made_of.options, made_of.shape) {}

  void update(const metrics::batch& examples) override { state_.update(examples); }
  std::span<double> sums() override { return state_.sums(); }
  bool merges() const noexcept override { return has_merge; }
  void merge([[maybe_unused]] std::span<const double> others) override {
    if constexpr (has_merge) {
      state_.merge(others);
    }
  }
  [[nodiscard]] auto compute() const { return state_.compute(); }

 private:
  static constexpr bool has_merge = requires(typename Metric::state & state, std::span<const double> others) {
    state.merge(others);
  };

  typename Metric::state state_;
};

/// Gives every rank the sums of all: those that are added up in one all-reduce, the others in one all-gather. They are
/// merged in the order of ranks, so that all ranks get the same bits.
inline void combine_ranks(comm::link& group, std::span<any_metric* const> all) {
  if (group.size() == 1) {
    return;
  }
  std::vector<double> added;
  std::vector<double> merged;
  for (any_metric* const each : all) {
    std::vector<double>& to = each->merges() ? merged : added;
    const std::span<const double> own = each->sums();
    to.insert(to.end(), own.begin(), own.end());
  }
  std::vector<double> gathered(merged.size() * static_cast<std::size_t>(group.size()));
  if (!added.empty()) {
    group.sum(added);
  }
  if (!merged.empty()) {
    group.all_gather({reinterpret_cast<const std::uint8_t*>(merged.data()), merged.size() * sizeof(double)},
                     {reinterpret_cast<std::uint8_t*>(gathered.data()), gathered.size() * sizeof(double)});
  }
  std::size_t next_added = 0;
  std::size_t next_merged = 0;
  for (any_metric* const each : all) {
    const std::span<double> own = each->sums();
    const std::size_t bytes = own.size() * sizeof(double);
    if (!each->merges()) {
      std::memcpy(own.data(), added.data() + next_added, bytes);
      next_added += own.size();
      continue;
    }
    std::memcpy(own.data(), gathered.data() + next_merged, bytes);  // of rank 0
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(group.size()); ++rank) {
      each->merge({gathered.data() + rank * merged.size() + next_merged, own.size()});
    }
    next_merged += own.size();
  }
}

/// The sums of metrics over the examples of each virtual worker of a rank. They are brought together in a binary tree
/// over the workers of all ranks, neighbors first, so that they do not depend on the number of ranks.
class worker_sums {
 public:
  /// The states of the metrics have no examples, or those of the worker before.
  void begin(std::span<any_metric* const> all, int worker, int workers) {
    if (sums_.empty()) {
      one_.resize(count(all));
      copy(all, one_.data(), false);
      for (int i = 0; i < workers; ++i) {
        sums_.insert(sums_.end(), one_.begin(), one_.end());
      }
    } else {
      copy(all, of_worker(worker_), false);
    }
    worker_ = static_cast<std::size_t>(worker);
    copy(all, of_worker(worker_), true);
  }

  [[nodiscard]] bool used() const noexcept { return !sums_.empty(); }

  /// Gives the states of every rank the sums of all workers. Called by all ranks.
  void combine(comm::link& group, std::span<any_metric* const> all) {
    copy(all, of_worker(worker_), false);
    add_pairs(all, sums_);
    std::vector<double> ranks(one_.size() * static_cast<std::size_t>(group.size()));
    const std::size_t bytes = one_.size() * sizeof(double);
    if (group.size() > 1) {
      group.all_gather({reinterpret_cast<const std::uint8_t*>(sums_.data()), bytes},
                       {reinterpret_cast<std::uint8_t*>(ranks.data()), ranks.size() * sizeof(double)});
    } else {
      std::memcpy(ranks.data(), sums_.data(), bytes);
    }
    add_pairs(all, ranks);
    copy(all, ranks.data(), true);
  }

 private:
  static std::size_t count(std::span<any_metric* const> all) {
    std::size_t result = 0;
    for (any_metric* const each : all) {
      result += each->sums().size();
    }
    return result;
  }

  /// Between the states and an array with the sums of all metrics.
  static void copy(std::span<any_metric* const> all, double* array, bool to_states) {
    for (any_metric* const each : all) {
      const std::span<double> own = each->sums();
      std::memcpy(to_states ? own.data() : array, to_states ? array : own.data(), own.size_bytes());
      array += own.size();
    }
  }

  /// The first of the arrays gets the sums of all, whose number is a power of two.
  void add_pairs(std::span<any_metric* const> all, std::vector<double>& arrays) const {
    const std::size_t size = one_.size();
    for (std::size_t apart = size; apart < arrays.size(); apart *= 2) {
      for (std::size_t to = 0; to < arrays.size(); to += 2 * apart) {
        double* sums = arrays.data() + to;
        for (any_metric* const each : all) {
          const std::span<double> own = each->sums();
          if (each->merges()) {
            std::memcpy(own.data(), sums, own.size_bytes());
            each->merge({sums + apart, own.size()});
            std::memcpy(sums, own.data(), own.size_bytes());
          } else {
            for (std::size_t k = 0; k < own.size(); ++k) {
              sums[k] += sums[k + apart];
            }
          }
          sums += own.size();
        }
      }
    }
  }

  [[nodiscard]] double* of_worker(std::size_t worker) noexcept { return sums_.data() + worker * one_.size(); }

  std::vector<double> one_;   // of no examples
  std::vector<double> sums_;  // (workers, sums of all metrics)
  std::size_t worker_ = 0;    // whose sums are in the states
};

/// Copies the scores of an evaluation to the host in parts, and gives them to metrics.
template <class Element, class Layout, class Device>
class metric_observer final : public nn::score_observer<Element, Device> {
 public:
  explicit metric_observer(std::span<any_metric* const> all) noexcept : all_{all} {}

  void begin_worker(int worker, int workers) override { workers_.begin(all_, worker, workers); }

  /// Gives the states of every rank the sums of all ranks.
  void combine(comm::link& group) {
    if (workers_.used()) {
      workers_.combine(group, all_);
    } else {
      combine_ranks(group, all_);
    }
  }

  void scored(const nn::image_batch<const Element, Device>& scores,
              const nn::targets<Element, Device>& part_targets) override {
    constexpr index_t elements = index_t{1} << 16U;  // of a part: half a megabyte, which stays in cache
    const index_t examples = scores.examples();
    const index_t one = scores.extent(1) * scores.extent(2) * scores.extent(3);
    const index_t part = std::max(index_t{1}, elements / std::max(index_t{1}, one));
    for (index_t first = 0; first < examples; first += part) {
      batch_.assign(scores, dense_strides<Layout, 4>(scores.extents()), part_targets, first,
                    std::min(part, examples - first));
      for (any_metric* const each : all_) {
        each->update(batch_);
      }
    }
  }

 private:
  std::span<any_metric* const> all_;
  metrics::batch batch_;
  worker_sums workers_;  // by parallel::reproducible
};

/// A number that a line of text shows for a result, if there is one.
template <class Result>
[[nodiscard]] std::optional<double> shown_number(const Result& result) {
  if constexpr (std::is_convertible_v<const Result&, double>) {
    return static_cast<double>(result);
  } else if constexpr (requires {
                         { result.summary() } -> std::convertible_to<double>;
                       }) {
    return static_cast<double>(result.summary());
  } else {
    return std::nullopt;
  }
}

inline void append_metric(std::string& text, const std::string& metric, std::optional<double> number) {
  if (number) {
    char digits[40];
    format_text(digits, sizeof(digits), "%.4f", *number);
    append_text(text, {text.empty() ? "" : ", ", metric, " ", digits});
  }
}

/// See the primary template.
template <class Network, class... Metrics>
class metric_evaluation<Network, metrics::list<Metrics...>> {
  using element = typename Network::element_type;
  using device = typename Network::device_type;

 public:
  /// @throws shape_error, configuration_error when a metric cannot compare the scores with the targets, or ranks differ
  metric_evaluation(comm::link& group, const nn::network_base<element, device>& network,
                    const metrics::list<Metrics...>& all, error_location where)
      : group_{&group}, options_{all.metrics}, states_(made(group, network, all, where)) {
    std::string names;
    std::apply(
        [&](const Metrics&... each) {
          (append_text(names, {names.empty() ? "" : ", ", metrics::describe(each)}), ...);
        },
        options_);
    const comm::property properties[] = {{"metrics", names}};
    comm::require_agreement(group, "trainer.evaluate", properties);
  }

  [[nodiscard]] nn::score_observer<element, device>* observer() noexcept { return &observer_; }

  /// The report and the results, the same on all ranks.
  [[nodiscard]] std::tuple<evaluation_report, metrics::result_t<Metrics>...> finish(evaluation_report report) {
    observer_.combine(*group_);
    return [&, this ]<std::size_t... Index>(std::index_sequence<Index...>) {
      std::tuple<evaluation_report, metrics::result_t<Metrics>...> result{std::move(report),
                                                                          std::get<Index>(states_).compute()...};
      (append_metric(std::get<0>(result).metrics, metrics::describe(std::get<Index>(options_)),
                     shown_number(std::get<Index + 1>(result))),
       ...);
      return result;
    }
    (std::make_index_sequence<sizeof...(Metrics)>{});
  }

 private:
  using states = std::tuple<metric_of<Metrics>...>;

  /// If a metric refuses the shapes, the other ranks get its reason when they compare metrics.
  static states made(comm::link& group, const nn::network_base<element, device>& network,
                     const metrics::list<Metrics...>& all, error_location where) {
    try {
      return at_call(where, [&] {
        network.structure().require_loss("trainer.evaluate");
        const metrics::example_shape shape{network.output_shape(), network.target_description()};
        return std::apply(
            [&](const Metrics&... each) {
              return states(metric_arguments<Metrics>{each, shape}...);
            },
            all.metrics);
      });
    } catch (const std::exception& failure) {
      const comm::property properties[] = {{"metrics", failure.what()}};
      refuse(group, "trainer.evaluate", properties);
      throw;
    }
  }

  comm::link* group_;
  std::tuple<Metrics...> options_;
  states states_;
  std::array<any_metric*, sizeof...(Metrics)> all_ =
      std::apply([](auto&... each) { return std::array<any_metric*, sizeof...(Metrics)>{&each...}; }, states_);
  metric_observer<element, typename Network::layout_type, device> observer_{all_};
};

/// One metric.
template <class Network, metrics::metric Metric>
class metric_evaluation<Network, Metric> : public metric_evaluation<Network, metrics::list<Metric>> {
  using base = metric_evaluation<Network, metrics::list<Metric>>;

 public:
  metric_evaluation(comm::link& group,
                    const nn::network_base<typename Network::element_type, typename Network::device_type>& network,
                    const Metric& options, error_location where)
      : base{group, network, metrics::list<Metric>{options}, where} {}
};

}  // namespace detail

/// A callback that evaluates metrics on another data set after each epoch. It fills epoch_report::evaluation, with the
/// numbers of the metrics, so put it before callbacks that show it:
///
///   train::evaluate_metrics test_metrics{test, metrics::list{metrics::top_k{5}, metrics::confusion_matrix{}}};
///   trainer.fit(loader, {.epochs = 2}, test_metrics, train::progress{});
///   const auto& [top5, matrix] = *test_metrics.results();
///
/// The ranks share the work, and all get the results.
template <class Loader, class Metrics>
class evaluate_metrics {
  template <class>
  struct results_of;
  template <class... Each>
  struct results_of<metrics::list<Each...>> {
    using type = std::tuple<metrics::result_t<Each>...>;
  };

 public:
  /// The result of each metric.
  using results_type = typename results_of<Metrics>::type;

  /// @param loader  batches of the other data set; it must outlive the callback
  /// @param all     the metrics
  /// @param every   epochs from one evaluation to the next; the last epoch is followed by one
  /// @throws configuration_error if `every` is below 1
  evaluate_metrics(borrowed<Loader> loader, const Metrics& all, int every = 1,
                   error_location where = error_location::current())
      : loader_{&loader.get()}, metrics_{all}, every_{every}, where_{where} {
    if (every < 1) {
      raise<configuration_error>("evaluate_metrics", "every at least 1 epoch", {every}, {}, where);
    }
  }
  /// The same for one metric.
  template <metrics::metric Metric>
  requires std::same_as<Metrics, metrics::list<Metric>> evaluate_metrics(
      borrowed<Loader> loader, const Metric& one, int every = 1, error_location where = error_location::current())
      : evaluate_metrics{loader, Metrics{one}, every, where} {}

  /// Evaluates after each `every` epochs and after the last one. All ranks that train call it.
  template <class Trainer>
  void on_epoch(Trainer& trainer, epoch_report& report) {
    if ((report.epoch + 1) % every_ != 0 && report.epoch + 1 != report.epochs) {
      return;
    }
    auto result = trainer.evaluate(*loader_, metrics_, where_);
    report.evaluation = std::move(std::get<0>(result));
    results_ = std::apply([](auto& /*report*/, auto&... each) { return results_type{std::move(each)...}; }, result);
  }

  /// The results after the last epoch with an evaluation; empty before.
  [[nodiscard]] const std::optional<results_type>& results() const noexcept { return results_; }

 private:
  Loader* loader_;
  Metrics metrics_;
  int every_;
  error_location where_;
  std::optional<results_type> results_;
};

template <class Loader, class... Metrics>
evaluate_metrics(Loader&&, const metrics::list<Metrics...>&, int = 1, error_location = error_location::current())
    -> evaluate_metrics<std::remove_reference_t<Loader>, metrics::list<Metrics...>>;
template <class Loader, metrics::metric Metric>
evaluate_metrics(Loader&&, const Metric&, int = 1, error_location = error_location::current())
    -> evaluate_metrics<std::remove_reference_t<Loader>, metrics::list<Metric>>;

}  // namespace gradus::train
