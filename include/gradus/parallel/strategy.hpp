// SPDX-License-Identifier: BSL-1.0
//
// What makes a training step distributed: how ranks bring their gradients together.
#pragma once

#include <concepts>     // std::constructible_from, std::convertible_to, std::derived_from, std::invocable, std::same_as
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_abstract_v
#include <utility>      // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/tensor/instances.hpp"

namespace gradus::parallel {

/// The flat buffers of a network and the parameters in them, in the order in which backward completes their gradients.
template <class Element>
struct flat_parameters {
  std::span<Element> values;                 ///< of all parameters, in the memory of the device
  std::span<Element> gradients;              ///< at the same offsets as `values`
  std::span<const optim::segment> segments;  ///< the range of each parameter
  /// Where the ranks have different layers: the number of segments of each stage of this rank, from its last stage on.
  std::span<const std::size_t> of_stage{};
  /// Whether the device takes denormal numbers as 0 (cpu_options::flush_denormals). A strategy's functions are called
  /// by a thread that does the same; what threads of its own add up they add so, too (floating_point_scope).
  bool flush_denormals = false;
};

/// What a strategy calls, as update(segments), for parameters whose gradients have arrived. It refers to a function of
/// segments, which outlives it.
class update_call {
 public:
  /// @param watch  records when the rule is computed; null: nothing does
  template <std::invocable<std::span<const optim::segment>> Function>
  requires(!std::same_as<Function, update_call>)
      update_call(const Function& function, comm::rule_watch* watch = nullptr)
  noexcept
      : function_{&function},
        call_{[](const void* erased, std::span<const optim::segment> ready) {
          (*static_cast<const Function*>(erased))(ready);
        }},
        watch_{watch} {}

  /// Updates the parameters of `ready` from their gradients.
  void operator()(std::span<const optim::segment> ready) const { call_(function_, ready); }

  /// Until the result is gone, calls are pieces of one pass over the parameters: a trace shows one span for all.
  [[nodiscard]] comm::rule_pass pass() const noexcept { return comm::rule_pass{watch_}; }

 private:
  const void* function_;
  void (*call_)(const void* function, std::span<const optim::segment> ready);
  comm::rule_watch* watch_;
};

/// Memory that a strategy sends or receives, and what traces call it.
struct transfer_buffer {
  std::string name;                  ///< the name in traces
  std::span<const std::byte> bytes;  ///< the memory that is sent or received
};

/// Memory that a strategy keeps from step to step, so that a checkpoint must hold it.
struct strategy_buffer {
  optim::state_buffer memory;  ///< its name is unique in the strategy
  bool of_parameters = false;  ///< it is laid out as the flat buffers, with an element for each of theirs
  /// Each rank has its own, and what counts is the sum over the ranks: on other ranks a training goes on with shares of
  /// that. Otherwise all ranks have the same bits.
  bool of_rank = false;
};

/// Where the parameters of a strategy are updated.
enum class update_scope : unsigned char {
  all,        ///< every rank updates all of them
  stages,     ///< every rank updates all that it has: those of its stages of the network
  parts,      ///< a rank updates parts of parameters: the rule has to be elementwise
  on_servers  ///< servers do: this rank keeps no state of the rule
};

/// How one rank brings its gradients together with those of the others: the base class of all strategies' states.
///
/// A trainer calls `use`, then `start`, and in each step
///   1. `gradients_ready` during backward, in the same order on all ranks: last layer first, every segment once;
///   2. `end_of_step`;
///   3. `finish`, or where updates may be late `finish_until`, for one layer after another of the next forward pass.
/// It calls `complete` before it evaluates, and `complete` and `gather_state` at the end of epochs.
///
/// Gradients are those of (sum of local losses) / (examples of the step over all ranks), so the sum over ranks is the
/// gradient of the mean loss over the global batch.
///
/// A strategy whose ranks update parts of parameters derives from partial_strategy, one whose servers update derives
/// from server_strategy.
template <class Element>
class strategy {
 public:
  strategy() = default;
  strategy(const strategy&) = delete;  // the trainer refers to it
  strategy& operator=(const strategy&) = delete;
  virtual ~strategy() = default;

  /// The plan as text: ranks whose texts differ cannot train together, and get an error.
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Makes the parameters' values those of rank 0 on every rank. Called by all ranks, once.
  virtual void start() = 0;

  /// Brings the sums of the gradients over the ranks to where parameters are updated, calls update(segments) for
  /// parameters that have arrived, each once, and returns when the values are those of the next step. A parameter that
  /// is left out keeps its values; backward overwrites its gradient in the next step. Nothing checks that the values
  /// are then the same on all ranks.
  virtual void finish(const update_call& update) = 0;

  /// The gradients of segments [first, first + count) are complete.
  virtual void gradients_ready(std::size_t /*first*/, std::size_t /*count*/) {}

  /// All gradients of a step are complete.
  virtual void end_of_step(double /*learning_rate*/) {}

  /// Whether finish may be put off, and made in parts by finish_until.
  [[nodiscard]] virtual bool has_deferred_update() const noexcept { return false; }

  /// As finish, until the values of segments [first, first + count) are those of the next step. Returns whether all
  /// are.
  virtual bool finish_until(std::size_t /*first*/, std::size_t /*count*/, const update_call& update) {
    finish(update);
    return true;
  }

  /// Makes the values those that are evaluated. Called by all ranks that train.
  virtual void complete() {}

  /// The rule and its state that update(segments) works with; it outlives the strategy. Called by all ranks, once,
  /// before start.
  virtual void use(optim::parameter_update<Element>& /*update*/) {}

  /// The state of the rule becomes whole on all ranks. Called by all ranks.
  virtual void gather_state() {}
  /// The state of the rule becomes whole on this rank, where that takes no other rank's help. Between steps.
  virtual void fetch_state() {}

  /// The gradients become those of the last update, on every rank that trains: their sums over the ranks. Called by all
  /// of them, between steps, after settle, as often as they want. Nothing where `finish` leaves the sums on all ranks.
  /// @return  what to multiply the gradients by, so that they are those of a mean loss: 1, unless each rank has its own
  /// @throws configuration_error if the strategy cannot give them
  [[nodiscard]] virtual double gather_gradients() { return 1; }

  // For checkpoints, between steps.

  /// What is under way arrives, so that the state is that of one step. Called by all ranks that train.
  virtual void settle() {}
  /// Whether each rank has values, and a state of the rule, of its own: a checkpoint then holds those of all.
  [[nodiscard]] virtual bool ranks_differ() const noexcept { return false; }
  /// Whether ranks that have a parameter have the same bits of it when all that is under way has arrived. Ranks then
  /// compare them at the beginning of each fit, and train::verify_replicas does in between.
  [[nodiscard]] virtual bool replicates() const noexcept { return !ranks_differ(); }
  /// What the strategy has counted and needs to go on; the same on all ranks. They may be written.
  [[nodiscard]] virtual std::span<std::uint64_t> counters() noexcept { return {}; }
  /// What the strategy keeps in memory of the host and needs to go on: the same list on all ranks. It may be written;
  /// all 0 is how a training begins.
  [[nodiscard]] virtual std::span<const strategy_buffer> buffers() const noexcept { return {}; }

  /// Which rank updates which parameters; a constant of the strategy.
  [[nodiscard]] virtual update_scope scope() const noexcept { return update_scope::all; }

  /// Of a strategy whose ranks do not all have all parameters, or whose servers update: whether it takes an update that
  /// needs all gradients. Before the first update of a step it then calls what parameter_update::needs_all_gradients
  /// says. (Where every rank updates all parameters, the end of a step calls it.)
  [[nodiscard]] virtual bool sums_totals() const noexcept { return false; }

  /// The ranks that train; null: all ranks of the communicator.
  [[nodiscard]] virtual comm::link* group() noexcept { return nullptr; }

  /// Where the ranks have different layers (update_scope::stages): the first rank that runs a stage.
  [[nodiscard]] virtual int rank_of_stage(std::size_t /*stage*/) const noexcept { return 0; }
  /// The same: makes the values of frozen parameters those of the first rank with these layers. Called by all ranks,
  /// before start.
  virtual void share_frozen(std::span<std::byte> /*values*/) {}

  /// What travels in a step: traces call transfers of this memory by these names.
  [[nodiscard]] virtual dynamic_array<transfer_buffer> transfer_buffers() const { return {}; }

 protected:
  /// @throws configuration_error with the first line of describe()
  [[nodiscard]] double refuse_gradients() const {
    const std::string text = describe();
    raise<configuration_error>("strategy.gather_gradients", "a strategy that gives the gradients of the last update",
                               std::string_view{text}.substr(0, text.find('\n')),
                               "override gather_gradients in the strategy, or train with parallel::all_reduce");
  }
};

/// A strategy whose ranks each update parts of the parameters. Only elementwise rules can be used with it.
template <class Element>
class partial_strategy : public strategy<Element> {
 public:
  void gather_state() override = 0;
  /// Not unless it is overridden: a rank has the sums of its parts only.
  [[nodiscard]] double gather_gradients() override { return this->refuse_gradients(); }
  /// Always update_scope::parts.
  [[nodiscard]] update_scope scope() const noexcept final { return update_scope::parts; }
};

/// A strategy whose parameters are updated by servers. The rule that it is given by `use` has no state on this rank;
/// servers make one of the same rule (parameter_update::with_state_on). update(segments) is never called.
template <class Element>
class server_strategy : public strategy<Element> {
 public:
  void use(optim::parameter_update<Element>& update) override = 0;
  void end_of_step(double learning_rate) override = 0;
  /// Not unless it is overridden: servers have the sums.
  [[nodiscard]] double gather_gradients() override { return this->refuse_gradients(); }
  /// Always update_scope::on_servers.
  [[nodiscard]] update_scope scope() const noexcept final { return update_scope::on_servers; }

  // For checkpoints. The first of the ranks that train calls them, between steps of all.

  /// Copies a buffer of the servers to one that is laid out as the flat buffers: 0 the values, then those of
  /// optim::buffers_of_parameters.
  /// @throws configuration_error if the servers cannot give it
  virtual void fetch_from_servers(std::size_t /*buffer*/, std::span<Element> /*to*/) { raise_no_state(); }
  /// Sets such a buffer on the servers, and the number of updates that they have made of each parameter.
  virtual void store_on_servers(std::size_t /*buffer*/, std::span<const Element> /*from*/, std::uint64_t /*updates*/) {
    raise_no_state();
  }
  /// The updates that the servers have made of each parameter.
  [[nodiscard]] virtual std::uint64_t updates_of_servers() { raise_no_state(); }

 private:
  [[noreturn]] static void raise_no_state() {
    raise<configuration_error>("server_strategy", "a strategy that gives the state of its servers", "one that does not",
                               "override fetch_from_servers, store_on_servers and updates_of_servers");
  }
};

/// A requirement of `gradient_strategy`: Strategy has a name.
template <class Strategy>
concept has_strategy_name = requires {
  { Strategy::name } -> std::convertible_to<std::string_view>;
};

/// What a strategy keeps on a rank.
template <class Strategy, class Element>
using strategy_state = typename Strategy::template state<Element>;

/// A strategy that chooses what it keeps by what the communicator can do: it has
/// `make(const Strategy&, comm::any_communicator, const flat_parameters<Element>&)`, which returns a std::unique_ptr of
/// its state, a base class.
template <class Strategy, class Element>
concept makes_strategy_state = requires(const Strategy& options, comm::any_communicator ranks,
                                        const flat_parameters<Element>& parameters) {
  {
    Strategy::template make<Element>(options, std::move(ranks), parameters)
    } -> std::same_as<std::unique_ptr<strategy_state<Strategy, Element>>>;
};

/// A requirement of `gradient_strategy`: Strategy has `state<Element>` with the constructor of a strategy.
template <class Strategy, class Element = float>
concept has_strategy_state = requires {
  typename strategy_state<Strategy, Element>;
}
&&(makes_strategy_state<Strategy, Element> ||
   std::constructible_from<strategy_state<Strategy, Element>, const Strategy&, comm::any_communicator,
                           const flat_parameters<Element>&>);

/// A requirement of `gradient_strategy`: the state of Strategy derives from strategy<Element>.
template <class Strategy, class Element = float>
concept has_strategy_base =
    has_strategy_state<Strategy, Element> && std::derived_from<strategy_state<Strategy, Element>, strategy<Element>>;

/// A way of computing, on several ranks, the update that one process would compute on the batches of all.
///
/// A type Strategy models `gradient_strategy` when it is an aggregate of options, and
///   1. `Strategy::name` is a constant string used in messages;
///   2. `Strategy::state<Element>` is constructible from (const Strategy&, comm::any_communicator, const
///      flat_parameters<Element>&) and derives from `strategy<Element>`, which says what it does. All ranks construct
///      it, over a communicator that outlives it.
/// Semantics: tests/conformance/parallel.
template <class Strategy, class Element = float>
concept gradient_strategy = has_strategy_name<Strategy> && has_strategy_base<Strategy, Element>;

/// Makes what a strategy keeps on this rank. Called by all ranks.
/// @param ranks  what it refers to outlives the result
/// @throws configuration_error when options make no sense
template <class Element, gradient_strategy<Element> Strategy>
[[nodiscard]] std::unique_ptr<strategy_state<Strategy, Element>> make_strategy(
    const Strategy& options, comm::any_communicator ranks, const flat_parameters<Element>& parameters) {
  if constexpr (makes_strategy_state<Strategy, Element>) {
    return Strategy::template make<Element>(options, std::move(ranks), parameters);
  } else {
    return std::make_unique<strategy_state<Strategy, Element>>(options, std::move(ranks), parameters);
  }
}

/// Says which requirement of `gradient_strategy` the type Strategy misses. Always true when it compiles.
template <class Strategy, class Element = float>
consteval bool explain_strategy() {
  static_assert(has_strategy_name<Strategy>,
                "gradus: not a strategy: give it a name, e.g. "
                "static constexpr std::string_view name = \"all_reduce\";");
  constexpr bool abstract = [] {
    if constexpr (requires { typename strategy_state<Strategy, Element>; }) {
      return std::is_abstract_v<strategy_state<Strategy, Element>> && !makes_strategy_state<Strategy, Element>;
    } else {
      return false;
    }
  }();
  static_assert(!abstract,
                "gradus: not a strategy: its state must override std::string describe() const, void start() and void "
                "finish(const gradus::parallel::update_call&): write override after each of them");
  static_assert(abstract || has_strategy_state<Strategy, Element>,
                "gradus: not a strategy: give it template <class Element> class state with a constructor state(const "
                "options&, gradus::comm::any_communicator, const gradus::parallel::flat_parameters<Element>&)");
  static_assert(!has_strategy_state<Strategy, Element> || has_strategy_base<Strategy, Element>,
                "gradus: not a strategy: derive its state publicly from gradus::parallel::strategy<Element> and write "
                "override after its functions");
  return true;
}

}  // namespace gradus::parallel

// A strategy of the library, for each type of parameters. Does nothing without separate compilation.
#ifdef GRADUS_HAS_INSTANCES
#define GRADUS_COMPILED_STRATEGY(strategy) GRADUS_EACH_PARAMETER_ELEMENT(GRADUS_DETAIL_STRATEGY, strategy)
#define GRADUS_DETAIL_STRATEGY(instance, element, strategy)                                                     \
  instance(                                                                                                     \
      std::unique_ptr<::gradus::parallel::strategy_state<strategy, element>>                                    \
          gradus::parallel::make_strategy<element, strategy>(const strategy&, ::gradus::comm::any_communicator, \
                                                             const ::gradus::parallel::flat_parameters<element>&))
#else
#define GRADUS_COMPILED_STRATEGY(strategy)
#endif
