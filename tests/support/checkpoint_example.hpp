// SPDX-License-Identifier: BSL-1.0
//
// A checkpoint whose bytes follow from its step, for any number of ranks.
#pragma once

#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::int64_t, std::uint64_t
#include <exception>  // std::exception
#include <optional>   // std::optional
#include <string>     // std::string
#include <utility>    // std::pair
#include <vector>     // std::vector

#include "gradus/checkpoint/file.hpp"
#include "gradus/core/random.hpp"

namespace gradus_test {

namespace io = gradus::io;

/// The content of the checkpoint of a step; others of other variants. `large` has tensors of several pages.
class checkpoint_example {
 public:
  explicit checkpoint_example(std::int64_t step, bool large = false, std::uint64_t variant = 0)
      : step_{step}, variant_{variant} {
    add("conv.weight", io::element_type::f32, {3, 5}, true);
    add("bn.running_mean", io::element_type::f32, {7}, false);
    add("trainer.seed", io::element_type::u64, {}, true);
    add("nothing", io::element_type::f64, {0, 4}, true);
    add("optimizer.velocity.conv.weight", io::element_type::f64, {2, 9}, false);
    add("labels", io::element_type::u8, {13}, false);
    if (large) {
      add("dense.weight", io::element_type::f32, {100, 70}, true);
      add("embedding", io::element_type::bf16, {90, 101}, true);
      add("optimizer.velocity.dense.weight", io::element_type::f32, {100, 70}, false);
    }
  }

  /// What a rank has of it. The object must outlive the result.
  [[nodiscard]] io::checkpoint_content of_rank(int rank, int ranks) const {
    io::checkpoint_content content{.step = step_, .metadata = {{"epoch", "7"}, {"note", "a \"text\"\n"}}};
    for (const tensor& each : tensors_) {
      io::stored_array& described = content.arrays.emplace_back(each.described);
      described.memory = each.bytes;
      if (!described.replicated) {
        const gradus::index_t all = described.elements();
        described.held = {all * rank / ranks, all * (rank + 1) / ranks};
        described.memory =
            described.memory.subspan(static_cast<std::size_t>(described.held.begin * described.element_bytes()),
                                     static_cast<std::size_t>(described.held.size() * described.element_bytes()));
      }
    }
    return content;
  }

  /// Says what differs in a file; empty if all is right.
  [[nodiscard]] std::string difference(const io::checkpoint_reader& file) const {
    if (file.step() != step_ || file.metadata("epoch") != "7" || file.metadata("note") != "a \"text\"\n") {
      return "the metadata";
    }
    if (file.header().tensors.size() != tensors_.size()) {
      return "the number of tensors";
    }
    for (const tensor& each : tensors_) {
      const io::safetensors_entry* const entry = file.header().find(each.described.name);
      if (entry == nullptr || entry->shape != each.described.shape || entry->type != each.described.type) {
        return each.described.name;
      }
      std::vector<std::byte> bytes(each.bytes.size());
      file.read(*entry, 0, bytes);
      if (bytes != each.bytes) {
        return each.described.name;
      }
    }
    return {};
  }

  /// A tensor's name, and its bytes.
  [[nodiscard]] std::vector<std::pair<std::string, std::vector<std::byte>>> tensors() const {
    std::vector<std::pair<std::string, std::vector<std::byte>>> all;
    for (const tensor& each : tensors_) {
      all.emplace_back(each.described.name, each.bytes);
    }
    return all;
  }

 private:
  struct tensor {
    io::stored_array described;
    std::vector<std::byte> bytes = {};
  };

  void add(const char* name, io::element_type type, std::vector<gradus::index_t> shape, bool replicated) {
    std::size_t size = io::size_of(type);
    for (const gradus::index_t extent : shape) {
      size *= static_cast<std::size_t>(extent);
    }
    tensor each{.described = {.name = name, .type = type, .shape = shape, .replicated = replicated}};
    for (std::size_t i = 0; i < size; ++i) {
      each.bytes.push_back(static_cast<std::byte>(gradus::detail::mix_bits(
          static_cast<std::uint64_t>(step_) * 1'000'003U + i + tensors_.size() * 77'777U + variant_ * 31U)));
    }
    tensors_.push_back(each);
  }

  std::int64_t step_;
  std::uint64_t variant_;
  std::vector<tensor> tensors_;
};

/// Says what differs in a file, or why it is not valid.
[[nodiscard]] inline std::string difference(const checkpoint_example& expected, const std::string& path,
                                            io::file_system& files = io::operating_system()) {
  try {
    const io::checkpoint_reader file{path, files};
    file.compare_checksums();
    return expected.difference(file);
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

}  // namespace gradus_test
