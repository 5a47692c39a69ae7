// SPDX-License-Identifier: BSL-1.0
//
// What recording costs: nanoseconds a span, and the share of a training step, with recording on, switched off, and not
// compiled in, measured in turn.
//
//   bench_trace_overhead [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/core/output.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace data = gradus::data;
namespace trace = gradus::trace;
namespace train = gradus::train;
using clock_type = std::chrono::steady_clock;

using program::median;

double scope_nanoseconds(trace::recorder& recorder) {
  constexpr int count = 20000;
  const auto began = clock_type::now();
  for (int i = 0; i < count; ++i) {
    const trace::scope one{recorder, trace::category::copy, "copy"};
  }
  return std::chrono::duration<double, std::nano>(clock_type::now() - began).count() / count;
}

/// Milliseconds a step of one epoch: on the clock, and of the processor. The latter says more on a busy machine.
struct step_time {
  std::vector<double> wall;
  std::vector<double> processor;

  template <class Run>
  void measure(gradus::index_t steps, const Run& run) {
    const auto began = clock_type::now();
    const std::clock_t used = std::clock();
    run();
    const double each = 1e3 / static_cast<double>(steps);
    processor.push_back(each * static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC);
    wall.push_back(each * std::chrono::duration<double>(clock_type::now() - began).count());
  }
};

struct parts {
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader;
  gradus::nn::network<float, gradus::nhwc> net;

  template <class Set>
  explicit parts(const Set& set) : loader{device, set, {.global_batch_size = 8, .seed = 1}}, net{device, {1, 28, 28}} {
    gradus::models::mnist(net, {.hidden_features = 64});
    net.compile({.max_batch_size = 8, .seed = 1});
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  trace::recorder recorder;
  std::vector<double> on;
  std::vector<double> off;
  for (int i = 0; i < 100; ++i) {
    recorder.enable(true);
    on.push_back(scope_nanoseconds(recorder));
    recorder.enable(false);
    off.push_back(scope_nanoseconds(recorder));
  }
  std::printf("a scope: %.1f ns on (least %.1f), %.1f ns off\n", median(on), *std::min_element(on.begin(), on.end()),
              median(off));

  const auto images = data::make_synthetic({.examples = 160});
  const train::traced_set seen{recorder, images};
  gradus::comm::self alone;
  auto traced = trace::traced(gradus::comm::self{}, recorder);
  parts plain_parts{images};
  parts traced_parts{seen};
  train::trainer plain{plain_parts.net, gradus::optim::sgd{}, alone};
  train::trainer recorded{traced_parts.net, gradus::optim::sgd{}, traced};
  step_time times[3];  // not compiled in, switched off, recorded
  const train::fit_options once{.epochs = 1, .learning_rate = 0.0};
  const gradus::index_t steps = plain_parts.loader.steps_per_epoch();
  for (int round = 0; round < 3 * rounds; ++round) {
    const int which = (round + round / 3) % 3;  // each comes first as often as the others
    recorder.enable(which == 2);
    times[which].measure(
        steps, [&] { which == 0 ? plain.fit(plain_parts.loader, once) : recorded.fit(traced_parts.loader, once); });
  }
  const char* const names[] = {"not compiled in", "switched off", "recorded"};
  for (int which = 0; which < 3; ++which) {
    const auto more = [&](const std::vector<double>& values, const std::vector<double>& base) {
      return 100 * (median(values) / median(base) - 1);
    };
    std::printf("a step, %-16s %.4f ms (%+.2f %%), of the processor %.4f ms (%+.2f %%)\n", names[which],
                median(times[which].wall), more(times[which].wall, times[0].wall), median(times[which].processor),
                more(times[which].processor, times[0].processor));
  }
  const trace::recording have = recorder.read();
  double spans = 0;
  double recorded_steps = 0;
  for (const trace::span& one : have.spans) {
    spans += one.what != trace::category::copy ? 1 : 0;
    recorded_steps += one.what == trace::category::step ? 1 : 0;
  }
  spans /= std::max(1.0, recorded_steps);
  std::printf("%.0f spans a step, at %.0f ns: %.3f %% of it\n", spans, median(on),
              1e-4 * spans * median(on) / median(times[0].wall));
  return gradus::close_output("bench_trace_overhead", 0);
}
