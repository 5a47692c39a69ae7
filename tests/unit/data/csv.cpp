// SPDX-License-Identifier: BSL-1.0
//
// Data sets of CSV files.
#include "gradus/data/csv.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gradus/data/loader.hpp"
#include "gradus/data/random_split.hpp"

namespace {

namespace data = gradus::data;
using gradus::index_t;

/// A file of the test, removed with the object.
class csv_file {
 public:
  explicit csv_file(const std::string& text)
      : path_{(std::filesystem::temp_directory_path() / ("gradus_csv_" + std::to_string(++files) + ".csv")).string()} {
    std::ofstream{path_, std::ios::binary} << text;
  }
  ~csv_file() { std::filesystem::remove(path_); }
  csv_file(const csv_file&) = delete;
  csv_file& operator=(const csv_file&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static inline int files = 0;
  std::string path_;
};

std::vector<double> csv_input(const data::csv& set, index_t i) {
  std::vector<double> planes(static_cast<std::size_t>(set.example().size()));
  set.read(i, planes.data());
  return planes;
}

/// What the set of a file says when it is refused; empty if it is taken.
std::string csv_refusal(const std::string& text, const data::csv_options& options = {}) {
  const csv_file file{text};
  try {
    const data::csv set{file.path(), options};
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return {};
}

void require_csv_refusal(const std::string& text, const std::string& words, const data::csv_options& options = {}) {
  const std::string refusal = csv_refusal(text, options);
  BOOST_TEST(refusal.find(words) != std::string::npos, "\"" << refusal << "\"\ndoes not say: " << words);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_csv)

BOOST_AUTO_TEST_CASE(the_last_column_is_the_target) {
  const csv_file file{"area,rooms,price\n70.5,3,1.5e2\n\n-1, 2 ,80\r\n"};
  const data::csv set{file.path()};
  BOOST_TEST(set.size() == 2);
  BOOST_TEST((set.example() == gradus::image_extents{1, 2, 1, 1}));
  BOOST_TEST((set.target() == gradus::image_extents{1, 1, 1, 1}));
  BOOST_TEST(set.classes() == 0);
  BOOST_TEST((csv_input(set, 0) == std::vector<double>{70.5, 3}));
  BOOST_TEST((csv_input(set, 1) == std::vector<double>{-1, 2}));
  float target = 0;
  set.read_target(0, &target);
  BOOST_TEST(target == 150.0F);
}

BOOST_AUTO_TEST_CASE(columns_are_chosen_by_name_or_number) {
  const csv_file file{"a;b;c\n1;2;3\n4;5;6"};
  const data::csv set{file.path(), {.targets = {"c", "a"}, .inputs = {"b"}, .separator = ';'}};
  float targets[2] = {};
  set.read_target(1, targets);
  BOOST_TEST((targets[0] == 6 && targets[1] == 4));
  BOOST_TEST((csv_input(set, 1) == std::vector<double>{5}));
  const csv_file bare{"1,2,3\n4,5,6\n"};
  const data::csv first{bare.path(), {.targets = {"1"}, .header = false}};
  BOOST_TEST(first.size() == 2);
  BOOST_TEST((csv_input(first, 0) == std::vector<double>{2, 3}));
}

BOOST_AUTO_TEST_CASE(words_and_integers_are_classes) {
  const csv_file irises{"\xef\xbb\xbfwidth,species\n1,virginica\n2,\"setosa\"\n3,\"a \"\"b\"\",\nc\"\n4,virginica\n"};
  const data::csv set{irises.path(), {.targets = {"species"}}};
  BOOST_TEST((set.class_names() == std::vector<std::string>{"a \"b\",\nc", "setosa", "virginica"}));
  BOOST_TEST(set.classes() == 3);
  BOOST_TEST((set.label(0) == 2 && set.label(1) == 1 && set.label(2) == 0 && set.label(3) == 2));
  const csv_file fewer{"width,species\n1,virginica\n"};
  const data::csv validation{fewer.path(), {.class_names = set.class_names()}};
  BOOST_TEST(validation.label(0) == 2);
  const data::csv other_order{fewer.path(), {.class_names = {"virginica", "setosa"}}};
  BOOST_TEST(other_order.label(0) == 0);
  const csv_file digits{"x,y\n1,0\n2,3\n"};
  const data::csv numbers{digits.path(), {.meaning = data::csv_targets::classes}};
  BOOST_TEST((numbers.classes() == 4 && numbers.label(1) == 3));
}

BOOST_AUTO_TEST_CASE(inputs_are_normalized_and_loaded) {
  const csv_file file{"a,b,y\n1,10,0\n3,30,1\n"};
  const data::csv set{
      file.path(),
      {.meaning = data::csv_targets::classes, .normalize = {.scale = 1, .mean = {2, 20}, .deviation = {1, 10}}}};
  BOOST_TEST((csv_input(set, 0) == std::vector<double>{-1, -1}));
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 2, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_TEST(batch->images(1, 1, 0, 0) == 1.0F);
  BOOST_TEST(batch->labels[1] == 1);
}

BOOST_AUTO_TEST_CASE(real_targets_are_loaded) {
  const csv_file file{"a,b,y,z\n1,2,0.5,-1\n4,5,0.25,-2\n"};
  const data::csv set{file.path(), {.targets = {"y", "z"}}};
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 2, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_TEST(batch->labels.empty());
  BOOST_TEST((batch->targets.extent(0) == 2 && batch->targets.extent(1) == 2));
  BOOST_TEST((batch->targets(0, 0, 0, 0) == 0.5F && batch->targets(0, 1, 0, 0) == -1.0F));
  BOOST_TEST((batch->targets(1, 0, 0, 0) == 0.25F && batch->targets(1, 1, 0, 0) == -2.0F));
  BOOST_CHECK_THROW((void)data::random_split(set, std::vector{0.5, 0.5}, {.stratified = true}),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(words_are_loaded_as_classes) {
  const csv_file file{"x,species\n1,setosa\n2,rose\n3,setosa\n4,rose\n"};
  const data::csv set{file.path()};
  const auto parts = data::random_split(set, std::vector{0.5, 0.5}, {.stratified = true});
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader{device, parts[0], {.global_batch_size = 2, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_TEST(batch->labels.size() == 2U);
  BOOST_TEST(batch->labels[0] + batch->labels[1] == 1);
  BOOST_TEST(batch->targets.size() == 0);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_named_with_its_position) {
  require_csv_refusal("a,b\n1,2\n\n3,x\n4,5", "line 4, column 2 ('b')", {.meaning = data::csv_targets::real});
  require_csv_refusal("a,b\n,2\n", "line 2, column 1 ('a'): expected a finite number, got ''. Hint: a missing value");
  require_csv_refusal("a,b\nnan,2\n", "expected a finite number, got 'nan'");
  require_csv_refusal("a,b\n1e999,2\n", "expected a finite number, got '1e999'");
  require_csv_refusal("a,b\n1,5,2\n", "line 2: expected 2 fields, as in the first line, got 3 fields");
  require_csv_refusal("a;b\n1;2\n", "expected a column of inputs beside the targets, got 1 columns");
  require_csv_refusal("a,b\n\"1,2\n3,4\n", "line 2: expected a second quote at the end of the field");
  require_csv_refusal("a,b\n\"1\"x,2\n", "expected a separator behind the quote of a field, got 'x'");
  require_csv_refusal("", "expected a line of names and lines of data, got 0 lines");
  require_csv_refusal("a,b\n", "without names write .header = false");
  require_csv_refusal(std::string{"a,b\n1,\0", 7}, "a zero byte at 6");
  require_csv_refusal("a,b\n1,2\n", "expected a column 'c', got the columns 'a', 'b'", {.targets = {"c"}});
  require_csv_refusal("a,a\n1,2\n", "one column 'a', got two of this name", {.targets = {"a"}});
  require_csv_refusal("a,b\n1,2\n", "inputs that are no targets", {.inputs = {"b"}});
  require_csv_refusal("a,b\n1,2.5\n", "a class, which is an integer", {.meaning = data::csv_targets::classes});
  require_csv_refusal("a,b\n1,dog\n", "one of the 2 csv_options::class_names, got 'dog'",
                      {.class_names = {"cat", "cow"}});
  require_csv_refusal("a,b,c\n1,2,3\n", "one column of classes",
                      {.targets = {"b", "c"}, .meaning = data::csv_targets::classes});
  require_csv_refusal("a,b\n1,2\n", "a separator such as", {.separator = '"'});
  BOOST_CHECK_THROW((data::csv{"/nowhere/set.csv"}), gradus::format_error);
}

BOOST_AUTO_TEST_SUITE_END()
