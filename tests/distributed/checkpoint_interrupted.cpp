// SPDX-License-Identifier: BSL-1.0
//
// A signal that one rank gets ends a training on all of them by train::interrupted: it leaves mpi_environment::run, MPI
// is finalized, and main returns what it likes.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

#include "../support/communicators_mpi.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
namespace train = gradus::train;

/// 8 steps an epoch; the last rank gets a signal in the third.
void train_until_signal(comm::mpi& world, const std::string& folder) {
  const auto images = gradus::data::make_synthetic({.examples = 64, .height = 4, .width = 4, .classes = 3});
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 8, .seed = 1}};
  gradus::nn::network<float, gradus::nhwc> net{device, {1, 4, 4}};
  net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 3}, net.input()));
  net.compile({.max_batch_size = 8, .seed = 1});
  train::trainer trainer{net, gradus::optim::sgd{}, world};
  const auto disturb = [&](const train::step_report& step) {
    if (step.step == 2 && world.rank() + 1 == world.size()) {
      static_cast<void>(std::raise(SIGTERM));
    }
  };
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.01}, disturb, train::checkpoints{folder, {.every = 1000}});
}

}  // namespace

int main(int argc, char** argv) {
  const suite::watchdog guard{std::chrono::seconds{500}};
  std::string folder;
  bool first = false;
  std::string message;
  try {
    comm::mpi_environment environment{argc, argv};  // its destructor sees the exception
    suite::require_ranks(environment, argc, argv);
    first = environment.rank() == 0;
    environment.run([&](comm::mpi& world) {
      std::int64_t number = ::getpid();
      comm::broadcast(world, std::span{&number, 1}).wait();  // the name of the folder: rank 0's
      folder = std::filesystem::temp_directory_path() / ("gradus_interrupted_" + std::to_string(number));
      train_until_signal(world, folder);
    });
  } catch (const train::interrupted& end) {
    message = end.what();
  }
  const bool saved = std::filesystem::exists(folder + "/step-000000003.safetensors") || !first;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (first) {  // all ranks are in MPI_Finalize, behind the save
    std::filesystem::remove_all(folder);
  }
  const bool right = message.find("a checkpoint of step 3 is saved") != std::string::npos && saved && finalized != 0;
  std::fprintf(stderr, "%s: '%s', saved %d, finalized %d\n", right ? "passed" : "failed", message.c_str(),
               saved ? 1 : 0, finalized);
  return right ? 0 : 1;
}
