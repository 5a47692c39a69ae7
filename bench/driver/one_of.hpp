// SPDX-License-Identifier: BSL-1.0
//
// Options of a command line that take one of several names.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace driver {

template <class Value>
using names = std::map<std::string, Value>;

/// Accepts only names of the list; help and errors show only the names.
template <class Value>
CLI::Validator one_of(const names<Value>& all) {
  std::string text;
  for (const auto& [name, value] : all) {
    text += (text.empty() ? "{" : ",") + name;
  }
  text += "}";
  const auto transform = [all, text, to_value = CLI::Transformer(all)](std::string& name) {
    return all.count(name) == 0 ? name + " not in " + text : to_value(name);
  };
  return CLI::Validator{transform, text};
}

}  // namespace driver
