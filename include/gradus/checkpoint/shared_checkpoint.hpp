// SPDX-License-Identifier: BSL-1.0
//
// The newest valid checkpoint, found and read by all ranks together.
#pragma once

#include <algorithm>    // std::copy_n, std::find, std::max, std::min, std::unique
#include <cstddef>      // std::byte, std::ptrdiff_t, std::size_t
#include <cstdint>      // std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t
#include <exception>    // std::exception
#include <memory>       // std::unique_ptr
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/checkpoint/detail/file/exchange.hpp"
#include "gradus/checkpoint/detail/file/folder.hpp"
#include "gradus/checkpoint/detail/file/machine.hpp"
#include "gradus/checkpoint/reader.hpp"
#include "gradus/checkpoint/search.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/host_name.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"

namespace gradus::io {

/// Bytes of a tensor that a rank needs.
struct checkpoint_fetch {
  std::string_view tensor;    ///< its name
  std::uint64_t begin = 0;    ///< offset of the first byte in the tensor
  std::span<std::byte> into;  ///< host memory for them
};

/// The newest valid checkpoint of some folders, read by all ranks together. Their number may differ from that of the
/// ranks that wrote it. Equal paths may be different files on different machines: a checkpoint is found if one of the
/// ranks has it. The ranks of a machine compare the checksums of its file together, each of a share of the bytes. If
/// all ranks have a valid file of the same bytes, each reads what it needs; otherwise the first of those that have it
/// reads and broadcasts it, in pieces of 4 MiB.
class shared_checkpoint {
 public:
  /// Looks for it. All ranks call it, with the same number of folders, and get the same report. Paths may differ.
  /// @param group  must outlive the object
  /// @throws communication_error if a rank fails or does not call it in time
  shared_checkpoint(comm::link& group, std::span<const std::string> folders, file_system& files = operating_system(),
                    error_location where = error_location::current())
      : group_{group} {
    at_call(where, [&, this] { search(folders, files); });
  }

  /// What was found and skipped.
  [[nodiscard]] const checkpoint_report& report() const noexcept { return report_; }
  /// True if there is a valid checkpoint.
  [[nodiscard]] bool found() const noexcept { return report_.found(); }
  /// Its metadata and tensors. Empty unless found().
  [[nodiscard]] const safetensors_header& header() const noexcept { return header_; }
  /// True if each rank reads the file itself.
  [[nodiscard]] bool all_ranks_read() const noexcept { return all_read_; }
  /// The file of this rank, open and verified; its path may be another one than in the report. @pre all_ranks_read()
  [[nodiscard]] const checkpoint_reader& file() const noexcept { return *file_; }

  /// Reads ranges of tensors, others on each rank. All ranks call it, also those that need nothing.
  /// @throws configuration_error on all ranks if a tensor or a range of it does not exist
  /// @throws format_error on all ranks if a rank cannot read
  /// @throws communication_error if a rank fails or does not call it in time
  void fetch(std::span<const checkpoint_fetch> ranges, error_location where = error_location::current()) const {
    at_call(where, [&, this] {
      const std::string wrong = detail::first_of(detail::gather_texts(group_, what_is_wrong(ranges)));
      if (!wrong.empty()) {
        raise<configuration_error>("checkpoint fetch", {}, wrong);
      }
      std::string failed;
      if (all_read_) {
        failed = error_in([&, this] {
          for (const checkpoint_fetch& each : ranges) {
            file_->read(*header_.find(each.tensor), each.begin, each.into);
          }
        });
      } else {
        failed = broadcast(ranges);
      }
      const std::string error = detail::first_of(detail::gather_texts(group_, failed));
      if (!error.empty()) {
        raise<format_error>("checkpoint fetch", {}, error);
      }
    });
  }

 private:
  static constexpr std::uint64_t chunk_bytes = std::uint64_t{4} << 20U;

  template <class Step>
  static std::string error_in(const Step& step) {
    try {
      step();
      return {};
    } catch (const std::exception& failure) {
      return detail::reason_of(failure);
    }
  }

  /// What all ranks see in their folders; the same on all ranks.
  struct listing {
    std::vector<std::string> hosts;                                     // of the ranks
    std::vector<std::vector<std::string>> folders;                      // of the ranks
    std::vector<std::vector<detail::checkpoint_candidate>> candidates;  // of the ranks
    std::vector<detail::checkpoint_candidate> all;                      // sorted, each once
  };

  void search(std::span<const std::string> folders, file_system& files) {
    const listing there = list_together(folders, files);
    for (const detail::checkpoint_candidate& each : there.all) {
      if (try_candidate(each, there, folders, files)) {
        return;
      }
    }
  }

  listing list_together(std::span<const std::string> folders, file_system& files) {
    checkpoint_report listed;
    std::vector<detail::checkpoint_candidate> own;
    const std::string failed = error_in([&] { own = detail::checkpoint_candidates(folders, files, listed); });
    if (!failed.empty()) {
      listed.skipped.push_back({.path = "folders", .reason = failed});
    }
    std::string packed;
    detail::append_field(packed, host_name());
    detail::append_number(packed, folders.size());
    for (const std::string& each : folders) {
      detail::append_field(packed, each);
    }
    detail::append_number(packed, own.size());
    for (const detail::checkpoint_candidate& each : own) {
      detail::append_number(packed, static_cast<std::uint64_t>(each.step));
      detail::append_number(packed, each.folder);
    }
    for (const skipped_checkpoint& each : listed.skipped) {
      detail::append_field(packed, each.path);
      detail::append_field(packed, each.reason);
    }
    listing there;
    std::vector<std::vector<skipped_checkpoint>> unread;  // folders that cannot be read, of the ranks
    for (const std::string& of_rank : detail::gather_texts(group_, packed)) {
      std::string_view left = of_rank;
      there.hosts.push_back(detail::take_field(left));
      auto& paths = there.folders.emplace_back(detail::take_number(left));
      for (std::string& each : paths) {
        each = detail::take_field(left);
      }
      auto& candidates = there.candidates.emplace_back(detail::take_number(left));
      for (detail::checkpoint_candidate& each : candidates) {
        each.step = static_cast<std::int64_t>(detail::take_number(left));
        each.folder = detail::take_number(left);
      }
      there.all.insert(there.all.end(), candidates.begin(), candidates.end());
      auto& skipped = unread.emplace_back();
      while (!left.empty()) {
        std::string path = detail::take_field(left);
        skipped.push_back({.path = std::move(path), .reason = detail::take_field(left)});
      }
    }
    detail::sort_candidates(there.all);
    there.all.erase(std::unique(there.all.begin(), there.all.end()), there.all.end());
    skip(unread, there);
    return there;
  }

  /// Notes what ranks have skipped, what several have skipped for one reason once.
  /// @param of_rank  empty on ranks that have skipped nothing
  void skip(const std::vector<std::vector<skipped_checkpoint>>& of_rank, const listing& there) {
    std::vector<std::vector<std::size_t>> ranks;  // of each note
    const std::size_t before = report_.skipped.size();
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      for (const skipped_checkpoint& each : of_rank[rank]) {
        std::size_t i = before;
        while (i < report_.skipped.size() &&
               (report_.skipped[i].path != each.path || report_.skipped[i].reason != each.reason)) {
          ++i;
        }
        if (i == report_.skipped.size()) {
          report_.skipped.push_back(each);
          ranks.emplace_back();
        }
        ranks[i - before].push_back(rank);
      }
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      report_.skipped[before + i].node = ranks_text(ranks[i], there);
    }
  }

  /// "rank 2 on 'host'" for some ranks; empty for all.
  [[nodiscard]] static std::string ranks_text(const std::vector<std::size_t>& ranks, const listing& there) {
    if (ranks.size() == there.hosts.size()) {
      return {};
    }
    std::string text = detail::node_text(static_cast<int>(ranks[0]), there.hosts[ranks[0]]);
    if (ranks.size() > 1) {
      append_text(text, {" and ", ranks.size() - 1, " more"});
    }
    return text;
  }

  /// What a rank has of a candidate.
  struct found_file {
    bool open = false;
    std::string content;   // the same for files of equal bytes: the checksum of the header sums all the others
    std::string identity;  // the same for ranks that have one file open
    std::string wrong;     // why the file is not valid; empty if it is, or if there is none
    std::string owner;     // see checkpoint_report::owner
  };

  /// Takes the candidate if one of the ranks has a valid file. Returns that on all ranks.
  bool try_candidate(const detail::checkpoint_candidate& candidate, const listing& there,
                     std::span<const std::string> folders, file_system& files) {
    std::vector<found_file> found = open_together(candidate, there, folders, files);
    std::vector<std::string> tried;  // contents
    for (std::size_t rank = 0; rank < found.size() && !report_.found(); ++rank) {
      if (found[rank].open && std::find(tried.begin(), tried.end(), found[rank].content) == tried.end()) {
        tried.push_back(found[rank].content);
        compare_together(tried.back(), found);
        take(tried.back(), found, candidate, there);
      }
    }
    std::vector<std::vector<skipped_checkpoint>> skipped(found.size());
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      found_file& each = found[rank];
      if (report_.found() && each.open && each.content != tried.back()) {
        each.wrong = each.wrong.empty() ? "another checkpoint of this step was taken" : each.wrong;
      }
      if (!each.wrong.empty()) {
        skipped[rank].push_back({.path = candidate.path_among(there.folders[rank]), .reason = each.wrong});
      }
    }
    skip(skipped, there);
    const auto self = static_cast<std::size_t>(group_.rank());
    if (!report_.found() || !found[self].open || !found[self].wrong.empty()) {
      file_ = {};
    }
    if (report_.found()) {
      take_header();
    }
    return report_.found();
  }

  /// All ranks open the file of the candidate, also those that do not see its name: another one may have made it now.
  std::vector<found_file> open_together(const detail::checkpoint_candidate& candidate, const listing& there,
                                        std::span<const std::string> folders, file_system& files) {
    const auto& listed = there.candidates[static_cast<std::size_t>(group_.rank())];
    std::string text;
    if (candidate.folder < folders.size()) {
      const std::string failed =
          error_in([&, this] { file_ = detail::open_candidate(candidate.path_among(folders), files); });
      if (failed.empty()) {
        detail::append_field(text, join({file_->header().file_size(), " ", file_->header_checksum()}));
        detail::append_field(text, detail::file_identity(detail::machine_identity(), file_->status()));
        detail::append_field(text, "");
        detail::append_field(text, detail::other_owner_of(*file_, files));
      } else if (std::find(listed.begin(), listed.end(), candidate) != listed.end()) {
        detail::append_field(text, "");
        detail::append_field(text, "");
        detail::append_field(text, failed);
        detail::append_field(text, "");
      }
    }
    std::vector<found_file> found;
    for (const std::string& of_rank : detail::gather_texts(group_, text)) {
      found_file& each = found.emplace_back();
      if (std::string_view left = of_rank; !left.empty()) {
        each.content = detail::take_field(left);
        each.identity = detail::take_field(left);
        each.wrong = detail::take_field(left);
        each.owner = detail::take_field(left);
        each.open = each.wrong.empty();
      }
    }
    return found;
  }

  /// Compares the checksums of all files of this content. The ranks that have one file open share its bytes.
  void compare_together(const std::string& content, std::vector<found_file>& found) const {
    const auto self = static_cast<std::size_t>(group_.rank());
    const bool takes_part = found[self].open && found[self].content == content;
    std::vector<std::size_t> sharers;
    std::size_t index = 0;
    for (std::size_t rank = 0; takes_part && rank < found.size(); ++rank) {
      if (found[rank].open && found[rank].content == content && found[rank].identity == found[self].identity) {
        index = rank == self ? sharers.size() : index;
        sharers.push_back(rank);
      }
    }
    std::string sums{"K"};
    std::string failed;
    if (takes_part) {
      const std::uint64_t size = file_->header().buffer_size();
      const auto cut = [&](std::uint64_t before) { return gradus::detail::part_bound(size, sharers.size(), before); };
      failed = error_in([&, this] {
        for (const range_checksum& each : file_->checksums(cut(index), cut(index + 1))) {
          detail::append_number(sums, each.tensor);
          detail::append_number(sums, each.bytes);
          detail::append_number(sums, each.checksum);
        }
      });
    }
    const std::vector<std::string> of_rank = detail::gather_texts(group_, failed.empty() ? sums : join({"E", failed}));
    std::vector<range_checksum> all;
    for (const std::size_t rank : sharers) {
      if (of_rank[rank][0] == 'E') {
        failed = failed.empty() ? of_rank[rank].substr(1) : failed;
        continue;
      }
      for (std::string_view left = std::string_view{of_rank[rank]}.substr(1); !left.empty();) {
        range_checksum sum;
        sum.tensor = detail::take_number(left);
        sum.bytes = detail::take_number(left);
        sum.checksum = static_cast<std::uint32_t>(detail::take_number(left));
        all.push_back(sum);
      }
    }
    if (takes_part && failed.empty()) {
      failed = error_in([&, this] { file_->compare_checksums(all); });
    }
    const std::vector<std::string> wrong = detail::gather_texts(group_, failed);
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      if (found[rank].open && found[rank].content == content) {
        found[rank].wrong = wrong[rank];
      }
    }
  }

  /// Takes the files of this content if one of them is valid.
  void take(const std::string& content, const std::vector<found_file>& found,
            const detail::checkpoint_candidate& candidate, const listing& there) {
    std::vector<std::size_t> valid;
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      if (found[rank].open && found[rank].content == content && found[rank].wrong.empty()) {
        valid.push_back(rank);
      }
    }
    if (valid.empty()) {
      return;
    }
    source_ = static_cast<int>(valid[0]);
    all_read_ = valid.size() == found.size();
    report_.path = candidate.path_among(there.folders[valid[0]]);
    report_.step = candidate.step;
    report_.node = ranks_text(valid, there);
    for (const std::size_t rank : valid) {
      report_.owner = report_.owner.empty() ? found[rank].owner : report_.owner;
    }
  }

  /// The header of the source, on all ranks.
  void take_header() {
    if (file_ != nullptr) {
      header_ = file_->header();
    }
    if (all_read_) {
      return;
    }
    const bool reads = group_.rank() == source_;
    std::uint64_t sizes[] = {reads ? file_->header().file_size() : 0, reads ? file_->head().size() : 0};
    group_.broadcast(std::as_writable_bytes(std::span{sizes}), source_);
    std::string head{reads ? file_->head() : std::string_view{}};
    head.resize(sizes[1]);
    group_.broadcast(std::as_writable_bytes(std::span{head}), source_);
    header_ = read_safetensors_header(join({"read '", report_.path, "'"}),
                                      {reinterpret_cast<const std::uint8_t*>(head.data()), head.size()}, sizes[0]);
  }

  [[nodiscard]] std::string what_is_wrong(std::span<const checkpoint_fetch> ranges) const {
    if (!found()) {
      return "no checkpoint was found";
    }
    for (const checkpoint_fetch& each : ranges) {
      const safetensors_entry* const entry = header_.find(each.tensor);
      if (entry == nullptr) {
        return join({"'", report_.path, "' has no tensor '", each.tensor, "'"});
      }
      const std::uint64_t size = entry->end - entry->begin;
      if (each.begin > size || each.into.size() > size - each.begin) {
        return join({each.into.size(), " bytes from byte ", each.begin, " are not in the ", size, " bytes of '",
                     each.tensor, "'"});
      }
    }
    return {};
  }

  /// One rank reads the buffer in chunks, and every rank takes what it needs. All ranks go through all chunks, also
  /// after a failure.
  std::string broadcast(std::span<const checkpoint_fetch> ranges) const {
    std::string failed;
    std::vector<std::byte> chunk;
    for (const safetensors_entry& tensor : header_.tensors) {
      const std::uint64_t size = tensor.end - tensor.begin;
      for (std::uint64_t at = 0; at < size; at += chunk.size()) {
        chunk.resize(static_cast<std::size_t>(std::min(size - at, chunk_bytes)));
        if (group_.rank() == source_ && failed.empty()) {
          failed = error_in([&, this] { file_->read(tensor, at, chunk); });
        }
        group_.broadcast(chunk, source_);
        for (const checkpoint_fetch& each : ranges) {
          if (each.tensor != tensor.name) {
            continue;
          }
          const std::uint64_t begin = std::max(at, each.begin);
          const std::uint64_t end = std::min<std::uint64_t>(at + chunk.size(), each.begin + each.into.size());
          if (begin < end) {
            std::copy_n(chunk.begin() + static_cast<std::ptrdiff_t>(begin - at), end - begin,
                        each.into.begin() + static_cast<std::ptrdiff_t>(begin - each.begin));
          }
        }
      }
    }
    return failed;
  }

  comm::link& group_;
  checkpoint_report report_;
  safetensors_header header_;
  std::unique_ptr<checkpoint_reader> file_;  // if this rank's is valid
  int source_ = 0;                           // the first rank that has a valid file
  bool all_read_ = false;
};

}  // namespace gradus::io
