// SPDX-License-Identifier: BSL-1.0
//
// Trainings in stages: their options, what a rank needs of the others, and what a dry run says.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/parallel/hybrid.hpp"
#include "gradus/parallel/pipeline/network_layers.hpp"
#include "gradus/parallel/pipeline/ranks.hpp"
#include "result.hpp"
#include "settings.hpp"

namespace driver {

/// Makes what the ranks of a pipeline send each other, for networks of each element type, without the type of their
/// communicator. Called by all ranks.
class pipeline_maker {
 public:
  pipeline_maker() = default;
  pipeline_maker(const pipeline_maker&) = delete;
  pipeline_maker& operator=(const pipeline_maker&) = delete;

  virtual void make(const gradus::parallel::hybrid& options,
                    std::unique_ptr<gradus::parallel::pipeline_ranks<float>>& ranks) = 0;
  virtual void make(const gradus::parallel::hybrid& options,
                    std::unique_ptr<gradus::parallel::pipeline_ranks<gradus::bfloat16>>& ranks) = 0;
  virtual void make(const gradus::parallel::hybrid& options,
                    std::unique_ptr<gradus::parallel::pipeline_ranks<gradus::float16>>& ranks) = 0;

 protected:
  ~pipeline_maker() = default;
};

template <class Communicator>
class pipeline_maker_on final : public pipeline_maker {
 public:
  explicit pipeline_maker_on(Communicator& communicator) : communicator_{communicator} {}

  void make(const gradus::parallel::hybrid& options,
            std::unique_ptr<gradus::parallel::pipeline_ranks<float>>& ranks) override {
    make_ranks(options, ranks);
  }
  void make(const gradus::parallel::hybrid& options,
            std::unique_ptr<gradus::parallel::pipeline_ranks<gradus::bfloat16>>& ranks) override {
    make_ranks(options, ranks);
  }
  void make(const gradus::parallel::hybrid& options,
            std::unique_ptr<gradus::parallel::pipeline_ranks<gradus::float16>>& ranks) override {
    make_ranks(options, ranks);
  }

 private:
  template <class Element>
  void make_ranks(const gradus::parallel::hybrid& options,
                  std::unique_ptr<gradus::parallel::pipeline_ranks<Element>>& ranks) {
    using type = gradus::parallel::pipeline_ranks_of<Element, Communicator>;
    ranks = std::make_unique<type>(options, communicator_);
  }

  Communicator& communicator_;
};

/// The stages of a network before it takes memory.
struct pipeline_forecast {
  gradus::parallel::network_stages cut;
  std::vector<gradus::nn::memory_forecast> memory;  // of each stage; without the state of the update rule
};

/// The strategy that was asked for. @pre completed
[[nodiscard]] gradus::parallel::hybrid pipeline_options(const settings& chosen);

/// @throws std::invalid_argument for what a pipeline cannot do, before anything has begun
void require_supported_pipeline(const settings& chosen);

/// @throws std::invalid_argument unless ranks form whole replicas
void require_whole_replicas(const settings& chosen, int ranks);

/// Bytes that rank 0 may take to measure the layers of the whole network: the limit of a rank, and not more than half
/// of the machine's memory.
[[nodiscard]] std::size_t memory_for_measuring(const settings& chosen);

/// What a result says of the pipeline. @param bubble  of the predicted step
[[nodiscard]] pipeline_facts facts_of(const settings& chosen, double bubble);

/// The lines of a dry run: a table of the stages, their memory, and the step that follows.
/// @param replicas  of the pipeline
void print_stages(const settings& chosen, const gradus::nn::graph& network, const pipeline_forecast& found,
                  int replicas);

}  // namespace driver
