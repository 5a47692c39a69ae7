// SPDX-License-Identifier: BSL-1.0
//
// The graph of a network's layers: names, shapes, parameters and their checks. Compiled once for all element types,
// layouts and devices.
#pragma once

#include <atomic>       // std::atomic
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/name_pattern.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/detail/network/graph_errors.hpp"
#include "gradus/nn/detail/network/graph_text.hpp"
#include "gradus/nn/detail/network/name_index.hpp"
#include "gradus/nn/detail/network/option_text.hpp"
#include "gradus/nn/detail/network/unknown_names.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/parameter_options.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/plan/parameter_checks.hpp"
#include "gradus/nn/plan/parameter_offsets.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn {

/// The layers, the values that they read, and the offsets of their parameters and buffers. Value 0 is the network's
/// input, value i + 1 the output of layer i.
class graph {
 public:
  using node = graph_node;  ///< a layer with its inputs, parameters and buffers

  /// @param input  the shape of one example
  /// @throws shape_error when an extent is below 1, or an example has more than 2^48 elements
  explicit graph(const value_shape& input);

  // ---- building

  /// Appends a layer and infers the shape of its output.
  /// @throws shape_error, configuration_error with the layer's name, when the inputs do not fit; the graph is unchanged
  value append(std::string_view name, std::unique_ptr<layer_base> layer, std::span<const value> inputs,
               error_location where);

  /// @throws configuration_error when the value cannot have a loss
  void require_scores(value scores, error_location where) const;

  /// Ends the graph with a loss over `scores`. @pre require_scores(scores)
  void end(value scores) {
    scores_ = scores.index;
    has_loss_ = true;
  }

  /// As network::freeze.
  void freeze(std::string_view pattern, const freeze_options& options);

  /// As network::group.
  void group(std::string_view pattern, const parameter_options& options);

  /// Fixes the graph, and the offsets of parameters in a flat buffer, each a multiple of memory_plan::alignment.
  /// @param inference  only forward will run; a compiled graph may be compiled for it, and keeps the offsets
  /// @param stages     those of a rank that runs some layers only, whose parameters alone get offsets; null: all layers
  ///                   run. A compiled graph may be cut, and cut again
  /// @throws configuration_error when the graph has no layer, a value is never used, max_batch_size is below 1, or the
  ///         stages are not those of this graph
  void compile(const compile_options& options, std::size_t element_bytes, bool inference = false,
               const stage_cuts* stages = nullptr);

  /// Undoes compile, for a network that could not allocate its memory.
  void undo_compile() noexcept {
    options_ = {};
    stages_ = {};
  }

  /// @throws configuration_error when the graph is compiled
  void require_building(std::string_view operation, error_location where = error_location::current()) const {
    if (compiled()) {
      raise<configuration_error>(operation, "a network that is not compiled", "a compiled one",
                                 "add layers and the loss before compile, and compile once", where);
    }
  }

  /// @throws configuration_error when the graph is compiled for inference
  void require_training(std::string_view operation, error_location where = error_location::current()) const;

  /// The input of the planner.
  /// @param memory  memory of each layer
  [[nodiscard]] graph_description describe_for_plan(std::span<const layer_memory> memory,
                                                    std::size_t element_bytes) const;

  // ---- structure

  /// True if the graph is, or was last, compiled for inference.
  [[nodiscard]] bool inference() const noexcept { return inference_; }
  /// True after compile; false for a graph that was moved from.
  [[nodiscard]] bool compiled() const noexcept { return options_.max_batch_size != 0 && !nodes_.empty(); }
  /// The options of compile.
  [[nodiscard]] const compile_options& options() const noexcept { return options_; }
  /// The largest number of examples that a layer computes at once.
  [[nodiscard]] index_t examples_at_once() const noexcept {
    const index_t part = options_.micro_batch_size.examples;
    return part > 0 && part < options_.max_batch_size ? part : options_.max_batch_size;
  }
  /// True if other ranks run some of the layers.
  [[nodiscard]] bool in_stages() const noexcept { return stages_.stages() > 0; }
  /// The stages of a network that is cut; else none.
  [[nodiscard]] const stage_cuts& stages() const noexcept { return stages_; }
  /// True if a layer exchanges data with other ranks in training. @pre compiled()
  [[nodiscard]] bool communicates() const noexcept { return communicates_; }
  /// The layers, in the order of append.
  [[nodiscard]] std::span<const node> nodes() const noexcept { return nodes_; }
  /// A number that no other graph of this process has; its values contain it.
  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  /// The name of a layer. @throws std::out_of_range when there is no such layer
  [[nodiscard]] const std::string& name(std::size_t layer) const { return nodes_.at(layer).name; }
  /// The shape of one example of a value. @throws configuration_error when the value belongs to another graph
  [[nodiscard]] const value_shape& shape(value v, error_location where = error_location::current()) const;
  /// The shape of one example of a value. @throws std::out_of_range when there is no such value
  [[nodiscard]] const value_shape& shape(std::size_t v) const { return shapes_.at(v); }
  /// The extents of a value for a batch. @pre the value exists
  [[nodiscard]] GRADUS_NEVER_INLINE extents<4> batch_extents(std::size_t v, index_t examples) const {
    return shapes_[v].batch(examples);
  }
  /// True if the graph ends with a loss.
  [[nodiscard]] bool has_loss() const noexcept { return has_loss_; }
  /// Index of the value that forward returns.
  [[nodiscard]] std::size_t scores() const noexcept { return scores_; }

  /// All parameters, those of the last layer first; those of frozen layers come after all others. @pre compiled
  [[nodiscard]] std::span<const parameter_description* const> parameters() const noexcept {
    return offsets_.parameters();
  }
  /// The parameters() that are trained: the first ones. @pre compiled
  [[nodiscard]] std::span<const parameter_description* const> trained_parameters() const noexcept {
    return offsets_.trained_parameters();
  }
  /// The size of a flat buffer of all parameters, in elements. @pre compiled
  [[nodiscard]] index_t parameter_elements() const noexcept { return offsets_.elements(); }
  /// Its first elements, which are those of trained_parameters(). @pre compiled
  [[nodiscard]] index_t trained_elements() const noexcept { return offsets_.trained_elements(); }
  /// Its first elements that have memory for gradients: with those that a frozen layer writes because its
  /// layer_traits::skips_parameter_gradients is false. @pre compiled
  [[nodiscard]] index_t gradient_elements() const noexcept { return offsets_.gradient_elements(); }
  /// The size of a flat buffer of all layers' buffers, in elements. @pre compiled
  [[nodiscard]] index_t buffer_elements() const noexcept { return offsets_.buffer_elements(); }

  /// The index of the parameter "layer.name" in parameters().
  /// @throws configuration_error when there is none, or neither compile nor forecast was called
  [[nodiscard]] std::size_t find_parameter(std::string_view name,
                                           error_location where = error_location::current()) const;

  /// The number of elements of all parameters.
  [[nodiscard]] index_t parameter_count() const;

  /// The number of elements of a layer's parameters. @throws std::out_of_range when there is no such layer
  [[nodiscard]] index_t parameter_count(std::size_t layer) const { return nodes_.at(layer).parameter_count(); }

  /// Multiply-adds of one forward pass over one example; the largest number if they are more.
  [[nodiscard]] index_t multiply_adds() const;

  /// A text with one line for each layer (name, kind, output shape, parameters, multiply-adds) and the totals.
  [[nodiscard]] GRADUS_COLD std::string describe() const {
    return detail::graph_text(nodes(), shapes_, append_groups_);
  }

  /// What the layers compute, as text: a line for each layer and one for each of its options, to which those of a loss
  /// may be added.
  [[nodiscard]] detail::option_text describe_options() const { return detail::option_text{nodes(), shapes_}; }

  /// "layer 'conv1' (conv2d)"
  [[nodiscard]] std::string describe(std::size_t layer) const {
    return gradus::join({"layer '", nodes_[layer].name, "' (", nodes_[layer].layer->kind(), ")"});
  }

  // ---- checks of a step

  /// Raises configuration_error: the network must be compiled first.
  [[noreturn]] static void raise_not_compiled(std::string_view operation, error_location where) {
    raise<configuration_error>(operation, "a compiled network", "one that is still being built, or was moved from",
                               "call compile({.max_batch_size = ...}) first", where);
  }

  /// @throws configuration_error when the graph has no loss
  void require_loss(std::string_view operation) const {
    require_compiled(operation);
    require_loss_of(operation);
  }

  /// @throws configuration_error when other ranks run some of the layers
  void require_whole(std::string_view operation) const;

  /// @param most  the largest number of examples
  /// @throws configuration_error unless the graph is compiled
  /// @throws shape_error when the images do not fit the graph
  void check_batch(std::string_view operation, const image_extents& images, index_t most) const;

 private:
  /// The names of all layers and parameters; they refer to this graph.
  [[nodiscard]] detail::network_names names() const;

  [[nodiscard]] static std::uint64_t next_identity() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  /// True if the value belongs to this graph.
  [[nodiscard]] bool owns(value v) const noexcept { return v.network == identity_ && v.index < shapes_.size(); }

  /// Removes a layer that could not be appended.
  void forget_last() noexcept {
    nodes_.pop_back();
    while (shapes_.size() > nodes_.size() + 1) {
      shapes_.pop_back();
    }
  }

  void require_compiled(std::string_view operation, error_location where = error_location::current()) const {
    if (!compiled()) {
      raise_not_compiled(operation, where);
    }
  }

  void require_loss_of(std::string_view operation) const {
    if (!has_loss_) {
      raise<configuration_error>(operation, "a network with a loss", "none",
                                 "call loss(nn::softmax_cross_entropy{}, scores) before compile");
    }
  }

  dynamic_array<value_shape> shapes_;  // one for each value
  dynamic_array<node> nodes_;
  detail::name_index names_;  // of nodes_
  std::uint64_t identity_ = next_identity();
  std::size_t scores_ = 0;
  bool has_loss_ = false;
  bool inference_ = false;
  bool communicates_ = false;
  decltype(&detail::append_groups) append_groups_ = nullptr;  // null: group was not called
  compile_options options_;                                   // max_batch_size 0: not compiled
  stage_cuts stages_;                                         // none: this rank runs all layers
  parameter_offsets offsets_;
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE_CONSTRUCTOR graph::graph(const value_shape& input) {
  if (input.channels < 1 || input.height < 1 || input.width < 1) {
    raise<shape_error>("network", "an input of at least 1 channel, row and column",
                       {input.channels, " channels, ", input.height, " rows and ", input.width, " columns"});
  }
  if (!detail::has_few_elements(input.batch(1))) {  // sums and products of extents and options then fit 64 bits
    raise<shape_error>("network", {"an input of at most ", detail::most_elements, " elements"},
                       to_string(input.batch(1)));
  }
  shapes_.push_back(input);
}

GRADUS_COLD GRADUS_INLINE value graph::append(std::string_view name, std::unique_ptr<layer_base> layer,
                                              std::span<const value> inputs, error_location where) {
  require_building("network.add", where);
  const auto name_of = [this](std::size_t at) -> std::string_view { return nodes_[at].name; };
  if (const std::size_t other = names_.find(name, nodes_.size(), name_of); other < nodes_.size()) {
    detail::raise_name_again(name, nodes_[other].layer->kind(), where);
  }
  dynamic_array<value_shape> input_shapes;
  for (const value input : inputs) {
    if (!owns(input)) {
      raise<configuration_error>({"layer '", name, "'"}, "values of this network", "a value that it did not make",
                                 "pass a value that input() or add(...) of this network returned", where);
    }
    input_shapes.push_back(shapes_[input.index]);
  }
  node& made = nodes_.emplace_back();
  try {
    if (inputs.empty()) {
      raise<configuration_error>(layer->kind(), "at least 1 input value", "0");
    }
    layer->set_name(name);
    shapes_.push_back(layer->infer(input_shapes));
    detail::require_extents(layer->kind(), shapes_.back());
    for (const value input : inputs) {
      made.inputs.push_back(input.index);
    }
    made.name = name;
    made.parameters = layer->parameters();
    require_parameters(*layer, {made.parameters.data(), made.parameters.size()});
    for (parameter_description& p : made.parameters) {
      p.name = gradus::join({name, ".", p.name});
    }
    detail::require_new_names({nodes_.data(), nodes_.size()}, *layer);
    names_.add(name, nodes_.size() - 1);
    made.layer = std::move(layer);
  } catch (error& failure) {
    forget_last();
    failure.add_context(detail::layer_on(name, input_shapes), where);
    throw;
  } catch (...) {
    forget_last();
    throw;
  }
  return {nodes_.size(), identity_};
}

GRADUS_INLINE void graph::require_scores(value scores, error_location where) const {
  require_building("network.loss", where);
  if (has_loss_) {
    raise<configuration_error>("network.loss", "one loss", "a second one",
                               "a sum of losses of one value is one expression, nn::loss_of([](auto scores, auto "
                               "targets) { return mean(square(scores - targets)) + mean(abs(scores)); }); losses of "
                               "several values are one loss of your own over nn::concat of them (docs/extending.md)",
                               where);
  }
  if (!owns(scores) || scores.index == 0) {
    raise<configuration_error>("network.loss", "the output of a layer of this network",
                               owns(scores) ? "its input" : "another value",
                               "pass the value that the last net.add(...) returned", where);
  }
}

GRADUS_INLINE void graph::freeze(std::string_view pattern, const freeze_options& options) {
  require_building("network.freeze");
  bool any = false;
  for (node& n : nodes_) {
    if (matches_pattern(pattern, n.name)) {
      n.frozen = true;
      n.evaluates = options.evaluates;
      any = true;
    }
  }
  if (!any) {
    detail::raise_no_layer("network.freeze", pattern, names());
  }
}

GRADUS_INLINE void graph::group(std::string_view pattern, const parameter_options& options) {
  if (options.learning_rate_factor &&
      (!(*options.learning_rate_factor > 0) || !is_finite(*options.learning_rate_factor))) {
    raise<configuration_error>("network.group", "a finite learning_rate_factor above 0",
                               {*options.learning_rate_factor}, "network.freeze excludes layers from training");
  }
  bool any = false;
  for (node& n : nodes_) {
    for (parameter_description& p : n.parameters) {
      if (matches_pattern(pattern, p.name)) {
        p.decay = options.weight_decay.value_or(p.decay);
        p.learning_rate_factor = options.learning_rate_factor.value_or(p.learning_rate_factor);
        any = true;
      }
    }
  }
  if (!any) {
    detail::raise_no_parameters("network.group", pattern, names());
  }
  append_groups_ = &detail::append_groups;
}

GRADUS_INLINE void graph::compile(const compile_options& options, std::size_t element_bytes, bool inference,
                                  const stage_cuts* stages) {
  const std::string_view asked_by = stages != nullptr ? "network.compile_stages"
                                    : inference       ? "network.compile_for_inference"
                                                      : "network.compile";
  if (!inference && stages == nullptr) {
    require_building(asked_by);
  }
  if (nodes_.empty()) {
    raise<configuration_error>(asked_by, "a network with at least one layer", "none");
  }
  if (options.max_batch_size < 1) {
    raise<configuration_error>(asked_by, "a max_batch_size of at least 1", {options.max_batch_size});
  }
  detail::require_memory_of(asked_by, {shapes_.data(), shapes_.size()}, options.max_batch_size);
  if (!has_loss_) {
    scores_ = shapes_.size() - 1;
  }
  detail::require_all_used(asked_by, nodes_, scores_);
  if (stages != nullptr) {
    require_loss_of(asked_by);
    stages->check(nodes_.size());
  }
  inference_ = inference;
  options_ = options;
  stages_ = stages == nullptr ? stage_cuts{} : *stages;
  offsets_.assign({nodes_.data(), nodes_.size()}, element_bytes, stages);
  if (!inference && stages == nullptr && has_loss_ && trained_parameters().empty() && !parameters().empty()) {
    raise<configuration_error>("network.compile", "a layer with parameters that is trained", "all of them frozen",
                               "freeze fewer layers; a network that only evaluates needs none of it");
  }
  communicates_ = false;
  for (node& n : nodes_) {
    if (n.layer->traits().communicates) {
      communicates_ = true;
      if (stages != nullptr) {
        raise<configuration_error>(asked_by, "layers that exchange nothing with other ranks",
                                   {"layer '", n.name, "' (", n.layer->kind(), ")"},
                                   "in a pipeline nn::batch_norm has the statistics of a micro-batch");
      }
      if (examples_at_once() < options.max_batch_size) {
        raise<configuration_error>("network.compile",
                                   {"a micro_batch_size of at least max_batch_size = ", options.max_batch_size,
                                    ": layer '", n.name, "' (", n.layer->kind(), ") needs the whole batch at once"},
                                   {examples_at_once()});
      }
    }
    n.layer->set_convolution_algorithm(options.convolution_algorithm);
  }
}

GRADUS_INLINE void graph::require_training(std::string_view operation, error_location where) const {
  if (inference_ && compiled()) {
    raise<configuration_error>(operation, "a network that is compiled for training",
                               "one that is compiled for inference: it has no gradients",
                               "call compile({.max_batch_size = ...}) instead of compile_for_inference", where);
  }
}

GRADUS_INLINE graph_description graph::describe_for_plan(std::span<const layer_memory> memory,
                                                         std::size_t element_bytes) const {
  graph_description description{
      .nodes = dynamic_array<graph_description::node>(nodes_.size()),
      .scores = scores_,
      .has_loss = has_loss_,
      .input_bytes = static_cast<std::size_t>(shapes_[0].batch(examples_at_once()).size()) * element_bytes};
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    graph_description::node& n = description.nodes[i];
    n.inputs = nodes_[i].inputs;
    n.traits = nodes_[i].layer->traits();
    n.trains = !inference_ && !nodes_[i].trained().empty();
    n.output_bytes = static_cast<std::size_t>(shapes_[i + 1].batch(examples_at_once()).size()) * element_bytes;
    n.state_bytes = memory[i].state;
    // A pass over an element waits for memory about as long as 16 multiply-adds take.
    n.work = static_cast<double>(nodes_[i].layer->multiply_adds()) + 16 * static_cast<double>(shapes_[i + 1].size());
    n.multiplies = nodes_[i].layer->multiply_adds() > 0;
  }
  return description;
}

GRADUS_INLINE const value_shape& graph::shape(value v, error_location where) const {
  if (!owns(v)) {
    raise<configuration_error>("network.shape", "a value of this network", "a value that it did not make",
                               "pass a value that input() or add(...) of this network returned", where);
  }
  return shapes_[v.index];
}

GRADUS_INLINE std::size_t graph::find_parameter(std::string_view name, error_location where) const {
  if (parameters().empty()) {
    require_compiled("network.find_parameter", where);
  }
  for (std::size_t k = 0; k < parameters().size(); ++k) {
    if (parameters()[k]->name == name) {
      return k;
    }
  }
  detail::raise_no_parameter("network.find_parameter", name, names(), where);
}

GRADUS_INLINE index_t graph::parameter_count() const {
  index_t total = 0;
  for (const node& n : nodes_) {
    total = gradus::detail::bounded_sum(total, n.parameter_count());
  }
  return total;
}

GRADUS_INLINE index_t graph::multiply_adds() const {
  index_t total = 0;
  for (const node& n : nodes_) {
    total = gradus::detail::bounded_sum(total, n.layer->multiply_adds());
  }
  return total;
}

GRADUS_INLINE void graph::require_whole(std::string_view operation) const {
  if (in_stages()) {
    raise<configuration_error>(operation, "a network of which this rank runs all layers",
                               {"one that is cut into ", stages_.stages(), " stages"},
                               "its stages run by nn::network_stage, as parallel::hybrid does");
  }
}

GRADUS_INLINE void graph::check_batch(std::string_view operation, const image_extents& images, index_t most) const {
  require_compiled(operation);
  require_whole(operation);
  const value_shape& want = shapes_.front();
  if (images.n > most || images != want.batch(images.n)) {
    detail::raise_other_images(operation, want, images, most, options_.max_batch_size);
  }
}

GRADUS_INLINE detail::network_names graph::names() const {
  detail::network_names result;
  for (const node& n : nodes_) {
    result.layers.add(n.name);
    for (const parameter_description& p : n.parameters) {
      result.parameters.add(p.name);
    }
  }
  return result;
}

}  // namespace gradus::nn
#endif
