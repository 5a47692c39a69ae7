// SPDX-License-Identifier: BSL-1.0
//
// A worker process that is killed: asynchronous training and synchronous training with backup workers go on,
// synchronous training without them ends with a message that names the rank, on all others. A server process that is
// killed ends any training, with a message that names it. No rank hangs. The job cannot be finalized without the
// process: it ends by MPI_Abort.
// Cases of 4 ranks: asynchronous backup server synchronous waiting
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "../support/lost_rank.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parameter_server/parameter_server.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error{what};
  }
}

constexpr int steps = 6;
constexpr int killed_at = 2;  // steps that rank 1 completes
std::unique_ptr<communicator_tests::content_ranks> everybody;

/// A rule that kills the server in the midst of a step.
struct deadly {
  static constexpr std::string_view name = "deadly";

  void check() const {}
  [[nodiscard]] std::string description() const { return "deadly"; }

  template <class Element, class Device>
  struct state {
    state(Device& /*device*/, const deadly& /*rule*/, gradus::index_t /*elements*/) {}
    void update(Device& /*device*/, std::span<const gradus::optim::segment> /*segments*/, Element* /*values*/,
                const Element* /*gradients*/, const gradus::optim::update_step& /*step*/) {
      if (++updates == 4) {
        everybody->count_this_rank();
        std::raise(SIGKILL);
      }
    }
    template <class Visitor>
    void visit_buffers(const Visitor& /*visitor*/) {}

    int updates = 0;
  };
};

constexpr gradus::optim::sgd plain{.momentum = 0, .weight_decay = 0};

/// In a backward pass ranks 0 and 2 wait for rank 1, as those that synchronize batch normalization do.
void wait_for_rank_1(comm::mpi& world) {
  std::vector<float> data(1);
  if (world.rank() != 1) {
    comm::receive(world, 1, data, 0).wait();
    return;
  }
  for (const int other : {0, 2}) {
    comm::send(world, other, data, 0).wait();
  }
}

/// Steps of a worker whose gradients are all 1. Rank 1 may be killed before the end of one.
template <class Rule>
void train(comm::mpi& world, const parallel::parameter_server& options, const Rule& rule, bool kill_rank_1,
           bool workers_wait) {
  std::vector<float> values(30);
  std::vector<float> gradients(30);
  const std::vector<gradus::optim::segment> segments{{.name = "last.weights", .offset = 0, .size = 20},
                                                     {.name = "first.weights", .offset = 20, .size = 10}};
  parallel::parameter_server::state<float> servers{options, world, {values, gradients, segments}};
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::optim::parameter_update_of<Rule, float> applied{device, rule, 0};
  servers.use(applied);
  servers.start();
  for (int step = 0; step < steps; ++step) {
    for (float& each : gradients) {
      each = 1;
    }
    servers.gradients_ready(0, 1);
    if (kill_rank_1 && world.rank() == 1 && step == killed_at) {
      everybody->count_this_rank();
      std::raise(SIGKILL);
    }
    if (workers_wait) {
      wait_for_rank_1(world);
    }
    servers.gradients_ready(1, 1);
    servers.end_of_step(0.25);
    servers.finish([](std::span<const gradus::optim::segment>) {});
  }
}

void train_to_the_end(comm::mpi& world, const parallel::parameter_server& options, bool workers_wait = false) {
  if (options.is_server_only(world)) {
    const parallel::server_summary done = parallel::serve<float>(world, plain, options);
    require(done.lost_workers == 1, "the server counts " + std::to_string(done.lost_workers) + " lost workers");
    require(done.left_workers == 2, "the server counts " + std::to_string(done.left_workers) + " that left");
    // With backup workers a worker may be late, or begin late, before rank 1 is killed, and makes up for it when the
    // other has left: steps without it are those that rank 1 takes part in.
    const std::uint64_t steps_made = done.updates / 2;
    const bool backup = options.backup_workers > 0;
    require(backup ? steps_made >= steps && steps_made <= steps + killed_at : steps_made == 2 * steps + killed_at,
            "the server has made " + std::to_string(steps_made) + " steps");
  } else {
    train(world, options, plain, true, workers_wait);
  }
}

void train_until_the_server_dies(comm::mpi& world, const parallel::parameter_server& options) {
  if (options.is_server_only(world)) {
    parallel::serve<float>(world, deadly{}, options);
  } else {
    train(world, options, deadly{}, false, false);
  }
}

/// The last rank serves; rank 1 is killed, or the server.
void run_case(const std::string& name, comm::mpi& world) {
  world.set_time_limit(std::chrono::seconds{3});
  if (name == "asynchronous") {
    train_to_the_end(world, {.mode = parallel::server_mode::asynchronous});
  } else if (name == "backup") {
    train_to_the_end(world, {.backup_workers = 1});
  } else if (name == "server") {
    const std::string message =
        communicator_tests::failure_of([&] { train_until_the_server_dies(world, parallel::parameter_server{}); });
    for (const char* part : {"parameter_server.finish", "weights' ",
                             " server 0 (rank 3): not complete within 3 s; no answer from rank 3"}) {
      require(message.find(part) != std::string::npos, "'" + std::string{part} + "' is not in: " + message);
    }
  } else {
    require(name == "synchronous" || name == "waiting", "no case '" + name + "'");
    const std::string message = communicator_tests::failure_of(
        [&] { train_to_the_end(world, parallel::parameter_server{}, name == "waiting"); });
    // None of the workers that only wait for rank 1.
    const std::string part =
        "push of the gradient of 'last.weights', step 2: not complete within 2.25 s; no answer from rank 1. ";
    require(message.find(part) != std::string::npos, "'" + part + "' is not in: " + message);
  }
}

}  // namespace

int main(int argc, char** argv) {
  communicator_tests::go_on_as_a_child();
  comm::mpi_environment environment{argc, argv, {.grace = std::chrono::seconds{5}, .exit_code = 0}};
  communicator_tests::require_ranks(environment, argc, argv);
  const communicator_tests::watchdog guard{std::chrono::seconds{300}};
  everybody = std::make_unique<communicator_tests::content_ranks>();
  std::string complaint = communicator_tests::failure_of([&] {
    comm::mpi world{environment};
    run_case(communicator_tests::argument_of("--case", argc, argv), world);
  });
  if (complaint.empty() && !everybody->all_content()) {
    complaint = "other ranks do not come to an end";
  }
  communicator_tests::report_verdict(environment.rank(), argc, argv, complaint);
  MPI_Abort(MPI_COMM_WORLD, complaint.empty() ? 0 : 1);
}
