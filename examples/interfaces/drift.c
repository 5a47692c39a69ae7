/* SPDX-License-Identifier: BSL-1.0
 *
 * A simulation that trains a network while it runs: heat that spreads and drifts on a periodic square. In each time
 * step the network learns from the last states what the solver computes, the rate of change. drift.f90 is the same
 * program in Fortran. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradus_c.h>

enum { NX = 32, NY = 24, WINDOW = 16, STEPS = 400 };

static void require(gradus_status status) {
  if (status != GRADUS_OK) {
    fprintf(stderr, "%s\n", gradus_last_error());
    exit(1);
  }
}

static float flux(float t, float next) {
  return (2 + t / 2 + next / 2) / 2 * (next - t);
}

/* The rate of change: div((1 + t / 2) grad t) / 20 - (dt/dx) / 2. */
static void solver(float t[NY][NX], float change[NY][NX]) {
  for (int j = 0; j < NY; ++j) {
    for (int i = 0; i < NX; ++i) {
      const int left = (i + NX - 1) % NX;
      const int below = (j + NY - 1) % NY;
      const int right = (i + 1) % NX;
      change[j][i] = (flux(t[j][i], t[j][right]) - flux(t[j][left], t[j][i]) + flux(t[j][i], t[(j + 1) % NY][i]) -
                      flux(t[below][i], t[j][i])) /
                         20 -
                     (t[j][right] - t[j][left]) / 4;
    }
  }
}

int main(void) {
  static float u[NY][NX], rate[NY][NX], guess[NY][NX];
  static float states[WINDOW][NY][NX], rates[WINDOW][NY][NX]; /* (samples, rows, columns): images of one channel */
  const int64_t shape[] = {WINDOW, NY, NX};
  const int64_t shape_of_one[] = {NY, NX};
  gradus_network* net = NULL;
  gradus_data* data = NULL;
  gradus_trainer* trainer = NULL;
  gradus_report report = {0};
  gradus_value x = 0;

  require(gradus_network_create(NULL, GRADUS_FLOAT, &net));
  require(gradus_network_input(net, "u", 1, NY, NX, &x));
  gradus_conv2d_options conv = {
      .out_channels = 16, .kernel = {3, 3}, .padding = GRADUS_PAD_SAME, .padding_mode = GRADUS_CIRCULAR};
  require(gradus_network_conv2d(net, NULL, x, &conv, &x));
  require(gradus_network_activation(net, NULL, x, GRADUS_TANH, 0, &x));
  conv.out_channels = 1;
  require(gradus_network_conv2d(net, NULL, x, &conv, &x));
  require(gradus_network_output(net, "rate", x));
  require(gradus_network_loss(net, "rate", GRADUS_MEAN_SQUARED_ERROR, 0));
  require(gradus_network_compile(net, &(gradus_compile_options){.max_batch_size = 8, .seed = 1}));
  require(gradus_trainer_create(
      net, &(gradus_trainer_options){.optimizer = GRADUS_ADAM, .learning_rate = 0.005, .global_batch_size = 8}, NULL,
      &trainer));
  require(gradus_data_create(&data));
  require(
      gradus_data_set(data, "u", &(gradus_array){.data = states, .element = GRADUS_FLOAT, .rank = 3, .shape = shape}));
  require(gradus_data_set(data, "rate",
                          &(gradus_array){.data = rates, .element = GRADUS_FLOAT, .rank = 3, .shape = shape}));

  for (int j = 0; j < NY; ++j) {
    for (int i = 0; i < NX; ++i) {
      const double a = (i + 1.0) / NX;
      const double b = (j + 1.0) / NY;
      u[j][i] = (float)(sin(6.2831853 * a) * cos(12.566371 * b) + 0.5 * sin(25.132741 * (a + b)));
    }
  }
  double error = 1;
  for (int step = 1; step <= STEPS; ++step) {
    solver(u, rate);
    memcpy(states[(step - 1) % WINDOW], u, sizeof(u));
    memcpy(rates[(step - 1) % WINDOW], rate, sizeof(rate));
    if (step >= WINDOW) {
      require(gradus_trainer_train_steps(trainer, data, 4,
                                         &report)); /* or gradus_trainer_train_for(trainer, data, 5, ...) */
    }
    for (int k = 0; k < NX * NY; ++k) {
      (&u[0][0])[k] += 0.1F * (&rate[0][0])[k];
    }
    if (step % 100 == 0) {
      const gradus_array from = {.data = u, .element = GRADUS_FLOAT, .rank = 2, .shape = shape_of_one};
      const gradus_array to = {.data = guess, .element = GRADUS_FLOAT, .rank = 2, .shape = shape_of_one};
      require(gradus_network_predict(net, "u", &from, "rate", &to));
      solver(u, rate);
      double difference = 0;
      double size = 0;
      for (int k = 0; k < NX * NY; ++k) {
        difference += ((&guess[0][0])[k] - (&rate[0][0])[k]) * ((&guess[0][0])[k] - (&rate[0][0])[k]);
        size += (&rate[0][0])[k] * (&rate[0][0])[k];
      }
      error = sqrt(difference / size);
      printf("time step %d: loss %9.2e, error of the prediction %.3f\n", step, report.loss, error);
    }
  }
  uint64_t updates = 0;
  require(gradus_trainer_steps(trainer, &updates));
  printf("%llu updates in %d time steps\n", (unsigned long long)updates, STEPS);
  require(gradus_trainer_free(trainer));
  require(gradus_data_free(data));
  require(gradus_network_free(net));
  if (!(error < 0.3)) {
    fprintf(stderr, "the network has not learned\n");
    return 1;
  }
  return fflush(stdout) == 0 ? 0 : 1;
}
