// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR: gradus: the data set's images vary from epoch to epoch, but its label maps do not
#include <cstdint>

#include "gradus/data/dataset.hpp"

struct varied_set {
  [[nodiscard]] gradus::index_t size() const;
  [[nodiscard]] gradus::image_extents example() const;
  [[nodiscard]] std::uint64_t hash() const;
  void read(gradus::index_t i, float* planes) const;
  void read(gradus::index_t i, std::uint64_t epoch, float* planes) const;
  [[nodiscard]] int classes() const;
  [[nodiscard]] gradus::image_extents label_map() const;
  void read_labels(gradus::index_t i, std::int32_t* labels) const;
#ifdef GRADUS_TEST_GOOD_TWIN
  void read_labels(gradus::index_t i, std::uint64_t epoch, std::int32_t* labels) const;
#endif
};
static_assert(gradus::data::explain_dataset<varied_set, float>());
