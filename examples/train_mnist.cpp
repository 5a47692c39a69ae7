// SPDX-License-Identifier: BSL-1.0
//
// Trains the MNIST network on IDX images: in one process, on ranks in threads (--ranks N), or under mpiexec.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

#define CXXOPTS_NO_REGEX
#include <cxxopts.hpp>

#include "gradus/comm/threads.hpp"
#include "gradus/data/gzip.hpp"
#include "gradus/gradus.hpp"
#ifdef GRADUS_EXAMPLE_WITH_MPI
#include "gradus/comm/mpi.hpp"
#endif

namespace {

struct options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string layout = "nhwc";
  int epochs = 2;
  gradus::index_t batch_size = 64;
  int ranks = 1;
  int threads = 0;
  std::uint64_t seed = 1;
  double learning_rate = 0.05;
};

std::string shown(const std::string& value) {
  return value;
}
template <class Number>
std::string shown(Number value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

/// What every rank does. The batch is shared by all ranks.
template <class Layout, class Communicator>
void train(Communicator& communicator, const options& chosen) {
  const int share = std::max(1, gradus::available_processors() / communicator.size());
  gradus::cpu device{{.intra_op_threads = chosen.threads > 0 ? chosen.threads : share}};

  const auto training = gradus::data::load_mnist(chosen.data, gradus::data::split::training);
  const auto test = gradus::data::load_mnist(chosen.data, gradus::data::split::test);
  const gradus::data::shard mine{.rank = communicator.rank(), .ranks = communicator.size()};
  gradus::data::loader<float, Layout> training_loader{
      device, training, {.batch_size = chosen.batch_size, .shuffle = true, .seed = chosen.seed, .shard = mine}};
  gradus::data::loader<float, Layout> test_loader{
      device,
      test,
      {.batch_size = std::min<gradus::index_t>(250 * communicator.size(), test.size()),
       .shuffle = false,
       .shard = mine}};

  gradus::nn::network<float, Layout> net{device, {1, 28, 28}};
  gradus::models::mnist(net);
  net.freeze({.batch_size = std::max(training_loader.local_batch_size(), test_loader.local_batch_size()),
              .seed = chosen.seed});

  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, communicator};
  trainer.fit(training_loader, {.epochs = chosen.epochs, .learning_rate = chosen.learning_rate},
              gradus::train::progress{std::cout});
  const auto result = trainer.evaluate(test_loader);
  if (communicator.rank() == 0) {
    std::printf("test accuracy: %.4f\n", result.accuracy);
  }
}

template <class Communicator>
void train_in_layout(Communicator& communicator, const options& chosen) {
  if (chosen.layout == "nchw") {
    train<gradus::nchw>(communicator, chosen);
  } else {
    train<gradus::nhwc>(communicator, chosen);
  }
}

/// Fills `chosen`; returns false when the help was asked for.
bool read_options(int argc, char** argv, options& chosen) {
  cxxopts::Options known{"train_mnist", "Trains the MNIST network on IDX images, in one process or on several ranks."};
  const auto text = [](auto& value) { return cxxopts::value(value)->default_value(shown(value)); };
  known.add_options()                                                                                    //
      ("data", "folder with train-images-idx3-ubyte[.gz] and the other three files", text(chosen.data))  //
      ("epochs", "passes over the training set", text(chosen.epochs))                                    //
      ("batch-size", "examples of a step, over all ranks", text(chosen.batch_size))                      //
      ("layout", "memory order of images: nchw or nhwc", text(chosen.layout))                            //
      ("ranks", "ranks in threads of this process; under mpiexec leave it at 1", text(chosen.ranks))     //
      ("threads", "threads of each rank; 0: the processors divided by the ranks", text(chosen.threads))  //
      ("seed", "of weights, shuffling and dropout", text(chosen.seed))                                   //
      ("learning-rate", "step size", text(chosen.learning_rate))                                         //
      ("help", "this text");
  const auto given = known.parse(argc, argv);
  if (given.count("help") != 0) {
    std::cout << known.help();
    return false;
  }
  if (!given.unmatched().empty()) {
    throw std::invalid_argument{"'" + given.unmatched().front() + "' is not an option"};
  }
  if (chosen.layout != "nchw" && chosen.layout != "nhwc") {
    throw std::invalid_argument{"--layout: expected nchw or nhwc, got '" + chosen.layout + "'"};
  }
  if (chosen.ranks < 1 || chosen.threads < 0) {
    throw std::invalid_argument{"expected --ranks of at least 1 and --threads of at least 0"};
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  options chosen;
  try {
    if (!read_options(argc, argv, chosen)) {
      return 0;
    }
  } catch (const std::exception& failure) {
    std::cerr << "train_mnist: " << failure.what() << "\nTry --help.\n";
    return 2;
  }
#ifdef GRADUS_EXAMPLE_WITH_MPI
  gradus::comm::mpi_environment environment{argc, argv};  // outlives the catch below: it ends the job of a failed rank
#endif
  try {
    const auto run = [&](auto& communicator) { train_in_layout(communicator, chosen); };
    if (chosen.ranks > 1) {
      gradus::comm::run_ranks(chosen.ranks, run);
    } else {
#ifdef GRADUS_EXAMPLE_WITH_MPI
      environment.run(run);
#else
      gradus::comm::self alone;
      run(alone);
#endif
    }
  } catch (const std::exception& failure) {
    std::cerr << "train_mnist: " << failure.what() << '\n';
    return 1;
  }
  return 0;
}
