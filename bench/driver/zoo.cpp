// SPDX-License-Identifier: BSL-1.0
//
// The networks that gradus_bench knows, by name.
#include "zoo.hpp"

namespace driver {

namespace {

constexpr model_properties imagenet(const char* name, family kind, int depth, int version, index_t pixels,
                                    index_t batch) {
  return {name, kind, depth, version, {.channels = 3, .height = pixels, .width = pixels}, 1001, batch, "imagenet"};
}
constexpr model_properties cifar10(const char* name, int depth, int version) {
  return {name, family::cifar, depth, version, {.channels = 3, .height = 32, .width = 32}, 11, 128, "cifar10"};
}

constexpr model_properties cifar_densenet(const char* name, int depth, int growth_rate) {
  return {name,     family::cifar_densenet, depth, growth_rate, {.channels = 3, .height = 32, .width = 32}, 11, 64,
          "cifar10"};
}

constexpr model_properties zoo[] = {
    imagenet("trivial", family::trivial, 0, 0, 227, 32),
    imagenet("lenet", family::lenet, 0, 0, 28, 32),
    {"mnist", family::mnist, 0, 0, {.channels = 1, .height = 28, .width = 28}, 10, 64, "mnist"},
    {"mlp", family::mlp, 0, 0, {.channels = 1, .height = 28, .width = 28}, 10, 64, "mnist"},
    imagenet("alexnet", family::alexnet, 0, 0, 227, 512),
    imagenet("overfeat", family::overfeat, 0, 0, 231, 32),
    imagenet("vgg11", family::vgg, 11, 0, 224, 64),
    imagenet("vgg16", family::vgg, 16, 0, 224, 64),
    imagenet("vgg19", family::vgg, 19, 0, 224, 64),
    imagenet("googlenet", family::googlenet, 0, 0, 224, 32),
    imagenet("inception3", family::inception3, 0, 0, 299, 32),
    imagenet("inception4", family::inception4, 0, 0, 299, 32),
    imagenet("mobilenet_v2", family::mobilenet, 0, 2, 224, 64),
    imagenet("resnet18", family::resnet, 18, 1, 224, 64),
    imagenet("resnet34", family::resnet, 34, 1, 224, 64),
    imagenet("resnet50", family::resnet, 50, 1, 224, 64),
    imagenet("resnet50_v1.5", family::resnet, 50, 15, 224, 64),
    imagenet("resnet50_v2", family::resnet, 50, 2, 224, 64),
    imagenet("resnet101", family::resnet, 101, 1, 224, 32),
    imagenet("resnet101_v2", family::resnet, 101, 2, 224, 32),
    imagenet("resnet152", family::resnet, 152, 1, 224, 32),
    imagenet("resnet152_v2", family::resnet, 152, 2, 224, 32),
    imagenet("densenet121", family::densenet, 121, 0, 224, 32),
    imagenet("densenet161", family::densenet, 161, 0, 224, 32),
    imagenet("densenet169", family::densenet, 169, 0, 224, 32),
    imagenet("densenet201", family::densenet, 201, 0, 224, 32),
    {"alexnet_cifar", family::cifar_alexnet, 0, 0, {.channels = 3, .height = 32, .width = 32}, 11, 128, "cifar10"},
    cifar_densenet("densenet40_k12", 40, 12),
    cifar_densenet("densenet100_k12", 100, 12),
    cifar_densenet("densenet100_k24", 100, 24),
    // A grey image with two classes, in batches of one, as in the U-Net's paper; a color image with 21.
    {"unet", family::unet, 4, 0, {.channels = 1, .height = 512, .width = 512}, 2, 1, "isbi2012"},
    {"deeplab_v3_plus", family::deeplab, 50, 0, {.channels = 3, .height = 513, .width = 513}, 21, 4, "voc2012"},
    cifar10("resnet20", 20, 1),
    cifar10("resnet20_v2", 20, 2),
    cifar10("resnet32", 32, 1),
    cifar10("resnet32_v2", 32, 2),
    cifar10("resnet44", 44, 1),
    cifar10("resnet44_v2", 44, 2),
    cifar10("resnet56", 56, 1),
    cifar10("resnet56_v2", 56, 2),
    cifar10("resnet110", 110, 1),
    cifar10("resnet110_v2", 110, 2),
    cifar10("resnet164_v2", 164, 2),
    cifar10("resnet1001_v2", 1001, 2),
    cifar10("resnet5000_v2", 4997, 2),  // 9 n + 2 layers with n = 555, the most below 5000
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const model_properties& each : zoo) {
    names.emplace_back(each.name);
  }
  return names;
}

const model_properties& find_model(const std::string& name) {
  for (const model_properties& each : zoo) {
    if (name == each.name) {
      return each;
    }
  }
  return zoo[0];
}

}  // namespace driver
