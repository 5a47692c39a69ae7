// SPDX-License-Identifier: BSL-1.0
//
// A simulation that trains a network while it runs. MPI ranks solve Burgers' equations on a periodic square,
//   du/dt = -(u d/dx + v d/dy) u + k (d2/dx2 + d2/dy2) u, and the same for v,
// each on a block of the grid, and train a network on their own right-hand side between the time steps. Then the
// network takes the place of the right-hand side in every second step, and the result is compared with the simulation.
//
//   mpiexec -n 4 in_situ [PICTURE.svg] [--milliseconds N | --steps N] [--time-steps N]
//
// --milliseconds  of training after each time step (10); --steps: the same in steps of training, on any machine alike
// --time-steps    of the simulation while the network learns (300); a third as many follow with the network
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "field_pictures.hpp"
#include "gradus/comm/mpi.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/sliding_window.hpp"
#include "gradus/data/window_loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/train/stepwise.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace data = gradus::data;
namespace nn = gradus::nn;
using gradus::index_t;

constexpr int side = 64;  // points of the grid in each direction
constexpr int tile = 8;   // points of an example in each direction; it has one more on each side
constexpr double pi = 3.14159265358979323846;
constexpr double spacing = 2 * pi / side;
constexpr double viscosity = 0.05;
constexpr double time_step = 0.01;
constexpr double scale = 4;  // of right-hand sides, so that the network learns numbers of about 1

double now() {
  return MPI_Wtime();
}

/// A rank's block of the two components of velocity, with one point of its neighbors on each side.
class block {
 public:
  /// @param grid  the ranks, in two periodic directions
  explicit block(MPI_Comm grid) : grid_{grid} {
    int periodic[2];
    MPI_Cart_get(grid, 2, ranks_.data(), periodic, coordinates_.data());
    if (side % (ranks_[0] * tile) != 0 || side % (ranks_[1] * tile) != 0) {
      throw std::runtime_error{"the number of ranks does not divide the grid: use 1, 2, 4, 8 or 16"};
    }
    rows_ = side / ranks_[0];
    columns_ = side / ranks_[1];
    values_.resize(2 * plane());
    for (int y = 0; y < rows_; ++y) {
      for (int x = 0; x < columns_; ++x) {
        const double a = spacing * (coordinates_[0] * rows_ + y);
        const double b = spacing * (coordinates_[1] * columns_ + x);
        at(0, y, x) = static_cast<float>(std::sin(b) * std::cos(a) + 0.5 * std::sin(2 * a + b));
        at(1, y, x) = static_cast<float>(-std::cos(b) * std::sin(a) + 0.5 * std::cos(a - 2 * b));
      }
    }
  }

  [[nodiscard]] int rows() const noexcept { return rows_; }
  [[nodiscard]] int columns() const noexcept { return columns_; }
  [[nodiscard]] int stride() const noexcept { return columns_ + 2; }
  [[nodiscard]] std::size_t plane() const noexcept { return static_cast<std::size_t>((rows_ + 2) * stride()); }
  /// A point of this rank, or with -1 and rows() or columns() one of a neighbor.
  [[nodiscard]] float& at(int component, int y, int x) noexcept { return values_[index(component, y, x)]; }
  [[nodiscard]] float at(int component, int y, int x) const noexcept { return values_[index(component, y, x)]; }
  [[nodiscard]] const float* address(int y, int x) const noexcept { return &values_[index(0, y, x)]; }

  /// Gets the points of the neighbors: rows, then columns with the corners.
  void exchange() {
    std::vector<float> out;
    std::vector<float> in;
    const auto swap = [&](int direction, int towards, int from, int to, int count, auto point) {
      int source = 0;
      int target = 0;
      MPI_Cart_shift(grid_, direction, towards, &source, &target);
      out.clear();
      for (int component = 0; component < 2; ++component) {
        for (int i = 0; i < count; ++i) {
          out.push_back(point(component, from, i));
        }
      }
      in.resize(out.size());
      MPI_Sendrecv(out.data(), static_cast<int>(out.size()), MPI_FLOAT, target, 0, in.data(),
                   static_cast<int>(in.size()), MPI_FLOAT, source, 0, grid_, MPI_STATUS_IGNORE);
      for (int component = 0; component < 2; ++component) {
        for (int i = 0; i < count; ++i) {
          point(component, to, i) = in[static_cast<std::size_t>(component * count + i)];
        }
      }
    };
    const auto row = [this](int component, int y, int x) -> float& { return at(component, y, x); };
    const auto column = [this](int component, int x, int y) -> float& { return at(component, y - 1, x); };
    swap(0, 1, rows_ - 1, -1, columns_, row);
    swap(0, -1, 0, rows_, columns_, row);
    swap(1, 1, columns_ - 1, -1, rows_ + 2, column);
    swap(1, -1, 0, columns_, rows_ + 2, column);
  }

  /// du/dt by central differences, rows() x columns() of each component. @pre exchange
  void right_hand_side(std::vector<float>& result) const {
    result.resize(static_cast<std::size_t>(2 * rows_ * columns_));
    std::size_t i = 0;
    for (int component = 0; component < 2; ++component) {
      for (int y = 0; y < rows_; ++y) {
        for (int x = 0; x < columns_; ++x, ++i) {
          const double center = static_cast<double>(at(component, y, x));
          const double left = static_cast<double>(at(component, y, x - 1));
          const double right = static_cast<double>(at(component, y, x + 1));
          const double below = static_cast<double>(at(component, y - 1, x));
          const double above = static_cast<double>(at(component, y + 1, x));
          const double flow = static_cast<double>(at(0, y, x)) * (right - left) / (2 * spacing) +
                              static_cast<double>(at(1, y, x)) * (above - below) / (2 * spacing);
          const double spread = (left + right + below + above - 4 * center) / (spacing * spacing);
          result[i] = static_cast<float>(viscosity * spread - flow);
        }
      }
    }
  }

  /// An explicit step.
  void advance(const std::vector<float>& by) {
    std::size_t i = 0;
    for (int component = 0; component < 2; ++component) {
      for (int y = 0; y < rows_; ++y) {
        for (int x = 0; x < columns_; ++x, ++i) {
          at(component, y, x) += static_cast<float>(time_step) * by[i];
        }
      }
    }
  }

  /// The speed at all points, on rank 0 of the grid.
  [[nodiscard]] std::vector<float> speeds() const {
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(grid_, &rank);
    MPI_Comm_size(grid_, &size);
    std::vector<float> own;
    for (int y = 0; y < rows_; ++y) {
      for (int x = 0; x < columns_; ++x) {
        own.push_back(std::hypot(at(0, y, x), at(1, y, x)));
      }
    }
    std::vector<float> blocks(rank == 0 ? own.size() * static_cast<std::size_t>(size) : 0);
    MPI_Gather(own.data(), static_cast<int>(own.size()), MPI_FLOAT, blocks.data(), static_cast<int>(own.size()),
               MPI_FLOAT, 0, grid_);
    std::vector<float> all(rank == 0 ? static_cast<std::size_t>(side * side) : 0);
    for (int r = 0; r < size && rank == 0; ++r) {
      int coordinates[2];
      MPI_Cart_coords(grid_, r, 2, coordinates);
      for (int y = 0; y < rows_; ++y) {
        std::copy_n(blocks.data() + (r * rows_ + y) * columns_, columns_,
                    all.data() + (coordinates[0] * rows_ + y) * side + coordinates[1] * columns_);
      }
    }
    return all;
  }

 private:
  [[nodiscard]] std::size_t index(int component, int y, int x) const noexcept {
    return static_cast<std::size_t>(component) * plane() + static_cast<std::size_t>((y + 1) * stride() + x + 1);
  }

  MPI_Comm grid_;
  std::array<int, 2> ranks_{};
  std::array<int, 2> coordinates_{};
  int rows_ = 0;
  int columns_ = 0;
  std::vector<float> values_;
};

/// The network that learns the right-hand side of tiles, and all that it needs: a member of the simulation.
class surrogate {
 public:
  surrogate(MPI_Comm grid, index_t tiles_of_block)
      : world_{grid},
        window_{{.capacity = 20 * tiles_of_block, .input = {1, 2, tile + 2, tile + 2}, .target = {1, 2, tile, tile}}},
        loader_{device_, window_, world_, {.global_batch_size = 32, .steps_per_epoch = 100, .seed = 1}},
        net_{device_, {.channels = 2, .height = tile + 2, .width = tile + 2}} {
    nn::value x = net_.add("stencil", nn::conv2d{.out_channels = 32, .kernel = {3, 3}}, net_.input());
    x = net_.add("tanh", nn::tanh{}, x);
    x = net_.add("products", nn::conv2d{.out_channels = 32, .kernel = {1, 1}}, x);
    x = net_.add("tanh2", nn::tanh{}, x);
    net_.loss(nn::mean_squared_error{}, net_.add("sum", nn::conv2d{.out_channels = 2, .kernel = {1, 1}}, x));
    net_.compile({.max_batch_size = 32, .seed = 2});
    trainer_.emplace(net_, gradus::optim::adam{}, world_);
    input_.emplace(device_, gradus::image_extents{tiles_of_block, 2, tile + 2, tile + 2});
  }

  /// Remembers the right-hand side of a block, tile by tile, from the memory of the solver.
  void learn_from(const block& field, std::vector<float>& right_hand_side) {
    for (float& each : right_hand_side) {
      each /= static_cast<float>(scale);
    }
    const index_t columns = field.columns();
    for (int y = 0; y < field.rows(); y += tile) {
      window_.push(
          data::example_array<float>{.data = field.address(y - 1, -1),
                                     .shape = {columns / tile, 2, tile + 2, tile + 2},
                                     .strides = {tile, static_cast<index_t>(field.plane()), field.stride(), 1}},
          data::example_array<float>{.data = right_hand_side.data() + y * columns,
                                     .shape = {columns / tile, 2, tile, tile},
                                     .strides = {tile, field.rows() * columns, columns, 1}});
    }
  }

  /// @param epochs  of 100 steps, in which the learning rate falls
  void start(double epochs) {
    trainer_->start(loader_,
                    {.learning_rate = gradus::optim::cosine{.initial = 0.01, .epochs = epochs, .final = 2e-4}});
  }
  [[nodiscard]] gradus::train::trainer<nn::network<float>>& trainer() { return *trainer_; }

  /// The right-hand side of a block by the newest weights.
  void right_hand_side(const block& field, std::vector<float>& result) {
    result.resize(static_cast<std::size_t>(2 * field.rows() * field.columns()));
    constexpr int wide = tile + 2;
    float* to = input_->data();
    for (int y = 0; y < field.rows(); y += tile) {
      for (int x = 0; x < field.columns(); x += tile) {
        for (int i = 0; i < 2 * wide * wide; ++i) {
          *to++ = field.at(i / (wide * wide), y - 1 + i / wide % wide, x - 1 + i % wide);
        }
      }
    }
    const auto predicted = net_.forward(input_->view());
    const float* from = predicted.data();
    for (int y = 0; y < field.rows(); y += tile) {
      for (int x = 0; x < field.columns(); x += tile) {
        for (int i = 0; i < 2 * tile * tile; ++i) {
          const int row = i / (tile * tile) * field.rows() + y + i / tile % tile;
          result[static_cast<std::size_t>(row * field.columns() + x + i % tile)] = static_cast<float>(scale) * *from++;
        }
      }
    }
  }

 private:
  gradus::cpu device_{{.intra_op_threads = 1}};
  gradus::comm::mpi world_;
  data::sliding_window<float> window_;
  data::window_loader<float, gradus::nchw> loader_;
  nn::network<float> net_;
  std::optional<gradus::train::trainer<nn::network<float>>> trainer_;
  std::optional<gradus::image_tensor<float, gradus::nchw>> input_;
};

struct options {
  std::string picture;
  int milliseconds = 10;
  int steps = 0;
  int time_steps = 300;
};

options options_of(int count, char** arguments) {
  options chosen;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    int* const number = word == "--milliseconds" ? &chosen.milliseconds
                        : word == "--steps"      ? &chosen.steps
                        : word == "--time-steps" ? &chosen.time_steps
                                                 : nullptr;
    if (number == nullptr) {
      chosen.picture = word;
    } else if (i + 1 < count) {
      *number = std::atoi(arguments[++i]);
    }
  }
  return chosen;
}

/// Relative error of the speeds, in the norm of squares.
double error_of(const std::vector<float>& predicted, const std::vector<float>& truth) {
  double error = 0;
  double all = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    error += std::pow(static_cast<double>(predicted[i] - truth[i]), 2);
    all += std::pow(static_cast<double>(truth[i]), 2);
  }
  return std::sqrt(error / all);
}

int simulate(const options& chosen) {
  int size = 1;
  int rank = 0;
  int extents[2] = {0, 0};
  const int periodic[2] = {1, 1};
  MPI_Comm grid = MPI_COMM_NULL;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, extents);
  MPI_Cart_create(MPI_COMM_WORLD, 2, extents, periodic, 1, &grid);
  MPI_Comm_rank(grid, &rank);
  block field{grid};
  std::vector<float> change;
  surrogate network{grid, field.rows() / tile * (field.columns() / tile)};

  double solving = 0;
  double learning = 0;
  double loss = 0;
  const int learned_steps = chosen.steps > 0 ? chosen.steps : chosen.milliseconds * 2;  // about, for the learning rate
  for (int step = 0; step < chosen.time_steps; ++step) {
    const double begin = now();
    field.exchange();
    field.right_hand_side(change);
    std::vector<float> targets = change;
    const double solved = now();
    network.learn_from(field, targets);
    if (step == 0) {
      network.start(chosen.time_steps * learned_steps / 100.0);
    }
    const auto report = chosen.steps > 0 ? network.trainer().train_steps(chosen.steps)
                                         : network.trainer().train_for(std::chrono::milliseconds{chosen.milliseconds});
    loss = report.local_loss;
    const double learned = now();
    field.advance(change);
    solving += solved - begin + now() - learned;
    learning += learned - solved;
    if (rank == 0 && (step + 1) % std::max(1, chosen.time_steps / 5) == 0) {
      std::printf("time step %4d: %6llu steps of training, loss %.2e\n", step + 1,
                  static_cast<unsigned long long>(network.trainer().steps()), loss);
    }
  }
  network.trainer().finish();

  // The network in place of every second right-hand side, and the simulation without it.
  block truth = field;
  const std::vector<float> first = field.speeds();
  double predicting = 0;
  const int coupled = std::max(2, chosen.time_steps / 3);
  for (int step = 0; step < coupled; ++step) {
    truth.exchange();
    truth.right_hand_side(change);
    truth.advance(change);
    field.exchange();
    const double begin = now();
    if (step % 2 == 0) {
      network.right_hand_side(field, change);
      predicting += now() - begin;
    } else {
      field.right_hand_side(change);
    }
    field.advance(change);
  }
  const std::vector<float> predicted = field.speeds();
  const std::vector<float> simulated = truth.speeds();
  int failed = 0;
  if (rank == 0) {
    const double error = error_of(predicted, simulated);
    const double changed = error_of(first, simulated);
    std::printf("per time step: solver %.3f ms, training %.3f ms, right-hand side by the network %.3f ms\n",
                1e3 * solving / chosen.time_steps, 1e3 * learning / chosen.time_steps,
                1e3 * predicting / ((coupled + 1) / 2));
    std::printf(
        "after %d more time steps, half of them by the network: relative error %.4f; the field has changed by %.4f\n",
        coupled, error, changed);
    failed = error < 0.35 * changed ? 0 : 1;  // a network that returns 0 has half of it
    if (!chosen.picture.empty()) {
      const float most = *std::max_element(first.begin(), first.end());
      const auto shown = [most](std::vector<float> values, float by) {
        for (float& each : values) {
          each *= by / most;
        }
        return values;
      };
      std::vector<float> difference(simulated.size());
      for (std::size_t i = 0; i < difference.size(); ++i) {
        difference[i] = std::fabs(predicted[i] - simulated[i]);
      }
      write_pictures(chosen.picture, {{{"speed, simulation", side, side, shown(simulated, 1)},
                                       {"speed, with the network", side, side, shown(predicted, 1)},
                                       {"error, times 20", side, side, shown(difference, 20)}}});
      std::printf("picture: %s\n", chosen.picture.c_str());
    }
    failed = gradus::close_output("in_situ", failed);
  }
  MPI_Bcast(&failed, 1, MPI_INT, 0, grid);
  MPI_Comm_free(&grid);
  return failed;
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int result = 1;
  try {
    result = simulate(options_of(count, arguments));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "in_situ: %s\n", gradus::printable(failure.what()).c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return result;
}
