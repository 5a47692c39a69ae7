// SPDX-License-Identifier: BSL-1.0
//
// The zoo's networks in libtorch: takes the same add() calls as nn::network and runs them with ATen.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/crop2d.hpp"
#include "gradus/nn/network.hpp"

namespace gradus_peers {

/// A network in libtorch with the interface that the zoo's functions build on.
template <class Element = float>
class torch_network {
 public:
  using shapes_network = gradus::nn::network<Element, gradus::nchw>;

  torch_network(gradus::cpu& device, gradus::nn::value_shape input) : device_{&device}, shapes_{device, input} {}

  /// Dropout drops what gradus drops in this step, instead of drawing its own numbers.
  void share_dropout(std::uint64_t seed, std::uint64_t step) {
    shares_dropout_ = true;
    seed_ = seed;
    step_ = step;
  }

  [[nodiscard]] gradus::nn::value input() const { return shapes_.input(); }
  [[nodiscard]] const gradus::nn::value_shape& shape(gradus::nn::value v) const { return shapes_.shape(v); }

  template <class Description>
  gradus::nn::value add(const std::string& name, const Description& description, const gradus::nn::input_list& inputs) {
    std::vector<std::size_t> from;
    for (const auto v : inputs.values()) {
      from.push_back(v.index);
    }
    const auto in_shape = shapes_.shape(inputs.values().front());
    const auto out = shapes_.add(name, description, inputs);
    operations_.push_back({from, operation(name, description, in_shape, shapes_.shape(out))});
    return out;
  }

  template <class Loss>
  void loss(const Loss& description, gradus::nn::value scores) {
    shapes_.loss(description, scores);
    scores_ = scores.index;
  }

  /// Takes over the parameters of a compiled network of gradus, by name.
  template <class Network>
  void take_parameters(const Network& net) {
    torch::NoGradGuard no_gradient;
    for (const auto& p : net.parameters()) {
      auto& tensor = parameters_.at(p.name());
      const auto values = p.copy_values();
      tensor.copy_(torch::from_blob(const_cast<Element*>(values.data()), tensor.sizes(), element_type()).clone());
    }
  }

  /// Makes the weights of convolutions channels-last.
  void use_channels_last() {
    for (auto& [name, tensor] : parameters_) {
      if (tensor.dim() == 4) {
        tensor.set_data(tensor.data().contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
  }

  [[nodiscard]] std::vector<torch::Tensor> parameters() const {
    std::vector<torch::Tensor> result;
    for (const auto& [name, tensor] : parameters_) {
      result.push_back(tensor);
    }
    return result;
  }

  [[nodiscard]] const torch::Tensor& parameter(const std::string& name) const { return parameters_.at(name); }

  [[nodiscard]] static torch::ScalarType element_type() { return c10::CppTypeToScalarType<Element>::value; }

  torch::Tensor forward(const torch::Tensor& images) {
    std::vector<torch::Tensor> values(operations_.size() + 1);
    values[0] = images;
    std::vector<int> uses(values.size(), 0);
    for (const auto& [from, run] : operations_) {
      for (const std::size_t v : from) {
        ++uses[v];
      }
    }
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      std::vector<torch::Tensor> inputs;
      for (const std::size_t v : operations_[i].first) {
        inputs.push_back(values[v]);
        if (--uses[v] == 0) {
          values[v] = torch::Tensor{};  // as a model in plain C++ would let it go
        }
      }
      values[i + 1] = operations_[i].second(std::move(inputs));
    }
    return values[scores_];
  }

 private:
  using run = std::function<torch::Tensor(std::vector<torch::Tensor>)>;

  torch::Tensor& make_parameter(const std::string& name, at::IntArrayRef sizes) {
    return parameters_[name] = torch::zeros(sizes, torch::TensorOptions{element_type()}.requires_grad(true));
  }

  struct pads {
    bool symmetric;
    std::vector<int64_t> amount;  // height, width
    std::vector<int64_t> all;     // left, right, top, bottom
  };

  static pads padding_of(const gradus::nn::value_shape& in, const gradus::nn::value_shape& out,
                         gradus::nn::size2d kernel, gradus::nn::size2d stride, gradus::nn::padding pad) {
    const auto window = gradus::nn::detail::slide("peer", {in.height, in.width}, kernel, stride, pad);
    const int64_t below =
        std::max<int64_t>(0, (out.height - 1) * stride.height + kernel.height - in.height - window.pad_top);
    const int64_t right =
        std::max<int64_t>(0, (out.width - 1) * stride.width + kernel.width - in.width - window.pad_left);
    // A border of padding that no window needs does no harm.
    const bool symmetric = below <= window.pad_top && right <= window.pad_left;
    return {symmetric, {window.pad_top, window.pad_left}, {window.pad_left, right, window.pad_top, below}};
  }

  run operation(const std::string& name, const gradus::nn::conv2d& d, const gradus::nn::value_shape& in,
                const gradus::nn::value_shape& out) {
    auto& weight =
        make_parameter(name + ".weight", {d.out_channels, in.channels / d.groups, d.kernel.height, d.kernel.width});
    torch::Tensor* bias = d.bias ? &make_parameter(name + ".bias", {d.out_channels}) : nullptr;
    const gradus::nn::size2d reach{(d.kernel.height - 1) * d.dilation.height + 1,
                                   (d.kernel.width - 1) * d.dilation.width + 1};
    const pads pad = padding_of(in, out, reach, d.stride, d.padding);
    return [&weight, bias, d, pad](std::vector<torch::Tensor> x) {
      const std::vector<int64_t> stride{d.stride.height, d.stride.width};
      const std::vector<int64_t> dilation{d.dilation.height, d.dilation.width};
      const auto b = bias != nullptr ? *bias : torch::Tensor{};
      if (pad.symmetric) {
        return at::conv2d(x[0], weight, b, stride, pad.amount, dilation, d.groups);
      }
      return at::conv2d(at::constant_pad_nd(x[0], pad.all), weight, b, stride, std::vector<int64_t>{0, 0}, dilation,
                        d.groups);
    };
  }
  /// Without padding of the output, as in models::unet.
  run operation(const std::string& name, const gradus::nn::conv_transpose2d& d, const gradus::nn::value_shape& in,
                const gradus::nn::value_shape& /*out*/) {
    auto& weight =
        make_parameter(name + ".weight", {in.channels, d.out_channels / d.groups, d.kernel.height, d.kernel.width});
    torch::Tensor* bias = d.bias ? &make_parameter(name + ".bias", {d.out_channels}) : nullptr;
    return [&weight, bias, d](std::vector<torch::Tensor> x) {
      const std::vector<int64_t> none{0, 0};
      return at::conv_transpose2d(x[0], weight, bias != nullptr ? *bias : torch::Tensor{},
                                  std::vector<int64_t>{d.stride.height, d.stride.width}, none, none, d.groups,
                                  std::vector<int64_t>{d.dilation.height, d.dilation.width});
    };
  }
  run operation(const std::string& name, const gradus::nn::dense& d, const gradus::nn::value_shape& in,
                const gradus::nn::value_shape& /*out*/) {
    auto& weight = make_parameter(name + ".weight", {d.out_features, in.size()});
    auto& bias = make_parameter(name + ".bias", {d.out_features});
    return [&weight, &bias](std::vector<torch::Tensor> x) { return at::linear(x[0].flatten(1), weight, bias); };
  }
  run operation(const std::string& name, const gradus::nn::batch_norm& d, const gradus::nn::value_shape& in,
                const gradus::nn::value_shape& /*out*/) {
    torch::Tensor* scale = d.scale ? &make_parameter(name + ".weight", {in.channels}) : nullptr;
    torch::Tensor* shift = d.shift ? &make_parameter(name + ".bias", {in.channels}) : nullptr;
    auto mean = torch::zeros({in.channels}, element_type());
    auto variance = torch::ones({in.channels}, element_type());
    return [=](std::vector<torch::Tensor> x) {
      return at::batch_norm(x[0], scale != nullptr ? *scale : torch::Tensor{},
                            shift != nullptr ? *shift : torch::Tensor{}, mean, variance, true, d.momentum, d.epsilon,
                            false);
    };
  }
  run operation(const std::string& /*name*/, const gradus::nn::relu& /*d*/, const gradus::nn::value_shape& /*in*/,
                const gradus::nn::value_shape& /*out*/) {
    return [](std::vector<torch::Tensor> x) { return at::relu_(x[0]); };
  }
  run operation(const std::string& /*name*/, const gradus::nn::max_pool2d& options, const gradus::nn::value_shape& in,
                const gradus::nn::value_shape& out) {
    const gradus::nn::max_pool2d d = gradus::nn::detail::with_stride(options);
    const pads pad = padding_of(in, out, d.kernel, d.stride, d.padding);
    return [d, pad](std::vector<torch::Tensor> x) {
      const std::vector<int64_t> kernel{d.kernel.height, d.kernel.width};
      const std::vector<int64_t> stride{d.stride.height, d.stride.width};
      const std::vector<int64_t> dilation{d.dilation.height, d.dilation.width};
      const bool reaches = !pad.symmetric;  // nothing before, something after: windows that reach over the border
      return at::max_pool2d(x[0], kernel, stride, reaches ? std::vector<int64_t>{0, 0} : pad.amount, dilation,
                            reaches || d.ceil_mode);
    };
  }
  run operation(const std::string& /*name*/, const gradus::nn::average_pool2d& options,
                const gradus::nn::value_shape& in, const gradus::nn::value_shape& out) {
    const gradus::nn::average_pool2d d = gradus::nn::detail::with_stride(options);
    const pads pad = padding_of(in, out, d.kernel, d.stride, d.padding);
    if (!pad.symmetric) {
      throw std::runtime_error{"peer: average pooling with asymmetric padding"};
    }
    return [d, pad](std::vector<torch::Tensor> x) {
      const std::vector<int64_t> kernel{d.kernel.height, d.kernel.width};
      const std::vector<int64_t> stride{d.stride.height, d.stride.width};
      return at::avg_pool2d(x[0], kernel, stride, pad.amount, d.ceil_mode, d.count_padding);
    };
  }
  run operation(const std::string& /*name*/, const gradus::nn::global_average_pool2d& /*d*/,
                const gradus::nn::value_shape& /*in*/, const gradus::nn::value_shape& /*out*/) {
    return [](std::vector<torch::Tensor> x) { return at::adaptive_avg_pool2d(x[0], {1, 1}); };
  }
  run operation(const std::string& /*name*/, const gradus::nn::flatten& /*d*/, const gradus::nn::value_shape& /*in*/,
                const gradus::nn::value_shape& /*out*/) {
    return [](std::vector<torch::Tensor> x) { return x[0].flatten(1); };
  }
  run operation(const std::string& /*name*/, const gradus::nn::dropout& d, const gradus::nn::value_shape& /*in*/,
                const gradus::nn::value_shape& /*out*/) {
    return [this, d](std::vector<torch::Tensor> x) {
      if (d.rate == 0) {
        return x[0];
      }
      return shares_dropout_ ? x[0] * shared_mask(d, x[0].sizes()) : at::dropout(x[0], d.rate, true);
    };
  }
  run operation(const std::string& /*name*/, const gradus::nn::add& /*d*/, const gradus::nn::value_shape& /*in*/,
                const gradus::nn::value_shape& /*out*/) {
    return [](std::vector<torch::Tensor> x) { return x[0].add_(x[1]); };
  }
  run operation(const std::string& /*name*/, const gradus::nn::pad_channels& d, const gradus::nn::value_shape& /*in*/,
                const gradus::nn::value_shape& /*out*/) {
    return [d](std::vector<torch::Tensor> x) {
      return at::constant_pad_nd(x[0], std::vector<int64_t>{0, 0, 0, 0, d.before, d.after});
    };
  }
  run operation(const std::string& /*name*/, const gradus::nn::crop2d& d, const gradus::nn::value_shape& /*in*/,
                const gradus::nn::value_shape& out) {
    return [d, out](std::vector<torch::Tensor> x) {
      return x[0].narrow(2, d.top, out.height).narrow(3, d.left, out.width);
    };
  }
  run operation(const std::string& /*name*/, const gradus::nn::concat& /*d*/, const gradus::nn::value_shape& /*in*/,
                const gradus::nn::value_shape& /*out*/) {
    return [](std::vector<torch::Tensor> x) { return at::cat(x, 1); };
  }

  /// 0 or 1 / (1 - rate), as the kernel of gradus makes it.
  torch::Tensor shared_mask(const gradus::nn::dropout& d, at::IntArrayRef sizes) const {
    using gradus::index_t;
    const index_t rows = sizes.size() == 4 ? sizes[2] : 1;
    const index_t columns = sizes.size() == 4 ? sizes[3] : 1;
    const gradus::image_extents shape{sizes[0], sizes[1], rows, columns};
    gradus::image_tensor<Element, gradus::nchw> ones{*device_, shape};
    std::fill_n(ones.data(), ones.size(), Element{1});
    auto mask = torch::empty(sizes, element_type());
    std::vector<std::uint8_t> kept(static_cast<std::size_t>(ones.size()));
    dropout_forward(*device_, std::as_const(ones).view(),
                    gradus::image_view<Element, gradus::nchw>{*device_, mask.template data_ptr<Element>(), shape},
                    d.rate, gradus::random_stream{seed_, d.name}, step_, 0, kept.data());
    return mask;
  }

  gradus::cpu* device_;
  bool shares_dropout_ = false;
  std::uint64_t seed_ = 0;
  std::uint64_t step_ = 0;
  shapes_network shapes_;
  std::map<std::string, torch::Tensor> parameters_;
  std::vector<std::pair<std::vector<std::size_t>, run>> operations_;
  std::size_t scores_ = 0;
};

}  // namespace gradus_peers
