// SPDX-License-Identifier: BSL-1.0
//
// A file system in memory that records what is done to it, and knows every state in which a crash may leave it.
#pragma once

#include <algorithm>    // std::copy, std::copy_n, std::max, std::min
#include <cerrno>       // EBADF, EEXIST, EIO, ENOENT, EWOULDBLOCK
#include <cstddef>      // std::byte, std::ptrdiff_t, std::size_t
#include <cstdint>      // std::int64_t, std::uint64_t, std::uintptr_t
#include <functional>   // std::function
#include <map>          // std::map
#include <mutex>        // std::lock_guard, std::mutex
#include <set>          // std::set
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/file_system.hpp"

namespace gradus_test {

namespace io = gradus::io;
using file_bytes = std::vector<std::byte>;

/// What happened to a disk. Files are numbered in the order in which they were made.
struct disk_operation {
  enum class kind { create, write, resize, sync, sync_folder, rename, remove, mark };
  kind what{};
  std::size_t file = 0;      // create, write, resize, sync; rename: what gets the name
  int descriptor = 0;        // who writes and syncs
  std::uint64_t offset = 0;  // write; resize: the size; mark: its number
  file_bytes bytes = {};     // write
  std::string path = {};     // create, sync_folder, rename: from, remove
  std::string to = {};       // rename
};

/// Files in memory. Names are those of one folder or of several; folders need not be made.
class simulated_disk final : public io::file_system {
 public:
  /// Syncs that this returns true for do nothing, as on a disk without them. It gets the number of the sync, from 0,
  /// and whether the descriptor is the one that made the file.
  std::function<bool(int number, bool of_maker)> ignores_sync;
  /// The time of its clock, in seconds.
  std::int64_t now = 1'000'000;
  std::int64_t user = -1;  // whose all files are
  /// What was done.
  std::vector<disk_operation> log;

  int open(const std::string& path, io::open_mode mode) override {
    const std::lock_guard lock{mutex_};
    const auto found = names_.find(path);
    if (mode == io::open_mode::create) {
      if (found != names_.end()) {
        return -EEXIST;
      }
      files_.push_back({.modified = now});
      names_[path] = files_.size() - 1;
      const int descriptor = add(files_.size() - 1);
      makers_.insert(descriptor);
      log.push_back({.what = disk_operation::kind::create, .file = files_.size() - 1, .path = path});
      return descriptor;
    }
    return found == names_.end() ? -ENOENT : add(found->second);
  }
  int close(int file) override {
    const std::lock_guard lock{mutex_};
    for (auto& each : files_) {
      each.locked_by = each.locked_by == file ? -1 : each.locked_by;
    }
    return open_.erase(file) == 1 ? 0 : -EBADF;
  }
  std::int64_t write(int file, std::span<const std::byte> bytes, std::uint64_t offset) override {
    const std::lock_guard lock{mutex_};
    content& at = files_.at(open_.at(file));
    at.bytes.resize(std::max<std::size_t>(at.bytes.size(), offset + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), at.bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    at.modified = now;
    log.push_back({.what = disk_operation::kind::write,
                   .file = open_.at(file),
                   .descriptor = file,
                   .offset = offset,
                   .bytes = {bytes.begin(), bytes.end()}});
    return static_cast<std::int64_t>(bytes.size());
  }
  std::int64_t read(int file, std::span<std::byte> bytes, std::uint64_t offset) override {
    const std::lock_guard lock{mutex_};
    const file_bytes& from = files_.at(open_.at(file)).bytes;
    if (offset >= from.size()) {
      return 0;
    }
    const std::size_t size = std::min<std::size_t>(bytes.size(), from.size() - offset);
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(offset), size, bytes.begin());
    return static_cast<std::int64_t>(size);
  }
  int resize(int file, std::uint64_t size) override {
    const std::lock_guard lock{mutex_};
    files_.at(open_.at(file)).bytes.resize(size);
    log.push_back({.what = disk_operation::kind::resize, .file = open_.at(file), .descriptor = file, .offset = size});
    return 0;
  }
  int sync(int file) override {
    const std::lock_guard lock{mutex_};
    if (!ignored(makers_.contains(file))) {
      log.push_back({.what = disk_operation::kind::sync, .file = open_.at(file), .descriptor = file});
    }
    return 0;
  }
  int sync_folder(const std::string& path) override {
    const std::lock_guard lock{mutex_};
    if (!ignored(true)) {
      log.push_back({.what = disk_operation::kind::sync_folder, .path = path});
    }
    return 0;
  }
  int lock(int file) override {
    const std::lock_guard lock{mutex_};
    int& owner = files_.at(open_.at(file)).locked_by;
    if (owner != -1 && owner != file) {
      return -EWOULDBLOCK;
    }
    owner = file;
    return 0;
  }
  int rename(const std::string& from, const std::string& to, bool replace) override {
    const std::lock_guard lock{mutex_};
    if (!names_.contains(from)) {
      return -ENOENT;
    }
    if (!replace && names_.contains(to)) {
      return -EEXIST;
    }
    const std::size_t file = names_[from];
    names_[to] = file;
    names_.erase(from);
    log.push_back({.what = disk_operation::kind::rename, .file = file, .path = from, .to = to});
    return 0;
  }
  int remove(const std::string& path) override {
    const std::lock_guard lock{mutex_};
    if (names_.erase(path) == 0) {
      return -ENOENT;
    }
    log.push_back({.what = disk_operation::kind::remove, .path = path});
    return 0;
  }
  int status(int file, io::file_status& into) override {
    const std::lock_guard lock{mutex_};
    into = status_of(open_.at(file));
    return 0;
  }
  int status(const std::string& path, io::file_status& into) override {
    const std::lock_guard lock{mutex_};
    const auto found = names_.find(path);
    if (found == names_.end()) {
      return -ENOENT;
    }
    into = status_of(found->second);
    return 0;
  }
  int list(const std::string& folder, std::vector<std::string>& into) override {
    const std::lock_guard lock{mutex_};
    into.clear();
    for (const auto& [path, file] : names_) {
      const std::size_t slash = path.rfind('/');
      if (path.substr(0, slash) == folder) {
        into.push_back(path.substr(slash + 1));
      }
    }
    return 0;
  }
  int make_folder(const std::string&) override { return 0; }
  std::int64_t free_bytes(const std::string&) override { return 12345; }

  /// Notes in the log that something is complete.
  void mark(std::uint64_t number) {
    const std::lock_guard lock{mutex_};
    log.push_back({.what = disk_operation::kind::mark, .offset = number});
  }
  /// The paths of all files.
  [[nodiscard]] std::vector<std::string> paths() const {
    std::vector<std::string> found;
    for (const auto& [path, file] : names_) {
      found.push_back(path);
    }
    return found;
  }
  /// The bytes of a file, to read and to damage.
  [[nodiscard]] file_bytes& at(const std::string& path) { return files_[names_.at(path)].bytes; }
  /// Puts a file there, without a note in the log.
  void put(const std::string& path, file_bytes bytes) {
    files_.push_back({.bytes = std::move(bytes), .modified = now});
    names_[path] = files_.size() - 1;
  }
  /// The number of files that are open.
  [[nodiscard]] std::size_t open_files() const { return open_.size(); }

 private:
  struct content {
    file_bytes bytes = {};
    std::int64_t modified = 0;
    int locked_by = -1;
  };
  [[nodiscard]] io::file_status status_of(std::size_t file) const {
    const content& of = files_.at(file);
    return {.regular = true,
            .size = of.bytes.size(),
            .modified = of.modified,
            .device = reinterpret_cast<std::uintptr_t>(this),
            .number = file,
            .owner = user};
  }
  int add(std::size_t file) {
    open_[++last_descriptor_] = file;
    return last_descriptor_;
  }
  bool ignored(bool of_maker) { return ignores_sync && ignores_sync(syncs_++, of_maker); }

  std::mutex mutex_;
  std::map<std::string, std::size_t> names_;
  std::vector<content> files_;
  std::map<int, std::size_t> open_;
  std::set<int> makers_;  // descriptors that made their file
  int last_descriptor_ = 2;
  int syncs_ = 0;
};

/// The states in which a crash after the first operations of a log may leave a disk.
///
/// A sync of a file keeps what was written by the same descriptor: ranks on other machines sync their own. A sync of a
/// folder keeps its entries. Of everything else, any part may be lost: each write, or its second half, and each change
/// of a name.
class crash_states {
 public:
  crash_states(std::span<const disk_operation> log, std::size_t count) {
    using kind = disk_operation::kind;
    for (const disk_operation& each : log.first(count)) {
      switch (each.what) {
        case kind::create:
          files_.resize(std::max(files_.size(), each.file + 1));
          names_.push_back(&each);
          break;
        case kind::write:
        case kind::resize:
          files_[each.file].push_back({&each, false});
          break;
        case kind::sync:
          for (change& of : files_[each.file]) {
            of.durable = of.durable || of.what->descriptor == each.descriptor;
          }
          break;
        case kind::sync_folder:
          durable_names_ = names_.size();
          break;
        case kind::rename:
        case kind::remove:
          names_.push_back(&each);
          break;
        case kind::mark:
          last_mark_ = each.offset;
      }
    }
  }

  /// The number of the last mark before the crash; 0 if there is none.
  [[nodiscard]] std::uint64_t last_mark() const { return last_mark_; }

  /// Calls function(disk) for each state.
  /// @param is_read  returns true for the paths of files that are read; those of others are empty
  template <class Function>
  void for_each(
      const Function& function, const std::function<bool(std::string_view path)>& is_read = [](std::string_view path) {
        return path.ends_with(".safetensors");
      }) const {
    const std::size_t open = names_.size() - durable_names_;
    for_each_subset(open, [&](const std::vector<bool>& kept) {
      std::map<std::string, std::size_t> names;
      for (std::size_t i = 0; i < names_.size(); ++i) {
        if (i < durable_names_ || kept[i - durable_names_]) {
          apply(*names_[i], names);
        }
      }
      std::set<std::size_t> visible;
      for (const auto& [path, file] : names) {
        if (is_read(path)) {
          visible.insert(file);
        }
      }
      with_contents(names, {visible.begin(), visible.end()}, {}, function);
    });
  }

 private:
  struct change {
    const disk_operation* what;
    bool durable;
  };

  static void apply(const disk_operation& each, std::map<std::string, std::size_t>& names) {
    if (each.what == disk_operation::kind::create) {
      names[each.path] = each.file;
    } else {
      names.erase(each.path);
      if (each.what == disk_operation::kind::rename) {
        names[each.to] = each.file;
      }
    }
  }

  /// All subsets of a small set; of a larger one those that lack or have one element, and the first elements.
  template <class Function>
  static void for_each_subset(std::size_t size, const Function& function) {
    std::vector<bool> kept(size);
    if (size <= 8) {
      for (std::size_t bits = 0; bits < std::size_t{1} << size; ++bits) {
        for (std::size_t i = 0; i < size; ++i) {
          kept[i] = (bits >> i & 1U) != 0;
        }
        function(kept);
      }
      return;
    }
    for (const bool usual : {false, true}) {
      for (std::size_t other = 0; other <= size; ++other) {
        for (std::size_t i = 0; i < size; ++i) {
          kept[i] = (i == other) != usual;
        }
        function(kept);
      }
    }
    for (std::size_t first = 1; first < size; ++first) {
      for (std::size_t i = 0; i < size; ++i) {
        kept[i] = i < first;
      }
      function(kept);
    }
  }

  /// Goes through the states of the first of `files`, and for each of these through those of the others.
  template <class Function>
  void with_contents(const std::map<std::string, std::size_t>& names, std::vector<std::size_t> files,
                     std::map<std::size_t, file_bytes> contents, const Function& function) const {
    if (files.empty()) {
      simulated_disk disk;
      for (const auto& [path, file] : names) {
        const auto found = contents.find(file);
        disk.put(path, found == contents.end() ? file_bytes{} : found->second);
      }
      function(disk);
      return;
    }
    const std::size_t file = files.back();
    files.pop_back();
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < files_[file].size(); ++i) {
      if (!files_[file][i].durable) {
        open.push_back(i);
      }
    }
    const auto with = [&](const std::vector<bool>& kept, std::size_t torn) {
      file_bytes bytes;
      std::size_t next = 0;
      for (std::size_t i = 0; i < files_[file].size(); ++i) {
        const change& each = files_[file][i];
        const bool is_open = next < open.size() && open[next] == i;
        const std::size_t index = is_open ? next++ : open.size();
        if (is_open && !kept[index]) {
          continue;
        }
        if (each.what->what == disk_operation::kind::resize) {
          bytes.resize(each.what->offset);
        } else {
          const std::size_t size = each.what->bytes.size() / (is_open && index == torn ? 2 : 1);
          bytes.resize(std::max<std::size_t>(bytes.size(), each.what->offset + size));
          std::copy_n(each.what->bytes.begin(), size, bytes.begin() + static_cast<std::ptrdiff_t>(each.what->offset));
        }
      }
      contents[file] = std::move(bytes);
      with_contents(names, files, contents, function);
    };
    for_each_subset(open.size(), [&](const std::vector<bool>& kept) { with(kept, open.size()); });
    for (std::size_t torn = 0; torn < open.size(); ++torn) {
      with(std::vector<bool>(open.size(), true), torn);
    }
  }

  std::vector<std::vector<change>> files_;    // writes of each file, in order
  std::vector<const disk_operation*> names_;  // changes of names, in order
  std::size_t durable_names_ = 0;             // of them
  std::uint64_t last_mark_ = 0;
};

/// Passes calls on to another file system, and lets one of them fail.
class faulty_disk final : public io::file_system {
 public:
  /// How a call fails.
  struct fault {
    int errno_value = EIO;    // what it reports; 0: a short transfer of one byte
    bool performed = false;   // it does its work all the same
    bool repeated = false;    // all later calls of the kind fail too
    std::string_view only{};  // the kind of call that counts; empty: all
  };

  /// Nothing fails before `arm`.
  explicit faulty_disk(io::file_system& files) : files_{files} {}

  /// From now on call `k`, from 0, fails.
  void arm(int k, fault how) {
    const std::lock_guard lock{mutex_};
    left_ = k;
    how_ = how;
    failed_call_.clear();
    armed_ = true;
  }
  /// Nothing fails any more.
  void disarm() {
    const std::lock_guard lock{mutex_};
    armed_ = false;
  }
  /// True if the call was there.
  [[nodiscard]] bool failed() const { return !failed_call_.empty(); }
  /// Its name.
  [[nodiscard]] const std::string& failed_call() const { return failed_call_; }
  /// The path that it got; empty for a call of an open file.
  [[nodiscard]] const std::string& failed_path() const { return failed_path_; }

  int open(const std::string& path, io::open_mode mode) override {
    const std::string_view name = mode == io::open_mode::create  ? "create"
                                  : mode == io::open_mode::write ? "open"
                                                                 : "open to read";
    return call(name, path, [&] { return files_.open(path, mode); });
  }
  int close(int file) override {
    return call(
        "close", {}, [&] { return files_.close(file); }, true);
  }
  std::int64_t write(int file, std::span<const std::byte> bytes, std::uint64_t offset) override {
    return transfer("pwrite", bytes, [&](auto part) { return files_.write(file, part, offset); });
  }
  std::int64_t read(int file, std::span<std::byte> bytes, std::uint64_t offset) override {
    return transfer("pread", bytes, [&](auto part) { return files_.read(file, part, offset); });
  }
  int resize(int file, std::uint64_t size) override {
    return call("ftruncate", {}, [&] { return files_.resize(file, size); });
  }
  int sync(int file) override {
    return call("fsync", {}, [&] { return files_.sync(file); });
  }
  int sync_folder(const std::string& path) override {
    return call("fsync of the folder", path, [&] { return files_.sync_folder(path); });
  }
  int lock(int file) override {
    return call("flock", {}, [&] { return files_.lock(file); });
  }
  int rename(const std::string& from, const std::string& to, bool replace) override {
    return call("rename", from, [&] { return files_.rename(from, to, replace); });
  }
  int remove(const std::string& path) override {
    return call("unlink", path, [&] { return files_.remove(path); });
  }
  int status(int file, io::file_status& into) override {
    return call("fstat", {}, [&] { return files_.status(file, into); });
  }
  int status(const std::string& path, io::file_status& into) override {
    return call("lstat", path, [&] { return files_.status(path, into); });
  }
  int list(const std::string& folder, std::vector<std::string>& into) override {
    return call("list", folder, [&] { return files_.list(folder, into); });
  }
  int make_folder(const std::string& path) override {
    return call("mkdir", path, [&] { return files_.make_folder(path); });
  }
  std::int64_t free_bytes(const std::string& folder) override { return files_.free_bytes(folder); }

 private:
  bool fails(std::string_view name, const std::string& path) {
    const std::lock_guard lock{mutex_};
    if (!armed_ || (!how_.only.empty() && how_.only != name)) {
      return false;
    }
    const int number = left_--;
    if (number == 0) {
      failed_call_ = name;
      failed_path_ = path;
    }
    return number == 0 || (how_.repeated && number < 0 && failed_call_ == name);
  }
  template <class Call>
  int call(std::string_view name, const std::string& path, const Call& perform, bool always = false) {
    if (!fails(name, path) || how_.errno_value == 0) {
      return perform();
    }
    if (how_.performed || always) {
      const int result = perform();
      if (result > 0) {
        files_.close(result);  // of an open that reports a failure
      }
    }
    return -how_.errno_value;
  }
  template <class Bytes, class Call>
  std::int64_t transfer(std::string_view name, Bytes bytes, const Call& perform) {
    if (!fails(name, {})) {
      return perform(bytes);
    }
    if (how_.errno_value == 0) {
      return perform(bytes.first(std::min<std::size_t>(bytes.size(), 1)));
    }
    if (how_.performed) {
      (void)perform(bytes);
    }
    return -how_.errno_value;
  }

  io::file_system& files_;
  std::mutex mutex_;
  bool armed_ = false;
  int left_ = 0;
  fault how_;
  std::string failed_call_;
  std::string failed_path_;
};

}  // namespace gradus_test
