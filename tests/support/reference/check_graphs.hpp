// SPDX-License-Identifier: BSL-1.0
//
// Draws graphs, runs them, compares them with the reference, and shows the smallest graph of a failure.
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "compare_networks.hpp"
#include "graph_text.hpp"

namespace gradus_test {

/// Which graphs are drawn, and what rounding does to them.
struct graph_sample {
  std::string element;       ///< for messages
  rounding rounded;          ///< of a stored number, and of gradients near zero
  std::uint64_t graphs = 0;  ///< GRADUS_TEST_GRAPHS in the environment replaces it
  index_t most_layers = 16;
  int runs = 2;  ///< of each graph
};

[[nodiscard]] inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

/// Checks random graphs from the seed GRADUS_TEST_SEED on.
///
/// @param draw_run  how a graph is run: from the draws of the graph to a value with to_string
/// @param train     the training of a graph in such a run
template <class DrawRun, class Train>
void check_random_graphs(const graph_sample& sample, const DrawRun& draw_run, const Train& train) {
  const std::uint64_t count = number_from_environment("GRADUS_TEST_GRAPHS", sample.graphs);
  const std::uint64_t first = number_from_environment("GRADUS_TEST_SEED", 1);
  std::uint64_t runs = 0;
  std::uint64_t undecided = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    draws draw{seed * 2654435761U};
    const graph_spec spec = graph_generator{seed, draw.between(2, sample.most_layers)}.generate();
    training_spec training = draw_training(draw);
    // Where rounding could decide a ReLU or a maximum, other numbers are drawn.
    std::optional<rounded_reference> reference;
    for (std::uint64_t attempt = 0; attempt < 20 && !(reference && reference->decided()); ++attempt) {
      training.seed = seed + 1000003 * attempt;
      reference.emplace(spec, training, sample.rounded);
    }
    if (!reference->decided()) {
      ++undecided;
      continue;
    }
    for (int k = 0; k < sample.runs; ++k) {
      const auto run = draw_run(draw);
      const auto failure = [&](const graph_spec& graph, const rounded_reference& expected) {
        try {
          return expected.difference(train(graph, training, run));
        } catch (const std::exception& error) {
          return std::optional{std::string{"threw "} + error.what() + "\n"};
        }
      };
      ++runs;
      if (const auto wrong = failure(spec, *reference)) {
        const graph_spec smallest = shrink_graph(spec, [&](const graph_spec& graph) {
          const rounded_reference expected{graph, training, sample.rounded};
          return expected.decided() && failure(graph, expected).has_value();
        });
        BOOST_ERROR("GRADUS_TEST_SEED=" << seed << ", " << sample.element << ", " << to_string(run) << '\n'
                                        << *wrong << "The smallest graph that fails:\n"
                                        << to_cpp(smallest) << to_string(training) << '\n'
                                        << *failure(smallest, rounded_reference{smallest, training, sample.rounded}));
        return;
      }
    }
  }
  BOOST_TEST_MESSAGE(sample.element << ": " << count << " graphs, " << runs << " runs, " << undecided
                                    << " graphs that rounding decides");
  BOOST_TEST(runs > count * static_cast<std::uint64_t>(sample.runs) / 4, "a quarter of the graphs can be compared");
}

}  // namespace gradus_test
