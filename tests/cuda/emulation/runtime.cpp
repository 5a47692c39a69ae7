// SPDX-License-Identifier: BSL-1.0
//
// The part of the CUDA runtime that gradus uses. Work stays in its stream until a caller waits for it: a GPU may run it
// that late, so a missing wait shows.
#include <cuda_runtime_api.h>
#include <ucontext.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "emulation.hpp"

using lock = std::scoped_lock<std::recursive_mutex>;

namespace {

std::recursive_mutex everything;  // work of all streams, one after the other

int& current_device() {
  static thread_local int device = 0;
  return device;
}

struct stream_state {
  std::shared_ptr<CUstream_st> self;  // until it is destroyed; events and other streams may name it longer
  std::deque<std::function<bool()>> waiting;
  std::size_t begun = 0;  // of all work so far
  std::size_t done = 0;
  cudaGraph_t recording = nullptr;
  bool working = false;
  int device = current_device();

  /// Does the work up to a position, as far as it need not wait for other ranks. Returns whether all of it is done.
  bool run_until(std::size_t position) {
    while (done < position && !working) {
      working = true;
      const bool over = waiting.front()();
      working = false;
      if (!over) {
        break;
      }
      waiting.pop_front();
      ++done;
    }
    return done >= position;
  }
};

struct allocation {
  std::size_t bytes = 0;
  cudaMemPool_t pool = nullptr;
};
using memory = std::map<const char*, allocation>;  // by the first byte

memory device_memory;
memory pinned;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int recordings = 0;  // of this thread

cudaError_t error(cudaError_t code) {
  last_error = code;
  return code;
}

bool lies_in(const memory& all, const void* pointer, std::size_t bytes) {
  const auto* const at = static_cast<const char*>(pointer);
  auto found = all.upper_bound(at);
  if (found == all.begin()) {
    return false;
  }
  --found;
  return at + bytes <= found->first + found->second.bytes;
}

void* take(std::size_t bytes) {
  void* const taken = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(taken, 0xFF, std::min(bytes, std::size_t{1} << 20U));  // NaN: what is read before it is written shows
  return taken;
}

}  // namespace

struct CUstream_st : stream_state {};
struct graph_work {
  std::vector<std::function<bool()>> nodes;
  std::vector<std::shared_ptr<void>> memory;  // that nodes take and give back
};
struct CUgraph_st {
  graph_work work;
  std::vector<std::shared_ptr<CUstream_st>> streams;  // that are recorded
  bool invalid = false;
};
struct CUgraphExec_st {
  std::shared_ptr<const graph_work> work;
};
struct CUevent_st {
  std::shared_ptr<CUstream_st> stream;
  std::size_t position = 0;
  cudaGraph_t recorded = nullptr;
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  int device = current_device();
};
struct CUmemPoolHandle_st {
  std::uint64_t used = 0;
  std::uint64_t most = 0;
  bool destroyed = false;  // it is kept until its memory is back
};

namespace {

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "emulation of CUDA: %s\n", why);
  std::abort();
}

/// What waits cannot be recorded.
cudaError_t spoil(cudaGraph_t recording) {
  recording->invalid = true;
  return error(cudaErrorStreamCaptureUnsupported);
}

/// Memory of a pool goes back to it.
void give_back(void* pointer) {
  const lock held{everything};
  const auto found = device_memory.find(static_cast<char*>(pointer));
  if (found == device_memory.end()) {
    give_up("memory is freed that is not the device's");
  }
  const cudaMemPool_t pool = found->second.pool;
  pool->used -= found->second.bytes;
  device_memory.erase(found);
  std::free(pointer);
  if (pool->destroyed && pool->used == 0) {
    delete pool;
  }
}

}  // namespace

namespace emulation {

/// Waits for other ranks too, which go on meanwhile.
static void finish(const std::shared_ptr<CUstream_st>& stream, std::size_t position) {
  while (true) {
    {
      const lock held{everything};
      if (stream->run_until(position)) {
        return;
      }
    }
    std::this_thread::yield();
  }
}

void enqueue_waiting(cudaStream_t stream, std::function<bool()> work) {
  const lock held{everything};
  if (stream->recording != nullptr) {
    stream->recording->work.nodes.push_back(std::move(work));
    return;
  }
  stream->waiting.push_back(std::move(work));
  ++stream->begun;
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  enqueue_waiting(stream, [work = std::move(work)] {
    work();
    return true;
  });
}

namespace {

// The threads of a block are fibers once one of them waits for the others. A fiber runs one thread after the other. The
// compiler's setjmp and longjmp switch without a call of the system. (AddressSanitizer makes some around the library's
// longjmp, and forgets what it knows of the stack; here every frame goes on.)
struct stopped_at {
  void* registers[5];
};
struct fiber {
  std::unique_ptr<char[]> stack;
  stopped_at left{};
  bool begun = false;
  bool over = false;  // its thread
  grid_position position;
};
constexpr std::size_t stack_bytes = 64 << 10;
thread_local std::vector<std::unique_ptr<fiber>> fibers;
thread_local fiber* running = nullptr;
thread_local stopped_at scheduler;
thread_local const std::function<void()>* body = nullptr;
thread_local int numbers = 0;       // that are not 0, of the barrier that threads wait at
thread_local int numbers_seen = 0;  // of the barrier that they leave
thread_local bool waits = false;    // a thread of the block has waited

[[gnu::noinline, gnu::no_sanitize_address]] void go_on(stopped_at& where) {
  __builtin_longjmp(where.registers, 1);
}

[[gnu::noinline, gnu::no_sanitize_address]] void leave() {
  if (__builtin_setjmp(running->left.registers) == 0) {
    go_on(scheduler);
  }
}

void run_fiber() {
  while (true) {
    (*body)();
    running->over = true;
    leave();
  }
}

[[gnu::noinline, gnu::no_sanitize_address]] void resume(fiber& one) {
  running = &one;
  here = one.position;
  if (__builtin_setjmp(scheduler.registers) == 0) {
    if (one.begun) {
      go_on(one.left);
    }
    one.begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = one.stack.get();
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, &run_fiber, 0);
    setcontext(&context);
  }
  running = nullptr;
}

void start(std::size_t number, const grid_position& position) {
  if (number >= fibers.size()) {
    fibers.push_back(std::make_unique<fiber>());
    fibers.back()->stack = std::make_unique<char[]>(stack_bytes);
  }
  fiber& one = *fibers[number];
  one.over = false;
  one.position = position;
  resume(one);
}

/// One block: between barriers its threads run one after the other, from the first or from the last.
void run_block(grid_position position) {
  const dim3 extents = position.block_extents;
  const std::size_t count = std::size_t{extents.x} * extents.y * extents.z;
  waits = false;
  numbers = 0;
  bool backwards = false;
  std::size_t number = 0;
  for (position.thread.z = 0; position.thread.z < extents.z; ++position.thread.z) {
    for (position.thread.y = 0; position.thread.y < extents.y; ++position.thread.y) {
      for (position.thread.x = 0; position.thread.x < extents.x; ++position.thread.x, ++number) {
        if (number == 0 || waits) {
          start(number, position);
          if (number > 0 && fibers[number]->over) {
            give_up("a thread ended while others of its block wait for it");
          }
        } else {
          here = position;
          (*body)();
        }
      }
    }
  }
  while (waits && !fibers[0]->over) {
    numbers_seen = numbers;
    numbers = 0;
    backwards = !backwards;
    for (std::size_t i = 0; i < count; ++i) {
      resume(*fibers[backwards ? count - 1 - i : i]);
    }
    for (std::size_t i = 1; i < count; ++i) {
      if (fibers[i]->over != fibers[0]->over) {
        give_up("a thread ended while others of its block wait for it");
      }
    }
  }
}

}  // namespace

int barrier(int number) {
  if (running == nullptr) {
    give_up("a thread waits for others of its block that have ended");
  }
  waits = true;
  numbers += number != 0 ? 1 : 0;
  leave();
  return numbers_seen;
}

void launch(cudaStream_t stream, dim3 blocks, dim3 threads, std::function<void()> thread) {
  if (stream->device != current_device()) {
    error(cudaErrorInvalidResourceHandle);
    return;
  }
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.y > 65535 || blocks.z > 65535 || threads.x == 0 ||
      threads.y == 0 || threads.z == 0 || threads.x * threads.y * threads.z > 1024) {
    error(cudaErrorInvalidConfiguration);
    return;
  }
  enqueue(stream, [=, thread = std::move(thread)] {
    body = &thread;
    grid_position position{{}, {}, threads, blocks};
    for (position.block.z = 0; position.block.z < blocks.z; ++position.block.z) {
      for (position.block.y = 0; position.block.y < blocks.y; ++position.block.y) {
        for (position.block.x = 0; position.block.x < blocks.x; ++position.block.x) {
          run_block(position);
        }
      }
    }
  });
}

}  // namespace emulation

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const char* const cards = std::getenv("EMULATED_CARDS");
  *count = cards == nullptr ? 1 : std::atoi(cards);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device() = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "out of memory" : "an error of the emulation";
}
const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "cudaError";
  }
}

// Memory

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const lock held{everything};
  if (recordings != 0) {
    return error(cudaErrorStreamCaptureUnsupported);
  }
  *pointer = take(bytes);
  device_memory[static_cast<char*>(*pointer)] = {bytes, nullptr};
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  const lock held{everything};
  if (pointer != nullptr) {
    if (device_memory.erase(static_cast<char*>(pointer)) == 0) {
      return error(cudaErrorInvalidValue);
    }
    std::free(pointer);
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = new CUmemPoolHandle_st;
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const lock held{everything};
  pool->destroyed = true;
  if (pool->used == 0) {
    delete pool;
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  const lock held{everything};
  std::memcpy(value, &pool->most, sizeof(pool->most));
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  const lock held{everything};
  if (bytes > std::size_t{1} << 40U) {
    return error(cudaErrorMemoryAllocation);
  }
  *pointer = take(bytes);
  device_memory[static_cast<char*>(*pointer)] = {bytes, pool};
  pool->used += bytes;
  pool->most = std::max(pool->most, pool->used);
  if (stream->recording != nullptr) {
    stream->recording->work.memory.emplace_back(*pointer, &give_back);
  }
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  static CUmemPoolHandle_st common;
  return cudaMallocFromPoolAsync(pointer, bytes, &common, stream);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (stream->recording != nullptr) {
    const auto& own = stream->recording->work.memory;
    if (std::any_of(own.begin(), own.end(), [&](const auto& each) { return each.get() == pointer; })) {
      return cudaSuccess;  // it goes with the graph
    }
  }
  emulation::enqueue(stream, [pointer] { give_back(pointer); });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  const lock held{everything};
  if (recordings != 0) {
    return error(cudaErrorStreamCaptureUnsupported);
  }
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  pinned[static_cast<char*>(*pointer)] = {bytes, nullptr};
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  const lock held{everything};
  if (pinned.erase(static_cast<char*>(pointer)) == 0) {
    return error(cudaErrorInvalidValue);
  }
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  const lock held{everything};
  pinned[static_cast<char*>(pointer)] = {bytes, nullptr};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  const lock held{everything};
  return pinned.erase(static_cast<char*>(pointer)) != 0 ? cudaSuccess : error(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const lock held{everything};
  *attributes = {};
  attributes->type = lies_in(device_memory, pointer, 1) ? cudaMemoryTypeDevice
                     : lies_in(pinned, pointer, 1)      ? cudaMemoryTypeHost
                                                        : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

// Copies

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  std::unique_lock held{everything};
  const std::size_t read = (height - 1) * from_pitch + width;
  const std::size_t written = (height - 1) * to_pitch + width;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (width > to_pitch || width > from_pitch || lies_in(device_memory, to, written) != to_device ||
      lies_in(device_memory, from, read) != from_device) {
    return error(cudaErrorInvalidValue);
  }
  const auto copy = [=](const void* source) {
    for (std::size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(source) + row * from_pitch, width);
    }
  };
  if (kind == cudaMemcpyHostToDevice && !lies_in(pinned, from, read) && stream->recording == nullptr) {
    const auto* const first = static_cast<const char*>(from);  // may change when the call returns
    emulation::enqueue(stream, [=, staged = std::vector<char>(first, first + read)] { copy(staged.data()); });
    return cudaSuccess;
  }
  emulation::enqueue(stream, [=] { copy(from); });
  if (kind == cudaMemcpyDeviceToHost && !lies_in(pinned, to, written) && stream->recording == nullptr) {
    held.unlock();
    emulation::finish(stream->self, stream->begun);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const lock held{everything};
  if (recordings != 0) {
    return error(cudaErrorStreamCaptureUnsupported);
  }
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const lock held{everything};
  if (!lies_in(device_memory, to, bytes)) {
    return error(cudaErrorInvalidValue);
  }
  emulation::enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

// Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  auto made = std::make_shared<CUstream_st>();
  *stream = made.get();
  made->self = std::move(made);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->recording != nullptr) {
    return spoil(stream->recording);
  }
  emulation::finish(stream->self, stream->begun);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const lock held{everything};
  if (stream->recording != nullptr) {
    return spoil(stream->recording);
  }
  if (stream->done == stream->begun) {
    return cudaSuccess;
  }
  stream->run_until(stream->done + 1);
  return cudaErrorNotReady;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::shared_ptr<CUstream_st> last = std::move(stream->self);
  emulation::finish(last, last->begun);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const lock held{everything};
  if (event->device != stream->device) {
    return error(cudaErrorInvalidResourceHandle);
  }
  event->recorded = stream->recording;
  if (stream->recording == nullptr) {
    event->time = std::make_shared<std::chrono::steady_clock::time_point>();
    emulation::enqueue(stream, [time = event->time] { *time = std::chrono::steady_clock::now(); });
    event->stream = stream->self;
    event->position = stream->begun;
  }
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->recorded != nullptr) {
    return error(cudaErrorCapturedEvent);
  }
  if (event->stream != nullptr) {
    emulation::finish(event->stream, event->position);
  }
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const lock held{everything};
  if (event->stream == nullptr || event->stream->done >= event->position) {
    return cudaSuccess;
  }
  event->stream->run_until(event->stream->done + 1);
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const lock held{everything};
  if (event->recorded != nullptr) {
    if (stream->recording == nullptr) {  // it joins the recording
      stream->recording = event->recorded;
      stream->recording->streams.push_back(stream->self);
    }
  } else if (event->stream != nullptr) {
    emulation::enqueue_waiting(
        stream, [other = event->stream, position = event->position] { return other->run_until(position); });
  }
  return cudaSuccess;
}

// Graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const lock held{everything};
  stream->recording = new CUgraph_st;
  stream->recording->streams.push_back(stream->self);
  ++recordings;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const lock held{everything};
  *graph = stream->recording;
  for (const auto& recorded : std::exchange((*graph)->streams, {})) {
    recorded->recording = nullptr;
  }
  --recordings;
  if ((*graph)->invalid) {
    delete std::exchange(*graph, nullptr);
    return error(cudaErrorStreamCaptureInvalidated);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->work.nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{std::make_shared<const graph_work>(graph->work)};
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  emulation::enqueue_waiting(stream, [work = executable->work, next = std::size_t{0}]() mutable {
    while (next < work->nodes.size() && work->nodes[next]()) {
      ++next;
    }
    return next == work->nodes.size();
  });
  return cudaSuccess;
}

}  // extern "C"
