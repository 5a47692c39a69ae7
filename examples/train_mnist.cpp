// SPDX-License-Identifier: BSL-1.0
//
// Trains the MNIST network on IDX images: in one process, on ranks in threads (--ranks N), or under mpiexec.
#include <getopt.h>  // getopt_long

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/command_line.hpp"
#include "gradus/comm/launcher.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/gzip.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/mnist.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/trainer.hpp"
#ifdef GRADUS_EXAMPLE_WITH_MPI
#include "gradus/comm/mpi.hpp"
#endif

namespace {

struct options {
  const char* data = "/usr/share/datasets/fashion-mnist";
  std::string_view layout = "nhwc";
  int epochs = 2;
  gradus::index_t batch_size = 64;
  int ranks = 1;
  int threads = 0;
  int time_limit = static_cast<int>(gradus::comm::default_time_limit / std::chrono::seconds{1});
  std::uint64_t seed = 1;
  double learning_rate = 0.05;
  std::string checkpoints = {};
  std::uint64_t checkpoint_every = 0;
  std::string checkpoint_memory = {};
  std::uint64_t checkpoint_memory_every = 0;
  bool resume = false;
  bool progress_bar = gradus::train::output_is_terminal();
};

struct images {
  gradus::data::image_dataset training;
  gradus::data::image_dataset test;
};

images load(const std::string& folder) {
  return {gradus::data::load_mnist(folder, gradus::data::split::training),
          gradus::data::load_mnist(folder, gradus::data::split::test)};
}

/// The data and the network of one rank. The batch is shared by all ranks.
template <class Layout>
struct share_of_rank {
  share_of_rank(const images& sets, const options& chosen, int rank, int ranks)
      : device{{.intra_op_threads =
                    chosen.threads > 0 ? chosen.threads : std::max(1, gradus::available_processors() / ranks)}},
        training{
            device,
            sets.training,
            {.global_batch_size = chosen.batch_size, .seed = chosen.seed, .shard = {.rank = rank, .ranks = ranks}}},
        test{device,
             sets.test,
             {.global_batch_size = std::min<gradus::index_t>(250 * ranks, sets.test.size()),
              .shuffle = false,
              .shard = {.rank = rank, .ranks = ranks}}},
        net{device, {1, 28, 28}} {
    gradus::models::mnist(net);
    net.compile(
        {.max_batch_size = std::max(training.local_batch_size(), test.local_batch_size()), .seed = chosen.seed});
  }

  gradus::cpu device;
  gradus::data::loader<float, Layout> training;
  gradus::data::loader<float, Layout> test;
  gradus::nn::network<float, Layout> net;
};

/// What every rank does; returns the exit status.
template <class Layout, class Communicator>
int train(Communicator& communicator, const images& sets, const options& chosen) {
  share_of_rank<Layout> own{sets, chosen, communicator.rank(), communicator.size()};
  gradus::train::trainer trainer{own.net, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, communicator};
  const bool first = communicator.rank() == 0;
  if (chosen.resume) {
    std::vector<std::string> folders{chosen.checkpoints};
    if (!chosen.checkpoint_memory.empty()) {
      folders.push_back(chosen.checkpoint_memory);
    }
    const auto found = trainer.resume(folders);
    if (first) {
      std::printf("%s\n", gradus::printable(gradus::io::to_string(found)).c_str());
    }
  }
  gradus::train::checkpoints saves{chosen.checkpoints,
                                   {.every = chosen.checkpoint_every,
                                    .memory_folder = chosen.checkpoint_memory,
                                    .memory_every = chosen.checkpoint_memory_every}};
  try {
    trainer.fit(own.training, {.epochs = chosen.epochs, .learning_rate = chosen.learning_rate},
                gradus::train::progress{{.terminal = chosen.progress_bar}}, saves);
  } catch (const gradus::train::interrupted& signal) {
    if (first) {
      std::fprintf(stderr, "train_mnist: %s\n", gradus::printable(signal.what()).c_str());
    }
    return gradus::train::interrupted::exit_code;
  }
  const auto result = trainer.evaluate(own.test);
  if (first) {
    std::printf("test accuracy: %.4f\n", result.accuracy);
  }
  return 0;
}

[[noreturn]] void refuse(const char* name, const char* expected, const char* value) {
  char text[400];
  gradus::format_text(text, sizeof(text), "--%s: expected %s, got '%s'", name, expected, value);
  throw std::invalid_argument{text};
}

[[noreturn]] void refuse_option(const char* given) {
  throw std::invalid_argument{"'" + std::string{given} + "' is not an option"};
}

/// Reads the whole text as a number from `least` to `most`.
std::uint64_t read(const char* name, const char* text, std::uint64_t least, std::uint64_t most) {
  char* end = nullptr;
  errno = 0;
  const std::uint64_t number = std::strtoull(text, &end, 10);
  const bool digits = *text >= '0' && *text <= '9';  // strtoull would take a sign
  if (!digits || *end != '\0' || errno != 0 || number < least || number > most) {
    char expected[100];
    gradus::format_text(expected, sizeof(expected), "a whole number from %llu to %llu",
                        static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
    refuse(name, expected, text);
  }
  return number;
}

/// Copies in memory are saved in between, so the folder, its interval and that of the file system belong together.
void require_memory_that_fits(const options& chosen) {
  const std::uint64_t every = chosen.checkpoint_memory_every;
  const bool memory = !chosen.checkpoint_memory.empty();
  if (memory != (every != 0) || (memory && (chosen.checkpoint_every == 0 || chosen.checkpoint_every % every != 0))) {
    throw std::invalid_argument{
        "--checkpoint-memory: expected a folder, and --checkpoint-memory-every N that divides --checkpoint-every, got "
        "'" +
        chosen.checkpoint_memory + "', " + std::to_string(every) + " and " + std::to_string(chosen.checkpoint_every)};
  }
}

std::string help() {
  const options usual;
  char text[2500];
  gradus::format_text(text, sizeof(text), R"(Trains the MNIST network on IDX images, in one process or on several ranks.

  --data FOLDER         with train-images-idx3-ubyte[.gz] and the other three files (%s)
  --epochs N            passes over the training set (%d)
  --batch-size N        examples of a step, over all ranks (%td)
  --layout NAME         memory order of images: nchw or nhwc (%s)
  --ranks N             ranks in threads of this process; under mpiexec leave it at 1 (%d)
  --threads N           threads of each rank; 0: the processors divided by the ranks (%d)
  --time-limit SECONDS  that a rank waits for the others before it says who is missing and ends the job (%d)
  --seed N              of weights, shuffling and dropout (%llu)
  --learning-rate RATE  step size (%g)
  --checkpoint-dir FOLDER   saves the state of the training there: after SIGTERM and SIGUSR1, which end it with status
                        75, and
  --checkpoint-every N  after each N steps; 0: after each epoch (%llu)
  --checkpoint-memory FOLDER   saves there too, in memory: a folder in /dev/shm. It survives the end of the processes,
  --checkpoint-memory-every N  after each N steps, which divide those of --checkpoint-every
  --resume              goes on from the newest checkpoint in these folders
  --progress-bar        draw a bar that moves even if the output is no terminal, as under mpiexec
  --help                this text
)",
                      usual.data, usual.epochs, usual.batch_size, usual.layout.data(), usual.ranks, usual.threads,
                      usual.time_limit, static_cast<unsigned long long>(usual.seed), usual.learning_rate,
                      static_cast<unsigned long long>(usual.checkpoint_every));
  return text;
}

/// Fills `chosen`; returns false when the help was asked for.
/// @throws std::invalid_argument that says which option is wrong, what it expects and what came
bool read_options(int argc, char** argv, options& chosen) {
  constexpr option known[] = {{"data", required_argument, nullptr, 'd'},
                              {"epochs", required_argument, nullptr, 'e'},
                              {"batch-size", required_argument, nullptr, 'b'},
                              {"layout", required_argument, nullptr, 'l'},
                              {"ranks", required_argument, nullptr, 'r'},
                              {"threads", required_argument, nullptr, 't'},
                              {"time-limit", required_argument, nullptr, 'w'},
                              {"seed", required_argument, nullptr, 's'},
                              {"learning-rate", required_argument, nullptr, 'a'},
                              {"checkpoint-dir", required_argument, nullptr, 'c'},
                              {"checkpoint-every", required_argument, nullptr, 'n'},
                              {"checkpoint-memory", required_argument, nullptr, 'f'},
                              {"checkpoint-memory-every", required_argument, nullptr, 'v'},
                              {"resume", no_argument, nullptr, 'm'},
                              {"progress-bar", no_argument, nullptr, 'p'},
                              {"help", no_argument, nullptr, 'h'},
                              {}};
  opterr = 0;  // the messages are ours
  for (;;) {
    const char* const given = argv[optind];
    switch (getopt_long(argc, argv, "+:", known, nullptr)) {
      case -1:
        if (optind < argc) {
          refuse_option(argv[optind]);
        }
        if (chosen.checkpoints.empty() && (chosen.resume || chosen.checkpoint_every != 0)) {
          throw std::invalid_argument{"--resume and --checkpoint-every: expected --checkpoint-dir FOLDER, got none"};
        }
        require_memory_that_fits(chosen);
        return true;
      case 'd':
        chosen.data = optarg;
        break;
      case 'e':
        chosen.epochs = static_cast<int>(read("epochs", optarg, 0, INT32_MAX));
        break;
      case 'b':
        chosen.batch_size = static_cast<gradus::index_t>(read("batch-size", optarg, 1, PTRDIFF_MAX));
        break;
      case 'l':
        chosen.layout = optarg;
        if (chosen.layout != "nchw" && chosen.layout != "nhwc") {
          refuse("layout", "nchw or nhwc", optarg);
        }
        break;
      case 'r':
        chosen.ranks = static_cast<int>(read("ranks", optarg, 1, 32767));
        break;
      case 't':
        chosen.threads = static_cast<int>(read("threads", optarg, 0, 4096));
        break;
      case 'w':
        chosen.time_limit = static_cast<int>(read("time-limit", optarg, 1, 1'000'000));
        break;
      case 's':
        chosen.seed = read("seed", optarg, 0, UINT64_MAX);
        break;
      case 'a': {
        chosen.learning_rate = gradus::read_number(optarg).value_or(-1);
        if (!std::isfinite(chosen.learning_rate) || chosen.learning_rate < 0) {
          refuse("learning-rate", "a finite number of at least 0", optarg);
        }
        break;
      }
      case 'c':
        chosen.checkpoints = optarg;
        break;
      case 'n':
        chosen.checkpoint_every = read("checkpoint-every", optarg, 0, UINT64_MAX);
        break;
      case 'f':
        chosen.checkpoint_memory = optarg;
        break;
      case 'v':
        chosen.checkpoint_memory_every = read("checkpoint-memory-every", optarg, 1, UINT64_MAX);
        break;
      case 'm':
        chosen.resume = true;
        break;
      case 'p':
        chosen.progress_bar = true;
        break;
      case 'h':
        return false;
      case ':':
        throw std::invalid_argument{std::string{given} + ": expected a value, got none"};
      default:
        refuse_option(given);
    }
  }
}

gradus::comm::command_line refused(const std::string& why) {
  return {.status = 2, .text = "train_mnist: " + gradus::printable(why) + "\nTry --help.\n"};
}

gradus::comm::command_line read_command_line(int argc, char** argv, options& chosen) {
  try {
    return read_options(argc, argv, chosen) ? gradus::comm::command_line{}
                                            : gradus::comm::command_line{.status = 0, .text = help()};
  } catch (const std::exception& failure) {
    return refused(failure.what());
  }
}

void say(const gradus::comm::command_line& end) {
  std::fputs(end.text.c_str(), end.status == 0 ? stdout : stderr);
}

/// What every rank does, whatever its communicator.
struct rank_body {
  const options& chosen;
  std::atomic<int>& status;  // of the process

  template <class Communicator>
  void operator()(Communicator& communicator) const {
    communicator.set_time_limit(std::chrono::seconds{chosen.time_limit});
    const images sets = load(chosen.data);
    if (chosen.layout == "nchw") {
      status = train<gradus::nchw>(communicator, sets, chosen);
    } else {
      status = train<gradus::nhwc>(communicator, sets, chosen);
    }
  }
};

/// Ranks in threads, or one.
int run_in_process(const options& chosen) {
  std::atomic<int> status = 0;
  const rank_body body{chosen, status};
  if (chosen.ranks > 1) {
    gradus::comm::run_ranks(chosen.ranks, body);
  } else {
    gradus::comm::self alone;
    body(alone);
  }
  return status;
}

#ifdef GRADUS_EXAMPLE_WITH_MPI

/// Also of a command line that cannot be followed: the other ranks of the job wait in MPI_Init, and have to learn of
/// it.
int run_under_mpi(int argc, char** argv, const options& chosen, gradus::comm::command_line own) {
  // It outlives the catch below: it ends the job of a failed rank.
  gradus::comm::mpi_environment environment{argc, argv, {.time_limit = std::chrono::seconds{chosen.time_limit}}};
  const bool alone = environment.size() == 1;
  try {
    if (!own.ends() && !alone && chosen.ranks > 1) {
      own = refused("--ranks: under mpiexec, mpiexec starts the ranks: leave it at 1");
    }
    const auto all = environment.run([&](auto& world) { return gradus::comm::agree(world, own); });
    if (all.ends()) {
      if (all.rank == environment.rank()) {
        say(all);
      }
      return all.status;
    }
    if (alone) {
      return run_in_process(chosen);
    }
    std::atomic<int> status = 0;
    environment.run(rank_body{chosen, status});
    return status;
  } catch (const std::exception& failure) {
    const std::string who = environment.size() == 1 ? "" : "rank " + std::to_string(environment.rank()) + ": ";
    std::fprintf(stderr, "train_mnist: %s%s\n", who.c_str(), gradus::printable(failure.what()).c_str());
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
    gradus::comm::require_started_alone("train_mnist");
#endif
    if (own.ends()) {
      say(own);
      return own.status;
    }
    return run_in_process(chosen);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "train_mnist: %s\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::close_output("train_mnist", run(argc, argv));
}
