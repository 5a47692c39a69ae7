// SPDX-License-Identifier: BSL-1.0
//
// gradus_network_predict allocates nothing: neither by malloc nor by operator new, whose definition here calls malloc.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "gradus_c.h"

namespace {
std::atomic<long> calls{0};
}

// The allocator of the C library under other names; these take the place of its functions in the whole program.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);

void* malloc(std::size_t size) {
  ++calls;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++calls;
  return __libc_calloc(count, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++calls;
  return __libc_memalign(alignment, size);
}
}

namespace {

void ok(gradus_status status) {
  if (status != GRADUS_OK) {
    std::printf("%s\n", gradus_last_error());
    std::exit(1);
  }
}

}  // namespace

int main() {
  gradus_network* net = nullptr;
  gradus_value x = 0;
  ok(gradus_network_create(nullptr, GRADUS_FLOAT, &net));
  ok(gradus_network_input(net, "x", 3, 9, 9, &x));
  gradus_conv2d_options conv{};
  conv.out_channels = 8;
  conv.kernel[0] = 3;
  conv.padding = GRADUS_PAD_SAME;
  ok(gradus_network_conv2d(net, nullptr, x, &conv, &x));
  ok(gradus_network_activation(net, nullptr, x, GRADUS_TANH, 0, &x));
  gradus_dense_options dense{};
  dense.out_features = 4;
  ok(gradus_network_dense(net, nullptr, x, &dense, &x));
  ok(gradus_network_output(net, "y", x));
  gradus_compile_options compiling{};
  compiling.max_batch_size = 2;
  compiling.inference = 1;
  ok(gradus_network_compile(net, &compiling));
  static double inputs[5][3][9][9];
  static float outputs[4][5];
  const std::int64_t shape[] = {9, 9, 3, 5};
  const std::int64_t shape_of_outputs[] = {5, 4};
  const std::int64_t strides[] = {1, 5};
  const gradus_array from{inputs, GRADUS_DOUBLE, GRADUS_FORTRAN_ORDER, 4, 0, shape, nullptr};
  const gradus_array to{outputs, GRADUS_FLOAT, GRADUS_C_ORDER, 2, 0, shape_of_outputs, strides};
  const long at_start = calls.load();
  ok(gradus_network_predict(net, "x", &from, "y", &to));  // the first call may start threads
  for (auto& each : inputs) {
    each[1][2][3] += 1;
  }
  const long before = calls.load();
  for (int i = 0; i < 10; ++i) {
    ok(gradus_network_predict(net, "x", &from, "y", &to));
  }
  const long made = calls.load() - before;
  ok(gradus_network_free(net));
  std::printf("%ld allocations before, %ld in 10 predictions\n", at_start, made);
  return made == 0 && at_start > 10 ? 0 : 1;
}
