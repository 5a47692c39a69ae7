// SPDX-License-Identifier: BSL-1.0
//
// Whether a state is one of the training that is to go on from it.
#pragma once

#include <charconv>      // std::from_chars
#include <cstddef>       // std::size_t
#include <cstdint>       // std::uint64_t
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::errc

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/core/version.hpp"
#include "gradus/io/element_type.hpp"
#include "gradus/io/stored_array.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus::train::detail {

inline constexpr std::string_view state_format = "gradus training state 1";
inline constexpr std::string_view restoring = "train::restore";

/// @throws format_error when the state has no such text
[[nodiscard]] inline const std::string& property_of(const state_source& source, std::string_view name) {
  const std::string* const value = source.property(name);
  if (value == nullptr) {
    raise<format_error>(restoring, {"the text '", name, "' in the state"}, "none",
                        "a file of weights only has no state of a training");
  }
  return *value;
}

/// @throws format_error when it is not a number
[[nodiscard]] inline std::uint64_t number_of(const state_source& source, std::string_view name) {
  const std::string& text = property_of(source, name);
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) {
    raise<format_error>(restoring, {"a number as '", name, "' of the state"}, {"'", text, "'"});
  }
  return value;
}

/// The same for a number in a range. @throws format_error also when it is outside
[[nodiscard]] inline std::uint64_t number_of(const state_source& source, std::string_view name, std::uint64_t least,
                                             std::uint64_t most) {
  const std::uint64_t value = number_of(source, name);
  if (value < least || value > most) {
    raise<format_error>(restoring, {"a number from ", least, " to ", most, " as '", name, "' of the state"}, {value});
  }
  return value;
}

[[nodiscard]] inline bool is_of_trainer(std::string_view name) noexcept {
  return name.starts_with("trainer.");
}

/// "conv1.weight float32 (5, 2, 3, 3)"
[[nodiscard]] inline std::string describe(const io::stored_array& one) {
  std::string text = gradus::join({one.name, " ", io::element_name_of(one.type), " ("});
  for (std::size_t i = 0; i < one.shape.size(); ++i) {
    append_text(text, {i == 0 ? "" : ", ", one.shape[i]});
  }
  return text += ')';
}

/// Whether two arrays have the same type of elements and the same shape.
[[nodiscard]] inline bool same_form(const io::stored_array& one, const io::stored_array& other) noexcept {
  return one.type == other.type && one.shape == other.shape;
}

/// The index of an array under a name, which may be a copy of another rank's.
/// @throws shape_error unless the state has it with the type and the shape of `wanted`
[[nodiscard]] inline std::size_t index_of(const state_source& source, std::string_view name,
                                          const io::stored_array& wanted) {
  const std::size_t i = source.find(name);
  if (i == source.entries() || !same_form(source.entry(i), wanted)) {
    raise<shape_error>(restoring, {"an array '", name, "' in the form of ", describe(wanted)},
                       i == source.entries() ? std::string{"none"} : describe(source.entry(i)),
                       "the state is damaged, or one of another network or strategy");
  }
  return i;
}

/// Collects what is wrong, the first few of each kind.
class difference_list {
 public:
  explicit difference_list(std::string_view title) noexcept : title_{title} {}
  void add(const std::string& one) {
    if (count_++ < most) {
      append_text(text_, {count_ == 1 ? "" : ", ", one});
    }
  }
  /// "missing: a, b and 3 more", or nothing
  [[nodiscard]] std::string text() const {
    std::string all;
    if (count_ > 0) {
      append_text(all, {title_, ": ", text_});
    }
    if (count_ > most) {
      append_text(all, {" and ", count_ - most, " more"});
    }
    return all;
  }

 private:
  static constexpr std::size_t most = 6;
  std::string_view title_;
  std::string text_;
  std::size_t count_ = 0;
};

/// @param wanted  the arrays of this training
/// @throws shape_error with the arrays that are missing, unexpected or of another shape or element type
inline void require_arrays(const state_source& source, const training_state& wanted) {
  difference_list missing{"missing"};
  difference_list unexpected{"unexpected"};
  difference_list different{"different"};
  for (const io::stored_array& each : wanted.arrays()) {
    if (is_of_trainer(each.name)) {
      continue;
    }
    const std::size_t i = source.find(each.name);
    if (i == source.entries()) {
      missing.add(describe(each));
      continue;
    }
    if (!same_form(source.entry(i), each)) {
      different.add(gradus::join({describe(source.entry(i)), " for ", describe(each)}));
    }
  }
  for (std::size_t i = 0; i < source.entries(); ++i) {
    const std::string& name = source.entry(i).name;
    if (!is_of_trainer(name) && wanted.find(name) == wanted.entries()) {
      unexpected.add(describe(source.entry(i)));
    }
  }
  std::string text;
  for (const difference_list* const each : {&missing, &unexpected, &different}) {
    const std::string part = each->text();
    append_text(text, {text.empty() || part.empty() ? "" : "; ", part});
  }
  if (!text.empty()) {
    raise<shape_error>(restoring, "the arrays of this network and update rule", text,
                       "the state is one of another network or rule");
  }
}

/// Compares what the layers of the state compute with those of this network, line by line. A state of an earlier
/// version may have no such text, and that of another version may tell other options.
/// @param own  network::describe_options()
/// @throws configuration_error with the first line that differs
inline void require_layers(const state_source& source, std::string_view own) {
  const std::string* const all = source.property("layers");
  if (all == nullptr) {
    return;
  }
  const std::string* const written_by = source.property("gradus version");
  const bool same_version = written_by != nullptr && *written_by == version;
  const auto take_line = [&](std::string_view& rest) {
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(rest.size() == line.size() ? line.size() : line.size() + 1);
      if (same_version || !(line.starts_with("layer ") || line.starts_with("loss ("))) {  // not an option
        return line;
      }
    }
    return std::string_view{};
  };
  for (std::string_view theirs = *all; !theirs.empty() || !own.empty();) {
    const std::string_view saved = take_line(theirs);
    const std::string_view here = take_line(own);
    if (saved != here) {
      raise<configuration_error>(restoring, {"the layers of the state: ", saved.empty() ? "no more" : saved},
                                 here.empty() ? "no more" : here,
                                 "build the network as the one that was saved. io::load_weights takes only the "
                                 "weights, and train::restore with "
                                 "{.same_layers = false} a state by the names and shapes of parameters");
    }
  }
}

/// @throws configuration_error unless a text of the state is that of this training
inline void require_property(const state_source& source, std::string_view name, std::string_view own,
                             std::string_view hint) {
  if (const std::string& found = property_of(source, name); found != own) {
    raise<configuration_error>(restoring, {"a state with the ", name, " '", own, "'"}, {"'", found, "'"}, hint);
  }
}

}  // namespace gradus::train::detail
