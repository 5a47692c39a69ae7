// SPDX-License-Identifier: BSL-1.0
//
// Weights of networks that are saved and loaded: layouts, types, names, parts, and what is refused.
#include "gradus/io/weights.hpp"

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"
#include "idx_files.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::nchw;
using gradus::nhwc;

/// A convolution, a normalization, and two dense layers, the first of an image.
template <class Element, class Layout>
class weighted_network {
 public:
  explicit weighted_network(unsigned seed, gradus::index_t classes = 5, std::string_view head = "head") {
    nn::value x = net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 2}, .bias = false}, net.input());
    x = net.add("norm", nn::batch_norm{}, x);
    x = net.add("relu", nn::relu{}, x);
    x = net.add("dense", nn::dense{.out_features = 6}, x);
    x = net.add(head, nn::dense{.out_features = classes}, x);
    net.loss(nn::softmax_cross_entropy{}, x);
    net.compile({.max_batch_size = 2, .seed = seed});
    for (std::size_t i = 0; i < net.buffer_values().size(); ++i) {  // running statistics that are not initial
      net.buffer_values()[i] = static_cast<float>(seed + i) / 8;
    }
  }

  /// All values in the logical order.
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> all;
    for (const auto& each : net.parameters()) {
      for (const auto value : each.copy_values()) {
        all.push_back(static_cast<double>(value));
      }
    }
    for (const auto& each : net.buffers()) {
      for (gradus::index_t i = 0; i < each.elements.size(); ++i) {
        all.push_back(static_cast<double>(each.elements.data()[i]));
      }
    }
    return all;
  }

  gradus::cpu device;
  nn::network<Element, Layout> net{device, {.channels = 3, .height = 5, .width = 4}};
};

class weights_folder {
 public:
  [[nodiscard]] std::string path(std::string_view name = "w.safetensors") const {
    return (folder_.path() / name).string();
  }

 private:
  idx_files::folder folder_;
};

template <class Error, class Action>
std::string message_of_weights(const Action& action) {
  return idx_files::message_of<Error>(action);
}

BOOST_AUTO_TEST_SUITE(weights)

BOOST_AUTO_TEST_CASE(saved_weights_are_loaded_in_any_layout_and_type) {
  const weights_folder folder;
  const weighted_network<float, nchw> saved{1};
  gradus::io::save_weights(saved.net, folder.path());
  const auto load = [&]<class Element, class Layout>() {
    weighted_network<Element, Layout> other{2};
    BOOST_TEST((other.values() != saved.values()));
    const auto report = gradus::io::load_weights(other.net, folder.path());
    BOOST_TEST((other.values() == saved.values()));
    BOOST_TEST(report.complete());
    BOOST_TEST(report.loaded.size() == 9U);
    gradus::io::save_weights(other.net, folder.path("again.safetensors"));
    weighted_network<float, nchw> third{3};
    (void)gradus::io::load_weights(third.net, folder.path("again.safetensors"));
    BOOST_TEST((third.values() == saved.values()));
  };
  load.template operator()<float, nchw>();
  load.template operator()<float, nhwc>();
  load.template operator()<double, nhwc>();
  load.template operator()<gradus::bfloat16, nhwc>();
  load.template operator()<gradus::float16, nchw>();
}

BOOST_AUTO_TEST_CASE(files_have_logical_shapes_and_the_type_of_parameters) {
  const weights_folder folder;
  gradus::io::save_weights(weighted_network<gradus::bfloat16, nhwc>{1}.net, folder.path());
  const gradus::io::safetensors_file file{folder.path()};
  const auto shape = [&](std::string_view name) { return gradus::io::detail::shape_text(file.entry(name).shape); };
  BOOST_TEST(shape("conv.weight") == "[4, 3, 3, 2]");
  BOOST_TEST(shape("norm.weight") == "[4]");
  BOOST_TEST(shape("norm.running_mean") == "[4]");
  BOOST_TEST(shape("norm.running_var") == "[4]");  // as in PyTorch
  BOOST_TEST(shape("dense.weight") == "[6, 36]");
  BOOST_TEST(shape("head.bias") == "[5]");
  BOOST_TEST((file.entry("conv.weight").type == gradus::io::element_type::f32));
  BOOST_TEST(*file.metadata("format") == "pt");
  gradus::io::save_weights(weighted_network<double, nchw>{1}.net, folder.path(), {.metadata = {{"epoch", "3"}}});
  const gradus::io::safetensors_file exact{folder.path()};
  BOOST_TEST((exact.entry("conv.weight").type == gradus::io::element_type::f64));
  BOOST_TEST(*exact.metadata("epoch") == "3");
}

BOOST_AUTO_TEST_CASE(files_may_have_another_type) {
  const weights_folder folder;
  const weighted_network<float, nhwc> saved{1};
  weighted_network<float, nhwc> other{2};
  gradus::io::save_weights(saved.net, folder.path(), {.type = gradus::io::element_type::f64});
  (void)gradus::io::load_weights(other.net, folder.path());
  BOOST_TEST((other.values() == saved.values()));
  gradus::io::save_weights(saved.net, folder.path(), {.type = gradus::io::element_type::bf16});
  BOOST_TEST((gradus::io::safetensors_file{folder.path()}.entry("dense.bias").type == gradus::io::element_type::bf16));
  (void)gradus::io::load_weights(other.net, folder.path());
  std::vector<double> rounded;
  for (const double value : saved.values()) {
    rounded.push_back(static_cast<double>(gradus::bfloat16{static_cast<float>(value)}));
  }
  BOOST_TEST((other.values() == rounded));
  BOOST_CHECK_THROW(gradus::io::save_weights(saved.net, folder.path(), {.type = gradus::io::element_type::i64}),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(all_differences_are_reported_and_nothing_changes) {
  const weights_folder folder;
  gradus::io::save_weights(weighted_network<float, nchw>{1, 7, "scores"}.net, folder.path());
  weighted_network<float, nchw> other{2};
  const auto before = other.values();
  const auto message =
      message_of_weights<gradus::format_error>([&] { (void)gradus::io::load_weights(other.net, folder.path()); });
  BOOST_TEST(
      message.find("expected the weights of the network, got missing 'head.weight', 'head.bias'; unexpected "
                   "'scores.bias', 'scores.weight'. Hint: {.strict = false} loads what fits") != std::string::npos,
      message);
  BOOST_TEST(message.find("weights.cpp:") != std::string::npos, message);
  gradus::io::save_weights(weighted_network<float, nchw>{1, 7}.net, folder.path());
  const auto shapes =
      message_of_weights<gradus::format_error>([&] { (void)gradus::io::load_weights(other.net, folder.path()); });
  BOOST_TEST(shapes.find("'head.weight' with the shape [7, 6] instead of [5, 6]") != std::string::npos, shapes);
  BOOST_TEST((other.values() == before));
  const auto report = gradus::io::load_weights(other.net, folder.path(), {.strict = false});
  BOOST_TEST(report.loaded.size() == 7U);
  BOOST_TEST(report.mismatched.size() == 2U);
  BOOST_TEST(report.missing.empty());
  BOOST_TEST((other.values() != before));
}

BOOST_AUTO_TEST_CASE(a_part_is_loaded_for_another_task) {
  const weights_folder folder;
  const weighted_network<float, nchw> saved{1, 7, "scores"};
  gradus::io::save_weights(saved.net, folder.path());
  weighted_network<float, nhwc> other{2};
  const auto head = other.net.find_parameter("head.weight").copy_values();
  const auto report = gradus::io::load_weights(other.net, folder.path(), {.only = {"conv.*", "norm.*"}});
  BOOST_TEST(report.loaded.size() == 5U);
  BOOST_TEST(
      (other.net.find_parameter("conv.weight").copy_values() == saved.net.find_parameter("conv.weight").copy_values()));
  BOOST_TEST((other.net.find_parameter("head.weight").copy_values() == head));
  BOOST_TEST((other.net.find_parameter("dense.weight").copy_values() !=
              saved.net.find_parameter("dense.weight").copy_values()));
  BOOST_TEST(message_of_weights<gradus::configuration_error>([&] {
               (void)gradus::io::load_weights(other.net, folder.path(), {.only = "encoder.*"});
             }).find("got 'encoder.*', which fits none of them") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(files_are_saved_with_the_names_of_a_map_and_loaded_with_the_same_map) {
  const gradus::io::name_map names{
      {"bn.running_var", "norm.running_variance"}, {"bn.*", "norm.*"}, {"fc.*", "head.*"}, {"auxiliary.*", ""}};
  const weights_folder folder;
  const weighted_network<float, nchw> saved{1};
  gradus::io::save_weights(saved.net, folder.path(), {.rename = names});
  const gradus::io::safetensors_file file{folder.path()};
  BOOST_TEST((file.find("bn.running_var") != nullptr));
  BOOST_TEST((file.find("fc.weight") != nullptr));
  BOOST_TEST((file.find("conv.weight") != nullptr));
  BOOST_TEST(file.tensors().size() == 9U);
  // A map that does not name the variance keeps PyTorch's name, and one that does keeps that of the map.
  const auto reloads = [&](const gradus::io::name_map& map, std::string_view name) {
    gradus::io::save_weights(saved.net, folder.path(), {.rename = map});
    BOOST_TEST((gradus::io::safetensors_file{folder.path()}.find(name) != nullptr), name);
    weighted_network<float, nhwc> again{2};
    BOOST_TEST(gradus::io::load_weights(again.net, folder.path(), {.rename = map}).ignored.empty());
    BOOST_TEST((again.values() == saved.values()));
  };
  reloads({{"model.*", "*"}}, "model.norm.running_var");
  reloads({{"norm.running_variance", "norm.running_variance"}}, "norm.running_var");
  reloads({{"spread.running_variance", "norm.running_variance"}}, "spread.running_variance");
  gradus::io::save_weights(saved.net, folder.path(), {.rename = names});
  weighted_network<float, nhwc> loaded{2};
  const auto report = gradus::io::load_weights(loaded.net, folder.path(), {.rename = names});
  BOOST_TEST(report.ignored.empty());
  BOOST_TEST((loaded.values() == saved.values()));
}

BOOST_AUTO_TEST_CASE(what_a_map_leaves_out_is_reported_and_no_difference) {
  const weights_folder folder;
  gradus::io::save_weights(weighted_network<float, nchw>{1}.net, folder.path());
  weighted_network<float, nchw> loaded{2};
  const auto report =
      gradus::io::load_weights(loaded.net, folder.path(), {.strict = false, .rename = {{"head.*", ""}}});
  BOOST_TEST((report.ignored == std::vector<std::string>{"head.bias", "head.weight"}));
  BOOST_TEST(report.unexpected.empty());
  BOOST_TEST(report.missing.size() == 2U);
}

BOOST_AUTO_TEST_CASE(names_in_files_are_refused_unless_they_lead_back) {
  using gradus::io::name_map;
  const auto message = [](const name_map& names) {
    return message_of_weights<gradus::configuration_error>([&] { (void)names.name_in_file("a.weight"); });
  };
  BOOST_TEST((name_map{{"fc.*", "a.*"}, {"b.*", "a.*"}}.name_in_file("a.weight")) == "fc.weight");
  BOOST_TEST(name_map{}.name_in_file("a.weight") == "a.weight");
  // The second pair never gives this name: the first takes what would be in the file.
  BOOST_TEST(message({{"b.*", "c.*"}, {"b.*", "a.*"}}).find("'b.weight', which is 'c.weight' in the network") !=
             std::string::npos);
  // The name is in no pair, but a pair takes it from the file.
  BOOST_TEST(message({{"a.*", "x.*"}}).find("'a.weight', which is 'x.weight'") != std::string::npos);
  // Several names of the file are this one.
  BOOST_TEST(message({{"*", "a.weight"}}) == "no exception");
  BOOST_TEST(message(name_map{[](std::string_view name) { return std::string{name}; }}).find("pairs of patterns") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(names_are_mapped_by_pairs_and_by_functions) {
  const weights_folder folder;
  const weighted_network<float, nchw> saved{1, 5, "scores"};
  gradus::io::save_weights(saved.net, folder.path());
  weighted_network<float, nchw> first{2};
  (void)gradus::io::load_weights(first.net, folder.path(), {.rename = {{"scores.*", "head.*"}}});
  BOOST_TEST((first.values() == saved.values()));
  weighted_network<float, nchw> second{2};
  (void)gradus::io::load_weights(second.net, folder.path(), {.rename = [](std::string_view name) {
                                   return name.starts_with("scores") ? "head" + std::string{name.substr(6)}
                                                                     : std::string{name};
                                 }});
  BOOST_TEST((second.values() == saved.values()));
  // Two tensors for one weight, and none.
  BOOST_TEST(message_of_weights<gradus::configuration_error>([&] {
               (void)gradus::io::load_weights(second.net, folder.path(), {.rename = {{"*.bias", "head.bias"}}});
             }).find("one tensor for 'head.bias'") != std::string::npos);
  BOOST_TEST(
      message_of_weights<gradus::format_error>([&] {
        (void)gradus::io::load_weights(second.net, folder.path(), {.strict = false, .rename = {{"*", "encoder.*"}}});
      }).find("{.rename = ...}") != std::string::npos);
  BOOST_CHECK_THROW((gradus::io::name_map{{"*.*", "x"}}), gradus::configuration_error);
  BOOST_CHECK_THROW((gradus::io::name_map{{"a", "*"}}), gradus::configuration_error);
  const gradus::io::name_map names{{"a.*.x", "b.*"}, {"a.*", ""}, {"c", "d"}};
  BOOST_TEST(names("a.1.x") == "b.1");
  BOOST_TEST(names("a.x").empty());  // nothing is left between the dots
  BOOST_TEST(names("c") == "d");
  BOOST_TEST(names("cc") == "cc");
}

BOOST_AUTO_TEST_CASE(the_names_of_pytorch_are_known) {
  const weights_folder folder;
  const std::vector<float> mean{1, 2, 3, 4};
  const std::vector<float> variance{5, 6, 7, 8};
  const std::vector<std::int64_t> batches{100};
  gradus::io::safetensors_writer writer;
  writer.add("norm.running_mean", mean, {4}).add("norm.running_var", variance, {1, 4});
  writer.add("norm.num_batches_tracked", batches, {}).write(folder.path());
  weighted_network<float, nchw> net{1};
  const auto report = gradus::io::load_weights(net.net, folder.path(), {.only = "norm.running_*"});
  BOOST_TEST(report.complete());
  BOOST_TEST(net.net.buffers()[0].elements.data()[3] == 4.0F);
  BOOST_TEST(net.net.buffers()[1].elements.data()[0] == 5.0F);
}

BOOST_AUTO_TEST_CASE(what_a_checkpoint_has_of_a_training_is_left_out) {
  const weights_folder folder;
  const weighted_network<float, nchw> trained{1};
  const std::vector<float> sums(4);
  const auto write = [&](bool checkpoint, const std::string& more) {
    gradus::io::safetensors_writer writer;
    std::vector<std::vector<float>> values;
    for (const auto& each : trained.net.parameters()) {
      const auto& shape = each.description().shape;
      const std::vector<gradus::index_t> extents =
          each.description().rank == 1   ? std::vector<gradus::index_t>{shape.size()}
          : each.description().rank == 2 ? std::vector<gradus::index_t>{shape[0], shape.size() / shape[0]}
                                         : std::vector<gradus::index_t>{shape[0], shape[1], shape[2], shape[3]};
      values.push_back(each.copy_values());
      writer.add(each.name(), values.back(), extents);
    }
    for (const auto& each : trained.net.buffers()) {
      values.emplace_back(static_cast<std::size_t>(each.elements.size()), 0.5F);
      writer.add(each.name, values.back(), {each.elements.size()});
    }
    writer.add("trainer.sums", sums, {1, 4}).add(more, sums, {4});
    if (checkpoint) {
      writer.metadata("gradus.format", "1");
    }
    writer.write(folder.path());
  };
  weighted_network<float, nchw> net{2};
  write(true, "optimizer.velocity.scores.bias");
  const auto report = gradus::io::load_weights(net.net, folder.path());
  BOOST_TEST(report.complete());
  BOOST_TEST(report.loaded.size() == net.net.parameters().size() + net.net.buffers().size());
  BOOST_TEST(net.net.parameters()[0].copy_values() == trained.net.parameters()[0].copy_values());
  write(true, "another.bias");
  BOOST_CHECK_THROW(gradus::io::load_weights(net.net, folder.path()), gradus::format_error);
  write(false, "optimizer.velocity.scores.bias");  // a module of PyTorch may have such a name
  BOOST_CHECK_THROW(gradus::io::load_weights(net.net, folder.path()), gradus::format_error);
}

BOOST_AUTO_TEST_CASE(the_classes_of_the_training_are_stored_and_compared) {
  const weights_folder folder;
  const weighted_network<float, nhwc> trained{1, 3};
  weighted_network<float, nhwc> other{2, 3};
  const std::vector<double> before = other.values();
  gradus::io::save_weights(trained.net, folder.path(), {.class_names = {"cat", "dog", "white shark"}});
  const auto compare = [&](std::vector<std::string> names) {
    return message_of_weights<gradus::format_error>(
        [&] { gradus::io::load_weights(other.net, folder.path(), {.class_names = std::move(names)}); });
  };
  GRADUS_CHECK_MESSAGE(compare({"cat", "white shark"}), {"expected weights of 2 classes, got 3 classes"});
  GRADUS_CHECK_MESSAGE(compare({"cat", "white shark", "dog"}),
                       {"expected weights whose label 1 means 'white shark', got 'dog'", "report.class_names"});
  BOOST_TEST(other.values() == before, boost::test_tools::per_element());
  BOOST_TEST(compare({"cat", "dog", "white shark"}) == "no exception");
  BOOST_TEST(other.values() == trained.values(), boost::test_tools::per_element());
  BOOST_TEST(gradus::io::load_weights(other.net, folder.path()).class_names ==
                 (std::vector<std::string>{"cat", "dog", "white shark"}),
             boost::test_tools::per_element());
  GRADUS_CHECK_MESSAGE(message_of_weights<gradus::configuration_error>(
                           [&] { gradus::io::save_weights(trained.net, folder.path(), {.class_names = {"a\nb"}}); }),
                       {"expected names of classes of one line each"});
  gradus::io::save_weights(trained.net, folder.path());  // a file without names fits all
  BOOST_TEST(compare({"a"}) == "no exception");
  BOOST_TEST(gradus::io::load_weights(other.net, folder.path()).class_names.empty());
}

BOOST_AUTO_TEST_CASE(a_network_that_is_not_compiled_and_a_damaged_file_are_refused) {
  const weights_folder folder;
  gradus::cpu device;
  nn::network<float, nchw> net{device, {.channels = 1, .height = 1, .width = 1}};
  BOOST_TEST(message_of_weights<gradus::configuration_error>([&] {
               gradus::io::save_weights(net, folder.path());
             }).find("save_weights: expected a compiled network") != std::string::npos);
  BOOST_CHECK_THROW((void)gradus::io::load_weights(net, folder.path()), gradus::configuration_error);
  weighted_network<float, nchw> other{1};
  BOOST_CHECK_THROW((void)gradus::io::load_weights(other.net, folder.path("none")), gradus::format_error);
  gradus::io::save_weights(other.net, folder.path());
  std::filesystem::resize_file(folder.path(), std::filesystem::file_size(folder.path()) - 1);
  const auto before = other.values();
  BOOST_CHECK_THROW((void)gradus::io::load_weights(other.net, folder.path()), gradus::format_error);
  BOOST_TEST((other.values() == before));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
