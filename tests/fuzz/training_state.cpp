// SPDX-License-Identifier: BSL-1.0
//
// The state of a training in a .safetensors file, as checkpoints have it: the numbers and texts that a trainer goes on
// from, and an epoch from there. The checksums of checkpoints are not looked at.
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint8_t
#include <cstdlib>      // std::abort
#include <cstring>      // std::memcpy
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/checkpoint/detail/training/state_file.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/train/reduce_on_plateau.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"
#include "input.hpp"

namespace {

namespace train = gradus::train;

/// What state_of_checkpoint is for a checkpoint.
class file_state final : public train::state_source {
 public:
  explicit file_state(const gradus::io::safetensors_file& file) : file_{&file} {
    for (const gradus::io::safetensors_entry& each : file.tensors()) {
      entries_.push_back({.name = each.name, .type = each.type, .shape = each.shape});
    }
  }

  [[nodiscard]] std::size_t entries() const noexcept override { return entries_.size(); }
  [[nodiscard]] const gradus::io::stored_array& entry(std::size_t i) const noexcept override { return entries_.at(i); }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    return file_->metadata(gradus::join({train::detail::property_prefix, name}));
  }
  [[nodiscard]] gradus::dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    const std::string whole = gradus::join({train::detail::property_prefix, prefix});
    gradus::dynamic_array<std::string> names;
    for (const auto& [name, text] : file_->header().metadata) {
      if (name.starts_with(whole)) {
        names.push_back(name.substr(train::detail::property_prefix.size()));
      }
    }
    return names;
  }
  void read(std::size_t i, gradus::index_t first, std::span<std::byte> to) const override {
    const std::span<const std::uint8_t> bytes = file_->bytes(file_->tensors()[i]);
    const auto begin = static_cast<std::size_t>(first * entries_.at(i).element_bytes());
    if (begin > bytes.size() || to.size() > bytes.size() - begin) {
      std::abort();
    }
    if (!to.empty()) {
      std::memcpy(to.data(), bytes.data() + begin, to.size());
    }
  }

 private:
  const gradus::io::safetensors_file* file_;
  std::vector<gradus::io::stored_array> entries_;
};

/// The training of the states in the corpus.
struct small_training {
  using network = gradus::nn::network<float>;

  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::image_dataset set =
      gradus::data::make_synthetic({.examples = 5, .channels = 2, .height = 2, .width = 2, .classes = 2, .seed = 3});
  gradus::data::loader<float, network::layout_type> loader{device, set, {.global_batch_size = 2, .seed = 5}};
  network net{device, {2, 2, 2}};
  train::trainer<network> trainer{built(), gradus::optim::adam{}};

  network& built() {
    namespace nn = gradus::nn;
    const nn::value x = net.add("norm", nn::batch_norm{}, net.input());
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 2}, x));
    net.compile({.max_batch_size = 2, .seed = 5});
    return net;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static small_training own;
  const gradus_fuzz::input_file input{data, size};
  try {
    const gradus::io::safetensors_file file{input.path()};
    train::restore(own.trainer, file_state{file});
    train::reduce_on_plateau rate{{.initial = 0.1}};
    own.trainer.fit(own.loader, {.epochs = 2, .learning_rate = rate}, rate);
  } catch (const gradus::error&) {
  }
  return 0;
}
