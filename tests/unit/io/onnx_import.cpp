// SPDX-License-Identifier: BSL-1.0
//
// What onnx_model says where it cannot read a model, and networks that go on training; tests/onnx compares scores.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <protozero/pbf_writer.hpp>

#include "gradus/core/error.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/adaptive_pool2d.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/onnx/export.hpp"
#include "gradus/onnx/import.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace io = gradus::io;
namespace nn = gradus::nn;

/// A model with one operator that reads the images "input" and constants.
class one_operator {
 public:
  one_operator(std::string_view op_type, std::initializer_list<std::string_view> inputs)
      : graph_{std::string{}}, node_{op_type, "node", inputs, {"output"}} {}

  io::detail::onnx_node& node() { return node_; }
  io::detail::onnx_graph& graph() { return graph_; }

  [[nodiscard]] std::string bytes() {
    graph_.add(node_);
    graph_.value(true, "input", std::array<gradus::index_t, 4>{0, 4, 6, 6});
    graph_.value(false, "output", std::array<gradus::index_t, 4>{0, 4, 6, 6});
    return graph_.model("1", "test");
  }

 private:
  io::detail::onnx_graph graph_;
  io::detail::onnx_node node_;
};

void import(const std::string& bytes) {
  gradus::cpu device;
  auto model = io::onnx_model::from_bytes(bytes);
  nn::network<float> net{device, model.input()};
  (void)model.add_to(net, net.input());
  net.compile({.max_batch_size = 1});
  model.assign_weights(net);
}

[[nodiscard]] auto says_of_import(std::string first, std::string second) {
  return [=](const gradus::error& failure) {
    BOOST_TEST_MESSAGE(failure.what());
    const std::string what = failure.what();
    return what.find(first) != std::string::npos && what.find(second) != std::string::npos;
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(onnx_import)

BOOST_AUTO_TEST_CASE(an_operator_without_a_layer_is_named) {
  BOOST_CHECK_EXCEPTION(import(one_operator{"GridSample", {"input"}}.bytes()), gradus::configuration_error,
                        says_of_import("GridSample", "docs/onnx.md"));
}

BOOST_AUTO_TEST_CASE(an_attribute_that_no_layer_has_is_named) {
  one_operator pool{"MaxPool", {"input"}};
  pool.node().integers("kernel_shape", {2, 2}).text("auto_pad", "SAME_SOMETIMES");
  BOOST_CHECK_EXCEPTION(import(pool.bytes()), gradus::configuration_error, says_of_import("MaxPool", "SAME_SOMETIMES"));
}

// What the import does not look at may change the result.
BOOST_AUTO_TEST_CASE(an_attribute_that_is_not_read_is_named) {
  for (const std::string_view type : {"Relu", "Sigmoid", "GlobalAveragePool", "Flatten", "Identity", "Add"}) {
    one_operator each{type, {"input"}};
    each.node().integer("broadcast", 1);
    BOOST_CHECK_EXCEPTION(import(each.bytes()), gradus::configuration_error,
                          says_of_import(std::string{type}, "the attribute broadcast"));
  }
}

/// A model with an operator that reads the images and a list of integers.
std::string operator_with_list(std::string_view type, const std::vector<gradus::index_t>& list,
                               const char* attribute = nullptr, gradus::index_t number = 0) {
  one_operator each{type, {"input", "list"}};
  each.graph().constant("list", io::detail::onnx_int64, std::array{static_cast<gradus::index_t>(list.size())},
                        {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(gradus::index_t)});
  if (attribute != nullptr) {
    each.node().integer(attribute, number);
  }
  return each.bytes();
}

// What came differs from what was expected, and is whole: not one of its numbers, which may be right by itself.
BOOST_AUTO_TEST_CASE(messages_show_the_shape_that_came) {
  const auto says = [](const std::string& bytes, const std::string& expected, const std::string& actual) {
    BOOST_CHECK_EXCEPTION(import(bytes), gradus::error, says_of_import("expected " + expected + ", got " + actual, ""));
  };
  says(operator_with_list("Reshape", {0, 4, 144}), "a shape of 144 elements behind the batch", "(0, 4, 144)");
  says(operator_with_list("Reshape", {0, 12, 11}), "a shape of 144 elements behind the batch", "(0, 12, 11)");
  says(operator_with_list("Split", {1, 4}, "axis", 1), "a size for each of 1 outputs", "(1, 4)");
  says(operator_with_list("Split", {6}, "axis", 1), "sizes of at least 1 with the sum 4", "(6)");
  says(operator_with_list("Squeeze", {2}), "different axes of extent 1 behind the batch",
       "the axes (2) of a tensor with (4, 6, 6) behind the batch");
  says(operator_with_list("Expand", {1, 4, 6, 5}), "a shape to which (4, 6, 6) behind the batch can be repeated",
       "(1, 4, 6, 5)");
  one_operator turned{"Transpose", {"input"}};
  turned.node().integers("perm", {1, 0, 2, 3});
  says(turned.bytes(), "a permutation of 4 axes that leaves the batch in its place", "(1, 0, 2, 3)");
  one_operator upper{"ConvTranspose", {"input", "w"}};
  const std::vector<float> w(4);
  upper.graph().constant("w", io::detail::onnx_float, std::array<gradus::index_t, 4>{4, 1, 1, 1},
                         {reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float)});
  upper.node().text("auto_pad", "SAME_UPPER");
  says(upper.bytes(), "auto_pad NOTSET or VALID", "SAME_UPPER");
}

// Sums and products of extents that a file gives stay below 2^63.
BOOST_AUTO_TEST_CASE(extents_that_are_too_large_are_refused) {
  constexpr gradus::index_t huge = gradus::index_t{1} << 62U;
  const auto is_refused = [](const std::string& bytes) {
    BOOST_CHECK_EXCEPTION(import(bytes), gradus::error, says_of_import("expected ", ""));
  };
  is_refused(operator_with_list("Pad", {0, 0, 0, 0, 0, 0, huge, 16384}));
  is_refused(operator_with_list("Pad", {0, 0, 0, huge, 0, 0, 0, huge}));
  is_refused(operator_with_list("Expand", {1, 4, huge, huge}));
  is_refused(operator_with_list("Reshape", {0, 12, 12, huge, 4}));
  for (const std::string_view type : {"MaxPool", "AveragePool"}) {
    for (const int spoiled : {0, 1, 2, 3}) {
      one_operator pool{type, {"input"}};
      const auto or_huge = [&](int which, gradus::index_t number) { return which == spoiled ? huge : number; };
      pool.node().integers("kernel_shape", {or_huge(0, 2), 2}).integers("strides", {1, or_huge(1, 1)});
      pool.node().integers("pads", {0, or_huge(2, 0), 0, or_huge(2, 0)}).integer("ceil_mode", 1);
      pool.node().integers("dilations", {or_huge(3, 1), 1});
      is_refused(pool.bytes());
    }
  }
  for (const std::string_view type : {"Conv", "ConvTranspose"}) {
    one_operator conv{type, {"input", "w"}};
    const std::vector<float> w(16);
    conv.graph().constant("w", io::detail::onnx_float, std::array<gradus::index_t, 4>{4, 4, 1, 1},
                          {reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float)});
    conv.node().integer("group", huge + 1);
    is_refused(conv.bytes());
  }
}

BOOST_AUTO_TEST_CASE(extents_that_a_file_leaves_open_are_given) {
  io::detail::onnx_graph graph{std::string{}};
  graph.add(io::detail::onnx_node{"Relu", "relu", {"input"}, {"output"}});
  graph.value(true, "input", std::array<gradus::index_t, 4>{0, 4, 0, 0});
  graph.value(false, "output", std::array<gradus::index_t, 4>{0, 4, 0, 0});
  const std::string bytes = graph.model("1", "test");
  const auto says = [&](const io::onnx_extents& open, const std::string& what, const std::string& hint) {
    BOOST_CHECK_EXCEPTION(io::onnx_model::from_bytes(bytes, open), gradus::configuration_error,
                          says_of_import(what, hint));
  };
  says({}, "open height of the input 'input'", "{.height = 224}");
  says({.height = 6}, "open width of the input 'input'", "{.width = 224}");
  says({.channels = 3, .height = 6, .width = 5}, "expected channels = 4, as in the file, got 3", "leave out");
  says({.height = -6, .width = 5}, "height", "-6");
  const auto model = io::onnx_model::from_bytes(bytes, {.height = 6, .width = 5});
  BOOST_TEST((model.input() == nn::value_shape{4, 6, 5}));
  BOOST_TEST((io::onnx_model::from_bytes(bytes, {4, 6, 5}).input() == nn::value_shape{4, 6, 5}));
}

// Each graph of a file in a graph is a call of the reader.
BOOST_AUTO_TEST_CASE(graphs_in_many_graphs_are_refused) {
  const auto field = [](protozero::pbf_tag_type tag, const std::string& content, const std::string& before = {}) {
    std::string result = before;
    protozero::pbf_writer{result}.add_bytes(tag, content);
    return result;
  };
  std::string graph;
  for (int depth = 0; depth < 1000; ++depth) {
    graph = field(1, field(5, field(6, graph, field(1, "then_branch")), field(4, "If")));
  }
  BOOST_CHECK_EXCEPTION(io::onnx_model::from_bytes(field(7, graph)), gradus::format_error,
                        says_of_import("graphs in at most 8 graphs", "such models are not read"));
}

BOOST_AUTO_TEST_CASE(a_branch_that_the_images_decide_is_refused) {
  BOOST_CHECK_EXCEPTION(import(one_operator{"If", {"input"}}.bytes()), gradus::configuration_error,
                        says_of_import("If", "a constant as its condition"));
}

BOOST_AUTO_TEST_CASE(elements_that_an_axis_does_not_have_are_refused) {
  BOOST_CHECK_EXCEPTION(import(operator_with_list("Gather", {4}, "axis", 1)), gradus::configuration_error,
                        says_of_import("an index of 4 elements, got 4", ""));
  BOOST_CHECK_EXCEPTION(import(operator_with_list("Gather", {0, 1}, "axis", 0)), gradus::configuration_error,
                        says_of_import("an axis of the images, got images", ""));
}

// ONNX aligns axes at the last one: (N, 4) meets the columns of (N, 4, 6, 6), not its channels.
BOOST_AUTO_TEST_CASE(values_of_different_ranks_are_refused) {
  for (const std::string_view type : {"Add", "Sub", "Mul", "Div", "Min", "Less"}) {
    one_operator each{type, {"input", "features"}};
    io::detail::onnx_node pool{"GlobalAveragePool", "pool", {"input"}, {"pooled"}};
    io::detail::onnx_node flat{"Flatten", "flat", {"pooled"}, {"features"}};
    each.graph().add(pool);
    each.graph().add(flat);
    BOOST_CHECK_EXCEPTION(import(each.bytes()), gradus::configuration_error,
                          says_of_import(std::string{type}, "as many axes"));
  }
}

BOOST_AUTO_TEST_CASE(a_cast_to_bool_gives_conditions) {
  one_operator cast{"Cast", {"input"}};
  cast.node().integer("to", 9);
  gradus::cpu device;
  auto model = io::onnx_model::from_bytes(cast.bytes());
  nn::network<float> net{device, model.input()};
  (void)model.add_to(net, net.input());
  net.compile({.max_batch_size = 1});
  gradus::tensor<float, 4, gradus::nchw> images{device, {1, 4, 6, 6}};
  images(0, 1, 2, 3) = -0.5F;
  images(0, 3, 5, 5) = 7;
  const auto conditions = net.forward(images.view());
  BOOST_TEST(conditions(0, 1, 2, 3) == 1);
  BOOST_TEST(conditions(0, 3, 5, 5) == 1);
  BOOST_TEST(conditions(0, 0, 0, 0) == 0);
}

BOOST_AUTO_TEST_CASE(weights_that_the_model_computes_are_refused) {
  one_operator conv{"Conv", {"input", "input"}};
  BOOST_CHECK_EXCEPTION(import(conv.bytes()), gradus::configuration_error, says_of_import("Conv", "a constant"));
}

BOOST_AUTO_TEST_CASE(weights_of_another_shape_are_refused) {
  one_operator conv{"Conv", {"input", "w"}};
  const std::vector<float> w(2 * 3);
  conv.graph().constant("w", io::detail::onnx_float, std::array<gradus::index_t, 4>{2, 3, 1, 1},
                        {reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float)});
  BOOST_CHECK_EXCEPTION(import(conv.bytes()), gradus::configuration_error,
                        says_of_import("4 input channels", "3 in each of 1 groups"));
}

BOOST_AUTO_TEST_CASE(a_constant_with_too_few_bytes_is_refused) {
  one_operator conv{"Conv", {"input", "w"}};
  conv.graph().constant("w", io::detail::onnx_float, std::array<gradus::index_t, 4>{2, 4, 1, 1}, "1234");
  BOOST_CHECK_EXCEPTION(import(conv.bytes()), gradus::format_error, says_of_import("8 elements", "4 bytes"));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_no_model_is_refused) {
  BOOST_CHECK_EXCEPTION(import("GIF89a"), gradus::format_error, says_of_import("ONNX model", "no ONNX model"));
  BOOST_CHECK_EXCEPTION(import(""), gradus::format_error, says_of_import("a graph", "none"));
  BOOST_CHECK_EXCEPTION(io::onnx_model{"/nowhere/model.onnx"}, gradus::format_error,
                        says_of_import("/nowhere/model.onnx", "onnx_import.cpp"));
  const std::string whole = one_operator{"Relu", {"input"}}.bytes();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    try {
      import(whole.substr(0, length));
    } catch (const gradus::error&) {
    }
  }
}

// What ONNX has and this library does not read is not called damaged.
BOOST_AUTO_TEST_CASE(a_model_that_is_not_read_is_not_damaged) {
  const auto says_only = [](const char* text) {
    return [=](const gradus::error& failure) {
      const std::string what = failure.what();
      return what.find(text) != std::string::npos && what.find("damaged") == std::string::npos;
    };
  };
  const auto import_graph = [](int field, const std::string& message) {
    std::string graph;
    protozero::pbf_writer{graph}.add_message(static_cast<protozero::pbf_tag_type>(field), message);
    std::string model;
    protozero::pbf_writer{model}.add_message(7, graph);
    import(model);
  };
  BOOST_CHECK_EXCEPTION(import_graph(15, ""), gradus::format_error, says_only("sparse constants are not read"));
  std::string tensor;
  protozero::pbf_writer writer{tensor};
  writer.add_int64(1, 1);
  writer.add_int32(2, 14);  // complex numbers
  writer.add_string(8, "w");
  writer.add_string(9, "12345678");
  BOOST_CHECK_EXCEPTION(import_graph(5, tensor), gradus::format_error,
                        says_only("constants of other types are not read"));
}

// A file may not name files of other folders.
BOOST_AUTO_TEST_CASE(external_data_stays_in_the_folder_of_the_model) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gradus_test_onnx_import";
  std::filesystem::create_directories(folder);
  const std::filesystem::path elsewhere = folder / "elsewhere";
  std::filesystem::create_directories(elsewhere);
  const std::string four(16, '\0');
  for (const auto& each : {elsewhere / "secret", elsewhere / "m.data", folder / "w.data"}) {
    std::ofstream{each, std::ios::binary} << four;
  }
  const auto link = [&](const std::filesystem::path& to, const char* name) {
    std::filesystem::remove(folder / name);
    std::filesystem::create_symlink(to, folder / name);
  };
  link("elsewhere/secret", "linked");
  link("w.data", "inside");
  const auto write_model = [&](const std::filesystem::path& path, const std::string& location) {
    std::string entry;
    protozero::pbf_writer{entry}.add_string(1, "location");
    protozero::pbf_writer{entry}.add_string(2, location);
    std::string tensor;
    protozero::pbf_writer writer{tensor};
    writer.add_int64(1, 4);
    writer.add_int32(2, 1);
    writer.add_string(8, "w");
    writer.add_message(13, entry);
    writer.add_enum(14, 1);
    std::string graph;
    protozero::pbf_writer{graph}.add_message(5, tensor);
    std::string model;
    protozero::pbf_writer{model}.add_message(7, graph);
    std::ofstream{path, std::ios::binary} << model;
  };
  using namespace std::string_literals;
  for (const std::string& location : {"../secret"s, "/etc/passwd"s, ".."s, ""s, "linked"s, "w.data\0"s, "w.data\0x"s}) {
    write_model(folder / "model.onnx", location);
    BOOST_CHECK_EXCEPTION(io::onnx_model{folder / "model.onnx"}, gradus::format_error,
                          says_of_import("next to the model", location.substr(0, location.find('\0'))));
  }
  // Links that stay in the folder, and those of a cache, where the model is a link too.
  const auto is_read = [](const std::filesystem::path& model) {
    try {
      io::onnx_model{model};
    } catch (const gradus::error& failure) {  // the model has no input
      return std::string{failure.what()}.find("one input and an output") != std::string::npos;
    }
    return true;
  };
  write_model(folder / "model.onnx", "inside");
  BOOST_TEST(is_read(folder / "model.onnx"));
  write_model(elsewhere / "m.onnx", "cached.data");
  link("elsewhere/m.onnx", "cached.onnx");
  link("elsewhere/m.data", "cached.data");
  BOOST_TEST(is_read(folder / "cached.onnx"));
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(an_imported_network_goes_on_training) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "gradus_test_onnx_training.onnx";
  gradus::cpu device;
  nn::network<float> made{device, {2, 5, 5}};
  nn::value x = made.add("conv1", nn::conv2d{.out_channels = 3, .kernel = {3, 3}, .bias = false}, made.input());
  x = made.add("bn1", nn::batch_norm{}, x);
  x = made.add("relu1", nn::relu{}, x);
  made.add("fc", nn::dense{.out_features = 4}, x);
  made.compile({.max_batch_size = 2, .seed = 3});
  io::save_onnx(made, path);

  io::onnx_model model{path};
  nn::network<float, gradus::nhwc> net{device, model.input()};
  net.loss(nn::softmax_cross_entropy{}, model.add_to(net, net.input()));
  net.compile({.max_batch_size = 2, .seed = 4});
  model.assign_weights(net);
  BOOST_TEST(net.parameters().size() == made.parameters().size());
  for (const auto& each : made.parameters()) {
    BOOST_TEST(net.find_parameter(each.name()).copy_values() == each.copy_values(), boost::test_tools::per_element());
  }
  const gradus::tensor<float, 4, gradus::nhwc> images{device, {2, 2, 5, 5}};
  const std::vector<std::int32_t> labels{1, 3};
  const auto sums = net.train_step(images.view(), labels);
  BOOST_TEST(sums.loss > 0);
  std::filesystem::remove(path);
}

/// A model with an operator of the domain "company" that reads the images and 4 numbers.
std::string company_operator(std::string_view type, const std::vector<float>& numbers, double cap) {
  one_operator each{type, {"input", "numbers"}};
  each.graph().constant("numbers", io::detail::onnx_float, std::array{static_cast<gradus::index_t>(numbers.size())},
                        {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)});
  each.graph().use_domain(each.node(), "company");
  each.node().real("cap", cap).integer("turns", 3).text("mode", "soft").integers("center", {4, 5});
  return each.bytes();
}

BOOST_AUTO_TEST_CASE(a_function_translates_an_operator_of_a_domain) {
  const std::vector<float> slopes{0.5F, -1, 2, 0};
  gradus::cpu device;
  auto model = io::onnx_model::from_bytes(company_operator("Slope", slopes, 1.5));
  nn::network<float, gradus::nhwc> net{device, model.input()};
  const auto slope = [](auto& to, io::custom_operator& op) {
    BOOST_TEST(op.domain() == "company");
    BOOST_TEST(op.op_type() == "Slope");
    BOOST_TEST(op.integer("turns", 1) == 3);
    BOOST_TEST(op.integer("other", 7) == 7);
    BOOST_TEST(op.text("mode", "hard") == "soft");
    BOOST_TEST((op.integers("center", {}) == std::vector<gradus::index_t>{4, 5}));
    BOOST_TEST((op.has_attribute("cap") && !op.has_attribute("other")));
    BOOST_TEST(op.inputs().size() == 1U);
    BOOST_TEST(op.axes(0) == 4);
    BOOST_TEST(op.constants() == 1U);
    BOOST_TEST(op.constant_extents(0)[0] == 4);
    BOOST_TEST(op.constant_integers(0).empty());
    BOOST_TEST(op.constant_numbers(0)[2] == 2.0F);
    op.assign("slope", 0);
    return to.add(
        op.name(),
        nn::elementwise([cap = op.real("cap", 0)](auto x, auto a) { return min(max(x, 0) + a * min(x, 0), cap); },
                        {nn::per_channel("slope", nn::zeros())}),
        op.inputs()[0]);
  };
  (void)model.add_to(net, net.input(), {{"company::Slope", slope}});
  net.compile({.max_batch_size = 2});
  model.assign_weights(net);
  gradus::image_tensor<float, gradus::nhwc> x{device, {2, 4, 6, 6}};
  for (gradus::index_t i = 0; i < x.size(); ++i) {
    x.data()[i] = static_cast<float>(i * 37 % 101) / 20 - 2.5F;
  }
  const auto y = nn::predict(net, x);
  BOOST_REQUIRE(y.size() == x.size());
  for (gradus::index_t i = 0; i < x.size(); ++i) {  // channels are the fastest
    const float a = slopes[static_cast<std::size_t>(i % 4)];
    BOOST_TEST(y.data()[i] == std::min(std::max(x.data()[i], 0.0F) + a * std::min(x.data()[i], 0.0F), 1.5F));
  }
}

BOOST_AUTO_TEST_CASE(a_custom_operator_gives_numbers_to_buffers_too) {
  const auto norm_of = [](std::size_t numbers) {
    gradus::cpu device;
    auto model = io::onnx_model::from_bytes(company_operator("Norm", std::vector<float>(numbers, 0.25F), 1));
    nn::network<float> net{device, model.input()};
    (void)model.add_to(net, net.input(), {{"company::Norm", [](auto& to, io::custom_operator& op) {
                                             for (const char* const each : {"cap", "turns", "mode", "center"}) {
                                               (void)op.has_attribute(each);
                                             }
                                             op.assign("running_mean", 0);
                                             op.keep_initial_values();
                                             return to.add(op.name(), nn::batch_norm{}, op.inputs()[0]);
                                           }}});
    net.compile({.max_batch_size = 1});
    model.assign_weights(net);
    for (const auto& each : net.buffers()) {
      if (each.name == "node.running_mean") {
        return each.elements.data()[3];
      }
    }
    return 0.0F;
  };
  BOOST_TEST(norm_of(4) == 0.25F);
  BOOST_CHECK_EXCEPTION((void)norm_of(3), gradus::shape_error,
                        says_of_import("4 numbers for 'node.running_mean'", "got 3"));
}

BOOST_AUTO_TEST_CASE(a_function_goes_before_what_the_library_makes_of_an_operator) {
  gradus::cpu device;
  for (const char* const type : {"Relu", "GridSample"}) {
    auto model = io::onnx_model::from_bytes(one_operator{type, {"input"}}.bytes());
    nn::network<float> net{device, model.input()};
    const nn::value made = model.add_to(
        net, net.input(),
        {{type, [](auto& to, io::custom_operator& op) {
            const nn::value pooled = to.add(op.name(), nn::adaptive_average_pool2d{.output = {1, 1}}, op.inputs()[0]);
            return io::custom_result{pooled, 2};
          }}});
    BOOST_TEST(net.shape(made).height == 1);
  }
}

BOOST_AUTO_TEST_CASE(an_operator_without_a_function_is_named) {
  gradus::cpu device;
  const auto add = [&](const std::string& bytes, const io::custom_operators<nn::network<float>>& own) {
    auto model = io::onnx_model::from_bytes(bytes);
    nn::network<float> net{device, model.input()};
    (void)model.add_to(net, net.input(), own);
  };
  const std::string bytes = company_operator("Slope", {1, 1, 1, 1}, 1);
  const auto pass = [](nn::network<float>& /*to*/, io::custom_operator& op) { return op.inputs()[0]; };
  BOOST_CHECK_EXCEPTION(add(bytes, {}), gradus::configuration_error,
                        says_of_import("expected an operator of ONNX, or one for which there is a function, got "
                                       "'company::Slope'",
                                       "{\"company::Slope\", ...}"));
  BOOST_CHECK_EXCEPTION(add(bytes, {{"company::Bias", pass}, {"Slope", pass}}), gradus::configuration_error,
                        says_of_import("a function: Slope, company::Bias, got 'company::Slope'", "onnx_import.cpp"));
  // Attributes that the function does not ask for may change the result.
  BOOST_CHECK_EXCEPTION(
      add(bytes, {{"company::Slope", pass}}), gradus::configuration_error,
      says_of_import("expected a function for company::Slope that asks for all its attributes, got "
                     "the attribute 'cap', which it did not ask for. Hint: call op.real(\"cap\", ...)",
                     "onnx_import.cpp"));
  const auto assigns = [](nn::network<float>& /*to*/, io::custom_operator& op) {
    op.assign("slope", 1);
    return op.inputs()[0];
  };
  BOOST_CHECK_EXCEPTION(add(bytes, {{"company::Slope", assigns}}), gradus::configuration_error,
                        says_of_import("a constant of floating-point numbers for 'slope', got constant 1 of 1", ""));
}

// What a function leaves out would make results wrong without an error.
BOOST_AUTO_TEST_CASE(a_function_that_leaves_numbers_out_is_refused) {
  using network = nn::network<float>;
  gradus::cpu device;
  one_operator model{"Affine", {"input", "gamma", "", "beta"}};
  for (const char* const each : {"gamma", "beta"}) {
    static constexpr std::array<float, 4> numbers{1, 2, 3, 4};
    model.graph().constant(each, io::detail::onnx_float, std::array{gradus::index_t{4}},
                           {reinterpret_cast<const char*>(numbers.data()), sizeof numbers});
  }
  model.graph().use_domain(model.node(), "mine");
  const std::string bytes = model.bytes();
  const auto affine = nn::elementwise([](auto x, auto a, auto b) { return a * x + b; },
                                      {nn::per_channel("gamma", nn::ones()), nn::per_channel("beta", nn::zeros())});
  const auto load = [&](const std::function<nn::value(network&, io::custom_operator&)>& function) {
    auto read = io::onnx_model::from_bytes(bytes);
    network net{device, read.input()};
    (void)read.add_to(net, net.input(), {{"mine::Affine", function}, {"mine::NotInTheModel", function}});
    net.compile({.max_batch_size = 1});
    read.assign_weights(net);
    return net.parameters().empty() ? 0.0F : net.parameters()[0].copy_values()[3];
  };
  const auto refuse = [&](const std::function<nn::value(network&, io::custom_operator&)>& function,
                          const std::string& first, const std::string& second) {
    BOOST_CHECK_EXCEPTION(load(function), gradus::configuration_error, says_of_import(first, second));
  };
  BOOST_TEST(load([&](network& net, io::custom_operator& op) {
               op.assign("gamma", 0);
               op.assign("beta", 1);
               return net.add(op.name(), affine, op.inputs()[0]);
             }) == 4.0F);
  refuse(
      [&](network& net, io::custom_operator& op) {
        op.assign("gamma", 0);
        return net.add(op.name(), affine, op.inputs()[0]);
      },
      "ONNX operator Affine 'node': expected a function for mine::Affine that assigns or reads all 2 constants, got "
      "none "
      "for constant 1 ('beta')",
      "op.assign(parameter, constant)");
  refuse([&](network& net, io::custom_operator& op) { return net.add(op.name(), nn::relu{}, op.inputs()[0]); },
         "got none for constant 0 ('gamma'), 1 ('beta')", "onnx_import.cpp");
  // Of a constant, its extents are not its numbers.
  refuse(
      [&](network& net, io::custom_operator& op) {
        (void)op.constant_numbers(0);
        (void)op.constant_extents(1);
        return net.add(op.name(), nn::relu{}, op.inputs()[0]);
      },
      "none for constant 1 ('beta')", "");
  // The function reads all numbers, and the parameters would not have them.
  const auto reads_all = [&](network& net, io::custom_operator& op, bool keep) {
    op.assign("gamma", 0);
    (void)op.constant_numbers(1);
    if (keep) {
      op.keep_initial_values();
    }
    return net.add(op.name(), affine, net.add("other", nn::batch_norm{.shift = false}, op.inputs()[0]));
  };
  refuse([&](network& net, io::custom_operator& op) { return reads_all(net, op, false); },
         "expected a function for mine::Affine that assigns all parameters and buffers of its layers, got none for "
         "'node.beta', 'other.running_mean', 'other.running_variance', 'other.weight'",
         "op.keep_initial_values()");
  BOOST_TEST(load([&](network& net, io::custom_operator& op) { return reads_all(net, op, true); }) == 4.0F);
  // Numbers go to the layer op.name().
  const auto named = [&](network& net, io::custom_operator& op, const char* parameter, const std::string& layer) {
    op.assign(parameter, 0);
    op.assign("beta", 1);
    return net.add(layer, affine, op.inputs()[0]);
  };
  refuse(
      [&](network& net, io::custom_operator& op) { return named(net, op, "gamma", "affine1"); },
      "expected the layer 'node', whose parameter 'gamma' the function for mine::Affine assigns, got layers of other "
      "names: 'affine1'",
      "Hint: name the layer op.name()");
  refuse(
      [&](network& net, io::custom_operator& op) { return named(net, op, "gama", op.name()); },
      "expected the parameter 'node.gama', which the function for mine::Affine assigns, got a layer with 'node.beta', "
      "'node.gamma'",
      "");
}

BOOST_AUTO_TEST_SUITE_END()
