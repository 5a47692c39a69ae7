// SPDX-License-Identifier: BSL-1.0
//
// What a rank with a GPU does: included by one file for each communicator, which compile side by side.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "cuda.hpp"
#include "gradus/comm/cuda_staging.cuh"
#include "gradus/device/cuda_stream.cuh"
#include "run_rank.hpp"
#ifdef GRADUS_BENCH_WITH_NCCL
#include "gradus/comm/nccl.hpp"
#endif

namespace driver {

/// Events of CUDA in two steps by turns.
class cuda_marks final : public device_marks {
 public:
  explicit cuda_marks(gradus::cuda& device) : device_{device} {}

  void set(std::size_t step, step_mark which) override {
    device_.activate();
    event(step, which).record(device_.stream());
  }
  void begin_pass(std::size_t step, bool forward) override {
    passes_of_step& of = passes_[step % 2];
    if (of.step != step) {
      of.step = step;
      of.count = 0;
    }
    if (of.count == of.all.size()) {
      of.all.emplace_back();
    }
    of.all[of.count].forward = forward;
    device_.activate();
    of.all[of.count].begin.record(device_.stream());
  }
  void end_pass(std::size_t step) override {
    passes_of_step& of = passes_[step % 2];
    of.all[of.count++].end.record(device_.stream());
  }
  std::array<double, 3> seconds(std::size_t step) override {
    event(step, step_mark::end).synchronize();
    const auto between = [&](step_mark from, step_mark to) { return event(step, to).seconds_since(event(step, from)); };
    const double update = between(step_mark::update, step_mark::end);
    const passes_of_step& of = passes_[step % 2];
    if (of.count == 0 || of.step != step) {
      return {between(step_mark::first_layer, step_mark::last_layer), between(step_mark::last_layer, step_mark::update),
              update};
    }
    double forward = 0;
    double backward = 0;
    for (std::size_t i = 0; i < of.count; ++i) {
      (of.all[i].forward ? forward : backward) += of.all[i].end.seconds_since(of.all[i].begin);
    }
    return {forward, backward, update};
  }

 private:
  struct pass {
    bool forward = false;
    gradus::cuda_event begin{true};
    gradus::cuda_event end{true};
  };
  struct passes_of_step {
    std::size_t step = 0;
    std::size_t count = 0;
    std::vector<pass> all;
  };

  gradus::cuda_event& event(std::size_t step, step_mark which) {
    return events_[step % 2][static_cast<std::size_t>(which)];
  }

  template <std::size_t... Place>
  static std::array<gradus::cuda_event, sizeof...(Place)> make(std::index_sequence<Place...> /*positions*/) {
    return {((void)Place, gradus::cuda_event{true})...};
  }
  gradus::cuda& device_;
  std::array<std::array<gradus::cuda_event, 4>, 2> events_{make(std::make_index_sequence<4>{}),
                                                           make(std::make_index_sequence<4>{})};
  std::array<passes_of_step, 2> passes_;
};

template <>
struct device_of<gradus::cuda> {
  static std::unique_ptr<training> make_training(const settings& chosen, gradus::cuda& device, const input_set& input,
                                                 const batches& plan, gradus::trace::recorder& recorder) {
    return make_training_on_cuda(chosen, device, input, plan, recorder);
  }
  static std::unique_ptr<device_marks> make_marks(gradus::cuda& device) { return std::make_unique<cuda_marks>(device); }
  static int threads(const gradus::cuda& /*device*/) { return 1; }
  static std::uint64_t peak_memory(const gradus::cuda& device) { return device.peak_memory_bytes(); }
};

template <class Communicator>
void run_rank_on_cuda(Communicator& world, const settings& given, bool in_process, int local_rank) {
  const settings chosen = completed(given);
  gradus::cuda device = make_cuda_device(chosen, local_rank);
#ifdef GRADUS_BENCH_WITH_NCCL
  if (chosen.all_reduce_spec == nccl_spec) {
    run_rank_on(device, world, gradus::comm::nccl{world.duplicate(), device}, chosen, in_process);
    return;
  }
#endif
  run_rank_on(device, world, gradus::comm::staged_on_cuda<Communicator>{world.duplicate(), device}, chosen, in_process);
}

}  // namespace driver
