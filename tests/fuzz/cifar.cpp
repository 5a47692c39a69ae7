// SPDX-License-Identifier: BSL-1.0
//
// The readers of CIFAR-10 and CIFAR-100: the first byte of an input chooses.
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <cstdlib>  // std::abort
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/cifar.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto kind = data[0] % 2 == 0 ? gradus::data::cifar_kind::cifar10 : gradus::data::cifar_kind::cifar100;
  gradus_fuzz::input_source source{data + 1, size - 1};
  gradus::data::detail::cifar_reader reader{kind};
  try {
    reader.read(source);
    const gradus::data::image_dataset set = std::move(reader).result({});
    std::vector<float> planes(3 * 32 * 32);
    set.read(set.size() - 1, planes.data());
    if (set.label(0) < 0 || set.label(0) >= set.classes()) {
      std::abort();
    }
  } catch (const gradus::format_error&) {
  }
  return 0;
}
