// SPDX-License-Identifier: BSL-1.0
//
// What tests/cluster/check_cluster.py runs on hosts that are network namespaces: each rank tells its host's name and
// address, all sum an array, and rank 0 prints one line a rank and how long the sum took. With --wait it then waits for
// ever, so that the script has something to kill.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "gradus/comm/mpi.hpp"

namespace {

namespace comm = gradus::comm;

/// "host1 10.77.0.1", with zeros behind it
using location = std::array<std::uint8_t, 96>;

location own_location() {
  location result{};
  char name[40] = "";
  gethostname(name, sizeof(name) - 1);
  char address[INET_ADDRSTRLEN] = "none";
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET &&
          std::string_view{each->ifa_name} == "eth0") {
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, address, sizeof(address));
      }
    }
    freeifaddrs(interfaces);
  }
  std::snprintf(reinterpret_cast<char*>(result.data()), result.size(), "%s %s", name, address);
  return result;
}

int exchange(comm::mpi& world, bool wait) {
  const location own = own_location();
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(world.size()));
  comm::all_gather(world, std::span<const std::uint8_t>{own}, std::span<std::uint8_t>{all}).wait();
  std::vector<float> values(1U << 20U, static_cast<float>(world.rank() + 1));
  comm::barrier(world).wait();
  const auto begin = std::chrono::steady_clock::now();
  comm::all_reduce(world, std::span<float>{values}).wait();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto ranks = static_cast<float>(world.size());
  for (const float value : values) {
    if (value != ranks * (ranks + 1) / 2) {
      std::printf("rank %d: wrong sum\n", world.rank());
      return 1;
    }
  }
  if (world.rank() == 0) {
    for (int r = 0; r < world.size(); ++r) {
      std::printf("rank %d on %s\n", r,
                  reinterpret_cast<const char*>(all.data() + own.size() * static_cast<std::size_t>(r)));
    }
    std::printf("sum of 4 MiB in %.4f s\n", seconds);
    std::fflush(stdout);
  }
  while (wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    comm::barrier(world).wait();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool wait = argc > 1 && std::string_view{argv[1]} == "--wait";
  comm::mpi_environment environment{argc, argv};
  return environment.run([&](comm::mpi& world) {
    world.set_time_limit(std::chrono::milliseconds{3000});
    return exchange(world, wait);
  });
}
