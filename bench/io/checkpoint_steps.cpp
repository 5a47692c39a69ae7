// SPDX-License-Identifier: BSL-1.0
//
// What a checkpoint costs a training: how long a step waits for the copy of the state, and how much slower steps are
// while a save is under way behind them.
//   bench_io_checkpoint_steps [--folder PATH] [--model mnist|resnet20|resnet50] [--batch-size N] [--ranks N]
//                             [--threads N] [--rounds N]
// A round is a save, with the steps behind which it is written, and as many steps without one. With as many ranks times
// threads as processors, threads of the saves compete with those that train.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace train = gradus::train;
using gradus::index_t;
using program::median;
using network = gradus::nn::network<float, gradus::nhwc>;
using loader = data::loader<float, gradus::nhwc>;
using clock_type = std::chrono::steady_clock;

struct options {
  std::string folder = "bench_checkpoints";
  std::string model = "resnet20";
  index_t batch_size = 0;  // of a rank; 0: the model's
  int ranks = 1;
  int threads = 1;
  std::size_t rounds = 20;
};

struct model {
  index_t channels;
  index_t extent;
  int classes;
  index_t batch_size;
};

model model_of(const std::string& name) {
  if (name == "mnist") {
    return {.channels = 1, .extent = 28, .classes = 10, .batch_size = 32};
  }
  if (name == "resnet20") {
    return {.channels = 3, .extent = 32, .classes = 11, .batch_size = 8};
  }
  if (name == "resnet50") {
    return {.channels = 3, .extent = 64, .classes = 1001, .batch_size = 2};
  }
  throw std::runtime_error{"--model: expected mnist, resnet20 or resnet50, got '" + name + "'"};
}

void build(network& net, const std::string& name) {
  if (name == "mnist") {
    gradus::models::mnist(net);
  } else if (name == "resnet20") {
    gradus::models::cifar_resnet(net, 20);
  } else {
    gradus::models::resnet(net, 50);
  }
}

/// The same batch until the measurement is over.
class one_batch {
 public:
  one_batch(loader& source, const bool& over) : source_{&source}, over_{&over} {}

  void take_shard(const data::shard& part) { source_->take_shard(part); }
  void start_epoch(std::uint64_t /*epoch*/) {
    source_->start_epoch(0);
    batch_ = source_->next();
  }
  [[nodiscard]] const loader::batch_type* next() { return *over_ ? nullptr : batch_; }
  [[nodiscard]] index_t steps_per_epoch() const { return source_->steps_per_epoch(); }
  [[nodiscard]] index_t examples_per_epoch() const { return source_->examples_per_epoch(); }
  [[nodiscard]] std::string description() const { return source_->description(); }

 private:
  loader* source_;
  const bool* over_;
  const loader::batch_type* batch_ = nullptr;
};

/// Times of one rank, in seconds.
struct times {
  std::vector<double> without;   // steps without a save
  std::vector<double> within;    // steps during all of which a save was under way
  std::vector<double> with_end;  // steps in which one has ended
  std::vector<double> snapshots;
  std::vector<double> saves;
  std::uint64_t bytes = 0;
};

/// Begins saves, and sorts the steps by what went on behind them.
class rounds {
 public:
  rounds(const options& chosen, comm::threads& world, bool& over)
      : chosen_{chosen},
        world_{world},
        over_{over},
        saves_{chosen.folder, {.every = 1, .keep = 1, .signals = false, .on_save = [this](const auto& cost) {
                                 if (!cost.save.error.empty()) {
                                   throw std::runtime_error{cost.save.error};
                                 }
                                 found_.snapshots.push_back(cost.snapshot);
                                 found_.saves.push_back(cost.save.seconds);
                                 found_.bytes = cost.save.bytes;
                               }}} {}

  [[nodiscard]] const times& found() const noexcept { return found_; }

  template <class Trainer>
  void on_step(Trainer& trainer, const train::step_report& step) {
    const double time = std::chrono::duration<double>(clock_type::now() - began_).count();
    double under_way[] = {saves_.saving() ? 1.0 : 0.0};  // on some rank
    comm::all_reduce(world_, std::span<double>{under_way}, comm::reduction::maximum).wait();
    const bool goes_on = under_way[0] > 0;
    if (step.step >= warm_up) {
      if (saving_) {
        ++steps_of_save_;
        (goes_on ? found_.within : found_.with_end).push_back(time);
      } else {
        ++steps_without_;
        if (rounds_ > 1) {  // the memory of the first save is new
          found_.without.push_back(time);
        }
      }
    }
    saving_ = goes_on;
    if (step.step >= warm_up && !saving_ && steps_without_ >= std::max(steps_of_save_, least)) {
      over_ = rounds_ == chosen_.rounds;
      if (!over_) {
        if (rounds_ == 1) {
          found_ = {};
        }
        saves_.on_step(trainer, step);
        saving_ = true;
        steps_of_save_ = 0;
        steps_without_ = 0;
        ++rounds_;
      }
    }
    began_ = clock_type::now();
  }
  void on_finish() { saves_.on_finish(); }

 private:
  static constexpr std::uint64_t warm_up = 10;
  static constexpr std::size_t least = 4;  // steps without a save in a round

  const options& chosen_;
  comm::threads& world_;
  bool& over_;
  times found_;
  train::checkpoints saves_;
  bool saving_ = false;
  std::size_t rounds_ = 0;
  std::size_t steps_of_save_ = 0;
  std::size_t steps_without_ = 0;
  clock_type::time_point began_;
};

times measure(const options& chosen) {
  const model properties = model_of(chosen.model);
  const index_t batch = chosen.batch_size == 0 ? properties.batch_size : chosen.batch_size;
  const data::image_dataset images = data::make_synthetic({.examples = batch * chosen.ranks,
                                                           .channels = properties.channels,
                                                           .height = properties.extent,
                                                           .width = properties.extent,
                                                           .classes = properties.classes});
  times found;
  comm::run_ranks(chosen.ranks, [&](comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = chosen.threads}};
    network net{device, {properties.channels, properties.extent, properties.extent}};
    build(net, chosen.model);
    net.compile({.max_batch_size = batch, .seed = 1});
    loader source{device,
                  images,
                  {.global_batch_size = batch * chosen.ranks,
                   .shuffle = false,
                   .shard = {.rank = world.rank(), .ranks = world.size()}}};
    bool over = false;
    one_batch input{source, over};
    comm::threads own = world.duplicate();
    rounds watch{chosen, own, over};
    train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world};
    trainer.fit(input, {.epochs = 1, .learning_rate = 1e-4}, watch);
    if (world.rank() == 0) {
      found = watch.found();
    }
  });
  return found;
}

double best(const std::vector<double>& of) {
  return *std::min_element(of.begin(), of.end());
}

double mean(const std::vector<double>& of) {
  double sum = 0;
  for (const double each : of) {
    sum += each;
  }
  return sum / static_cast<double>(of.size());
}

void print(const options& chosen, const times& found) {
  const auto line = [](const char* what, const std::vector<double>& of) {
    if (!of.empty()) {
      std::printf("%-34s %8.2f ms, best %8.2f, mean %8.2f (%zu)\n", what, 1e3 * median(of), 1e3 * best(of),
                  1e3 * mean(of), of.size());
    }
  };
  std::printf("%s, %d ranks of %d threads, %llu bytes a checkpoint in '%s', %zu rounds\n", chosen.model.c_str(),
              chosen.ranks, chosen.threads, static_cast<unsigned long long>(found.bytes), chosen.folder.c_str(),
              chosen.rounds);
  line("copy of the state, of a rank", found.snapshots);
  line("save", found.saves);
  line("step without a save", found.without);
  line("step during a save", found.within);
  line("step in which a save ends", found.with_end);
  const double usual = median(found.without);
  double more = 0;
  std::vector<double> with = found.within;
  with.insert(with.end(), found.with_end.begin(), found.with_end.end());
  for (const double each : with) {
    more += each - usual;
  }
  const std::vector<double>& compared = found.within.empty() ? with : found.within;
  std::printf("step during / without:           %5.3f (best times: %.3f, means: %.3f)\n", median(compared) / usual,
              best(compared) / best(found.without), mean(compared) / mean(found.without));
  std::printf("a save makes its steps longer by %5.2f ms, and a step waits %.2f ms for the copy\n",
              1e3 * more / static_cast<double>(found.saves.size()), 1e3 * median(found.snapshots));
}

}  // namespace

int main(int argc, char** argv) {
  options chosen;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--folder") {
      chosen.folder = argv[i + 1];
    } else if (name == "--model") {
      chosen.model = argv[i + 1];
    } else if (name == "--batch-size") {
      chosen.batch_size = std::stoi(argv[i + 1]);
    } else if (name == "--ranks") {
      chosen.ranks = std::stoi(argv[i + 1]);
    } else if (name == "--threads") {
      chosen.threads = std::stoi(argv[i + 1]);
    } else if (name == "--rounds") {
      chosen.rounds = std::max<std::size_t>(2, std::stoull(argv[i + 1]));
    } else {
      std::fprintf(stderr, "unknown option %s\n", name.c_str());
      return 2;
    }
  }
  std::filesystem::create_directories(chosen.folder);
  print(chosen, measure(chosen));
  for (const auto& each : std::filesystem::directory_iterator{chosen.folder}) {
    if (each.path().filename().string().starts_with("step-")) {
      std::filesystem::remove(each.path());
    }
  }
  return 0;
}
