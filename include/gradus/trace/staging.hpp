// SPDX-License-Identifier: BSL-1.0
//
// Records the copies between a device and the host in a staged communicator.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::int64_t
#include <utility>  // std::move

#include "gradus/comm/staged.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace {

/// A staging for comm::staged that records a span of category::copy for each of its copies:
///
/// @code
///   comm::staged hosts{comm::mpi{environment}, trace::traced_staging{recorder, comm::cuda_staging{gpu}}};
///   auto world = trace::traced(std::move(hosts), recorder);
/// @endcode
///
/// The recorder must outlive it and its copies.
template <comm::staging Staging>
class traced_staging {
 public:
  /// Records the copies of `staging` with the recorder `to`.
  traced_staging(recorder& to, Staging staging) : recorder_{&to}, staging_{std::move(staging)} {}

  /// True if the memory is the device's.
  [[nodiscard]] bool on_device(void* memory) { return staging_.on_device(memory); }
  /// Allocates host memory; see comm::staging.
  [[nodiscard]] void* allocate(std::size_t bytes) { return staging_.allocate(bytes); }
  /// Frees memory of allocate.
  void deallocate(void* memory, std::size_t bytes) noexcept { staging_.deallocate(memory, bytes); }

  /// Copies to the host and records a span.
  void to_host(void* host, const void* device, std::size_t bytes) {
    const scope copying{*recorder_, category::copy, "to the host", {}, static_cast<std::int64_t>(bytes)};
    staging_.to_host(host, device, bytes);
  }
  /// Copies to the device and records a span.
  void to_device(void* device, const void* host, std::size_t bytes) {
    const scope copying{*recorder_, category::copy, "to the device", {}, static_cast<std::int64_t>(bytes)};
    staging_.to_device(device, host, bytes);
  }

 private:
  recorder* recorder_;
  Staging staging_;
};

}  // namespace gradus::trace
