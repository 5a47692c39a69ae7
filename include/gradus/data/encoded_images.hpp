// SPDX-License-Identifier: BSL-1.0
//
// Encoded images with labels: the interface, and a folder with one folder of images per class.
#pragma once

#include <algorithm>     // std::find, std::sort
#include <cctype>        // std::tolower
#include <cstddef>       // std::size_t
#include <cstdint>       // std::int32_t, std::uint8_t, std::uint64_t, std::uintmax_t
#include <filesystem>    // std::filesystem::directory_iterator
#include <string>        // std::string
#include <system_error>  // std::error_code
#include <utility>       // std::move
#include <vector>        // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/data/byte_source.hpp"

namespace gradus::data {

/// A set of encoded images with labels. Any number of threads may read it.
class encoded_images {
 public:
  encoded_images() = default;
  encoded_images(const encoded_images&) = delete;
  encoded_images& operator=(const encoded_images&) = delete;
  virtual ~encoded_images() = default;

  /// The number of images.
  [[nodiscard]] virtual index_t size() const = 0;
  /// The number of classes.
  [[nodiscard]] virtual int classes() const = 0;
  /// The label of image i, in [0, classes()). @pre 0 <= i < size()
  [[nodiscard]] virtual std::int32_t label(index_t i) const = 0;
  /// The name of image i in messages, such as the path of its file. @pre 0 <= i < size()
  [[nodiscard]] virtual std::string name(index_t i) const = 0;
  /// Replaces `bytes` by the encoded image i. @pre 0 <= i < size()
  /// @throws format_error with the name of the image if it cannot be read
  virtual void read(index_t i, std::vector<std::uint8_t>& bytes) const = 0;
  /// A hash of names, sizes and labels, by which ranks check that they have the same set.
  [[nodiscard]] virtual std::uint64_t hash() const = 0;
};

/// A folder that contains one folder of image files per class, as for ImageNet's training images. Classes are numbered
/// in the order of their folders' names, images in the order of their names within a class. Only files with one of the
/// given endings are used, in lower or upper case. Folders inside the class folders are ignored.
class class_folders final : public encoded_images {
 public:
  /// @param endings  of file names, for example {".jpeg", ".jpg"}
  /// @throws format_error if the folder cannot be read or has no such image
  explicit class_folders(const std::string& folder, const std::vector<std::string>& endings = {".jpeg", ".jpg"},
                         error_location where = error_location::current()) try {
    namespace fs = std::filesystem;
    std::error_code failure;
    std::vector<fs::path> paths;
    for (fs::directory_iterator entry{folder, failure}, end; !failure && entry != end; entry.increment(failure)) {
      std::error_code ignored;
      if (entry->is_directory(ignored)) {
        paths.push_back(entry->path());
      }
    }
    if (failure) {
      gradus::raise<format_error>({"class_folders '", folder, "'"}, "a folder that can be read", failure.message());
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      std::vector<std::string> files;
      for (fs::directory_iterator entry{path, failure}, end; !failure && entry != end; entry.increment(failure)) {
        std::error_code ignored;
        if (ends_in_one_of(entry->path().extension().string(), endings) && !entry->is_directory(ignored)) {
          files.push_back(entry->path().string());
        }
      }
      if (failure) {
        gradus::raise<format_error>({"class_folders '", path.string(), "'"}, "a folder that can be read",
                                    failure.message());
      }
      if (files.empty()) {
        continue;  // not a class
      }
      std::sort(files.begin(), files.end());
      for (std::string& file : files) {
        std::error_code unknown;  // a file that cannot be read is reported when it is read
        const std::uintmax_t bytes = fs::file_size(file, unknown);
        for (const std::uint64_t each : {gradus::detail::hash_text(fs::path{file}.filename().string()),
                                         std::uint64_t{class_names_.size()}, std::uint64_t{bytes}}) {
          hash_ = gradus::detail::mix_bits(hash_ ^ each);
        }
        labels_.push_back(static_cast<std::int32_t>(class_names_.size()));
        files_.push_back(std::move(file));
      }
      class_names_.push_back(path.filename().string());
    }
    if (files_.empty()) {
      std::string known;
      for (const std::string& ending : endings) {
        known += (known.empty() ? "" : " or ") + ending;
      }
      gradus::raise<format_error>({"class_folders '", folder, "'"},
                                  {"a folder for each class with files that end in ", known},
                                  {paths.size(), " folders without any"});
    }
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The number of images.
  [[nodiscard]] index_t size() const override { return static_cast<index_t>(files_.size()); }
  /// The number of classes.
  [[nodiscard]] int classes() const override { return static_cast<int>(class_names_.size()); }
  /// The names of the folders, in the order of the labels.
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept { return class_names_; }
  [[nodiscard]] std::int32_t label(index_t i) const override { return labels_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] std::string name(index_t i) const override { return files_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] std::uint64_t hash() const override { return hash_; }

  void read(index_t i, std::vector<std::uint8_t>& bytes) const override {
    file_source file{files_[static_cast<std::size_t>(i)]};
    bytes.clear();
    for (std::size_t block = 64 * 1024;; block *= 2) {
      const std::size_t have = bytes.size();
      bytes.resize(have + block);
      const std::size_t came = file.read({bytes.data() + have, block});
      bytes.resize(have + came);
      if (came < block) {
        return;
      }
    }
  }

 private:
  static bool ends_in_one_of(std::string ending, const std::vector<std::string>& endings) {
    for (char& letter : ending) {
      letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
    return std::find(endings.begin(), endings.end(), ending) != endings.end();
  }

  std::vector<std::string> class_names_;
  std::vector<std::string> files_;
  std::vector<std::int32_t> labels_;
  std::uint64_t hash_ = 0;
};

}  // namespace gradus::data
