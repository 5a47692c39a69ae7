// SPDX-License-Identifier: BSL-1.0
//
// A forward pass of a network that is compiled for inference allocates nothing: not the first one either.
#include <boost/test/unit_test.hpp>

#include <tuple>

#include "../../support/branching_networks.hpp"
#include "../../support/network_checks.hpp"
#include "gradus/nn/inference_session.hpp"
#include "gradus/nn/network.hpp"

#include "counter.hpp"

BOOST_AUTO_TEST_SUITE(allocation_of_inference)

using inference_layouts = std::tuple<gradus::nchw, gradus::nhwc>;

BOOST_AUTO_TEST_CASE_TEMPLATE(a_forward_pass_allocates_nothing, Layout, inference_layouts) {
  for (const int lanes : {1, 2}) {
    gradus::cpu device{{.intra_op_threads = 2, .inter_op_threads = lanes}};
    gradus::nn::network<float, Layout> net{device, {3, 13, 11}};
    gradus_test::build_branching(net);
    net.compile_for_inference({.max_batch_size = 6, .parallel_branches = lanes > 1});
    net.values()[0] += 1;
    net.update_weights();
    gradus::nn::inference_session session{net};
    const gradus_test::random_batch<float, Layout> batch{device, {6, 3, 13, 11}, 5};
    const long before = gradus_test::allocations.load();
    for (int pass = 0; pass < 3; ++pass) {
      (void)net.forward(batch.images);
      (void)session.forward(batch.images.view().slice(0, 5));
      (void)net.evaluate(batch.images, batch.labels);
    }
    BOOST_TEST(gradus_test::allocations.load() == before);
  }
}

BOOST_AUTO_TEST_SUITE_END()
