/* SPDX-License-Identifier: BSL-1.0
 *
 * What no program should do: each call is refused with a status and a text, and nothing else happens. */
#include <stdlib.h>

#include "check.h"

static float memory[64];

static gradus_network* small_network(void) {
  gradus_network* net = NULL;
  gradus_value x = 0;
  OK(gradus_network_create(NULL, GRADUS_FLOAT, &net));
  OK(gradus_network_input(net, "x", 2, 1, 1, &x));
  OK(gradus_network_dense(net, "d", x, &(gradus_dense_options){.out_features = 1}, &x));
  OK(gradus_network_output(net, "y", x));
  OK(gradus_network_loss(net, "y", GRADUS_MEAN_SQUARED_ERROR, 0));
  OK(gradus_network_compile(net, &(gradus_compile_options){.max_batch_size = 4}));
  return net;
}

static gradus_array array_of(int rank, const int64_t* shape, const int64_t* strides) {
  return (gradus_array){.data = memory, .element = GRADUS_FLOAT, .rank = rank, .shape = shape, .strides = strides};
}

static void test_handles(void) {
  gradus_network* net = small_network();
  gradus_device* device = NULL;
  gradus_value x = 0;
  int32_t number = 0;
  REFUSED(GRADUS_INVALID_HANDLE, "a network, got null", gradus_network_input(NULL, "x", 1, 1, 1, &x));
  REFUSED(GRADUS_INVALID_ARGUMENT, "network", gradus_network_create(NULL, GRADUS_FLOAT, NULL));
  REFUSED(GRADUS_INVALID_HANDLE, "another kind", gradus_device_threads((gradus_device*)net, &number));
  REFUSED(GRADUS_INVALID_HANDLE, "never made", gradus_network_output((gradus_network*)memory, "y", 0));
  OK(gradus_network_free(net));
  REFUSED(GRADUS_INVALID_HANDLE, "freed", gradus_network_free(net));
  REFUSED(GRADUS_INVALID_HANDLE, "freed", gradus_network_output(net, "y", 0));
  OK(gradus_network_free(NULL));
  OK(gradus_device_free(NULL));
  OK(gradus_comm_free(NULL));
  OK(gradus_data_free(NULL));
  OK(gradus_trainer_free(NULL));
  REFUSED(GRADUS_INVALID_ARGUMENT, "reserved",
          gradus_device_create(&(gradus_device_options){.reserved = {1}}, &device));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "4096", gradus_device_create(&(gradus_device_options){.threads = -3}, &device));
  REFUSED(GRADUS_INVALID_ARGUMENT, "GRADUS_FLOAT", gradus_network_create(NULL, 7, &net));
  CHECK(device == NULL);
}

static void test_building(void) {
  gradus_network* net = NULL;
  gradus_value x = 0;
  gradus_value y = 0;
  OK(gradus_network_create(NULL, GRADUS_FLOAT, &net));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "gradus_network_input", gradus_network_flatten(net, "f", 0, &x));
  REFUSED(GRADUS_INVALID_ARGUMENT, "name", gradus_network_input(net, NULL, 1, 1, 1, &x));
  REFUSED(GRADUS_SHAPE_ERROR, "", gradus_network_input(net, "x", 0, 1, 1, &x));
  REFUSED(GRADUS_SHAPE_ERROR, "", gradus_network_input(net, "x", -5, 1, 1, &x));
  OK(gradus_network_input(net, "x", 1, 8, 8, &x));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "one input", gradus_network_input(net, "x2", 1, 1, 1, &x));
  REFUSED(GRADUS_INVALID_ARGUMENT, "from 0 to 0", gradus_network_flatten(net, "f", 1, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "from 0 to 0", gradus_network_flatten(net, "f", -1, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "output", gradus_network_flatten(net, "f", x, NULL));
  REFUSED(GRADUS_INVALID_ARGUMENT, "options", gradus_network_conv2d(net, "c", x, NULL, &y));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_network_conv2d(net, "c", x, &(gradus_conv2d_options){0}, &y));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "",
          gradus_network_conv2d(net, "c", x, &(gradus_conv2d_options){.out_channels = -1, .kernel = {3}}, &y));
  REFUSED(
      GRADUS_INVALID_ARGUMENT, "padding",
      gradus_network_conv2d(net, "c", x, &(gradus_conv2d_options){.out_channels = 1, .kernel = {3}, .padding = 9}, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "padding_mode",
          gradus_network_conv2d(net, "c", x,
                                &(gradus_conv2d_options){.out_channels = 1, .kernel = {3}, .padding_mode = 9}, &y));
  REFUSED(GRADUS_SHAPE_ERROR, "",
          gradus_network_conv2d(net, "c", x, &(gradus_conv2d_options){.out_channels = 1, .kernel = {9}}, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "reserved",
          gradus_network_conv2d(
              net, "c", x, &(gradus_conv2d_options){.out_channels = 1, .kernel = {3}, .reserved = {0, 0, 0, 1}}, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "GRADUS_RELU", gradus_network_activation(net, "a", x, 77, 0, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "parameter", gradus_network_activation(net, "a", x, GRADUS_RELU, 1, &y));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_network_dropout(net, "o", x, 1.5, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "1 to 1024", gradus_network_concat(net, "k", &x, -1, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "inputs", gradus_network_concat(net, "k", NULL, 1, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "kind", gradus_network_norm(net, "n", x, &(gradus_norm_options){0}, &y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "output", gradus_network_loss(net, "y", GRADUS_HUBER, 0));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "gradus_network_output",
          gradus_network_compile(net, &(gradus_compile_options){.max_batch_size = 1}));
  OK(gradus_network_flatten(net, "f", x, &y));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "f", gradus_network_flatten(net, "f", x, &y));
  OK(gradus_network_output(net, "y", y));
  REFUSED(GRADUS_INVALID_ARGUMENT, "GRADUS_SOFTMAX_CROSS_ENTROPY", gradus_network_loss(net, "y", 0, 0));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "max_batch_size", gradus_network_compile(net, &(gradus_compile_options){0}));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_network_save_weights(net, "x.safetensors"));
  int64_t count = 0;
  REFUSED(GRADUS_CONFIGURATION_ERROR, "compile", gradus_network_parameter_count(net, &count, &count));
  OK(gradus_network_free(net));
}

static void test_arrays(void) {
  gradus_network* net = small_network();
  const int64_t shape[] = {4, 2};
  const int64_t one[] = {4};
  const gradus_array good = array_of(2, shape, NULL);
  const gradus_array out = array_of(1, one, NULL);
  gradus_array bad = good;
#define PREDICT(status, words) REFUSED(status, words, gradus_network_predict(net, "x", &bad, "y", &out))
  OK(gradus_network_predict(net, "x", &good, "y", &out));
  REFUSED(GRADUS_INVALID_ARGUMENT, "'x' of the network", gradus_network_predict(net, "z", &good, "y", &out));
  REFUSED(GRADUS_INVALID_ARGUMENT, "the output", gradus_network_predict(net, "x", &good, NULL, &out));
  REFUSED(GRADUS_INVALID_ARGUMENT, "null", gradus_network_predict(net, "x", NULL, "y", &out));
  bad.data = NULL;
  PREDICT(GRADUS_INVALID_ARGUMENT, "data");
  bad = good;
  bad.shape = NULL;
  PREDICT(GRADUS_INVALID_ARGUMENT, "shape");
  bad = good;
  bad.element = 0;
  PREDICT(GRADUS_INVALID_ARGUMENT, "element");
  bad = good;
  bad.order = 2;
  PREDICT(GRADUS_INVALID_ARGUMENT, "order");
  bad = good;
  bad.rank = 0;
  PREDICT(GRADUS_SHAPE_ERROR, "rank");
  bad.rank = 1000;
  PREDICT(GRADUS_SHAPE_ERROR, "rank");
  bad = array_of(2, (const int64_t[]){4, -2}, NULL);
  PREDICT(GRADUS_SHAPE_ERROR, "extents of at least 0");
  bad = array_of(2, (const int64_t[]){INT64_MAX, INT64_MAX}, NULL);
  PREDICT(GRADUS_SHAPE_ERROR, "2^60");
  bad = array_of(2, shape, (const int64_t[]){0, 1});
  PREDICT(GRADUS_SHAPE_ERROR, "stride 0 of axis 0");
  bad = array_of(2, (const int64_t[]){4, 3}, NULL);
  PREDICT(GRADUS_SHAPE_ERROR, "(samples, 2, 1, 1)");
  bad = array_of(2, (const int64_t[]){2, 4}, NULL);
  PREDICT(GRADUS_SHAPE_ERROR, "(2, 4)");
  bad = array_of(2, (const int64_t[]){3, 2}, NULL);
  PREDICT(GRADUS_SHAPE_ERROR, "as many samples");
  bad = array_of(3, (const int64_t[]){2, 2, 2}, (const int64_t[]){7, 2, 1});
  PREDICT(GRADUS_SHAPE_ERROR, "evenly spaced");
  bad = out;
  bad.element = GRADUS_INT32;
  REFUSED(GRADUS_INVALID_ARGUMENT, "GRADUS_FLOAT or GRADUS_DOUBLE", gradus_network_predict(net, "x", &good, "y", &bad));
  /* No samples are no error, and single ones need no axis. */
  bad = array_of(2, (const int64_t[]){0, 2}, NULL);
  bad.data = NULL;
  const gradus_array none = {.element = GRADUS_FLOAT, .rank = 1, .shape = (const int64_t[]){0}};
  OK(gradus_network_predict(net, "x", &bad, "y", &none));
  bad = array_of(1, (const int64_t[]){2}, NULL);
  const gradus_array single = array_of(1, (const int64_t[]){1}, NULL);
  OK(gradus_network_predict(net, "x", &bad, "y", &single));
  /* From the end to the beginning. */
  memory[0] = 1;
  memory[1] = 2;
  memory[2] = 3;
  memory[3] = 4;
  float forward[2] = {0};
  float backward[2] = {0};
  const gradus_array ahead = array_of(2, (const int64_t[]){2, 2}, NULL);
  gradus_array back = array_of(2, (const int64_t[]){2, 2}, (const int64_t[]){-2, 1});
  back.data = memory + 2;
  OK(gradus_network_predict(
      net, "x", &ahead, "y",
      &(gradus_array){.data = forward, .element = GRADUS_FLOAT, .rank = 1, .shape = (const int64_t[]){2}}));
  OK(gradus_network_predict(
      net, "x", &back, "y",
      &(gradus_array){.data = backward, .element = GRADUS_FLOAT, .rank = 1, .shape = (const int64_t[]){2}}));
  CHECK(forward[0] == backward[1] && forward[1] == backward[0] && forward[0] != forward[1]);
  float values[2];
  REFUSED(GRADUS_SHAPE_ERROR, "2 elements", gradus_network_get_parameter(net, "d.weight", values, 3));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "nothing", gradus_network_get_parameter(net, "nothing", values, 2));
  REFUSED(GRADUS_FORMAT_ERROR, "", gradus_network_load_weights(net, "/nowhere/w.safetensors", 1));
  REFUSED(GRADUS_FORMAT_ERROR, "", gradus_network_save_weights(net, "/nowhere/w.safetensors"));
  OK(gradus_network_free(net));
}

static void test_order_of_calls(void) {
  gradus_network* net = small_network();
  gradus_trainer* trainer = NULL;
  gradus_value x = 0;
  const gradus_compile_options compiling = {.max_batch_size = 4};
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_network_flatten(net, "f", 1, &x));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_network_loss(net, "y", GRADUS_MEAN_SQUARED_ERROR, 0));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "one output", gradus_network_output(net, "z", 1));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "compile once", gradus_network_compile(net, &compiling));
  OK(gradus_trainer_create(net, &(gradus_trainer_options){0}, NULL, &trainer));
  const gradus_compile_options for_inference = {.max_batch_size = 4, .inference = 1};
  REFUSED(GRADUS_CONFIGURATION_ERROR, "without a trainer", gradus_network_compile(net, &for_inference));
  OK(gradus_trainer_free(trainer));
  OK(gradus_network_compile(net, &for_inference));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "", gradus_trainer_create(net, &(gradus_trainer_options){0}, NULL, &trainer));
  OK(gradus_network_free(net));
}

static int call_again(const gradus_step_report* report, void* context) {
  (void)report;
  gradus_trainer* trainer = *(gradus_trainer**)context;
  uint64_t steps = 0;
  REFUSED(GRADUS_BUSY, "callback", gradus_trainer_steps(trainer, &steps));
  OK(gradus_trainer_free(trainer)); /* it goes on until its call is over */
  return 0;
}

static void test_training(void) {
  gradus_network* net = small_network();
  gradus_trainer* trainer = NULL;
  gradus_data* data = NULL;
  gradus_report report = {.steps = 77};
  const int64_t shape[] = {4, 2};
  const int64_t one[] = {4};
  OK(gradus_data_create(&data));
  REFUSED(GRADUS_INVALID_ARGUMENT, "options", gradus_trainer_create(net, NULL, NULL, &trainer));
  REFUSED(GRADUS_INVALID_ARGUMENT, "optimizer",
          gradus_trainer_create(net, &(gradus_trainer_options){.optimizer = 9}, NULL, &trainer));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "momentum",
          gradus_trainer_create(net, &(gradus_trainer_options){.momentum = 3}, NULL, &trainer));
  REFUSED(GRADUS_INVALID_HANDLE, "communicator",
          gradus_trainer_create(net, &(gradus_trainer_options){0}, (gradus_comm*)net, &trainer));
  CHECK(trainer == NULL);
  OK(gradus_trainer_create(net, &(gradus_trainer_options){0}, NULL, &trainer));
  REFUSED(GRADUS_INVALID_HANDLE, "data", gradus_trainer_step(trainer, NULL, &report));
  REFUSED(GRADUS_INVALID_ARGUMENT, "'x'", gradus_trainer_step(trainer, data, &report));
  const gradus_array x = array_of(2, shape, NULL);
  const gradus_array y = array_of(1, one, NULL);
  OK(gradus_data_set(data, "x", &x));
  REFUSED(GRADUS_INVALID_ARGUMENT, "'y'", gradus_trainer_step(trainer, data, &report));
  REFUSED(GRADUS_SHAPE_ERROR, "rank",
          gradus_data_set(data, "y", &(gradus_array){.data = memory, .element = 1, .shape = one}));
  OK(gradus_data_set(data, "y", &y));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "global_batch_size", gradus_trainer_train_steps(trainer, data, 1, &report));
  OK(gradus_trainer_free(trainer));
  OK(gradus_trainer_create(net, &(gradus_trainer_options){.global_batch_size = 4}, NULL, &trainer));
  REFUSED(GRADUS_INVALID_ARGUMENT, "at least 0", gradus_trainer_train_steps(trainer, data, -1, &report));
  REFUSED(GRADUS_INVALID_ARGUMENT, "milliseconds", gradus_trainer_train_for(trainer, data, -1, &report));
  REFUSED(GRADUS_INVALID_ARGUMENT, "2^31", gradus_trainer_train_epochs(trainer, data, INT64_MAX, &report));
  REFUSED(GRADUS_INVALID_ARGUMENT, "finite", gradus_trainer_set_learning_rate(trainer, -1));
  REFUSED(GRADUS_INVALID_ARGUMENT, "report", gradus_trainer_evaluate(trainer, data, NULL));
  REFUSED(GRADUS_INVALID_ARGUMENT, "folder", gradus_trainer_set_checkpoints(trainer, "", NULL));
  OK(gradus_trainer_set_checkpoints(trainer, "/proc/nowhere", NULL));
  REFUSED(GRADUS_CONFIGURATION_ERROR, "/proc/nowhere", gradus_trainer_train_steps(trainer, data, 1, &report));
  CHECK(report.steps == 77);
  OK(gradus_trainer_free(trainer));
  /* More samples than the network was compiled for, an infinite loss, and a call within a callback. */
  OK(gradus_trainer_create(net, &(gradus_trainer_options){.global_batch_size = 8}, NULL, &trainer));
  const gradus_array many = array_of(2, (const int64_t[]){8, 2}, NULL);
  const gradus_array of_many = array_of(1, (const int64_t[]){8}, NULL);
  OK(gradus_data_set(data, "x", &many));
  OK(gradus_data_set(data, "y", &of_many));
  REFUSED(GRADUS_SHAPE_ERROR, "max_batch_size", gradus_trainer_train_steps(trainer, data, 1, &report));
  REFUSED(GRADUS_SHAPE_ERROR, "max_batch_size", gradus_trainer_step(trainer, data, &report));
  OK(gradus_data_set(data, "x", &x));
  OK(gradus_data_set(data, "y", &y));
  memory[3] = (float)(1e300 * 1e300);
  REFUSED(GRADUS_NUMERIC_ERROR, "", gradus_trainer_step(trainer, data, &report));
  memory[3] = 0;
  double weights[] = {1, 0, 0.5, -1};
  const gradus_array factors = {.data = weights, .element = GRADUS_DOUBLE, .rank = 1, .shape = one};
  OK(gradus_data_set_weights(data, &factors));
  REFUSED(GRADUS_SHAPE_ERROR, "finite weights of at least 0, got weight -1 of sample 3",
          gradus_trainer_step(trainer, data, &report));
  REFUSED(GRADUS_SHAPE_ERROR, "finite weights of at least 0", gradus_trainer_evaluate(trainer, data, &report));
  weights[3] = 1e300 * 1e300;
  REFUSED(GRADUS_SHAPE_ERROR, "finite weights of at least 0", gradus_trainer_step(trainer, data, &report));
  weights[3] -= weights[3];
  REFUSED(GRADUS_SHAPE_ERROR, "finite weights of at least 0", gradus_trainer_step(trainer, data, &report));
  OK(gradus_data_set_weights(data, NULL));
  OK(gradus_trainer_set_step_callback(trainer, call_again, &trainer));
  OK(gradus_trainer_step(trainer, data, &report));
  CHECK(report.steps == 1);
  REFUSED(GRADUS_INVALID_HANDLE, "freed", gradus_trainer_step(trainer, data, &report));
  OK(gradus_data_free(data));
  OK(gradus_network_free(net));
}

int main(void) {
  CHECK(strcmp(gradus_last_error(), "") != 0);
  CHECK(strcmp(gradus_status_name(99), "an unknown status") == 0 &&
        strcmp(gradus_status_name(-1), "an unknown status") == 0);
  CHECK(gradus_has_feature(NULL) == 0 && gradus_has_feature("nothing") == 0);
  test_handles();
  test_building();
  test_arrays();
  test_order_of_calls();
  test_training();
  CHECK(gradus_open_handles() == 0);
  printf("%d failed checks\n", failed_checks);
  return failed_checks == 0 ? 0 : 1;
}
