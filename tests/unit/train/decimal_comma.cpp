// SPDX-License-Identifier: BSL-1.0
//
// Under a locale with a decimal comma, every text is what it is without one, and files go from one to the other.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

#include "../../support/decimal_comma.hpp"
#include "../../support/training_runs.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/format.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/tensor/factories.hpp"
#include "gradus/tensor/print.hpp"
#include "gradus/train/gradient_norms.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/reduce_on_plateau.hpp"
#include "gradus/train/update_ratio.hpp"

namespace {

namespace optim = gradus::optim;
namespace train = gradus::train;
using network = gradus::nn::network<float, gradus::nhwc>;

struct folder {
  std::string path = (std::filesystem::temp_directory_path() / "gradus_test_decimal_comma").string();
  folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directory(path);
  }
  ~folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string operator/(const char* name) const { return path + "/" + name; }
};

/// Trains from what is in the folder for `epochs` more, saves, and returns what was printed and the weights.
std::string train_on(const folder& files, int epochs, bool resumes) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::comm::self world;
  gradus::data::loader<float, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  network net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, optim::adam{.beta1 = 0.85, .weight_decay = 1.5e-3}, world};
  if (resumes) {
    const auto report = trainer.resume(std::vector<std::string>{files / "checkpoints"});
    BOOST_TEST(report.step > 0, to_string(report));
  }
  std::FILE* output = std::tmpfile();
  std::string text;
  train::checkpoints saving{files / "checkpoints", {.every = 7}};
  train::update_ratio ratios{
      {.every = 5, .on_measured = [&](const train::update_ratio_report& report) { text += to_string(report); }}};
  train::progress shown{{.output = output, .terminal = false, .lines_every_seconds = 1e-9}};
  train::reduce_on_plateau rate{{.initial = 0.0125, .factor = 0.5, .patience = 3}};
  trainer.fit(loader, {.epochs = epochs, .learning_rate = rate}, rate, saving, shown, ratios);
  std::rewind(output);
  for (int next = std::fgetc(output); next != EOF; next = std::fgetc(output)) {
    text += static_cast<char>(next);
  }
  std::fclose(output);
  gradus::io::save_weights(net, files / "weights.safetensors");
  network again{device, {2, 9, 8}};
  gradus_test::build_training_network(again);
  again.compile({.max_batch_size = 8, .seed = 1});
  gradus::io::load_weights(again, files / "weights.safetensors");
  BOOST_TEST(again.parameters()[0].copy_values() == net.parameters()[0].copy_values(),
             boost::test_tools::per_element());
  return text;
}

/// Texts that say the same each time.
std::string texts() {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto doubles = gradus::from_list<double, 2>(device, {{1.5, -0.25, 1234567.125}, {3e-310, 1e300, 0.1}});
  const auto narrow = gradus::from_list<gradus::bfloat16, 1>(device, {gradus::bfloat16{0.5F}, gradus::bfloat16{1.5F}});
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  stream << doubles << narrow << gradus::extents<2>{1234, 56789};
  std::string text = stream.str();
  text += gradus::join({1.5, " ", 1234567, " ", 1e-3});
  text += gradus::comm::seconds_text(std::chrono::milliseconds{1250});
  const optim::adam rule{.beta1 = 0.85};
  text += optim::parameter_update_of<optim::adam, float, gradus::cpu>{device, rule, 1}.description();
  network net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  text += net.summary();
  text += train::reduce_on_plateau{{.initial = 0.0125, .factor = 0.5}}.description();
  text += describe(gradus::parallel::placement{.parts = {}, .server_bytes = {1234567, 7654321}}, 3, 1.5e7);
  return text;
}

/// The first digits with a comma between them.
std::string comma_in(const std::string& text) {
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == ',' && std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
        std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0) {
      return text.substr(i - std::min<std::size_t>(i, 10), 20);
    }
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(a_locale_with_a_decimal_comma)

BOOST_AUTO_TEST_CASE(changes_no_text) {
  const std::string usual = texts();
  std::string other;
  bool holds = false;
  {
    const gradus_test::decimal_comma locale;
    holds = gradus_test::decimal_comma::holds();
    char probe[16];
    std::snprintf(probe, sizeof(probe), "%.1f", 1.5);
    BOOST_TEST((!holds || probe[1] == ','));
    other = texts();
  }
  BOOST_TEST(other == usual);
  BOOST_TEST(usual.find("1234567 0.001") != std::string::npos, usual);
  if (!holds) {
    BOOST_TEST_MESSAGE("this C library has no locale with a decimal comma");
  }
}

BOOST_AUTO_TEST_CASE(changes_no_file) {
  const folder files;
  std::string printed = train_on(files, 1, false);
  BOOST_TEST(comma_in(printed) == "");
  {
    const gradus_test::decimal_comma locale;
    printed = train_on(files, 2, true);
    BOOST_TEST(comma_in(printed) == "");
  }
  train_on(files, 3, true);
}

BOOST_AUTO_TEST_CASE(changes_no_number_that_is_read) {
  const gradus_test::decimal_comma locale;
  BOOST_TEST(gradus::read_number("1.5").value() == 1.5);
  BOOST_TEST(gradus::read_number("-2.25e-3").value() == -2.25e-3);
  BOOST_TEST(!gradus::read_number("1,5"));
  BOOST_TEST(!gradus::read_number("1.5 "));
  BOOST_TEST(!gradus::read_number(""));
}

// Widths, signs and lengths are what std::snprintf makes of them in the locale "C".
BOOST_AUTO_TEST_CASE(formats_are_those_of_c) {
  const auto both = [](const char* format, auto... values) {
    char expected[100];
    char got[100];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    const int length = std::snprintf(expected, sizeof(expected), format, values...);
    BOOST_TEST(gradus::format_text(got, sizeof(got), format, values...) == length, format);
    BOOST_TEST(std::string{got} == std::string{expected}, format << ": " << got);
    std::snprintf(expected, 4, format, values...);
    gradus::format_text(got, 4, format, values...);
    BOOST_TEST(std::string{got} == std::string{expected}, format << ", cut off: " << got);
#pragma GCC diagnostic pop
  };
  for (const double x : {0.0, -0.0, 1.5, -2.5, 0.05, 1e-5, 123456.789, 1e20, std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::quiet_NaN(), 5e-324}) {
    for (const char* format : {"%f", "%g", "%e", "%.0f", "%8.2e|", "%-12.3g|", "%+.2f", "%012.3f", "% .3f", "%.17g"}) {
      both(format, x);
    }
    both("%*.*f|", -12, 3, x);
  }
  both("%d %5d| %-5d| %05d %+d", -7, 42, 42, -42, 42);
  both("%lld %llu %zu %td", 1LL << 40U, ~0ULL, sizeof(int), std::ptrdiff_t{-3});
  both("%08x %016llx %03lld", 0xbeefU, 0xbeefULL, 7LL);
  both("%s|%6s|%-6s|%.2s|%c|100%%", "abc", "abc", "abc", "abc", 'x');
}

BOOST_AUTO_TEST_SUITE_END()
