// SPDX-License-Identifier: BSL-1.0
//
// Saves the weights that ranks have trained together.
#pragma once

#include <cstddef>      // std::size_t
#include <exception>    // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <functional>   // std::less
#include <map>          // std::map
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <type_traits>  // std::remove_reference_t
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/detail/state/agree.hpp"
#include "gradus/train/detail/state/plan.hpp"

namespace gradus::train {

namespace detail {

/// The first rank with each weight of a network in stages, by name.
template <class Element>
[[nodiscard]] std::map<std::string, int, std::less<>> ranks_of_weights(const nn::graph& graph,
                                                                       const parallel::strategy<Element>& strategy) {
  std::map<std::string, int, std::less<>> ranks;
  for (const state_parameter& each : parameters_of_state(graph, strategy)) {
    ranks.emplace(each.description->name, each.stage);
  }
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const nn::graph::node& n = graph.nodes()[i];
    for (const nn::buffer_description& each : n.layer->buffers()) {
      ranks.emplace(gradus::join({n.name, ".", each.name}), strategy.rank_of_stage(graph.stages().stage_of(i)));
    }
  }
  return ranks;
}

}  // namespace detail

/// Saves the weights of a trainer's network, those of all stages of a pipeline too: the file that io::save_weights
/// writes of the whole network. Called by all ranks that train, outside of fit or by a callback of all of them; rank 0
/// writes. It returns on all ranks when the file is complete.
///
///   train::save_weights(trainer, "model.safetensors");
///
/// Of a network in stages, each tensor is sent to all ranks, one after another; a rank needs memory for the largest.
///
/// @throws what io::save_weights throws; on other ranks than that with the mistake configuration_error with its text
/// @throws communication_error if a rank fails or does not call it
template <class Trainer>
void save_weights(Trainer& trainer, const std::string& path, const io::save_weights_options& options = {},
                  io::file_system& files = io::operating_system(), error_location where = error_location::current()) {
  at_call(where, [&] {
    const auto training = detail::trainer_access::parts_of(trainer);
    using network = std::remove_reference_t<decltype(*training.network)>;
    const network& net = *training.network;
    const int rank = training.group->rank();
    training.end->settle();
    if (!net.structure().in_stages()) {
      detail::all_or_none(*training.group, "train::save_weights", [&] {
        if (rank == 0) {
          io::save_weights(net, path, options, files, where);
        }
      });
      return;
    }
    const io::weights_in_file<network> file{net, options, where};
    const auto ranks = detail::ranks_of_weights(net.structure(), training.end->strategy());
    std::size_t sent = 0;  // tensors
    const auto read = [&](const io::safetensors_entry& tensor, auto& values) {
      file.copy(tensor, values);
      training.group->broadcast(std::as_writable_bytes(std::span{values}), ranks.find(file.name_of(tensor))->second);
      ++sent;
    };
    std::exception_ptr failure;
    if (rank == 0) {
      try {
        file.write(path, read, files, where);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    for (std::vector<typename io::weights_in_file<network>::element> values; sent < file.header().tensors.size();) {
      read(file.header().tensors[sent], values);
    }
    detail::all_or_none(*training.group, "train::save_weights", [&] {
      if (failure != nullptr) {
        std::rethrow_exception(failure);
      }
    });
  });
}

}  // namespace gradus::train
