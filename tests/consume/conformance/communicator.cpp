// SPDX-License-Identifier: BSL-1.0
//
// Thread ranks that count their sums, in the conformance suite. With an argument a sum forgets the last rank.
#include <algorithm>
#include <chrono>
#include <gradus/comm/threads.hpp>
#include <gradus/conformance/communicator.hpp>
#include <span>
#include <string_view>
#include <utility>

namespace {

namespace comm = gradus::comm;
using comm::request;

bool defective = false;

class counted {
 public:
  static constexpr std::string_view name = "counted";
  template <class Element>
  static constexpr bool supports = comm::threads::supports<Element>;

  explicit counted(comm::threads ranks) : ranks_{std::move(ranks)} {}

  [[nodiscard]] int rank() const noexcept { return ranks_.rank(); }
  [[nodiscard]] int size() const noexcept { return ranks_.size(); }
  [[nodiscard]] std::chrono::milliseconds time_limit() const { return ranks_.time_limit(); }
  void set_time_limit(std::chrono::milliseconds limit) { ranks_.set_time_limit(limit); }

  template <class Element>
  request send(int peer, std::span<const Element> data, int tag) {
    return ranks_.send(peer, data, tag);
  }
  template <class Element>
  request receive(int peer, std::span<Element> data, int tag) {
    return ranks_.receive(peer, data, tag);
  }
  template <class Element>
  request all_reduce(std::span<Element> data, comm::reduction operation) {
    ++sums_;
    if (defective && size() > 1 && rank() == size() - 1 && operation == comm::reduction::sum) {
      std::fill(data.begin(), data.end(), Element{});
    }
    return ranks_.all_reduce(data, operation);
  }
  template <class Element>
  request broadcast(std::span<Element> data, int root) {
    return ranks_.broadcast(data, root);
  }
  template <class Element>
  request reduce_scatter(std::span<const Element> input, std::span<Element> output, comm::reduction operation) {
    return ranks_.reduce_scatter(input, output, operation);
  }
  template <class Element>
  request all_gather(std::span<const Element> input, std::span<Element> output) {
    return ranks_.all_gather(input, output);
  }
  request barrier() { return ranks_.barrier(); }
  [[nodiscard]] counted duplicate() { return counted{ranks_.duplicate()}; }
  void fail(std::string_view reason) noexcept { ranks_.fail(reason); }

 private:
  comm::threads ranks_;
  long sums_ = 0;
};

}  // namespace

int main(int argc, char** /*argv*/) {
  defective = argc > 1;
  return gradus::conformance::report(gradus::conformance::check_communicator<counted>([](int ranks, const auto& body) {
    comm::run_ranks(ranks, [&](comm::threads& world) {
      counted own{std::move(world)};
      body(own);
    });
  }));
}
