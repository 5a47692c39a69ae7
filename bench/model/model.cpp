// SPDX-License-Identifier: BSL-1.0
//
// Networks of gradus_bench, by name.
#include "model.hpp"

#include "build_model.hpp"
#include "gradus/data/synthetic.hpp"
#include "zoo.hpp"

namespace bench {

namespace {

network make_empty_network(gradus::cpu& device, const model_options& options) {
  const gradus::nn::value_shape image = options.image();
  return network{device, {.channels = image.channels, .height = image.height, .width = image.width}};
}

void build(network& net, const model_options& options) {
  const driver::model_properties& model = driver::find_model(options.name);
  driver::build_model(net, model, model.classes);
}

}  // namespace

gradus::nn::value_shape model_options::image() const {
  gradus::nn::value_shape shape = driver::find_model(name).image;
  if (pixels > 0) {
    shape.height = shape.width = pixels;
  }
  return shape;
}

void add_model_options(CLI::App& app, model_options& options) {
  app.add_option("--model", options.name, "the network")
      ->check(CLI::IsMember(driver::model_names()))
      ->capture_default_str();
  app.add_option("--batch-size-per-rank,--batch-size", options.batch_size_per_rank, "images of a step on one rank")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--pixels", options.pixels, "height and width of an image (default: what the network is made for)")
      ->check(CLI::Range(1, 4096));
}

void require_network(const model_options& options) {
  gradus::cpu device{{.intra_op_threads = 1}};
  network net = make_empty_network(device, options);
  build(net, options);
}

network make_network(gradus::cpu& device, const model_options& options) {
  network net = make_empty_network(device, options);
  build(net, options);
  net.compile({.max_batch_size = options.batch_size_per_rank, .seed = 1});
  return net;
}

gradus::data::image_dataset make_images(const model_options& options, index_t examples) {
  const gradus::nn::value_shape image = options.image();
  return gradus::data::make_synthetic(
      {.examples = examples, .channels = image.channels, .height = image.height, .width = image.width});
}

}  // namespace bench
