// SPDX-License-Identifier: BSL-1.0
//
// Macros that system headers and large programs define. A header of gradus that uses one of these names breaks.
// The headers of others come first: they are not what is tested.
#pragma once

#if __has_include(<bits/stdc++.h>)
#include <bits/stdc++.h>
#endif
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif
#if __has_include(<zlib.h>)
#include <zlib.h>
#endif
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#endif
#if __has_include(<cudnn.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn.h>
#endif
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#include <nccl.h>
#endif
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/system_error.h>

#include <cuda/std/tuple>
#endif
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <Eigen/Dense>
#if __has_include(<protozero/pbf_reader.hpp>)  // of the component onnx
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#endif

#define GRADUS_HOSTILE(name) @name is a macro of somebody else @

// <sys/sysmacros.h>, <termios.h>, <math.h>
#undef major
#undef minor
#undef makedev
#undef B0
#undef ECHO
#undef DOMAIN
#undef OVERFLOW
#undef UNDERFLOW
#define major GRADUS_HOSTILE(major)
#define minor GRADUS_HOSTILE(minor)
#define makedev GRADUS_HOSTILE(makedev)
#define B0 GRADUS_HOSTILE(B0)
#define ECHO GRADUS_HOSTILE(ECHO)
#define DOMAIN GRADUS_HOSTILE(DOMAIN)
#define OVERFLOW GRADUS_HOSTILE(OVERFLOW)
#define UNDERFLOW GRADUS_HOSTILE(UNDERFLOW)

// Single capital letters: <complex.h>, matrices and grids of numerical programs
#undef A
#undef B
#undef C
#undef D
#undef E
#undef F
#undef G
#undef H
#undef I
#undef J
#undef K
#undef L
#undef M
#undef N
#undef O
#undef P
#undef Q
#undef R
#undef S
#undef T
#undef U
#undef V
#undef W
#undef X
#undef Y
#undef Z
#define A GRADUS_HOSTILE(A)
#define B GRADUS_HOSTILE(B)
#define C GRADUS_HOSTILE(C)
#define D GRADUS_HOSTILE(D)
#define E GRADUS_HOSTILE(E)
#define F GRADUS_HOSTILE(F)
#define G GRADUS_HOSTILE(G)
#define H GRADUS_HOSTILE(H)
#define I GRADUS_HOSTILE(I)
#define J GRADUS_HOSTILE(J)
#define K GRADUS_HOSTILE(K)
#define L GRADUS_HOSTILE(L)
#define M GRADUS_HOSTILE(M)
#define N GRADUS_HOSTILE(N)
#define O GRADUS_HOSTILE(O)
#define P GRADUS_HOSTILE(P)
#define Q GRADUS_HOSTILE(Q)
#define R GRADUS_HOSTILE(R)
#define S GRADUS_HOSTILE(S)
#define T GRADUS_HOSTILE(T)
#define U GRADUS_HOSTILE(U)
#define V GRADUS_HOSTILE(V)
#define W GRADUS_HOSTILE(W)
#define X GRADUS_HOSTILE(X)
#define Y GRADUS_HOSTILE(Y)
#define Z GRADUS_HOSTILE(Z)

// GNU mode, X11, Windows, GLib
#undef linux
#undef unix
#undef TRUE
#undef FALSE
#undef MIN
#undef MAX
#define linux GRADUS_HOSTILE(linux)
#define unix GRADUS_HOSTILE(unix)
#define None GRADUS_HOSTILE(None)
#define Status GRADUS_HOSTILE(Status)
#define Bool GRADUS_HOSTILE(Bool)
#define Success GRADUS_HOSTILE(Success)
#define Always GRADUS_HOSTILE(Always)
#define True GRADUS_HOSTILE(True)
#define False GRADUS_HOSTILE(False)
#define small GRADUS_HOSTILE(small)
#define near GRADUS_HOSTILE(near)
#define far GRADUS_HOSTILE(far)
#define interface GRADUS_HOSTILE(interface)
#define ERROR GRADUS_HOSTILE(ERROR)
#define TRUE GRADUS_HOSTILE(TRUE)
#define FALSE GRADUS_HOSTILE(FALSE)
#define MIN GRADUS_HOSTILE(MIN)
#define MAX GRADUS_HOSTILE(MAX)
#define ABS GRADUS_HOSTILE(ABS)
#define CLAMP GRADUS_HOSTILE(CLAMP)

// Loggers, test frameworks, programs
#define CHECK GRADUS_HOSTILE(CHECK)
#define REQUIRE GRADUS_HOSTILE(REQUIRE)
#define LOG GRADUS_HOSTILE(LOG)
#define INFO GRADUS_HOSTILE(INFO)
#define WARNING GRADUS_HOSTILE(WARNING)
#define FATAL GRADUS_HOSTILE(FATAL)
#define DEBUG GRADUS_HOSTILE(DEBUG)
#define VERBOSE GRADUS_HOSTILE(VERBOSE)
#define PI GRADUS_HOSTILE(PI)
#define EPSILON GRADUS_HOSTILE(EPSILON)
#define verify GRADUS_HOSTILE(verify)
