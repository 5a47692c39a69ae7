// SPDX-License-Identifier: BSL-1.0
//
// Every layer's backward pass against finite differences in double precision, in both layouts.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <tuple>
#include <vector>

#include "../../support/network_checks.hpp"
#include "gradus/nn/layers/adaptive_pool2d.hpp"

namespace nn = gradus::nn;
using gradus_test::check_gradients;
using gradus_test::random_batch;

namespace {

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

struct image_case {
  gradus::index_t batch;
  gradus::index_t channels;
  gradus::index_t height;
  gradus::index_t width;
};

// Odd sizes, one pixel, one channel, a batch of one.
const std::vector<image_case> image_cases{{2, 3, 5, 7}, {1, 1, 1, 1}, {3, 1, 6, 4}, {1, 4, 9, 3}, {2, 2, 2, 2}};

/// input -> 1x1 convolution (so that the gradient that the layer passes back is checked too) -> layer -> dense -> loss.
template <class Layout, class Build>
void check_layer(const image_case& shape, Build&& build) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<double, Layout> net{device, {shape.channels, shape.height, shape.width}};
  nn::value x = net.add("before", nn::conv2d{.out_channels = shape.channels + 1}, net.input());
  x = build(net, x);
  x = net.add("scores", nn::dense{.out_features = 3}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = shape.batch + 1, .seed = 5});  // a batch below the planned one
  const random_batch<double, Layout> batch{device, {shape.batch, shape.channels, shape.height, shape.width}, 3};
  const auto worst = check_gradients(net, batch);
  BOOST_TEST_CONTEXT(Layout::name << " (" << shape.batch << ", " << shape.channels << ", " << shape.height << ", "
                                  << shape.width << ")\n"
                                  << net.describe()) {
    BOOST_TEST(worst.relative < 1e-5, "relative difference " << worst.relative << " at " << worst.where);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_gradients)

BOOST_AUTO_TEST_CASE_TEMPLATE(conv2d_same, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      return net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(conv2d_stride_over_kernel, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      return net.add(
          "conv",
          nn::conv2d{
              .out_channels = 5, .kernel = {1, 2}, .stride = {2, 3}, .padding = nn::padding::same(), .bias = false},
          x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(conv2d_explicit_padding, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      return net.add("conv",
                     nn::conv2d{.out_channels = 2,
                                .kernel = {3, 2},
                                .stride = {1, 2},
                                .padding = nn::padding::explicit_padding(2, 1, 0, 3)},
                     x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(conv2d_valid, Layout, layouts) {
  for (const auto& shape : {image_case{2, 3, 5, 7}, image_case{1, 2, 6, 6}}) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      return net.add("conv", nn::conv2d{.out_channels = 3, .kernel = {3, 5}, .stride = {2, 1}}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(conv2d_groups, Layout, layouts) {
  check_layer<Layout>({2, 3, 5, 4}, [](auto& net, nn::value x) {  // 4 channels after "before"
    return net.add("conv", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same(), .groups = 2},
                   x);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(conv2d_relu_fused, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      x = net.add("relu0", nn::relu{}, x);
      x = net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
      return net.add("relu1", nn::relu{}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dense_relu, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      x = net.add("flatten", nn::flatten{}, x);
      x = net.add("dense", nn::dense{.out_features = 7}, x);
      return net.add("relu", nn::relu{}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(max_pool, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      x = net.add("relu", nn::relu{}, x);
      return net.add("pool", nn::max_pool2d{.kernel = {3, 2}, .stride = {2, 2}, .padding = nn::padding::same()}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(max_pool_dilated, Layout, layouts) {
  check_layer<Layout>({2, 3, 6, 7}, [](auto& net, nn::value x) {
    return net.add(
        "pool", nn::max_pool2d{.kernel = {3, 2}, .stride = 2, .padding = 1, .dilation = {2, 3}, .ceil_mode = true}, x);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(average_pool_rounded_up, Layout, layouts) {
  for (const bool count_padding : {false, true}) {
    check_layer<Layout>({2, 3, 6, 7}, [&](auto& net, nn::value x) {
      return net.add(
          "pool",
          nn::average_pool2d{
              .kernel = 3, .stride = {2, 3}, .padding = {1, 0}, .count_padding = count_padding, .ceil_mode = true},
          x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(adaptive_pools, Layout, layouts) {
  for (const nn::size2d output : {nn::size2d{1, 1}, nn::size2d{3, 2}, nn::size2d{4, 7}, nn::size2d{7, 9}}) {
    for (const auto& shape : image_cases) {
      check_layer<Layout>(shape, [&](auto& net, nn::value x) {
        return net.add("pool", nn::adaptive_average_pool2d{.output = output}, x);
      });
      check_layer<Layout>(
          shape, [&](auto& net, nn::value x) { return net.add("pool", nn::adaptive_max_pool2d{.output = output}, x); });
    }
  }
}

// Windows floor(i * 5 / 3) to ceil((i + 1) * 5 / 3) of rows 0 ... 4: {0, 1}, {1, 2, 3}, {3, 4}, as in PyTorch.
BOOST_AUTO_TEST_CASE(adaptive_windows_overlap_as_in_pytorch) {
  gradus::cpu device;
  const auto run = [&](const auto& options) {
    nn::network<double, gradus::nhwc> net{device, {1, 5, 1}};
    net.add("pool", options, net.input());
    net.compile({.max_batch_size = 1});
    gradus::image_tensor<double, gradus::nhwc> x{device, {1, 1, 5, 1}};
    const std::vector<double> rows{4, 8, 1, 3, 5};
    std::copy(rows.begin(), rows.end(), x.data());
    const auto y = net.forward(x.view());
    return std::vector<double>(y.data(), y.data() + y.size());
  };
  BOOST_CHECK((run(nn::adaptive_average_pool2d{.output = {3, 1}}) == std::vector<double>{6, 4, 4}));
  BOOST_CHECK((run(nn::adaptive_max_pool2d{.output = {3, 1}}) == std::vector<double>{8, 8, 5}));
  BOOST_CHECK((run(nn::adaptive_max_pool2d{.output = {7, 1}}) == std::vector<double>{4, 8, 8, 1, 3, 5, 5}));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(pool_then_relu_in_place, Layout, layouts) {
  check_layer<Layout>({2, 3, 6, 6}, [](auto& net, nn::value x) {
    x = net.add("pool", nn::max_pool2d{.kernel = {2, 2}, .stride = {2, 2}}, x);
    return net.add("relu", nn::relu{}, x);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(average_pool, Layout, layouts) {
  for (const bool count_padding : {false, true}) {
    for (const auto& shape : image_cases) {
      check_layer<Layout>(shape, [&](auto& net, nn::value x) {
        return net.add(
            "pool",
            nn::average_pool2d{
                .kernel = {3, 3}, .stride = {1, 2}, .padding = nn::padding::same(), .count_padding = count_padding},
            x);
      });
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(global_average_pool, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) { return net.add("pool", nn::global_average_pool2d{}, x); });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(batch_norm, Layout, layouts) {
  for (const auto& shape : image_cases) {
    if (shape.batch * shape.height * shape.width < 4) {
      continue;  // the variance of one or two values says little, and its gradient less
    }
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      x = net.add("norm", nn::batch_norm{.epsilon = 0.1}, x);
      x = net.add("relu", nn::relu{}, x);
      return net.add("norm_without_scale", nn::batch_norm{.epsilon = 0.1, .scale = false}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(local_response_norm, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      x = net.add("relu", nn::relu{}, x);
      return net.add("norm", nn::local_response_norm{.radius = 1, .alpha = 0.5, .beta = 0.75, .k = 1}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(pad_channels, Layout, layouts) {
  check_layer<Layout>({2, 3, 4, 3}, [](auto& net, nn::value x) {
    x = net.add("relu", nn::relu{}, x);
    return net.add("pad", nn::pad_channels{.before = 1, .after = 2}, x);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dropout, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      x = net.add("relu", nn::relu{}, x);
      return net.add("dropout", nn::dropout{.rate = 0.4}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(add_and_fan_out, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      x = net.add("relu0", nn::relu{}, x);  // read three times below: its mask belongs to the last gradient
      nn::value y = net.add(
          "conv1", nn::conv2d{.out_channels = net.shape(x).channels, .kernel = {3, 3}, .padding = nn::padding::same()},
          x);
      y = net.add("relu1", nn::relu{}, y);
      y = net.add("add1", nn::add{}, {y, x});
      y = net.add("relu2", nn::relu{}, y);
      return net.add("add2", nn::add{}, {x, y});
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(residual_blocks, Layout, layouts) {
  for (const auto& shape : {image_case{2, 2, 4, 3}, image_case{3, 1, 3, 3}}) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      const auto channels = net.shape(x).channels;
      x = net.add("relu0", nn::relu{}, x);
      for (const auto* block : {"a", "b"}) {  // identity shortcuts around a normalized and around a bare convolution
        const std::string name{block};
        nn::value y = net.add(name + "_conv1", nn::conv2d{.out_channels = 2}, x);
        y = net.add(name + "_norm1", nn::batch_norm{.epsilon = 0.1}, y);
        y = net.add(name + "_relu1", nn::relu{}, y);
        y = net.add(name + "_conv2", nn::conv2d{.out_channels = channels, .bias_initializer = nn::normal(0.3)}, y);
        if (name == "a") {
          y = net.add(name + "_norm2", nn::batch_norm{.epsilon = 0.1}, y);
        }
        x = net.add(name + "_add", nn::add{}, {y, x});
        x = net.add(name + "_relu2", nn::relu{}, x);
      }
      // A projected shortcut, and one that is read by a later layer too.
      const nn::value shortcut =
          net.add("p_norm", nn::batch_norm{.epsilon = 0.1}, net.add("p", nn::conv2d{.out_channels = 2}, x));
      nn::value y = net.add("c_norm", nn::batch_norm{.epsilon = 0.1}, net.add("c", nn::conv2d{.out_channels = 2}, x));
      y = net.add("c_add", nn::add{}, {shortcut, y});
      return net.add("c_again", nn::add{}, {net.add("c_relu", nn::relu{}, y), shortcut});
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shortcut_that_convolutions_add_twice, Layout, layouts) {
  check_layer<Layout>({2, 2, 4, 3}, [](auto& net, nn::value a) {
    const auto channels = net.shape(a).channels;
    nn::value x = net.add("relu", nn::relu{}, net.add("conv1", nn::conv2d{.out_channels = channels}, a));
    x = net.add("conv2", nn::conv2d{.out_channels = channels}, x);
    const nn::value y = net.add("add1", nn::add{}, {x, a});
    return net.add("add2", nn::add{}, {net.add("conv3", nn::conv2d{.out_channels = channels}, y), a});
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(relu_whose_gradient_ends_with_a_residual, Layout, layouts) {
  check_layer<Layout>({2, 2, 4, 3}, [](auto& net, nn::value x) {
    const nn::value a = net.add("relu", nn::relu{}, net.add("conv1", nn::conv2d{.out_channels = 2}, x));
    nn::value b = net.add("conv2", nn::conv2d{.out_channels = 2}, x);
    b = net.add("norm", nn::batch_norm{.epsilon = 0.1}, b);
    const nn::value s = net.add("add", nn::add{}, {b, a});
    return net.add("joined", nn::concat{}, {s, net.add("conv3", nn::conv2d{.out_channels = 2}, a)});
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(add_of_a_value_to_itself, Layout, layouts) {
  check_layer<Layout>({2, 2, 3, 3}, [](auto& net, nn::value x) {
    x = net.add("relu", nn::relu{}, x);
    return net.add("twice", nn::add{}, {x, x});
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(concat_of_branches, Layout, layouts) {
  for (const auto& shape : image_cases) {
    check_layer<Layout>(shape, [](auto& net, nn::value x) {
      const nn::value a = net.add("relu_a", nn::relu{}, net.add("a", nn::conv2d{.out_channels = 2}, x));
      const nn::value b =
          net.add("b", nn::conv2d{.out_channels = 3, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
      x = net.add("joined", nn::concat{}, {a, x, b});
      return net.add("relu_joined", nn::relu{}, x);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(relu_read_twice_is_not_fused, Layout, layouts) {
  check_layer<Layout>({2, 3, 4, 4}, [](auto& net, nn::value x) {
    const nn::value y = net.add("relu", nn::relu{}, x);  // x is read again: it must stay as it is
    return net.add("add", nn::add{}, {x, y});
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(flatten_read_beside_an_image, Layout, layouts) {
  check_layer<Layout>({2, 3, 3, 2}, [](auto& net, nn::value x) {
    const nn::value f = net.add("dense_f", nn::dense{.out_features = 4}, net.add("flatten", nn::flatten{}, x));
    const nn::value g = net.add("dense_g", nn::dense{.out_features = 4}, net.add("relu", nn::relu{}, x));
    return net.add("add", nn::add{}, {f, g});
  });
}

BOOST_AUTO_TEST_SUITE_END()
