// SPDX-License-Identifier: BSL-1.0
//
// An NCCL communicator and its communications under way: submitted to a stream, waited for by events.
#pragma once

#include <cuda_runtime_api.h>  // cudaEventQuery, cudaMallocAsync, cudaMemcpyAsync, cudaPointerGetAttributes
#include <nccl.h>              // ncclComm_t

#include <algorithm>        // std::sort
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstring>          // std::memcpy
#include <exception>        // std::uncaught_exceptions
#include <memory>           // std::make_unique, std::shared_ptr, std::unique_ptr
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move
#include <vector>           // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/nccl/host_link.hpp"
#include "gradus/comm/detail/request/poll.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_memory.cuh"
#include "gradus/device/cuda_stream.cuh"

namespace gradus::comm::detail {

class nccl_channel;

/// GPU memory for a caller's buffer: the buffer itself if it is on the GPU, otherwise a copy.
struct nccl_buffer {
  void* data = nullptr;    // the memory that NCCL uses
  void* caller = nullptr;  // the caller's buffer
  std::size_t bytes = 0;
  void* staged = nullptr;  // page-locked memory for the copy to or from the caller's buffer
  bool copies_back = false;
};

/// A communication under way; an event of the channel's stream marks its end.
class nccl_operation final : public operation {
 public:
  explicit nccl_operation(nccl_channel& channel) : channel_{&channel} {}

  void open(const call_description& what, std::chrono::milliseconds limit) {
    what_ = what;
    limit_ = limit;
    buffers_.clear();
  }

  [[nodiscard]] const call_description& what() const noexcept { return what_; }
  [[nodiscard]] std::chrono::milliseconds limit() const noexcept { return limit_; }
  [[nodiscard]] dynamic_array<nccl_buffer>& buffers() noexcept { return buffers_; }
  [[nodiscard]] const cuda_event& end() const noexcept { return end_; }

  /// Page-locked memory for the next buffer. A copy from or to other host memory would wait for the stream, and so for
  /// other ranks.
  [[nodiscard]] void* staging(std::size_t bytes) {
    const std::size_t slot = buffers_.size();
    if (slot == staging_.size()) {
      staging_.emplace_back();
    }
    if (staging_[slot].size() < bytes) {
      staging_[slot] = pinned_memory{bytes};
    }
    return staging_[slot].data();
  }

  bool test(const std::source_location& where) override;
  void wait(const std::source_location& where) override;
  void abandon(bool unwinding) noexcept override;
  void release() noexcept override;

 private:
  /// Ends the communication: copies results to the callers' buffers.
  bool deliver() noexcept {
    for (const nccl_buffer& each : buffers_) {
      if (each.copies_back) {
        std::memcpy(each.caller, each.staged, each.bytes);
      }
    }
    return true;
  }

  nccl_channel* channel_;
  call_description what_{};
  std::chrono::milliseconds limit_{};
  cuda_event end_;
  dynamic_array<nccl_buffer> buffers_;
  dynamic_array<pinned_memory> staging_;
};

/// A message that is begun but not submitted yet.
struct nccl_message {
  nccl_operation* operation = nullptr;
  bool sends = false;
  int peer = 0;
  ncclDataType_t type = ncclUint8;
};

/// An NCCL communicator, its stream, and the operations under way on it.
class nccl_channel {
 public:
  /// Takes over the communicator, which may still be connecting.
  /// @param names  of all ranks in errors
  nccl_channel(cuda& device, std::shared_ptr<host_link> notices, ncclComm_t communicator, int rank,
               std::vector<int> names)
      : device_{&device},
        notices_{std::move(notices)},
        communicator_{communicator},
        rank_{rank},
        names_{std::move(names)} {}

  nccl_channel(const nccl_channel&) = delete;
  nccl_channel& operator=(const nccl_channel&) = delete;

  ~nccl_channel() {
    if (communicator_ == nullptr) {
      return;
    }
    static_cast<void>(cudaSetDevice(device_->index()));
    // ncclCommDestroy waits for the other ranks, which may never arrive after a failure; ncclCommAbort does not.
    if (notices_->failed() || std::uncaught_exceptions() > 0) {
      static_cast<void>(ncclCommAbort(communicator_));
    } else {
      static_cast<void>(ncclCommDestroy(communicator_));
    }
  }

  [[nodiscard]] cuda& device() const noexcept { return *device_; }
  [[nodiscard]] const std::shared_ptr<host_link>& notices() const noexcept { return notices_; }
  [[nodiscard]] ncclComm_t communicator() const noexcept { return communicator_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(names_.size()); }
  [[nodiscard]] const std::vector<int>& names() const noexcept { return names_; }
  [[nodiscard]] int name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }

  /// An operation that has not begun. Nothing is allocated if one is idle.
  nccl_operation& fresh(const call_description& what, std::chrono::milliseconds limit,
                        const std::source_location& where = std::source_location::current()) {
    if (notices_->look()) {
      abort();
      notices_->raise(what.describe(), where);
    }
    if (idle_.empty()) {
      device_->activate();  // its event belongs to the GPU, and a new thread may have another current GPU
      all_.push_back(std::make_unique<nccl_operation>(*this));
      idle_.push_back(all_.back().get());
    }
    nccl_operation& operation = *idle_.back();
    idle_.pop_back();
    operation.open(what, limit);
    return operation;
  }
  void give_back(nccl_operation& operation) { idle_.push_back(&operation); }

  /// GPU memory for a caller's buffer: host memory is copied to the GPU, and back if it is `written`.
  void* lend(nccl_operation& operation, const void* caller, std::size_t bytes, bool read, bool written) {
    if (bytes == 0) {
      return const_cast<void*>(caller);
    }
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, caller), "cudaPointerGetAttributes");
    nccl_buffer buffer{.data = const_cast<void*>(caller),
                       .caller = const_cast<void*>(caller),
                       .bytes = bytes,
                       .staged = nullptr,
                       .copies_back = false};
    if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
      buffer.staged = operation.staging(bytes);
      check_cuda(cudaMallocAsync(&buffer.data, bytes, stream()), "cudaMallocAsync");
      buffer.copies_back = written;
      if (read) {
        std::memcpy(buffer.staged, caller, bytes);
        check_cuda(cudaMemcpyAsync(buffer.data, buffer.staged, bytes, cudaMemcpyHostToDevice, stream()),
                   "cudaMemcpyAsync");
      }
    }
    operation.buffers().push_back(buffer);
    return buffer.data;
  }

  /// Makes the GPU the current one, and lets the stream continue after the current work of the device.
  void enter() {
    device_->activate();
    begin_.record(device_->stream());
    stream_.wait(begin_);
  }

  /// Calls work(), which submits work to NCCL, and waits until NCCL has put it on the stream.
  template <class Work>
  void launch(nccl_operation& operation, const Work& work) {
    try {
      settle(work(), operation.what(), operation.limit(), std::source_location::current());
      mark_end(operation);
    } catch (const error& failure) {
      give_up(failure.message());
      throw;
    }
  }

  /// Adds a message that is submitted together with others.
  void add_message(const nccl_message& message) { messages_.push_back(message); }

  /// Submits the added messages as one group; those of a pair of ranks in the order of their tags.
  void launch_messages() {
    if (messages_.empty()) {
      return;
    }
    dynamic_array<nccl_message> messages;
    std::swap(messages, messages_);
    stable_sort_by_tag(messages);
    const nccl_operation& last = *messages.back().operation;
    try {
      device_->activate();
      settle(submit(messages), last.what(), last.limit(), std::source_location::current());
      for (const nccl_message& each : messages) {
        mark_end(*each.operation);
      }
    } catch (const error& failure) {
      give_up(failure.message());
      throw;
    }
  }

  /// Waits until NCCL has finished its work outside of the stream.
  /// @throws communication_error if it failed, a rank failed, or the time limit is over
  void settle(ncclResult_t result, const call_description& what, std::chrono::milliseconds limit,
              const std::source_location& where) {
    constexpr int spins = 100;
    poll_until_complete(
        spins, limit,
        [&, this] {
          if (result == ncclInProgress) {
            if (notices_->look()) {
              abort();
              notices_->raise(what.describe(), where);
            }
            const ncclResult_t query = ncclCommGetAsyncError(communicator_, &result);
            result = query == ncclSuccess ? result : query;
          }
          return result == ncclInProgress ? poll_result::nothing : poll_result::complete;
        },
        [](unsigned) {}, [&, this] { raise_time_limit(what, limit, where); });
    if (result != ncclSuccess) {
      raise_nccl(result, what, where);
    }
  }

  /// Polls for errors of NCCL and of the other ranks. @throws communication_error
  void look(const call_description& what, const std::source_location& where) {
    if (notices_->look()) {
      abort();
      notices_->raise(what.describe(), where);
    }
    ncclResult_t result = ncclSuccess;
    const ncclResult_t query = ncclCommGetAsyncError(communicator_, &result);
    if (query != ncclSuccess || (result != ncclSuccess && result != ncclInProgress)) {
      raise_nccl(query != ncclSuccess ? query : result, what, where);
    }
  }

  /// After another rank has failed: true if an operation that can complete does so soon. A rank that is done and leaves
  /// is a failure too, and its notice may arrive before the end of the last operation.
  [[nodiscard]] bool completes(const nccl_operation& operation) {
    constexpr int spins = 100;
    return communicator_ != nullptr && poll_for(
                                           reason_grace, [&] { return reached(operation); }, spins);
  }

  [[noreturn]] void raise_time_limit(const call_description& what, std::chrono::milliseconds limit,
                                     const std::source_location& where) {
    dynamic_array<int> others;
    for (int other = 0; other < size(); ++other) {
      if (other != rank_) {
        others.push_back(name_of(other));
      }
    }
    std::sort(others.begin(), others.end());
    const std::string reason = gradus::join({"not complete within ", seconds_text(limit)});
    give_up(gradus::join({what.describe(), ": ", reason}));
    gradus::raise<communication_error>(what.describe(), {"all ranks within ", seconds_text(limit)},
                                       {"no answer of one or more of ", ranks_text(others)},
                                       "check the output of the ranks; set NCCL_DEBUG=INFO for a log of NCCL", where);
  }

  /// This rank cannot continue: notifies the others, and ends the work on the stream.
  void give_up(std::string_view reason) noexcept {
    notices_->fail(reason);
    abort();
  }

  /// Ends the NCCL kernels that wait for other ranks.
  void abort() noexcept {
    messages_.clear();
    if (communicator_ != nullptr) {
      static_cast<void>(cudaSetDevice(device_->index()));
      static_cast<void>(ncclCommAbort(communicator_));
      communicator_ = nullptr;
      static_cast<void>(cudaStreamSynchronize(stream()));
    }
  }

  /// True if the work up to the end of an operation is done.
  [[nodiscard]] static bool reached(const nccl_operation& operation) {
    const cudaError_t status = cudaEventQuery(operation.end().get());
    if (status != cudaErrorNotReady) {
      check_cuda(status, "cudaEventQuery");
    }
    return status == cudaSuccess;
  }

 private:
  void mark_end(nccl_operation& operation) {
    for (const nccl_buffer& each : operation.buffers()) {
      if (each.copies_back) {
        check_cuda(cudaMemcpyAsync(each.staged, each.data, each.bytes, cudaMemcpyDeviceToHost, stream()),
                   "cudaMemcpyAsync");
      }
      if (each.staged != nullptr) {
        check_cuda(cudaFreeAsync(each.data, stream()), "cudaFreeAsync");
      }
    }
    operation.end().record(stream());
  }

  [[nodiscard]] ncclResult_t submit(const dynamic_array<nccl_message>& messages) {
    ncclResult_t first = ncclGroupStart();
    for (const nccl_message& each : messages) {
      void* const data = each.operation->buffers().empty() ? nullptr : each.operation->buffers()[0].data;
      const auto count = static_cast<std::size_t>(each.operation->what().count);
      const ncclResult_t result = each.sends ? ncclSend(data, count, each.type, each.peer, communicator_, stream())
                                             : ncclRecv(data, count, each.type, each.peer, communicator_, stream());
      first = first == ncclSuccess || first == ncclInProgress ? result : first;
    }
    const ncclResult_t end = ncclGroupEnd();
    return first == ncclSuccess || first == ncclInProgress ? end : first;
  }

  static void stable_sort_by_tag(dynamic_array<nccl_message>& messages) {
    for (std::size_t i = 1; i < messages.size(); ++i) {  // few messages, mostly in order
      for (std::size_t k = i; k > 0 && messages[k].operation->what().tag < messages[k - 1].operation->what().tag; --k) {
        std::swap(messages[k], messages[k - 1]);
      }
    }
  }

  [[noreturn]] void raise_nccl(ncclResult_t result, const call_description& what, const std::source_location& where) {
    const std::string said = communicator_ == nullptr ? "" : ncclGetLastError(communicator_);
    const std::string reason = gradus::join({ncclGetErrorString(result), said.empty() ? "" : ", ", said});
    give_up(gradus::join({what.describe(), ": ", reason}));
    gradus::raise<communication_error>(what.describe(), {}, {"NCCL: ", reason},
                                       "set NCCL_DEBUG=INFO in the environment for details from NCCL", where);
  }

  cuda* device_;
  std::shared_ptr<host_link> notices_;
  ncclComm_t communicator_;  // null after a failure
  int rank_;
  std::vector<int> names_;  // of all ranks
  cuda_stream stream_;
  cuda_event begin_;
  dynamic_array<nccl_message> messages_;
  dynamic_array<std::unique_ptr<nccl_operation>> all_;
  dynamic_array<nccl_operation*> idle_;
};

inline bool nccl_operation::test(const std::source_location& where) {
  channel_->launch_messages();
  if (channel_->communicator() != nullptr && nccl_channel::reached(*this)) {
    return deliver();
  }
  if (channel_->notices()->look() && channel_->completes(*this)) {
    return deliver();
  }
  channel_->look(what_, where);
  return false;
}

inline void nccl_operation::wait(const std::source_location& where) {
  constexpr int spins = 2000;
  poll_until_complete(
      spins, limit_, [&, this] { return test(where) ? poll_result::complete : poll_result::nothing; }, [](unsigned) {},
      [&, this] { channel_->raise_time_limit(what_, limit_, where); });
}

inline void nccl_operation::abandon(bool unwinding) noexcept {
  if (channel_->communicator() == nullptr) {
    return;
  }
  if (unwinding) {
    // NCCL cannot withdraw a single operation, so all operations of the communicator end.
    channel_->give_up(gradus::join({what_.describe(), " was left because of an exception"}));
    return;
  }
  try {
    wait(std::source_location::current());
  } catch (...) {  // the next operation reports it
  }
}

inline void nccl_operation::release() noexcept {
  try {
    channel_->give_back(*this);
  } catch (...) {  // without memory the operation is not reused
  }
}

}  // namespace gradus::comm::detail
