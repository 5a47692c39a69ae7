// SPDX-License-Identifier: BSL-1.0
//
// What save_onnx says where it cannot write a network, and the files that it leaves; tests/onnx runs them.
#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/adaptive_pool2d.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/onnx/detail/model/content.hpp"
#include "gradus/onnx/detail/model/model_files.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"
#include "gradus/onnx/export.hpp"
#include "gradus/onnx/import.hpp"
#include "gradus/tensor/formula.hpp"
#include "gradus/tensor/tensor.hpp"
#include "simulated_disk.hpp"

namespace {

namespace nn = gradus::nn;

/// A layer that the export does not know.
struct doubled {
  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const doubled& /*options*/) {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "doubled"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}
  };
};

/// A layer with a parameter and options that says what it computes.
struct described {
  const char* operation = "company.images::Rotate";
  gradus::index_t turns = 3;

  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const described& options) : operation_{options.operation}, turns_{options.turns} {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "described"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void attributes(nn::attribute_visitor& visit) const override {
      visit.operation(operation_);
      visit.integer("turns", turns_);
      visit.size("center", nn::size2d{4, 5});
      visit.padding("around", nn::padding::same());
      visit.real("negative_slope", 0.25);
      visit.real("cap", std::numeric_limits<double>::infinity());
    }
    [[nodiscard]] std::vector<nn::parameter_description> parameters() const override {
      return {{"weight", {3, 1, 1, 1}, 1, nn::constant(0.5), {}, false}};
    }
    [[nodiscard]] std::vector<nn::buffer_description> buffers() const override { return {{"mean", 2, 0.75}}; }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}

   private:
    const char* operation_;
    gradus::index_t turns_;
  };
};

/// A layer with two parameters that says it is an operation of the library.
struct claimed {
  const char* operation = "elementwise";
  int variables = 3;  ///< of its formula; 0: it tells none
  gradus::image_extents shape = {3, 1, 1, 1};

  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const claimed& options)
        : operation_{options.operation}, variables_{options.variables}, shape_{options.shape} {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "claimed"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void attributes(nn::attribute_visitor& visit) const override {
      visit.operation(operation_);
      if (variables_ == 3) {
        visit.formula(gradus::formula_of<3>([](auto x, auto scale, auto shift) { return scale * x + shift; }).steps());
      } else if (variables_ > 3) {
        visit.formula(gradus::formula_of<4>([](auto x, auto a, auto b, auto c) { return a * x + b * c; }).steps());
      }
    }
    [[nodiscard]] std::vector<nn::parameter_description> parameters() const override {
      return {{"scale", shape_, shape_.c == 1 ? 1 : 4, nn::constant(2), {}, false},
              {"shift", {3, 1, 1, 1}, 1, nn::constant(0.5), {}, false}};
    }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}

   private:
    const char* operation_;
    int variables_;
    gradus::image_extents shape_;
  };
};

struct onnx_folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "gradus_test_onnx";
  gradus::cpu device;

  onnx_folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directory(path);
  }
  ~onnx_folder() { std::filesystem::remove_all(path); }
};

[[nodiscard]] std::string content_of(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

template <class Layout>
void save_pooled_convolution(gradus::cpu& device, const std::filesystem::path& path) {
  nn::network<float, Layout> net{device, {3, 9, 9}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, net.input());
  x = net.add("pool", nn::max_pool2d{}, x);
  net.add("scores", nn::dense{.out_features = 2}, x);
  net.compile({.max_batch_size = 1, .seed = 5});
  gradus::io::save_onnx(net, path);
}

/// A network with weights of 4 kB, which go to the file of external data.
void save_with_external_data(gradus::cpu& device, const std::filesystem::path& path, std::uint64_t seed) {
  nn::network<float> net{device, {16, 8, 8}};
  net.add("scores", nn::dense{.out_features = 1}, net.input());
  net.compile({.max_batch_size = 1, .seed = seed});
  gradus::io::save_onnx(net, path, {.external_data = true});
}

[[nodiscard]] std::set<std::string> names_of_models_in(const std::filesystem::path& folder) {
  std::set<std::string> found;
  for (const auto& each : std::filesystem::directory_iterator{folder}) {
    found.insert(each.path().filename().string());
  }
  return found;
}

/// Writes a model that holds its number and the name of its data, and data that holds the number.
void write_numbered(gradus::io::file_system& files, int number) {
  gradus::io::detail::onnx_model_files model{"folder/model.onnx", files};
  const std::string name = model.choose_data_name();
  model.write(std::to_string(number) + name, std::to_string(number));
}

/// The number of the model that is on a disk; 0: none, -1: its data are not those that it was saved with.
[[nodiscard]] int number_on(gradus_test::simulated_disk& disk) {
  const auto text_at = [&](const std::string& name) {
    gradus::io::file_status status;
    if (disk.status("folder/" + name, status) != 0) {
      return std::string{};
    }
    const gradus_test::file_bytes& bytes = disk.at("folder/" + name);
    return std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  };
  const std::string model = text_at("model.onnx");
  if (model.empty()) {
    return 0;
  }
  return text_at(model.substr(1)) == model.substr(0, 1) ? model[0] - '0' : -1;
}

[[nodiscard]] auto says(std::string expected) {
  return [text = std::move(expected)](const gradus::error& failure) {
    BOOST_TEST_MESSAGE(failure.what());
    const std::string what = failure.what();
    return what.find(text) != std::string::npos && what.find("onnx_export.cpp") != std::string::npos;
  };
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(onnx_export, onnx_folder)

BOOST_AUTO_TEST_CASE(both_layouts_make_the_same_file) {
  save_pooled_convolution<gradus::nchw>(device, path / "model.onnx");
  const std::string first = content_of(path / "model.onnx");
  save_pooled_convolution<gradus::nhwc>(device, path / "model.onnx");
  BOOST_TEST(first.size() > 1000U);
  BOOST_TEST((first == content_of(path / "model.onnx")));
}

BOOST_AUTO_TEST_CASE(options_of_poolings_come_back) {
  const auto build = [](auto& net) {
    nn::value x = net.add(
        "largest", nn::max_pool2d{.kernel = {3, 2}, .stride = 2, .padding = 1, .dilation = {2, 3}, .ceil_mode = true},
        net.input());
    x = net.add("mean", nn::average_pool2d{.kernel = 2, .padding = 1, .count_padding = true, .ceil_mode = true}, x);
    net.compile({.max_batch_size = 2});
    return net.shape(x);
  };
  nn::network<float> net{device, {3, 10, 12}};
  const nn::value_shape out = build(net);
  gradus::io::save_onnx(net, path / "model.onnx");
  const std::string bytes = content_of(path / "model.onnx");
  BOOST_TEST(bytes.find("ceil_mode") != std::string::npos);
  BOOST_TEST(bytes.find("dilations") != std::string::npos);
  auto model = gradus::io::onnx_model::from_bytes(bytes);
  nn::network<float> other{device, model.input()};
  const nn::value y = model.add_to(other, other.input());
  other.compile({.max_batch_size = 2});
  BOOST_CHECK((other.shape(y) == out));
  gradus::image_tensor<float, gradus::nchw> x{device, {2, 3, 10, 12}};
  for (gradus::index_t i = 0; i < x.size(); ++i) {
    x.data()[i] = static_cast<float>(i * 37 % 101) - 50.0F;
  }
  const auto ours = nn::predict(net, x);
  const auto theirs = nn::predict(other, x);
  BOOST_REQUIRE(ours.size() == theirs.size());
  for (gradus::index_t i = 0; i < ours.size(); ++i) {
    BOOST_TEST(ours.data()[i] == theirs.data()[i]);
  }
}

BOOST_AUTO_TEST_CASE(adaptive_poolings_of_equal_windows_are_ordinary_ones) {
  const auto saved = [&](const auto& options) {
    nn::network<float> net{device, {3, 10, 12}};
    net.add("pool", options, net.input());
    net.compile({.max_batch_size = 1});
    gradus::io::save_onnx(net, path / "model.onnx");
    const std::string bytes = content_of(path / "model.onnx");
    auto model = gradus::io::onnx_model::from_bytes(bytes);
    nn::network<float> other{device, model.input()};
    const nn::value y = model.add_to(other, other.input());
    other.compile({.max_batch_size = 1});
    gradus::image_tensor<float, gradus::nchw> x{device, {1, 3, 10, 12}};
    for (gradus::index_t i = 0; i < x.size(); ++i) {
      x.data()[i] = static_cast<float>(i * 37 % 101) - 50.0F;
    }
    const auto ours = nn::predict(net, x);
    const auto theirs = nn::predict(other, x);
    BOOST_REQUIRE(ours.size() == theirs.size());
    BOOST_TEST(other.shape(y).size() == ours.size());
    for (gradus::index_t i = 0; i < ours.size(); ++i) {
      BOOST_TEST(ours.data()[i] == theirs.data()[i]);
    }
    return bytes;
  };
  BOOST_TEST(saved(nn::adaptive_average_pool2d{.output = {5, 3}}).find("AveragePool") != std::string::npos);
  BOOST_TEST(saved(nn::adaptive_max_pool2d{.output = {5, 3}}).find("MaxPool") != std::string::npos);
  BOOST_TEST(saved(nn::adaptive_average_pool2d{}).find("GlobalAveragePool") != std::string::npos);
  BOOST_TEST(saved(nn::adaptive_max_pool2d{}).find("GlobalMaxPool") != std::string::npos);
  BOOST_CHECK_EXCEPTION((void)saved(nn::adaptive_max_pool2d{.output = {4, 3}}), gradus::configuration_error,
                        says("10 x 12 to 4 x 3"));
}

BOOST_AUTO_TEST_CASE(a_layer_without_operators_is_named) {
  nn::network<float> net{device, {3, 9, 9}};
  net.add("twice", doubled{}, net.input());
  net.compile({.max_batch_size = 1});
  BOOST_CHECK_EXCEPTION(gradus::io::save_onnx(net, path / "model.onnx"), gradus::configuration_error,
                        says("layer 'twice'"));
  BOOST_TEST(!std::filesystem::exists(path / "model.onnx"));
}

BOOST_AUTO_TEST_CASE(a_layer_of_a_program_becomes_an_operator_of_its_domain) {
  const auto save = [&](const described& options) {
    nn::network<float> net{device, {3, 9, 9}};
    net.add("turned", options, net.input());
    net.compile({.max_batch_size = 1});
    gradus::io::save_onnx(net, path / "model.onnx");
    return content_of(path / "model.onnx");
  };
  const std::string bytes = save({});
  const gradus::io::detail::onnx_content model = gradus::io::detail::onnx_reader{bytes, {}}.take();
  BOOST_REQUIRE(model.operators.size() == 2U);
  const gradus::io::detail::onnx_operator& own = model.operators[0];
  BOOST_TEST(own.op_type == "Rotate");
  BOOST_TEST(own.domain == "company.images");
  BOOST_TEST(own.inputs == (std::vector<std::string>{"input", "turned.weight", "turned.mean"}),
             boost::test_tools::per_element());
  BOOST_TEST(own.attributes.at("turns").integer == 3);
  BOOST_TEST(own.attributes.at("center").integers == (std::vector<gradus::index_t>{4, 5}),
             boost::test_tools::per_element());
  BOOST_TEST(own.attributes.at("around").text == "same");
  BOOST_TEST(own.attributes.at("negative_slope").real == 0.25);
  BOOST_TEST(model.constants.at("turned.weight").numbers == (std::vector<float>{0.5F, 0.5F, 0.5F}),
             boost::test_tools::per_element());
  BOOST_TEST(model.constants.at("turned.mean").numbers == (std::vector<float>{0.75F, 0.75F}),
             boost::test_tools::per_element());
  BOOST_CHECK_EXCEPTION((void)gradus::io::load_onnx<float>(device, path / "model.onnx", {.max_batch_size = 1}),
                        gradus::configuration_error, [](const gradus::error& failure) {
                          return std::string_view{failure.what()}.find("company.images") != std::string_view::npos;
                        });

  // An operation of the library needs what its operator needs.
  BOOST_TEST(save({.operation = "relu"}).find("LeakyRelu") != std::string::npos);
  BOOST_CHECK_EXCEPTION((void)save({.operation = "pixel_shuffle"}), gradus::configuration_error,
                        says("the attribute 'factor' of the operation pixel_shuffle"));
}

BOOST_AUTO_TEST_CASE(a_layer_of_a_program_becomes_the_operators_of_its_formula) {
  const auto save = [&](const claimed& options) {
    nn::network<float> net{device, {3, 9, 9}};
    net.add("own", options, net.input());
    net.compile({.max_batch_size = 1});
    gradus::io::save_onnx(net, path / "model.onnx");
  };
  save({});
  auto net = gradus::io::load_onnx<float>(device, path / "model.onnx", {.max_batch_size = 1});
  gradus::tensor<float, 4, gradus::nchw> images{device, {1, 3, 9, 9}};
  images.data()[7] = 1.5F;
  const auto scores = net.forward(images.view());
  BOOST_TEST(scores.data()[7] == 3.5F);
  BOOST_TEST(scores.data()[8] == 0.5F);

  // What does not fit is refused before a file is written.
  std::filesystem::remove(path / "model.onnx");
  const auto require_refused = [&](const claimed& options, const std::string& part) {
    BOOST_CHECK_EXCEPTION(save(options), gradus::configuration_error, says(part));
    BOOST_TEST(!std::filesystem::exists(path / "model.onnx"));
  };
  require_refused({.variables = 0},
                  "layer 'own' (claimed): expected the function that it computes, behind "
                  "visit.operation(\"elementwise\"), got no visit.formula. Hint: write "
                  "visit.formula(gradus::formula_of<3>(function).steps())");
  require_refused({.variables = 4}, "a formula of its 1 inputs, then its 2 parameters, got one with a variable 4");
  require_refused({.shape = {1, 3, 1, 1}}, "in the parameter 'own.scale' of a formula, got (1, 3, 1, 1)");
  // An operation of the library needs the parameters and inputs that its layer has.
  require_refused({.operation = "dense"}, "expected the parameter 'own.weight', which its operation has, got none");
  require_refused({.operation = "add"}, "expected at least 2 inputs, as its operation has, got 1");
}

BOOST_AUTO_TEST_CASE(an_operator_without_its_domain_is_named) {
  for (const char* const name : {"PRelu", "::PRelu", "company::"}) {
    nn::network<float> net{device, {3, 9, 9}};
    net.add("own", described{.operation = name}, net.input());
    net.compile({.max_batch_size = 1});
    BOOST_CHECK_EXCEPTION(gradus::io::save_onnx(net, path / "model.onnx"), gradus::configuration_error,
                          says("or an operator with its domain, got visit.operation(\"" + std::string{name} + "\")"));
  }
}

BOOST_AUTO_TEST_CASE(a_network_is_compiled_before) {
  nn::network<float> net{device, {3, 9, 9}};
  net.add("relu", nn::relu{}, net.input());
  BOOST_CHECK_EXCEPTION(gradus::io::save_onnx(net, path / "model.onnx"), gradus::configuration_error, says("compile"));
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_missing_is_named) {
  nn::network<float> net{device, {3, 9, 9}};
  net.add("relu", nn::relu{}, net.input());
  net.compile({.max_batch_size = 1});
  BOOST_CHECK_EXCEPTION(gradus::io::save_onnx(net, path / "missing" / "model.onnx"), gradus::format_error,
                        says("missing/model.onnx"));
}

BOOST_AUTO_TEST_CASE(external_data_gets_a_name_that_no_file_has) {
  save_with_external_data(device, path / "model.onnx", 1);
  BOOST_TEST((names_of_models_in(path) == std::set<std::string>{"model.onnx", "model.onnx.data"}));
  const std::string first = content_of(path / "model.onnx.data");
  BOOST_TEST(first.size() == 4096U);
  save_with_external_data(device, path / "model.onnx", 2);
  BOOST_TEST((names_of_models_in(path) == std::set<std::string>{"model.onnx", "model.onnx.data-1"}));
  BOOST_TEST(content_of(path / "model.onnx").find("model.onnx.data-1") != std::string::npos);
  BOOST_TEST((content_of(path / "model.onnx.data-1") != first));
  save_with_external_data(device, path / "model.onnx", 1);
  BOOST_TEST((names_of_models_in(path) == std::set<std::string>{"model.onnx", "model.onnx.data"}));
  BOOST_TEST((content_of(path / "model.onnx.data") == first));
}

BOOST_AUTO_TEST_CASE(data_of_other_models_stays) {
  save_with_external_data(device, path / "model.onnx", 1);
  save_with_external_data(device, path / "model.onnx.1", 2);
  save_with_external_data(device, path / "model.onnx", 3);
  BOOST_TEST((names_of_models_in(path) ==
              std::set<std::string>{"model.onnx", "model.onnx.data-1", "model.onnx.1", "model.onnx.1.data"}));
}

BOOST_AUTO_TEST_CASE(a_crash_leaves_a_model_with_its_data) {
  gradus_test::simulated_disk disk;
  for (int number = 1; number <= 3; ++number) {
    write_numbered(disk, number);
    disk.mark(static_cast<std::uint64_t>(number));
  }
  int states_with_a_model = 0;
  for (std::size_t count = 0; count <= disk.log.size(); ++count) {
    const gradus_test::crash_states states{disk.log, count};
    const int returned = static_cast<int>(states.last_mark());
    states.for_each(
        [&](gradus_test::simulated_disk& crashed) {
          const int found = number_on(crashed);
          if (found < returned || found > returned + 1) {
            BOOST_ERROR("model " << found << " after save " << returned << " has returned, " << count << " operations");
          }
          states_with_a_model += found > 0 ? 1 : 0;
          // The next save has room, and leaves no other file than temporary ones.
          write_numbered(crashed, 4);
          BOOST_TEST(number_on(crashed) == 4);
          std::size_t complete = 0;
          for (const std::string& each : crashed.paths()) {
            complete += each.find(".tmp-") == std::string::npos ? 1U : 0U;
          }
          BOOST_TEST(complete == 2U);
        },
        [](std::string_view each) { return each.find(".tmp-") == std::string_view::npos; });
  }
  BOOST_TEST(states_with_a_model > 20);
}

BOOST_AUTO_TEST_CASE(a_model_that_cannot_be_replaced_keeps_its_data) {
  gradus_test::simulated_disk disk;
  write_numbered(disk, 1);
  gradus_test::faulty_disk faulty{disk};
  for (int call = 0;; ++call) {
    faulty.arm(call, {.errno_value = ENOSPC});
    bool refused = false;
    try {
      write_numbered(faulty, 2);
    } catch (const gradus::format_error&) {
      refused = true;
    }
    const int found = number_on(disk);
    BOOST_TEST_CONTEXT("call " << call << ", " << faulty.failed_call()) {
      BOOST_TEST((found == 1 || found == 2));
    }
    if (!faulty.failed()) {
      BOOST_TEST(call > 10);
      break;
    }
    faulty.disarm();
    BOOST_TEST((refused || found == 2));
    write_numbered(disk, 1);
  }
  BOOST_TEST(disk.open_files() == 0U);
}

BOOST_AUTO_TEST_CASE(too_many_files_of_data_are_refused) {
  gradus_test::simulated_disk disk;
  disk.put("folder/model.onnx.data", {});
  for (int number = 1; number < 100; ++number) {
    disk.put("folder/model.onnx.data-" + std::to_string(number), {});
  }
  gradus::io::detail::onnx_model_files model{"folder/model.onnx", disk};
  BOOST_CHECK_EXCEPTION((void)model.choose_data_name(), gradus::format_error, [](const gradus::error& failure) {
    return std::string{failure.what()}.find("model.onnx.data-99") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
