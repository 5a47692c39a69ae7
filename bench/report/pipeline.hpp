// SPDX-License-Identifier: BSL-1.0
//
// Trainings in stages: what each stage computes, how long ranks stand still for messages of other stages, and why.
//
// The bubble of a rank is the part of its steps in which its program waits for messages between stages: it is inside a
// wait that names one, or, while one is under way, inside a wait without a name or inside no other recorded work.
// Passes, the work of the exchange, the update, input, and waits in collectives are no bubble. Only steps with all
// passes of the most frequent number of micro-batches count.
//
// A pass computes while its rank's activity is forward or backward. Gradients are summed over the replicas while the
// last backward passes run: that is exchange, and no part of the time of the pass. If all steps count, what a rank
// computes is its forward and backward in steps.
//
// The causes of a bubble are found by simulating the schedule, and add up to it:
// * filling and draining: what a rank waits if all stages take as long as the mean stage, and transfers no time,
// * unequal stages: what it waits in addition if each pass takes its measured mean,
// * the rest: what it waits in addition in truth, for transfers, for other work of other stages (their update, sums of
//   gradients over replicas), and for passes that do not always take the mean.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

namespace gradus::report {

/// A bubble, as a part of the time of the steps, and its causes, which add up to it.
struct bubble_figures {
  double all = 0;
  double filling = 0;  ///< filling and draining the pipeline
  double unequal = 0;  ///< stages take different times
  double rest = 0;     ///< transfers and everything else; all of it where the causes are not known
};

/// One stage. What a pass over one micro-batch computes, microseconds, mean over ranks and steps.
struct stage_figures {
  int stage = 0;           ///< from 0, the one with the input
  std::vector<int> ranks;  ///< that run it, one of each replica
  std::string first_layer, last_layer;
  std::size_t layers = 0;  ///< 0: not recorded
  double forward = 0;
  double backward = 0;          ///< with both parts, where it is split
  double input_gradients = 0;   ///< the first part; 0: not split
  double weight_gradients = 0;  ///< the second part; 0: not split
  double computes = 0;          ///< the part of the steps of its ranks in which they compute its passes
  bubble_figures bubble;        ///< of its ranks: the same for all stages of a rank

  /// Both passes over one micro-batch.
  double both() const { return forward + backward; }
};

/// One rank of a training in stages.
struct stage_rank_figures {
  int rank = 0;
  int replica = 0;  ///< from 0
  std::vector<int> stages;
  std::int64_t steps = 0;  ///< that count
  double step_time = 0;    ///< their sum, microseconds
  double computes = 0;     ///< the part of these steps in which it computes passes
  bubble_figures bubble;
};

/// The messages between two ranks of a replica, in both directions; of a step of one replica.
struct cut_figures {
  int first = 0, second = 0;  ///< the position in the replica, from 0: with one stage of a rank the stage
  double messages = 0, bytes = 0;
  double time = 0;  ///< under way, from the begin of the send on, sum over the messages, microseconds
};

/// A training in stages. Empty if the trace has no complete step of one.
struct pipeline_figures {
  std::vector<stage_figures> stages;      ///< by number
  std::vector<stage_rank_figures> ranks;  ///< by rank
  std::vector<cut_figures> cuts;          ///< by position
  int ranks_of_replica = 0, replicas = 0, stages_per_rank = 0;
  int micro_batches = 0;  ///< of a step; the most frequent number
  bool splits_backward = false;
  std::int64_t steps = 0;  ///< that count, of the rank that has most
  std::string
      schedule;  ///< "one_f_one_b", "interleaved", ...; "recorded": none of the library's; empty: causes are not known
  std::int64_t left_out = 0;  ///< steps of all ranks with passes that do not count

  /// What the rank with the largest bubble would have with other numbers of micro-batches of the same batch.
  struct prediction {
    int micro_batches = 0;
    double bubble = 0;  ///< part of the step
  };
  std::size_t worst = 0;                ///< the position in the replica with the largest bubble, mean of the replicas
  bubble_figures worst_bubble;          ///< its
  std::vector<prediction> predictions;  ///< more and more micro-batches, up to the first with few bubbles
  double example_begin = 0, example_end = 0;  ///< a step of median length on the first rank of that position
  int example_rank = -1;

  bool empty() const { return stages.empty(); }
  bool explained() const { return !schedule.empty(); }
};

/// From this part of the step on a smaller bubble is not worth more micro-batches.
inline constexpr double few_bubbles = 0.12;
inline constexpr std::string_view recorded_schedule = "recorded";

}  // namespace gradus::report
