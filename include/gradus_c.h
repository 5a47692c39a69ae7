/* SPDX-License-Identifier: BSL-1.0
 *
 * The C interface of gradus: networks that are built, trained and used inside another program. It is implemented by one
 * source file, gradus_c.cpp, which a program compiles itself; docs/c_and_fortran.md is the guide.
 *
 * Status. Every function that can fail returns GRADUS_OK or another gradus_status, and then gradus_last_error() is a
 * text that says what was expected, what came and what to do. No C++ exception leaves a function. After a failure the
 * objects are as before the call, unless the function says otherwise, and outputs are not written. The functions that
 * train keep the updates before the failed one.
 *
 * Handles. A function gradus_X_create makes a handle, gradus_X_free ends it (of null: does nothing). A handle that has
 * been freed is recognized, and refused with GRADUS_INVALID_HANDLE. An object lives as long as another one needs it: a
 * network may be freed before its trainer.
 *
 * Options. Structures of options are made by = {0}; a member that is 0 has its default, and members named reserved stay
 * 0. A null pointer to options means defaults, where the function says so.
 *
 * Threads. Functions may be called by any thread, for different objects at the same time. A network, with its trainer,
 * and a set of data are used by one thread at a time: a second one gets GRADUS_BUSY. gradus_last_error() is that of the
 * calling thread.
 *
 * Names. A network has named inputs and outputs. This version has one of each; calls name them, so that networks with
 * several need no other functions.
 */
#ifndef GRADUS_C_H
#define GRADUS_C_H

#include <stddef.h>
#include <stdint.h>

#ifndef GRADUS_C_API
#if defined(__GNUC__)
#define GRADUS_C_API __attribute__((visibility("default")))
#else
#define GRADUS_C_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. Functions, constants and the order of members of structures stay within a version;
 * functions and constants may be added. A program compares it with gradus_abi_version(). */
#define GRADUS_ABI_VERSION 1

/* The result of a call. */
typedef int gradus_status;
enum {
  GRADUS_OK = 0,
  GRADUS_INVALID_ARGUMENT = 1,    /* a null pointer, an unknown constant or name, a reserved member that is not 0 */
  GRADUS_INVALID_HANDLE = 2,      /* a handle that was freed, never made, or of another kind */
  GRADUS_SHAPE_ERROR = 3,         /* shapes disagree, or strides make no sense */
  GRADUS_CONFIGURATION_ERROR = 4, /* options contradict each other, or calls come in the wrong order */
  GRADUS_FORMAT_ERROR = 5,        /* a file cannot be read or written, or is damaged */
  GRADUS_DEVICE_ERROR = 6,        /* too little memory for a network */
  GRADUS_COMMUNICATION_ERROR = 7, /* a rank failed, disagreed, or did not arrive in time */
  GRADUS_NUMERIC_ERROR = 8,       /* a loss is not finite; the text says where that was first seen */
  GRADUS_INTERRUPTED = 9,         /* a signal came, and the training has saved its state */
  GRADUS_BUSY = 10,               /* another thread, or a callback's caller, uses the object */
  GRADUS_NOT_BUILT = 11,          /* gradus_c.cpp was compiled without this feature */
  GRADUS_OUT_OF_MEMORY = 12,
  GRADUS_INTERNAL_ERROR = 13 /* an exception that the library does not throw by itself */
};

/* Types of the elements of arrays and of networks. A network is of float or double; arrays of another type are
 * converted as they are read or written. */
enum { GRADUS_FLOAT = 1, GRADUS_DOUBLE = 2, GRADUS_INT32 = 3, GRADUS_INT64 = 4 };

/* The order in which an array names its axes, and the memory order where it has no strides. */
enum {
  GRADUS_C_ORDER = 0,      /* (sample, channel, row, column): the last axis is adjacent in memory */
  GRADUS_FORTRAN_ORDER = 1 /* (column, row, channel, sample), as a(x, y, channel, sample): the first axis is */
};

/* An array in the memory of the caller. In GRADUS_C_ORDER its shape is (samples, channels, rows, columns). Axes that
 * the value of the network does not have may be left out: (samples, features) for a vector, (samples, rows, columns)
 * for images of one channel, (samples) for one number each, and no axis of samples for a single one; one axis of
 * channels * rows * columns may stand for all three. In GRADUS_FORTRAN_ORDER the axes are named the other way round:
 * a Fortran array a(x, y, channel, sample) is an image whose columns are x and whose rows are y (NCHW), without a copy.
 * The axis of samples may be several, if they are evenly spaced. */
typedef struct gradus_array {
  void* data;             /* the element with all indices 0 */
  int32_t element;        /* GRADUS_FLOAT, ...: of the memory */
  int32_t order;          /* GRADUS_C_ORDER or GRADUS_FORTRAN_ORDER: of shape and strides */
  int32_t rank;           /* number of axes, 1 to 15 */
  int32_t reserved;       /* 0 */
  const int64_t* shape;   /* rank extents */
  const int64_t* strides; /* rank distances in elements, which may be negative; null: the array is contiguous */
} gradus_array;

typedef struct gradus_device_tag gradus_device;   /* processors of this process */
typedef struct gradus_comm_tag gradus_comm;       /* ranks that train together */
typedef struct gradus_network_tag gradus_network; /* layers and their weights */
typedef struct gradus_data_tag gradus_data;       /* arrays of examples */
typedef struct gradus_trainer_tag gradus_trainer; /* a network that is trained */

/* A value of a network: its input or the output of a layer, as the functions that add layers return it. */
typedef int64_t gradus_value;

/* ---- The library */

GRADUS_C_API int gradus_abi_version(void); /* GRADUS_ABI_VERSION of gradus_c.cpp */
GRADUS_C_API const char* gradus_version(void);
/* The text of the last failure on this thread; it stays until the next failure. Never null. */
GRADUS_C_API const char* gradus_last_error(void);
/* The name of a status: "GRADUS_SHAPE_ERROR". */
GRADUS_C_API const char* gradus_status_name(gradus_status status);
/* 1 if gradus_c.cpp was compiled with "mpi", "onnx" or "double", else 0. */
GRADUS_C_API int gradus_has_feature(const char* name);
/* Handles that have been made and not freed, for tests. */
GRADUS_C_API int64_t gradus_open_handles(void);

/* ---- Devices: the processors that a network uses */

typedef struct gradus_device_options {
  int32_t threads;         /* 0: the processors of this process, divided by the ranks of the machine */
  int32_t flush_denormals; /* 1: denormal numbers are 0 within the library's work */
  int64_t reserved[4];
} gradus_device_options;

/* options may be null. */
GRADUS_C_API gradus_status gradus_device_create(const gradus_device_options* options, gradus_device** device);
GRADUS_C_API gradus_status gradus_device_free(gradus_device* device);
GRADUS_C_API gradus_status gradus_device_threads(gradus_device* device, int32_t* threads);

/* ---- Communicators: the ranks that train one network together */

/* One process. */
GRADUS_C_API gradus_status gradus_comm_create_self(gradus_comm** comm);
/* The ranks of an MPI communicator, which is duplicated, by Fortran's handle of it (the integer of `use mpi`,
 * comm%mpi_val of mpi_f08, MPI_Comm_c2f in C). The program has called MPI_Init or MPI_Init_thread; below
 * MPI_THREAD_SERIALIZED the thread that did makes all calls. Called by all ranks of the communicator, and by no other.
 * What lives when MPI_Finalize begins ends there. Needs gradus_c.cpp compiled with -DGRADUS_C_MPI. */
GRADUS_C_API gradus_status gradus_comm_create_mpi_fortran(int fortran_handle, gradus_comm** comm);
GRADUS_C_API gradus_status gradus_comm_free(gradus_comm* comm);
GRADUS_C_API gradus_status gradus_comm_rank(gradus_comm* comm, int32_t* rank);
GRADUS_C_API gradus_status gradus_comm_size(gradus_comm* comm, int32_t* size);
/* How long a rank waits for the others before it fails. */
GRADUS_C_API gradus_status gradus_comm_set_time_limit(gradus_comm* comm, int64_t milliseconds);

/* ---- Networks: building. A name that is null is made of the layer's kind and a number. */

/* element: GRADUS_FLOAT or GRADUS_DOUBLE. device may be null: one of the network's own with default options. */
GRADUS_C_API gradus_status gradus_network_create(gradus_device* device, int32_t element, gradus_network** network);
GRADUS_C_API gradus_status gradus_network_free(gradus_network* network);
/* The input: images of (channels, rows, columns); a vector has 1 row and 1 column. Once in a network. */
GRADUS_C_API gradus_status gradus_network_input(gradus_network* network, const char* name, int64_t channels,
                                                int64_t rows, int64_t columns, gradus_value* value);

typedef struct gradus_dense_options {
  int64_t out_features; /* above 0 */
  int32_t no_bias;      /* 1: weights only */
  int32_t reserved_int;
  int64_t reserved[4];
} gradus_dense_options;
/* A fully connected layer, of all elements of an example. */
GRADUS_C_API gradus_status gradus_network_dense(gradus_network* network, const char* name, gradus_value input,
                                                const gradus_dense_options* options, gradus_value* output);

enum { GRADUS_PAD_VALID = 0, GRADUS_PAD_SAME = 1, GRADUS_PAD_EXPLICIT = 2 }; /* gradus_conv2d_options.padding */
enum { GRADUS_ZEROS = 0, GRADUS_REFLECT = 1, GRADUS_REPLICATE = 2, GRADUS_CIRCULAR = 3 }; /* padding_mode */

typedef struct gradus_conv2d_options {
  int64_t out_channels; /* above 0 */
  int64_t kernel[2];    /* rows, columns; columns 0: as rows */
  int64_t stride[2];    /* 0: 1 */
  int64_t dilation[2];  /* 0: 1 */
  int64_t groups;       /* 0: 1 */
  int32_t padding;      /* GRADUS_PAD_VALID, GRADUS_PAD_SAME, GRADUS_PAD_EXPLICIT */
  int32_t padding_mode; /* GRADUS_ZEROS, ...; GRADUS_CIRCULAR for periodic domains */
  int64_t pad[4];       /* top, bottom, left, right, of GRADUS_PAD_EXPLICIT */
  int32_t no_bias;      /* 1: weights only */
  int32_t reserved_int;
  int64_t output_padding[2]; /* of gradus_network_conv_transpose2d only */
  int64_t reserved[4];
} gradus_conv2d_options;
GRADUS_C_API gradus_status gradus_network_conv2d(gradus_network* network, const char* name, gradus_value input,
                                                 const gradus_conv2d_options* options, gradus_value* output);
/* The padding is what is cut off the output; there is no padding_mode. */
GRADUS_C_API gradus_status gradus_network_conv_transpose2d(gradus_network* network, const char* name,
                                                           gradus_value input, const gradus_conv2d_options* options,
                                                           gradus_value* output);

enum { GRADUS_POOL_MAX = 1, GRADUS_POOL_AVERAGE = 2 };
typedef struct gradus_pool2d_options {
  int32_t kind;          /* GRADUS_POOL_MAX or GRADUS_POOL_AVERAGE */
  int32_t padding;       /* as of gradus_conv2d_options */
  int64_t kernel[2];     /* rows, columns; 0: 2 */
  int64_t stride[2];     /* 0: as the kernel */
  int64_t pad[4];        /* top, bottom, left, right */
  int32_t ceil_mode;     /* 1: the extents of the output are rounded up */
  int32_t count_padding; /* 1: an average counts the zeros of the padding */
  int64_t reserved[4];
} gradus_pool2d_options;
/* options may be null: the maximum over 2 x 2. */
GRADUS_C_API gradus_status gradus_network_pool2d(gradus_network* network, const char* name, gradus_value input,
                                                 const gradus_pool2d_options* options, gradus_value* output);
/* The mean of each channel. */
GRADUS_C_API gradus_status gradus_network_global_average_pool2d(gradus_network* network, const char* name,
                                                                gradus_value input, gradus_value* output);

enum { GRADUS_BATCH_NORM = 1, GRADUS_GROUP_NORM = 2, GRADUS_INSTANCE_NORM = 3, GRADUS_LAYER_NORM = 4 };
typedef struct gradus_norm_options {
  int32_t kind;     /* GRADUS_BATCH_NORM, ... */
  int32_t no_scale; /* 1: no factors are learned */
  int32_t no_shift; /* 1: no summands are learned */
  int32_t reserved_int;
  int64_t groups;  /* of GRADUS_GROUP_NORM; 0: 32 */
  double momentum; /* of the running statistics of GRADUS_BATCH_NORM; 0: 0.1 */
  double epsilon;  /* 0: 1e-5 */
  int64_t reserved[4];
} gradus_norm_options;
/* Batch normalization on several ranks has the statistics of each rank's own examples. */
GRADUS_C_API gradus_status gradus_network_norm(gradus_network* network, const char* name, gradus_value input,
                                               const gradus_norm_options* options, gradus_value* output);

enum {
  GRADUS_RELU = 1,
  GRADUS_LEAKY_RELU = 2, /* parameter: the negative slope; 0: 0.01 */
  GRADUS_RELU6 = 3,
  GRADUS_SIGMOID = 4,
  GRADUS_TANH = 5,
  GRADUS_SILU = 6,
  GRADUS_GELU = 7,
  GRADUS_ELU = 8, /* parameter: alpha; 0: 1 */
  GRADUS_SOFTPLUS = 9,
  GRADUS_SOFTMAX = 10,    /* over the channels */
  GRADUS_LOG_SOFTMAX = 11 /* over the channels */
};
GRADUS_C_API gradus_status gradus_network_activation(gradus_network* network, const char* name, gradus_value input,
                                                     int32_t kind, double parameter, gradus_value* output);
/* rate: the probability that an element becomes 0 in training, in [0, 1). */
GRADUS_C_API gradus_status gradus_network_dropout(gradus_network* network, const char* name, gradus_value input,
                                                  double rate, gradus_value* output);
/* The images as vectors, in the order (channel, row, column). */
GRADUS_C_API gradus_status gradus_network_flatten(gradus_network* network, const char* name, gradus_value input,
                                                  gradus_value* output);
/* The same elements, in the order (channel, row, column), as another image; one extent may be -1. */
GRADUS_C_API gradus_status gradus_network_reshape(gradus_network* network, const char* name, gradus_value input,
                                                  int64_t channels, int64_t rows, int64_t columns,
                                                  gradus_value* output);
/* The sum of two values of one shape. */
GRADUS_C_API gradus_status gradus_network_add(gradus_network* network, const char* name, gradus_value left,
                                              gradus_value right, gradus_value* output);
/* The product of two values of one shape, or with one number for each channel. */
GRADUS_C_API gradus_status gradus_network_multiply(gradus_network* network, const char* name, gradus_value left,
                                                   gradus_value right, gradus_value* output);
/* The channels of several values behind each other. */
GRADUS_C_API gradus_status gradus_network_concat(gradus_network* network, const char* name, const gradus_value* inputs,
                                                 int32_t count, gradus_value* output);
/* rows and columns are multiplied; bilinear: 0 repeats pixels, 1 interpolates. */
GRADUS_C_API gradus_status gradus_network_upsample2d(gradus_network* network, const char* name, gradus_value input,
                                                     int64_t rows, int64_t columns, int32_t bilinear,
                                                     gradus_value* output);
GRADUS_C_API gradus_status gradus_network_crop2d(gradus_network* network, const char* name, gradus_value input,
                                                 int64_t top, int64_t left, int64_t rows, int64_t columns,
                                                 gradus_value* output);
/* pad: top, bottom, left, right. mode: GRADUS_ZEROS, ..., GRADUS_CIRCULAR. */
GRADUS_C_API gradus_status gradus_network_pad2d(gradus_network* network, const char* name, gradus_value input,
                                                const int64_t pad[4], int32_t mode, gradus_value* output);
/* (x - mean) / deviation, with fixed numbers of each channel; deviations are above 0. count: the channels. */
GRADUS_C_API gradus_status gradus_network_normalize(gradus_network* network, const char* name, gradus_value input,
                                                    const double* mean, const double* deviation, int64_t count,
                                                    gradus_value* output);
/* The layers of an ONNX file, with their weights from gradus_network_compile on. Needs -DGRADUS_C_ONNX. The network
 * gets the input `input` of the file's shape and the output `output`. rows and columns: of an image where the file
 * leaves them open, else 0. */
GRADUS_C_API gradus_status gradus_network_read_onnx(gradus_network* network, const char* path, const char* input,
                                                    const char* output, int64_t rows, int64_t columns);
/* Names an output: what gradus_network_predict writes and the loss reads. Once in a network, the last layer. */
GRADUS_C_API gradus_status gradus_network_output(gradus_network* network, const char* name, gradus_value value);

enum {
  GRADUS_SOFTMAX_CROSS_ENTROPY = 1, /* targets: a class from 0 for each sample or pixel (integers) */
  GRADUS_MEAN_SQUARED_ERROR = 2,    /* targets of the losses from here on: real numbers of the output's shape */
  GRADUS_MEAN_ABSOLUTE_ERROR = 3,
  GRADUS_HUBER = 4,               /* parameter: delta; 0: 1 */
  GRADUS_BINARY_CROSS_ENTROPY = 5 /* of scores that are no probabilities yet (logits); targets in [0, 1] */
};
/* parameter: label_smoothing of GRADUS_SOFTMAX_CROSS_ENTROPY, delta of GRADUS_HUBER; else 0. */
GRADUS_C_API gradus_status gradus_network_loss(gradus_network* network, const char* output, int32_t kind,
                                               double parameter);

typedef struct gradus_compile_options {
  int64_t max_batch_size;   /* the largest batch of this rank, above 0 */
  uint64_t seed;            /* of initial weights and of dropout: the same on all ranks */
  int64_t micro_batch_size; /* 0: a batch at once; else batches are computed in parts of this size, in less memory */
  int32_t inference;        /* 1: for gradus_network_predict only, without gradients */
  int32_t recompute;        /* 1: less memory; cheap layers run twice in a step */
  int64_t reserved[4];
} gradus_compile_options;
/* Ends the building: plans, allocates all memory and gives the weights their initial values. */
GRADUS_C_API gradus_status gradus_network_compile(gradus_network* network, const gradus_compile_options* options);

/* ---- Networks: using */

/* The shape of one example of a value. */
GRADUS_C_API gradus_status gradus_network_shape(gradus_network* network, gradus_value value, int64_t* channels,
                                                int64_t* rows, int64_t* columns);
/* A table of the layers. Writes at most size bytes with a zero at the end; needed (may be null) gets the bytes of all
 * of it. */
GRADUS_C_API gradus_status gradus_network_summary(gradus_network* network, char* text, size_t size, size_t* needed);
/* The number of parameters (weight, bias, ...), and of their elements. */
GRADUS_C_API gradus_status gradus_network_parameter_count(gradus_network* network, int64_t* parameters,
                                                          int64_t* elements);
/* The name and the number of elements of a parameter, 0 <= index < parameters. The name is valid while the network is.
 */
GRADUS_C_API gradus_status gradus_network_parameter(gradus_network* network, int64_t index, const char** name,
                                                    int64_t* elements);
/* Copies a parameter, in PyTorch's order, to or from `count` contiguous elements of the network's type. */
GRADUS_C_API gradus_status gradus_network_get_parameter(gradus_network* network, const char* name, void* values,
                                                        int64_t count);
GRADUS_C_API gradus_status gradus_network_set_parameter(gradus_network* network, const char* name, const void* values,
                                                        int64_t count);
/* Computes the output of any number of samples and writes it into the caller's memory. Allocates nothing. */
GRADUS_C_API gradus_status gradus_network_predict(gradus_network* network, const char* input,
                                                  const gradus_array* inputs, const char* output,
                                                  const gradus_array* outputs);
/* Files of weights (safetensors). The network is compiled. strict 0: loads what fits. */
GRADUS_C_API gradus_status gradus_network_save_weights(gradus_network* network, const char* path);
GRADUS_C_API gradus_status gradus_network_load_weights(gradus_network* network, const char* path, int32_t strict);
/* The network as an ONNX file for other programs. Needs -DGRADUS_C_ONNX. */
GRADUS_C_API gradus_status gradus_network_write_onnx(gradus_network* network, const char* path);

/* ---- Data: named arrays of the caller, which stay where they are */

GRADUS_C_API gradus_status gradus_data_create(gradus_data** data);
GRADUS_C_API gradus_status gradus_data_free(gradus_data* data);
/* The samples of an input, or the targets of an output, by its name; a second call replaces the first. The memory is
 * read within later calls of the trainer and never between them: it has to exist then, and may change between calls. */
GRADUS_C_API gradus_status gradus_data_set(gradus_data* data, const char* name, const gradus_array* array);
/* A factor of each sample's loss, finite and at least 0: an array of one axis. null: none. */
GRADUS_C_API gradus_status gradus_data_set_weights(gradus_data* data, const gradus_array* weights);

/* ---- Training */

enum { GRADUS_SGD = 0, GRADUS_ADAM = 1, GRADUS_ADAM_W = 2 };

/* Members with a default other than 0 are 0 where they are -0.0: .beta1 = -0.0. */
typedef struct gradus_trainer_options {
  int32_t optimizer;         /* GRADUS_SGD, GRADUS_ADAM, GRADUS_ADAM_W */
  int32_t nesterov;          /* of GRADUS_SGD */
  double learning_rate;      /* 0: 0.01, of ADAM and ADAM_W 0.001 */
  double momentum;           /* of GRADUS_SGD */
  double weight_decay;       /* 0: none; of GRADUS_ADAM_W it is apart from the gradient */
  double beta1;              /* of GRADUS_ADAM and GRADUS_ADAM_W; 0: 0.9 */
  double beta2;              /* likewise; 0: 0.999 */
  double epsilon;            /* likewise; 0: 1e-8 */
  double clip_norm;          /* above 0: gradients of a larger norm are shortened to it */
  int64_t global_batch_size; /* samples of a step over all ranks, of train_steps, train_for, train_epochs */
  uint64_t seed;             /* of the order of the samples */
  int32_t no_shuffle;        /* 1: the order of the data */
  int32_t amsgrad;           /* of GRADUS_ADAM */
  int64_t reserved[4];
} gradus_trainer_options;

/* A step that has been done, for callbacks. */
typedef struct gradus_step_report {
  uint64_t step;           /* from 0, over the whole training */
  int64_t global_examples; /* over all ranks */
  int64_t local_examples;  /* of this rank */
  double local_loss;       /* mean over local_examples */
  double learning_rate;
} gradus_step_report;

/* What a call of training or evaluation has done, over all ranks. */
typedef struct gradus_report {
  int64_t steps;
  int64_t examples;
  double loss;     /* mean over the examples, as the weights changed */
  double accuracy; /* share of right classes; 0 without classes */
  double seconds;
} gradus_report;

/* Called after each step, on all ranks or on none. A result other than 0 ends the call of training after this step, on
 * all ranks. It may call functions for other objects, not for this trainer or its network. */
typedef int (*gradus_step_callback)(const gradus_step_report* report, void* context);
/* The learning rate of a step, counted from 0: a function of the step that is the same on all ranks. */
typedef double (*gradus_schedule)(uint64_t step, void* context);

/* comm may be null: one process. All ranks of comm call it; they get the weights of rank 0. The network is compiled and
 * has a loss. A rank that refuses its arguments does not meet the others: they wait for it until the time limit of comm
 * (gradus_comm_set_time_limit). */
GRADUS_C_API gradus_status gradus_trainer_create(gradus_network* network, const gradus_trainer_options* options,
                                                 gradus_comm* comm, gradus_trainer** trainer);
GRADUS_C_API gradus_status gradus_trainer_free(gradus_trainer* trainer);
GRADUS_C_API gradus_status gradus_trainer_set_learning_rate(gradus_trainer* trainer, double learning_rate);
GRADUS_C_API gradus_status gradus_trainer_set_schedule(gradus_trainer* trainer, gradus_schedule schedule,
                                                       void* context);
GRADUS_C_API gradus_status gradus_trainer_set_step_callback(gradus_trainer* trainer, gradus_step_callback callback,
                                                            void* context);
/* Steps since the training began, those before a resume included. */
GRADUS_C_API gradus_status gradus_trainer_steps(gradus_trainer* trainer, uint64_t* steps);

/* The functions that train are called by all ranks, all the same one. report may be null.
 *
 * After a failure the updates of the call before the failed one stay: gradus_trainer_steps counts them. Arguments that
 * a rank refuses, and ranks that differ in the function or its arguments, are found before the first update: all ranks
 * get an error, and may go on. After another failure on a communicator of several ranks, the trainer can train no more.
 *
 * One update by all samples of `data`, which are this rank's own: ranks may bring different numbers, also none (a data
 * set whose array has 0 samples). The update is that of one process that has the samples of all. */
GRADUS_C_API gradus_status gradus_trainer_step(gradus_trainer* trainer, gradus_data* data, gradus_report* report);
/* `steps` updates on batches of global_batch_size samples, drawn from data that all ranks have alike; each rank
 * computes its share. Step number k of the training uses batch k mod (batches of a pass) of pass k / (batches of a
 * pass). */
GRADUS_C_API gradus_status gradus_trainer_train_steps(gradus_trainer* trainer, gradus_data* data, int64_t steps,
                                                      gradus_report* report);
/* Updates until the time is over on some rank: it ends with the step in which that happens, the same on all ranks. */
GRADUS_C_API gradus_status gradus_trainer_train_for(gradus_trainer* trainer, gradus_data* data, double milliseconds,
                                                    gradus_report* report);
/* The steps of some passes over the data. */
GRADUS_C_API gradus_status gradus_trainer_train_epochs(gradus_trainer* trainer, gradus_data* data, int64_t epochs,
                                                       gradus_report* report);
/* Loss and accuracy over data that all ranks have alike. */
GRADUS_C_API gradus_status gradus_trainer_evaluate(gradus_trainer* trainer, gradus_data* data, gradus_report* report);

typedef struct gradus_checkpoint_options {
  int64_t every;   /* steps from one checkpoint to the next; 0: 1000 */
  int32_t keep;    /* the newest ones that are kept; 0: 3 */
  int32_t signals; /* 1: SIGTERM and SIGUSR1 save after the step and end the call with GRADUS_INTERRUPTED */
  int64_t reserved[4];
} gradus_checkpoint_options;
/* From now on calls that train write checkpoints into a folder, from all ranks together. options may be null. */
GRADUS_C_API gradus_status gradus_trainer_set_checkpoints(gradus_trainer* trainer, const char* folder,
                                                          const gradus_checkpoint_options* options);
/* Goes on from the newest valid checkpoint of a folder, before the first step. found (may be null): 1, or 0 where the
 * folder has none, and the training begins. The trainer has the same global_batch_size, seed and no_shuffle. The calls
 * that follow, and their samples, may be any; the calls of the undisturbed training make the same updates, to the
 * bit. */
GRADUS_C_API gradus_status gradus_trainer_resume(gradus_trainer* trainer, const char* folder, int32_t* found);
/* The weights as gradus_network_save_weights writes them; called by all ranks, rank 0 writes. */
GRADUS_C_API gradus_status gradus_trainer_save_weights(gradus_trainer* trainer, const char* path);

#ifdef __cplusplus
}
#endif

/* With <mpi.h> before this header: the ranks of an MPI communicator, as gradus_comm_create_mpi_fortran. */
#ifdef MPI_VERSION
static inline gradus_status gradus_comm_create_mpi(MPI_Comm ranks, gradus_comm** comm) {
  return gradus_comm_create_mpi_fortran((int)MPI_Comm_c2f(ranks), comm);
}
#endif

#endif
