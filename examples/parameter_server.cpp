// SPDX-License-Identifier: BSL-1.0
//
// Trains a small network with parameter servers, on ranks in threads (--ranks N) or under mpiexec. Who is what is said
// in numbers (--servers N --colocate) or by host (--hosts "worker=host1,host2;server=host3"). Prints the plan, the test
// accuracy, and what each server has done. The bound of a step is that of links of 1 Gbit/s.
#include <getopt.h>  // getopt_long
#include <unistd.h>  // gethostname

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/command_line.hpp"
#include "gradus/comm/launcher.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parameter_server/hosts.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/parameter_server/roles.hpp"
#include "gradus/train/trainer.hpp"
#ifdef GRADUS_EXAMPLE_WITH_MPI
#include "gradus/comm/mpi.hpp"
#endif

namespace {

namespace parallel = gradus::parallel;

/// The name of this rank's host; "localhost" if the lists call it so.
std::string own_host(const parallel::host_list& hosts) {
  char name[256] = "localhost";
  if (hosts.workers.front() != name) {
    gethostname(name, sizeof(name) - 1);
  }
  return name;
}

/// What every rank does, worker or server.
/// @param hosts  by role, or empty
void train(gradus::comm::any_communicator world, parallel::parameter_server servers, const parallel::host_list& hosts) {
  if (!hosts.workers.empty()) {
    servers.who = parallel::roles_of(hosts, parallel::gather_host_names(world.link(), own_host(hosts)));
  }
  // Gradients that come late act like momentum (Mitliagkas et al., "Asynchrony begets momentum", 2016): less of it
  // then.
  const bool waits = servers.mode == parallel::server_mode::synchronous;
  const gradus::optim::sgd rule{.momentum = waits ? 0.9 : 0.5, .weight_decay = 1e-4};
  if (servers.is_server_only(world)) {
    parallel::serve<float>(world, rule, servers);
    return;
  }
  const parallel::roles who = servers.roles_among(world.size());
  const bool first = who.worker_index(world.rank()) == 0;
  const auto images = gradus::data::make_synthetic({.examples = 2048});
  const auto unseen = gradus::data::make_synthetic({.examples = 512, .first = 2048});
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 64}};  // shared by the workers
  gradus::data::loader<float, gradus::nhwc> test_loader{device, unseen, {.global_batch_size = 64, .shuffle = false}};

  namespace nn = gradus::nn;
  nn::network<float, gradus::nhwc> net{device, {1, 28, 28}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 8, .kernel = {5, 5}, .stride = {2, 2}}, net.input());
  x = net.add("relu", nn::relu{}, x);
  x = net.add("scores", nn::dense{.out_features = 10}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = 64, .seed = 1});

  gradus::train::trainer trainer{net, rule, world, servers};
  if (first) {
    std::printf("%s\n%s", trainer.strategy().describe().c_str(),
                describe(trainer.strategy<parallel::parameter_server>().plan().placed,
                         static_cast<int>(who.workers.size()), 117e6)
                    .c_str());
  }
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.02});
  const double accuracy = trainer.evaluate(test_loader).accuracy;
  if (first) {
    std::printf("test accuracy: %.4f\n", accuracy);
    for (const parallel::server_summary& each : trainer.strategy<parallel::parameter_server>().summary()) {
      std::printf("server: %s\n", describe(each).c_str());
    }
  }
}

/// The value among those of an enumeration that has this name.
template <class Enumeration>
Enumeration named(const std::string& name, Enumeration last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name_of(static_cast<Enumeration>(i)) == name) {
      return static_cast<Enumeration>(i);
    }
  }
  throw std::invalid_argument{"'" + name + "' is not a mode or placement"};
}

struct options {
  parallel::parameter_server servers;
  parallel::host_list hosts;
  int ranks = 1;
};

gradus::comm::command_line refused(const char* why) {
  return {.status = 1, .text = "parameter_server: " + gradus::printable(why) + '\n'};
}

gradus::comm::command_line read_command_line(int argc, char** argv, options& chosen) {
  constexpr option known[] = {{"servers", required_argument, nullptr, 's'},
                              {"colocate", no_argument, nullptr, 'c'},
                              {"mode", required_argument, nullptr, 'm'},
                              {"placement", required_argument, nullptr, 'p'},
                              {"ranks", required_argument, nullptr, 'r'},
                              {"hosts", required_argument, nullptr, 'h'},
                              {}};
  try {
    for (int which = 0; (which = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
      if (which == 's') {
        chosen.servers.servers = std::stoi(optarg);
      } else if (which == 'c') {
        chosen.servers.colocate = true;
      } else if (which == 'm') {
        chosen.servers.mode = named(optarg, parallel::server_mode::compat);
      } else if (which == 'p') {
        chosen.servers.placed.policy = named(optarg, parallel::placement_policy::partitioned);
      } else if (which == 'r') {
        chosen.ranks = std::stoi(optarg);
      } else if (which == 'h') {
        chosen.hosts = parallel::parse_host_list(optarg);
      } else {
        throw std::invalid_argument{
            "options are --servers N, --colocate, --hosts LISTS, --placement "
            "round_robin|greedy|longest_first|partitioned, --mode synchronous|asynchronous|bounded_staleness|compat "
            "and "
            "--ranks N"};
      }
    }
    return {};
  } catch (const std::exception& failure) {
    return refused(failure.what());
  }
}

int run_in_process(const options& chosen) {
  gradus::comm::run_ranks(chosen.ranks, [&](auto& world) { train(world, chosen.servers, chosen.hosts); });
  return 0;
}

#ifdef GRADUS_EXAMPLE_WITH_MPI

/// Also of a command line that cannot be followed: the other ranks of the job wait in MPI_Init, and have to learn of
/// it.
int run_under_mpi(int argc, char** argv, const options& chosen, gradus::comm::command_line own) {
  gradus::comm::mpi_environment environment{argc, argv};
  try {
    if (!own.ends() && environment.size() > 1 && chosen.ranks > 1) {
      own = refused("--ranks: under mpiexec, mpiexec starts the ranks: leave it out");
    }
    const auto all = environment.run([&](auto& world) { return gradus::comm::agree(world, own); });
    if (all.ends()) {
      if (all.rank == environment.rank()) {
        std::fputs(all.text.c_str(), stderr);
      }
      return all.status;
    }
    if (chosen.ranks > 1) {
      return run_in_process(chosen);
    }
    environment.run([&](auto& world) { train(world, chosen.servers, chosen.hosts); });
    return 0;
  } catch (const std::exception& failure) {  // before the environment ends the job
    const std::string who = environment.size() == 1 ? "" : "rank " + std::to_string(environment.rank()) + ": ";
    std::fprintf(stderr, "parameter_server: %s%s\n", who.c_str(), gradus::printable(failure.what()).c_str());
    return 1;
  }
}

#endif

int run(int argc, char** argv) {
  options chosen;
  const gradus::comm::command_line own = read_command_line(argc, argv, chosen);
  try {
#ifdef GRADUS_EXAMPLE_WITH_MPI
    if (gradus::comm::started_by_launcher()) {
      return run_under_mpi(argc, argv, chosen, own);
    }
#else
    gradus::comm::require_started_alone("parameter_server");
#endif
    if (own.ends()) {
      std::fputs(own.text.c_str(), stderr);
      return own.status;
    }
    return run_in_process(chosen);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "parameter_server: %s\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::close_output("parameter_server", run(argc, argv));
}
