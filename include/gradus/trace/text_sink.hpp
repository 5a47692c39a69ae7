// SPDX-License-Identifier: BSL-1.0
//
// Where the text of a trace goes: a file, a compressed file, a text of a program's own.
#pragma once

#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"

namespace gradus::trace {

/// Where the text of a trace goes.
class text_sink {
 public:
  /// @throws device_error when it cannot be written
  virtual void write(std::string_view text) = 0;

 protected:
  text_sink() = default;
  text_sink(const text_sink&) = default;
  text_sink& operator=(const text_sink&) = default;
  ~text_sink() = default;
};

}  // namespace gradus::trace
