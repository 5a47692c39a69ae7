// SPDX-License-Identifier: BSL-1.0
//
// Fused expressions and reductions on a GPU: bytes a second, against a copy of the device in the same rounds.
// Argument: millions of elements of one array. A line of JSON for each expression.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/tensor/cuda.cuh"

namespace {

using images = gradus::image_tensor<float, gradus::nhwc, gradus::cuda>;

struct entry {
  std::string name;
  double bytes;  // read and written by one call
  std::function<void()> run;
  std::vector<double> seconds = {};
};

using program::median;

/// Seconds of one call on the device: of several calls, so that the host's part overlaps.
double seconds(gradus::cuda& device, const std::function<void()>& run) {
  constexpr int calls = 10;
  const gradus::cuda_event begin{true};
  const gradus::cuda_event end{true};
  begin.record(device.stream());
  for (int call = 0; call < calls; ++call) {
    run();
  }
  end.record(device.stream());
  end.synchronize();
  return end.seconds_since(begin) / calls;
}

}  // namespace

int main(int count, char** arguments) {
  if (gradus::cuda_device_count() == 0) {
    std::puts("skipped: there is no CUDA device");
    return 77;
  }
  const gradus::index_t millions = count > 1 ? std::atol(arguments[1]) : 128;
  constexpr gradus::index_t channels = 64;
  gradus::cuda device;
  const gradus::image_extents shape{std::max(gradus::index_t{1}, millions), channels, 125, 125};
  images x{device, shape};
  images y{device, shape};
  images z{device, shape};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> bias{device, {channels}};
  gradus::assign(x, 0.25F);
  gradus::assign(y, 0.5F);
  gradus::assign(bias, -0.125F);
  const double array = static_cast<double>(x.size()) * sizeof(float);

  std::vector<entry> entries;
  entries.push_back({"copy", 2 * array, [&] { device.copy(z.data(), x.data(), static_cast<std::size_t>(array)); }});
  entries.push_back({"z = 2 x + y", 3 * array, [&] { z = x * 2 + y; }});
  entries.push_back({"z = max(x + bias[c], 0)", 2 * array, [&] { z = maximum(x + per_channel(bias), 0); }});
  entries.push_back({"z -= 0.1 (x + 0.01 z)", 3 * array, [&] { z -= (x + z * 0.01F) * 0.1F; }});
  entries.push_back({"z = x sigmoid(x)", 2 * array, [&] { z = x * sigmoid(x); }});
  entries.push_back({"sum(x)", array, [&] { static_cast<void>(sum(x)); }});
  entries.push_back({"sum over n, h, w", array,
                     [&] { static_cast<void>(gradus::sum<gradus::axis::n, gradus::axis::h, gradus::axis::w>(x)); }});
  constexpr int rounds = 11;
  for (int round = -1; round < rounds; ++round) {  // the first one only warms up
    for (entry& each : entries) {
      const double time = seconds(device, each.run);
      if (round >= 0) {
        each.seconds.push_back(time);
      }
    }
  }
  const double copy = entries[0].bytes / median(entries[0].seconds);
  for (const entry& each : entries) {
    const double rate = each.bytes / median(each.seconds);
    std::printf("{\"name\": \"%s\", \"microseconds\": %.2f, \"gigabytes_per_second\": %.1f, \"of_copy\": %.3f}\n",
                each.name.c_str(), median(each.seconds) * 1e6, rate * 1e-9, rate / copy);
  }
}
