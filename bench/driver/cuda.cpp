// SPDX-License-Identifier: BSL-1.0
//
// The part of the measurements on GPUs that does not depend on how ranks communicate.
#include "cuda.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gradus/device/cuda_stream.cuh"
#include "marks.hpp"
#include "rules.hpp"

namespace driver {

namespace {

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

/// The card that a rank computes with.
class cuda_of_rank final : public rank_device {
 public:
  explicit cuda_of_rank(gradus::cuda& device) : device_{device}, marks_{device} {}

  std::unique_ptr<training> make_training(const settings& chosen, const input_set& input, const batches& plan,
                                          gradus::trace::recorder& recorder) override {
    return driver::make_training(chosen, device_, input, plan, recorder);
  }
  std::unique_ptr<rule> make_rule(const settings& chosen, index_t elements) override {
    return driver::make_rule(chosen, device_, elements);
  }
  int threads() const override { return 1; }
  device_marks* marks() override { return &marks_; }
  std::uint64_t peak_memory() const override { return device_.peak_memory_bytes(); }

 private:
  gradus::cuda& device_;
  cuda_marks marks_;
};

}  // namespace

void require_supported_on_cuda(const settings& chosen) {
  const auto refuse = [](const std::string& option, const std::string& expected, const std::string& got) {
    throw std::invalid_argument{option + ": expected " + expected + " with --device cuda, got '" + got + "'"};
  };
  if (chosen.what == command::tune) {
    throw std::invalid_argument{"tune: it looks for processes and threads of a CPU: leave out --device " +
                                chosen.device};
  }
  if (uses_servers(chosen.update) || chosen.update == variable_update::model_averaging ||
      chosen.update == variable_update::compressed_all_reduce) {
    refuse("--variable-update", "independent, replicated, all_reduce or sharded_update", name_of(chosen.update));
  }
  if (chosen.update == variable_update::sharded_update && chosen.precision == "fp16") {
    throw std::invalid_argument{
        "--precision: fp16 scales the loss, and a step is skipped where a gradient is not finite, which a rank of "
        "--variable-update sharded_update sees only in its own blocks: take all_reduce, or bf16"};
  }
  if (chosen.order != transfer_order::none) {
    refuse("--order", "none (the times of layers, which it needs, are those of a CPU)", name_of(chosen.order));
  }
#ifdef GRADUS_BENCH_WITH_NCCL
  if (!chosen.all_reduce_spec.empty() && chosen.all_reduce_spec != nccl_spec) {
    refuse("--all-reduce-spec", "nccl or nothing", chosen.all_reduce_spec);
  }
#else
  if (!chosen.all_reduce_spec.empty()) {
    refuse("--all-reduce-spec", "nothing (nccl needs a gradus_bench that was built with gradus::nccl)",
           chosen.all_reduce_spec);
  }
#endif
}

int cuda_devices() {
  return gradus::cuda_device_count();
}

gradus::cuda make_cuda_device(const settings& chosen, int local_rank) {
  const int cards = gradus::cuda_device_count();
  return gradus::cuda{{.device = cards > 0 ? local_rank % cards : 0,  // without a card this throws
                       .allow_tf32 = chosen.precision == "tf32",
                       .deterministic = false}};
}

std::unique_ptr<rank_device> make_gpu(gradus::cuda& device) {
  return std::make_unique<cuda_of_rank>(device);
}

void with_cuda_training(const settings& chosen, const input_set& input, const batches& plan,
                        const std::function<void(training&)>& use) {
  gradus::cuda device = make_cuda_device(chosen, 0);
  gradus::trace::recorder recorder{{.capacity = 1, .enabled = false}};
  use(*make_training(chosen, device, input, plan, recorder));
}

}  // namespace driver
