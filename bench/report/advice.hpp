// SPDX-License-Identifier: BSL-1.0
//
// What is said of an activity that costs time: where it is, and what helps.
#pragma once

#include "activity.hpp"

namespace gradus::report::detail {

/// Where a rank is that others wait for.
inline const char* where_it_is(activity cause) {
  switch (cause) {
    case activity::forward:
      return " in forward";
    case activity::backward:
      return " in backward";
    case activity::exchange:
      return " in its part of the exchange";
    case activity::update:
      return " in update";
    case activity::input:
      return " in input";
    case activity::copy:
      return " in copies";
    case activity::evaluate:
      return " while it evaluates";
    case activity::log:
      return " while it logs";
    case activity::communicate:
      return ", which serves others";
    case activity::wait:
      return ", which waits itself";
    case activity::other:
      return " in a part of its step that is not recorded";
    case activity::idle:
      return " between its steps";
  }
  return "";
}

/// What helps against it.
inline const char* advice_for(activity cause) {
  switch (cause) {
    case activity::forward:
    case activity::backward:
    case activity::update:
      return "That rank computes more slowly: look at its processor, its number of threads and what else runs on its "
             "host.";
    case activity::input:
      return "Give its loader more threads, decode ahead, or move its data nearer.";
    case activity::copy:
      return "Avoid its copies: keep data in one layout and one element, and hand over views.";
    case activity::evaluate:
      return "Let all ranks evaluate a part each, or evaluate less often.";
    case activity::log:
      return "Log less often, or outside of the path that all ranks wait for.";
    case activity::exchange:
      return "That rank begins transfers, adds up or copies more slowly: look at its processor and what else runs on "
             "its host.";
    case activity::communicate:
      return "Spread the parameters over more servers, or use an all-reduce.";
    case activity::wait:
    case activity::other:
    case activity::idle:
      break;
  }
  return "Look at its timeline.";
}

}  // namespace gradus::report::detail
