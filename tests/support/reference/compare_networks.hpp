// SPDX-License-Identifier: BSL-1.0
//
// A network of the library against the plain reference: losses, scores, every gradient, running statistics and the
// parameters after steps of an update rule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/layout/mapping.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/tensor/tensor.hpp"
#include "random_graphs.hpp"
#include "reference_network.hpp"

namespace gradus_test {

/// The update after each step.
struct rule_spec {
  enum class kind : unsigned char { none, sgd, lars };
  kind which = kind::none;
  gradus::optim::sgd sgd{};
  gradus::optim::lars lars{};
  double learning_rate = 0.05;
};

/// What is trained on, for every element type, layout and device alike.
struct training_spec {
  std::uint64_t seed = 0;
  std::vector<index_t> batches{2};  ///< examples of each step
  index_t planned_batch = 2;
  index_t micro_batch = 0;
  double loss_scale = 1;
  index_t global_examples = 0;
  rule_spec rule;
};

/// Draws how a graph is trained.
[[nodiscard]] inline training_spec draw_training(draws& draw) {
  training_spec training;
  training.batches.clear();
  for (index_t steps = draw.between(1, 3); steps > 0; --steps) {
    training.batches.push_back(draw.between(1, 5));
  }
  training.planned_batch = *std::max_element(training.batches.begin(), training.batches.end()) + draw.between(0, 1);
  training.micro_batch = draw.chance(20) ? draw.between(1, 3) : 0;
  training.loss_scale = draw.chance(30) ? 8 : 1;
  training.global_examples = draw.chance(30) ? draw.between(5, 9) : 0;
  training.rule.which = static_cast<rule_spec::kind>(draw.between(0, 2));
  training.rule.sgd = {.momentum = draw.chance(70) ? 0.9 : 0.0, .weight_decay = draw.chance(50) ? 0.01 : 0.0};
  training.rule.sgd.nesterov = training.rule.sgd.momentum > 0 && draw.chance(50);
  training.rule.lars = {.momentum = 0.9, .weight_decay = draw.chance(50) ? 0.01 : 0.0, .trust = 0.02};
  return training;
}

[[nodiscard]] inline std::string to_string(const training_spec& training) {
  std::ostringstream out;
  out << "// seed " << training.seed << ", batches of";
  for (const index_t batch : training.batches) {
    out << ' ' << batch;
  }
  out << " examples, planned for " << training.planned_batch;
  if (training.micro_batch > 0) {
    out << ", micro-batches of " << training.micro_batch;
  }
  out << ", loss scale " << training.loss_scale << ", global examples " << training.global_examples;
  const rule_spec& rule = training.rule;
  if (rule.which == rule_spec::kind::sgd) {
    out << ", sgd{.momentum = " << rule.sgd.momentum << ", .nesterov = " << rule.sgd.nesterov
        << ", .weight_decay = " << rule.sgd.weight_decay << "}";
  } else if (rule.which == rule_spec::kind::lars) {
    out << ", lars{.momentum = " << rule.lars.momentum << ", .weight_decay = " << rule.lars.weight_decay
        << ", .trust = " << rule.lars.trust << "}";
  }
  return out.str();
}

/// What a training leaves behind, in the logical order of elements.
struct training_outcome {
  using named_numbers = std::map<std::string, std::vector<double>>;

  std::vector<reference_sums> steps;
  std::vector<named_numbers> gradients;  ///< of each step
  named_numbers buffers;
  named_numbers parameters;
  reference_sums evaluated;
  std::vector<double> scores;
};

/// Multiples of 1/16 in [-4, 4]: the same numbers in every element type.
[[nodiscard]] inline reference_images images_of(const graph_spec& spec, const training_spec& training,
                                                std::size_t step) {
  reference_images images{spec.input.batch(training.batches[step])};
  const gradus::random_stream stream{training.seed + step, "images"};
  for (std::size_t e = 0; e < images.elements.size(); ++e) {
    images.elements[e] = std::clamp(std::round(16 * stream.normal(e)) / 16, -4.0, 4.0);
  }
  return images;
}

[[nodiscard]] inline std::vector<std::int32_t> labels_of(index_t classes, const training_spec& training,
                                                         std::size_t step) {
  const gradus::random_stream stream{training.seed + step, "labels"};
  std::vector<std::int32_t> labels;
  for (index_t n = 0; n < training.batches[step]; ++n) {
    labels.push_back(
        static_cast<std::int32_t>(stream.below(static_cast<std::uint64_t>(classes), static_cast<std::uint64_t>(n))));
  }
  return labels;
}

/// Initial values: numbers of single precision.
[[nodiscard]] inline std::vector<double> initial_values(const std::string& name, const gradus::image_extents& shape,
                                                        const training_spec& training) {
  const gradus::random_stream stream{training.seed, name};
  const bool normalizes = shape.c * shape.h * shape.w == 1;
  const double mean = normalizes && name.ends_with(".weight") ? 1 : 0;
  const double deviation = normalizes ? 0.4 : std::sqrt(2.0 / static_cast<double>(shape.c * shape.h * shape.w));
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t e = 0; e < values.size(); ++e) {
    values[e] = static_cast<double>(static_cast<float>(mean + deviation * stream.normal(e)));
  }
  return values;
}

inline constexpr std::uint64_t dropout_seed = 5;
inline constexpr std::uint64_t first_step = 3;
inline constexpr std::uint64_t first_example = 11;

/// Trains a network of the library.
template <class Element, class Layout, class Device>
[[nodiscard]] training_outcome train_network(Device& device, const graph_spec& spec, const training_spec& training,
                                             gradus::nn::compile_options compile) {
  gradus::nn::network<Element, Layout, Device> net{device, spec.input};
  using real = typename decltype(net)::parameter_element_type;
  build(net, spec);
  compile.max_batch_size = training.planned_batch;
  compile.seed = dropout_seed;
  net.compile(compile);
  for (const auto& parameter : net.parameters()) {
    const std::vector<double> values = initial_values(parameter.name(), parameter.shape(), training);
    std::vector<real> converted;
    for (const double value : values) {
      converted.push_back(static_cast<real>(value));
    }
    parameter.assign_values(converted);
  }
  const auto segments = gradus::parallel::segments_of(net.structure());
  const auto elements = static_cast<index_t>(net.trained_values().size());
  using sgd_state = typename gradus::optim::sgd::template state<real, Device>;
  using lars_state = typename gradus::optim::lars::template state<real, Device>;
  std::optional<sgd_state> sgd;
  std::optional<lars_state> lars;
  if (training.rule.which == rule_spec::kind::sgd) {
    sgd.emplace(device, training.rule.sgd, elements);
  } else if (training.rule.which == rule_spec::kind::lars) {
    lars.emplace(device, training.rule.lars, elements);
  }
  const gradus::loss_scale scale{.factor = training.loss_scale};

  training_outcome result;
  gradus::nn::step_options options{
      .step = first_step, .first_example = first_example, .global_examples = training.global_examples};
  options.loss_scale = scale;
  const auto on_device = [&](std::size_t step, const auto& use) {
    const reference_images images = images_of(spec, training, step);
    const std::vector<std::int32_t> labels = labels_of(net.output_shape().channels, training, step);
    const auto strides = gradus::dense_strides<Layout, 4>(images.shape);
    std::vector<Element> memory(images.elements.size());
    std::size_t e = 0;
    for (index_t n = 0; n < images.shape.n; ++n) {
      for (index_t c = 0; c < images.shape.c; ++c) {
        for (index_t h = 0; h < images.shape.h; ++h) {
          for (index_t w = 0; w < images.shape.w; ++w) {
            memory[static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3])] =
                static_cast<Element>(static_cast<real>(images.elements[e++]));
          }
        }
      }
    }
    gradus::image_tensor<Element, Layout, Device> batch{device, images.shape};
    gradus::tensor<std::int32_t, 1, gradus::row_major, Device> classes{device, {static_cast<index_t>(labels.size())}};
    device.copy_from_host(batch.data(), memory.data(), memory.size() * sizeof(Element));
    device.copy_from_host(classes.data(), labels.data(), labels.size() * sizeof(std::int32_t));
    use(batch, std::span<const std::int32_t>{classes.data(), labels.size()});
  };
  for (std::size_t step = 0; step < training.batches.size(); ++step) {
    on_device(step, [&](const auto& batch, std::span<const std::int32_t> labels) {
      const auto sums = net.train_step(batch, labels, options);
      result.steps.push_back({sums.loss, sums.correct});
    });
    auto& gradients = result.gradients.emplace_back();
    for (const auto& parameter : net.parameters()) {
      if (parameter.trained()) {
        const auto gradient = parameter.copy_gradient();
        gradients[parameter.name()].assign(gradient.begin(), gradient.end());
      }
    }
    if (sgd) {
      sgd->update(device, segments, net.values().data(), net.gradients().data(), training.rule.learning_rate, scale);
    } else if (lars) {
      lars->update(device, segments, net.values().data(), net.gradients().data(), training.rule.learning_rate, scale);
    }
    ++options.step;
    options.first_example += static_cast<std::uint64_t>(training.batches[step]);
  }
  for (const auto& parameter : net.parameters()) {
    const auto values = parameter.copy_values();
    result.parameters[parameter.name()].assign(values.begin(), values.end());
  }
  for (const auto& buffer : net.buffers()) {
    std::vector<real> values(static_cast<std::size_t>(buffer.elements.size()));
    device.copy_to_host(values.data(), buffer.elements.data(), values.size() * sizeof(real));
    result.buffers[buffer.name].assign(values.begin(), values.end());
  }
  on_device(training.batches.size() - 1, [&](const auto& batch, std::span<const std::int32_t> labels) {
    const auto sums = net.evaluate(batch, labels);
    result.evaluated = {sums.loss, sums.correct};
    if (training.micro_batch == 0) {
      const auto scores = net.forward(batch);
      std::vector<Element> values(static_cast<std::size_t>(scores.size()));
      device.copy_to_host(values.data(), scores.data(), values.size() * sizeof(Element));
      for (const Element value : values) {
        result.scores.push_back(static_cast<double>(static_cast<real>(value)));
      }
    }
  });
  return result;
}

/// The same by the definitions.
class reference_training {
 public:
  reference_training(const graph_spec& spec, const training_spec& training, const rounding_noise& noise)
      : spec_{spec}, training_{training}, net_{spec, dropout_seed, noise} {
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      add_parameters(i);
    }
    std::uint64_t example = first_example;
    for (std::size_t step = 0; step < training.batches.size(); ++step) {
      run_step(step, example);
      example += static_cast<std::uint64_t>(training.batches[step]);
    }
    outcome.buffers = net_.buffers();
    outcome.parameters = net_.parameters();
    const std::size_t last = training.batches.size() - 1;
    outcome.evaluated = net_.evaluate(images_of(spec, training, last), labels(last));
    outcome.scores = net_.parts().back().back().elements;
    values.push_back(net_.parts());
  }

  /// Of all values and their gradients.
  [[nodiscard]] double largest() const noexcept { return net_.largest(); }
  [[nodiscard]] bool scales_by_norms() const noexcept { return training_.rule.which == rule_spec::kind::lars; }

  training_outcome outcome;
  std::vector<std::vector<std::vector<reference_images>>> values;  ///< of each pass, part and value

 private:
  void add(const std::string& name, const gradus::image_extents& shape) {
    net_.parameters()[name] = initial_values(name, shape, training_);
  }

  void add_parameters(std::size_t i) {
    const nn::value_shape& in = net_.shapes()[spec_.layers[i].inputs[0]];
    const layer_options& options = spec_.layers[i].options;
    if (const auto* const convolution = std::get_if<nn::conv2d>(&options)) {
      add(layer_name(i) + ".weight", {convolution->out_channels, in.channels / convolution->groups,
                                      convolution->kernel.height, convolution->kernel.width});
      if (convolution->bias) {
        add(layer_name(i) + ".bias", {convolution->out_channels, 1, 1, 1});
      }
    } else if (const auto* const transposed = std::get_if<nn::conv_transpose2d>(&options)) {
      add(layer_name(i) + ".weight", {in.channels, transposed->out_channels / transposed->groups,
                                      transposed->kernel.height, transposed->kernel.width});
      if (transposed->bias) {
        add(layer_name(i) + ".bias", {transposed->out_channels, 1, 1, 1});
      }
    } else if (const auto* const dense = std::get_if<nn::dense>(&options)) {
      add(layer_name(i) + ".weight", {dense->out_features, in.channels, in.height, in.width});
      if (dense->bias) {
        add(layer_name(i) + ".bias", {dense->out_features, 1, 1, 1});
      }
    } else if (const auto* const norm = std::get_if<nn::batch_norm>(&options)) {
      add_affine(i, *norm, {in.channels, 1, 1, 1});
    } else if (const auto* const of_groups = std::get_if<nn::group_norm>(&options)) {
      add_affine(i, *of_groups, {in.channels, 1, 1, 1});
    } else if (const auto* const of_layer = std::get_if<nn::layer_norm>(&options)) {
      const bool whole = of_layer->axes == nn::norm_axes::image;
      add_affine(i, *of_layer, whole ? in.batch(1) : gradus::image_extents{in.channels, 1, 1, 1});
    }
  }

  template <class Norm>
  void add_affine(std::size_t i, const Norm& norm, const gradus::image_extents& shape) {
    if (norm.scale) {
      add(layer_name(i) + ".weight", shape);
    }
    if (norm.shift) {
      add(layer_name(i) + ".bias", shape);
    }
  }

  [[nodiscard]] std::vector<std::int32_t> labels(std::size_t step) const {
    return labels_of(net_.shapes().back().channels, training_, step);
  }

  /// Weight decay is for weights of products: not for biases and normalization.
  [[nodiscard]] bool decays(const std::string& name) const {
    const layer_options& options = layer_of(name).options;
    return name.ends_with(".weight") && !std::holds_alternative<nn::batch_norm>(options) &&
           !std::holds_alternative<nn::group_norm>(options) && !std::holds_alternative<nn::layer_norm>(options);
  }

  [[nodiscard]] const layer_spec& layer_of(const std::string& parameter) const {
    return spec_.layers[static_cast<std::size_t>(std::stoul(parameter.substr(1)))];
  }

  void run_step(std::size_t step, std::uint64_t example) {
    const reference_images images = images_of(spec_, training_, step);
    const index_t examples = training_.global_examples > 0 ? training_.global_examples : images.shape.n;
    outcome.steps.push_back(net_.train(images, labels(step), {first_step + step, example},
                                       training_.loss_scale / static_cast<double>(examples),
                                       training_.micro_batch > 0 ? training_.micro_batch : images.shape.n));
    outcome.gradients.push_back(net_.gradients());
    values.push_back(net_.parts());
    for (auto& [name, parameter] : net_.parameters()) {
      if (layer_of(name).frozen) {
        outcome.gradients.back().erase(name);
        continue;
      }
      outcome.gradients.back()[name].resize(parameter.size());  // zeros where nothing was added
      update(name, parameter, outcome.gradients.back()[name]);
    }
  }

  void update(const std::string& name, std::vector<double>& parameter, std::vector<double> gradient) {
    const rule_spec& rule = training_.rule;
    if (rule.which == rule_spec::kind::none) {
      return;
    }
    std::vector<double>& velocity = velocities_[name];
    velocity.resize(parameter.size());
    double rate = 1;
    const double learning_rate = rule.learning_rate * layer_of(name).learning_rate_factor;
    const bool is_sgd = rule.which == rule_spec::kind::sgd;
    double decay = is_sgd ? rule.sgd.weight_decay : rule.lars.weight_decay;
    decay = decays(name) ? decay : 0;
    for (double& g : gradient) {
      g /= training_.loss_scale;
    }
    if (!is_sgd) {
      rate = learning_rate;
      const double of_values = norm(parameter);
      const double of_gradient = norm(gradient);
      if (decays(name) && of_values != 0 && of_gradient != 0) {
        rate *= rule.lars.trust * of_values / (of_gradient + decay * of_values + rule.lars.epsilon);
      }
    }
    for (std::size_t e = 0; e < parameter.size(); ++e) {
      const double g = rate * (gradient[e] + decay * parameter[e]);
      velocity[e] = (is_sgd ? rule.sgd.momentum : rule.lars.momentum) * velocity[e] + g;
      const bool ahead = is_sgd && rule.sgd.nesterov;
      parameter[e] -= (is_sgd ? learning_rate : 1.0) * (ahead ? g + rule.sgd.momentum * velocity[e] : velocity[e]);
    }
  }

  [[nodiscard]] static double norm(const std::vector<double>& numbers) {
    double squares = 0;
    for (const double number : numbers) {
      squares += number * number;
    }
    return std::sqrt(squares);
  }

  graph_spec spec_;
  training_spec training_;
  reference_network net_;
  std::map<std::string, std::vector<double>> velocities_;
};

/// The largest |a - b|; infinite for lists of other lengths, NaN if one has a NaN.
[[nodiscard]] inline double largest_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double result = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    result = difference <= result ? result : difference;  // NaN stays
  }
  return result;
}

/// What rounding may do to a training: exact results, and how far they move when everything that is stored is rounded.
class rounded_reference {
 public:
  /// Where the first rounding leaves something undecided, others do too, and are not computed.
  rounded_reference(const graph_spec& spec, const training_spec& training, const rounding& rounded)
      : spec_{spec}, exact_{spec, training, {}}, rounded_{rounded} {
    for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
      noisy_.emplace_back(spec, training, rounding_noise{rounded, seed});
      if (seed == 1 && !decided()) {
        break;
      }
    }
  }

  /// Whether no ReLU, maximum, best class or norm of 0 is so close that rounding could decide it, and no number is too
  /// large for the element type: then results are comparable.
  [[nodiscard]] bool decided() const {
    if (!(exact_.largest() <= rounded_.largest) || !decided_norms()) {
      return false;
    }
    for (std::size_t pass = 0; pass < exact_.values.size(); ++pass) {
      for (std::size_t part = 0; part < exact_.values[pass].size(); ++part) {
        for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
          if (!decided(pass, part, i)) {
            return false;
          }
        }
        if (!decided_scores(pass, part)) {
          return false;
        }
      }
    }
    return true;
  }

  /// What differs by more than rounding can do, or nothing.
  [[nodiscard]] std::optional<std::string> difference(const training_outcome& got) const {
    std::ostringstream out;
    for (std::size_t step = 0; step < exact_.outcome.steps.size(); ++step) {
      const std::string at = "step " + std::to_string(step) + ": ";
      compare(out, at + "loss", {got.steps[step].loss},
              [&](const training_outcome& o) { return std::vector<double>{o.steps[step].loss}; });
      if (got.steps[step].correct != exact_.outcome.steps[step].correct) {
        out << at << "correct: " << got.steps[step].correct << " for " << exact_.outcome.steps[step].correct << '\n';
      }
      for (const auto& [name, gradient] : exact_.outcome.gradients[step]) {
        compare(out, at + "gradient of " + name, find(got.gradients[step], name),
                [&, key = name](const training_outcome& o) { return o.gradients[step].at(key); });
      }
    }
    for (const auto& [name, numbers] : exact_.outcome.parameters) {
      compare(out, "parameter " + name, find(got.parameters, name),
              [&, key = name](const training_outcome& o) { return o.parameters.at(key); });
    }
    for (const auto& [name, numbers] : exact_.outcome.buffers) {
      compare(out, "buffer " + name, find(got.buffers, name),
              [&, key = name](const training_outcome& o) { return o.buffers.at(key); });
    }
    compare(out, "loss in evaluation", {got.evaluated.loss},
            [](const training_outcome& o) { return std::vector<double>{o.evaluated.loss}; });
    if (!got.scores.empty()) {
      compare(out, "scores in evaluation", got.scores, [](const training_outcome& o) { return o.scores; });
    }
    const std::string text = out.str();
    return text.empty() ? std::nullopt : std::optional{text};
  }

 private:
  [[nodiscard]] static std::vector<double> find(const training_outcome::named_numbers& numbers,
                                                const std::string& name) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? std::vector<double>{} : found->second;
  }

  template <class Part>
  void compare(std::ostringstream& out, const std::string& what, const std::vector<double>& got,
               const Part& part) const {
    const std::vector<double> expected = part(exact_.outcome);
    double noise = 0;
    double size = 0;
    for (const reference_training& noisy : noisy_) {
      noise = std::max(noise, largest_distance(part(noisy.outcome), expected));
    }
    for (const double number : expected) {
      size = std::max(size, std::abs(number));
    }
    const double allowed = 40 * noise + 8 * rounded_.relative * size;
    const double found = largest_distance(got, expected);
    if (!(found <= allowed)) {
      out << what << ": differs by " << found << " of " << size << ", rounding allows " << allowed << '\n';
    }
  }

  [[nodiscard]] double movement(std::size_t pass, std::size_t part, std::size_t value) const {
    double result = 0;
    for (const reference_training& noisy : noisy_) {
      result = std::max(result, largest_distance(noisy.values[pass][part][value].elements,
                                                 exact_.values[pass][part][value].elements));
    }
    return result;
  }

  [[nodiscard]] bool decided(std::size_t pass, std::size_t part, std::size_t layer) const {
    const std::size_t input = spec_.layers[layer].inputs[0];
    const reference_images& x = exact_.values[pass][part][input];
    const double close = 20 * movement(pass, part, input);
    const bool capped = std::holds_alternative<nn::relu6>(spec_.layers[layer].options);
    if (capped || std::holds_alternative<nn::relu>(spec_.layers[layer].options) ||
        std::holds_alternative<nn::leaky_relu>(spec_.layers[layer].options)) {
      // A number that is exactly 0 with every rounding is no result of rounding.
      return std::none_of(x.elements.begin(), x.elements.end(), [&](double element) {
        return (element != 0 && std::abs(element) < close) || (capped && std::abs(element - 6) < close);
      });
    }
    const auto* const pool = std::get_if<nn::max_pool2d>(&spec_.layers[layer].options);
    if (pool == nullptr) {
      return true;
    }
    const reference_images& y = exact_.values[pass][part][layer + 1];
    const nn::value_shape in{x.shape.c, x.shape.h, x.shape.w};
    const auto [rows, columns] = windows_of(*pool, in);
    for (index_t n = 0; n < y.shape.n; ++n) {
      for (index_t c = 0; c < y.shape.c; ++c) {
        for (index_t p = 0; p < y.shape.h; ++p) {
          for (index_t q = 0; q < y.shape.w; ++q) {
            std::vector<double> window;
            for (index_t r = 0; r < pool->kernel.height; ++r) {
              for (index_t s = 0; s < pool->kernel.width; ++s) {
                const index_t h = p * pool->stride.height + r * pool->dilation.height - rows.before;
                const index_t w = q * pool->stride.width + s * pool->dilation.width - columns.before;
                if (h >= 0 && h < in.height && w >= 0 && w < in.width) {
                  window.push_back(x(n, c, h, w));
                }
              }
            }
            std::sort(window.rbegin(), window.rend());
            if (window.size() > 1 && window[0] - window[1] < close && !(window[0] == 0 && window[1] == 0)) {
              return false;
            }
          }
        }
      }
    }
    return true;
  }

  /// Of a gradient that is 0 but for rounding, LARS takes another step than of one that is exactly 0.
  [[nodiscard]] bool decided_norms() const {
    for (std::size_t step = 0; exact_.scales_by_norms() && step < exact_.outcome.gradients.size(); ++step) {
      for (const auto& [name, gradient] : exact_.outcome.gradients[step]) {
        double noise = 0;
        double size = 0;
        for (const reference_training& noisy : noisy_) {
          noise = std::max(noise, largest_distance(noisy.outcome.gradients[step].at(name), gradient));
        }
        for (const double number : gradient) {
          size = std::max(size, std::abs(number));
        }
        if (size < 20 * noise) {
          return false;
        }
      }
    }
    return true;
  }

  [[nodiscard]] bool decided_scores(std::size_t pass, std::size_t part) const {
    const reference_images& scores = exact_.values[pass][part].back();
    const double close = 20 * movement(pass, part, spec_.layers.size());
    for (index_t n = 0; n < scores.shape.n; ++n) {
      std::vector<double> row;
      for (index_t c = 0; c < scores.shape.c; ++c) {
        row.push_back(scores(n, c, 0, 0));
      }
      std::sort(row.rbegin(), row.rend());
      if (row.size() > 1 && row[0] - row[1] < close) {
        return false;
      }
    }
    return true;
  }

  graph_spec spec_;
  reference_training exact_;
  std::vector<reference_training> noisy_;
  rounding rounded_;
};

}  // namespace gradus_test
