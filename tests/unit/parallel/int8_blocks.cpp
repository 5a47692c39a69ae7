// SPDX-License-Identifier: BSL-1.0
//
// Gradients in 8 bits: the sums and residuals of every rank are those of the definition, written out for all ranks in
// one loop.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/parallel/int8_blocks.hpp"

namespace int8_gradients {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus::index_t;
using int8_all_reduce = parallel::compressed_all_reduce<parallel::int8_blocks>;

/// The gradient of an element on a rank in a step.
template <class Element>
using gradient_function = std::function<Element(int rank, int step, index_t i)>;

/// What all ranks have: (rank, element).
template <class Element>
using of_ranks = std::vector<std::vector<Element>>;

/// The numbers that a block of 256 arrives as.
template <class Element>
std::vector<Element> definition(const std::vector<Element>& values) {
  double largest = 0;
  bool finite = true;
  for (const Element each : values) {
    finite = finite && std::isfinite(each) && std::abs(each) <= static_cast<Element>(1.7014118346046923e38);
    largest = std::max(largest, static_cast<double>(std::abs(each)));
  }
  std::vector<Element> arrived(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!finite) {
      arrived[i] = std::numeric_limits<Element>::quiet_NaN();
    } else if (largest >= static_cast<double>(127 * 1.17549435e-38F)) {
      const auto most = static_cast<Element>(largest);
      const Element scaled = values[i] * (Element{127} / most);
      const auto code = static_cast<int>(std::trunc(scaled + std::copysign(Element{0.5}, scaled)));
      BOOST_REQUIRE(std::abs(code) <= 127);
      arrived[i] = static_cast<Element>(static_cast<float>(most / 127)) * static_cast<Element>(code);
    }
  }
  return arrived;
}

/// Sums and residuals after some steps, of all ranks.
template <class Element>
struct outcome {
  std::vector<of_ranks<Element>> sums;  // of each step
  of_ranks<Element> residuals;
};

/// The algorithm: chunks of whole blocks, one for each rank.
template <class Element>
outcome<Element> reference(int ranks, int steps, index_t elements, const std::vector<parallel::part>& parts,
                           const gradient_function<Element>& gradient) {
  const auto all = static_cast<std::size_t>(ranks);
  outcome<Element> result{
      .sums = {}, .residuals = of_ranks<Element>(all, std::vector<Element>(static_cast<std::size_t>(elements)))};
  for (int step = 0; step < steps; ++step) {
    std::vector<Element> sums(static_cast<std::size_t>(elements));
    for (const parallel::part& part : parts) {
      const index_t blocks = (part.size() + 255) / 256;
      for (index_t which = 0; which < blocks; ++which) {
        std::size_t owner = 0;
        while (blocks * static_cast<index_t>(owner + 1) / ranks <= which) {
          ++owner;
        }
        const auto begin = static_cast<std::size_t>(part.begin + which * 256);
        const auto end = std::min(begin + 256, static_cast<std::size_t>(part.end));
        std::vector<Element> total(end - begin);
        const auto add = [&](const std::vector<Element>& values) {
          for (std::size_t k = 0; k < values.size(); ++k) {
            total[k] += values[k];
          }
        };
        const auto keep = [&](std::size_t rank, const std::vector<Element>& values,
                              const std::vector<Element>& arrived) {
          for (std::size_t k = 0; k < values.size() && !std::isnan(arrived[0]); ++k) {
            result.residuals[rank][begin + k] = values[k] - arrived[k];
          }
        };
        for (std::size_t rank = 0; rank < all; ++rank) {
          std::vector<Element> values(end - begin);
          for (std::size_t i = begin; i < end; ++i) {
            values[i - begin] =
                gradient(static_cast<int>(rank), step, static_cast<index_t>(i)) + result.residuals[rank][i];
          }
          if (rank == owner) {
            add(values);
          } else {
            const std::vector<Element> arrived = definition(values);
            keep(rank, values, arrived);
            add(arrived);
          }
        }
        const std::vector<Element> arrived = definition(total);
        keep(owner, total, arrived);
        std::copy(arrived.begin(), arrived.end(), sums.begin() + static_cast<std::ptrdiff_t>(begin));
      }
    }
    result.sums.push_back(of_ranks<Element>(all, sums));
  }
  return result;
}

template <class Element>
std::vector<Element> residuals_of(parallel::strategy<Element>& strategy) {
  std::vector<Element> residuals;
  for (const parallel::strategy_buffer& each : strategy.buffers()) {
    residuals.resize(static_cast<std::size_t>(each.memory.elements));
    std::memcpy(residuals.data(), each.memory.bytes.data(), residuals.size() * sizeof(Element));
  }
  return residuals;
}

/// The same by the library.
template <class Element, class Communicator = comm::threads>
outcome<Element> measured(int ranks, int steps, index_t elements, const std::vector<optim::segment>& segments,
                          const parallel::all_reduce& options, const gradient_function<Element>& gradient,
                          optim::parameter_update<Element>* update = nullptr) {
  struct of_rank {
    std::vector<std::vector<Element>> sums;
    std::vector<Element> residuals;
  };
  const auto outcomes = comm::run_ranks(ranks, [&](comm::threads& threads) {
    Communicator world{threads.duplicate()};
    std::vector<Element> values(static_cast<std::size_t>(elements));
    std::vector<Element> gradients(values.size(), std::numeric_limits<Element>::quiet_NaN());  // in gaps
    const auto strategy = parallel::make_strategy<Element>(
        int8_all_reduce{options}, world, parallel::flat_parameters<Element>{values, gradients, segments});
    if (update != nullptr) {
      strategy->use(*update);
    }
    strategy->start();
    of_rank result;
    for (int step = 0; step < steps; ++step) {
      for (const optim::segment& each : segments) {
        for (index_t i = each.offset; i < each.offset + each.size; ++i) {
          gradients[static_cast<std::size_t>(i)] = gradient(world.rank(), step, i);
        }
      }
      for (std::size_t k = 0; k < segments.size(); ++k) {
        strategy->gradients_ready(k, 1);
      }
      strategy->end_of_step(0.1);
      strategy->finish([](std::span<const optim::segment>) {});
      result.sums.push_back(gradients);
    }
    result.residuals = residuals_of<Element>(*strategy);
    return result;
  });
  outcome<Element> result;
  for (int step = 0; step < steps; ++step) {
    result.sums.emplace_back();
    for (const of_rank& each : outcomes) {
      result.sums.back().push_back(each.sums[static_cast<std::size_t>(step)]);
    }
  }
  for (const of_rank& each : outcomes) {
    result.residuals.push_back(each.residuals);
  }
  return result;
}

template <class Element>
bool same_bits(const of_ranks<Element>& one, const of_ranks<Element>& other) {
  bool same = one.size() == other.size();
  for (std::size_t rank = 0; same && rank < one.size(); ++rank) {
    same = one[rank].size() == other[rank].size();
    for (std::size_t i = 0; same && i < one[rank].size(); ++i) {
      same = one[rank][i] == other[rank][i] || (std::isnan(one[rank][i]) && std::isnan(other[rank][i]));
    }
  }
  return same;
}

/// One parameter of all elements.
std::vector<optim::segment> whole(index_t elements) {
  return {{.name = "a", .offset = 0, .size = elements}};
}

/// The bits of the definition, for random parameters, buckets, partitions and gradients of all magnitudes.
template <class Element, class Communicator = comm::threads>
void check_definition(int ranks, std::uint64_t seed) {
  const gradus::random_stream random{seed};
  std::uint64_t next = 0;
  const auto below = [&](double bound) { return static_cast<index_t>(random.uniform(next++) * bound); };
  std::vector<optim::segment> segments;
  index_t elements = 0;
  for (index_t left = 1 + below(5); left > 0; --left) {
    segments.push_back({.name = std::to_string(left), .offset = elements, .size = 1 + below(left % 2 == 0 ? 900 : 40)});
    elements += segments.back().size + below(3);
  }
  const index_t bucket = 1 + below(800);
  const index_t partition = below(3) == 0 ? 0 : 1 + below(700);
  constexpr auto bytes = static_cast<index_t>(sizeof(Element));
  const parallel::all_reduce options{.bucket_bytes = bucket * bytes,
                                     .first_bucket_bytes = bytes,
                                     .overlap = below(2) == 0,
                                     .partition_bytes = partition * bytes,
                                     .credit_bytes = below(2) * 4000};
  const auto buckets = parallel::make_buckets(segments, elements, 1, bucket);
  const auto cut = parallel::make_parts({buckets.data(), buckets.size()}, partition);
  const auto in_a_gap = [&](index_t i) {
    return std::none_of(segments.begin(), segments.end(),
                        [&](const optim::segment& each) { return each.offset <= i && i < each.offset + each.size; });
  };
  const gradient_function<Element> gradient = [&](int rank, int step, index_t i) {
    if (in_a_gap(i)) {
      return Element{0};
    }
    const auto at = static_cast<std::uint64_t>(i);
    const auto sequence = static_cast<std::uint64_t>(1 + rank + 10 * step);
    // Each 64 elements have a magnitude of their own: one in five is 0, one denormal numbers, few are not finite.
    const double kind = random.uniform(at / 64, sequence + 1000);
    const double number = 2 * random.uniform(at, sequence) - 1;
    const double power = kind < 0.2 ? -45 : std::floor(kind * 12) - 6;
    return kind < 0.1                      ? Element{0}
           : kind > 0.999 && number > 0.95 ? std::numeric_limits<Element>::infinity()
                                           : static_cast<Element>(number * std::pow(10.0, power));
  };
  const int steps = 4;
  const auto want = reference<Element>(ranks, steps, elements, {cut.begin(), cut.end()}, gradient);
  const auto found = measured<Element, Communicator>(ranks, steps, elements, segments, options, gradient);
  for (std::size_t step = 0; step < want.sums.size(); ++step) {
    if (ranks > 1) {
      BOOST_TEST(same_bits(found.sums[step], want.sums[step]),
                 "sums of step " << step << " on " << ranks << " ranks, seed " << seed);
    } else {
      BOOST_TEST(found.sums[step][0][0] == gradient(0, static_cast<int>(step), 0));
    }
  }
  BOOST_TEST((ranks == 1 ? found.residuals[0].empty() : same_bits(found.residuals, want.residuals)),
             "residuals on " << ranks << " ranks, seed " << seed);
}

/// A link that does not match messages by tags.
class link_without_tags final : public comm::forwarding_link {
 public:
  explicit link_without_tags(std::unique_ptr<comm::link> of)
      : forwarding_link{*of, without(*of)}, own_{std::move(of)} {}
  [[nodiscard]] std::unique_ptr<comm::link> duplicate() override {
    return std::make_unique<link_without_tags>(inner().duplicate());
  }

 private:
  static comm::link_properties without(const comm::link& of) {
    comm::link_properties properties = of.properties();
    properties.matches_tags = false;
    return properties;
  }
  std::unique_ptr<comm::link> own_;
};

BOOST_AUTO_TEST_SUITE(parallel_int8_blocks)

BOOST_AUTO_TEST_CASE(sums_and_residuals_are_those_of_the_definition) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      check_definition<float>(ranks, seed);
      check_definition<double>(ranks, seed + 100);
    }
  }
}

BOOST_AUTO_TEST_CASE(collectives_carry_them_as_well) {
  check_definition<float, comm::collectives<comm::threads>>(3, 7);
}

// What has been delivered and what all ranks keep are all gradients.
BOOST_AUTO_TEST_CASE(nothing_is_lost) {
  const index_t elements = 1000;
  const int steps = 20;
  const gradient_function<double> gradient = [](int rank, int step, index_t i) {
    return std::sin(1.0 + static_cast<double>(i) * 0.37 + rank * 5.1 + step * 1.3) * (i < 500 ? 1 : 1e-3);
  };
  for (const int ranks : {2, 3, 5}) {
    const auto found = measured<double>(ranks, steps, elements, whole(elements), {.bucket_bytes = 0}, gradient);
    double largest = 0;
    double kept = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
      double sum = 0;
      for (int step = 0; step < steps; ++step) {
        sum += found.sums[static_cast<std::size_t>(step)][0][i];
        for (int rank = 0; rank < ranks; ++rank) {
          sum -= gradient(rank, step, static_cast<index_t>(i));
        }
      }
      for (int rank = 0; rank < ranks; ++rank) {
        sum += found.residuals[static_cast<std::size_t>(rank)][i];
        kept = std::max(kept, std::abs(found.residuals[static_cast<std::size_t>(rank)][i]));
      }
      largest = std::max(largest, std::abs(sum));
    }
    BOOST_TEST(largest < 1e-13);
    BOOST_TEST(kept > 1e-3);                 // something was rounded
    BOOST_TEST(kept < ranks / 254.0 * 1.1);  // and it does not pile up
  }
}

BOOST_AUTO_TEST_CASE(a_block_that_is_not_finite_arrives_as_nan_and_keeps_its_residual) {
  const index_t elements = 1024;
  const auto segments = whole(elements);
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max()}) {
    for (const int of_rank : {0, 1}) {
      for (const index_t at : {0, 300, 1023}) {
        const auto train = [&](int steps) {
          return measured<float>(2, steps, elements, segments, {.bucket_bytes = 0}, [&](int rank, int step, index_t i) {
            return step == 1 && rank == of_rank && i == at ? wrong : std::sin(static_cast<float>(i));
          });
        };
        const auto before = train(1);
        const auto found = train(2);
        const auto begin = static_cast<std::size_t>(at / 256 * 256);
        for (std::size_t rank = 0; rank < 2; ++rank) {
          for (std::size_t i = 0; i < 1024; ++i) {
            const bool in_block = i >= begin && i < begin + 256;
            BOOST_REQUIRE(std::isnan(found.sums[1][rank][i]) == in_block);
          }
        }
        const std::size_t rounds = static_cast<std::size_t>(of_rank);
        for (std::size_t i = begin; i < begin + 256; ++i) {
          BOOST_REQUIRE(found.residuals[rounds][i] == before.residuals[rounds][i]);
        }
      }
    }
  }
}

// They are smaller than a scale can be: they wait until there is enough of them.
BOOST_AUTO_TEST_CASE(what_is_too_small_waits_in_the_residual) {
  const auto found = measured<float>(2, 4, 300, whole(300), {.bucket_bytes = 0},
                                     [](int /*rank*/, int /*step*/, index_t i) { return i == 3 ? 0.5e-36F : 1e-42F; });
  BOOST_TEST(found.sums[0][1][3] == 0.0F);
  BOOST_TEST(found.sums[1][1][3] == 0.0F);
  BOOST_TEST(found.sums[2][1][3] + found.sums[3][1][3] > 1.4e-36F);
  BOOST_TEST(found.sums[0][1][299] == 0.0F);
}

// Powers of two change no bit: a residual has no scale, so it goes on with another one.
BOOST_AUTO_TEST_CASE(a_scaled_loss_does_not_scale_residuals) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const optim::update<optim::sgd> scaled{.loss_scaling = {.initial = 1024}};
  const auto update = optim::make_parameter_update<float>(device, scaled, 1000);
  const auto gradient = [](int rank, int step, index_t i) {
    return std::cos(static_cast<float>(rank + 3 * step) + 0.1F * static_cast<float>(i));
  };
  const auto plain = measured<float>(2, 3, 1000, whole(1000), {}, gradient);
  const auto with_scale = measured<float>(
      2, 3, 1000, whole(1000), {}, [&](int rank, int step, index_t i) { return 1024.0F * gradient(rank, step, i); },
      update.get());
  BOOST_TEST(same_bits(plain.residuals, with_scale.residuals));
  for (std::size_t i = 0; i < 1000; ++i) {
    BOOST_REQUIRE(with_scale.sums[2][0][i] == 1024.0F * plain.sums[2][0][i]);
  }
}

BOOST_AUTO_TEST_CASE(say_what_they_are_and_how_they_round) {
  const auto texts = comm::run_ranks(2, [](comm::threads& world) {
    std::vector<float> values(3000);
    std::vector<float> gradients(3000);
    const auto segments = whole(3000);
    int8_all_reduce::state<float> strategy{int8_all_reduce{}, world, {values, gradients, segments}};
    std::vector<std::string> result{strategy.describe()};
    for (const float wrong : {1.0F, std::numeric_limits<float>::infinity()}) {
      for (std::size_t i = 0; i < 3000; ++i) {
        gradients[i] = std::sin(static_cast<float>(i));
      }
      gradients[2999] = wrong;
      strategy.gradients_ready(0, 1);
      strategy.finish([](std::span<const optim::segment>) {});
      result.push_back(strategy.channel().summary());
    }
    return result;
  });
  for (const auto& each : texts) {
    BOOST_TEST(each[0].find("all_reduce by threads in int8, ") == 0U, each[0]);
    BOOST_TEST(each[1].find("gradients in int8: relative error ") == 0U, each[1]);
    BOOST_TEST(each[1].find("e-03, 0 sums not finite") != std::string::npos, each[1]);  // 1 / 254 / sqrt(3) * sqrt(2)
    BOOST_TEST(each[2].find(", 184 sums not finite") != std::string::npos, each[2]);    // of the last block
  }
}

BOOST_AUTO_TEST_CASE(need_messages_with_tags) {
  const auto messages = comm::run_ranks(2, [](comm::threads& world) {
    comm::any_communicator all{world};
    comm::any_communicator without{
        std::unique_ptr<comm::link>{std::make_unique<link_without_tags>(all.link().duplicate())}};
    std::vector<float> values(8);
    std::vector<float> gradients(8);
    const auto segments = whole(8);
    try {
      (void)parallel::make_strategy<float>(int8_all_reduce{}, without,
                                           parallel::flat_parameters<float>{values, gradients, segments});
    } catch (const gradus::configuration_error& failure) {
      return std::string{failure.what()};
    }
    return std::string{};
  });
  BOOST_TEST(messages[0].find("matches messages by their tags") != std::string::npos, messages[0]);
}

// The others wait for its messages, and get its reason.
BOOST_AUTO_TEST_CASE(one_that_fails_ends_the_others) {
  const auto segments = whole(5000);
  std::vector<std::string> reasons(3);
  BOOST_CHECK_THROW(comm::run_ranks(3,
                                    [&](comm::threads& world) {
                                      std::vector<float> values(5000);
                                      std::vector<float> gradients(5000, 1.0F);
                                      const auto strategy = parallel::make_strategy<float>(
                                          int8_all_reduce{}, world,
                                          parallel::flat_parameters<float>{values, gradients, segments});
                                      strategy->start();
                                      if (world.rank() == 1) {
                                        throw std::runtime_error{"rank 1 is out of cake"};
                                      }
                                      try {
                                        strategy->gradients_ready(0, 1);
                                        strategy->finish([](std::span<const optim::segment>) {});
                                      } catch (const gradus::communication_error& failure) {
                                        reasons[static_cast<std::size_t>(world.rank())] = failure.what();
                                        throw;
                                      }
                                      return 0;
                                    }),
                    std::exception);
  BOOST_TEST(reasons[0].find("rank 1") != std::string::npos, reasons[0]);
  BOOST_TEST(reasons[2].find("rank 1") != std::string::npos, reasons[2]);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace int8_gradients
