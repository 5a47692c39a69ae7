// SPDX-License-Identifier: BSL-1.0
//
// The signals that end a training with a checkpoint, and the program's own handlers of them.
#include <signal.h>  // sigaction, sigaddset, sigismember

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <filesystem>
#include <string>

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers/dense.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/stepwise.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace train = gradus::train;

int signals_of_program = 0;

void count_signal(int /*number*/, siginfo_t* /*from*/, void* /*context*/) {
  ++signals_of_program;
}

/// While it lives, the program handles the signal as simulations do: with SA_SIGINFO and a mask.
class handled_by_program {
 public:
  explicit handled_by_program(int number) : number_{number} {
    signals_of_program = 0;
    struct sigaction own = {};
    own.sa_sigaction = &count_signal;
    own.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&own.sa_mask);
    sigaddset(&own.sa_mask, SIGWINCH);
    ::sigaction(number_, &own, &before_);
  }
  handled_by_program(const handled_by_program&) = delete;
  handled_by_program& operator=(const handled_by_program&) = delete;
  ~handled_by_program() { ::sigaction(number_, &before_, nullptr); }

  [[nodiscard]] bool unchanged() const {
    struct sigaction now = {};
    ::sigaction(number_, nullptr, &now);
    constexpr int flags = SA_SIGINFO | SA_NODEFER;
    return (now.sa_flags & (flags | SA_RESTART)) == flags && now.sa_sigaction == &count_signal &&
           sigismember(&now.sa_mask, SIGWINCH) == 1;
  }

 private:
  int number_;
  struct sigaction before_ = {};
};

/// 8 steps an epoch.
struct interruptible_training {
  std::string folder = (std::filesystem::temp_directory_path() / "gradus_test_checkpoint_signals").string();
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::image_dataset images =
      gradus::data::make_synthetic({.examples = 64, .height = 4, .width = 4, .classes = 3});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 8, .seed = 1}};
  gradus::nn::network<float, gradus::nhwc> net{device, {1, 4, 4}};

  interruptible_training() {
    std::filesystem::remove_all(folder);
    net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 3}, net.input()));
    net.compile({.max_batch_size = 8, .seed = 1});
  }
  ~interruptible_training() { std::filesystem::remove_all(folder); }

  [[nodiscard]] bool has_step(int number) const {
    return std::filesystem::exists(folder + "/step-00000000" + std::to_string(number) + ".safetensors");
  }
};

/// Raises a signal where a training ends.
struct signal_in_the_end {
  void on_finish() const { static_cast<void>(std::raise(SIGUSR1)); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(signals_of_trainings)

BOOST_AUTO_TEST_CASE(the_handler_of_the_program_comes_back_with_its_flags_and_mask) {
  interruptible_training with;
  const handled_by_program program{SIGUSR1};
  train::trainer trainer{with.net, gradus::optim::sgd{}};
  bool during = true;
  trainer.fit(
      with.loader, {.epochs = 1, .learning_rate = 0.01},
      [&](const train::step_report&) { during = during && program.unchanged(); },
      train::checkpoints{with.folder, {.every = 5}});
  BOOST_TEST(!during);
  BOOST_TEST(program.unchanged());
  BOOST_TEST(signals_of_program == 0);
}

BOOST_AUTO_TEST_CASE(a_signal_in_the_last_epoch_saves_and_ends_the_training) {
  interruptible_training with;
  const handled_by_program program{SIGTERM};
  train::trainer trainer{with.net, gradus::optim::sgd{}};
  BOOST_CHECK_THROW(trainer.fit(
                        with.loader, {.epochs = 1, .learning_rate = 0.01},
                        [](train::epoch_report&) { static_cast<void>(std::raise(SIGTERM)); },
                        train::checkpoints{with.folder, {.every = 5}}),
                    train::interrupted);
  BOOST_TEST(with.has_step(8));
  BOOST_TEST(program.unchanged());
  BOOST_TEST(signals_of_program == 0);  // it has been heeded
}

BOOST_AUTO_TEST_CASE(a_signal_after_the_last_epoch_comes_again_for_the_program) {
  interruptible_training with;
  const handled_by_program program{SIGUSR1};
  train::trainer trainer{with.net, gradus::optim::sgd{}};
  trainer.fit(with.loader, {.epochs = 1, .learning_rate = 0.01}, signal_in_the_end{},
              train::checkpoints{with.folder, {.every = 5}});
  BOOST_TEST(signals_of_program == 1);
  BOOST_TEST(program.unchanged());
}

BOOST_AUTO_TEST_CASE(signals_are_the_programs_when_a_training_in_steps_has_ended) {
  interruptible_training with;
  const handled_by_program program{SIGTERM};
  train::trainer trainer{with.net, gradus::optim::sgd{}};
  train::checkpoints saved{with.folder, {.every = 2}};
  BOOST_TEST(program.unchanged());
  for (int calls = 1; calls <= 2; ++calls) {  // of start, with one object
    trainer.start(with.loader, {.learning_rate = 0.01}, saved);
    static_cast<void>(trainer.train_steps(3));
    BOOST_TEST(!program.unchanged());
    static_cast<void>(std::raise(SIGTERM));
    BOOST_TEST(signals_of_program == calls - 1);
    trainer.finish();  // no step follows
    BOOST_TEST(signals_of_program == calls);
    BOOST_TEST(program.unchanged());
  }
}

BOOST_AUTO_TEST_SUITE_END()
