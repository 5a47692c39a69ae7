// SPDX-License-Identifier: BSL-1.0
//
// What a rank with a GPU does: included by one file for each communicator, which compile side by side.
#pragma once

#include <array>
#include <memory>
#include <utility>

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
  std::array<double, 3> seconds(std::size_t step) override {
    event(step, step_mark::end).synchronize();
    const auto between = [&](step_mark from, step_mark to) { return event(step, to).seconds_since(event(step, from)); };
    return {between(step_mark::first_layer, step_mark::last_layer), between(step_mark::last_layer, step_mark::update),
            between(step_mark::update, step_mark::end)};
  }

 private:
  gradus::cuda_event& event(std::size_t step, step_mark which) {
    return events_[step % 2][static_cast<std::size_t>(which)];
  }

  template <std::size_t... Place>
  static std::array<gradus::cuda_event, sizeof...(Place)> make(std::index_sequence<Place...> /*places*/) {
    return {((void)Place, gradus::cuda_event{true})...};
  }
  gradus::cuda& device_;
  std::array<std::array<gradus::cuda_event, 4>, 2> events_{make(std::make_index_sequence<4>{}),
                                                           make(std::make_index_sequence<4>{})};
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
void run_rank_on_cuda(Communicator& world, const settings& chosen, bool in_process, int local_rank) {
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
