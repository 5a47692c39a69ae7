// SPDX-License-Identifier: BSL-1.0
//
// A save of a checkpoint compared with write and fsync of the same bytes, what a step waits for compared with a copy of
// the same bytes, and the speed of the checksum.
//   bench_io_checkpoint [--folder PATH] [--megabytes N] [--ranks N] [--rounds N]
// Times are medians and the best of rounds, in which all are measured one after the other. "start" is what a step waits
// for: the time of the slowest rank. It is measured several times a round, in turns with the copies.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/checkpoint/file.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace io = gradus::io;

constexpr int starts_of_round = 3;

using program::median;

using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

void require(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error{what};
  }
}

/// One file, in pieces of 1 MiB, as a save writes it.
double write_and_sync(const std::string& path, std::span<const std::byte> bytes) {
  const auto begin = clock_type::now();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  require(file >= 0, "open");
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - at, std::size_t{1} << 20U);
    require(::pwrite(file, bytes.data() + at, size, static_cast<::off_t>(at)) == static_cast<::ssize_t>(size),
            "pwrite");
    at += size;
  }
  require(::fsync(file) == 0, "fsync");
  ::close(file);
  const double time = seconds_since(begin);
  std::filesystem::remove(path);
  return time;
}

double best(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

/// Calls body() on all ranks at the same time. Returns the time of the slowest rank, on all ranks.
template <class Body>
double slowest(comm::threads& world, const Body& body) {
  comm::barrier(world).wait();
  const auto begin = clock_type::now();
  body();
  double time[] = {seconds_since(begin)};
  comm::all_reduce(world, std::span<double>{time}, comm::reduction::maximum).wait();
  return time[0];
}

void measure_checksum(std::span<const std::byte> bytes) {
  for (const std::size_t size : {std::size_t{4096}, std::size_t{1} << 20U, bytes.size()}) {
    const std::size_t repetitions = std::max<std::size_t>(1, (std::size_t{1} << 28U) / size);
    std::uint32_t sum = 0;
    const auto begin = clock_type::now();
    for (std::size_t i = 0; i < repetitions; ++i) {
      sum ^= io::crc32c(bytes.first(size), sum);
    }
    const double fast = seconds_since(begin);
    const auto middle = clock_type::now();
    for (std::size_t i = 0; i < repetitions; i += 8) {
      sum ^= io::detail::crc32c_portable(sum, reinterpret_cast<const std::uint8_t*>(bytes.data()), size);
    }
    const double portable = seconds_since(middle);
    const auto gigabytes = static_cast<double>(size) * 1e-9;
    std::printf("crc32c of %9zu bytes: %6.2f GB/s; portable: %5.2f GB/s (%08x)\n", size,
                gigabytes * static_cast<double>(repetitions) / fast,
                gigabytes * static_cast<double>((repetitions + 7) / 8) / portable, static_cast<unsigned>(sum));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = "bench_checkpoints";
  std::size_t megabytes = 256;
  int ranks = 2;
  std::size_t rounds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--folder") {
      folder = argv[i + 1];
    } else if (name == "--megabytes") {
      megabytes = std::stoull(argv[i + 1]);
    } else if (name == "--ranks") {
      ranks = std::stoi(argv[i + 1]);
    } else if (name == "--rounds") {
      rounds = std::stoull(argv[i + 1]);
    } else {
      std::fprintf(stderr, "unknown option %s\n", name.c_str());
      return 2;
    }
  }
  std::vector<std::byte> memory(megabytes << 20U);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>(i * 2654435761U >> 13U);
  }
  measure_checksum(memory);

  // 16 tensors of equal size, replicated on all ranks.
  io::checkpoint_content content;
  const std::size_t each = memory.size() / 16;
  for (std::size_t i = 0; i < 16; ++i) {
    content.arrays.push_back({.name = "tensor" + std::to_string(i),
                              .type = io::element_type::u8,
                              .shape = {static_cast<gradus::index_t>(each)},
                              .replicated = true,
                              .memory = std::span{memory}.subspan(i * each, each)});
  }
  std::filesystem::create_directories(folder);
  std::vector<double> plain;
  std::vector<double> saves;
  std::vector<double> starts;
  std::vector<double> copies;
  std::vector<double> copies_of_tensors;
  std::vector<double> searches;
  for (std::size_t round = 0; round < rounds; ++round) {
    plain.push_back(write_and_sync(folder + "/plain", memory));
    comm::run_ranks(ranks, [&](comm::threads& world) {
      io::checkpoint_writer writer{world, {.folders = {{.path = folder, .keep_newest = 1, .keep_best = false}}}};
      auto mine = content;
      writer.start(mine);  // the memory of copies is there from now on
      writer.wait();
      mine.step = 1;
      comm::barrier(world).wait();
      const auto begin = clock_type::now();
      require(writer.save(mine).error.empty(), "save");
      const double saved = seconds_since(begin);

      // This rank's part of the memory, to memory that is there too: in one call, and tensor by tensor.
      const auto number = static_cast<std::size_t>(world.rank());
      const auto count = static_cast<std::size_t>(world.size());
      const std::size_t first = memory.size() * number / count;
      const std::size_t size = memory.size() * (number + 1) / count - first;
      std::vector<std::byte> copy(size, std::byte{1});
      for (int turn = 0; turn < starts_of_round; ++turn) {
        mine.step = 2 + turn;
        const auto copy_whole = [&] { std::memcpy(copy.data(), memory.data() + first, size); };
        const auto copy_tensors = [&] {
          for (std::size_t done = 0; done < size;) {
            const std::size_t at = first + done;
            const std::size_t bytes = std::min(size - done, each - at % each);
            std::memcpy(copy.data() + done, memory.data() + at, bytes);
            done += bytes;
          }
        };
        const double copied = slowest(world, copy_whole);
        const double started = slowest(world, [&] { writer.start(mine); });
        writer.wait();
        require(!writer.take_error(), "save in the background");
        const double in_tensors = slowest(world, copy_tensors);
        require(std::memcmp(copy.data(), memory.data() + first, size) == 0, "copy");
        if (world.rank() == 0) {
          copies.push_back(copied);
          starts.push_back(started);
          copies_of_tensors.push_back(in_tensors);
        }
      }
      comm::link_of group{world};
      const auto search = clock_type::now();
      const io::shared_checkpoint found{group, std::span{&folder, 1}};
      require(found.report().step == mine.step, "search");
      if (world.rank() == 0) {
        saves.push_back(saved);
        searches.push_back(seconds_since(search));
        std::filesystem::remove(found.report().path);
      }
      comm::barrier(world).wait();
    });
  }
  const auto line = [&](const char* what, const std::vector<double>& times) {
    const double middle = median(times);
    std::printf("%-34s %8.1f ms (best %8.1f) %8.2f GB/s\n", what, 1000 * middle, 1000 * best(times),
                static_cast<double>(memory.size()) * 1e-9 / middle);
  };
  const auto ratio = [](const char* what, const std::vector<double>& times, const std::vector<double>& base) {
    std::printf("%-52s %5.2f (best times: %.2f)\n", what, median(times) / median(base), best(times) / best(base));
  };
  std::printf("%zu MiB in '%s', %d ranks, %zu rounds\n", megabytes, folder.c_str(), ranks, rounds);
  line("write and fsync of one process", plain);
  line("save", saves);
  line("start of a save in the background", starts);
  line("copy of the memory", copies);
  line("copy of the memory by tensors", copies_of_tensors);
  line("search with all checksums", searches);
  ratio("save / (write and fsync):", saves, plain);
  ratio("start / copy:", starts, copies);
  ratio("start / copy by tensors:", starts, copies_of_tensors);
  return 0;
}
