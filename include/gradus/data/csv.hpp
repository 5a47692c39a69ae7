// SPDX-License-Identifier: BSL-1.0
//
// A data set of a CSV file: columns of numbers, and classes or real targets.
#pragma once

#include <algorithm>    // std::find, std::lower_bound, std::max, std::sort, std::unique
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t, std::uint64_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move, std::pair
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/detail/csv/table.hpp"
#include "gradus/data/detail/loader/hash.hpp"

namespace gradus::data {

/// The meaning of the column of targets.
enum class csv_targets : unsigned char {
  automatic,  ///< words are classes, numbers are real targets
  classes,    ///< a class in each line, as a word or as a number
  real        ///< numbers
};

/// Options of a data set of a CSV file.
struct csv_options {
  std::vector<std::string> targets = {};         ///< columns of the targets; empty: the last one
  std::vector<std::string> inputs = {};          ///< columns of the inputs; empty: all that are no targets
  csv_targets meaning = csv_targets::automatic;  ///< meaning of the targets
  /// The names of the classes, in their order: those of the training set, for a set to validate with. Empty: the words
  /// of the column, sorted; for numbers, 0 to the largest.
  std::vector<std::string> class_names = {};
  bool header = true;                   ///< false: the first line has data, and columns are called "1", "2", ...
  char separator = ',';                 ///< between the fields of a line
  normalization normalize{.scale = 1};  ///< inputs become (scale * x - mean[c]) / deviation[c] in column c
};

/// A data set of a CSV file (RFC 4180), which is read into memory: one example in each line.
///
///   const data::csv houses{"houses.csv", {.targets = {"price"}}};
///   const data::csv irises{"iris.csv", {.targets = {"species"}}};   // words: irises.class_names()
///   const data::csv checks{"check.csv", {.targets = {"species"}, .class_names = irises.class_names()}};
///
/// An input has the shape (1, F, 1, 1) for F columns, and a real target (1, T, 1, 1). Fields may be in double quotes,
/// in which "" is a quote. Numbers have a decimal point, whatever the locale is; spaces around them are skipped. Empty
/// lines, a byte order mark and carriage returns are skipped. A missing number is an error. The set is immutable; any
/// number of threads may read it.
class csv {
 public:
  /// @throws format_error if the file cannot be read, a line has another number of fields than the first, a field is
  ///         not the finite number or the class that is expected, or there is no line of data; with line and column
  /// @throws configuration_error if there is no column of a name, a column is an input and a target, a class needs one
  ///         column, or the normalization is invalid
  explicit csv(const std::string& path, csv_options options = {}, error_location where = error_location::current()) try
      : options_{std::move(options)} {
    const detail::csv_table table{path, options_.separator, options_.header};
    std::vector<std::size_t> targets = table.columns(options_.targets);
    if (targets.empty()) {
      targets = {table.names().size() - 1};
    }
    std::vector<std::size_t> inputs = table.columns(options_.inputs);
    for (std::size_t column = 0; options_.inputs.empty() && column < table.names().size(); ++column) {
      if (std::find(targets.begin(), targets.end(), column) == targets.end()) {
        inputs.push_back(column);
      }
    }
    if (inputs.empty()) {
      raise<configuration_error>({"csv '", path, "'"}, "a column of inputs beside the targets",
                                 {table.names().size(), " columns"});
    }
    for (const std::size_t column : inputs) {
      if (std::find(targets.begin(), targets.end(), column) != targets.end()) {
        raise<configuration_error>({"csv '", path, "'"}, "inputs that are no targets",
                                   {"'", table.names()[column], "'"});
      }
    }
    columns_ = static_cast<index_t>(inputs.size());
    target_columns_ = static_cast<index_t>(targets.size());
    data::detail::check_normalization(options_.normalize, columns_);
    inputs_ = table.numbers(inputs);
    labels_are_classes_ =
        options_.meaning == csv_targets::classes || !options_.class_names.empty() ||
        (options_.meaning == csv_targets::automatic && targets.size() == 1 && !table.has_numbers(targets.front()));
    if (labels_are_classes_) {
      if (targets.size() != 1) {
        raise<configuration_error>({"csv '", path, "'"}, "one column of classes",
                                   {targets.size(), " columns of targets"});
      }
      read_classes(table, targets.front());
    } else {
      targets_ = table.numbers(targets);
    }
    examples_ = static_cast<index_t>(inputs_.size()) / columns_;
    hash_ = hash_of(targets_, hash_of(inputs_, static_cast<std::uint64_t>(columns_)));
    hash_ = data::detail::hash_bytes(
        {reinterpret_cast<const std::uint8_t*>(labels_.data()), labels_.size() * sizeof(std::int32_t)}, hash_);
    normalize();
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The number of examples.
  [[nodiscard]] index_t size() const noexcept { return examples_; }
  /// The extents of an input: (1, F, 1, 1) for F columns.
  [[nodiscard]] image_extents example() const noexcept { return {1, columns_, 1, 1}; }
  /// The normalization of the inputs.
  [[nodiscard]] const normalization& values() const noexcept { return options_.normalize; }
  /// A hash of inputs and targets.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  /// Writes input i. @pre 0 <= i < size()
  template <class Element>
  void read(index_t i, Element* planes) const noexcept {
    copy(inputs_, columns_, i, planes);
  }

  /// The number of classes; 0 where the targets are real.
  [[nodiscard]] int classes() const noexcept {
    return labels_are_classes_ ? static_cast<int>(options_.class_names.size()) : 0;
  }
  /// The names of the classes, in their order; empty where the targets are real.
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept { return options_.class_names; }
  /// The class of example i. @pre 0 <= i < size(), and the targets are classes
  [[nodiscard]] std::int32_t label(index_t i) const noexcept { return labels_[static_cast<std::size_t>(i)]; }
  /// The extents of the labels of an example: (1, 1, 1, 1), or (1, 1, 0, 0) where the targets are real.
  [[nodiscard]] image_extents label_map() const noexcept {
    return labels_are_classes_ ? image_extents{1, 1, 1, 1} : image_extents{1, 1, 0, 0};
  }
  /// Writes the class of example i. @pre 0 <= i < size()
  void read_labels(index_t i, std::int32_t* labels) const noexcept {
    if (labels_are_classes_) {
      *labels = label(i);
    }
  }

  /// The extents of a real target: (1, T, 1, 1), or empty where the targets are classes.
  [[nodiscard]] image_extents target() const noexcept {
    return labels_are_classes_ ? image_extents{} : image_extents{1, target_columns_, 1, 1};
  }
  /// Writes target i. @pre 0 <= i < size()
  template <class Element>
  void read_target(index_t i, Element* planes) const noexcept {
    if (!labels_are_classes_) {
      copy(targets_, target_columns_, i, planes);
    }
  }

 private:
  template <class Element>
  static void copy(const std::vector<double>& from, index_t columns, index_t i, Element* to) noexcept {
    for (index_t c = 0; c < columns; ++c) {
      to[c] = static_cast<Element>(from[static_cast<std::size_t>(i * columns + c)]);
    }
  }

  static std::uint64_t hash_of(const std::vector<double>& numbers, std::uint64_t hash) noexcept {
    return data::detail::hash_bytes(
        {reinterpret_cast<const std::uint8_t*>(numbers.data()), numbers.size() * sizeof(double)}, hash);
  }

  void read_classes(const detail::csv_table& table, std::size_t column) {
    const std::vector<std::string_view> words = table.words(column);
    std::vector<std::string>& names = options_.class_names;
    if (names.empty() && table.has_numbers(column)) {
      std::int32_t largest = 0;
      for (std::size_t line = 0; line < words.size(); ++line) {
        const double value = table.number(line, column);
        constexpr std::int32_t most = 1 << 20;
        if (!(value >= 0 && value <= most) || value != static_cast<double>(static_cast<std::int32_t>(value))) {
          table.refuse(line, column, {"a class, which is an integer from 0 to ", most}, {"'", words[line], "'"});
        }
        labels_.push_back(static_cast<std::int32_t>(value));
        largest = std::max(largest, labels_.back());
      }
      for (std::int32_t number = 0; number <= largest; ++number) {
        names.push_back(std::to_string(number));
      }
      return;
    }
    if (names.empty()) {
      names.assign(words.begin(), words.end());
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
    }
    std::vector<std::pair<std::string_view, std::int32_t>> numbered;  // by name
    for (const std::string& name : names) {
      numbered.emplace_back(name, static_cast<std::int32_t>(numbered.size()));
    }
    std::sort(numbered.begin(), numbered.end());
    for (std::size_t line = 0; line < words.size(); ++line) {
      const auto found = std::lower_bound(numbered.begin(), numbered.end(), std::pair{words[line], std::int32_t{0}});
      if (found == numbered.end() || found->first != words[line]) {
        table.refuse(line, column, {"one of the ", names.size(), " csv_options::class_names"}, {"'", words[line], "'"});
      }
      labels_.push_back(found->second);
    }
  }

  void normalize() noexcept {
    const normalization& values = options_.normalize;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::size_t c = i % static_cast<std::size_t>(columns_);
      const double mean = values.mean.empty() ? 0.0 : values.mean[c];
      const double deviation = values.deviation.empty() ? 1.0 : values.deviation[c];
      inputs_[i] = (values.scale * inputs_[i] - mean) / deviation;
    }
  }

  csv_options options_;
  index_t examples_ = 0;
  index_t columns_ = 0;
  index_t target_columns_ = 0;
  bool labels_are_classes_ = false;
  std::vector<double> inputs_;
  std::vector<double> targets_;
  std::vector<std::int32_t> labels_;
  std::uint64_t hash_ = 0;
};
static_assert(dataset<csv, float>);

}  // namespace gradus::data
