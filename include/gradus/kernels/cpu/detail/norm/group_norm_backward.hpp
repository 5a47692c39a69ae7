// SPDX-License-Identifier: BSL-1.0
//
// The backward pass of group normalization on the CPU.
#pragma once

#include <algorithm>  // std::clamp, std::fill_n, std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::byte
#include <span>       // std::span

#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/norm/batch_norm.hpp"
#include "gradus/kernels/cpu/detail/norm/group_norm.hpp"
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
        x_{x},
        dy_{dy},
        dx_{dx},
        gamma_{gamma},
        gradients_{gradients},
        epilogue_{epilogue},
        statistics_{state, split},
        work_{workspace, split} {}

  void run(cpu& device) const {
    if (split_.examples == 0 || split_.channels == 0 || split_.plane == 0) {
      write_parameters(device, 0, [](index_t, index_t) { return std::array<double, 2>{}; });
      return;
    }
    const index_t elements = split_.channels * split_.plane * split_.examples / split_.units;
    switch (split_.order) {
      case norm_order::planes:
        in_three_steps(
            device, split_.units, split_.pieces, elements, [&, this](index_t u, index_t p) { sum_planes(u, p); },
            [&, this](index_t u) { finish_planes(u); },
            [&, this](index_t u, index_t p) { differentiate_planes(u, p); });
        write_parameters(device, split_.examples, [&, this](index_t n, index_t c) {
          const index_t set = n * split_.groups + c / split_.width;
          const double* const sums = work_.parameter_sums + 2 * (n * split_.channels + c);
          return std::array<double, 2>{along_normalized(set, sums[0], sums[1]), sums[0]};
        });
        break;
      case norm_order::rows:
        in_three_steps(
            device, split_.units, split_.pieces, elements, [&, this](index_t u, index_t p) { sum_rows_of(u, p); },
            [&, this](index_t u) { finish_rows(u); }, [&, this](index_t u, index_t p) { differentiate_rows(u, p); });
        write_parameters(device, split_.examples, [&, this](index_t n, index_t c) {
          const double* const sums = work_.sums + 2 * n * split_.pieces * split_.channels + c;
          const double product = along_normalized(n * split_.channels + c, sums[0], sums[split_.channels]);
          return std::array<double, 2>{product, sums[0]};
        });
        break;
      case norm_order::pixels:
        in_three_steps(
            device, split_.units, 1, elements, [](index_t, index_t) {},
            [&, this](index_t u) { differentiate_pixels(u); }, [](index_t, index_t) {});
        write_parameters(device, split_.units, [&, this](index_t u, index_t c) {
          const double* const sums = work_.parameter_sums + 2 * (u * split_.channels + c);
          return std::array<double, 2>{sums[1], sums[0]};
        });
        break;
      case norm_order::vectors:
        differentiate_vectors(device);
        break;
    }
  }

 private:
  [[nodiscard]] bool of_parameters() const { return gradients_.gamma != nullptr || gradients_.beta != nullptr; }

  [[nodiscard]] const real* gamma(index_t channel) const { return gamma_ == nullptr ? nullptr : gamma_ + channel; }

  /// The sum of g * xhat, from the sums of g and of g * (x - mean).
  [[nodiscard]] double along_normalized(index_t set, double sum, double product) const {
    return static_cast<double>(statistics_.inverse[set]) * product + static_cast<double>(statistics_.rest[set]) * sum;
  }

  /// Writes the gradients of gamma and beta: the sums over parts of what part_of(part, channel) returns for each.
  template <class Part>
  void write_parameters(cpu& device, index_t parts, const Part& part_of) const {
    if (!of_parameters()) {
      return;
    }
    const index_t grain = std::max(index_t{1}, (index_t{1} << 12U) / std::max(index_t{1}, parts));
    device.parallel_for(split_.channels, grain, [&, this](index_t begin, index_t end) {
      for (index_t c = begin; c < end; ++c) {
        double of_gamma = 0;
        double of_beta = 0;
        for (index_t part = 0; part < parts; ++part) {
          const std::array<double, 2> sums = part_of(part, c);
          of_gamma += sums[0];
          of_beta += sums[1];
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

  template <bool SetPerLane, bool AffinePerLane>
  void differentiate(index_t at, index_t count, index_t statistic, index_t channel) const {
    const group_norm_coefficients<real> coefficients{.mean = statistics_.mean + statistic,
                                                     .inverse = statistics_.inverse + statistic,
                                                     .rest = statistics_.rest + statistic,
                                                     .gamma = gamma(channel),
                                                     .beta = nullptr,
                                                     .first = work_.first + statistic,
                                                     .second = work_.second + statistic};
    const Element* const mask = epilogue_.relu_output == nullptr ? nullptr : epilogue_.relu_output + at;
    const held_derivative<real> derivative{epilogue_.mask};
    if (mask == nullptr && !epilogue_.accumulate) {
      differentiate_set_run<SetPerLane, AffinePerLane, true>(count, x_ + at, dy_ + at, dx_ + at, mask, derivative,
                                                             false, coefficients);
    } else {
      differentiate_set_run<SetPerLane, AffinePerLane, false>(count, x_ + at, dy_ + at, dx_ + at, mask, derivative,
                                                              epilogue_.accumulate, coefficients);
    }
  }

  /// Stores the means of a set, given the sums of gamma * g and gamma * g * xhat.
  void store_means(index_t at, index_t copies, double sum, double product) const {
    const auto count = static_cast<double>(split_.set);
    std::fill_n(work_.first + at, copies, static_cast<real>(sum / count));
    std::fill_n(work_.second + at, copies, static_cast<real>(product / count));
  }

  [[nodiscard]] double gamma_or_1(index_t channel) const {
    return gamma_ == nullptr ? 1.0 : static_cast<double>(gamma_[channel]);
  }

  void sum_planes(index_t unit, index_t piece) const {
    const index_t last = std::min(split_.width, (piece + 1) * split_.piece);
    for (index_t c = piece * split_.piece; c < last; ++c) {
      const index_t plane = unit * split_.width + c;
      double* const sums = work_.parameter_sums + 2 * plane;
      sums[0] = sums[1] = 0;
      const index_t at = plane * split_.plane;
      sum_runs(norm_terms<Element>{x_ + at, nullptr, dy_ + at}, 1, 0, split_.plane, statistics_.mean[unit], sums[0],
               sums[1]);
    }
  }

  void finish_planes(index_t unit) const {
    double sum = 0;
    double product = 0;
    for (index_t c = 0; c < split_.width; ++c) {
      const double* const sums = work_.parameter_sums + 2 * (unit * split_.width + c);
      const double scale = gamma_or_1(unit % split_.groups * split_.width + c);
      sum += scale * sums[0];
      product += scale * along_normalized(unit, sums[0], sums[1]);
    }
    store_means(unit, 1, sum, product);
  }

  void differentiate_planes(index_t unit, index_t piece) const {
    if (dx_ == nullptr) {
      return;
    }
    const index_t last = std::min(split_.width, (piece + 1) * split_.piece);
    for (index_t c = piece * split_.piece; c < last; ++c) {
      differentiate<false, false>((unit * split_.width + c) * split_.plane, split_.plane, unit,
                                  unit % split_.groups * split_.width + c);
    }
  }

  void sum_rows_of(index_t unit, index_t piece) const {
    const index_t channels = split_.channels;
    double* const sums = work_.sums + 2 * (unit * split_.pieces + piece) * channels;
    std::fill_n(sums, 2 * channels, 0.0);
    const index_t row = piece * split_.piece;
    const index_t at = (unit * split_.plane + row) * channels;
    sum_rows(norm_terms<Element>{x_ + at, nullptr, dy_ + at}, std::min(split_.piece, split_.plane - row), channels,
             statistics_.mean + unit * channels, sums, sums + channels);
  }

  void finish_rows(index_t unit) const {
    const index_t channels = split_.channels;
    double* const total = work_.sums + 2 * unit * split_.pieces * channels;
    for (index_t piece = 1; piece < split_.pieces; ++piece) {
      for (index_t i = 0; i < 2 * channels; ++i) {
        total[i] += total[2 * piece * channels + i];
      }
    }
    for (index_t group = 0; group < split_.groups; ++group) {
      const index_t begin = group * split_.width;
      double sum = 0;
      double product = 0;
      for (index_t c = begin; c < begin + split_.width; ++c) {
        sum += gamma_or_1(c) * total[c];
        product += gamma_or_1(c) * along_normalized(unit * channels + c, total[c], total[channels + c]);
      }
      store_means(unit * channels + begin, split_.width, sum, product);
    }
  }

  void differentiate_rows(index_t unit, index_t piece) const {
    if (dx_ == nullptr) {
      return;
    }
    const index_t last = std::min(split_.plane, (piece + 1) * split_.piece);
    for (index_t row = piece * split_.piece; row < last; ++row) {
      differentiate<true, true>((unit * split_.plane + row) * split_.channels, split_.channels, unit * split_.channels,
                                0);
    }
  }

  void differentiate_pixels(index_t unit) const {
    const index_t example = unit / split_.strips;
    const index_t first = unit % split_.strips * split_.piece;
    const index_t width = std::min(split_.piece, split_.plane - first);
    const index_t plane = split_.plane;
    const index_t origin = example * split_.channels * plane + first;
    const index_t statistic = example * plane + first;
    const Element* const x = x_ + origin;
    const Element* const dy = dy_ + origin;
    const real* const scale = gamma_;
    const held_statistics<true, real> set{of_set(statistic)};
    if (of_parameters()) {
      for (index_t c = 0; c < split_.channels; ++c) {
        double* const sums = work_.parameter_sums + 2 * (unit * split_.channels + c);
        sums[0] = sums[1] = 0;
        sum_terms<Element>(1, width, sums[0], sums[1], [=]<class Packet>(Packet, index_t, index_t i) {
          const auto gradient = Packet::load(dy + c * plane + i);
          return lane_sums<Packet>{gradient,
                                   gradient * set.template normalized<Packet>(Packet::load(x + c * plane + i), i)};
        });
      }
    }
    if (dx_ == nullptr) {
      return;
    }
    pixel_sums memory;
    double* const sums = memory.data();
    double* const products = sums + split_.piece;
    std::fill_n(sums, width, 0.0);
    std::fill_n(products, width, 0.0);
    sum_columns_of_terms<Element>(
        split_.channels, width, sums, products, [=]<class Packet>(Packet, index_t c, index_t i) {
          auto gradient = Packet::load(dy + c * plane + i);
          if (scale != nullptr) {
            gradient *= Packet::broadcast(scale[c]);
          }
          return lane_sums<Packet>{gradient,
                                   gradient * set.template normalized<Packet>(Packet::load(x + c * plane + i), i)};
        });
    for (index_t i = 0; i < width; ++i) {
      store_means(statistic + i, 1, sums[i], products[i]);
    }
    for (index_t c = 0; c < split_.channels; ++c) {
      differentiate<true, false>(origin + c * plane, width, statistic, c);
    }
  }

  /// The coefficients of a set, without those of the channels.
  [[nodiscard]] group_norm_coefficients<real> of_set(index_t set) const {
    return {.mean = statistics_.mean + set, .inverse = statistics_.inverse + set, .rest = statistics_.rest + set};
  }

  /// Adds, for channels [first, first + count) of one group, the sums of g and of g * xhat over examples.
  void sum_columns(index_t begin, index_t end, index_t group, index_t first, index_t count, double* sums) const {
    const index_t at = begin * split_.channels + first;
    const Element* const x = x_ + at;
    const Element* const dy = dy_ + at;
    const index_t channels = split_.channels;
    const index_t groups = split_.groups;
    const group_norm_coefficients<real> origin = of_set(begin * groups + group);
    sum_rows_of_terms<Element>(
        end - begin, count, sums + first, sums + channels + first, [=]<class Packet>(Packet, index_t row, index_t c) {
          const index_t at_row = row * groups;
          const held_statistics<false, real> set{
              {.mean = origin.mean + at_row, .inverse = origin.inverse + at_row, .rest = origin.rest + at_row}};
          const auto gradient = Packet::load(dy + row * channels + c);
          return lane_sums<Packet>{gradient,
                                   gradient * set.template normalized<Packet>(Packet::load(x + row * channels + c), c)};
        });
  }

  /// The same for the channels [left, right) of all groups.
  void sum_columns(index_t begin, index_t end, index_t left, index_t right, double* sums) const {
    for (index_t c = left; c < right;) {
      const index_t group = c / split_.width;
      const index_t next = std::min(right, (group + 1) * split_.width);
      sum_columns(begin, end, group, c, next - c, sums);
      c = next;
    }
  }

  void sum_vector(index_t unit, index_t piece) const {
    double* const sums = work_.sums + 2 * (unit * split_.pieces + piece);
    sums[0] = sums[1] = 0;
    const index_t first = piece * split_.piece;
    const Element* const x = x_ + unit * split_.width + first;
    const Element* const dy = dy_ + unit * split_.width + first;
    const real* const scale = gamma(unit % split_.groups * split_.width + first);
    const held_statistics<false, real> set{of_set(unit)};
    sum_terms<Element>(
        1, std::min(split_.piece, split_.width - first), sums[0], sums[1],
        [=]<class Packet>(Packet, index_t, index_t i) {
          auto gradient = Packet::load(dy + i);
          if (scale != nullptr) {
            gradient *= Packet::load(scale + i);
          }
          return lane_sums<Packet>{gradient, gradient * set.template normalized<Packet>(Packet::load(x + i), i)};
        });
  }

  void finish_vector(index_t unit) const {
    double sum = 0;
    double product = 0;
    for (index_t piece = 0; piece < split_.pieces; ++piece) {
      sum += work_.sums[2 * (unit * split_.pieces + piece)];
      product += work_.sums[2 * (unit * split_.pieces + piece) + 1];
    }
    store_means(unit, 1, sum, product);
  }

  void differentiate_vector(index_t unit, index_t piece) const {
    const index_t first = piece * split_.piece;
    differentiate<false, true>(unit * split_.width + first, std::min(split_.piece, split_.width - first), unit,
                               unit % split_.groups * split_.width + first);
  }

  void differentiate_vectors(cpu& device) const {
    const index_t channels = split_.channels;
    const auto runs = split_.column_runs;
    const index_t run = (split_.examples + runs - 1) / runs;
    const bool blocks = split_.strips == 1;  // dx of a few examples while they are in the cache
    device.parallel_for(runs * split_.strips, 1, [&, this](index_t begin_task, index_t end_task) {
      for (index_t task = begin_task; task < end_task; ++task) {
        const index_t part = task / split_.strips;
        const index_t left = task % split_.strips * 2048;
        const index_t right = std::min(channels, left + 2048);
        double* const sums = work_.parameter_sums + 2 * part * channels;
        std::fill_n(sums + left, right - left, 0.0);
        std::fill_n(sums + channels + left, right - left, 0.0);
        const index_t first = std::min(split_.examples, part * run);
        const index_t last = std::min(split_.examples, first + run);
        const index_t block = blocks ? std::max(index_t{16}, 8192 / channels) : last - first;
        for (index_t begin = first; begin < last; begin += block) {
          const index_t end = std::min(last, begin + block);
          if (of_parameters()) {
            sum_columns(begin, end, left, right, sums);
          }
          if (blocks && dx_ != nullptr) {
            for (index_t unit = begin * split_.groups; unit < end * split_.groups; ++unit) {
              sum_vector(unit, 0);
              finish_vector(unit);
              differentiate_vector(unit, 0);
            }
          }
        }
      }
    });
    write_parameters(device, runs, [&, this](index_t part, index_t c) {
      const double* const sums = work_.parameter_sums + 2 * part * channels + c;
      return std::array<double, 2>{sums[channels], sums[0]};
    });
    if (!blocks && dx_ != nullptr) {
      in_three_steps(
          device, split_.units, split_.pieces, split_.width, [&, this](index_t u, index_t p) { sum_vector(u, p); },
          [&, this](index_t u) { finish_vector(u); }, [&, this](index_t u, index_t p) { differentiate_vector(u, p); });
    }
  }

  group_norm_split split_;
  const Element* x_;
  const Element* dy_;
  Element* dx_;
  const real* gamma_;
  group_norm_gradients<real> gradients_;
  backward_epilogue<Element> epilogue_;
  group_norm_statistics<real> statistics_;
  group_norm_workspace<real> work_;
};

}  // namespace gradus::kernels::detail
