// SPDX-License-Identifier: BSL-1.0
//
// Passes that wait for memory, against a copy and a triad in the same run. Arguments: threads, megabytes of one array.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "gradus/core/output.hpp"
#include "gradus/kernels/cpu/batch_norm.hpp"
#include "gradus/kernels/cpu/dropout.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/cpu/local_response_norm.hpp"
#include "gradus/kernels/cpu/pool2d.hpp"
#include "gradus/kernels/cpu/softmax.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/rms_prop.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

using namespace gradus;
using array = tensor<float, 1>;

/// The seconds of the fastest call, over at least 9 calls and 0.2 s: other work on the machine only adds time.
double seconds(const std::function<void()>& body) {
  using clock = std::chrono::steady_clock;
  body();
  double best = 1e300;
  double total = 0;
  for (int calls = 0; calls < 9 || total < 0.2; ++calls) {
    const auto start = clock::now();
    body();
    const double time = std::chrono::duration<double>(clock::now() - start).count();
    best = std::min(best, time);
    total += time;
  }
  return best;
}

double best_bandwidth = 0;  // of the copy and the triad, bytes per second

void report(const std::string& name, double bytes, const std::function<void()>& body) {
  const double time = seconds(body);
  const double bandwidth = bytes / time;
  std::printf("%-40s %9.1f us %8.2f GB/s  %4.0f %% of triad\n", name.c_str(), time * 1e6, bandwidth * 1e-9,
              best_bandwidth > 0 ? 100 * bandwidth / best_bandwidth : 100.0);
}

void fill(cpu&, array& values, std::uint64_t seed) {
  const random_stream stream{seed};
  for (index_t i = 0; i < values.size(); ++i) {
    values.data()[i] = static_cast<float>(stream.uniform(static_cast<std::uint64_t>(i)) - 0.5);
  }
}

template <class Layout>
void pooling(cpu& device, index_t elements, array& x, array& y, array& dx) {
  const std::string layout{Layout::name};
  struct {
    const char* name;
    index_t channels, extent, kernel, stride, pad, out;
  } const cases[] = {{"pool 2x2/2 c32 24x24", 32, 24, 2, 2, 0, 12},
                     {"pool 3x3/2 c64 112x112", 64, 112, 3, 2, 1, 56},
                     {"pool 3x3/1 c192 28x28", 192, 28, 3, 1, 1, 28},
                     {"pool 7x7 c512 7x7", 512, 7, 7, 1, 0, 1}};
  std::vector<std::uint8_t> choice(static_cast<std::size_t>(elements));
  for (const auto& c : cases) {
    const kernels::pool2d_geometry shape{.channels = c.channels,
                                         .in_height = c.extent,
                                         .in_width = c.extent,
                                         .out_height = c.out,
                                         .out_width = c.out,
                                         .kernel_height = c.kernel,
                                         .kernel_width = c.kernel,
                                         .stride_height = c.stride,
                                         .stride_width = c.stride,
                                         .pad_top = c.pad,
                                         .pad_left = c.pad};
    const index_t images = std::max(index_t{1}, elements / shape.input(1).size());
    const auto in = static_cast<double>(shape.input(images).size());
    const auto out = static_cast<double>(shape.output(images).size());
    const image_view<const float, Layout> xv{device, x.data(), shape.input(images)};
    const image_view<float, Layout> yv{device, y.data(), shape.output(images)};
    const image_view<float, Layout> dxv{device, dx.data(), shape.input(images)};
    const std::string name = layout + " " + c.name;
    report("max " + name, 4 * in + 5 * out, [&] { max_pool2d_forward(device, shape, xv, yv, choice.data()); });
    report("max backward " + name, 4 * in + 5 * out,
           [&] { max_pool2d_backward(device, shape, yv, choice.data(), dxv, {}); });
    report("average " + name, 4 * in + 4 * out, [&] { average_pool2d_forward(device, shape, xv, yv, false); });
    report("average backward " + name, 4 * in + 4 * out,
           [&] { average_pool2d_backward(device, shape, yv, dxv, false, {}); });
  }
}

template <class Layout>
void normalization(cpu& device, index_t elements, array& x, array& y, array& dx) {
  const std::string layout{Layout::name};
  for (const index_t extent : {56, 7}) {
    const index_t channels = extent == 56 ? 64 : 512;
    const index_t images = std::max(index_t{1}, elements / (channels * extent * extent));
    const image_extents shape{images, channels, extent, extent};
    const auto bytes = static_cast<double>(shape.size()) * 4;
    const image_view<const float, Layout> xv{device, x.data(), shape};
    const image_view<float, Layout> yv{device, y.data(), shape};
    const image_view<float, Layout> dxv{device, dx.data(), shape};
    std::vector<std::byte> workspace(kernels::batch_norm_workspace_bytes<float, Layout>(device, shape));
    std::vector<float> c(static_cast<std::size_t>(channels) * 6, 1.0F);
    const auto at = [&](index_t i) { return c.data() + i * channels; };
    const kernels::batch_norm_running<float> running{at(0), at(1), 0.1};
    const kernels::batch_norm_saved<float> saved{at(2), at(3)};
    const std::string name = layout + " c" + std::to_string(channels);
    report("batch norm " + name, 3 * bytes, [&] {
      batch_norm_forward_training(device, xv, yv, {}, 1e-5, running, saved, {.act = kernels::activation::relu},
                                  workspace);
    });
    report("batch norm inference " + name, 2 * bytes,
           [&] { batch_norm_forward_inference(device, xv, yv, {}, 1e-5, running, {}, workspace); });
    report("batch norm backward " + name, 5 * bytes, [&] {
      batch_norm_backward(device, xv, yv, yv, dxv, {}, saved, kernels::activation::identity, {at(4), at(5)}, {},
                          workspace);
    });
    report("batch norm backward relu " + name, 7 * bytes, [&] {
      batch_norm_backward(device, xv, xv, yv, dxv, {}, saved, kernels::activation::relu, {at(4), at(5)}, {}, workspace);
    });
  }
  const image_extents shape{std::max(index_t{1}, elements / (96 * 27 * 27)), 96, 27, 27};
  const auto bytes = static_cast<double>(shape.size()) * 4;
  const image_view<const float, Layout> xv{device, x.data(), shape};
  const image_view<float, Layout> yv{device, y.data(), shape};
  const image_view<float, Layout> dxv{device, dx.data(), shape};
  report("response norm " + layout, 2 * bytes, [&] { local_response_norm_forward(device, xv, yv, {}); });
  report("response norm backward " + layout, 3 * bytes,
         [&] { local_response_norm_backward(device, xv, yv, dxv, {}, {}); });
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(elements));
  report("dropout " + layout + " c96 27x27", 2.25 * bytes,
         [&] { dropout_forward(device, xv, yv, 0.5, random_stream{1}, 1, 0, mask.data()); });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const index_t elements = (argc > 2 ? std::atol(argv[2]) : 64) * 1024 * 1024 / 4;
  cpu device{{.intra_op_threads = threads}};
  array x{device, {elements}};
  array y{device, {elements}};
  array dx{device, {elements}};
  fill(device, x, 1);
  fill(device, y, 2);
  const auto bytes = static_cast<double>(elements) * 4;
  std::printf("%d threads, arrays of %.1f MB\n", threads, bytes / (1 << 20));
  report("memcpy", 2 * bytes, [&] {
    device.parallel_for(elements, 1 << 16, [&](index_t begin, index_t end) {
      std::memcpy(dx.data() + begin, x.data() + begin, static_cast<std::size_t>(end - begin) * 4);
    });
  });
  const double triad = seconds([&] {
    device.parallel_for(elements, 1 << 14, [&](index_t begin, index_t end) {
      const float* const a = x.data();
      const float* const b = y.data();
      float* __restrict__ const c = dx.data();
      typedef float vector __attribute__((vector_size(16), aligned(4)));
      for (index_t i = begin; i < end; i += 4) {
        *reinterpret_cast<vector*>(c + i) =
            *reinterpret_cast<const vector*>(a + i) + 3.0F * *reinterpret_cast<const vector*>(b + i);
      }
    });
  });
  best_bandwidth = 3 * bytes / triad;
  report("triad (loads and stores counted once)", 3 * bytes,
         [&] { add_forward(device, elements, x.data(), y.data(), dx.data(), kernels::activation::identity); });
  std::printf("triad of plain vectors: %.2f GB/s\n", best_bandwidth * 1e-9);
  report("relu", 2 * bytes, [&] { relu_forward(device, elements, x.data(), dx.data()); });
  report("relu backward", 3 * bytes, [&] { relu_backward(device, elements, x.data(), y.data(), dx.data(), false); });
  report("add relu", 3 * bytes,
         [&] { add_forward(device, elements, x.data(), y.data(), dx.data(), kernels::activation::relu); });
  report("accumulate", 3 * bytes, [&] { copy_or_add(device, elements, x.data(), dx.data(), true); });
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(elements));
  {
    const image_extents shape{elements / 4096, 4096, 1, 1};
    const image_view<const float, nchw> xv{device, x.data(), shape};
    const image_view<float, nchw> yv{device, dx.data(), shape};
    report("dropout", 2.25 * bytes, [&] { dropout_forward(device, xv, yv, 0.5, random_stream{1}, 1, 0, mask.data()); });
    report("dropout backward", 2.25 * bytes,
           [&] { dropout_backward(device, elements, x.data(), mask.data(), 2.0, dx.data(), false); });
  }
  {
    std::vector<optim::segment> segments;
    for (index_t i = 0; i < 160; ++i) {
      segments.push_back({"p", i * (elements / 160), elements / 160, true});
    }
    optim::sgd::state<float> state{device, optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, elements};
    report("sgd momentum", 5 * bytes, [&] { state.update(device, segments, dx.data(), x.data(), 1e-3); });
    optim::sgd::state<float> simple{device, optim::sgd{.momentum = 0}, elements};
    report("sgd without momentum", 3 * bytes, [&] { simple.update(device, segments, dx.data(), x.data(), 1e-3); });
    // The state of a rule is freed before the next one.
    const auto adaptive = [&]<class Rule>(const char* name, double arrays, const Rule& rule) {
      const auto rule_state = optim::make_parameter_update<float>(device, rule, elements);
      std::uint64_t step = 0;
      report(name, arrays * bytes, [&] { rule_state->update(segments, dx.data(), x.data(), {1e-3, step++}); });
    };
    adaptive("adam", 7, optim::adam{.weight_decay = 1e-4});
    adaptive("adam amsgrad", 9, optim::adam{.amsgrad = true});
    adaptive("rms_prop centered momentum", 9, optim::rms_prop{.momentum = 0.9, .centered = true});
    adaptive("lamb", 10, optim::lamb{});
    adaptive("averaged weights of sgd momentum", 8,
             optim::update<optim::sgd>{.rule = {.momentum = 0.9}, .average = 0.999});
  }
  {
    const index_t rows = elements / 1000;
    std::vector<std::int32_t> labels(static_cast<std::size_t>(rows), 3);
    report("softmax cross-entropy 1000 classes", 2 * bytes,
           [&] { softmax_cross_entropy_loss(device, rows, 1000, x.data(), labels.data(), 1.0, dx.data()); });
    report("softmax cross-entropy 64 x 10", 2 * 64 * 10 * 4,
           [&] { softmax_cross_entropy_loss(device, 64, 10, x.data(), labels.data(), 1.0, dx.data()); });
  }
  pooling<nchw>(device, elements, x, y, dx);
  pooling<nhwc>(device, elements, x, y, dx);
  fill(device, y, 2);
  normalization<nchw>(device, elements, x, y, dx);
  normalization<nhwc>(device, elements, x, y, dx);
  return gradus::close_output("bench_ops_pointwise", 0);
}
