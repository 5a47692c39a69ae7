// SPDX-License-Identifier: BSL-1.0
//
// The concept of a device: memory, copies to and from the host, and completion.
#pragma once

#include <concepts>     // std::convertible_to, std::same_as
#include <cstddef>      // std::ptrdiff_t, std::size_t
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"

namespace gradus {

namespace kernels {

/// A base class of devices. It makes unqualified calls on the device find its overloads in gradus::kernels, for any
/// order of includes.
struct overload_set {};

}  // namespace kernels

/// A requirement of `device_policy`: Device has `Device::name`, a constant string.
template <class Device>
concept has_device_name = requires {
  { Device::name } -> std::convertible_to<std::string_view>;
};

/// A requirement of `device_policy`: Device has allocate and deallocate.
template <class Device>
concept has_device_memory = requires(Device& device, void* pointer, std::size_t bytes) {
  { device.allocate(bytes) } -> std::same_as<void*>;
  { device.deallocate(pointer, bytes) }
  noexcept;
};

/// A requirement of `device_policy`: Device has copies and fill_zero.
template <class Device>
concept has_device_copies = requires(Device& device, void* destination, const void* source, std::size_t bytes) {
  device.copy(destination, source, bytes);
  device.copy_from_host(destination, source, bytes);
  device.copy_to_host(destination, source, bytes);
  device.fill_zero(destination, bytes);
};

/// A requirement of `device_policy`: Device has synchronize().
template <class Device>
concept has_device_synchronize = requires(Device& device) {
  device.synchronize();
};

/// A device with memory that the host cannot access: `Device::host_accessible` is false. Optional; without it the host
/// can access the memory.
template <class Device>
concept has_memory_of_its_own = requires {
  requires !Device::host_accessible;
};

/// A device that runs several operations at the same time, each on a stream, which is a device too. `streams()` is
/// their number, and `parallel_streams(task)` calls task(i) once for each stream i. Optional.
template <class Device>
concept has_device_streams = requires(Device& device, void (&task)(std::ptrdiff_t)) {
  { device.streams() } -> std::convertible_to<int>;
  { device.stream(std::size_t{0}) } -> std::same_as<Device&>;
  device.parallel_streams(task);
};

/// True if the host can read and write the memory of the device.
template <class Device>
inline constexpr bool has_host_memory = !has_memory_of_its_own<Device>;

/// A device whose arithmetic may take denormal numbers as 0: `device.flush_denormals()` says it. Optional; without it
/// the device keeps them.
template <class Device>
concept has_denormal_option = requires(const Device& device) {
  { device.flush_denormals() } -> std::convertible_to<bool>;
};

/// Whether a device takes denormal numbers as 0. What the host computes for it does the same (floating_point_scope).
template <class Device>
[[nodiscard]] constexpr bool flushes_denormals_on([[maybe_unused]] const Device& device) noexcept {
  if constexpr (has_denormal_option<Device>) {
    return device.flush_denormals();
  } else {
    return false;
  }
}

/// A device: it stores tensors and evaluates expressions.
///
/// A type Device models `device_policy` when, for a `Device& device`,
///   1. `Device::name` is a constant string used in messages;
///   2. `device.allocate(bytes)` returns memory aligned to 64 bytes or throws device_error, and
///      `device.deallocate(pointer, bytes)` frees it and does not throw;
///   3. `copy`, `copy_from_host`, `copy_to_host` (destination, source, bytes) and `fill_zero` (destination, bytes) run
///      after earlier work of the device; after `copy_to_host` the host may read the bytes;
///   4. `device.synchronize()` returns when all earlier work is done.
/// Semantics: tests/conformance/device. Expressions and networks need overloads on the device type too, which
/// gradus/tensor/device_expressions.hpp and gradus/kernels/device_kernels.hpp list. A device is an object and outlives
/// the tensors on it.
template <class Device>
concept device_policy =
    has_device_name<Device> && has_device_memory<Device> && has_device_copies<Device> && has_device_synchronize<Device>;

/// Reports at compile time which requirement of `device_policy` the type Device does not meet. Returns true if it
/// compiles.
template <class Device>
consteval bool explain_device_policy() {
  static_assert(has_device_name<Device>,
                "gradus: not a device policy: give it a name, e.g. "
                "static constexpr std::string_view name = \"cpu\";");
  static_assert(has_device_memory<Device>,
                "gradus: not a device policy: give it memory: void* allocate(std::size_t bytes); "
                "void deallocate(void* pointer, std::size_t bytes) noexcept;");
  static_assert(has_device_copies<Device>,
                "gradus: not a device policy: give it copy, copy_from_host, copy_to_host "
                "(void* destination, const void* source, std::size_t bytes) and fill_zero(void* destination, "
                "std::size_t bytes)");
  static_assert(has_device_synchronize<Device>, "gradus: not a device policy: give it void synchronize();");
  return true;
}

}  // namespace gradus
