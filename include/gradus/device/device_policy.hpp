// SPDX-License-Identifier: BSL-1.0
//
// What a device must offer: memory, copies to and from the host, and completion.
#pragma once

#include <concepts>     // std::convertible_to, std::same_as
#include <cstddef>      // std::ptrdiff_t, std::size_t
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"

namespace gradus {

namespace kernels {

/// A device that derives from it makes unqualified calls on the device find its overloads in gradus::kernels, whatever
/// the order in which headers are included.
struct overload_set {};

}  // namespace kernels

template <class D>
concept has_device_name = requires {
  { D::name } -> std::convertible_to<std::string_view>;
};

template <class D>
concept has_device_memory = requires(D& device, void* pointer, std::size_t bytes) {
  { device.allocate(bytes) } -> std::same_as<void*>;
  { device.deallocate(pointer, bytes) }
  noexcept;
};

template <class D>
concept has_device_copies = requires(D& device, void* destination, const void* source, std::size_t bytes) {
  device.copy(destination, source, bytes);
  device.copy_from_host(destination, source, bytes);
  device.copy_to_host(destination, source, bytes);
  device.fill_zero(destination, bytes);
};

template <class D>
concept has_device_synchronize = requires(D& device) {
  device.synchronize();
};

/// A device whose memory the host cannot read: `D::host_accessible` is false. Not required; other memory is the host's.
template <class D>
concept has_memory_of_its_own = requires {
  requires !D::host_accessible;
};

/// A device that runs several operations at the same time, each on a stream, which is a device too: `streams()` says
/// how many, and `parallel_streams(task)` calls task(i) once for every stream i. Not required.
template <class D>
concept has_device_streams = requires(D& device, void (&task)(std::ptrdiff_t)) {
  { device.streams() } -> std::convertible_to<int>;
  { device.stream(std::size_t{0}) } -> std::same_as<D&>;
  device.parallel_streams(task);
};

/// Can the host read and write the memory of the device?
template <class D>
inline constexpr bool has_host_memory = !has_memory_of_its_own<D>;

/// A place where tensors live and expressions are evaluated.
///
/// A type D models `device_policy` when, for a `D& device`,
///   1. `D::name` is a constant string used in messages;
///   2. `device.allocate(bytes)` returns memory aligned to 64 bytes or throws device_error, and
///      `device.deallocate(pointer, bytes)` takes it back and does not throw;
///   3. `copy`, `copy_from_host`, `copy_to_host` (destination, source, bytes) and `fill_zero` (destination, bytes) are
///      ordered after earlier work of the device; after `copy_to_host` the host may read the bytes;
///   4. `device.synchronize()` returns when all earlier work is done.
/// Semantics: tests/conformance/device. Expressions and networks need overloads on the device type too, which
/// gradus/tensor/device_expressions.hpp and gradus/kernels/device_kernels.hpp list. A device is an object and outlives
/// the tensors on it.
template <class D>
concept device_policy = has_device_name<D> && has_device_memory<D> && has_device_copies<D> && has_device_synchronize<D>;

/// Says which requirement of `device_policy` the type D misses. Always true when it compiles.
template <class D>
consteval bool explain_device_policy() {
  static_assert(has_device_name<D>,
                "gradus: not a device policy: give it a name, e.g. "
                "static constexpr std::string_view name = \"cpu\";");
  static_assert(has_device_memory<D>,
                "gradus: not a device policy: give it memory: void* allocate(std::size_t bytes); "
                "void deallocate(void* pointer, std::size_t bytes) noexcept;");
  static_assert(has_device_copies<D>,
                "gradus: not a device policy: give it copy, copy_from_host, copy_to_host "
                "(void* destination, const void* source, std::size_t bytes) and fill_zero(void* destination, "
                "std::size_t bytes)");
  static_assert(has_device_synchronize<D>, "gradus: not a device policy: give it void synchronize();");
  return true;
}

}  // namespace gradus
