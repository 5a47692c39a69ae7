// SPDX-License-Identifier: BSL-1.0
//
// The C interface of gradus (gradus_c.h) in one source file. A program compiles it once:
//
//   g++ -std=c++20 -O2 -I PREFIX/include -I /usr/include/eigen3 -c PREFIX/share/gradus/c/gradus_c.cpp
//
// -DGRADUS_C_MPI      communicators of MPI (compile with mpicxx)
// -DGRADUS_C_ONNX     ONNX files (needs protozero)
// -DGRADUS_C_NO_DOUBLE  networks of float only, in less of the compiler's time
#include "gradus_c.h"

#include <algorithm>  // std::copy, std::min
#include <cmath>      // std::isfinite
#include <cstring>    // std::memcpy, std::strcmp
#include <memory>     // std::make_shared, std::make_unique, std::shared_ptr
#include <optional>   // std::optional
#include <span>       // std::span
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/core/version.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/crop2d.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/multiply.hpp"
#include "gradus/nn/layers/normalize.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/reshape.hpp"
#include "gradus/nn/layers/softmax.hpp"
#include "gradus/nn/layers/upsample2d.hpp"
#include "gradus/nn/losses.hpp"
#include "source/arrays.hpp"
#include "source/calls.hpp"
#include "source/communicator.hpp"
#include "source/network.hpp"
#include "source/trainer.hpp"

#if defined(GRADUS_C_ONNX)
#include "gradus/onnx/export.hpp"
#endif

namespace {

using namespace gradus_c;

constexpr std::string_view a_device = "a device";
constexpr std::string_view a_comm = "a communicator";
constexpr std::string_view a_network = "a network";
constexpr std::string_view a_data = "data";
constexpr std::string_view a_trainer = "a trainer";

/// Runs body(network&) of a function that uses a network.
template <class Body>
gradus_status on_network(std::string_view function, gradus_network* handle, const Body& body) noexcept {
  return call(function, [&] {
    const auto found = find<network>(handle, a_network);
    const in_use use{*found};
    body(*found);
  });
}

/// Runs body(trainer&) of a function that uses a trainer and its network.
template <class Body>
gradus_status on_trainer(std::string_view function, gradus_trainer* handle, const Body& body) noexcept {
  return call(function, [&] {
    const auto found = find<trainer>(handle, a_trainer);
    const in_use use{*found};
    const in_use of_network{*found->of};
    body(*found);
  });
}

/// What a call trains on. It fails within the training's agreement of the ranks.
/// @param use  of the data, while the call goes on
/// @param limits  gives the call_limits
template <class Limits>
[[nodiscard]] call_request request_of(trainer& of, gradus_data* data, std::shared_ptr<data_set>& set,
                                      std::optional<in_use>& use, const Limits& limits) {
  set = find<data_set>(data, a_data);
  use.emplace(*set);
  return {of.take(*set), limits()};
}

/// A call of training.
template <class Limits>
gradus_status train_on(rank_call function, gradus_trainer* handle, gradus_data* data, gradus_report* report,
                       const Limits& limits) noexcept {
  return on_trainer(name_of(function), handle, [&](trainer& of) {
    std::shared_ptr<data_set> set;
    std::optional<in_use> use;
    const gradus_report done = of.work->fit(
        function, [&] { return request_of(of, data, set, use, limits); }, of.settings);
    if (report != nullptr) {
      *report = done;
    }
  });
}

[[nodiscard]] gradus::kernels::padding_mode mode_of(std::int32_t mode) {
  switch (mode) {
    case GRADUS_ZEROS:
      return gradus::kernels::padding_mode::zeros;
    case GRADUS_REFLECT:
      return gradus::kernels::padding_mode::reflect;
    case GRADUS_REPLICATE:
      return gradus::kernels::padding_mode::replicate;
    case GRADUS_CIRCULAR:
      return gradus::kernels::padding_mode::circular;
    default:
      refuse_constant("padding_mode", mode, "GRADUS_ZEROS, GRADUS_REFLECT, GRADUS_REPLICATE or GRADUS_CIRCULAR");
  }
}

}  // namespace

extern "C" {

// ---- The library

int gradus_abi_version(void) {
  return GRADUS_ABI_VERSION;
}

const char* gradus_version(void) {
  return gradus::version.data();
}

const char* gradus_last_error(void) {
  return last_error().c_str();
}

const char* gradus_status_name(gradus_status status) {
  static constexpr const char* names[] = {"GRADUS_OK",
                                          "GRADUS_INVALID_ARGUMENT",
                                          "GRADUS_INVALID_HANDLE",
                                          "GRADUS_SHAPE_ERROR",
                                          "GRADUS_CONFIGURATION_ERROR",
                                          "GRADUS_FORMAT_ERROR",
                                          "GRADUS_DEVICE_ERROR",
                                          "GRADUS_COMMUNICATION_ERROR",
                                          "GRADUS_NUMERIC_ERROR",
                                          "GRADUS_INTERRUPTED",
                                          "GRADUS_BUSY",
                                          "GRADUS_NOT_BUILT",
                                          "GRADUS_OUT_OF_MEMORY",
                                          "GRADUS_INTERNAL_ERROR"};
  return status >= 0 && status < static_cast<int>(std::size(names)) ? names[status] : "an unknown status";
}

int gradus_has_feature(const char* name) {
  if (name == nullptr) {
    return 0;
  }
  const std::string_view feature{name};
#if defined(GRADUS_C_MPI)
  if (feature == "mpi") {
    return 1;
  }
#endif
#if defined(GRADUS_C_ONNX)
  if (feature == "onnx") {
    return 1;
  }
#endif
  return feature == "double" && built_with_double ? 1 : 0;
}

int64_t gradus_open_handles(void) {
  return registry::instance().size();
}

// ---- Devices

gradus_status gradus_device_create(const gradus_device_options* options, gradus_device** made) {
  return call("gradus_device_create", [&] {
    require_pointer("device", made);
    const gradus_device_options chosen = options_of(options);
    give_handle(std::make_shared<device>(gradus::cpu_options{.intra_op_threads = chosen.threads,
                                                             .flush_denormals = chosen.flush_denormals != 0}),
                made);
  });
}

gradus_status gradus_device_free(gradus_device* handle) {
  return end_handle<device>("gradus_device_free", handle, a_device);
}

gradus_status gradus_device_threads(gradus_device* handle, int32_t* threads) {
  return call("gradus_device_threads", [&] {
    require_pointer("threads", threads);
    *threads = find<device>(handle, a_device)->processors.threads();
  });
}

// ---- Communicators

gradus_status gradus_comm_create_self(gradus_comm** made) {
  return call("gradus_comm_create_self", [&] {
    require_pointer("comm", made);
    give_handle(std::make_shared<communicator>(), made);
  });
}

gradus_status gradus_comm_create_mpi_fortran(int fortran_handle, gradus_comm** made) {
  return call("gradus_comm_create_mpi", [&] {
    require_pointer("comm", made);
    give_handle(communicator_of_mpi(fortran_handle), made);
  });
}

gradus_status gradus_comm_free(gradus_comm* handle) {
  return end_handle<communicator>("gradus_comm_free", handle, a_comm);
}

gradus_status gradus_comm_rank(gradus_comm* handle, int32_t* rank) {
  return call("gradus_comm_rank", [&] {
    require_pointer("rank", rank);
    *rank = find<communicator>(handle, a_comm)->with([](auto& ranks) { return ranks.rank(); });
  });
}

gradus_status gradus_comm_size(gradus_comm* handle, int32_t* size) {
  return call("gradus_comm_size", [&] {
    require_pointer("size", size);
    *size = find<communicator>(handle, a_comm)->with([](auto& ranks) { return ranks.size(); });
  });
}

gradus_status gradus_comm_set_time_limit(gradus_comm* handle, int64_t milliseconds) {
  return call("gradus_comm_set_time_limit", [&] {
    find<communicator>(handle, a_comm)->with([&](auto& ranks) {
      ranks.set_time_limit(std::chrono::milliseconds{milliseconds});
    });
  });
}

// ---- Networks: building

gradus_status gradus_network_create(gradus_device* on, int32_t element, gradus_network** made) {
  return call("gradus_network_create", [&] {
    require_pointer("network", made);
    if (element != GRADUS_FLOAT && element != GRADUS_DOUBLE) {
      refuse_constant("element", element, "GRADUS_FLOAT or GRADUS_DOUBLE");
    }
    if (element == GRADUS_DOUBLE && !built_with_double) {
      throw failure{GRADUS_NOT_BUILT, "gradus_c.cpp compiled without -DGRADUS_C_NO_DOUBLE", "GRADUS_DOUBLE"};
    }
    give_handle(
        std::make_shared<network>(
            on == nullptr ? std::make_shared<device>(gradus::cpu_options{}) : find<device>(on, a_device), element),
        made);
  });
}

gradus_status gradus_network_free(gradus_network* handle) {
  return end_handle<network>("gradus_network_free", handle, a_network);
}

gradus_status gradus_network_input(gradus_network* handle, const char* name, int64_t channels, int64_t rows,
                                   int64_t columns, gradus_value* value) {
  return on_network("gradus_network_input", handle, [&](network& net) {
    require_pointer("name", name);
    require_pointer("value", value);
    net.make_input(name, {.channels = channels, .height = rows, .width = columns});
    *value = 0;
  });
}

gradus_status gradus_network_dense(gradus_network* handle, const char* name, gradus_value input,
                                   const gradus_dense_options* options, gradus_value* output) {
  return on_network("gradus_network_dense", handle, [&](network& net) {
    require_pointer("options", options);
    require_reserved(*options);
    net.add(name, "dense", nn::dense{.out_features = options->out_features, .bias = options->no_bias == 0}, {input},
            output);
  });
}

gradus_status gradus_network_conv2d(gradus_network* handle, const char* name, gradus_value input,
                                    const gradus_conv2d_options* options, gradus_value* output) {
  return on_network("gradus_network_conv2d", handle, [&](network& net) {
    require_pointer("options", options);
    require_reserved(*options);
    if (options->output_padding[0] != 0 || options->output_padding[1] != 0) {
      refuse("output_padding = 0 of a convolution", {options->output_padding[0]},
             "gradus_network_conv_transpose2d has it");
    }
    nn::conv2d layer{.out_channels = options->out_channels,
                     .kernel = size_of(options->kernel, 0),
                     .stride = size_of(options->stride, 1),
                     .padding = padding_of(options->padding, options->pad),
                     .dilation = size_of(options->dilation, 1),
                     .groups = options->groups == 0 ? 1 : options->groups,
                     .bias = options->no_bias == 0};
    if (options->padding_mode != GRADUS_ZEROS) {
      layer.padding_mode = mode_of(options->padding_mode);
    }
    net.add(name, "conv2d", layer, {input}, output);
  });
}

gradus_status gradus_network_conv_transpose2d(gradus_network* handle, const char* name, gradus_value input,
                                              const gradus_conv2d_options* options, gradus_value* output) {
  return on_network("gradus_network_conv_transpose2d", handle, [&](network& net) {
    require_pointer("options", options);
    require_reserved(*options);
    if (options->padding_mode != GRADUS_ZEROS) {
      refuse("padding_mode = GRADUS_ZEROS of a transposed convolution", {options->padding_mode});
    }
    net.add(name, "conv_transpose2d",
            nn::conv_transpose2d{.out_channels = options->out_channels,
                                 .kernel = size_of(options->kernel, 0),
                                 .stride = size_of(options->stride, 1),
                                 .padding = padding_of(options->padding, options->pad),
                                 .output_padding = {options->output_padding[0], options->output_padding[1]},
                                 .dilation = size_of(options->dilation, 1),
                                 .groups = options->groups == 0 ? 1 : options->groups,
                                 .bias = options->no_bias == 0},
            {input}, output);
  });
}

gradus_status gradus_network_pool2d(gradus_network* handle, const char* name, gradus_value input,
                                    const gradus_pool2d_options* options, gradus_value* output) {
  return on_network("gradus_network_pool2d", handle, [&](network& net) {
    gradus_pool2d_options chosen = options_of(options);
    if (options == nullptr) {
      chosen.kind = GRADUS_POOL_MAX;
    }
    const nn::size2d kernel = size_of(chosen.kernel, 2);
    const nn::size2d stride = size_of(chosen.stride, kernel);
    const nn::padding padding = padding_of(chosen.padding, chosen.pad);
    switch (chosen.kind) {
      case GRADUS_POOL_MAX:
        if (chosen.count_padding != 0) {
          refuse("count_padding = 0 of a maximum", {chosen.count_padding});
        }
        return net.add(
            name, "max_pool2d",
            nn::max_pool2d{.kernel = kernel, .stride = stride, .padding = padding, .ceil_mode = chosen.ceil_mode != 0},
            {input}, output);
      case GRADUS_POOL_AVERAGE:
        return net.add(name, "average_pool2d",
                       nn::average_pool2d{.kernel = kernel,
                                          .stride = stride,
                                          .padding = padding,
                                          .count_padding = chosen.count_padding != 0,
                                          .ceil_mode = chosen.ceil_mode != 0},
                       {input}, output);
      default:
        refuse_constant("kind", chosen.kind, "GRADUS_POOL_MAX or GRADUS_POOL_AVERAGE");
    }
  });
}

gradus_status gradus_network_global_average_pool2d(gradus_network* handle, const char* name, gradus_value input,
                                                   gradus_value* output) {
  return on_network("gradus_network_global_average_pool2d", handle, [&](network& net) {
    net.add(name, "global_average_pool2d", nn::global_average_pool2d{}, {input}, output);
  });
}

gradus_status gradus_network_norm(gradus_network* handle, const char* name, gradus_value input,
                                  const gradus_norm_options* options, gradus_value* output) {
  return on_network("gradus_network_norm", handle, [&](network& net) {
    require_pointer("options", options);
    require_reserved(*options);
    const double epsilon = or_default(options->epsilon, 1e-5);
    const bool scale = options->no_scale == 0;
    const bool shift = options->no_shift == 0;
    switch (options->kind) {
      case GRADUS_BATCH_NORM:
        return net.add(
            name, "batch_norm",
            nn::batch_norm{
                .momentum = or_default(options->momentum, 0.1), .epsilon = epsilon, .scale = scale, .shift = shift},
            {input}, output);
      case GRADUS_GROUP_NORM:
        return net.add(name, "group_norm",
                       nn::group_norm{.groups = options->groups == 0 ? 32 : options->groups,
                                      .epsilon = epsilon,
                                      .scale = scale,
                                      .shift = shift},
                       {input}, output);
      case GRADUS_INSTANCE_NORM:
        return net.add(name, "instance_norm", nn::instance_norm{.epsilon = epsilon, .scale = scale, .shift = shift},
                       {input}, output);
      case GRADUS_LAYER_NORM:
        return net.add(name, "layer_norm", nn::layer_norm{.epsilon = epsilon, .scale = scale, .shift = shift}, {input},
                       output);
      default:
        refuse_constant("kind", options->kind,
                        "GRADUS_BATCH_NORM, GRADUS_GROUP_NORM, GRADUS_INSTANCE_NORM or GRADUS_LAYER_NORM");
    }
  });
}

gradus_status gradus_network_activation(gradus_network* handle, const char* name, gradus_value input, int32_t kind,
                                        double parameter, gradus_value* output) {
  return on_network("gradus_network_activation", handle, [&](network& net) {
    if (!std::isfinite(parameter) || (parameter != 0 && kind != GRADUS_LEAKY_RELU && kind != GRADUS_ELU)) {
      refuse("parameter = 0, or a finite one of GRADUS_LEAKY_RELU and GRADUS_ELU", {parameter});
    }
    const auto add = [&](const char* name_of_kind, const auto& layer) {
      net.add(name, name_of_kind, layer, {input}, output);
    };
    switch (kind) {
      case GRADUS_RELU:
        return add("relu", nn::relu{});
      case GRADUS_LEAKY_RELU:
        return add("leaky_relu", nn::leaky_relu{.negative_slope = or_default(parameter, 0.01)});
      case GRADUS_RELU6:
        return add("relu6", nn::relu6{});
      case GRADUS_SIGMOID:
        return add("sigmoid", nn::sigmoid{});
      case GRADUS_TANH:
        return add("tanh", nn::tanh{});
      case GRADUS_SILU:
        return add("silu", nn::silu{});
      case GRADUS_GELU:
        return add("gelu", nn::gelu{});
      case GRADUS_ELU:
        return add("elu", nn::elu{.alpha = or_default(parameter, 1.0)});
      case GRADUS_SOFTPLUS:
        return add("softplus", nn::softplus{});
      case GRADUS_SOFTMAX:
        return add("softmax", nn::softmax{});
      case GRADUS_LOG_SOFTMAX:
        return add("log_softmax", nn::log_softmax{});
      default:
        refuse_constant("kind", kind, "GRADUS_RELU, ..., GRADUS_LOG_SOFTMAX");
    }
  });
}

gradus_status gradus_network_dropout(gradus_network* handle, const char* name, gradus_value input, double rate,
                                     gradus_value* output) {
  return on_network("gradus_network_dropout", handle,
                    [&](network& net) { net.add(name, "dropout", nn::dropout{.rate = rate}, {input}, output); });
}

gradus_status gradus_network_flatten(gradus_network* handle, const char* name, gradus_value input,
                                     gradus_value* output) {
  return on_network("gradus_network_flatten", handle,
                    [&](network& net) { net.add(name, "flatten", nn::flatten{}, {input}, output); });
}

gradus_status gradus_network_reshape(gradus_network* handle, const char* name, gradus_value input, int64_t channels,
                                     int64_t rows, int64_t columns, gradus_value* output) {
  return on_network("gradus_network_reshape", handle, [&](network& net) {
    net.add(name, "reshape", nn::reshape{.channels = channels, .height = rows, .width = columns}, {input}, output);
  });
}

gradus_status gradus_network_add(gradus_network* handle, const char* name, gradus_value left, gradus_value right,
                                 gradus_value* output) {
  return on_network("gradus_network_add", handle, [&](network& net) {
    net.add(name, "add", nn::add{}, {left, right}, output);
  });
}

gradus_status gradus_network_multiply(gradus_network* handle, const char* name, gradus_value left, gradus_value right,
                                      gradus_value* output) {
  return on_network("gradus_network_multiply", handle, [&](network& net) {
    net.add(name, "multiply", nn::multiply{}, {left, right}, output);
  });
}

gradus_status gradus_network_concat(gradus_network* handle, const char* name, const gradus_value* inputs, int32_t count,
                                    gradus_value* output) {
  return on_network("gradus_network_concat", handle, [&](network& net) {
    require_pointer("inputs", inputs);
    if (count < 1 || count > 1024) {
      refuse("1 to 1024 values to concatenate", {count});
    }
    net.add(name, "concat", nn::concat{}, std::vector<gradus_value>(inputs, inputs + count), output);
  });
}

gradus_status gradus_network_upsample2d(gradus_network* handle, const char* name, gradus_value input, int64_t rows,
                                        int64_t columns, int32_t bilinear, gradus_value* output) {
  return on_network("gradus_network_upsample2d", handle, [&](network& net) {
    net.add(name, "upsample2d",
            nn::upsample2d{.scale = {rows, columns},
                           .mode = bilinear != 0 ? nn::interpolation::bilinear : nn::interpolation::nearest},
            {input}, output);
  });
}

gradus_status gradus_network_crop2d(gradus_network* handle, const char* name, gradus_value input, int64_t top,
                                    int64_t left, int64_t rows, int64_t columns, gradus_value* output) {
  return on_network("gradus_network_crop2d", handle, [&](network& net) {
    net.add(name, "crop2d", nn::crop2d{.top = top, .left = left, .size = {rows, columns}}, {input}, output);
  });
}

gradus_status gradus_network_pad2d(gradus_network* handle, const char* name, gradus_value input, const int64_t pad[4],
                                   int32_t mode, gradus_value* output) {
  return on_network("gradus_network_pad2d", handle, [&](network& net) {
    require_pointer("pad", pad);
    net.add(name, "pad2d",
            nn::pad2d{.padding = nn::padding::explicit_padding(pad[0], pad[1], pad[2], pad[3]), .mode = mode_of(mode)},
            {input}, output);
  });
}

gradus_status gradus_network_normalize(gradus_network* handle, const char* name, gradus_value input, const double* mean,
                                       const double* deviation, int64_t count, gradus_value* output) {
  return on_network("gradus_network_normalize", handle, [&](network& net) {
    require_pointer("mean", mean);
    require_pointer("deviation", deviation);
    if (count < 1 || count > (int64_t{1} << 24)) {
      refuse("count = the number of channels", {count});
    }
    net.add(name, "normalize",
            nn::normalize{.mean = std::vector<double>(mean, mean + count),
                          .deviation = std::vector<double>(deviation, deviation + count)},
            {input}, output);
  });
}

gradus_status gradus_network_read_onnx(gradus_network* handle, const char* path, const char* input, const char* output,
                                       [[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t columns) {
  return on_network("gradus_network_read_onnx", handle, [&]([[maybe_unused]] network& net) {
    require_pointer("path", path);
    require_pointer("input", input);
    require_pointer("output", output);
#if defined(GRADUS_C_ONNX)
    auto model =
        std::make_unique<gradus::io::onnx_model>(path, gradus::io::onnx_extents{.height = rows, .width = columns});
    net.make_input(input, model->input());
    const nn::value last = net.with([&](auto& of) { return model->add_to(of.net, of.net.input()); });
    net.name_output(output, last);
    net.model = std::move(model);
#else
    throw failure{GRADUS_NOT_BUILT, "gradus_c.cpp compiled with -DGRADUS_C_ONNX", "one without ONNX",
                  "gradus_add_c_library(target ONNX) in CMake"};
#endif
  });
}

gradus_status gradus_network_output(gradus_network* handle, const char* name, gradus_value value) {
  return on_network("gradus_network_output", handle, [&](network& net) {
    require_pointer("name", name);
    if (*name == '\0') {
      refuse("a name of the output", "an empty text");
    }
    net.name_output(name, net.value_of(value));
  });
}

gradus_status gradus_network_loss(gradus_network* handle, const char* output, int32_t kind, double parameter) {
  return on_network("gradus_network_loss", handle, [&](network& net) {
    net.require_output(output);
    if (parameter != 0 && kind != GRADUS_SOFTMAX_CROSS_ENTROPY && kind != GRADUS_HUBER) {
      refuse("parameter = 0 of this loss", {parameter});
    }
    const auto end = [&](const auto& loss) { net.with([&](auto& of) { of.net.loss(loss, net.output()); }); };
    switch (kind) {
      case GRADUS_SOFTMAX_CROSS_ENTROPY:
        return end(nn::softmax_cross_entropy{.label_smoothing = parameter});
      case GRADUS_MEAN_SQUARED_ERROR:
        return end(nn::mean_squared_error{});
      case GRADUS_MEAN_ABSOLUTE_ERROR:
        return end(nn::mean_absolute_error{});
      case GRADUS_HUBER:
        return end(nn::huber{.delta = or_default(parameter, 1.0)});
      case GRADUS_BINARY_CROSS_ENTROPY:
        return end(nn::binary_cross_entropy_with_logits{});
      default:
        refuse_constant("kind", kind, "GRADUS_SOFTMAX_CROSS_ENTROPY, ..., GRADUS_BINARY_CROSS_ENTROPY");
    }
  });
}

gradus_status gradus_network_compile(gradus_network* handle, const gradus_compile_options* options) {
  return on_network("gradus_network_compile", handle, [&](network& net) {
    require_pointer("options", options);
    require_reserved(*options);
    net.compile(*options);
  });
}

// ---- Networks: using

gradus_status gradus_network_shape(gradus_network* handle, gradus_value value, int64_t* channels, int64_t* rows,
                                   int64_t* columns) {
  return on_network("gradus_network_shape", handle, [&](network& net) {
    require_pointer("channels", channels);
    require_pointer("rows", rows);
    require_pointer("columns", columns);
    const nn::value found = net.value_of(value);
    const nn::value_shape shape = net.with([&](auto& of) { return of.net.shape(found); });
    *channels = shape.channels;
    *rows = shape.height;
    *columns = shape.width;
  });
}

gradus_status gradus_network_summary(gradus_network* handle, char* text, size_t size, size_t* needed) {
  return on_network("gradus_network_summary", handle, [&](network& net) {
    if (size > 0) {
      require_pointer("text", text);
    }
    const std::string summary = net.with([](auto& of) { return of.net.summary(); });
    if (size > 0) {
      const std::size_t count = std::min(summary.size(), size - 1);
      std::memcpy(text, summary.data(), count);
      text[count] = '\0';
    }
    if (needed != nullptr) {
      *needed = summary.size() + 1;
    }
  });
}

gradus_status gradus_network_parameter_count(gradus_network* handle, int64_t* parameters, int64_t* elements) {
  return on_network("gradus_network_parameter_count", handle, [&](network& net) {
    require_pointer("parameters", parameters);
    require_pointer("elements", elements);
    net.require_compiled();
    net.with([&](auto& of) {
      *parameters = static_cast<int64_t>(of.net.structure().parameters().size());
      *elements = of.net.parameter_count();
    });
  });
}

gradus_status gradus_network_parameter(gradus_network* handle, int64_t index, const char** name, int64_t* elements) {
  return on_network("gradus_network_parameter", handle, [&](network& net) {
    require_pointer("name", name);
    require_pointer("elements", elements);
    net.require_compiled();
    net.with([&](auto& of) {
      const auto all = of.net.structure().parameters();
      if (index < 0 || index >= static_cast<int64_t>(all.size())) {
        refuse({"a parameter from 0 to ", static_cast<int64_t>(all.size()) - 1}, {index});
      }
      const auto& one = *all[static_cast<std::size_t>(index)];
      *name = one.name.c_str();
      *elements = one.shape.size();
    });
  });
}

gradus_status gradus_network_get_parameter(gradus_network* handle, const char* name, void* values, int64_t count) {
  return on_network("gradus_network_get_parameter", handle, [&](network& net) {
    require_pointer("name", name);
    require_pointer("values", values);
    net.require_compiled();
    net.with([&](auto& of) {
      const auto& found = of.net.find_parameter(name);
      const auto all = found.copy_values();
      if (count != found.size()) {
        throw failure{GRADUS_SHAPE_ERROR, {found.size(), " elements of '", name, "'"}, {count}};
      }
      std::memcpy(values, all.data(), all.size() * sizeof(all[0]));
    });
  });
}

gradus_status gradus_network_set_parameter(gradus_network* handle, const char* name, const void* values,
                                           int64_t count) {
  return on_network("gradus_network_set_parameter", handle, [&](network& net) {
    require_pointer("name", name);
    require_pointer("values", values);
    net.require_compiled();
    net.with([&](auto& of) {
      using element = typename std::remove_reference_t<decltype(of)>::element;
      const auto& found = of.net.find_parameter(name);
      if (count != found.size()) {
        throw failure{GRADUS_SHAPE_ERROR, {found.size(), " elements of '", name, "'"}, {count}};
      }
      found.assign_values(std::span{static_cast<const element*>(values), static_cast<std::size_t>(count)});
    });
  });
}

gradus_status gradus_network_predict(gradus_network* handle, const char* input, const gradus_array* inputs,
                                     const char* output, const gradus_array* outputs) {
  return on_network("gradus_network_predict", handle, [&](network& net) {
    net.require_input(input);
    net.require_output(output);
    net.require_compiled();
    const described_array from = describe(input, inputs);
    const described_array to = describe(output, outputs);
    if (to.element != GRADUS_FLOAT && to.element != GRADUS_DOUBLE) {
      refuse({"element = GRADUS_FLOAT or GRADUS_DOUBLE of the array '", output, "'"}, {to.element});
    }
    net.with([&](auto& of) {
      const examples source = examples_of(input, from, of.net.shape(of.net.input()));
      const examples target = examples_of(output, to, of.net.shape(net.output()));
      if (source.count != target.count) {
        throw failure{GRADUS_SHAPE_ERROR,
                      {"as many samples of '", output, "' as of '", input, "', ", source.count},
                      {target.count}};
      }
      net.predict(source, target);
    });
  });
}

gradus_status gradus_network_save_weights(gradus_network* handle, const char* path) {
  return on_network("gradus_network_save_weights", handle, [&](network& net) {
    require_pointer("path", path);
    net.with([&](auto& of) { gradus::io::save_weights(of.net, path); });
  });
}

gradus_status gradus_network_load_weights(gradus_network* handle, const char* path, int32_t strict) {
  return on_network("gradus_network_load_weights", handle, [&](network& net) {
    require_pointer("path", path);
    net.with([&](auto& of) { static_cast<void>(gradus::io::load_weights(of.net, path, {.strict = strict != 0})); });
  });
}

gradus_status gradus_network_write_onnx(gradus_network* handle, const char* path) {
  return on_network("gradus_network_write_onnx", handle, [&]([[maybe_unused]] network& net) {
    require_pointer("path", path);
#if defined(GRADUS_C_ONNX)
    net.with([&](auto& of) {
      gradus::io::save_onnx(of.net, path, {.input_name = net.input_name(), .output_name = net.output_name()});
    });
#else
    throw failure{GRADUS_NOT_BUILT, "gradus_c.cpp compiled with -DGRADUS_C_ONNX", "one without ONNX",
                  "gradus_add_c_library(target ONNX) in CMake"};
#endif
  });
}

// ---- Data

gradus_status gradus_data_create(gradus_data** made) {
  return call("gradus_data_create", [&] {
    require_pointer("data", made);
    give_handle(std::make_shared<data_set>(), made);
  });
}

gradus_status gradus_data_free(gradus_data* handle) {
  return end_handle<data_set>("gradus_data_free", handle, a_data);
}

gradus_status gradus_data_set(gradus_data* handle, const char* name, const gradus_array* array) {
  return call("gradus_data_set", [&] {
    const auto set = find<data_set>(handle, a_data);
    const in_use use{*set};
    require_pointer("name", name);
    set->arrays.insert_or_assign(name, describe(name, array));
  });
}

gradus_status gradus_data_set_weights(gradus_data* handle, const gradus_array* weights) {
  return call("gradus_data_set_weights", [&] {
    const auto set = find<data_set>(handle, a_data);
    const in_use use{*set};
    if (weights == nullptr) {
      set->weights.reset();
    } else {
      set->weights = describe("weights", weights);
    }
  });
}

// ---- Training

gradus_status gradus_trainer_create(gradus_network* handle, const gradus_trainer_options* options, gradus_comm* comm,
                                    gradus_trainer** made) {
  return on_network("gradus_trainer_create", handle, [&](network& net) {
    require_pointer("options", options);
    require_pointer("trainer", made);
    require_reserved(*options);
    net.require_compiled();
    auto one = std::make_shared<trainer>(find<network>(handle, a_network));
    one->ranks = comm == nullptr ? std::make_shared<communicator>() : find<communicator>(comm, a_comm);
    const bool adaptive = options->optimizer != GRADUS_SGD;
    one->settings = {.global_batch_size = options->global_batch_size,
                     .shuffle = options->no_shuffle == 0,
                     .seed = options->seed,
                     .learning_rate = or_default(options->learning_rate, adaptive ? 0.001 : 0.01)};
    with_rule(*options, [&](const auto& rule) {
      net.with([&](auto& of) {
        using element = typename std::remove_reference_t<decltype(of)>::element;
        if (!of.net.structure().has_loss()) {
          throw failure{GRADUS_CONFIGURATION_ERROR, "a network with a loss", "one without",
                        "call gradus_network_loss before gradus_network_compile"};
        }
        one->ranks->with(
            [&](auto& ranks) { one->work = std::make_unique<gradus_c::training<element>>(of, rule, ranks); });
      });
    });
    give_handle(std::shared_ptr<object>{std::move(one)}, made);
  });
}

gradus_status gradus_trainer_free(gradus_trainer* handle) {
  return end_handle<trainer>("gradus_trainer_free", handle, a_trainer);
}

gradus_status gradus_trainer_set_learning_rate(gradus_trainer* handle, double learning_rate) {
  return on_trainer("gradus_trainer_set_learning_rate", handle, [&](trainer& of) {
    if (!(learning_rate >= 0) || !std::isfinite(learning_rate)) {
      refuse("a finite learning rate of at least 0", {learning_rate});
    }
    of.settings.learning_rate = learning_rate;
    of.settings.schedule = nullptr;
  });
}

gradus_status gradus_trainer_set_schedule(gradus_trainer* handle, gradus_schedule schedule, void* context) {
  return on_trainer("gradus_trainer_set_schedule", handle, [&](trainer& of) {
    of.settings.schedule = schedule;
    of.settings.schedule_context = context;
  });
}

gradus_status gradus_trainer_set_step_callback(gradus_trainer* handle, gradus_step_callback callback, void* context) {
  return on_trainer("gradus_trainer_set_step_callback", handle, [&](trainer& of) {
    of.settings.callback = callback;
    of.settings.callback_context = context;
  });
}

gradus_status gradus_trainer_steps(gradus_trainer* handle, uint64_t* steps) {
  return on_trainer("gradus_trainer_steps", handle, [&](trainer& of) {
    require_pointer("steps", steps);
    *steps = of.work->steps();
  });
}

gradus_status gradus_trainer_step(gradus_trainer* handle, gradus_data* data, gradus_report* report) {
  return train_on(rank_call::step, handle, data, report, [] { return call_limits{.steps = 1, .own_examples = true}; });
}

gradus_status gradus_trainer_train_steps(gradus_trainer* handle, gradus_data* data, int64_t steps,
                                         gradus_report* report) {
  return train_on(rank_call::train_steps, handle, data, report, [&] {
    if (steps < 0) {
      refuse("steps of at least 0", {steps});
    }
    return call_limits{.steps = steps};
  });
}

gradus_status gradus_trainer_train_for(gradus_trainer* handle, gradus_data* data, double milliseconds,
                                       gradus_report* report) {
  return train_on(rank_call::train_for, handle, data, report, [&] {
    if (!(milliseconds >= 0)) {
      refuse("milliseconds of at least 0", {milliseconds});
    }
    return call_limits{.milliseconds = milliseconds};
  });
}

gradus_status gradus_trainer_train_epochs(gradus_trainer* handle, gradus_data* data, int64_t epochs,
                                          gradus_report* report) {
  return train_on(rank_call::train_epochs, handle, data, report, [&] {
    if (epochs < 0 || epochs > (int64_t{1} << 31)) {
      refuse("epochs from 0 to 2^31", {epochs});
    }
    return call_limits{.passes = epochs};
  });
}

gradus_status gradus_trainer_evaluate(gradus_trainer* handle, gradus_data* data, gradus_report* report) {
  return on_trainer(name_of(rank_call::evaluate), handle, [&](trainer& of) {
    std::shared_ptr<data_set> set;
    std::optional<in_use> use;
    const gradus_report done = of.work->evaluate(
        [&] {
          require_pointer("report", report);
          return request_of(of, data, set, use, [] { return call_limits{}; });
        },
        of.settings);
    *report = done;
  });
}

gradus_status gradus_trainer_set_checkpoints(gradus_trainer* handle, const char* folder,
                                             const gradus_checkpoint_options* options) {
  return on_trainer("gradus_trainer_set_checkpoints", handle, [&](trainer& of) {
    require_pointer("folder", folder);
    const gradus_checkpoint_options chosen = options_of(options);
    if (chosen.every < 0 || *folder == '\0') {
      refuse("a folder, and every of at least 0 steps", {"'", folder, "' and ", chosen.every});
    }
    of.work->set_checkpoints(folder, chosen);
  });
}

gradus_status gradus_trainer_resume(gradus_trainer* handle, const char* folder, int32_t* found) {
  return on_trainer("gradus_trainer_resume", handle, [&](trainer& of) {
    require_pointer("folder", folder);
    const bool resumed = of.work->resume(folder);
    if (found != nullptr) {
      *found = resumed ? 1 : 0;
    }
  });
}

gradus_status gradus_trainer_save_weights(gradus_trainer* handle, const char* path) {
  return on_trainer("gradus_trainer_save_weights", handle, [&](trainer& of) {
    require_pointer("path", path);
    of.work->save_weights(path);
  });
}

}  // extern "C"
