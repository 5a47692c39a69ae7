// SPDX-License-Identifier: BSL-1.0
//
// Macros that compile networks once in a program of several files.
#pragma once

#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"

/// Declares networks of `Element` on `Device`, in both layouts, with all layers: a file that uses them does not compile
/// them. This saves about half of the compiler's time for a file that builds networks.
///
/// @code
///   // networks.hpp, included by every file instead of the headers of nn
///   #include <gradus/nn/network/instances.hpp>
///   GRADUS_DECLARE_NETWORKS(float, gradus::cpu)
///
///   // networks.cpp
///   #include "networks.hpp"
///   GRADUS_DEFINE_NETWORKS(float, gradus::cpu)
/// @endcode
///
/// Write it at global scope. A program that declares and does not define them does not link.
#define GRADUS_DECLARE_NETWORKS(Element, Device) GRADUS_DETAIL_NETWORKS(extern template, Element, Device)

/// Compiles the networks that GRADUS_DECLARE_NETWORKS declares. Write it at global scope, in one file of the program.
#define GRADUS_DEFINE_NETWORKS(Element, Device) GRADUS_DETAIL_NETWORKS(template, Element, Device)

#define GRADUS_DETAIL_NETWORKS(prefix, Element, Device)              \
  prefix class ::gradus::nn::compiled_network<Element, Device>;      \
  prefix class ::gradus::nn::network_base<Element, Device>;          \
  prefix class ::gradus::nn::detail::add_layer<Element, Device>;     \
  prefix class ::gradus::nn::detail::dense_layer<Element, Device>;   \
  prefix class ::gradus::nn::detail::flatten_layer<Element, Device>; \
  prefix class ::gradus::nn::detail::relu_layer<Element, Device>;    \
  GRADUS_DETAIL_NETWORK(prefix, Element, ::gradus::nchw, Device)     \
  GRADUS_DETAIL_NETWORK(prefix, Element, ::gradus::nhwc, Device)

#define GRADUS_DETAIL_NETWORK(prefix, ...)                              \
  prefix class ::gradus::nn::batch_norm::layer<__VA_ARGS__>;            \
  prefix class ::gradus::nn::concat::layer<__VA_ARGS__>;                \
  prefix class ::gradus::nn::conv2d::layer<__VA_ARGS__>;                \
  prefix class ::gradus::nn::dropout::layer<__VA_ARGS__>;               \
  prefix class ::gradus::nn::local_response_norm::layer<__VA_ARGS__>;   \
  prefix class ::gradus::nn::pad_channels::layer<__VA_ARGS__>;          \
  prefix class ::gradus::nn::max_pool2d::layer<__VA_ARGS__>;            \
  prefix class ::gradus::nn::average_pool2d::layer<__VA_ARGS__>;        \
  prefix class ::gradus::nn::global_average_pool2d::layer<__VA_ARGS__>; \
  prefix class ::gradus::nn::softmax_cross_entropy::loss<__VA_ARGS__>;  \
  prefix class ::gradus::nn::network<__VA_ARGS__>;
