// SPDX-License-Identifier: BSL-1.0
//
// The interface to which the text of a trace is written: a file, a compressed file, or a program's own sink.
#pragma once

#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"

namespace gradus::trace {

/// A destination for the text of a trace.
class text_sink {
 public:
  /// Appends text. @throws format_error if it cannot be written
  virtual void write(std::string_view text) = 0;

 protected:
  text_sink() = default;
  /// Only derived classes can be copied.
  text_sink(const text_sink&) = default;
  /// Only derived classes can be copied.
  text_sink& operator=(const text_sink&) = default;
  ~text_sink() = default;
};

}  // namespace gradus::trace
