// SPDX-License-Identifier: BSL-1.0
//
// What a program compiles once. A program of several source files, or one that is compiled often, defines
// GRADUS_SEPARATE_COMPILATION for all of its files and adds one that includes only this header:
//
//   #include <gradus/compiled.hpp>
//
// The others then declare networks, layers, losses, trainers, update rules and strategies on the CPU, and do not
// compile them. These macros choose what is compiled, in all files alike; the rest is compiled where it is used, as
// always:
//
//   GRADUS_COMPILED_DOUBLE, GRADUS_COMPILED_BFLOAT16, GRADUS_COMPILED_FLOAT16   besides float
//   GRADUS_COMPILED_NCHW_ONLY, GRADUS_COMPILED_NHWC_ONLY                        one layout instead of both
//   GRADUS_COMPILED_MPI                                                         the links of comm::mpi
//
// With CMake, gradus_add_compiled(name ...) makes such a library and gives the macros to what links it.
//
// Several element types need less time and memory as a file for each: a file defines GRADUS_COMPILES_FLOAT, or
// GRADUS_COMPILES_DOUBLE, _BFLOAT16 or _FLOAT16, before it includes this header. The file of float has the functions
// that are no templates, too. With links of comm::mpi, one of the files defines GRADUS_COMPILES_MPI besides.
#pragma once

#ifdef GRADUS_HAS_INSTANCES
#error "gradus: a source file that includes gradus/compiled.hpp includes nothing of gradus before it"
#endif
#if !defined(GRADUS_COMPILES_FLOAT) && !defined(GRADUS_COMPILES_DOUBLE) && !defined(GRADUS_COMPILES_BFLOAT16) && \
    !defined(GRADUS_COMPILES_FLOAT16) && !defined(GRADUS_COMPILES_MPI)
#define GRADUS_COMPILES_FLOAT
#define GRADUS_COMPILES_DOUBLE
#define GRADUS_COMPILES_BFLOAT16
#define GRADUS_COMPILES_FLOAT16
#define GRADUS_COMPILES_MPI
#endif
#if defined(GRADUS_COMPILES_FLOAT)
#define GRADUS_COMPILES_LIBRARY
#elif !defined(GRADUS_SEPARATE_COMPILATION)
#define GRADUS_SEPARATE_COMPILATION
#endif

#include "gradus/device/cpu.hpp"  // complete before the first instance
#include "gradus/kernels/cpu.hpp"
#include "gradus/layout/layouts.hpp"

#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/gradus.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/adaptive_pool2d.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/crop2d.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/multiply.hpp"
#include "gradus/nn/layers/normalize.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/permute.hpp"
#include "gradus/nn/layers/pixel_shuffle.hpp"
#include "gradus/nn/layers/reshape.hpp"
#include "gradus/nn/layers/softmax.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/nn/layers/upsample2d.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/optim/adagrad.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/rms_prop.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#if defined(GRADUS_COMPILED_MPI) && defined(GRADUS_COMPILES_MPI)
#include "gradus/comm/mpi.hpp"
#endif
