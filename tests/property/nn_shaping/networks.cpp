// SPDX-License-Identifier: BSL-1.0
//
// Layers that move, resize and combine images in networks: the contract with the plan, gradients against finite
// differences, shared memory, errors, devices.
#include <boost/test/unit_test.hpp>

#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "gradus/conformance/shaping_layers.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "gradus/nn/network.hpp"
#include "kernel_archetype.hpp"
#include "network_checks.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::axis;
using gradus::index_t;

template <class Element, class Layout>
struct shaping_kind {
  using element = Element;
  using layout = Layout;
};
using shaping_kinds =
    std::tuple<shaping_kind<double, gradus::nchw>, shaping_kind<double, gradus::nhwc>,
               shaping_kind<float, gradus::nchw>, shaping_kind<float, gradus::nhwc>,
               shaping_kind<gradus::bfloat16, gradus::nchw>, shaping_kind<gradus::bfloat16, gradus::nhwc>,
               shaping_kind<gradus::float16, gradus::nchw>, shaping_kind<gradus::float16, gradus::nhwc>>;
using shaping_layouts = std::tuple<gradus::nchw, gradus::nhwc>;

template <class Layout>
void check_shaping_gradients(const char* what, const auto& build, const nn::compile_options& options = {}) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<double, Layout> net{device, {2, 6, 5}};
  build(net);
  nn::compile_options compiled = options;
  compiled.max_batch_size = 3;
  compiled.seed = 4;
  net.compile(compiled);
  const gradus_test::random_batch<double, Layout> batch{device, {2, 2, 6, 5}, 3};
  const auto worst = gradus_test::check_gradients(net, batch);
  BOOST_TEST(worst.relative < 1e-5, what << ' ' << Layout::name << ": relative difference " << worst.relative << " at "
                                         << worst.where << '\n'
                                         << net.describe());
}

template <class Network>
void end_with_scores(Network& net, nn::value x) {
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
}

/// Two levels of a U-Net whose convolutions take no padding, with a gate and probabilities.
template <class Network>
void build_u_net(Network& net, nn::interpolation mode) {
  const auto conv = [&](const std::string& name, index_t channels, nn::value x) {
    return net.add(name + "_relu", nn::relu{},
                   net.add(name, nn::conv2d{.out_channels = channels, .kernel = {3, 3}}, x));
  };
  const nn::value left = conv("left", 3, net.input());                                      // 4 x 3
  nn::value x = net.add("pool", nn::max_pool2d{.kernel = {2, 2}, .stride = {1, 1}}, left);  // 3 x 2
  x = net.add("bottom", nn::relu{}, net.add("bottom_conv", nn::conv2d{.out_channels = 4, .kernel = {2, 2}}, x));
  x = net.add("up", nn::upsample2d{.size = {3, 2}, .mode = mode}, x);  // 3 x 2
  x = net.add("joined", nn::concat{}, {net.add("skip", nn::crop2d{}, {left, x}), x});
  const nn::value gate =
      net.add("gate", nn::conv2d{.out_channels = 7}, net.add("means", nn::global_average_pool2d{}, x));
  x = net.add("gated", nn::multiply{}, {gate, x});
  x = net.add("twice", nn::upsample2d{.scale = {2, 1}, .mode = mode}, x);
  end_with_scores(net, net.add("probabilities", nn::softmax{}, x));
}

template <class Layout>
double loss_and_memory(bool reshaped, std::size_t& bytes) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<float, Layout> net{device, {3, 4, 5}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 6}, net.input());
  if (reshaped) {
    x = net.add("rows", nn::reshape{.channels = 6, .height = 20}, x);
  }
  end_with_scores(net, x);
  bytes = net.forecast({.max_batch_size = 4}).total();
  net.compile({.max_batch_size = 4, .seed = 2});
  const gradus_test::random_batch<float, Layout> batch{device, {4, 3, 4, 5}, 3};
  return net.train_step(batch.images, batch.labels).loss;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_shaping)

BOOST_AUTO_TEST_CASE_TEMPLATE(layers_keep_their_contract, Kind, shaping_kinds) {
  gradus::cpu device{{.intra_op_threads = 2}};
  for (const gradus::conformance::result& each :
       gradus::conformance::check_shaping_layers<typename Kind::element, typename Kind::layout>(device)) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
}

BOOST_AUTO_TEST_CASE(every_layer_has_a_case) {
  std::set<std::size_t> seen;
  for (const auto& each : gradus::conformance::shaping_layer_cases()) {
    seen.insert(each.options.index());
  }
  BOOST_TEST(seen.size() == std::variant_size_v<gradus::conformance::shaping_layer_options>);
}

BOOST_AUTO_TEST_CASE(layers_run_on_the_required_overloads_only) {
  archetypes::kernel_device device;
  for (const auto& each : gradus::conformance::check_shaping_layers<float, gradus::nhwc>(device)) {
    BOOST_TEST(each.failure == "", each.name << ": " << each.failure);
  }
  // A device without kernels has none of them.
  static_assert(!gradus::kernels::has_strided_copy<archetypes::device, float>);
  static_assert(!gradus::kernels::has_resize2d<archetypes::device, float>);
  static_assert(!gradus::kernels::has_scale_channels<archetypes::device, float>);
  static_assert(!gradus::kernels::has_channel_softmax<archetypes::device, float>);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(networks_have_the_gradients_of_finite_differences, Layout, shaping_layouts) {
  for (const nn::interpolation mode : {nn::interpolation::nearest, nn::interpolation::bilinear}) {
    check_shaping_gradients<Layout>("U-Net", [&](auto& net) { build_u_net(net, mode); });
    check_shaping_gradients<Layout>("U-Net", [&](auto& net) { build_u_net(net, mode); }, {.recompute = true});
  }
  check_shaping_gradients<Layout>("moves", [](auto& net) {
    nn::value x = net.add("relu", nn::relu{}, net.add("conv", nn::conv2d{.out_channels = 8}, net.input()));
    nn::value y = net.add("shuffle", nn::pixel_shuffle{}, x);
    y = net.add("permute", nn::permute{.axes = {axis::w, axis::c, axis::h}}, y);
    y = net.add("back", nn::permute{.axes = {axis::h, axis::w, axis::c}}, y);
    y = net.add("unshuffle", nn::pixel_unshuffle{}, y);
    y = net.add("sum", nn::add{}, {y, x});
    const nn::value a = net.add("a", nn::slice{.channels = {1, 4}, .rows = {2, 5}}, y);
    const nn::value b = net.add("b", nn::slice{.channels = {5, 8}, .rows = {3, 6}}, y);
    end_with_scores(net, net.add("square", nn::multiply{}, {net.add("ab", nn::multiply{}, {a, b}), a}));
  });
  check_shaping_gradients<Layout>("reshapes", [](auto& net) {
    nn::value x = net.add("conv", nn::conv2d{.out_channels = 6}, net.input());
    x = net.add("relu", nn::relu{}, x);
    nn::value y = net.add("columns", nn::reshape{.channels = 6, .height = 5, .width = 6}, x);  // alias in both layouts
    y = net.add("sum", nn::add{}, {net.add("back", nn::reshape{.channels = 6, .height = 6, .width = 5}, y), x});
    y = net.add("unrefined", nn::reshape{.channels = 4, .height = 9, .width = 5}, y);
    y = net.add("mixed", nn::conv2d{.out_channels = 3}, y);
    y = net.add("of_flat", nn::reshape{.channels = 9, .height = -1, .width = 5}, net.add("flat", nn::flatten{}, y));
    y = net.add("logs", nn::log_softmax{}, net.add("again", nn::conv2d{.out_channels = 3}, y));
    y = net.add("square", nn::multiply{}, {y, y});
    end_with_scores(net, net.add("all", nn::softmax{}, net.add("flat2", nn::flatten{}, y)));
  });
}

BOOST_AUTO_TEST_CASE(a_reshape_that_keeps_the_memory_order_takes_no_memory) {
  const auto check = []<class Layout>(Layout) {
    std::size_t plain = 0;
    std::size_t reshaped = 0;
    const double expected = loss_and_memory<Layout>(false, plain);
    const double got = loss_and_memory<Layout>(true, reshaped);
    BOOST_TEST(got == expected, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(reshaped == plain);
  };
  check(gradus::nchw{});
  check(gradus::nhwc{});
  const auto aliases = []<class Layout>(Layout, const nn::reshape& options, const nn::value_shape& from) {
    typename nn::reshape::layer<float, Layout, gradus::cpu> layer{options};
    layer.infer(std::vector{from});
    return layer.traits().aliases_input;
  };
  const nn::value_shape image{4, 6, 5};
  BOOST_TEST(aliases(gradus::nchw{}, {.channels = 6, .height = 4, .width = 5}, image));
  BOOST_TEST(!aliases(gradus::nhwc{}, {.channels = 6, .height = 4, .width = 5}, image));
  BOOST_TEST(aliases(gradus::nhwc{}, {.channels = 4, .height = 10, .width = 3}, image));
  BOOST_TEST(!aliases(gradus::nhwc{}, {.channels = 120}, image));
  BOOST_TEST(aliases(gradus::nhwc{}, {.channels = 1, .height = 3, .width = -1}, {12, 1, 1}));
}

BOOST_AUTO_TEST_CASE(wrong_shapes_and_options_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {4, 5, 7}};
  const nn::value x = net.input();
  const nn::value flat = net.add("flat", nn::flatten{}, x);
  const nn::value small = net.add("small", nn::slice{.rows = {0, 2}}, x);
  int number = 0;
  const auto says = [&](const auto& options, const std::vector<nn::value>& inputs, const std::string& expected) {
    std::string text = "nothing was thrown";
    try {
      net.add("layer" + std::to_string(number++), options, inputs);
    } catch (const gradus::error& failure) {
      text = std::string{failure.message()};
    }
    BOOST_TEST(text.find(expected) != std::string::npos, '"' << text << "\" does not say \"" << expected << '"');
  };
  says(nn::upsample2d{.scale = {0, 2}}, {x}, "scale.height of at least 1");
  says(nn::upsample2d{.size = {0, 2}}, {x}, "size.height of at least 1");
  says(nn::upsample2d{.align_corners = true}, {x}, "align_corners with interpolation::bilinear");
  says(nn::upsample2d{.size = {3, 3}}, {x, small}, "a size or a second input");
  says(nn::upsample2d{}, {flat}, "resize before nn::flatten");
  says(nn::upsample2d{}, {x, small, small}, "1 input value, or 2");
  says(nn::crop2d{}, {x}, "size.height of at least 1");
  says(nn::crop2d{.top = 3, .size = {3, 3}}, {x}, "an image of at least 6 x 3 pixels");
  says(nn::crop2d{.top = -1, .size = {3, 3}}, {x}, "top of at least 0");
  says(nn::crop2d{.top = 1}, {x, small}, "no top, left and size with a second input");
  says(nn::crop2d{}, {small, x}, "an image of at least 5 x 7 pixels");
  says(nn::slice{.channels = {2, 2}}, {x}, "channels within [0, 4)");
  says(nn::slice{.columns = {2, 8}}, {x}, "columns within [0, 7)");
  says(nn::slice{}, {flat}, "slice before nn::flatten");
  says(nn::pixel_shuffle{.factor = 3}, {x}, "channels that 9, the square of the factor, divides");
  says(nn::pixel_shuffle{.factor = 0}, {x}, "factor of at least 1");
  says(nn::pixel_unshuffle{}, {x}, "a height and a width that the factor 2 divides");
  says(nn::permute{.axes = {axis::c, axis::c, axis::w}}, {x}, "axes that name c, h and w once each");
  says(nn::permute{.axes = {axis::n, axis::h, axis::w}}, {x}, "axes that name c, h and w once each");
  says(nn::reshape{.channels = 3}, {x}, "an image of 140 elements");
  says(nn::reshape{.channels = 3, .height = -1}, {x}, "an image of 140 elements");
  says(nn::reshape{.channels = -1, .height = -1}, {x}, "-1 in one of them at most");
  says(nn::multiply{}, {x, small}, "two values of one shape, or an image (C, H, W) and a vector (C)");
  says(nn::multiply{}, {x}, "2 input value(s)");
  says(nn::softmax{}, {x, x}, "1 input value(s)");
}

BOOST_AUTO_TEST_SUITE_END()
