// SPDX-License-Identifier: BSL-1.0
//
// A network of gradus_bench by name, images for it, and a clock of its steps: what programs that time training share.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "gradus/data/dataset.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/train/report.hpp"

namespace bench {

using gradus::index_t;
using network = gradus::nn::network<float, gradus::nhwc>;

/// The options that choose the network and its images.
struct model_options {
  std::string name;  // one of gradus_bench
  index_t batch_size_per_rank;
  index_t pixels = 0;  // height and width; 0: what the network is made for

  /// Of one image.
  [[nodiscard]] gradus::nn::value_shape image() const;
};

/// Adds --model, --batch-size and --pixels.
void add_model_options(CLI::App& app, model_options& options);
/// @throws shape_error when there is no such network for such images
void require_network(const model_options& options);
/// The network, compiled; the same on all ranks.
[[nodiscard]] network make_network(gradus::cpu& device, const model_options& options);
/// Images for it.
[[nodiscard]] gradus::data::image_dataset make_images(const model_options& options, index_t examples);

/// A callback of the trainer: the seconds of each step that follows another one of its epoch.
struct step_clock {
  std::vector<double>* seconds;

  void on_step(const gradus::train::step_report& step) {
    const auto now = std::chrono::steady_clock::now();
    if (step.step_in_epoch > 0) {
      seconds->push_back(std::chrono::duration<double>(now - before).count());
    }
    before = now;
  }

  std::chrono::steady_clock::time_point before{};
};

}  // namespace bench
