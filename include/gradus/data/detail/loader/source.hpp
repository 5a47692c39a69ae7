// SPDX-License-Identifier: BSL-1.0
//
// A data set without its type: its properties, and the functions that read an example.
#pragma once

#include <cstdint>  // std::int32_t, std::uint64_t
#include <memory>   // std::addressof

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/sampler.hpp"

namespace gradus::data::detail {

/// The properties of a data set.
struct dataset_properties {
  index_t size = 0;
  image_extents example = {};  // (1, c, h, w)
  int classes = 0;             // 0: the targets are real numbers
  index_t labels = 0;          // of an example
  image_extents target = {};   // real numbers of an example: (1, c, h, w), or empty
  bool weighted = false;       // each example has a weight
  bool ignores = false;        // a label may be `ignored`
  std::int32_t ignored = 0;
  std::uint64_t hash = 0;
  held_examples held = {};  // where the set is spread over ranks
};

/// Where an example's targets are written; a pointer is null where the set has no such targets.
template <class Plane>
struct target_memory {
  std::int32_t* labels = nullptr;
  Plane* values = nullptr;  // plane after plane
  Plane* weight = nullptr;
};

/// A data set that gives elements of type Plane.
template <class Plane>
struct set_source {
  const void* set = nullptr;
  void (*read)(const void* set, index_t i, std::uint64_t epoch, Plane* planes) = nullptr;
  void (*read_targets)(const void* set, index_t i, std::uint64_t epoch, const target_memory<Plane>& to) = nullptr;
};

template <class Plane, class Dataset>
[[nodiscard]] dataset_properties properties_of(const Dataset& set) {
  static_assert(explain_dataset<Dataset, Plane>());
  dataset_properties properties{.size = static_cast<index_t>(set.size()),
                                .example = set.example(),
                                .hash = static_cast<std::uint64_t>(set.hash())};
  if constexpr (has_label_maps<Dataset>) {  // also beside label(): only the map says that there are no labels
    const image_extents map = set.label_map();
    properties.classes = static_cast<int>(set.classes());
    properties.labels = map.h * map.w;
  } else if constexpr (has_labels<Dataset>) {
    properties.classes = static_cast<int>(set.classes());
    properties.labels = 1;
  }
  if constexpr (has_real_targets<Dataset, Plane>) {
    properties.target = set.target();
  }
  if constexpr (requires { set.ignored_label().has_value(); }) {
    properties.ignores = set.ignored_label().has_value();
    properties.ignored = set.ignored_label().value_or(0);
  } else if constexpr (requires { set.ignored_label(); }) {
    properties.ignores = true;
    properties.ignored = static_cast<std::int32_t>(set.ignored_label());
  }
  if constexpr (requires { set.held(); }) {
    properties.held = set.held();
  }
  properties.weighted = requires {
    set.weight(index_t{});
  };
  if constexpr (requires { set.weighted(); }) {
    properties.weighted = properties.weighted && set.weighted();
  }
  return properties;
}

/// Reads all targets of an example. @tparam Varied  those of the epoch, where the set has them
template <class Plane, class Dataset, bool Varied>
void read_targets(const void* erased, index_t i, [[maybe_unused]] std::uint64_t epoch, const target_memory<Plane>& to) {
  const auto& from = *static_cast<const Dataset*>(erased);
  if constexpr (Varied && varies_label_maps<Dataset>) {
    from.read_labels(i, epoch, to.labels);
  } else if constexpr (has_label_maps<Dataset>) {
    from.read_labels(i, to.labels);
  } else if constexpr (has_labels<Dataset>) {
    *to.labels = from.label(i);
  }
  if constexpr (Varied && varies_real_targets<Dataset, Plane>) {
    from.read_target(i, epoch, to.values);
  } else if constexpr (has_real_targets<Dataset, Plane>) {
    from.read_target(i, to.values);
  }
  if constexpr (requires { from.weight(i); }) {
    *to.weight = static_cast<Plane>(from.weight(i));
  }
}

/// @param augment  read the variant of the example that belongs to the epoch, where the set has them
template <class Plane, class Dataset>
[[nodiscard]] set_source<Plane> source_of(const Dataset& set, bool augment) {
  set_source<Plane> source{.set = std::addressof(set)};
  source.read = [](const void* erased, index_t i, std::uint64_t /*epoch*/, Plane* planes) {
    static_cast<const Dataset*>(erased)->read(i, planes);
  };
  if constexpr (varies_pixels<Dataset, Plane>) {
    if (augment) {
      source.read = [](const void* erased, index_t i, std::uint64_t epoch, Plane* planes) {
        static_cast<const Dataset*>(erased)->read(i, epoch, planes);
      };
    }
  }
  source.read_targets = &read_targets<Plane, Dataset, false>;
  if constexpr (varies_label_maps<Dataset> || varies_real_targets<Dataset, Plane>) {
    if (augment) {
      source.read_targets = &read_targets<Plane, Dataset, true>;
    }
  }
  return source;
}

}  // namespace gradus::data::detail
