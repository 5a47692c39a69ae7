/* SPDX-License-Identifier: BSL-1.0
 *
 * Training on the ranks of an MPI communicator: every update is that of one process that has the samples of all. */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>

#include "case.h"
#include "check.h"

static float inputs[SAMPLES][CHANNELS][ROWS][COLUMNS];
static float targets[SAMPLES][ROWS][COLUMNS];
static int rank = 0;
static int ranks = 1;

static gradus_trainer* make(gradus_network** net, gradus_comm* comm) {
  gradus_value x = 0;
  gradus_trainer* trainer = NULL;
  OK(gradus_network_create(NULL, GRADUS_FLOAT, net));
  OK(gradus_network_input(*net, "state", CHANNELS, ROWS, COLUMNS, &x));
  OK(gradus_network_conv2d(*net, "conv", x,
                           &(gradus_conv2d_options){.out_channels = 1, .kernel = {3}, .padding = GRADUS_PAD_SAME}, &x));
  OK(gradus_network_output(*net, "rate", x));
  OK(gradus_network_loss(*net, "rate", GRADUS_MEAN_SQUARED_ERROR, 0));
  OK(gradus_network_compile(*net, &(gradus_compile_options){.max_batch_size = SAMPLES, .seed = 1}));
  OK(gradus_trainer_create(*net, &(gradus_trainer_options){.learning_rate = 0.1, .global_batch_size = BATCH}, comm,
                           &trainer));
  return trainer;
}

/* The samples [first, first + count). */
static void set(gradus_data* data, int first, int count) {
  const int64_t shape[] = {count, CHANNELS, ROWS, COLUMNS};
  const int64_t shape_of_targets[] = {count, ROWS, COLUMNS};
  OK(gradus_data_set(data, "state",
                     &(gradus_array){.data = inputs[first], .element = GRADUS_FLOAT, .rank = 4, .shape = shape}));
  OK(gradus_data_set(
      data, "rate",
      &(gradus_array){.data = targets[first], .element = GRADUS_FLOAT, .rank = 3, .shape = shape_of_targets}));
}

/* The largest difference of the weights, relative to the largest weight. */
static double difference(gradus_network* a, gradus_network* b) {
  float left[CHANNELS * 9];
  float right[CHANNELS * 9];
  OK(gradus_network_get_parameter(a, "conv.weight", left, CHANNELS * 9));
  OK(gradus_network_get_parameter(b, "conv.weight", right, CHANNELS * 9));
  double largest = 0;
  double size = 0;
  for (int i = 0; i < CHANNELS * 9; ++i) {
    largest = fmax(largest, fabs(left[i] - right[i]));
    size = fmax(size, fabs(left[i]));
  }
  return largest / size;
}

static int stop_on_last_rank(const gradus_step_report* report, void* context) {
  (void)context;
  return rank == ranks - 1 && report->step % 4 == 1;
}

int main(int count, char** arguments) {
  int provided = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 3) {
    printf("ranks: expected 3 ranks, got %d\n", ranks);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int n = 0; n < SAMPLES; ++n) {
    for (int h = 0; h < ROWS; ++h) {
      for (int w = 0; w < COLUMNS; ++w) {
        inputs[n][0][h][w] = (float)input_at(n, 0, h, w);
        inputs[n][1][h][w] = (float)input_at(n, 1, h, w);
        targets[n][h][w] = (float)target_at(n, h, w);
      }
    }
  }
  gradus_comm* comm = NULL;
  gradus_comm* self = NULL;
  REFUSED(GRADUS_INVALID_ARGUMENT, "MPI_COMM_NULL", gradus_comm_create_mpi(MPI_COMM_NULL, &comm));
  OK(gradus_comm_create_mpi(MPI_COMM_WORLD, &comm));
  OK(gradus_comm_create_self(&self));
  int32_t number = -1;
  OK(gradus_comm_rank(comm, &number));
  CHECK(number == rank);
  OK(gradus_comm_size(comm, &number));
  CHECK(number == ranks);
  OK(gradus_comm_set_time_limit(comm, 60000));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_comm_set_time_limit(comm, 0));

  gradus_network* together = NULL;
  gradus_network* alone = NULL;
  gradus_trainer* of_all = make(&together, comm);
  gradus_trainer* of_one = make(&alone, self);
  gradus_data* own = NULL;
  gradus_data* all = NULL;
  gradus_report report = {0};
  OK(gradus_data_create(&own));
  OK(gradus_data_create(&all));
  set(all, 0, SAMPLES);

  /* Batches of data that all ranks have. */
  OK(gradus_trainer_train_steps(of_all, all, 7, &report));
  CHECK(report.steps == 7 && report.examples == 7 * BATCH);
  const double loss = report.loss;
  OK(gradus_trainer_train_steps(of_one, all, 7, &report));
  CHECK(difference(together, alone) < 1e-5 && fabs(report.loss - loss) < 1e-5 * loss);
  OK(gradus_trainer_evaluate(of_all, all, &report));
  CHECK(report.examples == SAMPLES);

  /* Samples of each rank's own, 15, 0 and 9 of them. */
  const int firsts[] = {0, 15, 15, SAMPLES};
  set(own, rank == 1 ? 0 : firsts[rank], firsts[rank + 1] - firsts[rank]);
  for (int i = 0; i < 5; ++i) {
    OK(gradus_trainer_step(of_all, own, &report));
    CHECK(report.examples == SAMPLES);
    OK(gradus_trainer_step(of_one, all, NULL));
  }
  CHECK(difference(together, alone) < 1e-5);

  /* A mistake of one rank is an error on all, and training goes on. */
  if (rank == 2) {
    REFUSED(GRADUS_INVALID_HANDLE, "data, got null", gradus_trainer_step(of_all, NULL, &report));
  } else {
    REFUSED(GRADUS_CONFIGURATION_ERROR, "1 other ranks", gradus_trainer_step(of_all, own, &report));
  }
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_trainer_train_steps(of_all, all, rank + 1, &report));

  /* Ranks in different functions get an error that names both, and training goes on. */
  if (rank == 1) {
    REFUSED(GRADUS_CONFIGURATION_ERROR, "gradus_trainer_step on rank 0, gradus_trainer_train_steps on this rank",
            gradus_trainer_train_steps(of_all, all, 1, &report));
  } else {
    REFUSED(GRADUS_CONFIGURATION_ERROR, "gradus_trainer_train_steps on rank 1, gradus_trainer_step on this rank",
            gradus_trainer_step(of_all, own, &report));
  }
  if (rank == 1) {
    REFUSED(GRADUS_CONFIGURATION_ERROR, "gradus_trainer_train_for on rank 0, gradus_trainer_evaluate on this rank",
            gradus_trainer_evaluate(of_all, all, &report));
  } else {
    REFUSED(GRADUS_CONFIGURATION_ERROR, "gradus_trainer_evaluate on rank 1, gradus_trainer_train_for on this rank",
            gradus_trainer_train_for(of_all, all, 1, &report));
  }
  OK(gradus_trainer_step(of_all, own, &report));

  /* The time of one rank and the callback of one rank end the call on all, after the same step. */
  uint64_t steps[2] = {0, 0};
  OK(gradus_trainer_train_for(of_all, all, rank == 0 ? 30 : 60000, &report));
  CHECK(report.seconds < 30); /* a busy machine may have no time for a step */
  OK(gradus_trainer_steps(of_all, &steps[0]));
  steps[1] = steps[0];
  MPI_Bcast(&steps[1], 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  CHECK(steps[0] == steps[1]);
  OK(gradus_trainer_set_step_callback(of_all, stop_on_last_rank, NULL));
  OK(gradus_trainer_train_steps(of_all, all, 100, &report));
  CHECK(report.steps >= 1 && report.steps <= 4);
  CHECK((steps[0] + (uint64_t)report.steps) % 4 == 2);

  /* Two ranks without the third, over a communicator that the program frees; MPI_Finalize ends what is not freed. */
  MPI_Comm pair = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &pair);
  if (pair != MPI_COMM_NULL) {
    gradus_comm* two = NULL;
    OK(gradus_comm_create_mpi(pair, &two));
    MPI_Comm_free(&pair);
    OK(gradus_comm_size(two, &number));
    CHECK(number == 2);
    gradus_network* of_pair = NULL;
    gradus_trainer* trained = make(&of_pair, two);
    OK(gradus_trainer_train_steps(trained, all, 2, &report));
    CHECK(report.steps == 2);
  }

  OK(gradus_trainer_free(of_all));
  OK(gradus_trainer_free(of_one));
  OK(gradus_network_free(together));
  OK(gradus_network_free(alone));
  OK(gradus_data_free(own));
  OK(gradus_data_free(all));
  OK(gradus_comm_free(comm));
  OK(gradus_comm_free(self));
  CHECK(gradus_open_handles() == (rank < 2 ? 3 : 0));
  int sum = 0;
  MPI_Allreduce(&failed_checks, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) {
    printf("%d failed checks\n", sum);
  }
  return sum == 0 ? 0 : 1;
}
