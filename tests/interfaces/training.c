/* SPDX-License-Identifier: BSL-1.0
 *
 * Networks that a C program builds, trains, saves and uses. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "case.h"
#include "check.h"

static float inputs[SAMPLES][CHANNELS][ROWS][COLUMNS];
static float targets[SAMPLES][ROWS][COLUMNS];

static void fill(void) {
  for (int n = 0; n < SAMPLES; ++n) {
    for (int h = 0; h < ROWS; ++h) {
      for (int w = 0; w < COLUMNS; ++w) {
        for (int c = 0; c < CHANNELS; ++c) {
          inputs[n][c][h][w] = (float)input_at(n, c, h, w);
        }
        targets[n][h][w] = (float)target_at(n, h, w);
      }
    }
  }
}

static gradus_network* make_network(int element, int inference) {
  gradus_network* net = NULL;
  gradus_value x = 0;
  OK(gradus_network_create(NULL, element, &net));
  OK(gradus_network_input(net, "state", CHANNELS, ROWS, COLUMNS, &x));
  OK(gradus_network_conv2d(
      net, "conv1", x,
      &(gradus_conv2d_options){
          .out_channels = 4, .kernel = {3}, .padding = GRADUS_PAD_SAME, .padding_mode = GRADUS_CIRCULAR},
      &x));
  OK(gradus_network_activation(net, "tanh1", x, GRADUS_TANH, 0, &x));
  OK(gradus_network_dropout(net, "dropout1", x, 0.1, &x));
  OK(gradus_network_conv2d(net, "conv2", x, &(gradus_conv2d_options){.out_channels = 1, .kernel = {1}}, &x));
  OK(gradus_network_output(net, "rate", x));
  OK(gradus_network_loss(net, "rate", GRADUS_MEAN_SQUARED_ERROR, 0));
  OK(gradus_network_compile(net,
                            &(gradus_compile_options){.max_batch_size = BATCH, .seed = 3, .inference = inference}));
  return net;
}

static gradus_data* make_data(void) {
  static const int64_t input_shape[] = {SAMPLES, CHANNELS, ROWS, COLUMNS};
  static const int64_t target_shape[] = {SAMPLES, ROWS, COLUMNS};
  gradus_data* data = NULL;
  OK(gradus_data_create(&data));
  OK(gradus_data_set(data, "state",
                     &(gradus_array){.data = inputs, .element = GRADUS_FLOAT, .rank = 4, .shape = input_shape}));
  OK(gradus_data_set(data, "rate",
                     &(gradus_array){.data = targets, .element = GRADUS_FLOAT, .rank = 3, .shape = target_shape}));
  return data;
}

static gradus_trainer* make_trainer(gradus_network* net) {
  gradus_trainer* trainer = NULL;
  OK(gradus_trainer_create(
      net, &(gradus_trainer_options){.learning_rate = 0.1, .momentum = 0.9, .global_batch_size = BATCH, .seed = 5},
      NULL, &trainer));
  return trainer;
}

/* The weights of two networks are the same bits. */
static int same_weights(gradus_network* a, gradus_network* b) {
  int64_t count = 0;
  int64_t elements = 0;
  OK(gradus_network_parameter_count(a, &count, &elements));
  CHECK(count == 4);
  for (int64_t i = 0; i < count; ++i) {
    const char* name = NULL;
    float left[512];
    float right[512];
    OK(gradus_network_parameter(a, i, &name, &elements));
    OK(gradus_network_get_parameter(a, name, left, elements));
    OK(gradus_network_get_parameter(b, name, right, elements));
    if (memcmp(left, right, (size_t)elements * sizeof(float)) != 0) {
      return 0;
    }
  }
  return 1;
}

static int calls = 0;
static int stop_at(const gradus_step_report* report, void* context) {
  ++calls;
  CHECK(report->global_examples == BATCH && report->local_examples == BATCH);
  CHECK(report->learning_rate > 0 && isfinite(report->local_loss));
  return report->step + 1 == *(const uint64_t*)context;
}
static double halve(uint64_t step, void* context) {
  return *(const double*)context / (1 + (double)step);
}

static void test_training(void) {
  gradus_network* net = make_network(GRADUS_FLOAT, 0);
  gradus_data* data = make_data();
  gradus_trainer* trainer = make_trainer(net);
  gradus_report before = {0};
  gradus_report report = {0};
  uint64_t steps = 0;
  OK(gradus_trainer_evaluate(trainer, data, &before));
  CHECK(before.examples == SAMPLES);
  OK(gradus_trainer_train_steps(trainer, data, 200, &report));
  CHECK(report.steps == 200 && report.examples == 200 * BATCH);
  gradus_report after = {0};
  OK(gradus_trainer_evaluate(trainer, data, &after));
  CHECK(after.loss < before.loss / 5);
  /* No budget: no step. A small one: at least one step, and an end. */
  OK(gradus_trainer_train_for(trainer, data, 0, &report));
  CHECK(report.steps == 0);
  OK(gradus_trainer_train_for(trainer, data, 300, &report));
  CHECK(report.steps >= 1 && report.seconds < 10);
  OK(gradus_trainer_train_epochs(trainer, data, 2, &report));
  CHECK(report.steps == 2 * SAMPLES / BATCH && report.examples == 2 * SAMPLES);
  OK(gradus_trainer_steps(trainer, &steps));
  uint64_t last = steps + 3;
  OK(gradus_trainer_set_step_callback(trainer, stop_at, &last));
  OK(gradus_trainer_train_steps(trainer, data, 100, &report));
  CHECK(report.steps == 3 && calls == 3);
  OK(gradus_trainer_set_step_callback(trainer, NULL, NULL));
  double first = 0.01;
  OK(gradus_trainer_set_schedule(trainer, halve, &first));
  OK(gradus_trainer_train_steps(trainer, data, 2, &report));
  OK(gradus_trainer_set_learning_rate(trainer, 0.01));
  /* A step on all samples at hand, which are fewer than the batches. */
  OK(gradus_data_set(
      data, "state",
      &(gradus_array){
          .data = inputs, .element = GRADUS_FLOAT, .rank = 4, .shape = (const int64_t[]){3, CHANNELS, ROWS, COLUMNS}}));
  REFUSED(GRADUS_SHAPE_ERROR, "as many samples of 'rate' as of the input, 3",
          gradus_trainer_step(trainer, data, &report));
  OK(gradus_data_set(
      data, "rate",
      &(gradus_array){
          .data = targets, .element = GRADUS_FLOAT, .rank = 3, .shape = (const int64_t[]){3, ROWS, COLUMNS}}));
  OK(gradus_trainer_step(trainer, data, &report));
  CHECK(report.steps == 1 && report.examples == 3);
  OK(gradus_network_free(net)); /* the trainer keeps it */
  OK(gradus_trainer_step(trainer, data, NULL));
  OK(gradus_data_free(data));
  OK(gradus_trainer_free(trainer));
}

/* An option of 0 has its default, and one of -0.0 is 0. */
static void test_zero_options(void) {
  gradus_data* data = make_data();
  const double rates[] = {0, -0.0, 0.01};
  gradus_network* nets[3];
  for (int k = 0; k < 3; ++k) {
    gradus_trainer* trainer = NULL;
    nets[k] = make_network(GRADUS_FLOAT, 0);
    const gradus_trainer_options options = {.learning_rate = rates[k], .global_batch_size = BATCH};
    OK(gradus_trainer_create(nets[k], &options, NULL, &trainer));
    OK(gradus_trainer_train_steps(trainer, data, 2, NULL));
    OK(gradus_trainer_free(trainer));
  }
  gradus_network* untrained = make_network(GRADUS_FLOAT, 0);
  CHECK(same_weights(nets[0], nets[2]));
  CHECK(same_weights(nets[1], untrained));
  CHECK(!same_weights(nets[0], untrained));
  gradus_trainer* trainer = NULL;
  const gradus_trainer_options without_epsilon = {.optimizer = GRADUS_ADAM, .beta1 = -0.0, .epsilon = -0.0};
  REFUSED(GRADUS_CONFIGURATION_ERROR, "epsilon", gradus_trainer_create(untrained, &without_epsilon, NULL, &trainer));
  for (int k = 0; k < 3; ++k) {
    OK(gradus_network_free(nets[k]));
  }
  OK(gradus_network_free(untrained));
  OK(gradus_data_free(data));
}

/* Calls of single steps, one call of all, and an interrupted training that goes on make the same weights. */
static void test_same_steps(const char* folder) {
  gradus_data* data = make_data();
  gradus_network* whole = make_network(GRADUS_FLOAT, 0);
  gradus_trainer* trainer = make_trainer(whole);
  OK(gradus_trainer_train_steps(trainer, data, STEPS, NULL));
  OK(gradus_trainer_free(trainer));

  gradus_network* single = make_network(GRADUS_FLOAT, 0);
  trainer = make_trainer(single);
  for (int i = 0; i < STEPS; ++i) {
    OK(gradus_trainer_train_steps(trainer, data, 1, NULL));
  }
  OK(gradus_trainer_free(trainer));
  CHECK(same_weights(whole, single));

  for (int interrupted = 0; interrupted < 2; ++interrupted) {
    gradus_network* net = make_network(GRADUS_FLOAT, 0);
    trainer = make_trainer(net);
    int32_t found = -1;
    OK(gradus_trainer_resume(trainer, folder, &found));
    CHECK(found == interrupted);
    OK(gradus_trainer_set_checkpoints(trainer, folder, &(gradus_checkpoint_options){.every = 2}));
    uint64_t done = 0;
    OK(gradus_trainer_steps(trainer, &done));
    CHECK(done == (interrupted ? 4 : 0)); /* 5 steps were made, in calls of 2 and 3; the last checkpoint is of step 4 */
    if (interrupted) {
      OK(gradus_trainer_train_steps(trainer, data, STEPS - 4, NULL));
      CHECK(same_weights(whole, net));
    } else {
      OK(gradus_trainer_train_steps(trainer, data, 2, NULL));
      OK(gradus_trainer_train_steps(trainer, data, 3, NULL));
      CHECK(!same_weights(whole, net));
    }
    OK(gradus_trainer_free(trainer));
    OK(gradus_network_free(net));
  }
  OK(gradus_network_free(whole));
  OK(gradus_network_free(single));
  OK(gradus_data_free(data));
}

/* As many samples as `count`, from the first one. */
static void set_count(gradus_data* data, int64_t count) {
  OK(gradus_data_set(data, "state",
                     &(gradus_array){.data = inputs,
                                     .element = GRADUS_FLOAT,
                                     .rank = 4,
                                     .shape = (const int64_t[]){count, CHANNELS, ROWS, COLUMNS}}));
  OK(gradus_data_set(
      data, "rate",
      &(gradus_array){
          .data = targets, .element = GRADUS_FLOAT, .rank = 3, .shape = (const int64_t[]){count, ROWS, COLUMNS}}));
}

/* A training whose calls and samples change goes on as without the interruption, also within a call; another batch size
 * is refused. */
static void test_changing_calls(const char* folder) {
  gradus_data* data = make_data();
  gradus_network* whole = make_network(GRADUS_FLOAT, 0);
  gradus_trainer* trainer = make_trainer(whole);
  OK(gradus_trainer_train_steps(trainer, data, 3, NULL));
  set_count(data, 5);
  OK(gradus_trainer_step(trainer, data, NULL));
  set_count(data, 16);
  OK(gradus_trainer_train_steps(trainer, data, 3, NULL));
  OK(gradus_trainer_free(trainer));

  char path[2][512];
  for (int k = 0; k < 2; ++k) {
    snprintf(path[k], sizeof(path[k]), "%s.%d", folder, k);
    set_count(data, SAMPLES);
    gradus_network* net = make_network(GRADUS_FLOAT, 0);
    trainer = make_trainer(net);
    OK(gradus_trainer_set_checkpoints(trainer, path[k], &(gradus_checkpoint_options){.every = k == 0 ? 4 : 3}));
    OK(gradus_trainer_train_steps(trainer, data, k == 0 ? 3 : 4, NULL));
    if (k == 0) {
      set_count(data, 5);
      OK(gradus_trainer_step(trainer, data, NULL));
    }
    OK(gradus_trainer_free(trainer));
    OK(gradus_network_free(net));

    net = make_network(GRADUS_FLOAT, 0);
    int32_t found = 0;
    OK(gradus_trainer_create(
        net,
        &(gradus_trainer_options){.learning_rate = 0.1, .momentum = 0.9, .global_batch_size = BATCH / 2, .seed = 5},
        NULL, &trainer));
    OK(gradus_trainer_resume(trainer, path[k], &found));
    REFUSED(GRADUS_CONFIGURATION_ERROR, "batches of 8, shuffled with seed 5, got",
            gradus_trainer_train_steps(trainer, data, 1, NULL));
    CHECK(strstr(gradus_last_error(), "train::") == NULL);
    OK(gradus_trainer_free(trainer));
    OK(gradus_network_free(net));

    net = make_network(GRADUS_FLOAT, 0);
    trainer = make_trainer(net);
    OK(gradus_trainer_resume(trainer, path[k], &found));
    CHECK(found == 1);
    if (k == 1) {
      set_count(data, 5);
      OK(gradus_trainer_step(trainer, data, NULL));
    }
    set_count(data, 16);
    OK(gradus_trainer_train_steps(trainer, data, 3, NULL));
    CHECK(same_weights(whole, net));
    OK(gradus_trainer_free(trainer));
    OK(gradus_network_free(net));
  }
  OK(gradus_network_free(whole));
  OK(gradus_data_free(data));
}

/* The same samples in other orders, with gaps and in double make the same weights. */
static void test_orders(void) {
  static double columns_first[SAMPLES][CHANNELS][ROWS][COLUMNS]; /* the memory of a Fortran array (w, h, c, n) */
  static float with_gaps[ROWS][SAMPLES][2 * COLUMNS][CHANNELS];
  gradus_data* data = make_data();
  gradus_network* plain = make_network(GRADUS_FLOAT, 0);
  gradus_trainer* trainer = make_trainer(plain);
  OK(gradus_trainer_train_steps(trainer, data, STEPS, NULL));
  OK(gradus_trainer_free(trainer));
  for (int n = 0; n < SAMPLES; ++n) {
    for (int c = 0; c < CHANNELS; ++c) {
      for (int h = 0; h < ROWS; ++h) {
        for (int w = 0; w < COLUMNS; ++w) {
          columns_first[n][c][h][w] = inputs[n][c][h][w];
          with_gaps[h][n][2 * w][c] = inputs[n][c][h][w];
        }
      }
    }
  }
  const gradus_array arrays[] = {
      {.data = columns_first,
       .element = GRADUS_DOUBLE,
       .order = GRADUS_FORTRAN_ORDER,
       .rank = 4,
       .shape = (const int64_t[]){COLUMNS, ROWS, CHANNELS, SAMPLES}},
      {.data = columns_first,
       .element = GRADUS_DOUBLE,
       .order = GRADUS_FORTRAN_ORDER,
       .rank = 5,
       .shape = (const int64_t[]){COLUMNS, ROWS, CHANNELS, 4, SAMPLES / 4}},
      {.data = columns_first,
       .element = GRADUS_DOUBLE,
       .rank = 2,
       .shape = (const int64_t[]){SAMPLES, CHANNELS * ROWS * COLUMNS}},
      {.data = with_gaps,
       .element = GRADUS_FLOAT,
       .rank = 4,
       .shape = (const int64_t[]){SAMPLES, CHANNELS, ROWS, COLUMNS},
       .strides = (const int64_t[]){2 * COLUMNS * CHANNELS, 1, SAMPLES * 2 * COLUMNS * CHANNELS, 2 * CHANNELS}},
  };
  for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i) {
    gradus_network* net = make_network(GRADUS_FLOAT, 0);
    trainer = make_trainer(net);
    OK(gradus_data_set(data, "state", &arrays[i]));
    OK(gradus_trainer_train_steps(trainer, data, STEPS, NULL));
    CHECK(same_weights(plain, net));
    OK(gradus_trainer_free(trainer));
    OK(gradus_network_free(net));
  }
  OK(gradus_network_free(plain));
  OK(gradus_data_free(data));
}

/* A training of its own on a thread; other threads train other networks, and ask for one that is in use. */
static void* train_alone(void* made) {
  gradus_network** net = (gradus_network**)made;
  gradus_data* data = make_data();
  *net = make_network(GRADUS_FLOAT, 0);
  gradus_trainer* trainer = make_trainer(*net);
  OK(gradus_trainer_train_steps(trainer, data, 200, NULL));
  OK(gradus_trainer_free(trainer));
  OK(gradus_data_free(data));
  REFUSED(GRADUS_INVALID_HANDLE, "freed", gradus_network_free((gradus_network*)data));
  return NULL;
}

static gradus_network* shared = NULL;
static void* predict_often(void* busy) {
  float outputs[ROWS][COLUMNS];
  const gradus_array from = {
      .data = inputs, .element = GRADUS_FLOAT, .rank = 3, .shape = (const int64_t[]){CHANNELS, ROWS, COLUMNS}};
  const gradus_array to = {
      .data = outputs, .element = GRADUS_FLOAT, .rank = 2, .shape = (const int64_t[]){ROWS, COLUMNS}};
  for (int i = 0; i < 2000; ++i) {
    const gradus_status status = gradus_network_predict(shared, "state", &from, "rate", &to);
    CHECK(status == GRADUS_OK || status == GRADUS_BUSY);
    *(int*)busy += status == GRADUS_BUSY;
  }
  return NULL;
}

static void test_threads(void) {
  gradus_network* nets[3] = {NULL, NULL, NULL};
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) {
    CHECK(pthread_create(&threads[i], NULL, train_alone, &nets[i]) == 0);
  }
  for (int i = 0; i < 3; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  CHECK(same_weights(nets[0], nets[1]) && same_weights(nets[0], nets[2]));
  shared = nets[0];
  int busy[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    CHECK(pthread_create(&threads[i], NULL, predict_often, &busy[i]) == 0);
  }
  for (int i = 0; i < 3; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  printf("%d of 6000 predictions found the network in use\n", busy[0] + busy[1] + busy[2]);
  for (int i = 0; i < 3; ++i) {
    OK(gradus_network_free(nets[i]));
  }
}

/* Predictions in C and Fortran order; files of weights; a network for inference. */
static void test_predictions(const char* weights) {
  gradus_network* net = make_network(GRADUS_FLOAT, 0);
  gradus_network* other = make_network(GRADUS_FLOAT, 1);
  gradus_data* data = make_data();
  gradus_trainer* trainer = make_trainer(net);
  OK(gradus_trainer_train_steps(trainer, data, STEPS, NULL));
  OK(gradus_trainer_save_weights(trainer, weights));
  OK(gradus_network_load_weights(other, weights, 1));
  static float rows_last[SAMPLES][ROWS][COLUMNS];
  static double samples_first[COLUMNS][ROWS][SAMPLES];
  const gradus_array from = {
      .data = inputs, .element = GRADUS_FLOAT, .rank = 4, .shape = (const int64_t[]){SAMPLES, CHANNELS, ROWS, COLUMNS}};
  const gradus_array to = {
      .data = rows_last, .element = GRADUS_FLOAT, .rank = 3, .shape = (const int64_t[]){SAMPLES, ROWS, COLUMNS}};
  const gradus_array transposed = {.data = samples_first,
                                   .element = GRADUS_DOUBLE,
                                   .order = GRADUS_FORTRAN_ORDER,
                                   .rank = 3,
                                   .shape = (const int64_t[]){COLUMNS, ROWS, SAMPLES},
                                   .strides = (const int64_t[]){ROWS * SAMPLES, SAMPLES, 1}};
  OK(gradus_network_predict(net, "state", &from, "rate", &to));
  OK(gradus_network_predict(other, "state", &from, "rate", &transposed));
  double largest = 0;
  double size = 0;
  for (int n = 0; n < SAMPLES; ++n) {
    for (int h = 0; h < ROWS; ++h) {
      for (int w = 0; w < COLUMNS; ++w) {
        const double difference = fabs(rows_last[n][h][w] - samples_first[w][h][n]);
        largest = difference > largest ? difference : largest;
        size += fabs(rows_last[n][h][w]);
      }
    }
  }
  CHECK(largest < 1e-5 && size > 1);
  OK(gradus_trainer_free(trainer));
  OK(gradus_data_free(data));
  OK(gradus_network_free(net));
  OK(gradus_network_free(other));
}

/* A network as an ONNX file. */
static void test_onnx(const char* weights) {
  char path[4096];
  snprintf(path, sizeof(path), "%s.onnx", weights);
  gradus_network* net = make_network(GRADUS_FLOAT, 0);
  gradus_network* read = NULL;
  OK(gradus_network_create(NULL, GRADUS_FLOAT, &read));
  if (!gradus_has_feature("onnx")) {
    REFUSED(GRADUS_NOT_BUILT, "GRADUS_C_ONNX", gradus_network_write_onnx(net, path));
    REFUSED(GRADUS_NOT_BUILT, "GRADUS_C_ONNX", gradus_network_read_onnx(read, path, "x", "y", 0, 0));
  } else {
    static float expected[SAMPLES][ROWS][COLUMNS];
    static float outputs[SAMPLES][ROWS][COLUMNS];
    const gradus_array from = {.data = inputs,
                               .element = GRADUS_FLOAT,
                               .rank = 4,
                               .shape = (const int64_t[]){SAMPLES, CHANNELS, ROWS, COLUMNS}};
    gradus_array to = {
        .data = expected, .element = GRADUS_FLOAT, .rank = 3, .shape = (const int64_t[]){SAMPLES, ROWS, COLUMNS}};
    OK(gradus_network_write_onnx(net, path));
    REFUSED(GRADUS_FORMAT_ERROR, "", gradus_network_read_onnx(read, "/nowhere.onnx", "x", "y", 0, 0));
    OK(gradus_network_read_onnx(read, path, "x", "y", 0, 0));
    OK(gradus_network_compile(read, &(gradus_compile_options){.max_batch_size = 7, .inference = 1}));
    OK(gradus_network_predict(net, "state", &from, "rate", &to));
    to.data = outputs;
    OK(gradus_network_predict(read, "x", &from, "y", &to));
    double largest = 0;
    for (int k = 0; k < SAMPLES * ROWS * COLUMNS; ++k) {
      largest = fmax(largest, fabs((&expected[0][0][0])[k] - (&outputs[0][0][0])[k]));
    }
    CHECK(largest < 1e-5 && fabs(expected[1][2][3]) > 0);
  }
  OK(gradus_network_free(net));
  OK(gradus_network_free(read));
}

/* Classes, a network of most layers, double, and Adam. */
static void test_layers(void) {
  gradus_network* net = NULL;
  gradus_value input = 0;
  gradus_value x = 0;
  gradus_value y = 0;
  const double mean[] = {0.1, 0.2};
  const double deviation[] = {1.5, 2};
  OK(gradus_network_create(NULL, gradus_has_feature("double") ? GRADUS_DOUBLE : GRADUS_FLOAT, &net));
  OK(gradus_network_input(net, "image", 2, 8, 8, &input));
  OK(gradus_network_normalize(net, NULL, input, mean, deviation, 2, &x));
  OK(gradus_network_conv2d(
      net, NULL, x,
      &(gradus_conv2d_options){
          .out_channels = 8, .kernel = {3, 3}, .dilation = {2}, .padding = GRADUS_PAD_EXPLICIT, .pad = {2, 2, 2, 2}},
      &x));
  OK(gradus_network_norm(net, NULL, x, &(gradus_norm_options){.kind = GRADUS_BATCH_NORM}, &x));
  OK(gradus_network_activation(net, NULL, x, GRADUS_RELU, 0, &x));
  OK(gradus_network_pool2d(net, NULL, x, NULL, &y));
  OK(gradus_network_norm(net, NULL, y, &(gradus_norm_options){.kind = GRADUS_GROUP_NORM, .groups = 4}, &y));
  OK(gradus_network_activation(net, NULL, y, GRADUS_LEAKY_RELU, 0.2, &y));
  OK(gradus_network_upsample2d(net, NULL, y, 2, 2, 1, &y));
  OK(gradus_network_concat(net, NULL, (const gradus_value[]){x, y}, 2, &x));
  OK(gradus_network_pad2d(net, NULL, x, (const int64_t[]){1, 1, 1, 1}, GRADUS_REFLECT, &x));
  OK(gradus_network_crop2d(net, NULL, x, 1, 1, 8, 8, &x));
  OK(gradus_network_conv_transpose2d(net, NULL, x,
                                     &(gradus_conv2d_options){.out_channels = 4, .kernel = {2}, .stride = {2}}, &x));
  OK(gradus_network_activation(net, NULL, x, GRADUS_SILU, 0, &y));
  OK(gradus_network_add(net, NULL, x, y, &x));
  OK(gradus_network_global_average_pool2d(net, NULL, x, &y));
  OK(gradus_network_activation(net, NULL, y, GRADUS_SIGMOID, 0, &y));
  OK(gradus_network_multiply(net, NULL, x, y, &x));
  OK(gradus_network_pool2d(net, NULL, x, &(gradus_pool2d_options){.kind = GRADUS_POOL_AVERAGE, .kernel = {4}}, &x));
  OK(gradus_network_reshape(net, NULL, x, -1, 1, 1, &x));
  OK(gradus_network_flatten(net, NULL, x, &x));
  OK(gradus_network_dense(net, NULL, x, &(gradus_dense_options){.out_features = 12}, &x));
  OK(gradus_network_norm(net, NULL, x, &(gradus_norm_options){.kind = GRADUS_LAYER_NORM}, &x));
  OK(gradus_network_activation(net, NULL, x, GRADUS_GELU, 0, &x));
  OK(gradus_network_dense(net, "scores", x, &(gradus_dense_options){.out_features = 3}, &x));
  OK(gradus_network_output(net, "class", x));
  OK(gradus_network_loss(net, "class", GRADUS_SOFTMAX_CROSS_ENTROPY, 0));
  OK(gradus_network_compile(net, &(gradus_compile_options){.max_batch_size = 6, .seed = 1}));
  int64_t shape[3];
  OK(gradus_network_shape(net, x, &shape[0], &shape[1], &shape[2]));
  CHECK(shape[0] == 3 && shape[1] == 1 && shape[2] == 1);
  char summary[8192];
  size_t needed = 0;
  OK(gradus_network_summary(net, summary, sizeof(summary), &needed));
  CHECK(needed == strlen(summary) + 1 && strstr(summary, "conv_transpose2d1") != NULL);
  char few[8];
  OK(gradus_network_summary(net, few, sizeof(few), &needed));
  CHECK(strlen(few) == 7 && needed > 100);

  static double images[30][2][8][8];
  int32_t classes[30];
  int64_t wide_classes[30];
  for (int n = 0; n < 30; ++n) {
    classes[n] = n % 3;
    wide_classes[n] = n % 3;
    for (int k = 0; k < 128; ++k) {
      images[n][k / 64][k / 8 % 8][k % 8] = ((k * 7 + n * 5) % 13) / 13.0 + (k % 3 == n % 3);
    }
  }
  gradus_data* data = NULL;
  gradus_trainer* trainer = NULL;
  gradus_report report = {0};
  const int64_t count[] = {30};
  OK(gradus_data_create(&data));
  OK(gradus_data_set(
      data, "image",
      &(gradus_array){.data = images, .element = GRADUS_DOUBLE, .rank = 4, .shape = (const int64_t[]){30, 2, 8, 8}}));
  OK(gradus_data_set(data, "class",
                     &(gradus_array){.data = classes, .element = GRADUS_INT32, .rank = 1, .shape = count}));
  OK(gradus_trainer_create(net,
                           &(gradus_trainer_options){
                               .optimizer = GRADUS_ADAM, .learning_rate = 0.01, .clip_norm = 1, .global_batch_size = 6},
                           NULL, &trainer));
  OK(gradus_trainer_train_epochs(trainer, data, 40, &report));
  OK(gradus_data_set(data, "class",
                     &(gradus_array){.data = wide_classes, .element = GRADUS_INT64, .rank = 1, .shape = count}));
  OK(gradus_trainer_evaluate(trainer, data, &report));
  CHECK(report.accuracy == 1.0 && report.examples == 30);
  wide_classes[4] = INT64_C(1) << 40;
  REFUSED(GRADUS_SHAPE_ERROR, "of sample 4", gradus_trainer_evaluate(trainer, data, &report));
  OK(gradus_trainer_free(trainer));
  OK(gradus_network_free(net));
  OK(gradus_data_free(data));
}

int main(int count, char** arguments) {
  if (count != 3) {
    printf("training FOLDER WEIGHTS\n");
    return 2;
  }
  CHECK(gradus_abi_version() == GRADUS_ABI_VERSION);
  fill();
  test_training();
  test_zero_options();
  test_same_steps(arguments[1]);
  test_changing_calls(arguments[1]);
  test_orders();
  test_threads();
  test_predictions(arguments[2]);
  test_onnx(arguments[2]);
  test_layers();
  CHECK(gradus_open_handles() == 0);
  printf("%d failed checks\n", failed_checks);
  return failed_checks == 0 ? 0 : 1;
}
