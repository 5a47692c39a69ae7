// SPDX-License-Identifier: BSL-1.0
//
// A short training to which random_faults.py and the cluster test of memory folders do harm: with a strategy, on ranks
// in threads or under mpiexec, with checkpoints every few steps. It writes its weights to a file. A fault may come from
// within: at a step, on a rank.
//
// The folder of the job gets a file rank_R for each process that is rank R, with its process number. When the rank
// ends, it gets the file said_R with the exception, or ended_R. The file `training` is there when rank 0 begins to
// train.
#include <getopt.h>  // getopt_long
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/command_line.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"
#ifdef GRADUS_FAULTS_WITH_MPI
#include "gradus/comm/mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#endif

namespace {

namespace comm = gradus::comm;
namespace nn = gradus::nn;
namespace parallel = gradus::parallel;

struct options {
  std::string strategy = "ring";
  std::string folder = {};       ///< of the job: checkpoints are in its folder `saves`
  std::string weights = {};      ///< the file that is written at the end
  int ranks = 2;                 ///< in threads; not under mpiexec
  int epochs = 6;                ///< of 8 steps
  std::uint64_t every = 5;       ///< steps from one checkpoint to the next
  std::string memory = {};       ///< a folder for checkpoints in the node's memory; its path may differ between nodes
  std::uint64_t in_memory = 0;   ///< steps from one checkpoint there to the next; divides `every`
  double time_limit = 30;        ///< of the communicator, in seconds
  int pause = 4;                 ///< milliseconds of a step that are not computed
  bool resume = false;           ///< go on from the newest checkpoint
  bool keeper = false;           ///< each rank is a child of the process that mpiexec knows
  std::string fault = {};        ///< kill, stop, stall, throw or small_files
  int fault_rank = 0;            ///< the rank that has it
  std::uint64_t fault_step = 0;  ///< the completed steps at which it comes
  int fault_delay = 0;           ///< microseconds later, on a thread of its own: kill and stop
};

std::chrono::milliseconds time_limit_of(const options& chosen) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(1000 * chosen.time_limit)};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream{path + ".new"} << text << '\n';
  std::rename((path + ".new").c_str(), path.c_str());  // whole when it is there
}

/// Files of this process may have this many bytes from now on; more is an error of the write.
void limit_files(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

/// Does harm to its own rank, behind the checkpoint of the step.
class fault_callback {
 public:
  fault_callback(const options& chosen, int rank) : chosen_{chosen}, mine_{chosen.fault_rank == rank} {}
  fault_callback(const fault_callback&) = delete;
  fault_callback& operator=(const fault_callback&) = delete;
  ~fault_callback() {
    if (later_.joinable()) {
      later_.join();
    }
  }

  void on_step(const gradus::train::step_report& step) {
    std::this_thread::sleep_for(std::chrono::milliseconds{chosen_.pause});
    if (!mine_ || chosen_.fault.empty() || step.step + 1 != chosen_.fault_step) {
      return;
    }
    if (chosen_.fault == "throw") {
      throw std::runtime_error{"the disk of this rank is on fire"};
    }
    if (chosen_.fault == "stall") {
      std::this_thread::sleep_for(std::chrono::duration<double>{2 * chosen_.time_limit});
    } else if (chosen_.fault == "small_files") {
      limit_files(4096);
    } else {
      later_ = std::thread{[number = chosen_.fault == "kill" ? SIGKILL : SIGSTOP, delay = chosen_.fault_delay] {
        std::this_thread::sleep_for(std::chrono::microseconds{delay});
        ::kill(::getpid(), number);
      }};
    }
  }

 private:
  const options& chosen_;
  bool mine_;
  std::thread later_;
};

/// The training of a rank that trains.
template <class Communicator, class Strategy>
void train(Communicator& world, const Strategy& strategy, const options& chosen, bool first) {
  constexpr bool in_parts = requires {
    strategy.virtual_workers;
  };
  constexpr gradus::index_t batch = 32;
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic({.examples = 8 * batch, .height = 12, .width = 12});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = batch, .seed = 1}};
  nn::network<float, gradus::nhwc> net{device, {1, 12, 12}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 6, .kernel = {5, 5}}, net.input());
  x = net.add("relu", nn::relu{}, x);
  x = net.add("hidden", nn::dense{.out_features = 24}, x);
  x = net.add("scores", nn::dense{.out_features = 10}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = in_parts ? gradus::train::worker_batch_size(batch) : batch, .seed = 1});

  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, world, strategy};
  const std::string saves = chosen.folder + "/saves";
  std::vector<std::string> folders{saves};
  if (!chosen.memory.empty()) {
    folders.push_back(chosen.memory);
  }
  if (chosen.resume) {
    const auto found = trainer.resume(folders);
    if (first) {
      std::fprintf(stderr, "resume: %s\n", gradus::io::to_string(found).c_str());
    }
  }
  if (first) {
    write_text(chosen.folder + "/training", "");
  }
  fault_callback fault{chosen, world.rank()};
  trainer.fit(loader, {.epochs = chosen.epochs, .learning_rate = 0.02},
              gradus::train::checkpoints{saves,
                                         {.every = chosen.every,
                                          .keep = 3,
                                          .memory_folder = chosen.memory,
                                          .memory_every = chosen.in_memory,
                                          .time_limit = world.time_limit()}},
              fault);
  if (first) {
    limit_files(RLIM_INFINITY);
    gradus::io::save_weights(net, chosen.weights);
  }
}

/// Trains, or serves.
template <class Communicator>
void train_with_servers(Communicator& world, const parallel::parameter_server& servers, const options& chosen) {
  if (servers.is_server_only(world)) {
    parallel::serve<float>(world, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, servers);
  } else {
    train(world, servers, chosen, world.rank() == 0);
  }
}

/// What every rank does, with a communicator of threads or of MPI.
template <class Communicator>
void run_strategy(Communicator& world, const options& chosen) {
  const std::string_view name = chosen.strategy;
  const bool first = world.rank() == 0;
  if (name == "native" || name == "ring" || name == "halving_doubling" || name == "hierarchical_ring") {
    comm::collectives_options how{.all_reduce = comm::parse_all_reduce_spec(name)};
    for (int rank = 0; name == "hierarchical_ring" && rank < world.size(); ++rank) {
      how.node_of_rank.push_back(2 * rank / world.size());
    }
    const auto limit = world.time_limit();
    comm::collectives ranks{world.duplicate(), how};
    ranks.set_time_limit(limit);
    train(ranks, parallel::all_reduce{.bucket_bytes = 8192}, chosen, first);
  } else if (name == "sharded_update") {
    train(world, parallel::sharded_update{.bucket_bytes = 8192}, chosen, first);
  } else if (name == "servers") {
    train_with_servers(world, {.servers = 1}, chosen);
  } else if (name == "colocated_servers") {
    train_with_servers(world, {.servers = 0, .colocate = true}, chosen);
  } else if (name == "asynchronous_servers") {
    train_with_servers(world, {.servers = 1, .mode = parallel::server_mode::asynchronous}, chosen);
  } else if (name == "reproducible") {
    train(world, parallel::reproducible{parallel::all_reduce{.bucket_bytes = 8192}}, chosen, first);
  } else {
    throw std::invalid_argument{"'" + chosen.strategy + "' is not a strategy of this job"};
  }
}

/// A rank says what ends it, in the file said_R, and rethrows it: mpiexec loses what is printed last now and then.
template <class Function>
void tell_end_of(int rank, const options& chosen, const Function& function) {
  try {
    function();
    write_text(chosen.folder + "/ended_" + std::to_string(rank), "");
  } catch (const std::exception& failure) {
    std::string text = failure.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    write_text(chosen.folder + "/said_" + std::to_string(rank), text);
    throw;
  }
}

template <class Communicator>
void begin_rank(Communicator& world, const options& chosen) {
  world.set_time_limit(time_limit_of(chosen));
  run_strategy(world, chosen);
}

int run_in_threads(const options& chosen) {
  write_text(chosen.folder + "/rank_0", std::to_string(::getpid()));
  try {
    comm::run_ranks(chosen.ranks, [&](comm::threads& world) {
      tell_end_of(world.rank(), chosen, [&] { begin_rank(world, chosen); });
    });
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

#ifdef GRADUS_FAULTS_WITH_MPI

/// Goes on as a child. mpiexec ends a job when one of its processes is killed, so its processes are only keepers: that
/// of a rank that is killed stays until the job ends, and the other ranks come to speak.
void go_on_as_a_child() {
  const ::pid_t child = ::fork();
  if (child == 0) {
    return;
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  while (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    ::pause();
  }
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int run_under_mpi(int argc, char** argv, const options& chosen) {
  if (chosen.keeper) {
    go_on_as_a_child();
  }
  // On a busy machine the ranks begin and end at different times.
  comm::mpi_environment environment{argc, argv, {.time_limit = 4 * time_limit_of(chosen)}};
  write_text(chosen.folder + "/rank_" + std::to_string(environment.rank()), std::to_string(::getpid()));
  try {
    tell_end_of(environment.rank(), chosen, [&] {
      environment.run([&](comm::mpi& world) {
        if (chosen.strategy == "sharded_in_shared_memory") {
          comm::mpi_shared ranks{environment};
          ranks.set_time_limit(time_limit_of(chosen));
          train(ranks, parallel::sharded_update{.bucket_bytes = 8192}, chosen, world.rank() == 0);
        } else {
          begin_rank(world, chosen);
        }
      });
    });
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

#endif

options read_options(int argc, char** argv) {
  constexpr option known[] = {{"strategy", required_argument, nullptr, 's'},
                              {"folder", required_argument, nullptr, 'f'},
                              {"weights", required_argument, nullptr, 'w'},
                              {"ranks", required_argument, nullptr, 'n'},
                              {"epochs", required_argument, nullptr, 'e'},
                              {"time-limit", required_argument, nullptr, 'l'},
                              {"pause", required_argument, nullptr, 'p'},
                              {"resume", no_argument, nullptr, 'r'},
                              {"keeper", no_argument, nullptr, 'k'},
                              {"fault", required_argument, nullptr, 'x'},
                              {"fault-rank", required_argument, nullptr, 'R'},
                              {"fault-step", required_argument, nullptr, 'S'},
                              {"fault-delay", required_argument, nullptr, 'D'},
                              {"every", required_argument, nullptr, 'v'},
                              {"memory", required_argument, nullptr, 'm'},
                              {"memory-every", required_argument, nullptr, 'M'},
                              {}};
  options chosen;
  for (int which = 0; (which = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    switch (which) {
      case 's':
        chosen.strategy = optarg;
        break;
      case 'f':
        chosen.folder = optarg;
        break;
      case 'w':
        chosen.weights = optarg;
        break;
      case 'n':
        chosen.ranks = std::stoi(optarg);
        break;
      case 'e':
        chosen.epochs = std::stoi(optarg);
        break;
      case 'l':
        chosen.time_limit = std::stod(optarg);
        break;
      case 'p':
        chosen.pause = std::stoi(optarg);
        break;
      case 'r':
        chosen.resume = true;
        break;
      case 'k':
        chosen.keeper = true;
        break;
      case 'x':
        chosen.fault = optarg;
        break;
      case 'R':
        chosen.fault_rank = std::stoi(optarg);
        break;
      case 'S':
        chosen.fault_step = std::stoull(optarg);
        break;
      case 'D':
        chosen.fault_delay = std::stoi(optarg);
        break;
      case 'v':
        chosen.every = std::stoull(optarg);
        break;
      case 'm':
        chosen.memory = optarg;
        break;
      case 'M':
        chosen.in_memory = std::stoull(optarg);
        break;
      default:
        throw std::invalid_argument{"an option of random_faults.py or check_cluster.py"};
    }
  }
  return chosen;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const options chosen = read_options(argc, argv);
#ifdef GRADUS_FAULTS_WITH_MPI
    if (comm::started_by_launcher()) {
      return run_under_mpi(argc, argv, chosen);
    }
#endif
    return run_in_threads(chosen);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "job: %s\n", failure.what());
    return 2;
  }
}
