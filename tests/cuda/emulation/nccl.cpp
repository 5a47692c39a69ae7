// SPDX-License-Identifier: BSL-1.0
//
// The functions of NCCL that gradus calls, for ranks that are threads. As with NCCL a communicator connects while its
// owner asks how far it is, work waits in its stream until all ranks have theirs, and only an abort ends it before.
#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulation.hpp"

namespace {

enum class kind { all_reduce, broadcast, reduce_scatter, all_gather };

struct contribution {
  const void* input = nullptr;
  void* output = nullptr;
};

struct collective {
  int arrived = 0;
  bool done = false;
  std::vector<contribution> ranks;
};

struct message {
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  bool done = false;
};

struct world;

/// A communicator that is divided: nothing of it is known before all ranks have come.
struct division {
  int arrived = 0;
  std::map<int, std::shared_ptr<world>> of_color;
};

/// What the ranks of a communicator have in common.
struct world {
  int size = 0;
  int connected = 0;
  bool divided = true;  // all ranks of the communicator that it is a part of have come
  std::vector<int> keys;
  std::map<std::uint64_t, collective> collectives;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<message>>> sent;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<message>>> awaited;
  std::map<int, division> divisions;

  [[nodiscard]] bool complete() const { return divided && connected == size; }
};

std::mutex all_worlds;
std::map<std::string, std::shared_ptr<world>> worlds;

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

template <class Number>
Number combine(Number a, Number b, ncclRedOp_t operation) {
  return operation == ncclSum    ? static_cast<Number>(a + b)
         : operation == ncclProd ? static_cast<Number>(a * b)
         : operation == ncclMin  ? std::min(a, b)
                                 : std::max(a, b);
}

/// The reduction of element i of all inputs, in the order of the ranks.
template <class Element, class Number, class Read, class Write>
void reduce(const std::vector<contribution>& ranks, std::size_t first, std::size_t count, ncclRedOp_t operation,
            std::vector<char>& result, const Read& read, const Write& write) {
  result.resize(count * sizeof(Element));
  auto* const out = reinterpret_cast<Element*>(result.data());
  for (std::size_t i = 0; i < count; ++i) {
    Number value = read(static_cast<const Element*>(ranks[0].input)[first + i]);
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      value = combine<Number>(value, read(static_cast<const Element*>(ranks[rank].input)[first + i]), operation);
    }
    out[i] = write(value);
  }
}

template <class Element>
void reduce_as_it_is(const std::vector<contribution>& ranks, std::size_t first, std::size_t count,
                     ncclRedOp_t operation, std::vector<char>& result) {
  const auto same = [](Element value) { return value; };
  reduce<Element, Element>(ranks, first, count, operation, result, same, same);
}

std::vector<char> reduced(const std::vector<contribution>& ranks, std::size_t first, std::size_t count,
                          ncclDataType_t type, ncclRedOp_t operation) {
  std::vector<char> result;
  switch (type) {
    case ncclFloat32:
      reduce_as_it_is<float>(ranks, first, count, operation, result);
      break;
    case ncclFloat64:
      reduce_as_it_is<double>(ranks, first, count, operation, result);
      break;
    case ncclInt32:
      reduce_as_it_is<std::int32_t>(ranks, first, count, operation, result);
      break;
    case ncclInt64:
      reduce_as_it_is<std::int64_t>(ranks, first, count, operation, result);
      break;
    case ncclFloat16:
      reduce<__half, float>(
          ranks, first, count, operation, result, [](__half value) { return __half2float(value); },
          [](float value) { return __float2half_rn(value); });
      break;
    case ncclBfloat16:
      reduce<__nv_bfloat16, float>(
          ranks, first, count, operation, result, [](__nv_bfloat16 value) { return __bfloat162float(value); },
          [](float value) { return __float2bfloat16_rn(value); });
      break;
    default:
      reduce_as_it_is<std::uint8_t>(ranks, first, count, operation, result);
  }
  return result;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<world> ranks;
  int rank = 0;
  std::uint64_t begun = 0;
  int splits = 0;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
};

namespace {

struct grouped_message {
  ncclComm_t communicator;
  std::shared_ptr<message> what;
  std::pair<int, int> way;
  bool sends;
  cudaStream_t stream;
};
thread_local std::vector<grouped_message> group;

ncclComm_t join(const std::shared_ptr<world>& ranks, int rank) {
  ++ranks->connected;
  auto* const made = new ncclComm;
  made->ranks = ranks;
  made->rank = rank;
  return made;
}

/// Does the work of all ranks. `count` is that of NCCL's function.
void finish(const collective& all, kind which, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
            int root) {
  const std::size_t bytes = count * bytes_of(type);
  if (bytes == 0) {
    return;
  }
  std::vector<std::vector<char>> results;
  for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
    switch (which) {
      case kind::all_reduce:
        results.push_back(reduced(all.ranks, 0, count, type, operation));
        break;
      case kind::reduce_scatter:
        results.push_back(reduced(all.ranks, rank * count, count, type, operation));
        break;
      case kind::broadcast: {
        const auto* const from = static_cast<const char*>(all.ranks[static_cast<std::size_t>(root)].input);
        results.emplace_back(from, from + bytes);
        break;
      }
      case kind::all_gather:
        results.emplace_back();
        for (const contribution& each : all.ranks) {
          const auto* const from = static_cast<const char*>(each.input);
          results.back().insert(results.back().end(), from, from + bytes);
        }
    }
  }
  for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
    std::memcpy(all.ranks[rank].output, results[rank].data(), results[rank].size());
  }
}

ncclResult_t begin(kind which, const void* input, void* output, std::size_t count, ncclDataType_t type,
                   ncclRedOp_t operation, int root, ncclComm_t communicator, cudaStream_t stream) {
  emulation::enqueue_waiting(
      stream, [=, ranks = communicator->ranks, aborted = communicator->aborted, rank = communicator->rank,
               number = communicator->begun++, here = false]() mutable {
        const std::scoped_lock held{all_worlds};
        if (*aborted) {
          return true;
        }
        collective& all = ranks->collectives[number];
        if (!here) {
          here = true;
          all.ranks.resize(static_cast<std::size_t>(ranks->size));
          all.ranks[static_cast<std::size_t>(rank)] = {input, output};
          if (++all.arrived == ranks->size) {
            finish(all, which, count, type, operation, root);
            all.done = true;
          }
        }
        return all.done;
      });
  return ncclInProgress;
}

ncclResult_t add(bool sends, const void* from, void* to, std::size_t count, ncclDataType_t type, int peer,
                 ncclComm_t communicator, cudaStream_t stream) {
  auto what = std::make_shared<message>();
  what->from = from;
  what->to = to;
  what->bytes = count * bytes_of(type);
  group.push_back({communicator, std::move(what),
                   sends ? std::pair{communicator->rank, peer} : std::pair{peer, communicator->rank}, sends, stream});
  return ncclSuccess;
}

/// Copies what has met.
void match(world& ranks, const std::pair<int, int>& way) {
  auto& sent = ranks.sent[way];
  auto& awaited = ranks.awaited[way];
  while (!sent.empty() && !awaited.empty()) {
    if (const std::size_t bytes = std::min(sent.front()->bytes, awaited.front()->bytes); bytes != 0) {
      std::memcpy(awaited.front()->to, sent.front()->from, bytes);
    }
    sent.front()->done = awaited.front()->done = true;
    sent.pop_front();
    awaited.pop_front();
  }
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  const std::scoped_lock held{all_worlds};
  std::memset(id, 0, sizeof(*id));
  ++made;
  std::memcpy(id, &made, sizeof(made));
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the emulation";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  const std::scoped_lock held{all_worlds};
  std::shared_ptr<world>& entry = worlds[std::string(id.internal, sizeof(id.internal))];
  if (entry == nullptr) {
    entry = std::make_shared<world>();
    entry->size = size;
  }
  *communicator = join(entry, rank);
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  const std::scoped_lock held{all_worlds};
  division& parts = communicator->ranks->divisions[communicator->splits++];
  *made = nullptr;
  if (color != NCCL_SPLIT_NOCOLOR) {
    std::shared_ptr<world>& entry = parts.of_color[color];
    if (entry == nullptr) {
      entry = std::make_shared<world>();
      entry->divided = false;
    }
    ++entry->size;
    entry->keys.push_back(key);
    *made = join(entry, key);
  }
  if (++parts.arrived == communicator->ranks->size) {
    for (auto& [each, part] : parts.of_color) {
      std::ranges::sort(part->keys);
      for (int rank = 0; rank < part->size; ++rank) {
        if (part->keys[static_cast<std::size_t>(rank)] != rank) {  // here the keys are the ranks
          return ncclInvalidArgument;
        }
      }
      part->divided = true;
    }
  }
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* result) {
  const std::scoped_lock held{all_worlds};
  *result = communicator->ranks->complete() ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  const std::scoped_lock held{all_worlds};
  *communicator->aborted = true;
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return begin(kind::all_reduce, input, output, count, type, operation, 0, communicator, stream);
}
ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return begin(kind::broadcast, input, output, count, type, ncclSum, root, communicator, stream);
}
ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return begin(kind::reduce_scatter, input, output, count, type, operation, 0, communicator, stream);
}
ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return begin(kind::all_gather, input, output, count, type, ncclSum, 0, communicator, stream);
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(true, from, nullptr, count, type, peer, communicator, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(false, nullptr, to, count, type, peer, communicator, stream);
}
ncclResult_t ncclGroupStart() {
  group.clear();
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.empty()) {
    return ncclSuccess;
  }
  const ncclComm_t communicator = group.front().communicator;
  const cudaStream_t stream = group.front().stream;
  emulation::enqueue_waiting(stream, [messages = std::move(group), ranks = communicator->ranks,
                                      aborted = communicator->aborted, here = false]() mutable {
    const std::scoped_lock held{all_worlds};
    if (*aborted) {
      return true;
    }
    for (const grouped_message& each : messages) {
      if (!here) {
        (each.sends ? ranks->sent : ranks->awaited)[each.way].push_back(each.what);
        match(*ranks, each.way);
      }
    }
    here = true;
    return std::ranges::all_of(messages, [](const grouped_message& each) { return each.what->done; });
  });
  group.clear();
  return ncclInProgress;
}

}  // extern "C"
