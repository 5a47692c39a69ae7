// SPDX-License-Identifier: BSL-1.0
//
// Thread ranks that count their sums, in the conformance suite. With an argument a sum forgets the last rank.
#include <algorithm>
#include <gradus/comm/forwarding.hpp>
#include <gradus/comm/threads.hpp>
#include <gradus/conformance/communicator.hpp>
#include <span>
#include <string_view>
#include <utility>

namespace {

namespace comm = gradus::comm;
using comm::request;

bool defective = false;

class counted : public comm::forwarding<counted> {
 public:
  static constexpr std::string_view name = "counted";
  template <class Element>
  static constexpr bool supports = comm::threads::supports<Element>;

  explicit counted(comm::threads ranks) : ranks_{std::move(ranks)} {}

  template <class Element>
  request all_reduce(std::span<Element> data, comm::reduction operation) {
    ++sums_;
    if (defective && size() > 1 && rank() == size() - 1 && operation == comm::reduction::sum) {
      std::fill(data.begin(), data.end(), Element{});
    }
    return forwarding::all_reduce(data, operation);
  }
  [[nodiscard]] counted duplicate() { return counted{ranks_.duplicate()}; }

 private:
  friend class comm::forwarding<counted>;

  [[nodiscard]] comm::threads& inner() noexcept { return ranks_; }
  [[nodiscard]] const comm::threads& inner() const noexcept { return ranks_; }

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
