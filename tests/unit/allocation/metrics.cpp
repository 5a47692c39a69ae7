// SPDX-License-Identifier: BSL-1.0
//
// An evaluation with metrics allocates nothing for a batch after the first.
#include <boost/test/unit_test.hpp>

#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/metrics.hpp"
#include "gradus/train/trainer.hpp"

#include "counter.hpp"

BOOST_AUTO_TEST_SUITE(allocation_of_metrics)

BOOST_AUTO_TEST_CASE(more_batches_allocate_no_more) {
  namespace data = gradus::data;
  namespace metrics = gradus::metrics;
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::nn::network<float, gradus::nhwc> net{device, {.channels = 1, .height = 4, .width = 4}};
  net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 5}, net.input()));
  net.compile({.max_batch_size = 8});
  gradus::train::trainer trainer{net, gradus::optim::sgd{}};
  const auto few = data::make_synthetic({.examples = 16, .height = 4, .width = 4, .classes = 5});
  const auto many = data::make_synthetic({.examples = 160, .height = 4, .width = 4, .classes = 5});
  data::loader<float, gradus::nhwc> few_batches{device, few, {.global_batch_size = 8}};
  data::loader<float, gradus::nhwc> many_batches{device, many, {.global_batch_size = 8}};
  const metrics::list all{metrics::top_k{3}, metrics::confusion_matrix{}, metrics::intersection_over_union{}};
  const auto count = [&](auto& loader) {
    const long before = gradus_test::allocations.load();
    (void)trainer.evaluate(loader, all);
    return gradus_test::allocations.load() - before;
  };
  (void)count(few_batches);
  (void)count(many_batches);
  BOOST_TEST(count(few_batches) == count(many_batches));
}

BOOST_AUTO_TEST_SUITE_END()
