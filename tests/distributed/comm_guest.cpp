// SPDX-License-Identifier: BSL-1.0
//
// A guest in a program that begins and ends MPI itself: the ranks of a communicator train at any level of threads, the
// others call nothing, and MPI_Finalize ends the program in every order of destructors.
// Cases of 4 ranks: train_single train_funneled train_serialized train_multiple two_trainings leave exception
// Cases of 4 ranks: finalize_first global_object many other_thread refusals mixed own_data ends_once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "../support/staying_ranks.hpp"
#include "../support/training_runs.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/flight_recorder.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/comm/pairwise_sums.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/data/distributed.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/stepwise.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
namespace suite = communicator_tests;

constexpr std::chrono::milliseconds limit{5000};
int own_rank = 0;
int arguments_count = 0;
char** arguments = nullptr;
std::unique_ptr<comm::mpi> global;  // dies after main
std::atomic<int> counted_ends{0};   // that this rank has begun: see MPI_Ireduce_scatter_block below

/// A crash is a complaint.
void crashed(int signal) {
  suite::report_verdict(own_rank, arguments_count, arguments, "a crash: signal " + std::to_string(signal));
  std::_Exit(1);
}

/// The ranks of this one's color.
MPI_Comm ranks_of(int color) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, own_rank, &made);
  return made;
}

template <class Communicator>
void require_training(Communicator& world, const std::string& what) {
  comm::self alone;
  const auto want = gradus_test::run_training<gradus::nhwc>(alone);
  const auto require_same = [&](const auto& have, const char* strategy) {
    const double apart = gradus_test::largest_difference(have.weights, want.weights);
    suite::require(apart < 1e-9, what + ": weights of " + strategy + " differ by " + std::to_string(apart));
  };
  const gradus::data::shard part{.rank = world.rank(), .ranks = world.size()};
  const auto run = [&](const auto& strategy) {
    return gradus_test::run_training_with<gradus::nhwc>(world, {}, strategy, part);
  };
  require_same(gradus_test::run_training<gradus::nhwc>(world), "the default");
  require_same(run(parallel::all_reduce{.bucket_bytes = 1000, .first_bucket_bytes = 100}), "all_reduce");
  require_same(run(parallel::all_reduce{.bucket_bytes = 1000, .first_bucket_bytes = 100, .overlap_forward = true}),
               "all_reduce behind forward");
  require_same(run(parallel::sharded_update{.bucket_bytes = 1000, .first_bucket_bytes = 100}), "sharded_update");
}

/// Ranks 1 and 2 train; the others end their programs at once.
void train_on_some_ranks(bool threads) {
  MPI_Comm some = ranks_of(own_rank == 1 || own_rank == 2 ? 0 : -1);
  if (some == MPI_COMM_NULL) {
    return;
  }
  {
    comm::mpi world{some, {.time_limit = limit}};
    suite::require(world.one_thread() != threads, "one_thread()");
    suite::require(comm::any_communicator{world}.one_thread() != threads, "one_thread() of an any_communicator");
    {
      comm::collectives<comm::mpi> around{world.duplicate()};
      comm::recorded<comm::mpi> recorded{world.duplicate()};
      comm::subset<comm::mpi> pair{world.duplicate(), {1, 0}};
      comm::pairwise_sums<comm::mpi> tree{world.duplicate()};
      const bool all[] = {comm::any_communicator{around}.one_thread(), comm::any_communicator{recorded}.one_thread(),
                          comm::any_communicator{pair}.one_thread(), comm::any_communicator{tree}.one_thread()};
      suite::require(std::count(std::begin(all), std::end(all), !threads) == 4, "one_thread() of what is made of it");
    }
    require_training(world, "comm::mpi");
    comm::mpi_shared shared{some, {}, {.time_limit = limit}};
    suite::require(shared.one_thread() != threads, "one_thread() of mpi_shared");
    require_training(shared, "comm::mpi_shared");
    if (!threads) {
      const std::string message = suite::message_of<gradus::configuration_error>([&] {
        gradus_test::run_training_with<gradus::nhwc>(world, {}, parallel::parameter_server{.servers = 0},
                                                     {.rank = world.rank(), .ranks = world.size()});
      });
      suite::require_contains(message,
                              "parallel::parameter_server: expected a communicator that threads of the library "
                              "may use, got MPI below MPI_THREAD_MULTIPLE");
    }
  }
  MPI_Comm_free(&some);
}

/// Ranks 0 and 2 train, and so do 1 and 3, at the same time, each for another time.
void two_trainings() {
  MPI_Comm own = ranks_of(own_rank % 2);
  comm::mpi world{own, {.time_limit = limit}};
  MPI_Comm_free(&own);  // it is duplicated
  for (int i = 0; i < 1 + own_rank % 2; ++i) {
    require_training(world, "training " + std::to_string(i));
  }
}

/// Rank 3 ends its program while the others exchange messages; a collective with it fails and says so.
void leave() {
  const suite::staying_ranks others{own_rank < 3};
  std::optional<comm::mpi> world{std::in_place, MPI_COMM_WORLD, comm::mpi_options{.time_limit = limit}};
  std::vector<float> data(1009, 1.0F);
  comm::all_reduce(*world, data).wait();
  suite::require(data[0] == 4.0F, "a sum of all ranks");
  if (own_rank == 3) {
    return;
  }
  for (int i = 0; i < 100; ++i) {
    if (own_rank == 0) {
      comm::send(*world, 1, std::span{data}, 0).wait();
      comm::receive(*world, 2, std::span{data}, 0).wait();
    } else {
      comm::receive(*world, own_rank - 1, std::span{data}, 0).wait();
      comm::send(*world, (own_rank + 1) % 3, std::span{data}, 0).wait();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  others.meet();
  const std::string message = suite::message_of<gradus::communication_error>([&] { comm::barrier(*world).wait(); });
  suite::require_contains(message, "rank 3 failed: it has left the group after 1 collectives");
}

/// A rank that throws makes the others throw; all of them go on without the library, and MPI_Finalize works.
void exception_on_a_rank() {
  MPI_Comm own = ranks_of(own_rank < 3 ? 0 : -1);
  if (own == MPI_COMM_NULL) {
    return;
  }
  std::string message;
  try {
    comm::mpi world{own, {.time_limit = limit}};
    std::vector<float> data(1009, 1.0F);
    comm::all_reduce(world, data).wait();
    if (own_rank == 1) {
      world.fail("a reason");
      throw std::runtime_error{"a reason"};
    }
    comm::receive(world, 1, std::span{data}, 0).wait();
  } catch (const std::exception& failure) {
    message = failure.what();
  }
  suite::require_contains(message, "a reason");
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, own);
  suite::require(sum == 3, "the program's communicator goes on");
}

/// The program calls MPI_Finalize while all kinds of objects live.
void finalize_first() {
  MPI_Comm some = ranks_of(own_rank < 3 ? 0 : -1);
  std::optional<comm::mpi> world;
  std::optional<comm::mpi_shared> shared;
  std::optional<comm::mpi> copy;
  if (some != MPI_COMM_NULL) {
    world.emplace(some, comm::mpi_options{.time_limit = limit});
    shared.emplace(some, comm::mpi_shared_options{}, comm::mpi_options{.time_limit = limit});
    copy.emplace(world->duplicate());
    std::vector<float> data(1009, 1.0F);
    comm::all_reduce(*world, data).wait();
    comm::all_reduce(*shared, data).wait();
  }
  if (own_rank == 2) {
    std::this_thread::sleep_for(limit / 4);
    copy.reset();
  }
  MPI_Finalize();
  if (world) {
    const std::string message = suite::message_of<gradus::communication_error>([&] { comm::barrier(*world).wait(); });
    suite::require_contains(message, "barrier: expected a running MPI, got an MPI that has been finalized");
  }
  suite::require_contains(suite::message_of<gradus::configuration_error>([] { comm::mpi late{MPI_COMM_SELF}; }),
                          "comm::mpi: expected a running MPI, got one that has been finalized");
}

/// A program may make more of them than MPI has communicators, one after another and some of them at a time.
void many() {
  MPI_Comm own = ranks_of(own_rank % 2);
  std::vector<comm::mpi> some;
  for (int i = 0; i < 3000; ++i) {
    comm::mpi world{own, {.time_limit = limit}};
    if (i % 1000 == 0) {
      std::vector<float> data(7, 1.0F);
      comm::all_reduce(world, data).wait();
      some.push_back(std::move(world));
    }
  }
  for (comm::mpi& each : some) {
    comm::barrier(each).wait();
  }
}

/// Below MPI_THREAD_SERIALIZED another thread gets an error.
void other_thread() {
  comm::mpi world{MPI_COMM_WORLD, {.time_limit = limit}};
  std::string of_call;
  std::string of_constructor;
  std::thread{[&] {
    of_call = suite::message_of<gradus::communication_error>([&] { comm::barrier(world).wait(); });
    of_constructor = suite::message_of<gradus::configuration_error>([] { comm::mpi another{MPI_COMM_SELF}; });
  }}.join();
  suite::require_contains(of_call, "barrier: expected the thread that has begun MPI, got another thread");
  suite::require_contains(of_constructor, "comm::mpi: expected the thread that has begun MPI, got another thread");
  comm::barrier(world).wait();
}

void refusals() {
  const auto message_for = [](MPI_Comm ranks) {
    return suite::message_of<gradus::configuration_error>([ranks] { comm::mpi world{ranks}; });
  };
  suite::require_contains(message_for(MPI_COMM_NULL),
                          "comm::mpi: expected a communicator that has this rank, got "
                          "MPI_COMM_NULL");
  MPI_Comm half = ranks_of(own_rank % 2);
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - own_rank % 2, 0, &between);
  suite::require_contains(message_for(between), "got an intercommunicator");
  suite::require_contains(suite::message_of<gradus::configuration_error>([] {
                            comm::mpi world{MPI_COMM_SELF, {.time_limit = {}}};
                          }),
                          "expected a time above zero");
  if (own_rank < 3) {  // one rank of four does not come
    MPI_Comm all = MPI_COMM_WORLD;
    const std::string message = suite::message_of<gradus::communication_error>([all] {
      comm::mpi world{all, {.time_limit = std::chrono::milliseconds{1000}}};
    });
    suite::require_contains(message,
                            "not complete within 1 s: not all of the 4 ranks of the MPI communicator have "
                            "constructed one");
  }
}

/// An environment of all ranks and guests at a time.
void mixed() {
  comm::mpi_environment environment{{.time_limit = limit}};
  comm::mpi world{environment};
  MPI_Comm own = ranks_of(own_rank % 2);
  comm::mpi half{own, {.time_limit = limit}};
  std::vector<float> data(7, 1.0F);
  comm::all_reduce(half, data).wait();
  comm::all_reduce(world, data).wait();
  suite::require(data[0] == 8.0F, "a sum of sums");
}

/// Ranks with 5, 0 and 16 examples of their own train as one process that has all of them, in calls of some steps.
void own_data() {
  MPI_Comm own = ranks_of(own_rank < 3 ? 0 : -1);
  if (own == MPI_COMM_NULL) {
    return;
  }
  const auto train = [](auto& world, int first, int count, gradus::index_t steps) {
    std::vector<double> inputs;
    std::vector<double> targets;
    for (int i = first * 12; i < (first + count) * 12; ++i) {
      inputs.push_back(std::sin(i));
      targets.push_back(std::cos(i));
    }
    const auto set = gradus::data::distributed(world, gradus::data::examples_of(inputs, {1, 1, 3, 4}),
                                               gradus::data::examples_of(targets, {1, 1, 3, 4}));
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<double, gradus::nhwc> loader{device, set, {.global_batch_size = 6, .seed = 4}};
    gradus::nn::network<double, gradus::nhwc> net{device, {1, 3, 4}};
    const auto field = net.add("c", gradus::nn::conv2d{.out_channels = 1, .kernel = {1, 1}}, net.input());
    net.loss(gradus::nn::mean_squared_error{}, field);
    net.compile({.max_batch_size = 6, .seed = 2});
    gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world};
    trainer.start(loader, {.learning_rate = 0.1});
    for (gradus::index_t done = 0; done < 12; done += steps) {
      suite::require(trainer.train_steps(steps).steps == steps, "steps of a call");
    }
    const std::vector<double> weights(net.values().begin(), net.values().end());
    const auto more = static_cast<double>(trainer.train_for(std::chrono::milliseconds{own_rank == 1 ? 2 : 2000}).steps);
    double sums[] = {more};
    trainer.communicator().link().sum(sums);
    suite::require(more >= 1 && sums[0] == more * world.size(),
                   "the same steps on all ranks, as long as the budget lasts");
    return weights;
  };
  {
    comm::mpi world{own, {.time_limit = limit}};
    const int firsts[] = {0, 5, 5, 21};
    const std::vector<double> have = train(world, firsts[own_rank], firsts[own_rank + 1] - firsts[own_rank], 4);
    comm::mpi alone{MPI_COMM_SELF, {.time_limit = limit}};
    const double apart = gradus_test::largest_difference(have, train(alone, 0, 21, 3));
    suite::require(apart < 1e-9, "weights differ by " + std::to_string(apart));
  }
  MPI_Comm_free(&own);
}

void run(const std::string& name) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  suite::require(size == 4, "4 ranks");
  if (name.starts_with("train_")) {
    train_on_some_ranks(name == "train_multiple");
  } else if (name == "two_trainings") {
    two_trainings();
  } else if (name == "leave") {
    leave();
  } else if (name == "exception") {
    exception_on_a_rank();
  } else if (name == "finalize_first") {
    finalize_first();
  } else if (name == "global_object") {
    global = std::make_unique<comm::mpi>(MPI_COMM_WORLD, comm::mpi_options{.time_limit = limit});
    comm::barrier(*global).wait();
  } else if (name == "many") {
    many();
  } else if (name == "other_thread") {
    other_thread();
  } else if (name == "refusals") {
    refusals();
  } else if (name == "own_data") {
    own_data();
  } else if (name == "ends_once") {
    { const comm::mpi world{MPI_COMM_WORLD, {.time_limit = limit}}; }
    const comm::mpi another{MPI_COMM_WORLD, {.time_limit = limit}};
    MPI_Barrier(MPI_COMM_WORLD);  // the end of the first one has begun on all ranks, and is over on some
    MPI_Finalize();
    suite::require(counted_ends == 2, "each guest ends once, not " + std::to_string(counted_ends) + " times");
  } else if (name == "mixed") {
    mixed();
  } else {
    suite::require(false, "a known case");
  }
}

}  // namespace

/// Counts the ends of guests, which are such collectives.
extern "C" int MPI_Ireduce_scatter_block(const void* input, void* output, int count, MPI_Datatype type,
                                         MPI_Op operation, MPI_Comm ranks, MPI_Request* request) {
  ++counted_ends;
  return PMPI_Ireduce_scatter_block(input, output, count, type, operation, ranks, request);
}

int main(int argc, char** argv) {
  arguments_count = argc;
  arguments = argv;
  const std::string name = suite::argument_of("--case", argc, argv);
  const suite::watchdog guard{std::chrono::seconds{45}};
  const std::string before = suite::failure_of([] {
    suite::require_contains(suite::message_of<gradus::configuration_error>([] { comm::mpi early{MPI_COMM_WORLD}; }),
                            "comm::mpi: expected a running MPI, got one that has not begun");
  });
  if (name == "train_single") {
    MPI_Init(&argc, &argv);
  } else {
    const int wanted = name == "train_funneled" || name == "other_thread" || name == "exception" || name == "own_data"
                           ? MPI_THREAD_FUNNELED
                       : name == "train_serialized" || name == "many" ? MPI_THREAD_SERIALIZED
                                                                      : MPI_THREAD_MULTIPLE;
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, wanted, &level);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS}) {
    std::signal(signal, crashed);
  }
  const std::string complaint = before.empty() ? suite::failure_of([&] { run(name); }) : before;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && complaint.empty()) {
    MPI_Finalize();  // in order, and soon: the watchdog says so
  }
  suite::report_verdict(own_rank, argc, argv, complaint);
  return complaint.empty() ? 0 : 1;
}
