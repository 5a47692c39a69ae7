// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints on simulated disks: who writes and reads what, what is kept and deleted, what is refused.
#include <unistd.h>  // geteuid

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint_example.hpp"
#include "gradus/checkpoint/file.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/random.hpp"
#include "simulated_disk.hpp"

namespace {

namespace comm = gradus::comm;
namespace io = gradus::io;
using gradus_test::checkpoint_example;
using gradus_test::simulated_disk;

/// Boost's checks are for one thread: on a rank, a failure ends all ranks.
void expect_on_rank(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error{what};
  }
}

bool contains(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

/// Saves the checkpoint of a step on one rank, and returns the writer's job.
std::string save_alone(io::file_system& files, std::int64_t step, io::checkpoint_writer_options options = {}) {
  if (options.folders.empty()) {
    options.folders = {{.path = "folder"}};
  }
  comm::self world;
  io::checkpoint_writer writer{world, options, files};
  BOOST_TEST(writer.save(checkpoint_example{step}.of_rank(0, 1)).error == "");
  return writer.job();
}

/// Each rank reads some rows of each tensor; together they compare all.
void fetch_and_compare(comm::threads& world, io::file_system& files, const checkpoint_example& example,
                       std::int64_t step, bool shared) {
  comm::link_of group{world};
  const std::string folder = "folder";
  const io::shared_checkpoint found{group, std::span{&folder, 1}, files};
  expect_on_rank(found.report().step == step && found.report().skipped.empty(), to_string(found.report()));
  expect_on_rank(found.all_ranks_read() == shared, "who reads");
  const auto tensors = example.tensors();
  std::vector<std::vector<std::byte>> parts;
  std::vector<std::size_t> begins;
  for (const auto& [name, bytes] : tensors) {
    const auto r = static_cast<std::size_t>(world.rank());
    const auto p = static_cast<std::size_t>(world.size());
    begins.push_back(bytes.size() * r / p);
    parts.emplace_back(bytes.size() * (r + 1) / p - begins.back());
  }
  std::vector<io::checkpoint_fetch> fetches;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    fetches.push_back({.tensor = tensors[i].first, .begin = begins[i], .into = parts[i]});
  }
  found.fetch(fetches);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    expect_on_rank(std::equal(parts[i].begin(), parts[i].end(),
                              tensors[i].second.begin() + static_cast<std::ptrdiff_t>(begins[i])),
                   "the bytes of " + tensors[i].first);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(crc32c_is_that_of_rfc_3720) {
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span{text}); };
  BOOST_TEST(io::crc32c(bytes_of("123456789")) == 0xE3069283U);
  BOOST_TEST(io::crc32c(bytes_of(std::string(32, '\0'))) == 0x8A9136AAU);
  BOOST_TEST(io::crc32c(bytes_of(std::string(32, '\xff'))) == 0x62A8AB43U);
  BOOST_TEST(io::crc32c({}) == 0U);
  std::string text;
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    text.push_back(static_cast<char>(gradus::detail::mix_bits(i)));
  }
  const auto all = std::as_bytes(std::span{text});
  for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 6143U, 6144U, 6145U, 98'303U, 98'304U, 200'001U}) {
    const auto part = all.subspan(3, size);  // not aligned
    const std::uint32_t sum = io::crc32c(part);
    BOOST_TEST(sum == ~io::detail::crc32c_portable(~0U, reinterpret_cast<const std::uint8_t*>(part.data()), size));
    for (const std::size_t cut : {std::size_t{0}, size / 3, size}) {
      const auto first = part.first(cut);
      const auto second = part.subspan(cut);
      BOOST_TEST(io::crc32c(second, io::crc32c(first)) == sum);
      BOOST_TEST(io::crc32c_combine(io::crc32c(first), io::crc32c(second), second.size()) == sum);
    }
  }
}

BOOST_AUTO_TEST_CASE(names_that_only_look_like_those_of_checkpoints) {
  using io::detail::step_of_name;
  BOOST_TEST(io::detail::name_of_step(12000) == "step-000012000.safetensors");
  BOOST_TEST(step_of_name("step-000012000.safetensors").value() == 12000);
  BOOST_TEST(step_of_name("step-1234567890.safetensors").value() == 1234567890);
  for (const char* const name :
       {"step-12000.safetensors", "step-0000012000.safetensors", "step-000012000.safetensors~", "step-000012000",
        "step-00001200x.safetensors", "step--00012000.safetensors", "Step-000012000.safetensors", "step-.safetensors",
        "step-000012000.safetensors.partial", "xstep-000012000.safetensors", "step-9999999999999999999.safetensors", "",
        ".safetensors", "step-000012000 .safetensors"}) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(!step_of_name(name).has_value());
    }
  }
  const std::string temporary = io::detail::temporary_name(12000, "0123456789abcdef");
  BOOST_TEST(temporary == "step-000012000.0123456789abcdef.partial");
  BOOST_TEST(io::detail::job_of_temporary(temporary) == "0123456789abcdef");
  for (const char* const name :
       {"step-000012000.0123456789abcde.partial", "step-000012000.0123456789ABCDEF.partial", "step-000012000.partial",
        "step-12000.0123456789abcdef.partial", "step-000012000.0123456789abcdef", "notes.partial"}) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(io::detail::job_of_temporary(name).empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(any_number_of_ranks_writes_and_any_other_reads) {
  const checkpoint_example example{42, true};
  std::vector<std::byte> reference;
  for (const int writers : {1, 2, 3, 4}) {
    for (const bool shared : {true, false}) {
      simulated_disk disk;
      std::vector<simulated_disk> others(static_cast<std::size_t>(writers));
      comm::run_ranks(writers, [&](comm::threads& world) {
        const int rank = world.rank();
        io::file_system& files = shared || rank == 0 ? disk : others[static_cast<std::size_t>(rank)];
        io::checkpoint_writer writer{world, {.folders = {{.path = "folder"}}}, files};
        const io::checkpoint_save_report report = writer.save(example.of_rank(rank, writers));
        expect_on_rank(report.error.empty(), report.error);
        expect_on_rank(report.paths == std::vector<std::string>{"folder/step-000000042.safetensors"}, "the path");
        expect_on_rank(report.warnings.empty(), report.warnings);
      });
      BOOST_TEST(disk.paths().size() == 1U);
      const std::string path = "folder/step-000000042.safetensors";
      BOOST_TEST(gradus_test::difference(example, path, disk) == "");
      // The tensors are the same bytes at the same positions, whoever wrote them.
      const io::checkpoint_reader file{path, disk};
      const auto begin = static_cast<std::ptrdiff_t>(file.header().buffer_begin);
      BOOST_TEST(begin % 64 == 0);
      const std::vector<std::byte> buffer(disk.at(path).begin() + begin, disk.at(path).end());
      reference = reference.empty() ? buffer : reference;
      BOOST_TEST((buffer == reference));
      for (const int readers : {1, 2, 5}) {
        for (const bool all_see : {true, false}) {
          simulated_disk empty;
          comm::run_ranks(readers, [&](comm::threads& world) {
            fetch_and_compare(world, all_see || world.rank() == 0 ? static_cast<io::file_system&>(disk) : empty,
                              example, 42, all_see || readers == 1);
          });
        }
      }
      BOOST_TEST(disk.open_files() == 1U);  // `file`
    }
  }
}

BOOST_AUTO_TEST_CASE(replicated_arrays_are_divided_by_bytes) {
  const checkpoint_example example{1, true};
  const io::checkpoint_content content = example.of_rank(0, 1);
  gradus::index_t total = 0;
  for (const auto& each : content.arrays) {
    total += each.replicated ? each.elements() * each.element_bytes() : 0;
  }
  for (const int ranks : {1, 2, 3, 7, 1000}) {
    std::vector<gradus::index_t> next(content.arrays.size());
    for (int rank = 0; rank < ranks; ++rank) {
      gradus::index_t own = 0;
      const std::vector<io::element_range> shares = io::shares_of(content.arrays, rank, ranks);
      for (std::size_t i = 0; i < shares.size(); ++i) {
        own += shares[i].size() * content.arrays[i].element_bytes();
        BOOST_TEST((shares[i].size() == 0 || shares[i].begin == next[i]));
        next[i] += shares[i].size();
      }
      const gradus::index_t share = total / ranks;
      BOOST_TEST(own + 8 >= share);
      BOOST_TEST(own <= share + 9);
    }
    for (std::size_t i = 0; i < next.size(); ++i) {
      BOOST_TEST(next[i] == (content.arrays[i].replicated ? content.arrays[i].elements() : 0));
    }
  }
}

// The order of the memory is one of the 24 orders of the axes; what is written is the logical order.
BOOST_AUTO_TEST_CASE(arrays_in_any_order_of_memory_are_written_in_the_logical_order) {
  constexpr io::element_type types[] = {io::element_type::u8, io::element_type::bf16, io::element_type::f32,
                                        io::element_type::f64};
  const gradus::random_stream random{31};
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t bound) { return static_cast<gradus::index_t>(random.below(bound, drawn++)); };
  std::size_t number = 0;
  std::array<std::size_t, 4> order{0, 1, 2, 3};  // the slowest first
  do {
    const gradus::extents<4> axes{1 + draw(5), 1 + draw(4), number % 7 == 6 ? 0 : 1 + draw(3), 1 + draw(4)};
    io::stored_array whole{
        .name = "array", .type = types[number++ % 4], .shape = {axes[0], axes[1] * axes[2] * axes[3]}, .axes = axes};
    gradus::index_t stride = 1;
    for (std::size_t k = 4; k-- > 0;) {
      whole.strides[order[k]] = stride;
      stride *= axes[static_cast<int>(order[k])];
    }
    const auto size = static_cast<std::size_t>(whole.element_bytes());
    std::vector<std::byte> logical;
    for (gradus::index_t i = 0; i < whole.elements() * whole.element_bytes(); ++i) {
      logical.push_back(static_cast<std::byte>(draw(256)));
    }
    std::vector<std::byte> memory(logical.size());
    std::size_t at = 0;  // by the definition
    for (gradus::index_t o = 0; o < axes[0]; ++o) {
      for (gradus::index_t i = 0; i < axes[1]; ++i) {
        for (gradus::index_t r = 0; r < axes[2]; ++r) {
          for (gradus::index_t c = 0; c < axes[3]; ++c, at += size) {
            const auto to = static_cast<std::size_t>(o * whole.strides[0] + i * whole.strides[1] +
                                                     r * whole.strides[2] + c * whole.strides[3]);
            std::copy_n(logical.begin() + static_cast<std::ptrdiff_t>(at), size,
                        memory.begin() + static_cast<std::ptrdiff_t>(to * size));
          }
        }
      }
    }
    std::vector<std::byte> back(memory.size());
    whole.write_in_memory_order(logical, back.data());
    BOOST_TEST((back == memory));
    for (const int ranks : {1, 3}) {
      for (const bool replicated : {true, false}) {
        for (const bool in_place : {true, false}) {
          for (const bool shared : {true, false}) {
            simulated_disk disk;
            simulated_disk empty;
            comm::run_ranks(ranks, [&](comm::threads& world) {
              io::file_system& files = shared || world.rank() == 0 ? static_cast<io::file_system&>(disk) : empty;
              io::checkpoint_writer writer{world, {.folders = {{.path = "folder"}}}, files};
              io::checkpoint_content content{.arrays = {whole}};
              io::stored_array& own = content.arrays[0];
              own.replicated = replicated;
              own.memory = memory;
              if (!replicated) {
                own.held = {whole.elements() * world.rank() / ranks, whole.elements() * (world.rank() + 1) / ranks};
                own.memory = own.memory.subspan(static_cast<std::size_t>(own.covered().begin) * size,
                                                static_cast<std::size_t>(own.covered().size()) * size);
              }
              in_place ? writer.start_in_place(content) : writer.start(content);
              writer.wait();
              expect_on_rank(writer.report().error.empty(), writer.report().error);
            });
            const io::checkpoint_reader file{"folder/step-000000000.safetensors", disk};
            file.compare_checksums();
            std::vector<std::byte> written(logical.size());
            file.read(file.header().tensors[0], 0, written);
            BOOST_TEST((written == logical));
          }
        }
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

BOOST_AUTO_TEST_CASE(the_newest_and_the_best_are_kept) {
  simulated_disk disk;
  comm::self world;
  io::checkpoint_writer writer{world, {.folders = {{.path = "folder", .keep_newest = 2}}}, disk};
  for (std::int64_t step = 1; step <= 8; ++step) {
    const checkpoint_example example{step};
    io::checkpoint_content content = example.of_rank(0, 1);
    content.best = step == 2 || step == 4;
    BOOST_TEST(writer.save(content).error == "");
  }
  const std::vector<std::string> kept{"folder/step-000000004.safetensors", "folder/step-000000007.safetensors",
                                      "folder/step-000000008.safetensors"};
  BOOST_TEST(disk.paths() == kept, boost::test_tools::per_element());
  BOOST_TEST(io::checkpoint_reader(kept[0], disk).best());
  BOOST_TEST(!io::checkpoint_reader(kept[1], disk).best());
}

BOOST_AUTO_TEST_CASE(jobs_keep_the_files_of_others_and_own_those_of_their_ancestors) {
  simulated_disk disk;
  const io::checkpoint_writer_options one{.folders = {{.path = "folder", .keep_newest = 1}}};
  const std::string first = save_alone(disk, 10, one);
  save_alone(disk, 20, one);  // of another job
  BOOST_TEST(disk.paths().size() == 2U);

  // A job that resumes from step 10.
  auto resumed = one;
  resumed.resumed_from =
      io::checkpoint_family(io::checkpoint_reader("folder/step-000000010.safetensors", disk).header());
  BOOST_TEST(resumed.resumed_from == first);
  const std::string second = save_alone(disk, 30, resumed);
  const std::vector<std::string> kept{"folder/step-000000020.safetensors", "folder/step-000000030.safetensors"};
  BOOST_TEST(disk.paths() == kept, boost::test_tools::per_element());
  BOOST_TEST(io::checkpoint_family(io::checkpoint_reader(kept[1], disk).header()) == second + " " + first);

  // A step of another job is not replaced, nor is a file that cannot be read.
  comm::self world;
  io::checkpoint_writer writer{world, one, disk};
  const std::string error = writer.save(checkpoint_example{20}.of_rank(0, 1)).error;
  BOOST_TEST(contains(error, "'folder/step-000000020.safetensors' is of another job"));
  BOOST_TEST(contains(error, "a folder of its own"));
  disk.put("folder/step-000000040.safetensors", gradus_test::file_bytes(3));
  BOOST_TEST(contains(writer.save(checkpoint_example{40}.of_rank(0, 1)).error, "is of an unknown job"));
  BOOST_TEST(disk.at("folder/step-000000040.safetensors").size() == 3U);
  BOOST_TEST(gradus_test::difference(checkpoint_example{20}, kept[0], disk) == "");
  // Its own is.
  BOOST_TEST(writer.save(checkpoint_example{50}.of_rank(0, 1)).error == "");
  BOOST_TEST(writer.save(checkpoint_example{50, false, 1}.of_rank(0, 1)).error == "");
  BOOST_TEST(gradus_test::difference(checkpoint_example{50, false, 1}, "folder/step-000000050.safetensors", disk) ==
             "");
}

BOOST_AUTO_TEST_CASE(files_that_dead_jobs_left_are_removed) {
  simulated_disk disk;
  const auto temporary = [](int job) {
    return "folder/step-000000001.000000000000000" + std::to_string(job) + ".partial";
  };
  for (const int job : {1, 2, 3}) {
    disk.put(temporary(job), gradus_test::file_bytes(5));
  }
  disk.put("folder/notes.partial", gradus_test::file_bytes(5));
  const int locked = disk.open(temporary(2), io::open_mode::write);  // by a job that lives
  BOOST_TEST(disk.lock(locked) == 0);
  disk.now += 59;
  disk.put(temporary(4), gradus_test::file_bytes(5));
  save_alone(disk, 7);
  BOOST_TEST(disk.paths().size() == 6U);  // nothing is old enough
  disk.now += 1;
  save_alone(disk, 8);
  const std::vector<std::string> left{"folder/notes.partial", temporary(2), temporary(4),
                                      "folder/step-000000007.safetensors", "folder/step-000000008.safetensors"};
  BOOST_TEST(disk.paths() == left, boost::test_tools::per_element());
  disk.close(locked);
}

BOOST_AUTO_TEST_CASE(what_a_job_left_is_removed_by_the_job_that_goes_on_from_it) {
  for (const bool memory : {false, true}) {
    simulated_disk disk;
    const std::string ancestor = "00000000000000aa";
    const std::string left = "folder/step-000000009." + ancestor + ".partial";
    const std::string alive = "folder/step-000000008." + ancestor + ".partial";
    disk.put(left, gradus_test::file_bytes(5));
    disk.put(alive, gradus_test::file_bytes(5));
    const int locked = disk.open(alive, io::open_mode::write);
    BOOST_TEST(disk.lock(locked) == 0);
    disk.now += 2;
    comm::self world;
    io::checkpoint_writer writer{
        world,
        {.folders = {{.path = "folder", .on_each_node = memory}}, .resumed_from = ancestor + " 00000000000000bb"},
        disk};
    BOOST_TEST(writer.save(checkpoint_example{7}.of_rank(0, 1)).error == "");
    const std::vector<std::string> expected{"folder/step-000000007.safetensors", alive};
    BOOST_TEST(disk.paths() == expected, boost::test_tools::per_element());
    disk.close(locked);
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_another_user_is_read_and_said) {
  const auto user = static_cast<std::int64_t>(::geteuid());
  simulated_disk disk;
  save_alone(disk, 7);
  const std::string folder = "folder";
  for (const std::int64_t owner : {user, std::int64_t{0}, std::int64_t{-1}, user + 1}) {
    disk.user = owner;
    comm::self world;
    comm::link_of<comm::self> group{world};
    const io::shared_checkpoint all{group, std::span{&folder, 1}, disk};
    for (const io::checkpoint_report& found : {io::find_newest(folder, disk), all.report()}) {
      BOOST_TEST(found.step == 7);
      const std::string expected = "the file 'folder/step-000000007.safetensors' belongs to user " +
                                   std::to_string(user + 1) + ", not to user " + std::to_string(user) +
                                   ", who reads it: go on from it only if you trust that user";
      BOOST_TEST(found.owner == (owner == user + 1 ? expected : std::string{}));
      BOOST_TEST((io::to_string(found).find("\nwarning: the file") != std::string::npos) == (owner == user + 1));
    }
  }
}

BOOST_AUTO_TEST_CASE(each_folder_has_a_rule_of_its_own) {
  simulated_disk disk;
  comm::self world;
  io::checkpoint_writer writer{world,
                               {.folders = {{.path = "memory", .keep_newest = 1, .keep_best = false, .every = 1},
                                            {.path = "disk", .keep_newest = 2, .every = 3}}},
                               disk};
  for (std::int64_t step = 1; step <= 10; ++step) {
    BOOST_TEST(writer.save(checkpoint_example{step}.of_rank(0, 1)).error == "");
  }
  const std::vector<std::string> expected{"disk/step-000000006.safetensors", "disk/step-000000009.safetensors",
                                          "memory/step-000000010.safetensors"};
  BOOST_TEST(disk.paths() == expected, boost::test_tools::per_element());
  const std::string folders[] = {"disk", "memory"};
  BOOST_TEST(io::find_newest(folders, disk).path == "memory/step-000000010.safetensors");
  disk.at("memory/step-000000010.safetensors").back() ^= std::byte{1};
  const io::checkpoint_report report = io::find_newest(folders, disk);
  BOOST_TEST(report.path == "disk/step-000000009.safetensors");
  BOOST_TEST_REQUIRE(report.skipped.size() == 1U);
  BOOST_TEST(report.skipped[0].path == "memory/step-000000010.safetensors");
  BOOST_TEST(writer.save(checkpoint_example{11}.of_rank(0, 1), true).paths.size() == 2U);
}

BOOST_AUTO_TEST_CASE(ranks_that_describe_different_checkpoints_all_get_the_error) {
  struct mistake {
    std::string what;
    std::function<void(io::checkpoint_content&)> make;  // on rank 1 of 3
    std::string error;
  };
  const mistake mistakes[] = {
      {"step", [](auto& content) { content.step = 8; }, "rank 1 describes another checkpoint than rank 0"},
      {"metadata", [](auto& content) { content.metadata["epoch"] = "8"; }, "rank 1 describes another checkpoint"},
      {"shape", [](auto& content) { content.arrays[1].shape = {8}; }, "rank 1 describes another checkpoint"},
      {"order", [](auto& content) { std::swap(content.arrays[4], content.arrays[5]); }, "rank 1 describes another"},
      {"reserved metadata", [](auto& content) { content.metadata["gradus.x"] = ""; }, "rank 1: checkpoint: expected"},
      {"a gap",
       [](auto& content) {
         content.arrays[5].held.end -= 1;
         content.arrays[5].memory = content.arrays[5].memory.first(3);
       },
       "no rank gives element 7 of 'labels', which has 13 elements"},
      {"two ranks",
       [](auto& content) {
         content.arrays[5].held.begin -= 1;
         content.arrays[5].held.end -= 1;
       },
       "rank 0 and rank 1 both give element 3 of 'labels'"},
      {"replicated without bytes", [](auto& content) { content.arrays[0].memory = {}; },
       "memory of 60 bytes for elements 0 to 15 of 'conv.weight', got 0 bytes"},
      {"memory of another size", [](auto& content) { content.arrays[1].held.end -= 1; },
       "memory of 4 bytes for elements 2 to 3 of 'bn.running_mean', got 8 bytes"},
      {"outside",
       [](auto& content) {
         content.arrays[5].held = {12, 16};
       },
       "a range of the 13 elements of 'labels', got elements 12 to 16"},
      {"axes",
       [](auto& content) {
         content.arrays[1].strides = {1, 1, 1, 1};
       },
       "axes with the 7 elements of 'bn.running_mean', got 1"},
      {"negative step", [](auto& content) { content.step = -1; }, "a step of at least 0"},
  };
  for (const mistake& each : mistakes) {
    simulated_disk disk;
    std::vector<std::string> errors(3);
    const checkpoint_example example{7};
    comm::run_ranks(3, [&](comm::threads& world) {
      io::checkpoint_writer writer{world, {.folders = {{.path = "folder"}}}, disk};
      io::checkpoint_content content = example.of_rank(world.rank(), 3);
      if (world.rank() == 1) {
        each.make(content);
      }
      writer.start(content);
      writer.wait();
      errors[static_cast<std::size_t>(world.rank())] = writer.take_error().value_or("");
    });
    BOOST_TEST_CONTEXT(each.what << ": " << errors[1]) {
      for (const std::string& error : errors) {
        BOOST_TEST(contains(error, each.error));
        BOOST_TEST((each.what == "step" || each.what == "negative step" || error == errors[0]));
      }
      BOOST_TEST(disk.paths().size() == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_save_in_the_background_writes_what_was_there_when_it_began) {
  simulated_disk disk;
  const checkpoint_example example{5, true};
  for (const int ranks : {1, 3}) {
    comm::run_ranks(ranks, [&](comm::threads& world) {
      io::checkpoint_writer writer{world, {.folders = {{.path = "folder"}, {.path = "other"}}}, disk};
      io::checkpoint_content content = example.of_rank(world.rank(), ranks);
      content.step = 5;
      std::vector<std::vector<std::byte>> memory;
      for (io::stored_array& array : content.arrays) {
        memory.emplace_back(array.memory.begin(), array.memory.end());
        array.memory = memory.back();
      }
      writer.start(content);
      for (std::vector<std::byte>& each : memory) {  // the next step changes it
        std::fill(each.begin(), each.end(), std::byte{0});
      }
      writer.wait();
      expect_on_rank(writer.finished() && !writer.take_error(), "the save");
      expect_on_rank(writer.report().paths.size() == 2, "two folders");
    });
    for (const char* const folder : {"folder", "other"}) {
      BOOST_TEST(gradus_test::difference(example, std::string{folder} + "/step-000000005.safetensors", disk) == "");
      disk.remove(std::string{folder} + "/step-000000005.safetensors");
    }
  }
}

BOOST_AUTO_TEST_CASE(files_that_are_not_valid_are_named_with_the_reason) {
  simulated_disk disk;
  save_alone(disk, 1);
  const std::string path = "folder/step-000000001.safetensors";
  const auto reason_with = [&](std::int64_t step, const std::function<void(std::string&)>& change) {
    std::string text(disk.at(path).size(), ' ');
    std::memcpy(text.data(), disk.at(path).data(), text.size());
    change(text);
    const std::string other = "folder/" + io::detail::name_of_step(step);
    disk.put(other, {std::as_bytes(std::span{text}).begin(), std::as_bytes(std::span{text}).end()});
    const io::checkpoint_report report = io::find_newest("folder", disk);
    disk.remove(other);
    BOOST_TEST(report.step == 1);
    BOOST_TEST_REQUIRE(report.skipped.size() == 1U);
    BOOST_TEST(report.skipped[0].path == other);
    BOOST_TEST(contains(to_string(report), "skipped: '" + other + "'"));
    return report.skipped[0].reason;
  };
  const auto replace = [](std::string& in, std::string_view from, std::string_view to) {
    const std::size_t at = in.find(from);
    BOOST_TEST_REQUIRE(at != std::string::npos);
    in.replace(at, from.size(), to);
  };
  BOOST_TEST(
      contains(reason_with(2, [](std::string&) {}), "the checkpoint of the step in its name, got that of step 1"));
  BOOST_TEST(
      contains(reason_with(2, [](std::string& text) { text.resize(100); }), "the file was not copied completely"));
  BOOST_TEST(contains(reason_with(2, [](std::string& text) { text.resize(text.size() - 1); }), "copied completely"));
  save_alone(disk, 3);
  disk.at("folder/step-000000003.safetensors").back() ^= std::byte{1};
  BOOST_TEST(contains(to_string(io::find_newest("folder", disk)), "expected the tensor 'labels' with the checksum"));
  disk.remove("folder/step-000000003.safetensors");
  BOOST_TEST(contains(reason_with(2, [&](std::string& text) { replace(text, "\"epoch\":\"7\"", "\"epoch\":\"8\""); }),
                      "a header with the checksum"));
  BOOST_TEST(contains(reason_with(2, [&](std::string& text) { replace(text, "format\":\"1", "format\":\"2"); }),
                      "a format up to 1, got the newer format 2"));
  BOOST_TEST(contains(reason_with(2, [&](std::string& text) { replace(text, "gradus.format", "others.format"); }),
                      "a checkpoint: 'gradus.format' in its metadata, got none"));
  BOOST_TEST(
      contains(reason_with(2, [](std::string& text) { text = "PK\x03\x04 an archive"; }), "a header of at most"));
  BOOST_TEST(contains(reason_with(2, [](std::string& text) { text.clear(); }), "a file of at least 8 bytes"));
  BOOST_TEST(io::find_newest("nowhere", disk).skipped.size() == 0U);
  BOOST_TEST(to_string(io::find_newest("nowhere", disk)) == "there is no valid checkpoint");
}

BOOST_AUTO_TEST_CASE(fetches_outside_of_tensors_are_refused_on_all_ranks) {
  simulated_disk disk;
  save_alone(disk, 1);
  std::vector<std::string> errors(2);
  comm::run_ranks(2, [&](comm::threads& world) {
    comm::link_of group{world};
    const std::string folder = "folder";
    const io::shared_checkpoint found{group, std::span{&folder, 1}, disk};
    std::vector<std::byte> bytes(10);
    const io::checkpoint_fetch wrong[] = {{.tensor = "labels", .begin = 4, .into = bytes}};
    try {
      found.fetch(world.rank() == 1 ? std::span{wrong} : std::span<const io::checkpoint_fetch>{});
    } catch (const gradus::configuration_error& failure) {
      errors[static_cast<std::size_t>(world.rank())] = failure.what();
    }
  });
  for (const std::string& error : errors) {
    BOOST_TEST(contains(error, "10 bytes from byte 4 are not in the 13 bytes of 'labels'"));
  }
}

BOOST_AUTO_TEST_CASE(options_of_writers_are_checked_on_all_ranks) {
  simulated_disk disk;
  int refused = 0;
  for (const io::checkpoint_writer_options& each :
       {io::checkpoint_writer_options{}, io::checkpoint_writer_options{.folders = {{.path = ""}}},
        io::checkpoint_writer_options{.folders = {{.path = "x", .keep_newest = 0}}},
        io::checkpoint_writer_options{.folders = {{.path = "x", .every = 0}}}}) {
    comm::self world;
    try {
      const io::checkpoint_writer writer{world, each, disk};
    } catch (const gradus::configuration_error& failure) {
      ++refused;
      BOOST_TEST(contains(failure.what(), "checkpoint_file.cpp"));  // the line of the program
    }
  }
  BOOST_TEST(refused == 4);
  std::vector<char> threw(2);
  comm::run_ranks(2, [&](comm::threads& world) {
    try {
      const io::checkpoint_writer writer{
          world, {.folders = {{.path = "folder", .keep_newest = 1 + world.rank()}}}, disk};
    } catch (const gradus::configuration_error&) {
      threw[static_cast<std::size_t>(world.rank())] = 1;
    }
  });
  BOOST_TEST((threw == std::vector<char>{1, 1}));
}
