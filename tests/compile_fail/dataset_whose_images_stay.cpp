// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: the data set's targets vary from epoch to epoch, but its images do not
#include <cstdint>

#include "gradus/data/dataset.hpp"

struct varied_set {
  [[nodiscard]] gradus::index_t size() const;
  [[nodiscard]] gradus::image_extents example() const;
  [[nodiscard]] std::uint64_t hash() const;
  void read(gradus::index_t i, float* planes) const;
  [[nodiscard]] gradus::image_extents target() const;
  void read_target(gradus::index_t i, float* target) const;
  void read_target(gradus::index_t i, std::uint64_t epoch, float* target) const;
#ifdef GRADUS_TEST_GOOD_TWIN
  void read(gradus::index_t i, std::uint64_t epoch, float* planes) const;
#endif
};
static_assert(gradus::data::explain_dataset<varied_set, float>());
