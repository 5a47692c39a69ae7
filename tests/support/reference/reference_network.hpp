// SPDX-License-Identifier: BSL-1.0
//
// A network by the definitions: double precision, one layer after another, plain loops; nothing is fused, planned or
// shared. It is what the networks of the library are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "element_moves.hpp"
#include "gradus/core/random.hpp"
#include "gradus/kernels/dropout.hpp"
#include "graph_spec.hpp"

namespace gradus_test {

/// A dense batch of images, (n, c, h, w) in row-major order.
struct reference_images {
  gradus::image_extents shape{};
  std::vector<double> elements;

  reference_images() = default;
  explicit reference_images(const gradus::image_extents& extents)
      : shape{extents}, elements(static_cast<std::size_t>(extents.size())) {}

  [[nodiscard]] double& operator()(index_t n, index_t c, index_t h, index_t w) { return elements[offset(n, c, h, w)]; }
  [[nodiscard]] double operator()(index_t n, index_t c, index_t h, index_t w) const {
    return elements[offset(n, c, h, w)];
  }
  [[nodiscard]] std::size_t offset(index_t n, index_t c, index_t h, index_t w) const {
    return static_cast<std::size_t>(((n * shape.c + c) * shape.h + h) * shape.w + w);
  }
};

/// How an element type rounds.
struct rounding {
  double relative = 0;      ///< the error of a stored number, of its size
  double absolute = 0;      ///< gradients below it may become zero
  double largest = 0x1p30;  ///< of the numbers that are compared: larger ones may become infinite
};

/// Relative errors of rounding, drawn at random: how far the results of arithmetic with rounding may be from the exact
/// ones. A reference that runs with it tells how sensitive each number is.
class rounding_noise {
 public:
  rounding_noise() = default;
  rounding_noise(const rounding& rounded, std::uint64_t seed)
      : relative_{rounded.relative}, absolute_{rounded.absolute}, random_{seed} {}

  void on_values(std::vector<double>& numbers) { add(numbers, 0); }
  void on_gradients(std::vector<double>& numbers) { add(numbers, absolute_); }
  /// A result of numbers of about `size` that is kept in single precision at least.
  void on_result(double& result, double size) { result += std::min(relative_, 0x1p-20) * size * draw(); }

 private:
  void add(std::vector<double>& numbers, double absolute) {
    if (relative_ == 0) {
      return;
    }
    for (double& number : numbers) {
      number += number * relative_ * draw() + absolute * draw();
    }
  }
  [[nodiscard]] double draw() { return static_cast<double>(random_() >> 11U) * 0x1.0p-52 - 1.0; }  // in [-1, 1)

  double relative_ = 0;
  double absolute_ = 0;
  std::mt19937_64 random_{0};
};

/// Sums over a batch.
struct reference_sums {
  double loss = 0;
  index_t correct = 0;
};

class reference_network {
 public:
  /// By the names of the library: "l0.weight", "l1.running_mean".
  using named_numbers = std::map<std::string, std::vector<double>>;

  /// @param seed  of dropout
  reference_network(const graph_spec& spec, std::uint64_t seed, rounding_noise noise = {})
      : spec_{spec}, shapes_{*shapes_of(spec)}, seed_{seed}, noise_{std::move(noise)} {
    for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
      if (std::holds_alternative<nn::batch_norm>(spec_.layers[i].options)) {
        const auto channels = static_cast<std::size_t>(shapes_[i + 1].channels);
        buffers_[layer_name(i) + ".running_mean"].assign(channels, 0.0);
        buffers_[layer_name(i) + ".running_variance"].assign(channels, 1.0);
      }
    }
  }

  named_numbers& parameters() noexcept { return parameters_; }
  [[nodiscard]] const named_numbers& gradients() const noexcept { return gradients_; }
  [[nodiscard]] const named_numbers& buffers() const noexcept { return buffers_; }
  /// Of the last pass: the values of all parts of the batch, one after another.
  [[nodiscard]] const std::vector<std::vector<reference_images>>& parts() const noexcept { return parts_; }
  [[nodiscard]] const std::vector<nn::value_shape>& shapes() const noexcept { return shapes_; }
  /// The largest absolute number of all passes, of values and their gradients.
  [[nodiscard]] double largest() const noexcept { return largest_; }

  struct step_position {
    std::uint64_t step = 0;
    std::uint64_t first_example = 0;
  };

  /// One training step without the update: gradients are those of scale * (sum of losses).
  /// @param at_once  examples of a part of the batch
  reference_sums train(const reference_images& images, std::span<const std::int32_t> labels, step_position position,
                       double scale, index_t at_once) {
    gradients_.clear();
    parts_.clear();
    reference_sums sums;
    for (index_t first = 0; first < images.shape.n; first += at_once) {
      const index_t count = std::min(at_once, images.shape.n - first);
      forward(part_of(images, first, count), true, position);
      std::vector<reference_images> gradients;
      for (const reference_images& value : parts_.back()) {
        gradients.emplace_back(value.shape);
      }
      add_loss(labels.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), scale, sums,
               &gradients.back());
      noise_.on_gradients(gradients.back().elements);
      backward(gradients, position);
      position.first_example += static_cast<std::uint64_t>(count);
    }
    return sums;
  }

  /// Losses outside training.
  reference_sums evaluate(const reference_images& images, std::span<const std::int32_t> labels) {
    parts_.clear();
    reference_sums sums;
    forward(images, false, {});
    add_loss(labels, 0, sums, nullptr);
    return sums;
  }

 private:
  [[nodiscard]] static reference_images part_of(const reference_images& images, index_t first, index_t count) {
    reference_images part{{count, images.shape.c, images.shape.h, images.shape.w}};
    const auto size = static_cast<std::ptrdiff_t>(part.elements.size() / static_cast<std::size_t>(count));
    std::copy_n(images.elements.begin() + first * size, count * size, part.elements.begin());
    return part;
  }

  void forward(reference_images images, bool training, const step_position& position) {
    const index_t examples = images.shape.n;
    std::vector<reference_images>& values = parts_.emplace_back();
    values.push_back(std::move(images));
    saved_.assign(spec_.layers.size(), {});
    for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
      reference_images out{shapes_[i + 1].batch(examples)};
      std::visit(
          [&](const auto& options) {
            compute(i, options, values, out, training && !spec_.layers[i].evaluates, position);
          },
          named_options(spec_, i));
      if (!std::visit([](const auto& options) { return copies_elements(options); }, spec_.layers[i].options)) {
        noise_.on_values(out.elements);
      }
      note_largest(out);
      values.push_back(std::move(out));
    }
  }

  void backward(std::vector<reference_images>& gradients, const step_position& position) {
    for (std::size_t i = spec_.layers.size(); i-- > 0;) {
      std::visit([&](const auto& options) { differentiate(i, options, gradients, position); }, named_options(spec_, i));
      for (const std::size_t value : spec_.layers[i].inputs) {
        noise_.on_gradients(gradients[value].elements);
        note_largest(gradients[value]);
      }
    }
  }

  void note_largest(const reference_images& images) {
    for (const double element : images.elements) {
      largest_ = std::abs(element) <= largest_ ? largest_ : std::abs(element);  // also NaN
    }
  }

  void add_loss(std::span<const std::int32_t> labels, double scale, reference_sums& sums, reference_images* gradient) {
    const reference_images& scores = parts_.back().back();
    for (index_t n = 0; n < scores.shape.n; ++n) {
      double largest = scores(n, 0, 0, 0);
      index_t best = 0;
      for (index_t c = 1; c < scores.shape.c; ++c) {
        if (scores(n, c, 0, 0) > largest) {
          largest = scores(n, c, 0, 0);
          best = c;
        }
      }
      double total = 0;
      for (index_t c = 0; c < scores.shape.c; ++c) {
        total += std::exp(scores(n, c, 0, 0) - largest);
      }
      const index_t label = labels[static_cast<std::size_t>(n)];
      std::vector<double> terms{std::log(total), largest, -scores(n, label, 0, 0)};
      noise_.on_values(terms);
      sums.loss += terms[0] + terms[1] + terms[2];
      sums.correct += best == label ? 1 : 0;
      for (index_t c = 0; gradient != nullptr && c < scores.shape.c; ++c) {
        double probability = std::exp(scores(n, c, 0, 0) - largest) / total;
        noise_.on_result(probability, probability);
        (*gradient)(n, c, 0, 0) = scale * (probability - (c == label ? 1 : 0));
      }
    }
  }

  // ---- what each layer is

  using values_type = std::vector<reference_images>;

  [[nodiscard]] const std::vector<double>& parameter(std::size_t layer, const char* name) {
    return parameters_.at(layer_name(layer) + name);
  }
  /// Zeros at first; parts of a batch add up.
  [[nodiscard]] std::vector<double>& gradient(std::size_t layer, const char* name) {
    std::vector<double>& result = gradients_[layer_name(layer) + name];
    result.resize(parameter(layer, name).size());
    return result;
  }
  [[nodiscard]] std::size_t input(std::size_t layer, std::size_t k = 0) const { return spec_.layers[layer].inputs[k]; }
  [[nodiscard]] const reference_images& value(std::size_t v) const { return parts_.back()[v]; }

  /// Calls body(n, c, h, w) in row-major order.
  template <class Body>
  static void for_each(const gradus::image_extents& shape, const Body& body) {
    for (index_t n = 0; n < shape.n; ++n) {
      for (index_t c = 0; c < shape.c; ++c) {
        for (index_t h = 0; h < shape.h; ++h) {
          for (index_t w = 0; w < shape.w; ++w) {
            body(n, c, h, w);
          }
        }
      }
    }
  }

  /// The windows of a convolution or pooling.
  template <class Options>
  class windows {
   public:
    windows(const Options& options, const nn::value_shape& in) : kernel_{options.kernel} {
      auto mode = nn::padding_mode::zeros;
      if constexpr (requires { options.padding_mode; }) {
        mode = options.padding_mode;
      }
      const auto [rows, columns] = windows_of(options, in);
      const nn::size2d dilation = dilation_of(options);
      find(sources_h_, mode, rows, options.kernel.height, options.stride.height, dilation.height, in.height);
      find(sources_w_, mode, columns, options.kernel.width, options.stride.width, dilation.width, in.width);
    }

    /// Calls body(h, w, r, s) for the elements of the window (p, q) that are in the image, or that a padding mode
    /// copies from it: those at the tap (r, s).
    template <class Body>
    void for_each_tap(index_t p, index_t q, const Body& body) const {
      const index_t* const of_rows = sources_h_.data() + p * kernel_.height;
      const index_t* const of_columns = sources_w_.data() + q * kernel_.width;
      for (index_t r = 0; r < kernel_.height; ++r) {
        for (index_t s = 0; s < kernel_.width; ++s) {
          if (of_rows[r] >= 0 && of_columns[s] >= 0) {
            body(of_rows[r], of_columns[s], r, s);
          }
        }
      }
    }

   private:
    /// The source of each tap of each window along one axis; -1 for none.
    static void find(std::vector<index_t>& sources, nn::padding_mode mode, const window_spec& window, index_t taps,
                     index_t stride, index_t dilation, index_t extent) {
      for (index_t p = 0; p < window.outputs; ++p) {
        for (index_t r = 0; r < taps; ++r) {
          sources.push_back(source_of(mode, p * stride + r * dilation - window.before, extent));
        }
      }
    }

    nn::size2d kernel_;
    std::vector<index_t> sources_h_;  // (outputs, taps)
    std::vector<index_t> sources_w_;
  };

  void compute(std::size_t i, const nn::add&, const values_type& values, reference_images& out, bool,
               const step_position&) {
    for (std::size_t e = 0; e < out.elements.size(); ++e) {
      out.elements[e] = values[input(i, 0)].elements[e] + values[input(i, 1)].elements[e];
    }
  }
  void differentiate(std::size_t i, const nn::add&, values_type& gradients, const step_position&) {
    for (const std::size_t v : spec_.layers[i].inputs) {
      for (std::size_t e = 0; e < gradients[v].elements.size(); ++e) {
        gradients[v].elements[e] += gradients[i + 1].elements[e];
      }
    }
  }

  /// Calls body(h, w, number of elements) for the window of output (p, q) of an adaptive pooling.
  template <class Body>
  void for_each_adaptive(std::size_t i, nn::size2d output, index_t p, index_t q, const Body& body) const {
    const nn::value_shape& in = shapes_[input(i)];
    const auto [top, bottom] = adaptive_window(p, output.height, in.height);
    const auto [left, right] = adaptive_window(q, output.width, in.width);
    for (index_t h = top; h < bottom; ++h) {
      for (index_t w = left; w < right; ++w) {
        body(h, w, (bottom - top) * (right - left));
      }
    }
  }
  void compute(std::size_t i, const nn::adaptive_average_pool2d& options, const values_type& values,
               reference_images& out, bool, const step_position&) {
    for_each(out.shape, [&](index_t n, index_t c, index_t p, index_t q) {
      double sum = 0;
      index_t count = 0;
      for_each_adaptive(i, options.output, p, q, [&](index_t h, index_t w, index_t elements) {
        sum += values[input(i)](n, c, h, w);
        count = elements;
      });
      out(n, c, p, q) = sum / static_cast<double>(count);
    });
  }
  void differentiate(std::size_t i, const nn::adaptive_average_pool2d& options, values_type& gradients,
                     const step_position&) {
    for_each(gradients[i + 1].shape, [&](index_t n, index_t c, index_t p, index_t q) {
      for_each_adaptive(i, options.output, p, q, [&](index_t h, index_t w, index_t elements) {
        gradients[input(i)](n, c, h, w) += gradients[i + 1](n, c, p, q) / static_cast<double>(elements);
      });
    });
  }
  void compute(std::size_t i, const nn::adaptive_max_pool2d& options, const values_type& values, reference_images& out,
               bool, const step_position&) {
    for_each(out.shape, [&](index_t n, index_t c, index_t p, index_t q) {
      bool first = true;
      for_each_adaptive(i, options.output, p, q, [&](index_t h, index_t w, index_t) {
        const double candidate = values[input(i)](n, c, h, w);
        out(n, c, p, q) = first ? candidate : std::max(out(n, c, p, q), candidate);
        first = false;
      });
    });
    saved_[i] = out.elements;  // the maxima before they are rounded
  }
  void differentiate(std::size_t i, const nn::adaptive_max_pool2d& options, values_type& gradients,
                     const step_position&) {
    for_each(gradients[i + 1].shape, [&](index_t n, index_t c, index_t p, index_t q) {
      bool found = false;
      const double largest = saved_[i][gradients[i + 1].offset(n, c, p, q)];
      for_each_adaptive(i, options.output, p, q, [&](index_t h, index_t w, index_t) {
        if (!found && value(input(i))(n, c, h, w) == largest) {
          gradients[input(i)](n, c, h, w) += gradients[i + 1](n, c, p, q);
          found = true;
        }
      });
    });
  }

  /// The positions of a window that are in the image or the padding around it; all of those of padding::same().
  [[nodiscard]] static index_t counted(const nn::average_pool2d& options, const nn::value_shape& in, index_t p,
                                       index_t q) {
    const auto along = [&](index_t output, index_t kernel, index_t stride, index_t padded) {
      index_t count = 0;
      for (index_t r = 0; r < kernel; ++r) {
        count += options.padding.rule() == nn::padding::kind::same || output * stride + r < padded ? 1 : 0;
      }
      return count;
    };
    const nn::padding& pad = options.padding;
    return along(p, options.kernel.height, options.stride.height, in.height + pad.top() + pad.bottom()) *
           along(q, options.kernel.width, options.stride.width, in.width + pad.left() + pad.right());
  }
  void compute(std::size_t i, const nn::average_pool2d& options, const values_type& values, reference_images& out, bool,
               const step_position&) {
    const windows<nn::average_pool2d> of{options, shapes_[input(i)]};
    for_each(out.shape, [&](index_t n, index_t c, index_t p, index_t q) {
      double sum = 0;
      index_t count = 0;
      of.for_each_tap(p, q, [&](index_t h, index_t w, index_t, index_t) {
        sum += values[input(i)](n, c, h, w);
        ++count;
      });
      out(n, c, p, q) =
          sum / static_cast<double>(options.count_padding ? counted(options, shapes_[input(i)], p, q) : count);
    });
  }
  void differentiate(std::size_t i, const nn::average_pool2d& options, values_type& gradients, const step_position&) {
    const windows<nn::average_pool2d> of{options, shapes_[input(i)]};
    for_each(gradients[i + 1].shape, [&](index_t n, index_t c, index_t p, index_t q) {
      index_t count = 0;
      of.for_each_tap(p, q, [&](index_t, index_t, index_t, index_t) { ++count; });
      count = options.count_padding ? counted(options, shapes_[input(i)], p, q) : count;
      of.for_each_tap(p, q, [&](index_t h, index_t w, index_t, index_t) {
        gradients[input(i)](n, c, h, w) += gradients[i + 1](n, c, p, q) / static_cast<double>(count);
      });
    });
  }

  [[nodiscard]] nn::average_pool2d whole_image(std::size_t i) const {
    const nn::size2d image{shapes_[input(i)].height, shapes_[input(i)].width};
    return {.kernel = image, .stride = image, .padding = nn::padding::valid()};
  }
  void compute(std::size_t i, const nn::global_average_pool2d&, const values_type& values, reference_images& out,
               bool training, const step_position& position) {
    compute(i, whole_image(i), values, out, training, position);
  }
  void differentiate(std::size_t i, const nn::global_average_pool2d&, values_type& gradients,
                     const step_position& position) {
    differentiate(i, whole_image(i), gradients, position);
  }

  void compute(std::size_t i, const nn::max_pool2d& options, const values_type& values, reference_images& out, bool,
               const step_position&) {
    const windows<nn::max_pool2d> of{options, shapes_[input(i)]};
    for_each(out.shape, [&](index_t n, index_t c, index_t p, index_t q) {
      bool first = true;
      of.for_each_tap(p, q, [&](index_t h, index_t w, index_t, index_t) {
        const double candidate = values[input(i)](n, c, h, w);
        out(n, c, p, q) = first ? candidate : std::max(out(n, c, p, q), candidate);
        first = false;
      });
    });
    saved_[i] = out.elements;  // the maxima before they are rounded
  }
  void differentiate(std::size_t i, const nn::max_pool2d& options, values_type& gradients, const step_position&) {
    const windows<nn::max_pool2d> of{options, shapes_[input(i)]};
    for_each(gradients[i + 1].shape, [&](index_t n, index_t c, index_t p, index_t q) {
      bool found = false;
      const double largest = saved_[i][gradients[i + 1].offset(n, c, p, q)];
      of.for_each_tap(p, q, [&](index_t h, index_t w, index_t, index_t) {
        if (!found && value(input(i))(n, c, h, w) == largest) {
          gradients[input(i)](n, c, h, w) += gradients[i + 1](n, c, p, q);
          found = true;
        }
      });
    });
  }

  void compute(std::size_t i, const nn::batch_norm& options, const values_type& values, reference_images& out,
               bool training, const step_position&) {
    const reference_images& x = values[input(i)];
    std::vector<double>& means = buffers_.at(layer_name(i) + ".running_mean");
    std::vector<double>& variances = buffers_.at(layer_name(i) + ".running_variance");
    const double count = static_cast<double>(x.shape.size() / x.shape.c);
    saved_[i].clear();
    for (index_t c = 0; c < x.shape.c; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      double mean = means[channel];
      double variance = variances[channel];
      if (training) {
        mean = channel_sum(x, c, [](double element) { return element; }) / count;
        variance = channel_sum(x, c, [&](double element) { return (element - mean) * (element - mean); }) / count;
        noise_.on_result(mean, channel_sum(x, c, [](double element) { return std::abs(element); }) / count);
        noise_.on_result(variance, variance);
        // As PyTorch: the running variance is the unbiased one.
        const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
        means[channel] = (1 - options.momentum) * means[channel] + options.momentum * mean;
        variances[channel] = (1 - options.momentum) * variances[channel] + options.momentum * unbiased;
      }
      saved_[i].push_back(mean);
      saved_[i].push_back(1 / std::sqrt(variance + options.epsilon));
    }
    const std::vector<double> gamma = affine(i, options.scale, ".weight", 1);
    const std::vector<double> beta = affine(i, options.shift, ".bias", 0);
    for_each(x.shape, [&](index_t n, index_t c, index_t h, index_t w) {
      const auto channel = static_cast<std::size_t>(c);
      out(n, c, h, w) =
          gamma[channel] * (x(n, c, h, w) - saved_[i][2 * channel]) * saved_[i][2 * channel + 1] + beta[channel];
    });
  }
  void differentiate(std::size_t i, const nn::batch_norm& options, values_type& gradients, const step_position&) {
    const reference_images& x = value(input(i));
    const reference_images& dy = gradients[i + 1];
    const double count = static_cast<double>(x.shape.size() / x.shape.c);
    const std::vector<double> gamma = affine(i, options.scale, ".weight", 1);
    for (index_t c = 0; c < x.shape.c; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const double mean = saved_[i][2 * channel];
      const double inverse = saved_[i][2 * channel + 1];
      double sum = 0;
      double product = 0;
      for_each({x.shape.n, 1, x.shape.h, x.shape.w}, [&](index_t n, index_t, index_t h, index_t w) {
        sum += dy(n, c, h, w);
        product += dy(n, c, h, w) * (x(n, c, h, w) - mean) * inverse;
      });
      if (options.scale) {
        gradient(i, ".weight")[channel] += product;
      }
      if (options.shift) {
        gradient(i, ".bias")[channel] += sum;
      }
      if (spec_.layers[i].evaluates) {
        for_each({x.shape.n, 1, x.shape.h, x.shape.w}, [&](index_t n, index_t, index_t h, index_t w) {
          gradients[input(i)](n, c, h, w) += gamma[channel] * inverse * dy(n, c, h, w);
        });
        continue;
      }
      double mean_gradient = sum / count;
      double mean_product = product / count;
      noise_.on_result(mean_gradient, std::abs(mean_gradient));
      noise_.on_result(mean_product, std::abs(mean_product));
      for_each({x.shape.n, 1, x.shape.h, x.shape.w}, [&](index_t n, index_t, index_t h, index_t w) {
        const double normalized = (x(n, c, h, w) - mean) * inverse;
        gradients[input(i)](n, c, h, w) +=
            count > 1 ? gamma[channel] * inverse * (dy(n, c, h, w) - mean_gradient - normalized * mean_product) : 0;
      });
    }
  }

  /// The number of the set that shares a mean with an element, in its example.
  [[nodiscard]] static index_t set_of(const nn::group_norm& options, const gradus::image_extents& shape, index_t c,
                                      index_t /*h*/, index_t /*w*/) {
    return c / (shape.c / options.groups);
  }
  [[nodiscard]] static index_t set_of(const nn::layer_norm& options, const gradus::image_extents& shape, index_t /*c*/,
                                      index_t h, index_t w) {
    return options.axes == nn::norm_axes::image ? 0 : h * shape.w + w;
  }
  /// The element of gamma and beta.
  [[nodiscard]] static std::size_t affine_of(const nn::group_norm& /*options*/, const gradus::image_extents& /*shape*/,
                                             index_t c, index_t /*h*/, index_t /*w*/) {
    return static_cast<std::size_t>(c);
  }
  [[nodiscard]] static std::size_t affine_of(const nn::layer_norm& options, const gradus::image_extents& shape,
                                             index_t c, index_t h, index_t w) {
    return static_cast<std::size_t>(options.axes == nn::norm_axes::image ? (c * shape.h + h) * shape.w + w : c);
  }
  template <class Options>
  [[nodiscard]] std::vector<double> affine_of_examples(std::size_t i, const Options& options, bool learned,
                                                       const char* name, double otherwise) {
    const nn::value_shape& shape = shapes_[i + 1];
    const auto size = 1 + affine_of(options, shape.batch(1), shape.channels - 1, shape.height - 1, shape.width - 1);
    return learned ? parameter(i, name) : std::vector<double>(size, otherwise);
  }

  /// The sums of the elements of each set of an example: sums[set] of function(c, h, w).
  template <class Options, class Function>
  [[nodiscard]] static std::map<index_t, double> set_sums(const Options& options, const gradus::image_extents& shape,
                                                          const Function& function) {
    std::map<index_t, double> sums;
    for_each({1, shape.c, shape.h, shape.w}, [&](index_t, index_t c, index_t h, index_t w) {
      sums[set_of(options, shape, c, h, w)] += function(c, h, w);
    });
    return sums;
  }

  template <class Options>
  requires std::same_as<Options, nn::group_norm> || std::same_as<Options, nn::layer_norm>
  void compute(std::size_t i, const Options& options, const values_type& values, reference_images& out,
               bool /*training*/, const step_position&) {
    const reference_images& x = values[input(i)];
    const gradus::image_extents shape = x.shape;
    saved_[i].clear();
    const std::vector<double> gamma = affine_of_examples(i, options, options.scale, ".weight", 1);
    const std::vector<double> beta = affine_of_examples(i, options, options.shift, ".bias", 0);
    for (index_t n = 0; n < shape.n; ++n) {
      const auto counts = set_sums(options, shape, [](index_t, index_t, index_t) { return 1.0; });
      auto means = set_sums(options, shape, [&](index_t c, index_t h, index_t w) { return x(n, c, h, w); });
      auto sizes = set_sums(options, shape, [&](index_t c, index_t h, index_t w) { return std::abs(x(n, c, h, w)); });
      for (auto& [set, mean] : means) {
        mean /= counts.at(set);
        noise_.on_result(mean, sizes.at(set) / counts.at(set));
      }
      auto variances = set_sums(options, shape, [&](index_t c, index_t h, index_t w) {
        return std::pow(x(n, c, h, w) - means.at(set_of(options, shape, c, h, w)), 2);
      });
      for (auto& [set, variance] : variances) {
        variance /= counts.at(set);
        noise_.on_result(variance, variance);
        saved_[i].push_back(means.at(set));
        saved_[i].push_back(1 / std::sqrt(variance + options.epsilon));
      }
      const std::size_t first = saved_[i].size() - 2 * variances.size();
      for_each({1, shape.c, shape.h, shape.w}, [&](index_t, index_t c, index_t h, index_t w) {
        const std::size_t at = first + 2 * static_cast<std::size_t>(set_of(options, shape, c, h, w));
        const std::size_t element = affine_of(options, shape, c, h, w);
        out(n, c, h, w) = gamma[element] * (x(n, c, h, w) - saved_[i][at]) * saved_[i][at + 1] + beta[element];
      });
    }
  }

  template <class Options>
  requires std::same_as<Options, nn::group_norm> || std::same_as<Options, nn::layer_norm>
  void differentiate(std::size_t i, const Options& options, values_type& gradients, const step_position&) {
    const reference_images& x = value(input(i));
    const reference_images& dy = gradients[i + 1];
    const gradus::image_extents shape = x.shape;
    const std::vector<double> gamma = affine_of_examples(i, options, options.scale, ".weight", 1);
    for (index_t n = 0; n < shape.n; ++n) {
      const auto counts = set_sums(options, shape, [](index_t, index_t, index_t) { return 1.0; });
      const std::size_t first = static_cast<std::size_t>(n) * 2 * counts.size();
      const auto inverse = [&](index_t c, index_t h, index_t w) {
        return saved_[i][first + 2 * static_cast<std::size_t>(set_of(options, shape, c, h, w)) + 1];
      };
      const auto normalized = [&](index_t c, index_t h, index_t w) {
        const double mean = saved_[i][first + 2 * static_cast<std::size_t>(set_of(options, shape, c, h, w))];
        return (x(n, c, h, w) - mean) * inverse(c, h, w);
      };
      const auto scaled = [&](index_t c, index_t h, index_t w) {
        return gamma[affine_of(options, shape, c, h, w)] * dy(n, c, h, w);
      };
      auto sums = set_sums(options, shape, scaled);
      auto products = set_sums(options, shape,
                               [&](index_t c, index_t h, index_t w) { return scaled(c, h, w) * normalized(c, h, w); });
      for (auto& [set, sum] : sums) {
        sum /= counts.at(set);
        products.at(set) /= counts.at(set);
        noise_.on_result(sum, std::abs(sum));
        noise_.on_result(products.at(set), std::abs(products.at(set)));
      }
      for_each({1, shape.c, shape.h, shape.w}, [&](index_t, index_t c, index_t h, index_t w) {
        const index_t set = set_of(options, shape, c, h, w);
        const std::size_t element = affine_of(options, shape, c, h, w);
        if (options.scale) {
          gradient(i, ".weight")[element] += dy(n, c, h, w) * normalized(c, h, w);
        }
        if (options.shift) {
          gradient(i, ".bias")[element] += dy(n, c, h, w);
        }
        gradients[input(i)](n, c, h, w) +=
            counts.at(set) > 1
                ? inverse(c, h, w) * (scaled(c, h, w) - sums.at(set) - normalized(c, h, w) * products.at(set))
                : 0;
      });
    }
  }

  template <class Function>
  [[nodiscard]] static double channel_sum(const reference_images& x, index_t c, const Function& function) {
    double sum = 0;
    for_each({x.shape.n, 1, x.shape.h, x.shape.w},
             [&](index_t n, index_t, index_t h, index_t w) { sum += function(x(n, c, h, w)); });
    return sum;
  }
  [[nodiscard]] std::vector<double> affine(std::size_t i, bool learned, const char* name, double otherwise) {
    return learned ? parameter(i, name)
                   : std::vector<double>(static_cast<std::size_t>(shapes_[i + 1].channels), otherwise);
  }

  void compute(std::size_t i, const nn::concat&, const values_type& values, reference_images& out, bool,
               const step_position&) {
    index_t first = 0;
    for (const std::size_t v : spec_.layers[i].inputs) {
      for_each(values[v].shape,
               [&](index_t n, index_t c, index_t h, index_t w) { out(n, first + c, h, w) = values[v](n, c, h, w); });
      first += values[v].shape.c;
    }
  }
  void differentiate(std::size_t i, const nn::concat&, values_type& gradients, const step_position&) {
    index_t first = 0;
    for (const std::size_t v : spec_.layers[i].inputs) {
      for_each(gradients[v].shape, [&](index_t n, index_t c, index_t h, index_t w) {
        gradients[v](n, c, h, w) += gradients[i + 1](n, first + c, h, w);
      });
      first += gradients[v].shape.c;
    }
  }

  /// Calls body(y, x, weight) for every product of a convolution: the offsets of its output, input and weight.
  template <class Body>
  void for_each_product(std::size_t i, const nn::conv2d& options, const gradus::image_extents& out, const Body& body) {
    const nn::value_shape& in = shapes_[input(i)];
    const windows<nn::conv2d> of{options, in};
    const index_t terms = in.channels / options.groups;
    const index_t outputs = out.c / options.groups;
    const index_t taps = options.kernel.height * options.kernel.width;
    const index_t plane = in.height * in.width;
    index_t y = 0;
    for_each(out, [&](index_t n, index_t o, index_t p, index_t q) {
      const index_t image = (n * in.channels + o / outputs * terms) * plane;
      of.for_each_tap(p, q, [&](index_t h, index_t w, index_t r, index_t s) {
        index_t x = image + h * in.width + w;
        index_t weight = o * terms * taps + r * options.kernel.width + s;
        for (index_t k = 0; k < terms; ++k, x += plane, weight += taps) {
          body(y, x, weight);
        }
      });
      ++y;
    });
  }
  /// Likewise for a transposed convolution: every input spreads over the kernel's extent.
  template <class Body>
  void for_each_product(std::size_t i, const nn::conv_transpose2d& options, const gradus::image_extents& out,
                        const Body& body) {
    const index_t outputs = out.c / options.groups;  // of a group
    const index_t terms = shapes_[input(i)].channels / options.groups;
    index_t x = 0;
    for_each(shapes_[input(i)].batch(out.n), [&](index_t n, index_t c, index_t h, index_t w) {
      index_t weight = c * outputs * options.kernel.height * options.kernel.width;
      for_each({1, outputs, options.kernel.height, options.kernel.width},
               [&](index_t, index_t o, index_t r, index_t s) {
                 const index_t p = h * options.stride.height - options.padding.top() + r * options.dilation.height;
                 const index_t q = w * options.stride.width - options.padding.left() + s * options.dilation.width;
                 if (p >= 0 && p < out.h && q >= 0 && q < out.w) {
                   body(((n * out.c + c / terms * outputs + o) * out.h + p) * out.w + q, x, weight);
                 }
                 ++weight;
               });
      ++x;
    });
  }

  template <class Options>
  requires std::same_as<Options, nn::conv2d> || std::same_as<Options, nn::conv_transpose2d>
  void compute(std::size_t i, const Options& options, const values_type& values, reference_images& out, bool,
               const step_position&) {
    std::vector<double> weights = parameter(i, ".weight");
    noise_.on_values(weights);
    if (options.bias) {
      const std::vector<double>& bias = parameter(i, ".bias");
      for_each(out.shape, [&](index_t n, index_t c, index_t p, index_t q) {
        out(n, c, p, q) = bias[static_cast<std::size_t>(c)];
      });
    }
    double* const y_data = out.elements.data();
    const double* const x_data = values[input(i)].elements.data();
    const double* const w_data = weights.data();
    for_each_product(i, options, out.shape,
                     [=](index_t y, index_t x, index_t weight) { y_data[y] += x_data[x] * w_data[weight]; });
  }
  template <class Options>
  requires std::same_as<Options, nn::conv2d> || std::same_as<Options, nn::conv_transpose2d>
  void differentiate(std::size_t i, const Options& options, values_type& gradients, const step_position&) {
    std::vector<double> weights = parameter(i, ".weight");
    noise_.on_values(weights);
    const reference_images& dy = gradients[i + 1];
    double* const dw_data = gradient(i, ".weight").data();
    double* const dx_data = gradients[input(i)].elements.data();
    const double* const dy_data = dy.elements.data();
    const double* const x_data = value(input(i)).elements.data();
    const double* const w_data = weights.data();
    for_each_product(i, options, dy.shape, [=](index_t y, index_t x, index_t weight) {
      dw_data[weight] += x_data[x] * dy_data[y];
      dx_data[x] += dy_data[y] * w_data[weight];
    });
    if (options.bias) {
      std::vector<double>& db = gradient(i, ".bias");
      for_each(dy.shape,
               [&](index_t n, index_t c, index_t p, index_t q) { db[static_cast<std::size_t>(c)] += dy(n, c, p, q); });
    }
  }

  void compute(std::size_t i, const nn::dense& options, const values_type& values, reference_images& out, bool,
               const step_position&) {
    const reference_images& x = values[input(i)];
    std::vector<double> weights = parameter(i, ".weight");
    noise_.on_values(weights);
    const auto terms = static_cast<std::size_t>(shapes_[input(i)].size());
    for_each(out.shape, [&](index_t n, index_t o, index_t, index_t) {
      const auto row = static_cast<std::size_t>(o);
      double sum = options.bias ? parameter(i, ".bias")[row] : 0;
      for (std::size_t k = 0; k < terms; ++k) {
        sum += x.elements[static_cast<std::size_t>(n) * terms + k] * weights[row * terms + k];
      }
      out(n, o, 0, 0) = sum;
    });
  }
  void differentiate(std::size_t i, const nn::dense& options, values_type& gradients, const step_position&) {
    const reference_images& x = value(input(i));
    std::vector<double> weights = parameter(i, ".weight");
    noise_.on_values(weights);
    std::vector<double>& dw = gradient(i, ".weight");
    const auto terms = static_cast<std::size_t>(shapes_[input(i)].size());
    for_each(gradients[i + 1].shape, [&](index_t n, index_t o, index_t, index_t) {
      const auto row = static_cast<std::size_t>(o);
      const double dy = gradients[i + 1](n, o, 0, 0);
      for (std::size_t k = 0; k < terms; ++k) {
        dw[row * terms + k] += dy * x.elements[static_cast<std::size_t>(n) * terms + k];
        gradients[input(i)].elements[static_cast<std::size_t>(n) * terms + k] += dy * weights[row * terms + k];
      }
      if (options.bias) {
        gradient(i, ".bias")[row] += dy;
      }
    });
  }

  /// 0 or 1 / (1 - rate).
  [[nodiscard]] double kept(const nn::dropout& options, const reference_images& x, std::size_t element,
                            const step_position& position) const {
    const auto size = x.elements.size() / static_cast<std::size_t>(x.shape.n);
    const bool keeps = gradus::kernels::dropout_keeps(
        gradus::random_stream{seed_, options.name}, position.step, position.first_example + element / size,
        static_cast<index_t>(element % size), gradus::kernels::dropout_threshold(options.rate));
    return keeps ? 1 / (1 - options.rate) : 0;
  }
  void compute(std::size_t i, const nn::dropout& options, const values_type& values, reference_images& out,
               bool training, const step_position& position) {
    for (std::size_t e = 0; e < out.elements.size(); ++e) {
      out.elements[e] = values[input(i)].elements[e] * (training ? kept(options, out, e, position) : 1);
    }
  }
  void differentiate(std::size_t i, const nn::dropout& options, values_type& gradients, const step_position& position) {
    for (std::size_t e = 0; e < gradients[i + 1].elements.size(); ++e) {
      gradients[input(i)].elements[e] +=
          gradients[i + 1].elements[e] * (spec_.layers[i].evaluates ? 1 : kept(options, gradients[i + 1], e, position));
    }
  }

  /// Layers that move elements, or mix some of them with given weights.
  template <class Options>
  requires moves_elements<Options>
  void compute(std::size_t i, const Options& options, const values_type& values, reference_images& out, bool,
               const step_position&) {
    for_each_source(options, shapes_[input(i)], shapes_[i + 1], [&](const move_of_element& move) {
      for (index_t n = 0; n < out.shape.n; ++n) {
        out(n, move.c, move.h, move.w) +=
            move.weight * (move.constant ? 1 : values[input(i)](n, move.from_c, move.from_h, move.from_w));
      }
    });
  }
  template <class Options>
  requires moves_elements<Options>
  void differentiate(std::size_t i, const Options& options, values_type& gradients, const step_position&) {
    for_each_source(options, shapes_[input(i)], shapes_[i + 1], [&](const move_of_element& move) {
      for (index_t n = 0; n < gradients[i + 1].shape.n && !move.constant; ++n) {
        gradients[input(i)](n, move.from_c, move.from_h, move.from_w) +=
            move.weight * gradients[i + 1](n, move.c, move.h, move.w);
      }
    });
  }

  [[nodiscard]] static double divisor(const nn::local_response_norm& options, const reference_images& x, index_t n,
                                      index_t c, index_t h, index_t w) {
    double squares = 0;
    for (index_t j = std::max<index_t>(0, c - options.radius); j <= std::min(x.shape.c - 1, c + options.radius); ++j) {
      squares += x(n, j, h, w) * x(n, j, h, w);
    }
    return options.k + options.alpha * squares;
  }
  void compute(std::size_t i, const nn::local_response_norm& options, const values_type& values, reference_images& out,
               bool, const step_position&) {
    const reference_images& x = values[input(i)];
    for_each(out.shape, [&](index_t n, index_t c, index_t h, index_t w) {
      out(n, c, h, w) = x(n, c, h, w) * std::pow(divisor(options, x, n, c, h, w), -options.beta);
    });
  }
  void differentiate(std::size_t i, const nn::local_response_norm& options, values_type& gradients,
                     const step_position&) {
    const reference_images& x = value(input(i));
    for_each(x.shape, [&](index_t n, index_t c, index_t h, index_t w) {
      const double dy = gradients[i + 1](n, c, h, w);
      const double base = divisor(options, x, n, c, h, w);
      gradients[input(i)](n, c, h, w) += dy * std::pow(base, -options.beta);
      for (index_t j = std::max<index_t>(0, c - options.radius); j <= std::min(x.shape.c - 1, c + options.radius);
           ++j) {
        gradients[input(i)](n, j, h, w) -=
            2 * options.alpha * options.beta * x(n, j, h, w) * dy * x(n, c, h, w) * std::pow(base, -options.beta - 1);
      }
    });
  }

  /// The element of input k of a product that belongs to one of the output.
  [[nodiscard]] std::size_t factor(std::size_t i, std::size_t k, index_t n, index_t c, index_t h, index_t w) const {
    const nn::value_shape& in = shapes_[input(i, k)];
    const bool whole = in == shapes_[i + 1];
    return static_cast<std::size_t>(((n * in.channels + c) * in.height + (whole ? h : 0)) * in.width + (whole ? w : 0));
  }
  void compute(std::size_t i, const nn::multiply&, const values_type& values, reference_images& out, bool,
               const step_position&) {
    for_each(out.shape, [&](index_t n, index_t c, index_t h, index_t w) {
      out(n, c, h, w) = values[input(i, 0)].elements[factor(i, 0, n, c, h, w)] *
                        values[input(i, 1)].elements[factor(i, 1, n, c, h, w)];
    });
  }
  void differentiate(std::size_t i, const nn::multiply&, values_type& gradients, const step_position&) {
    for_each(gradients[i + 1].shape, [&](index_t n, index_t c, index_t h, index_t w) {
      for (const std::size_t k : {0U, 1U}) {
        gradients[input(i, k)].elements[factor(i, k, n, c, h, w)] +=
            gradients[i + 1](n, c, h, w) * value(input(i, 1 - k)).elements[factor(i, 1 - k, n, c, h, w)];
      }
    });
  }

  /// Calls body(elements) with the numbers of the elements that a softmax adds up, for each such set.
  template <class Body>
  void for_each_softmax(std::size_t i, index_t examples, const Body& body) const {
    const nn::value_shape& shape = shapes_[i + 1];
    const index_t pixels = shape.flattened ? 1 : shape.height * shape.width;
    const index_t terms = shape.size() / pixels;
    for (index_t n = 0; n < examples; ++n) {
      for (index_t pixel = 0; pixel < pixels; ++pixel) {
        std::vector<std::size_t> elements;
        for (index_t c = 0; c < terms; ++c) {
          elements.push_back(static_cast<std::size_t>((n * terms + c) * pixels + pixel));
        }
        body(elements);
      }
    }
  }
  void compute(std::size_t i, const nn::softmax&, const values_type& values, reference_images& out, bool,
               const step_position&) {
    const std::vector<double>& x = values[input(i)].elements;
    for_each_softmax(i, out.shape.n, [&](const std::vector<std::size_t>& elements) {
      double largest = x[elements[0]];
      for (const std::size_t e : elements) {
        largest = std::max(largest, x[e]);
      }
      double sum = 0;
      for (const std::size_t e : elements) {
        sum += std::exp(x[e] - largest);
      }
      for (const std::size_t e : elements) {
        out.elements[e] = std::exp(x[e] - largest) / sum;
      }
    });
  }
  void differentiate(std::size_t i, const nn::softmax&, values_type& gradients, const step_position&) {
    const std::vector<double>& y = value(i + 1).elements;
    const std::vector<double>& dy = gradients[i + 1].elements;
    for_each_softmax(i, gradients[i + 1].shape.n, [&](const std::vector<std::size_t>& elements) {
      double sum = 0;
      double size = 0;
      for (const std::size_t e : elements) {
        sum += y[e] * dy[e];
        size += std::abs(y[e] * dy[e]);
      }
      noise_.on_result(sum, size);
      for (const std::size_t e : elements) {
        gradients[input(i)].elements[e] += y[e] * (dy[e] - sum);
      }
    });
  }

  /// A function of the ReLU family: its value and its derivative.
  [[nodiscard]] static std::pair<double, double> activation(const nn::relu&, double x) {
    return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
  }
  [[nodiscard]] static std::pair<double, double> activation(const nn::relu6&, double x) {
    return {std::clamp(x, 0.0, 6.0), x > 0 && x < 6 ? 1.0 : 0.0};
  }
  [[nodiscard]] static std::pair<double, double> activation(const nn::leaky_relu& options, double x) {
    const double slope = x > 0 ? 1.0 : options.negative_slope;
    return {slope * x, slope};
  }
  template <class Options>
  requires requires(const Options& options) { activation(options, 0.0); }
  void compute(std::size_t i, const Options& options, const values_type& values, reference_images& out, bool,
               const step_position&) {
    for (std::size_t e = 0; e < out.elements.size(); ++e) {
      out.elements[e] = activation(options, values[input(i)].elements[e]).first;
    }
  }
  template <class Options>
  requires requires(const Options& options) { activation(options, 0.0); }
  void differentiate(std::size_t i, const Options& options, values_type& gradients, const step_position&) {
    for (std::size_t e = 0; e < gradients[i + 1].elements.size(); ++e) {
      gradients[input(i)].elements[e] +=
          activation(options, value(input(i)).elements[e]).second * gradients[i + 1].elements[e];
    }
  }

  graph_spec spec_;
  std::vector<nn::value_shape> shapes_;
  std::uint64_t seed_;
  rounding_noise noise_;
  named_numbers parameters_;
  named_numbers gradients_;
  named_numbers buffers_;
  std::vector<std::vector<reference_images>> parts_;
  double largest_ = 0;
  std::vector<std::vector<double>> saved_;  // of each layer, from forward to backward
};

}  // namespace gradus_test
