// SPDX-License-Identifier: BSL-1.0
//
// Matrix products compared with oneDNN's in one run: GFLOP/s, share of the measured peak of the cores, ratio.
// Arguments: threads, rounds (15).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <dnnl.h>

#include "gradus/core/output.hpp"
#include "gradus/kernels/cpu/matmul.hpp"
#include "peak.hpp"
#include "race.hpp"

using gradus::index_t;

int main(int argument_count, char** arguments) {
  const int threads = argument_count > 1 ? std::atoi(arguments[1]) : 1;
  const int rounds = argument_count > 2 ? std::max(1, std::atoi(arguments[2])) : 15;
  omp_set_num_threads(threads);
  gradus::cpu device{{.intra_op_threads = threads}};
  const double peak = bench::peak_gflops(threads);
  std::printf("instruction set %s, %d threads, peak %.1f GFLOP/s\n",
              std::string{name_of(gradus::kernels::current_instruction_set())}.c_str(), threads, peak);
  std::printf("%5s %5s %5s  %-5s | GFLOP/s %% of peak | oneDNN %% | ratio of best, of median\n", "m", "n", "k", "op");
  const gradus::kernels::matmul_shape shapes[] = {
      // MNIST: dense 3136-1024-10, batch 64: forward, data, weights
      {64, 1024, 3136, false, true},
      {64, 3136, 1024, false, false},
      {1024, 3136, 64, true, false},
      {64, 10, 1024, false, true},
      {64, 1024, 10, false, false},
      {10, 1024, 64, true, false},
      // the 784-100-10 network, batch 50
      {50, 100, 784, false, true},
      {100, 784, 50, true, false},
      // ResNet-50, batch 16
      {16, 1000, 2048, false, true},
      {16, 2048, 1000, false, false},
      {1000, 2048, 16, true, false},
      // VGG-16, batch 32
      {32, 4096, 25088, false, true},
      {64, 64, 64, false, false},
      {128, 128, 128, false, false},
      {256, 256, 256, false, false},
      {512, 512, 512, false, false},
      {1024, 1024, 1024, false, false},
      {1024, 1024, 1024, true, true},
      // a few rows: matrices times vectors
      {1, 1024, 1024, false, true},
      {1, 1024, 1024, false, false},
      {1, 1000, 2048, false, true},
      {1, 4096, 25088, false, true},
      {1, 25088, 4096, false, false},
      {1024, 1, 1024, true, false},
      {2, 1024, 3136, false, true},
      {3, 3136, 1024, false, false},
      {4, 1024, 1024, false, true},
      {4, 1024, 1024, false, false},
      {6, 1024, 1024, false, true},
      {6, 1024, 1024, false, false},
      {8, 1024, 1024, false, true},
      {8, 1024, 1024, false, false},
  };
  for (const auto& s : shapes) {
    const auto allocate = [&](index_t count) {
      auto* const values = static_cast<float*>(device.allocate(static_cast<std::size_t>(count) * sizeof(float)));
      std::fill_n(values, count, 0.5F);
      return values;
    };
    float* const a = allocate(s.m * s.k);
    float* const b = allocate(s.k * s.n);
    float* const c = allocate(s.m * s.n);
    const std::size_t bytes = gradus::kernels::matmul_workspace_bytes<float>(device, s);
    auto* const memory = static_cast<std::byte*>(device.allocate(bytes));
    const auto ours = [&] {
      gradus::kernels::matmul(device, s, a, b, c, gradus::kernels::matmul_epilogue<float>{},
                              std::span<std::byte>{memory, bytes});
    };
    const auto theirs = [&] {
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0F, a,
                 s.transpose_a ? s.m : s.k, b, s.transpose_b ? s.k : s.n, 0.0F, c, s.n);
    };
    std::vector<bench::contestant> all{{"gradus", ours, {}}, {"oneDNN", theirs, {}}};
    bench::race(all, rounds, threads > 1);
    const double work = 2e-9 * static_cast<double>(s.m * s.n * s.k);
    const double mine = all[0].best();
    std::printf("%5td %5td %5td  %c %c   | %7.1f %9.1f | %8.1f | %6.2f %6.2f\n", s.m, s.n, s.k,
                s.transpose_a ? 'T' : '-', s.transpose_b ? 'T' : '-', work / mine, 100 * work / mine / peak,
                100 * work / all[1].best() / peak, all[1].best() / mine, all[1].median() / all[0].median());
    for (void* const used :
         {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), static_cast<void*>(memory)}) {
      device.deallocate(used, 0);
    }
  }
  return gradus::close_output("bench_onednn_matmul", 0);
}
