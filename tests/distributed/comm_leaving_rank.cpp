// SPDX-License-Identifier: BSL-1.0
//
// The last rank destroys its communicator while the others wait for it: they name it at once, far below their time
// limit of a minute, which is longer than this test may run.
// Cases: training sum broadcast receive send split duplicate exception environment
// Cases: shared shared_exception nodes messages
#include <chrono>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "../support/staying_ranks.hpp"
#include "../support/training_runs.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/mpi_shared.hpp"

namespace {

namespace suite = communicator_tests;
namespace comm = gradus::comm;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds limit = 60s;

int last_of(const comm::mpi_environment& environment) {
  return environment.size() - 1;
}

/// What a rank that stays gets to see; the last rank leaves by returning.
template <class Action>
void require_named(const comm::mpi_environment& environment, std::string_view part, const Action& action) {
  const std::string message = suite::message_of<gradus::communication_error>(action);
  suite::require_contains(message, "rank " + std::to_string(last_of(environment)) + " failed: it has left the group");
  suite::require_contains(message, part);
  suite::require(message.find("not complete within") == std::string::npos, message);
}

/// After `before` collectives the last rank leaves, and the others begin one more.
template <class Communicator, class Action>
void leave_after(const comm::mpi_environment& environment, std::optional<Communicator> world, int before,
                 std::string_view part, const Action& action) {
  const suite::staying_ranks others{environment.rank() != last_of(environment)};
  world->set_time_limit(limit);
  std::vector<float> data(1009, 1.0F);
  for (int i = 0; i < before; ++i) {
    comm::all_reduce(*world, data).wait();
  }
  if (environment.rank() == last_of(environment)) {
    world.reset();
  } else {
    others.meet();
    require_named(environment, part, [&] { action(*world, data); });
  }
}

void train(comm::mpi_environment& environment) {
  comm::mpi world{environment};
  world.set_time_limit(limit);
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<double, gradus::nhwc> loader{
      device,
      gradus_test::small_dataset(),
      {.global_batch_size = 8, .seed = 11, .shard = {.rank = world.rank(), .ranks = world.size()}}};
  gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = std::max<gradus::index_t>(1, loader.local_batch_size()), .seed = 11});
  gradus::train::trainer trainer{net, gradus::optim::sgd{}, world, gradus::parallel::all_reduce{}};
  for (int epoch = 0; epoch < 3; ++epoch) {
    if (epoch == 1 && environment.rank() == last_of(environment)) {
      return;
    }
    trainer.fit(loader, {.epochs = 1, .learning_rate = 0.1});
  }
}

/// The exception is caught where the communicator was made, and no rank says why it was thrown.
template <class Communicator>
void leave_by_exception(const comm::mpi_environment& environment, Communicator first) {
  try {
    Communicator world{std::move(first)};
    world.set_time_limit(limit);
    std::vector<float> data(1009, 1.0F);
    comm::all_reduce(world, data).wait();
    if (environment.rank() == last_of(environment)) {
      const comm::request pending = comm::all_reduce(world, data);
      throw std::runtime_error{"the disk is full"};
    }
    require_named(environment, " because of an exception, but rank ", [&] {
      comm::all_reduce(world, data).wait();
      comm::all_reduce(world, data).wait();
    });
  } catch (const std::runtime_error& failure) {
    suite::require(std::string{failure.what()} == "the disk is full", failure.what());
  }
}

void run(comm::mpi_environment& environment, const std::string& which) {
  const bool alone = environment.size() == 1;
  const auto sum = [](auto& world, std::vector<float>& data) { comm::all_reduce(world, data).wait(); };
  const std::string last = std::to_string(last_of(environment));
  if (which == "training") {
    if (alone || environment.rank() == last_of(environment)) {
      train(environment);
    } else {
      require_named(environment, "(its communicator was destroyed), but rank ", [&] { train(environment); });
    }
  } else if (which == "sum") {
    leave_after(environment, std::optional{comm::mpi{environment}}, 17,
                "after 17 collectives (its communicator was destroyed), but rank ", sum);
  } else if (which == "broadcast") {
    leave_after(
        environment, std::optional{comm::mpi{environment}}, 2, "in collective 3: broadcast from rank " + last,
        [&](comm::mpi& world, std::vector<float>& data) { comm::broadcast(world, data, last_of(environment)).wait(); });
  } else if (which == "receive") {  // two messages of a tag come, the third does not
    const suite::staying_ranks others{environment.rank() != last_of(environment)};
    comm::mpi world{environment};
    world.set_time_limit(limit);
    std::vector<float> data(3, 1.0F);
    if (environment.rank() == last_of(environment)) {
      for (int other = 0; other < environment.rank(); ++other) {
        comm::send(world, other, data, 4).wait();
        comm::send(world, other, data, 4).wait();
        comm::send(world, other, data, 5).wait();
      }
    } else {
      comm::receive(world, last_of(environment), data, 4).wait();
      comm::receive(world, last_of(environment), data, 5).wait();
      comm::receive(world, last_of(environment), data, 4).wait();
      others.meet();
      require_named(environment, " calls receive from rank " + last + " (tag 4) of 3 float32",
                    [&] { comm::receive(world, last_of(environment), data, 4).wait(); });
    }
  } else if (which == "send") {  // longer than what MPI takes before the receiver comes
    leave_after(environment, std::optional{comm::mpi{environment}}, 1, " calls send to rank " + last + " (tag 4)",
                [&](comm::mpi& world, std::vector<float>& data) {
                  data.resize(10'000'000);
                  comm::send(world, last_of(environment), data, 4).wait();
                });
  } else if (which == "split") {  // ranks are numbered the other way round there
    MPI_Comm reversed = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -environment.rank(), &reversed);
    if (alone) {
      leave_after(environment, std::optional{comm::mpi{environment, reversed}}, 3, "", sum);
    } else {
      leave_after(environment, std::optional{comm::mpi{environment, reversed}}, 3,
                  "after 3 collectives (its communicator was destroyed), but world rank ", sum);
    }
  } else if (which == "duplicate") {  // of a duplicate; the first communicator stays
    comm::mpi world{environment};
    comm::mpi other = world.duplicate();
    leave_after(environment, std::optional{other.duplicate()}, 2, "after 2 collectives", sum);
  } else if (which == "exception") {
    leave_by_exception(environment, comm::mpi{environment});
  } else if (which == "shared") {
    leave_after(environment, std::optional{comm::mpi_shared{environment}}, 17,
                "after 17 collectives (its communicator was destroyed), but rank ", sum);
  } else if (which == "shared_exception") {
    leave_by_exception(environment, comm::mpi_shared{environment});
  } else if (which == "nodes") {
    auto nodes = comm::mpi_shared::split_by_node(environment);
    leave_after(
        environment,
        std::optional{comm::hierarchical{std::move(nodes.local), std::move(nodes.across), comm::mpi{environment}}}, 5,
        "(its communicator was destroyed), but ", sum);
  } else if (which == "messages") {
    leave_after(
        environment,
        std::optional{comm::collectives{comm::mpi{environment}, {.all_reduce = comm::parse_all_reduce_spec("ring")}}},
        40, "(its communicator was destroyed), but rank ", sum);
  } else {
    throw std::runtime_error{"no such case: " + which};
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = suite::argument_of("--case", argc, argv);
  if (which != "environment") {
    return suite::run_failure(argc, argv, [&](comm::mpi_environment& environment) { run(environment, which); });
  }
  std::optional<comm::mpi> world;  // outlives the environment
  comm::mpi_environment environment{argc, argv, {.grace = 5s, .exit_code = 0}};
  suite::require_ranks(environment, argc, argv);
  suite::content_ranks content;
  world.emplace(environment);
  world->set_time_limit(limit);
  std::string complaint;
  if (environment.rank() == last_of(environment)) {
    content.count_this_rank();
  } else {
    complaint = suite::failure_of(
        [&] { require_named(environment, "after 0 collectives", [&] { comm::barrier(*world).wait(); }); });
    suite::report_verdict(environment.rank(), argc, argv,
                          complaint.empty() && !content.all_content() ? "others are not content" : complaint);
  }
  return 0;
}
