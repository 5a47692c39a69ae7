// SPDX-License-Identifier: BSL-1.0
//
// A network with its input, without the layout: what a rank trains.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evaluation.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "input.hpp"
#include "pipeline.hpp"
#include "saves.hpp"
#include "settings.hpp"
#include "watch.hpp"

namespace gradus {
class cuda;
}  // namespace gradus

namespace driver {

/// How many images a rank trains on, and which.
struct batches {
  index_t of_rank = 0;
  int rank = 0;
  int ranks = 1;
  index_t steps = 0;  // of an epoch

  [[nodiscard]] index_t global() const noexcept { return of_rank * ranks; }
};

using trained_parameters = gradus::train::trained_parameters<float>;

class training {
 public:
  training() = default;
  training(const training&) = delete;
  training& operator=(const training&) = delete;
  virtual ~training() = default;

  /// What compile would take.
  [[nodiscard]] virtual gradus::nn::memory_forecast forecast() = 0;
  /// The stages of a network, without its own memory. @param options  of the strategy
  [[nodiscard]] virtual pipeline_forecast forecast_stages(const gradus::parallel::hybrid& options) = 0;
  /// The fewest that keep within options.memory_limit; nothing if none do.
  [[nodiscard]] virtual std::optional<pipeline_forecast> fewest_stages(const gradus::parallel::hybrid& options) = 0;
  virtual void compile() = 0;
  /// Compiles the stages of this rank. Called by all ranks.
  /// @return  where the network was cut
  virtual gradus::parallel::network_stages compile_stages(const gradus::parallel::hybrid& options,
                                                          gradus::comm::any_communicator ranks) = 0;
  [[nodiscard]] virtual const gradus::nn::graph& structure() const = 0;
  /// Of a compiled network. The gradients, and a thing that updates them, stay valid.
  [[nodiscard]] virtual trained_parameters parameters() = 0;
  /// The shortest times of the layers in some steps that change no parameters.
  [[nodiscard]] virtual gradus::parallel::step_profile profile(int steps) = 0;
  /// Computes batches with constant weights, compiled for that. @return the seconds of each
  [[nodiscard]] virtual std::vector<double> infer(int count) = 0;
  /// Compiles the network for evaluations.
  virtual void compile_for_evaluation() = 0;
  /// Takes the parameters and running statistics of a checkpoint. @pre compiled
  virtual void load_weights(const std::string& checkpoint) = 0;
  /// Compares the scores of `count` batches with their labels, epoch after epoch.
  /// @param after_batch  called after each of them
  /// @return             the sums of this rank's share
  [[nodiscard]] virtual score_counts evaluate(index_t count, const std::function<void()>& after_batch) = 0;
  /// Runs epochs of batches.steps steps.
  /// @param group     the ranks that train
  /// @param watch     the end of each step, and a callback
  /// @param saves     called before them; resumed from if that was asked for
  /// @param recorder  of the steps, or nullptr
  virtual void fit(gradus::comm::link& group, step_watch& watch, saves_of_rank& saves, int epochs,
                   const gradus::optim::schedule& learning_rate, gradus::trace::recorder* recorder) = 0;
};

/// In the layout and precision that were asked for.
/// @param input     outlives the training
/// @param recorder  likewise; of what the threads of the input do
[[nodiscard]] std::unique_ptr<training> make_training(const settings& chosen, gradus::cpu& device,
                                                      const input_set& input, const batches& plan,
                                                      gradus::trace::recorder& recorder);
/// The same on a GPU.
[[nodiscard]] std::unique_ptr<training> make_training(const settings& chosen, gradus::cuda& device,
                                                      const input_set& input, const batches& plan,
                                                      gradus::trace::recorder& recorder);

}  // namespace driver
