// SPDX-License-Identifier: BSL-1.0
//
// A layer of a program without one of the things that net.add needs.
// EXPECT_ERROR(template): options of your own have a nested template
// EXPECT_ERROR(base): derive the class layer of these options publicly from
// EXPECT_ERROR(backward): it must override kind(), infer(inputs), forward
// EXPECT_ERROR(constructor): give it a constructor that takes its options
#include <span>
#include <string_view>

#include "gradus/nn/network.hpp"

namespace nn = gradus::nn;

struct doubled {
#ifndef GRADUS_TEST_CASE_TEMPLATE
  template <class Element, class Layout, class Device>
#ifdef GRADUS_TEST_CASE_BASE
  class layer : nn::layer<Element, Layout, Device> {
#else
  class layer : public nn::layer<Element, Layout, Device> {
#endif
    using base = nn::layer<Element, Layout, Device>;

   public:
#ifndef GRADUS_TEST_CASE_CONSTRUCTOR
    explicit layer(const doubled& /*options*/) {}
#endif
    std::string_view kind() const noexcept override {
      return "doubled";
    }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override {
      return inputs[0];
    }
    void forward(const typename base::forward_call& /*call*/) override {}
#ifndef GRADUS_TEST_CASE_BACKWARD
    void backward(const typename base::backward_call& /*call*/) override {}
#endif
  };
#endif
};

void build(nn::network<float, gradus::nhwc>& net) {
  net.add("twice", doubled{}, net.input());
}
