// SPDX-License-Identifier: BSL-1.0
//
// A loader on another device than the network.
// EXPECT_ERROR: gradus: the loader gives images on another device than the network
#include <cstdint>  // std::int32_t, std::uint64_t
#include <span>     // std::span

#include "../support/archetypes.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float, gradus::nchw>;
using trainer = gradus::train::trainer<network>;

/// The batches of another device.
struct other_loader {
  struct batch {
    gradus::image_view<const float, gradus::nchw, archetypes::device> images;
    std::span<const std::int32_t> labels;
  };
  void start_epoch(std::uint64_t epoch);
  [[nodiscard]] const batch* next();
  [[nodiscard]] gradus::index_t steps_per_epoch() const;
};

#ifdef GRADUS_TEST_GOOD_TWIN
using loader = gradus::data::loader<float, gradus::nchw>;
#else
using loader = other_loader;
#endif

void train(trainer& trains, loader& images) {
  trains.fit(images, {.epochs = 1});
}
