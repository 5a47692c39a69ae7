// SPDX-License-Identifier: BSL-1.0
//
// Encoded images with labels: the interface, and a folder with one folder of images per class.
#pragma once

#include <algorithm>     // std::adjacent_find, std::binary_search, std::find, std::sort
#include <cctype>        // std::tolower
#include <cstddef>       // std::size_t
#include <cstdint>       // std::int32_t, std::uint8_t, std::uint64_t, std::uintmax_t
#include <filesystem>    // std::filesystem::path
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::error_code
#include <utility>       // std::move
#include <vector>        // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
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

/// Options of class_folders.
struct class_folder_options {
  std::vector<std::string> endings = {".jpeg", ".jpg"};  ///< of the names of image files, in lower case
  /// The names of the classes, in the order of their labels: class_names() of the training's set, which
  /// io::save_weights stores. A class may then lack images. Empty: each folder is a class, and must have images.
  std::vector<std::string> classes = {};
};

/// A folder that contains one folder of image files per class, as for ImageNet's training images. Classes are numbered
/// in the order of their folders' names, or as in `classes`, images in the order of their names within a class. Only
/// files with one of the given endings are used, in lower or upper case. Folders inside the class folders are ignored,
/// and files and folders whose names begin with a point, such as .ipynb_checkpoints and ._1.jpg.
///
///   const data::class_folders train{"flowers/train"};
///   const data::class_folders test{"flowers/test", {.classes = train.class_names()}};
class class_folders final : public encoded_images {
 public:
  /// @throws format_error if the folder cannot be read or has no such image, if a folder has none and options.classes
  /// does not name it, or if options.classes lacks a folder
  /// @throws configuration_error if options.classes has a name twice
  explicit class_folders(const std::string& folder, const class_folder_options& options = {},
                         error_location where = error_location::current()) try
      : class_names_{options.classes} {
    namespace fs = std::filesystem;
    std::vector<fs::path> paths;
    list(folder, [&](const fs::directory_entry& entry) {
      std::error_code ignored;
      if (entry.is_directory(ignored)) {
        paths.push_back(entry.path());
      }
    });
    std::sort(paths.begin(), paths.end());
    const std::string operation = gradus::join({"class_folders '", folder, "'"});
    require_all_named(operation, paths);
    const bool named = !class_names_.empty();
    std::vector<std::string> without;
    for (std::size_t k = 0; k < (named ? class_names_.size() : paths.size()); ++k) {
      const fs::path path = named ? fs::path{folder} / class_names_[k] : paths[k];
      if (!named) {
        class_names_.push_back(path.filename().string());
      }
      std::vector<std::string> files;
      if (std::error_code ignored; !named || fs::is_directory(path, ignored)) {
        list(path.string(), [&](const fs::directory_entry& entry) {
          std::error_code ignored_too;
          if (ends_in_one_of(entry.path().extension().string(), options.endings) && !entry.is_directory(ignored_too)) {
            files.push_back(entry.path().string());
          }
        });
      }
      if (files.empty()) {
        without.push_back(path.filename().string());
      }
      add(files, k);
    }
    if (files_.empty() || (!named && !without.empty())) {
      std::string known;
      for (const std::string& ending : options.endings) {
        known += (known.empty() ? "" : " or ") + ending;
      }
      if (files_.empty()) {
        gradus::raise<format_error>(operation, {"a folder for each class with files that end in ", known},
                                    {paths.size(), " folders without any"},
                                    "of other files give the endings, such as {.endings = {\".png\"}}");
      }
      gradus::raise<format_error>(
          operation, {"files that end in ", known, " in the folder of each class"}, {"none in '", without.front(), "'"},
          "remove the folder, or give the classes of the training: {.classes = train.class_names()}");
    }
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The number of images.
  [[nodiscard]] index_t size() const override { return static_cast<index_t>(files_.size()); }
  /// The number of classes.
  [[nodiscard]] int classes() const override { return static_cast<int>(class_names_.size()); }
  /// The names of the classes, in the order of the labels.
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
  /// Calls visit(entry) for what is in a folder and not hidden.
  template <class Visit>
  static void list(const std::string& folder, const Visit& visit) {
    std::error_code failure;
    for (std::filesystem::directory_iterator entry{folder, failure}, end; !failure && entry != end;
         entry.increment(failure)) {
      if (!entry->path().filename().string().starts_with('.')) {
        visit(*entry);
      }
    }
    if (failure) {
      gradus::raise<format_error>({"class_folders '", folder, "'"}, "a folder that can be read", failure.message());
    }
  }

  /// Checks a list of classes that was given: it names each folder, and none twice.
  void require_all_named(std::string_view operation, const std::vector<std::filesystem::path>& folders) const {
    std::vector<std::string> names = class_names_;
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
      gradus::raise<configuration_error>(operation, "classes with different names", {"'", *twice, "' twice"});
    }
    for (const std::filesystem::path& each : folders) {
      const std::string name = each.filename().string();
      if (!names.empty() && !std::binary_search(names.begin(), names.end(), name)) {
        gradus::raise<format_error>(
            operation, {"folders of the ", names.size(), " classes that are given"},
            {"'", name, "', which is none of them"},
            "images of another class have no label: remove the folder, or train with the class");
      }
    }
  }

  void add(std::vector<std::string>& files, std::size_t label) {
    std::sort(files.begin(), files.end());
    for (std::string& file : files) {
      std::error_code unknown;  // a file that cannot be read is reported when it is read
      const std::uintmax_t bytes = std::filesystem::file_size(file, unknown);
      for (const std::uint64_t each : {gradus::detail::hash_text(std::filesystem::path{file}.filename().string()),
                                       std::uint64_t{label}, std::uint64_t{bytes}}) {
        hash_ = gradus::detail::mix_bits(hash_ ^ each);
      }
      labels_.push_back(static_cast<std::int32_t>(label));
      files_.push_back(std::move(file));
    }
  }

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
