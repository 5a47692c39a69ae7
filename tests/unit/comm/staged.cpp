// SPDX-License-Identifier: BSL-1.0
//
// Communicators of devices, as far as the host goes: memory copied through buffers, news of failures, the id in a file.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../../support/communicators.hpp"
#include "gradus/comm/detail/nccl/host_link.hpp"
#include "gradus/comm/detail/nccl/id_file.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/staged.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using namespace std::chrono_literals;

/// What copies have been made, and whether memory is the host's.
struct copies {
  std::atomic<int> to_host{0};
  std::atomic<int> to_device{0};
  std::atomic<int> allocated{0};
};

/// Takes all memory for a device's, or none.
struct stand_in {
  copies* made;
  bool device;

  [[nodiscard]] bool on_device(const void*) const noexcept { return device; }
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    ++made->allocated;
    return std::malloc(bytes);
  }
  void deallocate(void* pointer, std::size_t) const noexcept {
    --made->allocated;
    std::free(pointer);
  }
  void to_host(void* host, const void* from, std::size_t bytes) const {
    ++made->to_host;
    std::memcpy(host, from, bytes);
  }
  void to_device(void* to, const void* host, std::size_t bytes) const {
    ++made->to_device;
    std::memcpy(to, host, bytes);
  }
};

using staged = comm::staged<comm::threads, stand_in>;
static_assert(comm::communicator<staged>);

template <class Test>
std::string on_ranks(int ranks, copies& made, bool device, const Test& test) {
  return suite::failure_of([&] {
    comm::run_ranks(ranks, [&](comm::threads& world) {
      staged own{world.duplicate(), stand_in{&made, device}};
      test(own);
      comm::barrier(world).wait();
    });
  });
}

std::string file_name() {
  const std::string path = "comm_id_file";
  std::remove(path.c_str());
  std::remove((path + ".part").c_str());
  return path;
}

constexpr std::array id{std::byte{1}, std::byte{2}, std::byte{250}, std::byte{0}, std::byte{7}};

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_of_devices)

BOOST_AUTO_TEST_CASE(memory_of_a_device_is_communicated_by_the_host) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  copies made;
  BOOST_TEST(on_ranks(3, made, true, [](staged& world) {
               suite::all_reduce_reduces<staged, float>(world);
               suite::broadcast_copies_the_root<staged, float>(world);
               suite::reduce_scatter_gives_each_rank_its_block<staged, float>(world);
               suite::all_gather_collects_all_blocks<staged, float>(world);
               suite::messages_match_by_tag_and_order(world);
               suite::duplicates_are_independent(world);
               suite::dropped_requests_complete(world);
               suite::bad_arguments_are_refused(world);
             }) == "");
  BOOST_TEST(made.to_host.load() > 0);
  BOOST_TEST(made.to_device.load() > 0);
  BOOST_TEST(made.allocated.load() == 0);
}

// The collectives of a comm::subset add on the host.
BOOST_AUTO_TEST_CASE(memory_of_a_device_is_communicated_among_some_ranks) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  copies made;
  BOOST_TEST(on_ranks(4, made, true, [](staged& world) {
               auto group = comm::split(world, world.rank() == 1 ? std::vector<int>{} : std::vector<int>{3, 0, 2});
               if (world.rank() == 1) {
                 return;
               }
               using type = decltype(group);
               suite::all_reduce_reduces<type, float>(group);
               suite::broadcast_copies_the_root<type, float>(group);
               suite::all_gather_collects_all_blocks<type, float>(group);
               suite::messages_match_by_tag_and_order(group);
             }) == "");
  BOOST_TEST(made.to_host.load() > 0);
  BOOST_TEST(made.allocated.load() == 0);
}

BOOST_AUTO_TEST_CASE(memory_of_the_host_is_passed_on) {
  copies made;
  BOOST_TEST(on_ranks(2, made, false, [](staged& world) { suite::all_reduce_reduces<staged, float>(world); }) == "");
  BOOST_TEST(made.to_host.load() + made.to_device.load() == 0);
}

BOOST_AUTO_TEST_CASE(a_failure_comes_through) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  copies made;
  const std::string first = on_ranks(3, made, true, &suite::a_rank_that_fails_is_named<staged>);
  BOOST_TEST(first.find("check failed") == std::string::npos);
  BOOST_TEST(made.allocated.load() == 0);
}

BOOST_AUTO_TEST_CASE(a_link_receives_failures_of_other_ranks) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  std::vector<std::string> heard(3);
  static_cast<void>(suite::failure_of([&] {
    comm::run_ranks(3, [&](comm::threads& world) {
      comm::detail::host_link notices{world.rank(),
                                      std::make_unique<comm::detail::host_ranks>(
                                          std::make_unique<comm::owned_link<comm::threads>>(world.duplicate()))};
      std::array<std::byte, 5> message{};
      if (world.rank() == 0) {
        message = id;
      }
      notices.broadcast(message);
      suite::require(message == id, "the first message");
      if (world.rank() == 1) {
        notices.fail("no more memory");
      }
      while (!notices.look()) {
        std::this_thread::sleep_for(1ms);
      }
      suite::require(notices.failed(), "it has failed");
      heard[static_cast<std::size_t>(world.rank())] = suite::message_of<gradus::communication_error>(
          [&] { notices.raise("all_reduce", std::source_location::current()); });
    });
  }));
  for (const std::string& each : heard) {
    BOOST_TEST(each.find("all_reduce") == 0U);
    BOOST_TEST(each.find("rank 1 failed: no more memory") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(an_id_goes_through_a_file) {
  const std::string path = file_name();
  std::thread writer{[&] {
    std::this_thread::sleep_for(30ms);
    comm::detail::write_id_file(path, 4, id);
  }};
  std::array<std::byte, 5> read{};
  comm::detail::read_id_file(path, 4, read, 10s);
  writer.join();
  BOOST_CHECK(read == id);
  BOOST_TEST(suite::message_of<gradus::configuration_error>([&] {
               comm::detail::read_id_file(path, 3, read, 1s);
             }).find("the id of a group of 3 ranks") != std::string::npos);
  BOOST_TEST(suite::message_of<gradus::configuration_error>([&] {
               comm::detail::write_id_file(path, 4, id);
             }).find("a file that does not exist yet") != std::string::npos);
  std::remove(path.c_str());
}

BOOST_AUTO_TEST_CASE(a_file_that_does_not_come_or_is_another_is_an_error) {
  const std::string path = file_name();
  std::array<std::byte, 5> read{};
  BOOST_TEST(suite::message_of<gradus::communication_error>([&] {
               comm::detail::read_id_file(path, 2, read, 30ms);
             }).find("within 0.03 s") != std::string::npos);
  comm::detail::write_id_file(path, 2, id);
  std::string good;
  {
    std::ifstream file{path, std::ios::binary};
    good.assign(std::istreambuf_iterator<char>{file}, {});
  }
  const auto refused = [&](const std::string& content) {
    std::ofstream{path, std::ios::binary | std::ios::trunc} << content;
    return suite::message_of<gradus::format_error>([&] { comm::detail::read_id_file(path, 2, read, 1s); });
  };
  std::string damaged = good;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  std::string other = good;
  other[0] = 'x';
  for (const std::string& content : {std::string{}, good.substr(0, good.size() - 1), good + "x", damaged, other}) {
    BOOST_TEST(refused(content).find("the id of rank 0") != std::string::npos);
  }
  std::remove(path.c_str());
  BOOST_TEST(suite::message_of<gradus::configuration_error>([&] {
               comm::detail::write_id_file("no_such_directory/id", 2, id);
             }).find("can be written") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
