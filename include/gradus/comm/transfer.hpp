// SPDX-License-Identifier: BSL-1.0
//
// A message or a collective as a value, for code that does not know the type of the elements.
#pragma once

#include <concepts>     // std::derived_from, std::same_as
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint8_t
#include <cstring>      // std::memcpy
#include <span>         // std::as_bytes, std::as_writable_bytes, std::span
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

#include "gradus/comm/call.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

/// The element types that communicators transfer, see `transferable`.
enum class element_kind : unsigned char { float32, float64, int32, int64, uint8, bfloat16, float16 };

/// The kind of an element type.
template <transferable Element>
inline constexpr element_kind element_kind_of = std::is_same_v<Element, float>          ? element_kind::float32
                                                : std::is_same_v<Element, double>       ? element_kind::float64
                                                : std::is_same_v<Element, std::int32_t> ? element_kind::int32
                                                : std::is_same_v<Element, std::int64_t> ? element_kind::int64
                                                : std::is_same_v<Element, std::uint8_t> ? element_kind::uint8
                                                : std::is_same_v<Element, bfloat16>     ? element_kind::bfloat16
                                                                                        : element_kind::float16;

/// An element type as a value: its size and its arithmetic.
struct element_type {
  /// targets[t][i + shift] = sources[0][i] op sources[1][i] op ... for i in [begin, end), in the order of the sources.
  /// A target may be a source if shift is 0.
  using combine_function = void (*)(reduction operation, std::span<const std::byte* const> sources, index_t begin,
                                    index_t end, std::span<std::byte* const> targets, index_t shift);
  /// target[i] = target[i] op source[i] for i in [0, count). The arrays do not overlap.
  using accumulate_function = void (*)(reduction operation, std::byte* target, const std::byte* source, index_t count);

  element_kind kind;               ///< which type it is
  std::string_view name;           ///< its element_name
  index_t bytes;                   ///< size of an element
  combine_function combine;        ///< combines the contributions of some ranks
  accumulate_function accumulate;  ///< combines two arrays
};

namespace detail {

template <transferable Element>
void combine_elements(reduction operation, std::span<const std::byte* const> sources, index_t begin, index_t end,
                      std::span<std::byte* const> targets, index_t shift) {
  reduce_contributions<Element>(
      operation, static_cast<int>(sources.size()), begin, end,
      [=](int rank) { return reinterpret_cast<const Element*>(sources[static_cast<std::size_t>(rank)]); },
      [=](index_t i, const Element* values, auto count) {
        for (std::byte* const target : targets) {
          std::memcpy(reinterpret_cast<Element*>(target) + (i + shift), values,
                      static_cast<std::size_t>(count) * sizeof(Element));
        }
      });
}

template <transferable Element>
void accumulate_elements(reduction operation, std::byte* target, const std::byte* source, index_t count) {
  accumulate(operation, reinterpret_cast<Element*>(target), reinterpret_cast<const Element*>(source), count);
}

}  // namespace detail

/// The value of an element type.
template <transferable Element>
inline constexpr element_type element_type_of{.kind = element_kind_of<Element>,
                                              .name = element_name<Element>,
                                              .bytes = static_cast<index_t>(sizeof(Element)),
                                              .combine = &detail::combine_elements<Element>,
                                              .accumulate = &detail::accumulate_elements<Element>};

/// Numbers of double precision that are only added: what checks and evaluations exchange. The code of the other
/// reductions is not made for them.
inline constexpr element_type doubles_to_add{
    .kind = element_kind::float64,
    .name = element_name<double>,
    .bytes = sizeof(double),
    .combine =
        [](reduction /*sum*/, std::span<const std::byte* const> sources, index_t begin, index_t end,
           std::span<std::byte* const> targets, index_t shift) {
          for (index_t i = begin; i < end; ++i) {
            const auto at = [](const std::byte* array, index_t k) { return array + k * index_t{sizeof(double)}; };
            double sum = 0;
            std::memcpy(&sum, at(sources[0], i), sizeof(sum));
            for (const std::byte* const other : sources.subspan(1)) {
              double value = 0;
              std::memcpy(&value, at(other, i), sizeof(value));
              sum += value;
            }
            for (std::byte* const target : targets) {
              std::memcpy(target + (i + shift) * index_t{sizeof(double)}, &sum, sizeof(sum));
            }
          }
        },
    .accumulate =
        [](reduction /*sum*/, std::byte* target, const std::byte* source, index_t count) {
          for (index_t i = 0; i < count; ++i) {
            double values[2] = {};
            std::memcpy(&values[0], target + i * index_t{sizeof(double)}, sizeof(double));
            std::memcpy(&values[1], source + i * index_t{sizeof(double)}, sizeof(double));
            values[0] += values[1];
            std::memcpy(target + i * index_t{sizeof(double)}, &values[0], sizeof(double));
          }
        }};

/// Bytes that are moved and never combined: std::uint8_t without arithmetic.
inline constexpr element_type bytes_to_move{.kind = element_kind::uint8,
                                            .name = element_name<std::uint8_t>,
                                            .bytes = 1,
                                            .combine = nullptr,
                                            .accumulate = nullptr};

/// A message or a collective with its arrays.
///
///   kind           | input          | output         | elements of `what.count`
///   send           | what is sent   | null           | all
///   receive        | null           | what arrives   | all
///   all_reduce     | as output      | the array      | all
///   broadcast      | as output      | the array      | all
///   reduce_scatter | of all ranks   | of this rank   | of a rank
///   all_gather     | of this rank   | of all ranks   | of a rank
///   barrier        | null           | null           | 0
struct transfer {
  call_description what{};                       ///< the operation; its `element` is the name of `element`
  const void* input = nullptr;                   ///< what is read
  void* output = nullptr;                        ///< what is written
  const element_type* element = &bytes_to_move;  ///< of both arrays

  /// The size of an array of `count` elements, in bytes.
  [[nodiscard]] std::size_t bytes(index_t count) const noexcept {
    return static_cast<std::size_t>(count) * static_cast<std::size_t>(element->bytes);
  }
  /// The elements of `input`. @param ranks  of the communicator
  [[nodiscard]] index_t input_count(int ranks) const noexcept {
    return what.kind == call_kind::receive ? 0 : what.count * (what.kind == call_kind::reduce_scatter ? ranks : 1);
  }
  /// The elements of `output`. @param ranks  of the communicator
  [[nodiscard]] index_t output_count(int ranks) const noexcept {
    return what.kind == call_kind::send ? 0 : what.count * (what.kind == call_kind::all_gather ? ranks : 1);
  }
  /// The larger array.
  [[nodiscard]] std::span<const std::byte> memory(int ranks) const noexcept {
    const bool reads = what.kind == call_kind::send || what.kind == call_kind::reduce_scatter;
    return {static_cast<const std::byte*>(reads ? input : output),
            bytes(reads ? input_count(ranks) : output_count(ranks))};
  }
};

/// The operations of a communicator on spans of elements, each made of `begin(const transfer&)` of the derived class.
template <class Communicator>
class typed_operations {
 public:
  /// Begins to send to another rank; see comm::send.
  template <transferable Element>
  [[nodiscard]] request send(int peer, std::span<const Element> data, int tag) {
    return begin_elements<Element>({.kind = call_kind::send, .peer = peer, .tag = tag}, data.size(), data.data(),
                                   nullptr);
  }
  /// Begins to receive from another rank; see comm::receive.
  template <transferable Element>
  [[nodiscard]] request receive(int peer, std::span<Element> data, int tag) {
    return begin_elements<Element>({.kind = call_kind::receive, .peer = peer, .tag = tag}, data.size(), nullptr,
                                   data.data());
  }
  /// Begins an all-reduce; see comm::all_reduce.
  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element> data, reduction operation) {
    return begin_elements<Element>({.kind = call_kind::all_reduce, .operation = operation}, data.size(), data.data(),
                                   data.data());
  }
  /// Begins a broadcast; see comm::broadcast.
  template <transferable Element>
  [[nodiscard]] request broadcast(std::span<Element> data, int root) {
    return begin_elements<Element>({.kind = call_kind::broadcast, .peer = root}, data.size(), data.data(), data.data());
  }
  /// Begins a reduce-scatter; see comm::reduce_scatter.
  template <transferable Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation) {
    return begin_elements<Element>({.kind = call_kind::reduce_scatter, .operation = operation}, output.size(),
                                   input.data(), output.data());
  }
  /// Begins an all-gather; see comm::all_gather.
  template <transferable Element>
  [[nodiscard]] request all_gather(std::span<const Element> input, std::span<Element> output) {
    return begin_elements<Element>({.kind = call_kind::all_gather}, input.size(), input.data(), output.data());
  }
  /// Begins a barrier; see comm::barrier.
  [[nodiscard]] request barrier() { return static_cast<Communicator&>(*this).begin(transfer{}); }

 protected:
  typed_operations() noexcept = default;

 private:
  template <class Element>
  [[nodiscard]] request begin_elements(call_description what, std::size_t count, const void* input, void* output) {
    what.count = static_cast<index_t>(count);
    what.element = element_name<Element>;
    return static_cast<Communicator&>(*this).begin(
        transfer{.what = what, .input = input, .output = output, .element = &element_type_of<Element>});
  }
};

namespace detail {

/// Begins a transfer of elements by the functions on spans.
template <class Element, class Communicator>
[[nodiscard]] request begin_on_spans(Communicator& communicator, const transfer& one) {
  const int ranks = communicator.size();
  const std::span<const Element> input{static_cast<const Element*>(one.input),
                                       one.input == nullptr ? 0 : static_cast<std::size_t>(one.input_count(ranks))};
  const std::span<Element> output{static_cast<Element*>(one.output),
                                  one.output == nullptr ? 0 : static_cast<std::size_t>(one.output_count(ranks))};
  switch (one.what.kind) {
    case call_kind::send:
      return communicator.send(one.what.peer, input, one.what.tag);
    case call_kind::receive:
      return communicator.receive(one.what.peer, output, one.what.tag);
    case call_kind::all_reduce:
      return communicator.all_reduce(output, one.what.operation);
    case call_kind::broadcast:
      return communicator.broadcast(output, one.what.peer);
    case call_kind::reduce_scatter:
      return communicator.reduce_scatter(input, output, one.what.operation);
    case call_kind::all_gather:
      return communicator.all_gather(input, output);
    case call_kind::barrier:
    case call_kind::duplicate:
    case call_kind::register_memory:
      break;
  }
  return communicator.barrier();
}

/// Calls function(Element{}) with the type of a kind.
template <class Function>
decltype(auto) with_element(element_kind kind, const Function& function) {
  switch (kind) {
    case element_kind::float32:
      return function(float{});
    case element_kind::float64:
      return function(double{});
    case element_kind::int32:
      return function(std::int32_t{});
    case element_kind::int64:
      return function(std::int64_t{});
    case element_kind::uint8:
      return function(std::uint8_t{});
    case element_kind::bfloat16:
      return function(bfloat16{});
    case element_kind::float16:
      break;
  }
  return function(float16{});
}

}  // namespace detail

namespace detail {

/// Of a class that derives from typed_operations: it has declared none of the functions on spans again.
template <class Communicator>
concept has_operations_of_base = requires {
  requires std::is_same_v<decltype(&Communicator::template send<float>),
                          request (typed_operations<Communicator>::*)(int, std::span<const float>, int)>;
  requires std::is_same_v<decltype(&Communicator::template receive<float>),
                          request (typed_operations<Communicator>::*)(int, std::span<float>, int)>;
  requires std::is_same_v<decltype(&Communicator::template all_reduce<float>),
                          request (typed_operations<Communicator>::*)(std::span<float>, reduction)>;
  requires std::is_same_v<decltype(&Communicator::template broadcast<float>),
                          request (typed_operations<Communicator>::*)(std::span<float>, int)>;
  requires std::is_same_v<decltype(&Communicator::template reduce_scatter<float>),
                          request (typed_operations<Communicator>::*)(std::span<const float>, std::span<float>,
                                                                      reduction)>;
  requires std::is_same_v<decltype(&Communicator::template all_gather<float>),
                          request (typed_operations<Communicator>::*)(std::span<const float>, std::span<float>)>;
  requires std::is_same_v<decltype(&Communicator::barrier), request (typed_operations<Communicator>::*)()>;
};

}  // namespace detail

/// A communicator that begins every transfer by `begin(const transfer&)`. One that derives from comm::forwarding and
/// declares, say, all_reduce again does not: its functions on spans are called.
template <class Communicator>
concept begins_transfers = requires(Communicator& communicator, const transfer& one) {
  { communicator.begin(one) } -> std::same_as<request>;
}
&&(!std::derived_from<Communicator, typed_operations<Communicator>> || detail::has_operations_of_base<Communicator>);

/// Begins a transfer on any communicator: by its own `begin(const transfer&)`, or by its functions on spans.
template <class Communicator>
[[nodiscard]] request begin(Communicator& communicator, const transfer& one) {
  if constexpr (begins_transfers<Communicator>) {
    return communicator.begin(one);
  } else {
    return detail::with_element(one.element->kind, [&]<class Element>(Element /*of_type*/) {
      if constexpr (Communicator::template supports<Element>) {
        return detail::begin_on_spans<Element>(communicator, one);
      } else {
        raise<configuration_error>(one.what.name(), {"a communicator that sends ", one.element->name},
                                   {"'", Communicator::name, "'"}, "see its `supports`");
        return request{};
      }
    });
  }
}

}  // namespace gradus::comm
