// SPDX-License-Identifier: BSL-1.0
//
// Host memory as a device, in the conformance suite. With an argument it leaves the last byte as it was.
#include <cstddef>
#include <cstring>
#include <gradus/conformance/device.hpp>
#include <new>
#include <string_view>

namespace {

bool defective = false;

class plain_memory {
 public:
  static constexpr std::string_view name = "plain memory";

  plain_memory() = default;
  plain_memory(const plain_memory&) = delete;
  plain_memory& operator=(const plain_memory&) = delete;

  void* allocate(std::size_t bytes) { return ::operator new (bytes, std::align_val_t{64}); }
  void deallocate(void* pointer, std::size_t /*bytes*/) noexcept { ::operator delete (pointer, std::align_val_t{64}); }
  void copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void copy_from_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes); }
  void fill_zero(void* to, std::size_t bytes) { std::memset(to, 0, bytes - (defective ? 1 : 0)); }
  void synchronize() {}
};

}  // namespace

int main(int argc, char** /*argv*/) {
  defective = argc > 1;
  plain_memory device;
  return gradus::conformance::report(gradus::conformance::check_device(device));
}
