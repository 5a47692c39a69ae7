// SPDX-License-Identifier: BSL-1.0
//
// Adds a network of the zoo to an empty network.
#pragma once

#include "gradus/models/alexnet.hpp"
#include "gradus/models/deeplab.hpp"
#include "gradus/models/densenet.hpp"
#include "gradus/models/googlenet.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/lenet.hpp"
#include "gradus/models/mlp.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/mobilenet_v2.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/unet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/losses.hpp"
#include "zoo.hpp"

namespace driver {

template <class Network>
void build_model(Network& net, const model_properties& model, int classes) {
  namespace models = gradus::models;
  const models::resnet_options residual{.classes = classes,
                                        .version = model.version == 2    ? models::resnet_version::v2
                                                   : model.version == 15 ? models::resnet_version::v1_5
                                                                         : models::resnet_version::v1};
  switch (model.family) {
    case family::trivial:
      return models::trivial(net, classes);
    case family::lenet:
      return models::lenet(net, classes);
    case family::mnist:
      return models::mnist(net, {.classes = classes});
    case family::mlp:
      net.loss(gradus::nn::softmax_cross_entropy{},
               models::mlp(net, models::mlp_options<>{.hidden = {100}, .outputs = classes}));
      return;
    case family::mobilenet:
      return models::mobilenet_v2(net, {.classes = classes});
    case family::alexnet:
      return models::alexnet(net, classes);
    case family::cifar_alexnet:
      return models::cifar_alexnet(net, classes);
    case family::densenet:
      return models::densenet(net, model.depth, classes);
    case family::cifar_densenet:
      return models::cifar_densenet(net, model.depth, model.version, classes);
    case family::unet:
      net.loss(gradus::nn::softmax_cross_entropy{}, models::unet(net, {.out_channels = classes, .depth = model.depth}));
      return;
    case family::deeplab:
      net.loss(gradus::nn::softmax_cross_entropy{},
               models::deeplab_v3_plus(net, {.classes = classes, .depth = model.depth}));
      return;
    case family::overfeat:
      return models::overfeat(net, classes);
    case family::vgg:
      return models::vgg(net, model.depth, classes);
    case family::googlenet:
      return models::googlenet(net, classes);
    case family::inception3:
      return models::inception3(net, classes);
    case family::inception4:
      return models::inception4(net, classes);
    case family::resnet:
      return models::resnet(net, model.depth, residual);
    case family::cifar:
      return models::cifar_resnet(net, model.depth, residual);
  }
}

}  // namespace driver
