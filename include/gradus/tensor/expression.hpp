// SPDX-License-Identifier: BSL-1.0
//
// Expressions and their leaves: tensors, stored results, scalars.
//
// An expression is a tree of small nodes that own their children by value, so that it can be stored and returned like a
// number. Assigning it to a tensor evaluates it. Evaluation reads the tensors in the expression: keep them alive, or
// move them in; the expression then owns their memory.
//
// Evaluation goes row by row; a row runs along the axis that is adjacent in memory. node.row(r) is a cursor with
// scalar(j) and, if the node is `vectorizable`, packet<Packet>(j) and first_lanes<Packet>(j, count), which reads at
// most count elements. If a node is `linear`, row(0) covers the whole tensor.
#pragma once

#include <concepts>     // std::derived_from
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uintptr_t
#include <type_traits>  // std::is_arithmetic_v, std::remove_cvref_t
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/detail/expression/shared_buffer.hpp"
#include "gradus/tensor/detail/packet/packet.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus {

/// A tensor, a view or an expression: any operand with a shape, a layout and a device.
template <class Operand>
concept tensor_operand = requires(const std::remove_cvref_t<Operand>& x) {
  typename std::remove_cvref_t<Operand>::value_type;
  typename std::remove_cvref_t<Operand>::layout_type;
  typename std::remove_cvref_t<Operand>::device_type;
  { std::remove_cvref_t<Operand>::rank + 0 } -> std::same_as<int>;
  x.extents();
  x.device();
};

namespace detail {

/// The extent of the axis that is adjacent in memory; 1 for rank 0.
template <class Layout, int Rank>
[[nodiscard]] constexpr index_t row_length(const extents<Rank>& shape) noexcept {
  if constexpr (Rank == 0) {
    return 1;
  } else {
    return shape[memory_order<Layout, Rank>[static_cast<std::size_t>(Rank - 1)]];
  }
}

/// A tensor in memory: memory of another owner, or memory that copies of the leaf share.
template <class Element, int Rank, class Layout, class Device>
class leaf : public expression_base {
 public:
  using value_type = Element;
  using layout_type = Layout;
  using device_type = Device;
  using packet_element = Element;
  using leaf_type = leaf;
  static constexpr int rank = Rank;
  static constexpr bool stored = true;  // the values are in memory, at data()
  static constexpr bool has_shape = true;
  static constexpr bool linear = true;
  static constexpr bool vectorizable = real_element<Element>;
  static constexpr int complexity = 1;

  class cursor {
   public:
    static constexpr bool approximated = false;  // true if packets have other bits than scalar(j)
    explicit cursor(const Element* data) noexcept : data_{data} {}
    GRADUS_ALWAYS_INLINE Element scalar(index_t j) const noexcept { return data_[j]; }
    template <class Packet>
    GRADUS_ALWAYS_INLINE Packet packet(index_t j) const noexcept {
      return load_packet<Packet>(data_ + j);
    }
    template <class Packet>
    GRADUS_ALWAYS_INLINE Packet first_lanes(index_t j, index_t count) const noexcept {
      return load_part<Packet>(data_ + j, count);
    }

   private:
    const Element* data_;
  };

  leaf(Device& device, const Element* data, const gradus::extents<Rank>& shape) noexcept
      : device_{&device}, data_{data}, extents_{shape} {}
  leaf(Device& device, shared_buffer<Device> buffer, const gradus::extents<Rank>& shape) noexcept
      : device_{&device},
        data_{static_cast<const Element*>(buffer.data())},
        extents_{shape},
        buffer_{std::move(buffer)} {}
  /// Memory of another leaf, from an offset in elements; the copies share its owner.
  template <int OtherRank, class OtherLayout>
  leaf(const leaf<Element, OtherRank, OtherLayout, Device>& of, index_t offset,
       const gradus::extents<Rank>& shape) noexcept
      : device_{&of.device()}, data_{of.data() + offset}, extents_{shape}, buffer_{of.buffer()} {}

  [[nodiscard]] const shared_buffer<Device>& buffer() const noexcept { return buffer_; }
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  [[nodiscard]] const Element* data() const noexcept { return data_; }
  [[nodiscard]] const gradus::extents<Rank>& extents() const noexcept { return extents_; }
  [[nodiscard]] tensor_view<const Element, Rank, Layout, Device> view() const noexcept {
    return {*device_, data_, extents_};
  }
  [[nodiscard]] cursor row(index_t r) const noexcept { return cursor{data_ + r * row_length<Layout>(extents_)}; }

  /// The only element. Waits for the device.
  [[nodiscard]] Element value() const requires(Rank == 0) { return view().value(); }

  /// The values without the expressions that they were computed from.
  [[nodiscard]] const leaf& detached() const noexcept { return *this; }

  /// True if the expression reads this memory.
  [[nodiscard]] bool reads(const void* data) const noexcept { return data_ == data; }
  /// True if it reads memory in [begin, end).
  [[nodiscard]] bool meets(const void* begin, const void* end) const noexcept {
    const auto address = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
    return address(data_) < address(end) && address(begin) < address(data_ + extents_.size());
  }
  /// True if it reads elements of [begin, end) at other positions than it writes them. Writing that memory in order
  /// would change values that are read later.
  [[nodiscard]] bool overlaps(const void* begin, const void* end) const noexcept {
    return data_ != begin && meets(begin, end);
  }
  template <class Leaf>
  static constexpr bool has_leaf = std::same_as<Leaf, leaf>;

 private:
  Device* device_;
  const Element* data_;
  gradus::extents<Rank> extents_;
  shared_buffer<Device> buffer_;
};

/// Memory of a temporary tensor; it becomes a leaf after it is written.
template <class Element, int Rank, class Layout, class Device>
class temporary {
 public:
  temporary(Device& device, const extents<Rank>& shape)
      : device_{&device},
        shape_{shape},
        buffer_{device, static_cast<std::size_t>(checked_product(shape.size(), sizeof(Element)))} {}

  [[nodiscard]] Element* data() const noexcept { return static_cast<Element*>(buffer_.data()); }
  [[nodiscard]] index_t size() const { return shape_.size(); }
  [[nodiscard]] leaf<Element, Rank, Layout, Device> done() && noexcept {
    return {*device_, std::move(buffer_), shape_};
  }

 private:
  Device* device_;
  extents<Rank> shape_;
  shared_buffer<Device> buffer_;
};

/// One value that takes the shape of the other operands.
template <class Element, int Rank, class Layout, class Device>
class constant : public expression_base {
 public:
  using value_type = Element;
  using layout_type = Layout;
  using device_type = Device;
  using packet_element = Element;
  static constexpr int rank = Rank;
  static constexpr bool stored = false;
  static constexpr bool has_shape = false;
  static constexpr bool linear = true;
  static constexpr bool vectorizable = real_element<Element>;
  static constexpr int complexity = 1;

  class cursor {
   public:
    static constexpr bool approximated = false;
    explicit cursor(Element value) noexcept : value_{value} {}
    GRADUS_ALWAYS_INLINE Element scalar(index_t) const noexcept { return value_; }
    template <class Packet>
    GRADUS_ALWAYS_INLINE Packet packet(index_t) const noexcept {
      return set_packet<Packet>(value_);
    }
    template <class Packet>
    GRADUS_ALWAYS_INLINE Packet first_lanes(index_t j, index_t) const noexcept {
      return packet<Packet>(j);
    }

   private:
    Element value_;
  };

  explicit constant(Element value) noexcept : value_{value} {}
  [[nodiscard]] Element value() const noexcept { return value_; }
  [[nodiscard]] cursor row(index_t) const noexcept { return cursor{value_}; }
  [[nodiscard]] const constant& detached() const noexcept { return *this; }
  [[nodiscard]] bool reads(const void*) const noexcept { return false; }
  [[nodiscard]] bool overlaps(const void*, const void*) const noexcept { return false; }
  template <class Leaf>
  static constexpr bool has_leaf = false;

 private:
  Element value_;
};

template <class Node>
inline constexpr bool is_constant = false;
template <class Element, int Rank, class Layout, class Device>
inline constexpr bool is_constant<constant<Element, Rank, Layout, Device>> = true;

}  // namespace detail
}  // namespace gradus
