// SPDX-License-Identifier: BSL-1.0
//
// Convolutions in one run: GFLOP/s, share of the measured peak of the cores, and, where oneDNN is, the ratio to its
// best format without reordering. Options: --threads N (1), --layers networks (default), groups, dilated or transposed,
// --precision fp32 (default) or bf16, --filter PART of a layer's name, --pass forward, data or weights, --rounds N (7),
// --json FILE. With bf16 images and oneDNN's weights are bfloat16, and gradients of weights float; gradus rounds and
// packs its float weights in each call. The peak is that of float multiply-adds.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#if defined(BENCH_ONEDNN)
#include <omp.h>

#include <dnnl.hpp>
#endif

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/random.hpp"
#include "gradus/kernels/cpu/conv2d.hpp"
#include "gradus/kernels/cpu/conv_transpose2d.hpp"
#include "gradus/layout/mapping.hpp"
#include "peak.hpp"
#include "race.hpp"

namespace {

using namespace gradus;
using bench::contestant;
using kernels::conv2d_geometry;
using kernels::pass;

struct layer {
  std::string name;
  index_t batch;
  conv2d_geometry geometry;  // of a transposed convolution: of the convolution whose gradient it is
  bool transposed = false;
};

layer make(std::string name, index_t batch, index_t in, index_t height, index_t width, index_t out, index_t kernel_h,
           index_t kernel_w, index_t stride, index_t pad_h, index_t pad_w) {
  return {std::move(name),
          batch,
          {.in_channels = in,
           .in_height = height,
           .in_width = width,
           .out_channels = out,
           .out_height = (height + 2 * pad_h - kernel_h) / stride + 1,
           .out_width = (width + 2 * pad_w - kernel_w) / stride + 1,
           .kernel_height = kernel_h,
           .kernel_width = kernel_w,
           .stride_height = stride,
           .stride_width = stride,
           .pad_top = pad_h,
           .pad_left = pad_w}};
}

std::vector<layer> layers() {
  std::vector<layer> all;
  all.push_back(make("mnist conv1 5x5 1-32 28", 64, 1, 28, 28, 32, 5, 5, 1, 2, 2));
  all.push_back(make("mnist conv2 5x5 32-64 14", 64, 32, 14, 14, 64, 5, 5, 1, 2, 2));
  all.push_back(make("resnet 7x7/2 3-64 224", 16, 3, 224, 224, 64, 7, 7, 2, 3, 3));
  const index_t channels[] = {64, 128, 256, 512};
  const index_t sizes[] = {56, 28, 14, 7};
  for (int stage = 0; stage < 4; ++stage) {
    const index_t c = channels[stage];
    const index_t s = sizes[stage];
    const auto text = [&](const char* kind, index_t in, index_t out, index_t size) {
      return std::string{"resnet "} + kind + " " + std::to_string(in) + "-" + std::to_string(out) + " " +
             std::to_string(size);
    };
    if (stage == 0) {
      all.push_back(make(text("1x1", 64, 64, s), 16, 64, s, s, 64, 1, 1, 1, 0, 0));
    } else {
      all.push_back(make(text("1x1", 2 * c, c, 2 * s), 16, 2 * c, 2 * s, 2 * s, c, 1, 1, 1, 0, 0));
      all.push_back(make(text("3x3/2", c, c, 2 * s), 16, c, 2 * s, 2 * s, c, 3, 3, 2, 1, 1));
      all.push_back(make(text("1x1/2", 2 * c, 4 * c, 2 * s), 16, 2 * c, 2 * s, 2 * s, 4 * c, 1, 1, 2, 0, 0));
    }
    all.push_back(make(text("3x3", c, c, s), 16, c, s, s, c, 3, 3, 1, 1, 1));
    all.push_back(make(text("1x1", c, 4 * c, s), 16, c, s, s, 4 * c, 1, 1, 1, 0, 0));
    all.push_back(make(text("1x1", 4 * c, c, s), 16, 4 * c, s, s, c, 1, 1, 1, 0, 0));
  }
  all.push_back(make("inception 3x3/2 3-32 299", 8, 3, 299, 299, 32, 3, 3, 2, 0, 0));
  all.push_back(make("inception 3x3 32-32 149", 8, 32, 149, 149, 32, 3, 3, 1, 0, 0));
  all.push_back(make("inception 3x3 32-64 147", 8, 32, 147, 147, 64, 3, 3, 1, 1, 1));
  all.push_back(make("inception 3x3 80-192 73", 8, 80, 73, 73, 192, 3, 3, 1, 0, 0));
  all.push_back(make("inception 5x5 48-64 35", 8, 48, 35, 35, 64, 5, 5, 1, 2, 2));
  all.push_back(make("inception 1x7 160-160 17", 8, 160, 17, 17, 160, 1, 7, 1, 0, 3));
  all.push_back(make("inception 7x1 192-192 17", 8, 192, 17, 17, 192, 7, 1, 1, 3, 0));
  all.push_back(make("inception 3x3/2 192-320 17", 8, 192, 17, 17, 320, 3, 3, 2, 0, 0));
  all.push_back(make("inception 1x1 2048-320 8", 8, 2048, 8, 8, 320, 1, 1, 1, 0, 0));
  all.push_back(make("inception 1x3 384-384 8", 8, 384, 8, 8, 384, 1, 3, 1, 0, 1));
  return all;
}

/// Convolutions of several groups: MobileNet's depthwise ones, ResNeXt-50's of 4, 8 and 16 channels, and AlexNet's.
std::vector<layer> layers_of_groups() {
  std::vector<layer> all;
  const auto add = [&](const std::string& kind, index_t groups, index_t in, index_t out, index_t stride, index_t size) {
    const std::string steps = stride > 1 ? "/" + std::to_string(stride) : std::string{};
    layer l =
        make(kind + " 3x3" + steps + " " + std::to_string(in) + "-" + std::to_string(out) + " " + std::to_string(size),
             16, in, size, size, out, 3, 3, stride, 1, 1);
    l.geometry.groups = groups;
    all.push_back(std::move(l));
  };
  add("depthwise", 32, 32, 32, 1, 112);
  add("depthwise", 64, 64, 64, 2, 112);
  add("depthwise", 128, 128, 128, 1, 56);
  add("depthwise", 256, 256, 256, 1, 28);
  add("depthwise", 512, 512, 512, 1, 14);
  add("depthwise", 1024, 1024, 1024, 1, 7);
  add("resnext", 32, 128, 128, 1, 56);
  add("resnext", 32, 256, 256, 1, 28);
  add("resnext", 32, 512, 512, 1, 14);
  add("alexnet", 2, 256, 384, 1, 27);
  return all;
}

/// Dilated convolutions of segmentation networks: DeepLab's pyramid, and ResNet's last stages without strides.
std::vector<layer> dilated_layers() {
  std::vector<layer> all;
  const auto add = [&](const std::string& kind, index_t batch, index_t in, index_t out, index_t dilation,
                       index_t size) {
    layer l = make(kind + " d" + std::to_string(dilation) + " " + std::to_string(in) + "-" + std::to_string(out) + " " +
                       std::to_string(size),
                   batch, in, size, size, out, 1, 1, 1, 0, 0);
    conv2d_geometry& g = l.geometry;
    g.kernel_height = g.kernel_width = 3;
    g.pad_top = g.pad_left = g.dilation_height = g.dilation_width = dilation;
    all.push_back(std::move(l));
  };
  for (const index_t dilation : {6, 12, 18}) {
    add("deeplab", 4, 256, 256, dilation, 33);
    add("deeplab", 2, 1024, 256, dilation, 33);
  }
  add("resnet", 4, 256, 256, 2, 28);
  add("resnet", 4, 512, 512, 4, 28);
  add("resnet", 4, 128, 128, 2, 65);
  add("context", 4, 64, 64, 4, 64);
  return all;
}

/// Transposed convolutions: U-Net's of 2x2 and DCGAN's of 4x4, with stride 2.
std::vector<layer> transposed_layers() {
  std::vector<layer> all;
  const auto add = [&](const std::string& kind, index_t batch, index_t in, index_t out, index_t size, index_t kernel,
                       index_t pad) {
    const std::string text = std::to_string(in) + "-" + std::to_string(out) + " " + std::to_string(size);
    all.push_back(make(kind + " " + text, batch, out, 2 * size, 2 * size, in, kernel, kernel, 2, pad, pad));
    all.back().transposed = true;
  };
  add("unet 2x2/2", 4, 1024, 512, 16, 2, 0);
  add("unet 2x2/2", 4, 512, 256, 32, 2, 0);
  add("unet 2x2/2", 4, 256, 128, 64, 2, 0);
  add("unet 2x2/2", 4, 128, 64, 128, 2, 0);
  add("dcgan 4x4/2", 16, 1024, 512, 4, 4, 1);
  add("dcgan 4x4/2", 16, 512, 256, 8, 4, 1);
  add("dcgan 4x4/2", 16, 256, 128, 16, 4, 1);
  add("dcgan 4x4/2", 16, 128, 3, 32, 4, 1);
  return all;
}

/// Fills memory with elements of 0.5. Half of a float 0.5 is no bfloat16 0.5.
void fill(void* memory, std::size_t bytes, bool narrow) {
  if (narrow) {
    std::fill_n(static_cast<bfloat16*>(memory), bytes / sizeof(bfloat16), bfloat16{0.5F});
  } else {
    std::fill_n(static_cast<float*>(memory), bytes / sizeof(float), 0.5F);
  }
}

#if defined(BENCH_ONEDNN)
using dims = dnnl::memory::dims;
using tag = dnnl::memory::format_tag;

/// oneDNN's convolution, or deconvolution, with every image and weight in `format` (any: its own choice).
class peer {
 public:
  /// @param type  of images and of the weights that are read
  peer(const layer& l, pass which, tag format, dnnl::memory::data_type type)
      : engine_{dnnl::engine::kind::cpu, 0}, stream_{engine_} {
    const conv2d_geometry& g = l.geometry;
    if (l.transposed) {
      deconvolve(l, which, format, type);
      return;
    }
    const dims x{l.batch, g.in_channels, g.in_height, g.in_width};
    dims w{g.out_channels / g.groups, g.in_channels / g.groups, g.kernel_height, g.kernel_width};
    if (g.groups > 1) {
      w.insert(w.begin(), g.groups);
    }
    const dims y{l.batch, g.out_channels, g.out_height, g.out_width};
    const dims b{g.out_channels};
    const dims stride{g.stride_height, g.stride_width};
    const dims pad{g.pad_top, g.pad_left};
    const dims dilation{g.dilation_height - 1, g.dilation_width - 1};
    const dims after{(g.out_height - 1) * g.stride_height + g.reach_height() - g.in_height - g.pad_top,
                     (g.out_width - 1) * g.stride_width + g.reach_width() - g.in_width - g.pad_left};
    const auto wide = dnnl::memory::data_type::f32;
    const dnnl::memory::desc xd{x, type, format};
    const dnnl::memory::desc wd{w, type, tag::any};
    const dnnl::memory::desc dwd{w, wide, tag::any};
    const dnnl::memory::desc yd{y, type, format};
    const dnnl::memory::desc bd{b, wide, tag::x};
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto training = dnnl::prop_kind::forward_training;
    const dnnl::convolution_forward::primitive_desc forward{
        {training, direct, xd, wd, bd, yd, stride, dilation, pad, after}, engine_};
    if (which == pass::forward) {
      primitive_ = dnnl::convolution_forward{forward};
      give(DNNL_ARG_SRC, forward.src_desc());
      give(DNNL_ARG_WEIGHTS, forward.weights_desc());
      give(DNNL_ARG_BIAS, forward.bias_desc());
      give(DNNL_ARG_DST, forward.dst_desc());
    } else if (which == pass::backward_data) {
      const dnnl::convolution_backward_data::primitive_desc backward{
          {direct, xd, wd, yd, stride, dilation, pad, after}, engine_, forward};
      primitive_ = dnnl::convolution_backward_data{backward};
      give(DNNL_ARG_DIFF_SRC, backward.diff_src_desc());
      give(DNNL_ARG_WEIGHTS, backward.weights_desc());
      give(DNNL_ARG_DIFF_DST, backward.diff_dst_desc());
    } else {
      const dnnl::convolution_backward_weights::primitive_desc backward{
          {direct, xd, dwd, bd, yd, stride, dilation, pad, after}, engine_, forward};
      primitive_ = dnnl::convolution_backward_weights{backward};
      give(DNNL_ARG_SRC, backward.src_desc());
      give(DNNL_ARG_DIFF_WEIGHTS, backward.diff_weights_desc());
      give(DNNL_ARG_DIFF_BIAS, backward.diff_bias_desc());
      give(DNNL_ARG_DIFF_DST, backward.diff_dst_desc());
    }
  }
  void operator()() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  void deconvolve(const layer& l, pass which, tag format, dnnl::memory::data_type type) {
    const conv2d_geometry& g = l.geometry;
    const auto wide = dnnl::memory::data_type::f32;
    const dnnl::memory::desc xd{dims{l.batch, g.out_channels, g.out_height, g.out_width}, type, format};
    const dims w{g.in_channels, g.out_channels, g.kernel_height, g.kernel_width};
    const dnnl::memory::desc wd{w, type, tag::any};
    const dnnl::memory::desc dwd{w, wide, tag::any};
    const dnnl::memory::desc bd{dims{g.in_channels}, wide, tag::x};
    const dnnl::memory::desc yd{dims{l.batch, g.in_channels, g.in_height, g.in_width}, type, format};
    const dims stride{g.stride_height, g.stride_width};
    const dims pad{g.pad_top, g.pad_left};
    const dims after{(g.out_height - 1) * g.stride_height + g.kernel_height - g.in_height - g.pad_top,
                     (g.out_width - 1) * g.stride_width + g.kernel_width - g.in_width - g.pad_left};
    const auto direct = dnnl::algorithm::deconvolution_direct;
    const auto training = dnnl::prop_kind::forward_training;
    const dnnl::deconvolution_forward::primitive_desc forward{{training, direct, xd, wd, bd, yd, stride, pad, after},
                                                              engine_};
    if (which == pass::forward) {
      primitive_ = dnnl::deconvolution_forward{forward};
      give(DNNL_ARG_SRC, forward.src_desc());
      give(DNNL_ARG_WEIGHTS, forward.weights_desc());
      give(DNNL_ARG_BIAS, forward.bias_desc());
      give(DNNL_ARG_DST, forward.dst_desc());
    } else if (which == pass::backward_data) {
      const dnnl::deconvolution_backward_data::primitive_desc backward{
          {direct, xd, wd, yd, stride, pad, after}, engine_, forward};
      primitive_ = dnnl::deconvolution_backward_data{backward};
      give(DNNL_ARG_DIFF_SRC, backward.diff_src_desc());
      give(DNNL_ARG_WEIGHTS, backward.weights_desc());
      give(DNNL_ARG_DIFF_DST, backward.diff_dst_desc());
    } else {
      const dnnl::deconvolution_backward_weights::primitive_desc backward{
          {direct, xd, dwd, bd, yd, stride, pad, after}, engine_, forward};
      primitive_ = dnnl::deconvolution_backward_weights{backward};
      give(DNNL_ARG_SRC, backward.src_desc());
      give(DNNL_ARG_DIFF_WEIGHTS, backward.diff_weights_desc());
      give(DNNL_ARG_DIFF_BIAS, backward.diff_bias_desc());
      give(DNNL_ARG_DIFF_DST, backward.diff_dst_desc());
    }
  }
  void give(int argument, const dnnl::memory::desc& description) {
    dnnl::memory memory{description, engine_};
    fill(memory.get_data_handle(), description.get_size(), description.data_type() == dnnl::memory::data_type::bf16);
    arguments_.emplace(argument, memory);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};
#endif

/// Memory of the library's own allocator.
template <class Element>
class buffer {
 public:
  buffer(cpu& device, std::size_t bytes) : device_{&device}, memory_{device.allocate(bytes)}, bytes_{bytes} {
    fill(memory_, bytes, sizeof(Element) == 2);
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  ~buffer() { device_->deallocate(memory_, bytes_); }
  [[nodiscard]] Element* values() const { return static_cast<Element*>(memory_); }
  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  cpu* device_;
  void* memory_;
  std::size_t bytes_;
};

template <class Element, class Layout>
struct ours {
  using parameter = parameter_element_t<Element>;

  ours(cpu& d, const layer& l, pass p)
      : device{d},
        which{p},
        geometry{l.geometry},
        batch{l.batch},
        transposed{l.transposed},
        x{d, bytes<Element>(geometry.input(batch))},
        w{d, bytes<parameter>(geometry.weights())},
        y{d, bytes<Element>(geometry.output(batch))},
        bias{d,
             static_cast<std::size_t>(transposed ? geometry.in_channels : geometry.out_channels) * sizeof(parameter)},
        workspace{d, transposed ? conv_transpose2d_workspace_bytes<Element, Layout>(d, geometry, batch, p)
                                : conv2d_workspace_bytes<Element, Layout>(d, geometry, batch, p)} {}

  template <class Stored>
  static std::size_t bytes(const image_extents& e) {
    return static_cast<std::size_t>(e.size()) * sizeof(Stored);
  }

  void operator()() {
    using view = image_view<Element, Layout>;
    using const_view = image_view<const Element, Layout>;
    using weight_view = image_view<parameter, Layout>;
    const const_view xv{device, x.values(), geometry.input(batch)};
    const image_view<const parameter, Layout> wv{device, w.values(), geometry.weights()};
    const const_view yv{device, y.values(), geometry.output(batch)};
    if (transposed) {
      if (which == pass::forward) {
        conv_transpose2d_forward(device, geometry, yv, wv, view{device, x.values(), geometry.input(batch)},
                                 kernels::forward_epilogue<Element>{.bias = bias.values()}, workspace.bytes());
      } else if (which == pass::backward_data) {
        conv_transpose2d_backward_data(device, geometry, xv, wv, view{device, y.values(), geometry.output(batch)},
                                       kernels::backward_epilogue<Element>{}, workspace.bytes());
      } else {
        conv_transpose2d_backward_weights(device, geometry, yv, xv, weight_view{device, w.values(), geometry.weights()},
                                          bias.values(), workspace.bytes());
      }
      return;
    }
    if (which == pass::forward) {
      conv2d_forward(device, geometry, xv, wv, view{device, y.values(), geometry.output(batch)},
                     kernels::forward_epilogue<Element>{.bias = bias.values()}, workspace.bytes());
    } else if (which == pass::backward_data) {
      conv2d_backward_data(device, geometry, yv, wv, view{device, x.values(), geometry.input(batch)},
                           kernels::backward_epilogue<Element>{}, workspace.bytes());
    } else {
      conv2d_backward_weights(device, geometry, xv, yv, weight_view{device, w.values(), geometry.weights()},
                              bias.values(), workspace.bytes());
    }
  }

  cpu& device;
  pass which;
  conv2d_geometry geometry;
  index_t batch;
  bool transposed;
  buffer<Element> x;
  buffer<parameter> w;
  buffer<Element> y;
  buffer<parameter> bias, workspace;
};

/// Ratios and their geometric mean.
struct mean {
  double logarithms = 0;
  int count = 0;
  double least = 1e300;
  void add(double value) {
    logarithms += std::log(value);
    least = std::min(least, value);
    ++count;
  }
  [[nodiscard]] double geometric() const { return count == 0 ? 0 : std::exp(logarithms / count); }
};

struct options {
  int threads = 1;
  int rounds = 7;
  std::string layers = "networks";
  std::string precision = "fp32";
  std::string filter;
  std::string pass;
  std::string json;
};

options read(int argument_count, char** arguments) {
  options result;
  for (int i = 1; i + 1 < argument_count; i += 2) {
    const std::string_view name = arguments[i];
    const char* const value = arguments[i + 1];
    if (name == "--threads") {
      result.threads = std::max(1, std::atoi(value));
    } else if (name == "--rounds") {
      result.rounds = std::max(1, std::atoi(value));
    } else if (name == "--layers") {
      result.layers = value;
    } else if (name == "--precision") {
      result.precision = value;
    } else if (name == "--filter") {
      result.filter = value;
    } else if (name == "--pass") {
      result.pass = value;
    } else if (name == "--json") {
      result.json = value;
    } else {
      std::fprintf(stderr, "no option %s\n", arguments[i]);
      std::exit(2);
    }
  }
  return result;
}

std::vector<layer> layers_of(const std::string& name) {
  if (name == "networks") {
    return layers();
  }
  if (name == "groups") {
    return layers_of_groups();
  }
  if (name == "dilated") {
    return dilated_layers();
  }
  if (name == "transposed") {
    return transposed_layers();
  }
  std::fprintf(stderr, "--layers takes networks, groups, dilated or transposed, not %s\n", name.c_str());
  std::exit(2);
}

template <class Element>
int run(const options& o) {
#if defined(BENCH_ONEDNN)
  omp_set_num_threads(o.threads);
#endif
  cpu device{{.intra_op_threads = o.threads}};
  const double peak = bench::peak_gflops(o.threads);
  const std::string set{name_of(kernels::current_instruction_set())};
  std::FILE* const json = o.json.empty() ? nullptr : std::fopen(o.json.c_str(), "w");
  if (json != nullptr) {
    std::fprintf(
        json,
        "{\"instruction_set\": \"%s\", \"threads\": %d, \"precision\": \"%s\", \"peak_gflops\": %.1f, \"passes\": [",
        set.c_str(), o.threads, o.precision.c_str(), peak);
  }
  std::printf("instruction set %s, %d threads, peak %.1f GFLOP/s\n", set.c_str(), o.threads, peak);
  std::printf("%-30s %-8s | %15s | %15s | %17s | %s\n", "", "", "GFLOP/s", "% of peak", "oneDNN % of peak",
              "to oneDNN's best, best / median");
  std::printf("%-30s %-8s | %7s %7s | %7s %7s | %5s %5s %5s | %6s %6s %6s %6s\n", "layer", "pass", "nhwc", "nchw",
              "nhwc", "nchw", "own", "nhwc", "nchw", "nhwc", "nchw", "nhwc", "nchw");
  mean nhwc_best, nchw_best, nhwc_median, nchw_median;
  bool first = true;
  for (const layer& l : layers_of(o.layers)) {
    if (l.name.find(o.filter) == std::string::npos) {
      continue;
    }
    for (const auto& [which, pass_name] :
         {std::pair{pass::forward, "forward"}, {pass::backward_data, "data"}, {pass::backward_weights, "weights"}}) {
      if ((which == pass::backward_data && !l.transposed && l.geometry.in_channels <= 3) ||
          std::string_view{pass_name}.find(o.pass) == std::string_view::npos) {
        continue;
      }
      ours<Element, nhwc> pixels{device, l, which};
      ours<Element, nchw> planes{device, l, which};
      std::vector<contestant> all{{"nhwc", std::ref(pixels), {}}, {"nchw", std::ref(planes), {}}};
#if defined(BENCH_ONEDNN)
      constexpr auto type = sizeof(Element) == 2 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
      peer any{l, which, tag::any, type};
      peer last{l, which, tag::nhwc, type};
      peer channels_first{l, which, tag::nchw, type};
      all.push_back({"onednn any", std::ref(any), {}});
      all.push_back({"onednn nhwc", std::ref(last), {}});
      all.push_back({"onednn nchw", std::ref(channels_first), {}});
#endif
      bench::race(all, o.rounds, o.threads > 1);
      const double work = 2e-9 * static_cast<double>(l.geometry.multiply_adds() * l.batch);
      const auto gflops = [&](std::size_t i) { return work / all[i].best(); };
      std::printf("%-30s %-8s | %7.1f %7.1f | %7.1f %7.1f |", l.name.c_str(), pass_name, gflops(0), gflops(1),
                  100 * gflops(0) / peak, 100 * gflops(1) / peak);
      if (all.size() > 2) {
        const double best = std::min({all[2].best(), all[3].best(), all[4].best()});
        const double median = std::min({all[2].median(), all[3].median(), all[4].median()});
        std::printf(" %5.1f %5.1f %5.1f | %6.2f %6.2f %6.2f %6.2f", 100 * gflops(2) / peak, 100 * gflops(3) / peak,
                    100 * gflops(4) / peak, best / all[0].best(), best / all[1].best(), median / all[0].median(),
                    median / all[1].median());
        nhwc_best.add(best / all[0].best());
        nchw_best.add(best / all[1].best());
        nhwc_median.add(median / all[0].median());
        nchw_median.add(median / all[1].median());
      }
      std::printf("\n");
      std::fflush(stdout);
      if (json != nullptr) {
        std::fprintf(json, "%s\n  {\"layer\": \"%s\", \"pass\": \"%s\"", first ? "" : ",", l.name.c_str(), pass_name);
        for (std::size_t i = 0; i < all.size(); ++i) {
          std::fprintf(json, ", \"%s\": {\"best_gflops\": %.2f, \"median_gflops\": %.2f}", all[i].name.c_str(),
                       gflops(i), work / all[i].median());
        }
        std::fprintf(json, "}");
        first = false;
      }
    }
  }
  if (nhwc_best.count > 0) {
    std::printf(
        "geometric means of the ratios to oneDNN's best format: nhwc %.3f (least %.2f), nchw %.3f (least %.2f); of "
        "medians "
        "nhwc %.3f, nchw %.3f\n",
        nhwc_best.geometric(), nhwc_best.least, nchw_best.geometric(), nchw_best.least, nhwc_median.geometric(),
        nchw_median.geometric());
  }
  if (json != nullptr) {
    std::fprintf(json, "\n]}\n");
    std::fclose(json);
  }
  return gradus::close_output("bench_onednn_convolution", 0);
}

}  // namespace

int main(int argument_count, char** arguments) {
  const options o = read(argument_count, arguments);
  if (o.precision != "fp32" && o.precision != "bf16") {
    std::fprintf(stderr, "--precision takes fp32 or bf16, not %s\n", o.precision.c_str());
    return 2;
  }
  return o.precision == "bf16" ? run<bfloat16>(o) : run<float>(o);
}
