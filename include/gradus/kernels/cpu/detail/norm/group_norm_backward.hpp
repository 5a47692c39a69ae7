// SPDX-License-Identifier: BSL-1.0
//
// The backward pass of group normalization on the CPU.
#pragma once

#include <algorithm>  // std::fill_n, std::max, std::min
#include <cstddef>    // std::byte
#include <span>       // std::span

#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/norm/batch_norm_runs.hpp"
#include "gradus/kernels/cpu/detail/norm/group_norm.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/group_norm.hpp"

namespace gradus::kernels::detail {

/// The backward pass over a batch of any layout. Sums come before dx is written: dx may be dy.
template <class Element>
class group_norm_backward_pass {
  using real = computed<Element>;

 public:
  group_norm_backward_pass(const group_norm_split& split, const Element* x, const Element* dy, Element* dx,
                           const real* gamma, const group_norm_gradients<real>& gradients,
                           const backward_epilogue<Element>& epilogue, std::span<std::byte> state,
                           std::span<std::byte> workspace)
      : split_{split},
        gamma_{gamma},
        gradients_{gradients},
        statistics_{state, split},
        work_{workspace, split},
        runs_{.x = x,
              .dy = dy,
              .dx = dx,
              .relu_output = epilogue.relu_output,
              .mean = statistics_.mean,
              .scale = split.by_channel() ? work_.scale : statistics_.inverse,
              .shift = work_.shift,
              .factor = work_.factor,
              .channels = split.order == norm_order::rows ? split.channels : split.statistics,
              .length = split.order == norm_order::rows ? split.channels : split.plane,
              .per_lane = split.order == norm_order::rows || split.order == norm_order::pixels,
              .of_relu_output = held_derivative<real>{epilogue.mask},
              .accumulate = epilogue.accumulate} {}

  void run(cpu& device) const {
    if (split_.examples == 0 || split_.channels == 0 || split_.plane == 0) {
      write_parameters(device, 0);
      return;
    }
    const index_t elements = split_.channels * split_.plane * split_.examples / split_.units;
    const auto in_steps = [&, this](const auto& sum, const auto& finish, const auto& apply) {
      in_three_steps(device, split_.units, split_.pieces, elements, sum, finish, apply);
    };
    const auto differentiate_channels = [this](auto target, index_t unit, index_t piece) {
      if (runs_.dx == nullptr) {
        return;
      }
      const auto of = split_.runs_of(unit, piece);
      gradient_runs<Element> runs = runs_;
      runs.mean += of.coefficients;
      runs.scale += of.coefficients;
      runs.shift += of.coefficients;
      runs.factor += of.coefficients;
      differentiate_runs_of_sets(target, runs, of.begin, of.end);
    };
    index_t parts = split_.examples;
    switch (split_.order) {
      case norm_order::planes:
        in_steps([this](auto target, index_t unit, index_t piece) { this->sum_planes(target, unit, piece); },
                 [this](index_t unit) { finish_group(unit / split_.groups, unit % split_.groups); },
                 differentiate_channels);
        break;
      case norm_order::rows:
        in_steps([this](auto target, index_t unit, index_t piece) { this->sum_rows_of(target, unit, piece); },
                 [this](index_t unit) { finish_rows(unit); }, differentiate_channels);
        break;
      case norm_order::pixels:
        in_steps([this](auto target, index_t unit, index_t) { this->differentiate_strip(target, unit); },
                 [](index_t) {}, [](auto, index_t, index_t) {});
        parts = split_.units;
        break;
      case norm_order::vectors:
        differentiate_vectors(device, in_steps);
        parts = split_.column_runs;
        break;
    }
    write_parameters(device, parts);
  }

 private:
  [[nodiscard]] bool of_parameters() const { return gradients_.gamma != nullptr || gradients_.beta != nullptr; }

  [[nodiscard]] const real* gamma(index_t channel) const { return gamma_ == nullptr ? nullptr : gamma_ + channel; }

  [[nodiscard]] double gamma_or_1(index_t channel) const {
    return gamma_ == nullptr ? 1.0 : static_cast<double>(gamma_[channel]);
  }

  /// The sums of g of a part's channels; those of g * xhat are `channels` further.
  [[nodiscard]] double* parameter_sums(index_t part) const {
    return work_.parameter_sums + 2 * part * split_.channels * (split_.order == norm_order::rows ? split_.pieces : 1);
  }

  /// Writes the gradients of gamma and beta: the sums over parts.
  void write_parameters(cpu& device, index_t parts) const {
    if (!of_parameters()) {
      return;
    }
    const index_t grain = std::max(index_t{1}, (index_t{1} << 12U) / std::max(index_t{1}, parts));
    device.parallel_for(split_.channels, grain, [&, this](index_t begin, index_t end) {
      for (index_t c = begin; c < end; ++c) {
        double of_gamma = 0;
        double of_beta = 0;
        for (index_t part = 0; part < parts; ++part) {
          of_beta += parameter_sums(part)[c];
          of_gamma += parameter_sums(part)[split_.channels + c];
        }
        if (gradients_.gamma != nullptr) {
          gradients_.gamma[c] = static_cast<real>(of_gamma);
        }
        if (gradients_.beta != nullptr) {
          gradients_.beta[c] = static_cast<real>(of_beta);
        }
      }
    });
  }

  /// Stores coefficients of dx for the statistics at `at`, given the sums of gamma * g and gamma * g * xhat. Where a
  /// set has one element, gamma * g equals its mean exactly, and dx is 0.
  void store_coefficients(index_t at, double sum, double product) const {
    const auto count = static_cast<double>(split_.set);
    const auto inverse = static_cast<double>(statistics_.inverse[at]);
    work_.shift[at] = static_cast<real>(inverse * (sum / count) +
                                        inverse * (product / count) * static_cast<double>(statistics_.rest[at]));
    work_.factor[at] = static_cast<real>(inverse * inverse * (product / count));
  }

  /// Makes sums of g * xhat from sums of g * (x - mean), and the coefficients of the channels of a group.
  void finish_group(index_t example, index_t group) const {
    double* const sums = parameter_sums(example);
    double* const products = sums + split_.channels;
    const index_t at = example * split_.channels;
    const index_t begin = group * split_.width;
    double sum = 0;
    double product = 0;
    for (index_t c = begin; c < begin + split_.width; ++c) {
      products[c] = static_cast<double>(statistics_.inverse[at + c]) * products[c] +
                    static_cast<double>(statistics_.rest[at + c]) * sums[c];
      sum += gamma_or_1(c) * sums[c];
      product += gamma_or_1(c) * products[c];
    }
    for (index_t c = begin; c < begin + split_.width; ++c) {
      work_.scale[at + c] = static_cast<real>(gamma_or_1(c) * static_cast<double>(statistics_.inverse[at + c]));
      store_coefficients(at + c, sum, product);
    }
  }

  template <class Target>
  void sum_planes(Target target, index_t unit, index_t piece) const {
    const index_t end = std::min(split_.width, (piece + 1) * split_.piece);
    double* const sums = parameter_sums(unit / split_.groups) + unit % split_.groups * split_.width;
    double* const products = sums + split_.channels;
    for (index_t c = piece * split_.piece; c < end; ++c) {
      sums[c] = products[c] = 0;
      const index_t at = (unit * split_.width + c) * split_.plane;
      sum_runs(target, norm_terms<Element>{runs_.x + at, nullptr, runs_.dy + at}, 1, 0, split_.plane,
               statistics_.mean[unit * split_.width + c], sums[c], products[c]);
    }
  }

  template <class Target>
  void sum_rows_of(Target target, index_t unit, index_t piece) const {
    const index_t channels = split_.channels;
    double* const sums = work_.sums + 2 * (unit * split_.pieces + piece) * channels;
    std::fill_n(sums, 2 * channels, 0.0);
    const index_t row = piece * split_.piece;
    const index_t at = (unit * split_.plane + row) * channels;
    sum_rows(target, norm_terms<Element>{runs_.x + at, nullptr, runs_.dy + at},
             std::min(split_.piece, split_.plane - row), channels, statistics_.mean + unit * channels, sums,
             sums + channels);
  }

  void finish_rows(index_t unit) const {
    double* const total = parameter_sums(unit);
    const index_t width = 2 * split_.channels;
    for (index_t piece = 1; piece < split_.pieces; ++piece) {
      for (index_t i = 0; i < width; ++i) {
        total[i] += total[piece * width + i];
      }
    }
    for (index_t group = 0; group < split_.groups; ++group) {
      finish_group(unit, group);
    }
  }

  template <class Target>
  void differentiate_strip(Target target, index_t unit) const {
    const index_t example = unit / split_.strips;
    const index_t first = unit % split_.strips * split_.piece;
    const index_t width = std::min(split_.piece, split_.plane - first);
    const index_t plane = split_.plane;
    const index_t origin = example * split_.channels * plane + first;
    const index_t set = example * plane + first;
    if (of_parameters()) {
      sum_pixels(target, runs_, statistics_.rest, origin, split_.channels, width, set, parameter_sums(unit));
    }
    if (runs_.dx == nullptr) {
      return;
    }
    pixel_sums sums;
    std::fill_n(sums.data(), split_.piece + width, 0.0);
    double* const products = sums.data() + split_.piece;
    sum_columns(target, runs_, statistics_.rest, gamma_, origin, split_.channels, plane, width, set, index_t{0},
                sums.data(), products);
    for (index_t i = 0; i < width; ++i) {
      store_coefficients(set + i, sums[static_cast<std::size_t>(i)], products[i]);
    }
    differentiate_pixels(target, runs_, gamma_, origin, split_.channels, width, set);
  }

  /// Adds the sums of g and of g * xhat over examples for the channels [left, right), group by group.
  template <class Target>
  void sum_examples(Target target, index_t begin, index_t end, index_t left, index_t right, double* sums) const {
    for (index_t c = left; c < right;) {
      const index_t group = c / split_.width;
      const index_t next = std::min(right, (group + 1) * split_.width);
      sum_columns(target, runs_, statistics_.rest, static_cast<const real*>(nullptr), begin * split_.channels + c,
                  end - begin, split_.channels, next - c, begin * split_.groups + group, split_.groups, sums + c,
                  sums + split_.channels + c);
      c = next;
    }
  }

  template <class Target>
  void sum_vector(Target target, index_t unit, index_t piece) const {
    double* const sums = work_.sums + 2 * (unit * split_.pieces + piece);
    sums[0] = sums[1] = 0;
    const index_t first = piece * split_.piece;
    sum_set(target, runs_, statistics_.rest, gamma(unit % split_.groups * split_.width + first),
            unit * split_.width + first, std::min(split_.piece, split_.width - first), unit, sums[0], sums[1]);
  }

  void finish_vector(index_t unit) const {
    double sum = 0;
    double product = 0;
    for (index_t piece = 0; piece < split_.pieces; ++piece) {
      sum += work_.sums[2 * (unit * split_.pieces + piece)];
      product += work_.sums[2 * (unit * split_.pieces + piece) + 1];
    }
    store_coefficients(unit, sum, product);
  }

  template <class Target>
  void differentiate_vector(Target target, index_t unit, index_t piece) const {
    const index_t first = piece * split_.piece;
    differentiate_set(target, runs_, gamma_, unit * split_.width + first, std::min(split_.piece, split_.width - first),
                      unit, unit % split_.groups * split_.width + first);
  }

  template <class InSteps>
  void differentiate_vectors(cpu& device, const InSteps& in_steps) const {
    const index_t channels = split_.channels;
    const index_t run = (split_.examples + split_.column_runs - 1) / split_.column_runs;
    const bool blocks = split_.strips == 1;  // dx of a few examples while they are in the cache
    device.parallel_for(split_.column_runs * split_.strips, 1, [&, this](index_t begin_task, index_t end_task) {
      on_target([&, this](auto target) {
        for (index_t task = begin_task; task < end_task; ++task) {
          const index_t part = task / split_.strips;
          const index_t left = task % split_.strips * 2048;
          const index_t right = std::min(channels, left + 2048);
          double* const sums = parameter_sums(part);
          std::fill_n(sums + left, right - left, 0.0);
          std::fill_n(sums + channels + left, right - left, 0.0);
          const index_t first = std::min(split_.examples, part * run);
          const index_t last = std::min(split_.examples, first + run);
          const index_t block = blocks ? std::max(index_t{16}, 8192 / channels) : last - first;
          for (index_t begin = first; begin < last; begin += block) {
            const index_t end = std::min(last, begin + block);
            const bool writes = blocks && runs_.dx != nullptr;
            for (index_t unit = begin * split_.groups; writes && unit < end * split_.groups; ++unit) {
              sum_vector(target, unit, 0);
            }
            for (index_t unit = begin * split_.groups; writes && unit < end * split_.groups; ++unit) {
              finish_vector(unit);
            }
            if (of_parameters()) {
              sum_examples(target, begin, end, left, right, sums);
            }
            for (index_t unit = begin * split_.groups; writes && unit < end * split_.groups; ++unit) {
              differentiate_vector(target, unit, 0);
            }
          }
        }
      });
    });
    if (!blocks && runs_.dx != nullptr) {
      in_steps([this](auto target, index_t unit, index_t piece) { this->sum_vector(target, unit, piece); },
               [this](index_t unit) { finish_vector(unit); },
               [this](auto target, index_t unit, index_t piece) { this->differentiate_vector(target, unit, piece); });
    }
  }

  group_norm_split split_;
  const real* gamma_;
  group_norm_gradients<real> gradients_;
  group_norm_statistics<real> statistics_;
  group_norm_workspace<real> work_;
  gradient_runs<Element> runs_;
};

}  // namespace gradus::kernels::detail
